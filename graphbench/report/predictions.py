"""What `predictions-test.csv` says: targets with their predictions, or classes with their probabilities."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
import pandas as pd

from graphbench.report.groups import Group
from graphbench.report.loading import Run
from graphbench.report.scores import ResultTable

#: Metrics that only regressions have.
REGRESSION = ("MAE", "RMSE", "MSE", "R2", "Spearman", "Pearson", "explained_variance")


@dataclass(frozen=True)
class Target:
    """One target of a regression, in the rows where it is known.

    Args:
        name: "" where there is but one.
        rows: index of these rows in the file.
        predicted: `[rows]`.
        true: `[rows]`.
        low, high: ends of the intervals `[rows]`, None without.
        label: the target's own name where intervals tell it, else `name`.
    """

    name: str
    rows: np.ndarray
    predicted: np.ndarray
    true: np.ndarray
    low: np.ndarray | None = None
    high: np.ndarray | None = None
    label: str = ""

    @property
    def residuals(self) -> np.ndarray:
        """Predicted less true `[rows]`."""
        return self.predicted - self.true


def scored_runs(table: ResultTable) -> Iterator[tuple[int, Group, Run]]:
    """Of every group the first run that was tested and has test predictions, with the number of the group."""
    for number, group in enumerate(table.groups):
        for run in group.runs:
            if run.predictions is not None and run.scores("test"):
                yield number, group, run
                break


def target_columns(frame: pd.DataFrame) -> list[tuple[str, str, str]]:
    """Name of each target, column of its predictions and column of the truth."""
    pairs = []
    for column in map(str, frame.columns):
        if column == "prediction" or column.startswith("prediction_"):
            target = column.removeprefix("prediction").removeprefix("_")
            true = f"target_{target}" if target else "target"
            if true in frame:
                pairs.append((target, column, true))
    return pairs


def targets_of(frame: pd.DataFrame) -> list[Target]:
    """Those of a regression that are known in some row."""
    names = [c.removesuffix("_low") for c in map(str, frame.columns) if c.endswith("_low")]
    intervals = [name for name in names if f"{name}_high" in frame]
    found = []
    for name, predicted, true in target_columns(frame):
        own = intervals[0] if not name and len(intervals) == 1 else name if name in intervals else None
        columns = [predicted, true] + ([f"{own}_low", f"{own}_high"] if own else [])
        known = frame[columns].apply(pd.to_numeric, errors="coerce").dropna()
        if known.empty:
            continue
        values = [known[column].to_numpy(float) for column in columns]
        low, high = values[2:] if own else (None, None)
        found.append(Target(name, known.index.to_numpy(), values[0], values[1], low, high, own or name))
    return found


def choices_of(frame: pd.DataFrame) -> tuple[np.ndarray, np.ndarray, np.ndarray] | None:
    """Confidences and whether they were right, for classes and labels.

    Returns:
        Of every known class the probability of the predicted one, whether that is the true one, and the probability of
        the true one; of every known label the probability of yes, whether yes is true, and the probability of what is
        true: `[n]` each. None where the file holds no probabilities.
    """
    names = [column for column in map(str, frame.columns) if column.startswith("prediction_")]
    if {"head", "tail"} & set(frame.columns):
        return None
    if "target" in frame and len(names) > 1:
        rows = frame[[*names, "target"]].apply(pd.to_numeric, errors="coerce").dropna()
        probabilities, truth = rows[names].to_numpy(float), rows["target"].to_numpy(int)
        inside = (truth >= 0) & (truth < len(names))
        probabilities, truth = probabilities[inside], truth[inside]
        if not len(truth) or not _are_probabilities(probabilities):
            return None
        best = probabilities.argmax(1)
        numbers = np.arange(len(best))
        return probabilities[numbers, best], best == truth, probabilities[numbers, truth]
    found = [(target.predicted, target.true) for target in targets_of(frame)]
    if not found:
        return None
    yes, truth = (np.concatenate(parts) for parts in zip(*found, strict=True))
    if not _are_probabilities(yes) or not np.isin(truth, (0, 1)).all():
        return None
    return yes, truth == 1, np.where(truth == 1, yes, 1 - yes)


def _are_probabilities(values: np.ndarray) -> bool:
    return bool(((values >= 0) & (values <= 1 + 1e-6)).all())
