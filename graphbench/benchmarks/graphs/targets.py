"""What is to be predicted: which column, of which level, and by which task."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np

from graphbench.benchmarks.graphs.raw import LEVELS, RawGraphs, as_rows
from graphbench.contracts.spec import TaskName
from graphbench.contracts.table import EDGE, GRAPH, NODE
from graphbench.data.precision import exact_numbers
from graphbench.errors import BadInput, UnknownName

TASKS: tuple[TaskName, ...] = (
    "graph-regression",
    "graph-classification",
    "graph-multilabel",
    "node-classification",
    "node-multilabel",
    "node-regression",
    "link-ranking",
)
#: Metrics of each task, the default first.
METRICS: dict[TaskName, tuple[str, ...]] = {
    "graph-regression": ("MAE", "RMSE", "scaled_MAE", "scaled_RMSE"),
    "graph-classification": ("accuracy", "class_accuracy", "macro_F1", "AUROC"),
    "graph-multilabel": ("AP", "AUROC"),
    "node-classification": ("accuracy", "class_accuracy", "macro_F1", "AUROC"),
    "node-multilabel": ("AP", "AUROC"),
    "node-regression": ("MAE", "RMSE", "scaled_MAE", "scaled_RMSE"),
    "link-ranking": ("MRR", "filtered_MRR", "filtered_no_self_MRR", "hits@1", "hits@3", "hits@10"),
}
#: Losses of each task, the default first.
LOSSES: dict[TaskName, tuple[str, ...]] = {
    "graph-regression": ("L1", "MSE"),
    "graph-classification": ("cross_entropy", "weighted_cross_entropy"),
    "graph-multilabel": ("BCE",),
    "node-classification": ("cross_entropy", "weighted_cross_entropy"),
    "node-multilabel": ("BCE",),
    "node-regression": ("L1", "MSE"),
    "link-ranking": ("contrastive_BCE",),
}
_CLASSES = ("graph-classification", "node-classification")
#: Whole numbers of more different values than this, which are also more than half of the rows, may be amounts.
_FEW = 20
_LABELS = "y"
#: What says that a node has no class, where two or more classes are left without it and none of them is negative.
_UNLABELLED = -1


@dataclass(frozen=True)
class Target:
    """What is to be predicted.

    Args:
        level: "graph", "node", or "link".
        names: columns of the source; none for links.
        task: a name of `graphbench.tasks`.
        why: how the task was found, for people.
        width: columns of `y`.
        classes: what the classes are in the source, as text; empty where they are numbered from 0.
        num_classes: of a classification.
    """

    level: str
    names: tuple[str, ...]
    task: TaskName
    why: str
    width: int = 1
    classes: tuple[str, ...] = ()
    num_classes: int | None = None

    def as_json(self) -> dict[str, Any]:
        """Plain values, for the store."""
        return asdict(self)

    @classmethod
    def from_json(cls, record: dict[str, Any]) -> Target:
        """What `as_json` gave."""
        return cls(**record | {"names": tuple(record["names"]), "classes": tuple(record["classes"])})


def find_target(
    raw: RawGraphs,
    wanted: Sequence[str] | None,
    task: TaskName | None,
    num_classes: int | None,
    other: Sequence[str] = (),
) -> Target:
    """Find the target and its task.

    Args:
        raw: the graphs.
        wanted: columns by name, `y:4` for one column of a matrix; by default `y`, pairs of links, or the one column of
            the graphs that is left over.
        task: to override what is inferred.
        num_classes: to override the number of classes.
        other: columns of graphs with another use, such as the split.

    Raises:
        UnknownName: there is no such column.
        BadInput: the target is missing somewhere, or does not fit the task; names the row.
    """
    if wanted is None and (task == "link-ranking" or (task is None and _only_links(raw))):
        if raw.links is None:
            raise BadInput(
                f"{raw.origin} holds no pairs to rank: task=link-ranking reads edge_label_index of Data objects, links "
                "of JSON lines, or a table links."
            )
        return Target("link", (), "link-ranking", "it holds pairs of nodes to rank" if task is None else "as asked")
    if task == "link-ranking":
        raise BadInput("target: link-ranking predicts the pairs of links; leave the target out.")
    names = tuple(wanted) if wanted is not None else _default(raw, other)
    level = _level(raw, names, task)
    values = target_values(raw, level, names)
    found, why = (task, "as asked") if task is not None else _infer(raw, level, names, values)
    if found.startswith("node-") != (level == NODE):
        raise BadInput(f"task={found} does not fit {', '.join(names)}, which belongs to each {level}.")
    if found in _CLASSES:
        classes, count = _classes(raw, level, names, values, num_classes)
        return Target(level, names, found, why, 1, classes, count)
    if num_classes is not None:
        raise BadInput(f"num_classes belongs to a classification, not to task={found}.")
    _check_numbers(raw, level, names, values, found)
    return Target(level, names, found, why, values.shape[1])


def _only_links(raw: RawGraphs) -> bool:
    return raw.links is not None and not any(_LABELS in raw.columns[level] for level in LEVELS)


def _default(raw: RawGraphs, other: Sequence[str]) -> tuple[str, ...]:
    if any(_LABELS in raw.columns[level] or (level, _LABELS) in raw.faults for level in LEVELS):
        return (_LABELS,)
    left = [name for name in raw.columns[GRAPH] if name not in other]
    if len(left) == 1:
        return (left[0],)
    columns = [f"{', '.join(raw.columns[level])} (of each {level})" for level in LEVELS if raw.columns[level]]
    raise BadInput(
        f"{raw.origin}: say with --data.target which column is to be predicted. There are "
        f"{'; '.join(columns) or 'none'}."
    )


def _split_name(raw: RawGraphs, name: str) -> tuple[str, int | None]:
    """`y:4` as the column y and 4, unless a column has that name."""
    base, _, number = name.rpartition(":")
    known = {column for level in LEVELS for column in raw.columns[level]}
    return (base, int(number)) if base and number.isdecimal() and name not in known else (name, None)


def _level(raw: RawGraphs, names: tuple[str, ...], task: TaskName | None) -> str:
    bare = [_split_name(raw, name)[0] for name in names]
    if not names or len(set(names)) != len(names):
        raise BadInput(f"target: expected one or several distinct columns, got {list(names)}.")
    for name in bare:
        fault = next((raw.faults[level, name] for level in LEVELS if (level, name) in raw.faults), None)
        if fault:
            raise BadInput(f"target {name}: {fault}")
    for level in LEVELS:
        if all(name in raw.columns[level] for name in bare):
            same_size = len(set(raw.num_nodes.tolist())) == 1
            if level == NODE and task is not None and task.startswith("graph") and same_size:
                return GRAPH  # as many targets as nodes, in graphs of one size
            if level == EDGE:
                raise BadInput(
                    f"target {', '.join(names)} belongs to the edges: no task predicts columns of edges. Pairs of "
                    "nodes to be ranked go into edge_label_index, links, or a table links."
                )
            return level
    known = [column for level in LEVELS for column in raw.columns[level]]
    missing = next((name for name in bare if name not in known), None)
    if missing is None:
        raise BadInput(f"target: {', '.join(names)} belong to different levels; name columns of one.")
    raise UnknownName(f"target column of {raw.origin}", missing, known)


def target_values(raw: RawGraphs, level: str, names: Sequence[str]) -> np.ndarray:
    """The columns side by side `[rows, width]`.

    Raises:
        BadInput: one has no column of that number.
    """
    parts = []
    for name in names:
        base, number = _split_name(raw, name)
        values = raw.columns[GRAPH].get(base) if level == GRAPH else raw.columns[NODE][base]
        if values is None:  # as many targets of a graph as nodes
            values = raw.columns[NODE][base].reshape(len(raw), -1)
        values = as_rows(values)
        if number is not None:
            if number >= values.shape[1]:
                raise BadInput(f"target {name}: {base} has {values.shape[1]} columns, numbered from 0.")
            values = values[:, number : number + 1]
        parts.append(values)
    if len({part.dtype == object for part in parts}) > 1:
        raise BadInput(f"target: {', '.join(names)} are text and numbers; a task predicts one kind.")
    return np.concatenate(parts, axis=1)


def _infer(raw: RawGraphs, level: str, names: tuple[str, ...], values: np.ndarray) -> tuple[TaskName, str]:
    """The task that fits the values."""
    hint = raw.hints.get("task")
    if hint is not None:
        return hint, f"as {raw.origin} says"  # type: ignore[return-value]
    what = ", ".join(names)
    if level == NODE and (values.dtype.kind == "f" or values.shape[1] > 1):
        return _infer_of_nodes(raw, what, values)
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
    task: TaskName = "node-classification" if level == NODE else "graph-classification"
    distinct = len(set(values[:, 0].tolist()))
    if kind in "iu" and distinct > _FEW and distinct > len(values) / 2:
        raise BadInput(
            f"{raw.origin}: {what} has {distinct:,} different integers in {len(values):,} rows, so it may be an amount "
            f"or a class. Say which with --data.task graph-regression or --data.task {task}."
        )
    return task, "text" if kind == "O" else "integers" if kind in "iu" else "yes or no"


def _infer_of_nodes(raw: RawGraphs, what: str, values: np.ndarray) -> tuple[TaskName, str]:
    """The task that fits real numbers, or several columns, of each node."""
    if values.dtype == object:
        raise BadInput(f"{raw.origin}: {what} are several columns of text; classification predicts one.")
    known = values[~np.isnan(values)] if values.dtype.kind == "f" else values
    binary = bool(np.isin(known, (0, 1)).all())
    if values.shape[1] > 1:
        if binary:
            return "node-multilabel", "several columns of 0 and 1 for each node"
        return "node-regression", "several columns of numbers for each node"
    whole = bool((known % 1 == 0).all()) and (binary or len(known) < len(values)) and len(set(known.tolist())) <= _FEW
    if whole:  # a column of integers with empty cells is one of real numbers
        return "node-classification", "whole numbers, missing for some nodes" if len(known) < len(values) else "0 and 1"
    return "node-regression", "real numbers of nodes"


def labelled(raw: RawGraphs, target: Target) -> np.ndarray:
    """Which nodes have a target `[N]`: it is not missing, nor -1 unless that is a class."""
    values = target_values(raw, target.level, target.names)
    return _known(values, target.num_classes is not None and str(_UNLABELLED) not in target.classes)


def _known(values: np.ndarray, negative_is_missing: bool) -> np.ndarray:
    if values.dtype == object:
        return np.array([any(value is not None for value in row) for row in values], dtype=bool)
    known = ~np.isnan(values.astype(float)).all(1)
    return known & (values[:, 0] != _UNLABELLED) if negative_is_missing else known


def _labelled_nodes(raw: RawGraphs, names: tuple[str, ...], values: np.ndarray) -> np.ndarray:
    """Classes of the nodes that have one `[known]`."""
    present = values[_known(values, negative_is_missing=False), 0]
    if not len(present):
        raise BadInput(f"{raw.origin}: {', '.join(names)} is missing everywhere.")
    if present.dtype == object:
        return present
    others = present[present != _UNLABELLED]
    return others if len(others) and others.min() >= 0 and others.min() < others.max() else present


def _classes(
    raw: RawGraphs, level: str, names: tuple[str, ...], values: np.ndarray, num_classes: int | None
) -> tuple[tuple[str, ...], int]:
    """Names of the classes in their order (none where they count from 0), and how many there are."""
    if values.shape[1] != 1:
        raise BadInput(f"target: a classification predicts one column, but {', '.join(names)} have {values.shape[1]}.")
    column = values[:, 0]
    if level == NODE:
        column = _labelled_nodes(raw, names, values)
        if column.dtype.kind == "f" and (wrong := ~np.isfinite(column) | (column % 1 != 0)).any():
            row = int(np.flatnonzero(values[:, 0] == column[wrong][0])[0])
            raise BadInput(f"{raw.place(level, row)}: the target {names[0]} {column[wrong][0]} is no class number.")
    elif column.dtype == object:
        _refuse_rows(raw, level, np.array([value is None for value in column], dtype=bool), names, column)
    else:
        _refuse_rows(raw, level, ~np.isfinite(column.astype(float)), names, column)
        if column.dtype.kind == "f":
            _refuse_rows(raw, level, column % 1 != 0, names, column, "is no class number")
    found = sorted(set(column.tolist()))
    integral = column.dtype != object
    counts_from_0 = integral and found == list(range(len(found)))
    if num_classes is not None and integral and found[0] >= 0 and found[-1] < num_classes:
        return (), num_classes
    if num_classes is not None and num_classes != len(found):
        raise BadInput(f"num_classes is {num_classes}, but {', '.join(names)} has {len(found)} classes: {found[:10]}.")
    if len(found) < 2:
        raise BadInput(f"{raw.origin}: {', '.join(names)} is {found[0]} everywhere, so there is nothing to classify.")
    return () if counts_from_0 else tuple(class_name(value) for value in found), len(found)


def class_name(value: Any) -> str:
    """A class as text; whole numbers without a point."""
    return str(int(value)) if isinstance(value, float | bool) else str(value)


def _check_numbers(raw: RawGraphs, level: str, names: tuple[str, ...], values: np.ndarray, task: TaskName) -> None:
    """Numbers, missing only beside others."""
    if values.dtype == object:
        raise BadInput(f"target: {', '.join(names)} is text, which task={task} cannot predict.")
    numbers = values.astype(float)
    _refuse_rows(raw, level, np.isinf(numbers).any(1), names, values, "is infinite")
    if task.endswith("-multilabel"):
        wrong = ~((numbers == 0) | (numbers == 1) | np.isnan(numbers))
        _refuse_rows(raw, level, wrong.any(1), names, values, "is neither 0 nor 1")
    if level == GRAPH and (task == "graph-regression" or values.shape[1] > 1):
        _refuse_rows(raw, GRAPH, np.isnan(numbers).all(1), names, values)
    if np.isnan(numbers).all():
        raise BadInput(f"{raw.origin}: {', '.join(names)} is missing everywhere.")


def _refuse_rows(
    raw: RawGraphs,
    level: str,
    wrong: np.ndarray,
    names: tuple[str, ...],
    values: np.ndarray,
    fault: str = "is missing",
) -> None:
    if wrong.any():
        row = int(np.flatnonzero(wrong)[0])
        told = "" if fault == "is missing" else f" {values[row]}"
        raise BadInput(f"{raw.place(level, row)}: the target {', '.join(names)}{told} {fault}.")


def metrics_of(target: Target) -> list[str]:
    """Metrics that may select checkpoints of a target, the default first.

    Of several targets that is a mean of scaled errors: errors of different units say nothing as one.
    """
    several = target.num_classes is None and target.width > 1
    known = [m for m in METRICS[target.task] if m != "AUROC" or target.num_classes in (None, 2)]
    known = [m for m in known if several or not m.startswith("scaled_")]
    return sorted(known, key=lambda name: not name.startswith("scaled_"))


def target_array(raw: RawGraphs, target: Target) -> tuple[str, np.ndarray] | None:
    """`y` with its level: classes `[rows, 1]` (int64) or numbers `[rows, width]` (see `exact_numbers`); None for links.

    Nodes without a class have -1, missing numbers are NaN.

    Raises:
        BadInput: graphs that were not there when the target was found hold a class that it does not know.
    """
    if target.level == "link":
        return None
    values = target_values(raw, target.level, target.names)
    if target.task not in _CLASSES:
        return target.level, exact_numbers(np.asarray(values, dtype=np.float64))
    rows = labelled(raw, target) if target.level == NODE else np.ones(len(values), dtype=bool)
    if not target.classes:
        filled = np.where(rows[:, None], values, _UNLABELLED)
        return target.level, filled.astype(np.int64)
    number = {name: place for place, name in enumerate(target.classes)}
    column = np.full(len(values), _UNLABELLED, dtype=np.int64)
    column[rows] = [number.get(class_name(value), _UNLABELLED) for value in values[rows, 0].tolist()]
    _refuse_rows(
        raw, target.level, rows & (column < 0), target.names, values, f"is none of {', '.join(target.classes)}"
    )
    return target.level, column[:, None]
