"""Split graphs, or the nodes or edges of graphs that all splits share, into training, validation and test."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch

from graphbench.benchmarks.graphs.raw import RawGraphs
from graphbench.benchmarks.graphs.splits.masks import mask_values, split_masks, word_columns
from graphbench.benchmarks.graphs.splits.shares import (
    Rows,
    fold_split,
    group_numbers,
    group_split,
    random_parts,
    stratified_split,
)
from graphbench.benchmarks.graphs.targets import Target, labelled, target_array
from graphbench.contracts import SPLITS
from graphbench.contracts.table import EDGE, GRAPH, NODE
from graphbench.data.splits import (
    SPLIT_WORDS,
    check_fractions,
    check_split,
    column_folds,
    complete_split,
    fold_numbers,
    random_split,
    unused_shares,
    without_share,
)
from graphbench.errors import BadInput, check_choice, check_range

_KINDS = ("given", "random", "stratified", "k-fold", "groups")
SPLIT_LEVELS = (GRAPH, NODE, EDGE)
#: Splits that keep both directions of an edge in one part; masks, words and groups are used unchanged.
_BY_PAIR = ("random", "stratified", "k-fold")
_NUM_FOLDS = 10  # by default


@dataclass(frozen=True)
class Units:
    """Graphs, or nodes or edges with a target, to divide among the splits.

    Args:
        raw: the graphs.
        level: "graph", "node" or "edge".
        rows: numbers of the units among all graphs, nodes or edges `[U]`.
        classes: class of each unit `[U]`, or None.
        pair: number of the unordered pair of nodes that an edge joins `[U]`; None for other levels.
    """

    raw: RawGraphs
    level: str
    rows: np.ndarray
    classes: np.ndarray | None
    pair: np.ndarray | None = None

    def __len__(self) -> int:
        return len(self.rows)

    def one_per_pair(self) -> Units:
        """Return one edge of each pair of nodes; units of other levels are returned unchanged."""
        if self.pair is None:
            return self
        first = np.unique(self.pair, return_index=True)[1]
        return Units(self.raw, self.level, self.rows[first], None if self.classes is None else self.classes[first])

    def column(self, name: str) -> np.ndarray:
        """Return the units' rows of a column `[U]` or `[U, width]`; raise the errors of `RawGraphs.column`."""
        return self.raw.column(self.level, name)[self.rows]


@dataclass(frozen=True)
class SplitRequest:
    """Options that determine the split.

    Args:
        kind: kind of split; None for the default.
        column: column that names the split of each graph, node or edge.
        group: column of graphs, nodes or edges; rows with the same value stay together.
        fractions: shares of train, val and test.
        fold, num_folds: test fold, and number of folds.
        seed: seed of random splits.
        level: whether "graph"s, "node"s or "edge"s are split; None for the default.
        target: columns to predict, which are never a split, whatever words they contain.
    """

    kind: str | None
    column: str | None
    group: str | None
    fractions: tuple[float, float, float]
    fold: int
    num_folds: int
    seed: int
    level: str | None = None
    target: tuple[str, ...] = ()

    def check(self) -> None:
        """Refuse options that are out of range or contradict each other."""
        if self.kind is not None:
            check_choice("split", self.kind, _KINDS)
        if self.level is not None:
            check_choice("split_level", self.level, SPLIT_LEVELS)
        check_fractions(self.fractions)
        check_range("num_folds", self.num_folds, at_least=3, whole=True)
        check_range("fold", self.fold, at_least=0, at_most=self.num_folds - 1, whole=True)
        if self.column is not None and self.kind not in (None, "given"):
            raise BadInput(f"split_column belongs to split=given, not to split={self.kind}.")
        if self.group is not None and self.kind not in (None, "groups", "k-fold"):
            raise BadInput(f"group_column belongs to split=groups or k-fold, not to split={self.kind}.")
        if self.kind == "groups" and self.group is None:
            raise BadInput("split=groups needs group_column, a column of the graphs or nodes.")
        if self.column is not None and self.group is not None:
            raise BadInput("split_column and group_column: use only one.")
        # A column of fold numbers, which needs no option, can have more than the usual ten folds.
        if self.kind in ("random", "stratified", "groups") and self.num_folds != _NUM_FOLDS:
            raise BadInput(f"num_folds={self.num_folds} belongs to split=k-fold, not to split={self.kind}.")

    def check_sources(self, name: str) -> None:
        """Refuse options that contradict a separate source for the split `name`."""
        options = {"split": None if self.kind == "given" else self.kind, "split_column": self.column,
                   "group_column": self.group, "split_level": None if self.level == GRAPH else self.level}  # fmt: skip
        for option, value in options.items():
            if value is not None:
                raise BadInput(
                    f"{name}_source is the {name} part, and {option}={value} makes another; remove one of them."
                )

    def as_json(self) -> list[Any]:
        """Return plain values, for the store."""
        values = [self.kind, self.column, self.group, list(self.fractions), self.fold, self.num_folds, self.seed]
        return values if self.level is None else [*values, self.level]


