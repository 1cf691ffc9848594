"""`metrics.csv` as curves over finished epochs.

A row holds what was logged at one moment, so most of its cells are empty; an empty cell means "not logged", `nan` means
that the number was not finite. The two are kept apart: a run that diverged must not look like one that ended early.
"""

from __future__ import annotations

import pandas as pd

from graphbench.runs.tables import RunTable

#: Logged name -> values, indexed by finished epochs (1.0 is the end of the first; within an epoch by steps).
Curves = dict[str, "pd.Series[float]"]


def logged_in(table: RunTable) -> pd.DataFrame:
    """The rows as text, "" where nothing was logged.

    Raises:
        ValueError: there is no table, or it has no column `step` or `epoch`.
    """
    missing = {"step", "epoch"} - set(table.columns)
    if missing:
        raise ValueError(f"no column {' and '.join(sorted(missing))}")
    return pd.DataFrame(table.rows, columns=list(table.columns), dtype=str)


def curves_of(logged: pd.DataFrame) -> Curves:
    """Every logged number by finished epochs; empty where no epoch was finished.

    What is logged once per epoch lies on whole numbers. What is logged more often, or beside no epoch, is placed by its
    step: step s of a run with S steps per epoch at `(s + 1) / S`.

    Args:
        logged: see `logged_in`.
    """
    step, epoch = (pd.to_numeric(logged[name], errors="coerce") for name in ("step", "epoch"))
    epoch = epoch + 1 if bool((epoch == 0).any()) else epoch  # older versions counted from 0
    steps_per_epoch = ((step + 1) / epoch).max()
    if pd.isna(steps_per_epoch):
        return {}
    curves: Curves = {}
    for name in logged.columns.difference(["step", "epoch"]):
        here = logged[name].ne("")
        once = bool(epoch[here].notna().all()) and epoch[here].is_unique
        position = epoch[here] if once else (step[here] + 1) / steps_per_epoch
        values = pd.Series(
            pd.to_numeric(logged[name][here], errors="coerce").to_numpy(float), index=position, name=name
        )
        if len(values):
            curves[name] = values[~values.index.duplicated(keep="last")].sort_index()
    return curves
