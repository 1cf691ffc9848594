"""Infer the task of a target from its values; list the tasks with their metrics and losses."""

from __future__ import annotations

from typing import cast

import numpy as np

from graphbench.benchmarks.graphs.raw import RawGraphs
from graphbench.contracts.spec import LOSSES as LOSSES_OF_KIND
from graphbench.contracts.spec import METRICS as METRICS_OF_KIND
from graphbench.contracts.spec import TASK_KINDS, TaskName
from graphbench.contracts.table import EDGE, GRAPH, NODE
from graphbench.errors import BadInput

TASKS = tuple(cast("TaskName", task) for task, (_, kind) in TASK_KINDS.items() if kind in METRICS_OF_KIND)
#: Metrics of each task, starting with the default.
METRICS = {task: METRICS_OF_KIND[TASK_KINDS[task][1]] for task in TASKS}
METRICS["edge-classification"] += ("F1",)
#: Further metrics of pairs if the source has wrong pairs, as defined by OGB's evaluators.
NEGATIVE_METRICS = ("ogb_MRR", "ogb_hits@20", "ogb_hits@50", "ogb_hits@100")
#: Losses of each task, starting with the default.
LOSSES = {task: LOSSES_OF_KIND[TASK_KINDS[task][1]] for task in TASKS}
#: Integers with more different values than this, in more than half of the rows, may be amounts.
_MAX_CLASSES = 20
_REGRESSIONS: dict[str, TaskName] = {NODE: "node-regression", EDGE: "edge-regression"}


def infer_task(
    raw: RawGraphs, level: str, names: tuple[str, ...], values: np.ndarray, one_hot: bool
) -> tuple[TaskName, str]:
    """Infer the task from the values of the rows with a target `[rows, width]`, with the reason."""
    hint = raw.hints.get("task")
    if hint is not None:
        return hint, f"as {raw.origin} says"  # type: ignore[return-value]
    if one_hot:
        why = f"each row has exactly one 1, or --data.task {level}-multilabel"
        return cast("TaskName", f"{level}-classification"), why
    what = ", ".join(names)
    if level != GRAPH and (values.dtype.kind == "f" or values.shape[1] > 1):
        return _infer_for_rows(raw, level, what, values)
    single, kind = values.shape[1] == 1, values.dtype.kind
    if kind == "f":
        only_labels = bool((np.isnan(values) | (values == 0) | (values == 1)).all()) and not np.isnan(values).all()
        if only_labels and not (single and not np.isnan(values).any()):
            return "graph-multilabel", "0, 1 and missing values" if single else "several columns of 0 and 1"
        return ("graph-classification", "only 0 and 1") if only_labels else ("graph-regression", "real numbers")
    if not single:
        if kind in "biu" and bool(np.isin(values, (0, 1)).all()):
            return "graph-multilabel", "several columns of 0 and 1"
        if kind in "iu":
            return "graph-regression", "several columns of integers"
        raise BadInput(f"{raw.origin}: {what} are several columns of text; classification predicts one.")
    task = cast("TaskName", f"{level}-classification")
    distinct = len(set(values[:, 0].tolist()))
    if kind in "iu" and distinct > _MAX_CLASSES and distinct > len(values) / 2:
        raise BadInput(
            f"{raw.origin}: {what} has {distinct:,} different integers in {len(values):,} rows, so it may be an amount "
            f"or a class. Choose --data.task {level}-regression or --data.task {task}."
        )
    return task, "text" if kind == "O" else "integers" if kind in "iu" else "yes or no"


def _infer_for_rows(raw: RawGraphs, level: str, what: str, values: np.ndarray) -> tuple[TaskName, str]:
    """Infer the task from real numbers, or several columns, of each node or edge."""
    if values.dtype == object:
        raise BadInput(f"{raw.origin}: {what} are several columns of text; classification predicts one.")
    present = values[~np.isnan(values)] if values.dtype.kind == "f" else values
    binary = bool(np.isin(present, (0, 1)).all())
    if values.shape[1] > 1:
        if binary and level == NODE:
            return "node-multilabel", "several columns of 0 and 1 for each node"
        if binary:
            raise BadInput(
                f"{raw.origin}: {what} are several columns of 0 and 1 of each edge; edges have one class, or numbers "
                "(--data.task edge-regression)."
            )
        return _REGRESSIONS[level], f"several columns of numbers for each {level}"
    incomplete = len(present) < len(values)  # a column of integers with empty cells is read as floats
    if (present % 1 == 0).all() and (binary or incomplete) and len(set(present.tolist())) <= _MAX_CLASSES:
        why = f"whole numbers, missing for some {level}s" if incomplete else "0 and 1"
        return cast("TaskName", f"{level}-classification"), why
    return _REGRESSIONS[level], f"real numbers of {level}s"


def is_one_hot(values: np.ndarray) -> bool:
    """Return whether there are several columns `[rows, width]` and each row has exactly one 1 and otherwise 0."""
    if values.shape[1] < 2 or values.dtype == object or not len(values):
        return False
    return bool(one_hot_rows(values).all())


def one_hot_rows(values: np.ndarray) -> np.ndarray:
    """Return the mask of the rows `[rows]` with exactly one 1 and otherwise 0."""
    return np.asarray(np.isin(values, (0, 1)).all(1) & (values.sum(1) == 1))