def split_level(raw: RawGraphs, request: SplitRequest, target_level: str) -> str:
    """Decide whether graphs, nodes or edges are split.

    Nodes or edges are split if `request` says so; if the named column, or else the masks or the column `split`, belong
    to them; or if there is a single graph.

    Raises:
        BadInput: the requested level has no targets, or graphs and nodes each have a split.
    """
    if request.level not in (None, GRAPH, target_level):
        raise BadInput(
            f"split_level={request.level} belongs to targets of {request.level}s; here the {target_level}s have the "
            "target."
        )
    if target_level not in (NODE, EDGE) or request.level is not None:
        return request.level or GRAPH
    named = request.column or request.group
    if named is not None:
        return GRAPH if named in raw.columns[GRAPH] or (GRAPH, named) in raw.faults else target_level
    splits_graphs = raw.splits is not None or bool(split_columns(raw, GRAPH, request))
    row_columns = split_columns(raw, target_level, request)
    if splits_graphs and row_columns and request.kind in (None, "given"):
        raise BadInput(
            f"{raw.origin} gives a split of the graphs and one of the {target_level}s ({', '.join(row_columns)}): "
            f"choose one with split_level=graph or split_level={target_level}."
        )
    return target_level if not splits_graphs and (row_columns or len(raw) == 1) else GRAPH


def units_of(raw: RawGraphs, target: Target, level: str) -> Units:
    """Return all graphs, or all nodes or edges with a target, with their classes."""
    y = target_array(raw, target) if target.task == f"{level}-classification" else None
    rows = np.flatnonzero(labelled(raw, target)) if target.level == level else np.arange(len(raw))
    pair = None
    if level == EDGE:  # both directions of an edge get the same number, and thus the same split
        pair = np.unique(raw.numbered(np.sort(raw.edges, axis=1)), return_inverse=True)[1][rows]
    return Units(raw, level, rows, None if y is None else y[1][rows, 0], pair)


def split_units(units: Units, request: SplitRequest) -> tuple[Rows, str]:
    """Return the rows of each split, ascending, and a description of the split.

    Random splits keep both directions of an edge together.

    Raises:
        BadInput: the source has no split, or a split would be empty.
        UnknownName: there is no such column.
    """
    kind = request.kind or _default_kind(units, request)
    shared = units.one_per_pair() if kind in _BY_PAIR and request.group is None else units
    try:
        if request.fold and kind != "k-fold" and num_given_splits(units, request) < 2:
            raise BadInput(
                f"fold is {request.fold}, but there is one split; folds are those of split=k-fold, of fold numbers in "
                "split_column, or of masks with several columns."
            )
        split, description = _RULES[kind](shared, request)
        split = {name: np.sort(rows) for name, rows in split.items()}
        tensors = {name: torch.from_numpy(rows) for name, rows in split.items()}
        check_split(tensors, len(shared), empty=without_share(request.fractions))
    except BadInput as error:
        what = "graphs" if units.level == GRAPH else f"labelled {units.level}s"
        raise BadInput(f"{units.raw.origin}, split={kind} of {len(units)} {what}: {error}") from error
    if shared is not units and units.pair is not None:
        pairs = np.unique(units.pair)
        split = {name: np.flatnonzero(np.isin(units.pair, pairs[rows])) for name, rows in split.items()}
        description += ", both directions of an edge in one"
    return {name: units.rows[rows] for name, rows in split.items()}, description


