"""Find the target of a prediction: its columns, their level, the task, and the weights of its rows."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any, cast

import numpy as np

from graphbench.benchmarks.graphs.raw import LEVELS, LINK, RawGraphs, as_rows
from graphbench.benchmarks.graphs.target_columns import (
    UNLABELLED,
    Cells,
    class_name,
    read_cells,
    refuse_odd_words,
    split_name,
    takes_bounds,
    target_parts,
    usual_missing,
    words_for_missing,
)
from graphbench.benchmarks.graphs.tasks import METRICS, infer_task, is_one_hot, one_hot_rows
from graphbench.contracts.spec import TaskName
from graphbench.contracts.table import EDGE, GRAPH, NODE
from graphbench.data.columns import split_bounds, to_exact_float
from graphbench.errors import BadInput, UnknownName

_CLASSES = ("graph-classification", "node-classification", "edge-classification")
_LABELS = "y"
#: Columns of edges that are the target if no column is called `y`.
_EDGE_LABELS = ("edge_label", "edge_y")
LINKS_HINT = " --data.task link-ranking predicts the edges of the graph."


@dataclass(frozen=True)
class Target:
    """The target of a prediction.

    Args:
        level: "graph", "node", "edge", or "link".
        names: columns of the source; empty for links.
        task: a name of `graphbench.training.tasks`.
        why: reason for this task, for the summary.
        width: columns of `y`.
        classes: texts of the classes in the source; empty if they are numbered from 0.
        num_classes: number of classes in a classification.
        missing: values of rows without a target, in addition to empty cells and NaN.
        one_hot: whether the classes are columns of 0 and 1, with exactly one 1 in each row.
    """

    level: str
    names: tuple[str, ...]
    task: TaskName
    why: str
    width: int = 1
    classes: tuple[str, ...] = ()
    num_classes: int | None = None
    missing: tuple[Any, ...] = ()
    one_hot: bool = False

    @classmethod
    def from_json(cls, record: dict[str, Any]) -> Target:
        """Build a target from its fields in the store."""
        return cls(**record | {name: tuple(record[name]) for name in ("names", "classes", "missing")})


def find_target(
    raw: RawGraphs,
    wanted: Sequence[str] | None,
    task: TaskName | None,
    num_classes: int | None,
    other: Sequence[str] = (),
    missing: Sequence[Any] | None = None,
    skip: bool = False,
) -> Target:
    """Find the target and its task.

    One column of a matrix is named like `y:4`. By default the target is `y`, `edge_label` or `edge_y` of edges, pairs
    of links, or the only column of the graphs without an `other` use, such as the split. `missing` values mean no
    target, in addition to the usual words; by default so does class -1, see `MISSING_WORDS`. With `skip`, graphs may
    have no target.

    Raises:
        UnknownName: there is no such column.
        BadInput: a target is missing or does not match the task; names the row.
    """
    if predicts_links(raw, wanted, task):
        return _link_target(raw, task)
    if task == "link-ranking":
        raise BadInput("target: link-ranking predicts the pairs of links; leave the target out.")
    names = tuple(wanted) if wanted is not None else _default_columns(raw, other)
    level = _common_level(raw, names, task)
    # The order matters: words for missing values make bounds readable, bounds decide the task, the task decides on -1.
    words = words_for_missing(target_parts(raw, level, names), missing)
    cells = read_cells(raw, level, names, words, bounds=task is None or takes_bounds(task))
    bounded = task is None and bool(cells.signs.any())
    task = cast("TaskName", f"{level}-regression") if bounded else task
    values, present = cells.values, ~cells.absent.all(1)
    if not present.any():
        raise BadInput(f"{raw.origin}: {', '.join(names)} is missing everywhere.")
    if task not in _CLASSES:
        refuse_odd_words(raw, level, names, cells)
    one_hot, why = is_one_hot(values[present]), "numbers and bounds" if bounded else "as asked"
    if task is None:
        task, why = infer_task(raw, level, names, values[~cells.marked.all(1)], one_hot)
    if task.partition("-")[0] != level:
        raise BadInput(f"task={task} does not fit {', '.join(names)}, which belongs to each {level}.")
    _refuse_columns_of_classes(names, values, task, one_hot)
    if missing is None and task in _CLASSES and not one_hot:
        words = (*usual_missing(values[present]), *words)
    target = Target(level, names, task, why, values.shape[1], missing=words, one_hot=one_hot)
    if level == GRAPH and not skip:
        _check_complete(raw, target)
    if task in _CLASSES:
        classes, count = _classes(raw, target, num_classes)
        return replace(target, width=1, classes=classes, num_classes=count)
    if num_classes is not None:
        raise BadInput(f"num_classes belongs to a classification, not to task={task}.")
    _check_numbers(raw, target)
    return replace(target, one_hot=False)


def _refuse_columns_of_classes(names: Sequence[str], values: np.ndarray, task: TaskName, one_hot: bool) -> None:
    if task in _CLASSES and values.shape[1] > 1 and not one_hot:
        raise BadInput(
            f"target: a classification predicts one column, or columns of which each row has exactly one 1; "
            f"{', '.join(names)} have {values.shape[1]}."
        )


def _link_target(raw: RawGraphs, task: TaskName | None) -> Target:
    if LINK not in raw.pairs:
        raise BadInput(
            f"{raw.origin} holds no pairs to rank: task=link-ranking reads edge_label_index of Data objects, links "
            "of JSON lines, or a table links."
        )
    return Target("link", (), "link-ranking", "as asked" if task else "it holds pairs of nodes to rank")


def predicts_links(raw: RawGraphs, wanted: Sequence[str] | None, task: TaskName | None) -> bool:
    """Return whether pairs of nodes are to be ranked: by request, or because there is nothing else to predict."""
    only_links = LINK in raw.pairs and not any(_LABELS in raw.columns[level] for level in LEVELS)
    return wanted is None and (task == "link-ranking" or (task is None and only_links))


def _default_columns(raw: RawGraphs, other: Sequence[str]) -> tuple[str, ...]:
    if any(_LABELS in raw.columns[level] or (level, _LABELS) in raw.faults for level in LEVELS):
        return (_LABELS,)
    edge_labels = [name for name in _EDGE_LABELS if name in raw.columns[EDGE] or (EDGE, name) in raw.faults]
    unused = [name for name in raw.columns[GRAPH] if name not in other]
    for names in (edge_labels, unused):
        if len(names) == 1:
            return (names[0],)
    columns = [f"{', '.join(raw.columns[level])} (of each {level})" for level in LEVELS if raw.columns[level]]
    raise BadInput(
        f"{raw.origin}: choose the column to predict with --data.target. There are "
        f"{'; '.join(columns) or 'none'}.{LINKS_HINT if len(raw) == 1 else ''}"
    )


def _common_level(raw: RawGraphs, names: tuple[str, ...], task: TaskName | None) -> str:
    bare = [split_name(raw, name)[0] for name in names]
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
                return GRAPH  # graphs of one size, with as many targets as nodes
            return level
    columns = [column for level in LEVELS for column in raw.columns[level]]
    missing = next((name for name in bare if name not in columns), None)
    if missing is None:
        raise BadInput(f"target: {', '.join(names)} belong to different levels; name columns of one.")
    raise UnknownName(f"target column of {raw.origin}", missing, columns)


def check_columns(raw: RawGraphs, target: Target) -> None:
    """Refuse new graphs that lack a column of the target."""
    for name in target.names:
        base = split_name(raw, name)[0]
        in_nodes = target.level == GRAPH and base not in raw.columns[GRAPH] and base in raw.columns[NODE]
        raw.column(NODE if in_nodes else target.level, base)


def read_target(raw: RawGraphs, target: Target) -> Cells:
    """Read the cells of a target."""
    return read_cells(raw, target.level, target.names, target.missing, takes_bounds(target.task))


def labelled(raw: RawGraphs, target: Target) -> np.ndarray:
    """Return the mask of graphs, nodes or edges with a target `[rows]` that counts and is not missing."""
    return np.asarray(~read_target(raw, target).absent.all(1))


def _check_complete(raw: RawGraphs, target: Target) -> None:
    without = np.flatnonzero(~labelled(raw, target))
    if not without.size:
        return
    row = int(without[0])
    value = read_target(raw, target).values[row]
    note = f" ({value[0]})" if target.missing and value.size == 1 and value[0] in target.missing else ""
    marked = f", or read {target.missing[0]} as any other value with --data.missing '[]'" if note else ""
    raise BadInput(
        f"{raw.place(GRAPH, row)}: the target {', '.join(target.names)} is missing{note}; {without.size:,} of "
        f"{len(raw):,} graphs have none. Leave them out with --data.on_error skip{marked}."
    )


def _class_values(raw: RawGraphs, target: Target) -> np.ndarray:
    """Return the class of each row as in the source `[rows]`; for one-hot columns, its number."""
    values = read_target(raw, target).values
    return np.nan_to_num(values).argmax(1) if target.one_hot else values[:, 0]


def _classes(raw: RawGraphs, target: Target, num_classes: int | None) -> tuple[tuple[str, ...], int]:
    """Return the names of the classes in order (empty if they count from 0), and their number."""
    values, rows = _class_values(raw, target), np.flatnonzero(labelled(raw, target))
    name, column = ", ".join(target.names), values[rows]
    if target.one_hot:
        width = target.width
        if num_classes not in (None, width):
            raise BadInput(f"num_classes is {num_classes}, but {name} has {width} columns, one for each class.")
        return (target.names if len(target.names) == width else ()), width
    if column.dtype.kind == "f" and (wrong := ~np.isfinite(column) | (column % 1 != 0)).any():
        row = int(rows[wrong][0])
        raise BadInput(f"{raw.place(target.level, row)}: the target {name} {values[row]} is not a class number.")
    classes = sorted(set(column.tolist()))
    if not classes:
        raise BadInput(f"{raw.origin}: {name} is missing everywhere.")
    integral = column.dtype != object
    # With num_classes, numbers are classes unchanged, even if some do not occur.
    counts_from_0 = integral and classes == list(range(len(classes)))
    if num_classes is not None and integral and classes[0] >= 0 and classes[-1] < num_classes:
        return (), num_classes
    if num_classes is not None and num_classes != len(classes):
        raise BadInput(f"num_classes is {num_classes}, but {name} has {len(classes)} classes: {classes[:10]}.")
    if len(classes) < 2:
        raise BadInput(f"{raw.origin}: {name} is {classes[0]} everywhere, so there is nothing to classify.")
    return () if counts_from_0 else tuple(class_name(value) for value in classes), len(classes)


def _check_numbers(raw: RawGraphs, target: Target) -> None:
    """Refuse texts, infinite numbers, and flags that are neither 0 nor 1."""
    cells = read_target(raw, target)
    if cells.values.dtype == object:
        raise BadInput(f"target: {', '.join(target.names)} is text, which task={target.task} cannot predict.")
    numbers = cells.numbers
    _refuse_rows(raw, target, np.asarray(np.isinf(numbers).any(1)), cells.values, "is infinite")
    if target.task.endswith("-multilabel"):
        wrong = ~((numbers == 0) | (numbers == 1) | np.isnan(numbers))
        _refuse_rows(raw, target, wrong.any(1), cells.values, "is neither 0 nor 1")


def _refuse_rows(raw: RawGraphs, target: Target, wrong: np.ndarray, values: np.ndarray, fault: str) -> None:
    if wrong.any():
        row = int(np.flatnonzero(wrong)[0])
        raise BadInput(f"{raw.place(target.level, row)}: the target {', '.join(target.names)} {values[row]} {fault}.")


def metrics_of(target: Target, log10: bool = False) -> list[str]:
    """Return the metrics that may select checkpoints of a target, starting with the default.

    For several targets, and those with a logarithm, the default is a mean of scaled errors, since errors with different
    units or magnitudes cannot be averaged.
    """
    scaled = target.num_classes is None and (target.width > 1 or log10)
    metrics = [m for m in METRICS[target.task] if m not in ("AUROC", "F1") or target.num_classes in (None, 2)]
    metrics = [m for m in metrics if scaled or not m.startswith("scaled_")]
    return sorted(metrics, key=lambda name: not name.startswith("scaled_"))


def log10_targets(raw: RawGraphs, target: Target, wanted: Sequence[str]) -> tuple[bool, ...]:
    """Return which columns of a target are trained on in log10, given by name, or by number if one name has several.

    Raises:
        BadInput: there is no such number, the task is not a regression, or a value is not above 0; names the row.
    """
    if not wanted:
        return ()
    names = target.names if len(target.names) == target.width else tuple(map(str, range(target.width)))
    if not target.task.endswith("-regression") or not set(wanted) <= set(names):
        raise BadInput(
            f"log10={list(wanted)}: expected targets of a regression, of {', '.join(names)} ({target.task})."
        )
    cells = read_target(raw, target)
    chosen = tuple(name in wanted for name in names)
    wrong = (cells.numbers <= 0) & np.array(chosen)
    _refuse_rows(raw, target, wrong.any(1), cells.values, "is not above 0, so it has no log10")
    return chosen


def target_array(raw: RawGraphs, target: Target) -> tuple[str, np.ndarray] | None:
    """Return the level and `y`: classes `[rows, 1]` (int64) or numbers `[rows, width]`; None for links.

    Rows without a class have -1, missing numbers are NaN; see `to_exact_float`.

    Raises:
        BadInput: new graphs have a class that the target does not have.
    """
    if target.level == "link":
        return None
    if target.task not in _CLASSES:
        cells = read_target(raw, target)
        return target.level, to_exact_float(np.where(cells.signs == 0, cells.numbers, np.nan))
    classes, rows = _class_values(raw, target), labelled(raw, target)
    if target.one_hot:
        values = read_target(raw, target).values
        _refuse_rows(raw, target, rows & ~one_hot_rows(values), values, "does not have exactly one 1")
    elif not target.classes:
        numbers = np.arange(UNLABELLED, target.num_classes or 0)
        wrong = rows & ~np.isin(classes, numbers)
        _refuse_rows(raw, target, wrong, classes, f"is none of the classes 0 to {numbers[-1]}")
    if target.one_hot or not target.classes:
        return target.level, np.where(rows, classes, UNLABELLED).astype(np.int64)[:, None]
    number = {name: index for index, name in enumerate(target.classes)}
    column = np.full(len(classes), UNLABELLED, dtype=np.int64)
    column[rows] = [number.get(class_name(value), UNLABELLED) for value in classes[rows].tolist()]
    _refuse_rows(raw, target, rows & (column < 0), classes, f"is none of {', '.join(target.classes)}")
    return target.level, column[:, None]


def bound_arrays(raw: RawGraphs, target: Target) -> dict[str, tuple[str, np.ndarray]]:
    """Return `y`, `y_lower` and `y_upper` with their level if some targets are bounds; else nothing."""
    if target.level == "link" or not takes_bounds(target.task):
        return {}
    cells = read_target(raw, target)
    if not cells.signs.any():
        return {}
    return {name: (target.level, column) for name, column in split_bounds(cells.numbers, cells.signs).items()}


def is_symmetric(raw: RawGraphs, values: np.ndarray) -> bool:
    """Return whether every edge has a reverse one with the same target `[E, width]`; False without edges."""
    rest = np.nan_to_num(values.astype(np.float64), nan=np.inf)  # NaN equals nothing, not even its own reverse
    forward, reverse = raw.numbered(raw.edges), raw.numbered(raw.edges[:, ::-1])
    one, other = (np.lexsort((*rest.T, keys)) for keys in (forward, reverse))
    return len(values) > 0 and np.array_equal(forward[one], reverse[other]) and np.array_equal(rest[one], rest[other])


def weight_array(raw: RawGraphs, target: Target, name: str) -> tuple[str, np.ndarray]:
    """Return the level of the target and a column of weights, float32 `[rows]`; 0 for rows without a target.

    Raises:
        UnknownName: there is no such column; suggests similar names.
        BadInput: pairs are predicted, or a weight is missing, negative, infinite or not a number; names the row.
    """
    if target.level == "link":
        raise BadInput(f"weight={name}: pairs of nodes to be ranked have no weights.")
    values = as_rows(raw.column(target.level, name))
    if values.dtype == object or values.shape[1] != 1:
        kind = "text" if values.dtype == object else f"{values.shape[1]} columns"
        raise BadInput(f"weight: {name} is {kind}; expected one number for each {target.level}.")
    weights = values[:, 0].astype(np.float32)
    counts = labelled(raw, target)
    wrong = np.flatnonzero(counts & ~(np.isfinite(weights) & (weights >= 0)))
    if wrong.size:
        row = int(wrong[0])
        fault = "is missing" if np.isnan(weights[row]) else f"is {values[row, 0]}; expected a number of 0 or more"
        raise BadInput(f"{raw.place(target.level, row)}: the weight {name} {fault}.")
    return target.level, np.where(counts, weights, np.float32(0))
