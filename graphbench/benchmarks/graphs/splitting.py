"""Which graphs, or which nodes of graphs that all splits share, train, validate and test."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch

from graphbench.benchmarks.graphs.raw import RawGraphs, as_rows
from graphbench.benchmarks.graphs.targets import Target, labelled, target_array
from graphbench.contracts import SPLITS
from graphbench.contracts.table import GRAPH, NODE
from graphbench.data.splits import check_split, given_split, index_split, permutation, random_split
from graphbench.errors import BadInput, check_choice, check_range

_KINDS = ("given", "random", "stratified", "k-fold", "groups")
SPLIT_LEVELS = (GRAPH, NODE)
#: Columns that are a split by their name.
SPLIT_COLUMN = "split"
MASKS = {f"{split}_mask": split for split in SPLITS}
_WORDS = {
    **dict.fromkeys(("train", "training"), "train"),
    **dict.fromkeys(("val", "valid", "validation", "dev"), "val"),
    "test": "test",
}

Rows = dict[str, np.ndarray]


@dataclass(frozen=True)
class Units:
    """What is shared out among the splits: graphs, or the labelled nodes of all graphs.

    Args:
        raw: the graphs.
        level: "graph" or "node".
        rows: their numbers among all graphs or nodes `[U]`.
        classes: of each `[U]`; None where they have none.
    """

    raw: RawGraphs
    level: str
    rows: np.ndarray
    classes: np.ndarray | None

    def __len__(self) -> int:
        return len(self.rows)

    def column(self, name: str) -> np.ndarray:
        """A column of theirs `[U]` or `[U, width]`; errors as those of `RawGraphs.column`."""
        return self.raw.column(self.level, name)[self.rows]


@dataclass(frozen=True)
class SplitRequest:
    """What a user asks for.

    Args:
        kind: how to split; None for the usual way.
        column: that names the split of each graph or node.
        group: column of graphs or nodes; those of one value stay together.
        fractions: shares of train, val and test.
        fold, num_folds: which of how many folds tests.
        seed: decides what is random.
        level: whether "graph"s or "node"s are split; None for the usual way.
    """

    kind: str | None
    column: str | None
    group: str | None
    fractions: tuple[float, float, float]
    fold: int
    num_folds: int
    seed: int
    level: str | None = None

    def check(self) -> None:
        """Refuse options out of range, and such that contradict each other.

        Raises:
            BadInput: names the option.
        """
        if self.kind is not None:
            check_choice("split", self.kind, _KINDS)
        if self.level is not None:
            check_choice("split_level", self.level, SPLIT_LEVELS)
        if len(self.fractions) != len(SPLITS) or min(self.fractions) <= 0 or abs(sum(self.fractions) - 1) > 1e-6:
            raise BadInput(f"fractions must be three shares above 0 that add up to 1, got {list(self.fractions)}.")
        check_range("num_folds", self.num_folds, at_least=3, whole=True)
        check_range("fold", self.fold, at_least=0, at_most=self.num_folds - 1, whole=True)
        if self.column is not None and self.kind not in (None, "given"):
            raise BadInput(f"split_column belongs to split=given, not to split={self.kind}.")
        if self.group is not None and self.kind not in (None, "groups", "k-fold"):
            raise BadInput(f"group_column belongs to split=groups or k-fold, not to split={self.kind}.")
        if self.kind == "groups" and self.group is None:
            raise BadInput("split=groups needs group_column, a column of the graphs or nodes.")
        if self.column is not None and self.group is not None:
            raise BadInput("split_column and group_column: give one of them.")

    def as_json(self) -> list[Any]:
        """Plain values that decide about the split, for the store."""
        found = [self.kind, self.column, self.group, list(self.fractions), self.fold, self.num_folds, self.seed]
        return found if self.level is None else [*found, self.level]


def split_level(raw: RawGraphs, request: SplitRequest, of_nodes: bool) -> str:
    """Whether graphs or nodes are split.

    Nodes are where that is asked for, where the named column, or else the masks or the column `split`, belong to them,
    and where there is one graph.

    Args:
        raw: the graphs.
        request: what is asked for.
        of_nodes: whether nodes have the targets.

    Raises:
        BadInput: nodes are to be split whose targets are not theirs.
    """
    if request.level == NODE and not of_nodes:
        raise BadInput("split_level=node belongs to targets of nodes; here the graphs have the target.")
    if not of_nodes or request.level is not None:
        return request.level or GRAPH
    named = request.column or request.group
    if named is not None:
        return GRAPH if named in raw.columns[GRAPH] or (GRAPH, named) in raw.faults else NODE
    if raw.splits is not None or split_columns(raw, GRAPH):
        return GRAPH
    return NODE if split_columns(raw, NODE) or len(raw) == 1 else GRAPH


def units_of(raw: RawGraphs, target: Target, level: str) -> Units:
    """All graphs, or all nodes that have a target, with their classes."""
    found = target_array(raw, target) if target.task == f"{level}-classification" else None
    rows = np.flatnonzero(labelled(raw, target)) if level == NODE else np.arange(len(raw))
    return Units(raw, level, rows, None if found is None else found[1][rows, 0])


def split_units(units: Units, request: SplitRequest) -> tuple[Rows, str]:
    """Rows of each split, ascending, and how they were found.

    Args:
        units: graphs or nodes.
        request: what is asked for.

    Raises:
        BadInput: the source has no split, or a split would be empty.
        UnknownName: a column is not there.
    """
    kind = request.kind or _usual(units, request)
    try:
        split, told = _RULES[kind](units, request)
        split = {name: np.sort(rows) for name, rows in split.items()}
        check_split({name: torch.from_numpy(rows) for name, rows in split.items()}, len(units))
    except BadInput as error:
        what = "graphs" if units.level == GRAPH else "labelled nodes"
        raise BadInput(f"{units.raw.origin}, split={kind} of {len(units)} {what}: {error}") from error
    return {name: units.rows[rows] for name, rows in split.items()}, told


def _random(units: Units, request: SplitRequest) -> tuple[Rows, str]:
    found = random_split(len(units), dict(zip(SPLITS, request.fractions, strict=True)), request.seed)
    return {name: rows.numpy() for name, rows in found.items()}, "random"


def _stratified(units: Units, request: SplitRequest) -> tuple[Rows, str]:
    if units.classes is None:
        raise BadInput(f"it needs one class per {units.level}; take random for this task.")
    return stratified_split(units.classes, request.fractions, request.seed), "random, equal shares of each class"


def _groups(units: Units, request: SplitRequest) -> tuple[Rows, str]:
    groups = group_numbers(units.column(str(request.group)))
    return group_split(groups, request.fractions, request.seed), f"whole groups of {request.group}"


def _folds(units: Units, request: SplitRequest) -> tuple[Rows, str]:
    told = f"fold {request.fold} of {request.num_folds} tests, the next one validates"
    if request.group is not None:
        dealt, classes = group_numbers(units.column(request.group)), None
        told += f", whole groups of {request.group}"
    else:
        dealt, classes = np.arange(len(units)), units.classes
        told += ", stratified" if classes is not None else ""
    return fold_split(dealt, classes, request.fold, request.num_folds, request.seed), told


def _usual(units: Units, request: SplitRequest) -> str:
    if request.group is not None:
        return "groups"
    if request.column is not None or _by_lists(units) is not None or split_columns(units.raw, units.level):
        return "given"
    return "random" if units.classes is None else "stratified"


def _by_lists(units: Units) -> Rows | None:
    """The split of a source that is lists of graphs."""
    return units.raw.splits if units.level == GRAPH else None


def split_columns(raw: RawGraphs, level: str) -> tuple[str, ...]:
    """Columns that say by their names that they are splits."""
    if MASKS.keys() <= raw.columns[level].keys():
        return tuple(MASKS)
    values = raw.columns[level].get(SPLIT_COLUMN)
    return (SPLIT_COLUMN,) if values is not None and values.dtype == object else ()


def used_columns(raw: RawGraphs, request: SplitRequest, level: str = GRAPH) -> tuple[str, ...]:
    """Columns of a level that say how to split."""
    return tuple(name for name in (request.column, request.group, *split_columns(raw, level)) if name)


def _given(units: Units, request: SplitRequest) -> tuple[Rows, str]:
    columns = (request.column,) if request.column else split_columns(units.raw, units.level)
    lists = _by_lists(units)
    if not columns and lists is not None:
        return dict(lists), f"as {units.raw.origin} gives it"
    if not columns:
        raise BadInput(
            f"the source gives none: it has no column split of the {units.level}s, no train_mask, val_mask and "
            "test_mask, and no lists by split. Name a column with split_column, or take split=random."
        )
    told = f"as {', '.join(columns)} says"
    if columns == tuple(MASKS):
        masks = {split: _mask(units, name, request.fold) for name, split in MASKS.items()}
        several = any(units.column(name).size > len(units) for name in MASKS)
        told += f", column {request.fold}; --data.fold" if several else ""
        found = index_split({split: np.flatnonzero(mask) for split, mask in masks.items()}, len(units))
    else:
        values = units.column(columns[0]).reshape(-1)
        words = ["" if value is None else str(value).strip().lower() for value in values.tolist()]
        known = {*_WORDS, ""} if units.level == NODE else {*_WORDS}  # a node may be in no split
        wrong = next((row for row, word in enumerate(words) if word not in known), None)
        if wrong is not None:
            place = units.raw.place(units.level, int(units.rows[wrong]))
            raise BadInput(f"{place}: {columns[0]} is {values[wrong]!r}; expected train, val or test.")
        found = given_split(words, _WORDS)
    return {name: rows.numpy() for name, rows in found.items()}, told


def _mask(units: Units, name: str, fold: int) -> np.ndarray:
    """A mask `[U]`; of several side by side that of the fold."""
    values = as_rows(units.column(name))
    if values.shape[1] == 1:
        return values[:, 0]
    if fold >= values.shape[1]:
        raise BadInput(f"fold is {fold}, but {name} has {values.shape[1]} columns, numbered from 0.")
    return values[:, fold]


_RULES: dict[str, Callable[[Units, SplitRequest], tuple[Rows, str]]] = {
    "given": _given,
    "random": _random,
    "stratified": _stratified,
    "groups": _groups,
    "k-fold": _folds,
}


def group_numbers(values: np.ndarray) -> np.ndarray:
    """The group of each row as a number `[rows]`."""
    texts = np.array([str(value) for value in as_rows(values)[:, 0].tolist()])
    return np.unique(texts, return_inverse=True)[1]


def stratified_split(classes: np.ndarray, fractions: Sequence[float], seed: int) -> Rows:
    """Random, and every split has its share of every class: within one graph of it.

    What rounding leaves over of a class goes to the splits that are furthest behind their share of all graphs.
    """
    order = permutation(len(classes), seed)
    shares, counts = np.array(fractions), np.zeros(len(SPLITS))
    seen = 0
    parts: dict[str, list[np.ndarray]] = {name: [] for name in SPLITS}
    for value in np.unique(classes):
        rows = order[classes[order] == value]
        sizes = np.floor(shares * len(rows) + 1e-9)
        seen += len(rows)
        behind = np.argsort(counts + sizes - shares * seen, kind="stable")
        sizes[behind[: len(rows) - int(sizes.sum())]] += 1
        counts += sizes
        for name, part in zip(SPLITS, np.split(rows, np.cumsum(sizes.astype(int))[:-1]), strict=True):
            parts[name].append(part)
    return {name: np.concatenate(found) for name, found in parts.items()}


def group_split(groups: np.ndarray, fractions: Sequence[float], seed: int) -> Rows:
    """Whole groups in random order, each to the split that is furthest behind its share."""
    sizes = np.bincount(groups)
    counts, owner = np.zeros(len(SPLITS)), np.zeros(len(sizes), dtype=np.int64)
    for group in permutation(len(sizes), seed):
        choice = int(np.argmax(np.array(fractions) * len(groups) - counts))
        owner[group] = choice
        counts[choice] += sizes[group]
    return {name: np.flatnonzero(owner[groups] == number) for number, name in enumerate(SPLITS)}


def fold_split(units: np.ndarray, classes: np.ndarray | None, fold: int, num_folds: int, seed: int) -> Rows:
    """One of `num_folds` parts tests, the next one validates, the others train.

    Units (graphs, or groups of them) are shuffled, sorted by class and dealt out like cards, so that every class is
    spread evenly and no unit is in two folds.

    Args:
        units: unit of each graph `[G]`.
        classes: class of each unit; None where they have none.
        fold: which one tests.
        num_folds: how many there are.
        seed: of the shuffling.

    Raises:
        BadInput: there are fewer units than folds.
    """
    count = int(units.max()) + 1
    if count < num_folds:
        raise BadInput(f"num_folds is {num_folds}, but there are only {count} graphs or groups to share out.")
    order = permutation(count, seed)
    if classes is not None:
        order = order[np.argsort(classes[order], kind="stable")]
    part = np.empty(count, dtype=np.int64)
    part[order] = np.arange(count) % num_folds
    ahead = (part[units] - fold) % num_folds
    return {
        "train": np.flatnonzero(ahead > 1),
        "val": np.flatnonzero(ahead == 1),
        "test": np.flatnonzero(ahead == 0),
    }