def num_given_splits(units: Units, request: SplitRequest) -> int:
    """Count the splits of the source, of which one is used; 0 if the split is created here.

    Masks with several columns and fold numbers are several splits; a column of words, or lists of graphs, are one.
    """
    if (request.kind or _default_kind(units, request)) != "given":
        return 0
    if (column := _fold_column(units, request)) is not None:
        return int(column[1].max()) + 1
    masks = {} if request.column else split_masks(units.raw, units.level)
    return max((mask_values(units.raw, units.level, name).shape[1] for name in masks.values()), default=1)


def _default_kind(units: Units, request: SplitRequest) -> str:
    if request.group is not None:
        return "groups"
    if request.column is not None or _list_masks(units) is not None or split_columns(units.raw, units.level, request):
        return "given"
    return "random" if units.classes is None else "stratified"


def split_columns(raw: RawGraphs, level: str, request: SplitRequest) -> tuple[str, ...]:
    """Return the columns that are splits according to their names or words: masks, or a column of words.

    Raises:
        BadInput: they contradict each other, or cannot be used although the split depends on them.
    """
    replaced = request.column or request.group or request.kind not in (None, "given")
    return tuple(split_masks(raw, level).values()) or word_columns(raw, level, request.target, strict=not replaced)


def used_columns(raw: RawGraphs, request: SplitRequest, level: str = GRAPH) -> tuple[str, ...]:
    """Return the columns of a level that define a split or groups, and are therefore not features."""
    names = (request.column, request.group, *split_columns(raw, level, request))
    return tuple(dict.fromkeys(name for name in names if name))


def _random(units: Units, request: SplitRequest) -> tuple[Rows, str]:
    split = random_split(len(units), dict(zip(SPLITS, request.fractions, strict=True)), request.seed)
    return {name: rows.numpy() for name, rows in split.items()}, "random"


def _stratified(units: Units, request: SplitRequest) -> tuple[Rows, str]:
    if units.classes is None:
        raise BadInput(f"it needs one class per {units.level}; use random for this task.")
    return stratified_split(units.classes, request.fractions, request.seed), "random, equal shares of each class"


def _groups(units: Units, request: SplitRequest) -> tuple[Rows, str]:
    groups = group_numbers(units.column(str(request.group)))
    return group_split(groups, request.fractions, request.seed), f"whole groups of {request.group}"


def _folds(units: Units, request: SplitRequest) -> tuple[Rows, str]:
    description = f"fold {request.fold} of {request.num_folds} tests, the next one validates"
    if request.group is not None:
        dealt, classes = group_numbers(units.column(request.group)), None
        description += f", whole groups of {request.group}"
    else:
        dealt, classes = np.arange(len(units)), units.classes
        description += ", stratified" if classes is not None else ""
    description += unused_shares(request.fractions)
    return fold_split(dealt, classes, request.fold, request.num_folds, request.seed), description


