"""Convert a model's numbers to columns of a table, next to the given rows."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pandas as pd

from graphbench.contracts import Benchmark

PROBLEM, OUTSIDE, NODE, NODE_NAME = "problem", "outside_training", "node", "node_name"
Columns = dict[str, np.ndarray | pd.api.extensions.ExtensionArray]


def prediction_columns(
    data: Benchmark, predictions: np.ndarray, classes: Sequence[str], present: np.ndarray
) -> Columns:
    """Return columns of predictions `[rows, targets]` or `[rows, classes]`, NaN for rows that are not `present`.

    A regression has `prediction_<target>` in the target's unit. A classification has the most probable class in
    `prediction_<target>`, then `probability_<class>` for each; yes-or-no labels have the more probable answer as 1 or 0
    in `prediction_<label>`, then `probability_<label>`.
    """
    targets = data.target_labels()
    columns: Columns = {}
    if data.spec.num_classes is not None:
        # argmax treats NaN as the largest number.
        best = np.where(present, np.nan_to_num(predictions).argmax(1), 0)
        columns[f"prediction_{targets[0]}"] = _classes(best, classes, present)
        names: Sequence[str] = classes
    elif data.spec.kind == "multilabel":
        for number, name in enumerate(targets):
            more = (predictions[:, number] > 0.5).astype(np.int64)  # as in scores and torchmetrics
            columns[f"prediction_{name}"] = pd.arrays.IntegerArray(more, ~present)
        names = targets
    else:
        return {f"prediction_{name}": predictions[:, number] for number, name in enumerate(targets)}
    return columns | {f"probability_{name}": predictions[:, number] for number, name in enumerate(names)}


def target_columns(data: Benchmark, targets: np.ndarray, classes: Sequence[str]) -> Columns:
    """Return columns `target_<target>` of known targets `[rows, targets]`: numbers, or the names of classes.

    Unknown targets are NaN, or negative class numbers; those cells are empty.
    """
    names = [f"target_{name}" for name in data.target_labels()]
    if data.spec.num_classes is None:
        return {name: targets[:, number] for number, name in enumerate(names)}
    labelled = targets[:, 0] >= 0  # not NaN either
    return {names[0]: _classes(np.where(labelled, targets[:, 0], 0).astype(np.int64), classes, labelled)}


def _classes(best: np.ndarray, classes: Sequence[str], present: np.ndarray) -> pd.api.extensions.ExtensionArray:
    """Return the names of classes by their numbers, as integers if the names are these numbers."""
    if list(classes) == [str(number) for number in range(len(classes))]:
        return pd.arrays.IntegerArray(best.astype(np.int64), ~present)
    names = np.array(classes, dtype=object)[best]
    names[~present] = None
    return pd.array(names, dtype="string")


def beside(frame: pd.DataFrame, columns: Columns) -> pd.DataFrame:
    """Add columns to the given rows; number all of them if the input already has one of them.

    Examples:
        >>> list(beside(pd.DataFrame({"problem": [""]}), {"prediction_y": np.ones(1), "problem": np.array([""])}))
        ['problem', 'prediction_y_2', 'problem_2']
    """
    taken, number, names = {str(name) for name in frame}, 1, list(columns)
    while taken & set(names):
        number += 1
        names = [f"{name}_{number}" for name in columns]
    further = pd.DataFrame(columns, index=frame.index)
    further.columns = pd.Index(names)
    return pd.concat([frame, further], axis=1)


def own_name(frame: pd.DataFrame, name: str) -> str | None:
    """Return the name that `beside` gave a column of the prediction; None if there is none.

    Examples:
        >>> own_name(pd.DataFrame({"problem": [""], "prediction_y_2": [1], "problem_2": [""]}), PROBLEM)
        'problem_2'
    """
    last = frame.columns[-1]  # always `problem`
    ending = str(last).removeprefix(PROBLEM)
    return f"{name}{ending}" if f"{name}{ending}" in frame else None
