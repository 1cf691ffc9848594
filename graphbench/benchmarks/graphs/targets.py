"""What is to be predicted: which column, of which level, and by which task."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass, replace
from typing import Any, cast

import numpy as np

from graphbench.benchmarks.graphs.inference import METRICS, infer_task, is_one_hot
from graphbench.benchmarks.graphs.missing import (
    UNLABELLED,
    class_name,
    empty_cells,
    marked_cells,
    refuse_odd_words,
    text_as_numbers,
    usual_missing,
    words_for_missing,
)
from graphbench.benchmarks.graphs.raw import LEVELS, RawGraphs, as_rows
from graphbench.contracts.spec import TaskName
from graphbench.contracts.table import EDGE, GRAPH, NODE
from graphbench.data.columns import exact_numbers
from graphbench.errors import BadInput, UnknownName

_CLASSES = ("graph-classification", "node-classification", "edge-classification")
_LABELS = "y"
#: Columns of edges that are the target where nothing is called `y`.
_OF_EDGES = ("edge_label", "edge_y")
LINKS_HINT = " --data.task link-ranking predicts the edges of the graph."


@dataclass(frozen=True)
class Target:
    """What is to be predicted.

    Args:
        level: "graph", "node", "edge", or "link".
        names: columns of the source; none for links.
        task: a name of `graphbench.training.tasks`.
        why: how the task was found, for people.
        width: columns of `y`.
        classes: what the classes are in the source, as text; empty where they are numbered from 0.
        num_classes: of a classification.
        missing: values that say that a row has no target, beside empty cells and NaN.
        one_hot: the classes are columns of 0 and 1, exactly one of them 1 in each row.
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

    def as_json(self) -> dict[str, Any]:
        """Plain values, for the store."""
        return asdict(self)

    @classmethod
    def from_json(cls, record: dict[str, Any]) -> Target:
        """What `as_json` gave."""
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

    Args:
        raw: the graphs.
        wanted: columns by name, `y:4` for one column of a matrix; by default `y`, `edge_label` or `edge_y` of edges,
            pairs of links, or the one column of the graphs that is left over.
        task: to override what is inferred.
        num_classes: to override the number of classes.
        other: columns of graphs with another use, such as the split.
        missing: values that mean no target, beside usual words; by default -1 of classes, too, see `MISSING_WORDS`.
        skip: leave graphs without a target out.

    Raises:
        UnknownName: there is no such column.
        BadInput: the target is missing somewhere, or does not fit the task; names the row.
    """
    if predicts_links(raw, wanted, task):
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
    words = words_for_missing(_target_parts(raw, level, names), missing)
    values = target_values(raw, level, names, words)
    marked = marked_cells(raw, level, values, words)
    present = ~(marked | empty_cells(values)).all(1)
    if not present.any():
        raise BadInput(f"{raw.origin}: {', '.join(names)} is missing everywhere.")
    one_hot = is_one_hot(values[present])
    if task not in _CLASSES:
        refuse_odd_words(raw, level, names, values, marked)
    found: TaskName
    if task is not None:
        found, why = task, "as asked"
    elif one_hot and "task" not in raw.hints:
        found = cast("TaskName", f"{level}-classification")
        why = f"each row has exactly one 1, or --data.task {level}-multilabel"
    else:
        found, why = infer_task(raw, level, names, values[~marked.all(1)])
    if found.partition("-")[0] != level:
        raise BadInput(f"task={found} does not fit {', '.join(names)}, which belongs to each {level}.")
    if found in _CLASSES and values.shape[1] > 1 and not one_hot:
        raise BadInput(
            f"target: a classification predicts one column, or columns of which each row has exactly one 1; "
            f"{', '.join(names)} have {values.shape[1]}."
        )
    rule = usual_missing(values[present]) if missing is None and found in _CLASSES and not one_hot else ()
    target = Target(level, names, found, why, values.shape[1], missing=(*rule, *words), one_hot=one_hot)
    if level == GRAPH and not skip:
        _refuse_missing(raw, target)
    if found in _CLASSES:
        classes, count = _classes(raw, target, num_classes)
        return replace(target, width=1, classes=classes, num_classes=count)
    if num_classes is not None:
        raise BadInput(f"num_classes belongs to a classification, not to task={found}.")
    _check_numbers(raw, target, values)
    return replace(target, one_hot=False)


def predicts_links(raw: RawGraphs, wanted: Sequence[str] | None, task: TaskName | None) -> bool:
    """Whether pairs of nodes are to be ranked: that is asked for, or there is nothing else to predict."""
    return wanted is None and (task == "link-ranking" or (task is None and _only_links(raw)))


def _only_links(raw: RawGraphs) -> bool:
    return raw.links is not None and not any(_LABELS in raw.columns[level] for level in LEVELS)


def _default(raw: RawGraphs, other: Sequence[str]) -> tuple[str, ...]:
    if any(_LABELS in raw.columns[level] or (level, _LABELS) in raw.faults for level in LEVELS):
        return (_LABELS,)
    of_edges = [name for name in _OF_EDGES if name in raw.columns[EDGE] or (EDGE, name) in raw.faults]
    if len(of_edges) == 1:
        return (of_edges[0],)
    left = [name for name in raw.columns[GRAPH] if name not in other]
    if len(left) == 1:
        return (left[0],)
    columns = [f"{', '.join(raw.columns[level])} (of each {level})" for level in LEVELS if raw.columns[level]]
    raise BadInput(
        f"{raw.origin}: say with --data.target which column is to be predicted. There are "
        f"{'; '.join(columns) or 'none'}.{LINKS_HINT if len(raw) == 1 else ''}"
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
            return level
    known = [column for level in LEVELS for column in raw.columns[level]]
    missing = next((name for name in bare if name not in known), None)
    if missing is None:
        raise BadInput(f"target: {', '.join(names)} belong to different levels; name columns of one.")
    raise UnknownName(f"target column of {raw.origin}", missing, known)


def check_columns(raw: RawGraphs, target: Target) -> None:
    """Refuse graphs that lack a column of a target that was found in other graphs.

    Raises:
        BadInput: some graphs lack it.
        UnknownName: all do.
    """
    for name in target.names:
        base = _split_name(raw, name)[0]
        of_nodes = target.level == GRAPH and base not in raw.columns[GRAPH] and base in raw.columns[NODE]
        raw.column(NODE if of_nodes else target.level, base)


def target_values(raw: RawGraphs, level: str, names: Sequence[str], missing: Sequence[Any] = ()) -> np.ndarray:
    """The columns side by side `[rows, width]`; text of numbers and words for missing ones as numbers.

    Args:
        raw: the graphs.
        level: of the columns.
        names: of the columns.
        missing: these words.

    Raises:
        BadInput: one has no column of that number, or they are text and numbers.
    """
    parts = [text_as_numbers(part, missing) for part in _target_parts(raw, level, names)]
    if len({part.dtype == object for part in parts}) > 1:
        raise BadInput(f"target: {', '.join(names)} are text and numbers; a task predicts one kind.")
    return np.concatenate(parts, axis=1)


def _target_parts(raw: RawGraphs, level: str, names: Sequence[str]) -> Iterator[np.ndarray]:
    for name in names:
        base, number = _split_name(raw, name)
        values = raw.columns[level].get(base)
        if values is None:  # as many targets of a graph as nodes
            values = raw.columns[NODE][base].reshape(len(raw), -1)
        values = as_rows(values)
        if number is not None:
            if number >= values.shape[1]:
                raise BadInput(f"target {name}: {base} has {values.shape[1]} columns, numbered from 0.")
            values = values[:, number : number + 1]
        yield values


def labelled(raw: RawGraphs, target: Target) -> np.ndarray:
    """Which graphs, nodes or edges have a target `[rows]`: one that the source leaves in, and that is not missing."""
    return np.asarray(~_absent(raw, target).all(1))


def _absent(raw: RawGraphs, target: Target) -> np.ndarray:
    """Which cells of a target are missing `[rows, width]`."""
    values = target_values(raw, target.level, target.names, target.missing)
    return empty_cells(values) | marked_cells(raw, target.level, values, target.missing)


def _refuse_missing(raw: RawGraphs, target: Target) -> None:
    """Refuse graphs that have no target.

    Raises:
        BadInput: names the first, how many there are, and what can be done.
    """
    without = np.flatnonzero(~labelled(raw, target))
    if not without.size:
        return
    row = int(without[0])
    value = target_values(raw, target.level, target.names, target.missing)[row]
    told = f" ({value[0]})" if target.missing and value.size == 1 and value[0] in target.missing else ""
    marked = f", or read {target.missing[0]} as any other value with --data.missing '[]'" if told else ""
    raise BadInput(
        f"{raw.place(GRAPH, row)}: the target {', '.join(target.names)} is missing{told}, as it is of {without.size:,} "
        f"of {len(raw):,} graphs. Leave them out with --data.on_error skip{marked}."
    )


def _class_values(raw: RawGraphs, target: Target) -> np.ndarray:
    """The class of each row as the source has it `[rows]`; of one-hot columns its number."""
    values = target_values(raw, target.level, target.names, target.missing)
    return np.nan_to_num(values).argmax(1) if target.one_hot else values[:, 0]


def _classes(raw: RawGraphs, target: Target, num_classes: int | None) -> tuple[tuple[str, ...], int]:
    """Names of the classes in their order (none where they count from 0), and how many there are."""
    values, rows = _class_values(raw, target), np.flatnonzero(labelled(raw, target))
    told, column = ", ".join(target.names), values[rows]
    if target.one_hot:
        width = target.width
        if num_classes not in (None, width):
            raise BadInput(f"num_classes is {num_classes}, but {told} has {width} columns, one for each class.")
        return (target.names if len(target.names) == width else ()), width
    if column.dtype.kind == "f" and (wrong := ~np.isfinite(column) | (column % 1 != 0)).any():
        row = int(rows[wrong][0])
        raise BadInput(f"{raw.place(target.level, row)}: the target {told} {values[row]} is no class number.")
    found = sorted(set(column.tolist()))
    if not found:
        raise BadInput(f"{raw.origin}: {told} is missing everywhere.")
    integral = column.dtype != object
    counts_from_0 = integral and found == list(range(len(found)))
    if num_classes is not None and integral and found[0] >= 0 and found[-1] < num_classes:
        return (), num_classes
    if num_classes is not None and num_classes != len(found):
        raise BadInput(f"num_classes is {num_classes}, but {told} has {len(found)} classes: {found[:10]}.")
    if len(found) < 2:
        raise BadInput(f"{raw.origin}: {told} is {found[0]} everywhere, so there is nothing to classify.")
    return () if counts_from_0 else tuple(class_name(value) for value in found), len(found)


def _check_numbers(raw: RawGraphs, target: Target, values: np.ndarray) -> None:
    """Refuse texts, infinite numbers, and flags that are neither 0 nor 1."""
    if values.dtype == object:
        raise BadInput(f"target: {', '.join(target.names)} is text, which task={target.task} cannot predict.")
    numbers = np.where(_absent(raw, target), np.nan, values.astype(float))
    _refuse_rows(raw, target, np.asarray(np.isinf(numbers).any(1)), values, "is infinite")
    if target.task.endswith("-multilabel"):
        wrong = ~((numbers == 0) | (numbers == 1) | np.isnan(numbers))
        _refuse_rows(raw, target, wrong.any(1), values, "is neither 0 nor 1")


def _refuse_rows(raw: RawGraphs, target: Target, wrong: np.ndarray, values: np.ndarray, fault: str) -> None:
    if wrong.any():
        row = int(np.flatnonzero(wrong)[0])
        raise BadInput(f"{raw.place(target.level, row)}: the target {', '.join(target.names)} {values[row]} {fault}.")


def metrics_of(target: Target) -> list[str]:
    """Metrics that may select checkpoints of a target, the default first.

    Of several targets that is a mean of scaled errors: errors of different units say nothing as one.
    """
    several = target.num_classes is None and target.width > 1
    known = [m for m in METRICS[target.task] if m not in ("AUROC", "F1") or target.num_classes in (None, 2)]
    known = [m for m in known if several or not m.startswith("scaled_")]
    return sorted(known, key=lambda name: not name.startswith("scaled_"))


def target_array(raw: RawGraphs, target: Target) -> tuple[str, np.ndarray] | None:
    """`y` with its level: classes `[rows, 1]` (int64) or numbers `[rows, width]` (see `exact_numbers`); None for links.

    Rows without a class have -1, missing numbers are NaN.

    Raises:
        BadInput: graphs that were not there when the target was found hold a class that it does not know.
    """
    if target.level == "link":
        return None
    if target.task not in _CLASSES:
        values = np.asarray(target_values(raw, target.level, target.names, target.missing), dtype=np.float64)
        return target.level, exact_numbers(np.where(_absent(raw, target), np.nan, values))
    classes, rows = _class_values(raw, target), labelled(raw, target)
    if target.one_hot or not target.classes:
        filled = np.where(rows, classes, UNLABELLED)
        return target.level, filled.astype(np.int64)[:, None]
    number = {name: place for place, name in enumerate(target.classes)}
    column = np.full(len(classes), UNLABELLED, dtype=np.int64)
    column[rows] = [number.get(class_name(value), UNLABELLED) for value in classes[rows].tolist()]
    _refuse_rows(raw, target, rows & (column < 0), classes, f"is none of {', '.join(target.classes)}")
    return target.level, column[:, None]


def is_symmetric(raw: RawGraphs, values: np.ndarray) -> bool:
    """Whether every edge has a reverse one with the same target; False where there is no edge.

    Args:
        raw: the graphs.
        values: targets of all edges `[E, width]`.
    """
    graph = np.repeat(np.arange(len(raw)), raw.num_edges)
    rest = np.nan_to_num(values.astype(np.float64), nan=np.inf)

    def ordered(ends: np.ndarray) -> np.ndarray:
        rows = np.column_stack([graph, ends, rest])
        return np.asarray(rows[np.lexsort(rows.T[::-1])])

    return len(values) > 0 and np.array_equal(ordered(raw.edges), ordered(raw.edges[:, ::-1]))