def _given(units: Units, request: SplitRequest) -> tuple[Rows, str]:
    if (column := _fold_column(units, request)) is not None:
        folds = column_folds(column[1], request.fold)
        description = f"fold {request.fold} of {int(column[1].max()) + 1} in {column[0]} tests, the next one validates"
        description += f"; --data.fold{unused_shares(request.fractions)}"
        return {name: rows.numpy() for name, rows in folds.items()}, description
    masks, lists = {} if request.column else split_masks(units.raw, units.level), _list_masks(units)
    if masks:
        description = f"as {_subject(tuple(masks.values()))}"
        several = any(units.column(name).size > len(units) for name in masks.values())
        description += f", column {request.fold}; --data.fold" if several else ""
        parts = {split: _mask(units, name, request.fold) for split, name in masks.items()}
    elif lists is not None and not request.column:
        parts, description = lists, units.raw.hints.get("split", f"as {units.raw.origin} gives it")
    else:
        columns = (request.column,) if request.column else word_columns(units.raw, units.level, request.target)
        if not columns:
            raise BadInput(
                f"the source gives none: it has no column of the {units.level}s with the words train, val and test, no "
                "train_mask, val_mask or test_mask, and no lists by split. Name a column with split_column, or use "
                "split=random."
            )
        parts, description = _word_masks(units, columns[0]), f"as {_subject(columns)}"
    check_split({name: torch.from_numpy(np.flatnonzero(mask)) for name, mask in parts.items()}, len(units))

    def cut(source: np.ndarray, names: Sequence[str], shares: np.ndarray) -> Rows:
        if units.classes is None:
            chosen = random_parts(len(source), shares.tolist(), request.seed, names)
        else:
            chosen = stratified_split(units.classes[source], shares.tolist(), request.seed, names)
        return {name: source[rows] for name, rows in chosen.items()}

    rows, note = complete_split(parts, request.fractions, cut)
    return rows, description + note


def _subject(names: Sequence[str]) -> str:
    return f"{', '.join(names)} {'says' if len(names) == 1 else 'say'}"


def _list_masks(units: Units) -> dict[str, np.ndarray] | None:
    """Return the split of a source given as lists of graphs, as masks `[U]`; else None."""
    if units.raw.splits is None or units.level != GRAPH:
        return None
    return {name: np.isin(units.rows, rows) for name, rows in units.raw.splits.items()}


def _mask(units: Units, name: str, fold: int) -> np.ndarray:
    """Return a mask `[U]`; of several columns, the one of the fold."""
    values = mask_values(units.raw, units.level, name)[units.rows]
    if values.shape[1] == 1:
        return values[:, 0]
    if fold >= values.shape[1]:
        raise BadInput(f"fold is {fold}, but {name} has {values.shape[1]} columns, numbered from 0.")
    return values[:, fold]


def _fold_column(units: Units, request: SplitRequest) -> tuple[str, np.ndarray] | None:
    """Return the column of fold numbers and the fold of each unit; None if the source has none."""
    names = (request.column,) if request.column else word_columns(units.raw, units.level, request.target, strict=False)
    if len(names) != 1 or (not request.column and split_masks(units.raw, units.level)):
        return None
    values = units.column(names[0])
    if values.dtype == object or values.dtype == bool or values.size != len(units):
        return None
    try:
        numbers = fold_numbers(values.reshape(-1).tolist())
    except BadInput as error:
        raise BadInput(f"{names[0]}: {error}") from error
    return None if numbers is None else (names[0], numbers)


def _word_masks(units: Units, column: str) -> dict[str, np.ndarray]:
    """Convert a column of words to masks `[U]`; refuse other words."""
    values = units.column(column).reshape(-1)
    words = ["" if value is None else str(value).strip().lower() for value in values.tolist()]
    admitted = {*SPLIT_WORDS, *(() if units.level == GRAPH else ("",))}  # a node or edge may be in no split
    wrong = next((row for row, word in enumerate(words) if word not in admitted), None)
    if wrong is not None:
        place = units.raw.place(units.level, int(units.rows[wrong]))
        raise BadInput(f"{place}: {column} is {values[wrong]!r}; expected train, val or test.")
    splits = np.array([SPLIT_WORDS.get(word, "") for word in words])
    return {name: splits == name for name in SPLITS if (splits == name).any()}


_RULES: dict[str, Callable[[Units, SplitRequest], tuple[Rows, str]]] = {
    "given": _given,
    "random": _random,
    "stratified": _stratified,
    "groups": _groups,
    "k-fold": _folds,
}
