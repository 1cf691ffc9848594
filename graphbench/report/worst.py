"""The rows of the test split that were predicted worst, drawn where they are molecules."""

from __future__ import annotations

import base64

import numpy as np
import pandas as pd
from markupsafe import Markup

from graphbench.diagnostics.figures.molecules import molecule_png
from graphbench.errors import BadInput
from graphbench.report.loading import Run
from graphbench.report.predictions import REGRESSION, choices_of, scored_runs, targets_of
from graphbench.report.scores import ResultTable
from graphbench.report.sections import Panel, Section

#: Molecules that are drawn of each model.
SHOWN = 6


def worst_section(table: ResultTable, name: str) -> Section | None:
    """The molecules with the largest errors of every model; None where predictions come without SMILES."""
    section = Section(
        name, "Largest errors",
        "The molecules of the test split that each model predicts worst: of regressions by the error in units of the "
        "target's root mean square error, of classes by the probability of the true one.",
    )  # fmt: skip
    for _, group, run in scored_runs(table):
        frame = run.predictions
        if frame is None or "smiles" not in frame:
            continue
        rows = _worst_values(frame) if table.metric in REGRESSION else _worst_classes(frame)
        try:
            section.panels += [_drawn(frame, row, f"{group.label}, {told}", run) for row, told in rows]
        except BadInput as error:
            section.notes.append(f"The molecules are not drawn: {error}")
            break
    return section if section.panels or section.notes else None


def _worst_values(frame: pd.DataFrame) -> list[tuple[int, str]]:
    """Rows of a regression, worst first, with what was said of them."""
    found: dict[int, tuple[float, str]] = {}
    for target in targets_of(frame):
        scaled = np.abs(target.residuals) / (np.sqrt((target.residuals**2).mean()) or 1.0)
        for place in np.argsort(-scaled, kind="stable")[:SHOWN]:
            row, name = int(target.rows[place]), f"{target.name} " if target.name else ""
            told = f"{name}predicted {target.predicted[place]:.4g}, true {target.true[place]:.4g}"
            if row not in found or scaled[place] > found[row][0]:
                found[row] = (float(scaled[place]), told)
    return [(row, told) for row, (_, told) in sorted(found.items(), key=lambda item: -item[1][0])[:SHOWN]]


def _worst_classes(frame: pd.DataFrame) -> list[tuple[int, str]]:
    """Rows of a classification whose true class was thought least probable; labels have no such order."""
    names = [column for column in map(str, frame.columns) if column.startswith("prediction_")]
    if "target" not in frame or not names or choices_of(frame) is None:
        return []
    rows = frame[[*names, "target"]].apply(pd.to_numeric, errors="coerce").dropna()
    rows = rows[rows["target"].between(0, len(names) - 1)]
    probabilities, truth = rows[names].to_numpy(float), rows["target"].to_numpy(int)
    own = probabilities[np.arange(len(truth)), truth]
    classes = [name.removeprefix("prediction_") for name in names]
    return [
        (int(rows.index[place]), f"true class {classes[truth[place]]}, its probability {own[place]:.4g}")
        for place in np.argsort(own, kind="stable")[:SHOWN]
    ]


def _drawn(frame: pd.DataFrame, row: int, told: str, run: Run) -> Panel:
    smiles = str(frame["smiles"].iloc[row])
    name = f" {frame['id'].iloc[row]}" if "id" in frame else ""
    png = molecule_png(smiles)
    if png is None:
        return Panel(Markup("<code>{}</code>").format(smiles), f"Row{name} ({told}, seed {run.seed})")
    data = base64.b64encode(png).decode("ascii")
    figure = Markup('<img src="data:image/png;base64,{}" alt="{}">').format(Markup(data), smiles)
    return Panel(figure, f"Row{name} ({told}, seed {run.seed}): {smiles}")
