"""Which graphs, or which nodes or edges of graphs that all splits share, train, validate and test."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch

from graphbench.benchmarks.graphs.raw import RawGraphs
from graphbench.benchmarks.graphs.splits.masks import SPLIT_WORDS, mask_values, split_masks, word_columns
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
#: Splits made here that take both directions of an edge together; masks, words and groups stay as they are.
_TOGETHER = ("random", "stratified", "k-fold")


@dataclass(frozen=True)
class Units:
    """What is shared out among the splits: graphs, or the labelled nodes or edges of all graphs.

    Args:
        raw: the graphs.
        level: "graph", "node" or "edge".
        rows: their numbers among all graphs, nodes or edges `[U]`.
        classes: of each `[U]`; None where they have none.
        together: number of the pair of nodes that an edge joins in either direction `[U]`; None of other levels.
    """

    raw: RawGraphs
    level: str
    rows: np.ndarray
    classes: np.ndarray | None
    together: np.ndarray | None = None

    def __len__(self) -> int:
        return len(self.rows)

    def first_of_pairs(self) -> Units:
        """One edge of each pair of nodes; the units themselves where they are no edges."""
        if self.together is None:
            return self
        first = np.unique(self.together, return_index=True)[1]
        return Units(self.raw, self.level, self.rows[first], None if self.classes is None else self.classes[first])

    def column(self, name: str) -> np.ndarray:
        """A column of theirs `[U]` or `[U, width]`; errors as those of `RawGraphs.column`."""
        return self.raw.column(self.level, name)[self.rows]


@dataclass(frozen=True)
class SplitRequest:
    """What a user asks for.

    Args:
        kind: how to split; None for the usual way.
        column: that names the split of each graph, node or edge.
        group: column of graphs, nodes or edges; those of one value stay together.
        fractions: shares of train, val and test.
        fold, num_folds: which of how many folds tests.
        seed: decides what is random.
        level: whether "graph"s, "node"s or "edge"s are split; None for the usual way.
        target: columns to be predicted, which are no split whatever words they hold.
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
        """Refuse options out of range, and such that contradict each other.

        Raises:
            BadInput: names the option.
        """
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
            raise BadInput("split_column and group_column: give one of them.")

    def check_sources(self, sources: Mapping[str, Any]) -> None:
        """Refuse options that split anew what comes in sources of its own.

        Args:
            sources: of "val" and "test", as far as they are given.

        Raises:
            BadInput: names the options.
        """
        asked = {"split": None if self.kind == "given" else self.kind, "split_column": self.column,
                 "group_column": self.group, "split_level": None if self.level == GRAPH else self.level}  # fmt: skip
        for option, value in asked.items():
            if value is not None:
                name = next(iter(sources))
                raise BadInput(f"{name}_source is the {name} part, and {option}={value} makes another; leave one out.")

    def as_json(self) -> list[Any]:
        """Plain values that decide about the split, for the store."""
        found = [self.kind, self.column, self.group, list(self.fractions), self.fold, self.num_folds, self.seed]
        return found if self.level is None else [*found, self.level]


def split_level(raw: RawGraphs, request: SplitRequest, target_level: str) -> str:
    """Whether graphs, nodes or edges are split.

    Nodes or edges with targets are where that is asked for, where the named column, or else the masks or the column
    `split`, belong to them, and where there is one graph.

    Args:
        raw: the graphs.
        request: what is asked for.
        target_level: whether "graph"s, "node"s, "edge"s or "link"s have the target.

    Raises:
        BadInput: nodes or edges are to be split that have no targets, or graphs and they have a split each.
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
    of_graphs = raw.splits is not None or bool(split_columns(raw, GRAPH, request))
    of_rows = split_columns(raw, target_level, request)
    if of_graphs and of_rows and request.kind in (None, "given"):
        raise BadInput(
            f"{raw.origin} gives a split of the graphs and one of the {target_level}s ({', '.join(of_rows)}): say "
            f"which counts with split_level=graph or split_level={target_level}."
        )
    return target_level if not of_graphs and (of_rows or len(raw) == 1) else GRAPH


def units_of(raw: RawGraphs, target: Target, level: str) -> Units:
    """All graphs, or all nodes or edges that have a target, with their classes."""
    found = target_array(raw, target) if target.task == f"{level}-classification" else None
    rows = np.flatnonzero(labelled(raw, target)) if target.level == level else np.arange(len(raw))
    classes = None if found is None else found[1][rows, 0]
    return Units(raw, level, rows, classes, _pair_numbers(raw)[rows] if level == EDGE else None)


def _pair_numbers(raw: RawGraphs) -> np.ndarray:
    """A number for each pair of nodes of a graph, the same for edges in either direction `[E]`."""
    graph = np.repeat(np.arange(len(raw)), raw.num_edges)
    pairs = np.column_stack([graph, np.sort(raw.edges, axis=1)])
    return np.unique(pairs, axis=0, return_inverse=True)[1].reshape(-1)


def split_units(units: Units, request: SplitRequest) -> tuple[Rows, str]:
    """Rows of each split, ascending, and how they were found.

    Args:
        units: graphs, nodes or edges; both directions of an edge stay in one split that is made here.
        request: what is asked for.

    Raises:
        BadInput: the source has no split, or a split would be empty.
        UnknownName: a column is not there.
    """
    kind = request.kind or _usual(units, request)
    taken = units.first_of_pairs() if kind in _TOGETHER and request.group is None else units
    try:
        _refuse_fold(units, request, kind)
        split, told = _RULES[kind](taken, request)
        split = {name: np.sort(rows) for name, rows in split.items()}
        found = {name: torch.from_numpy(rows) for name, rows in split.items()}
        check_split(found, len(taken), empty=without_share(request.fractions))
    except BadInput as error:
        what = "graphs" if units.level == GRAPH else f"labelled {units.level}s"
        raise BadInput(f"{units.raw.origin}, split={kind} of {len(units)} {what}: {error}") from error
    if taken is not units and units.together is not None:
        chosen = {name: np.isin(units.together, np.unique(units.together)[rows]) for name, rows in split.items()}
        split = {name: np.flatnonzero(rows) for name, rows in chosen.items()}
        told += ", both directions of an edge in one"
    return {name: units.rows[rows] for name, rows in split.items()}, told


def _refuse_fold(units: Units, request: SplitRequest, kind: str) -> None:
    """Refuse the number of a fold where there are no folds.

    Raises:
        BadInput: names the option.
    """
    if request.fold and kind != "k-fold" and given_splits(units, request) < 2:
        raise BadInput(
            f"fold is {request.fold}, but there is one split; folds are those of split=k-fold, of fold numbers in "
            "split_column, or of masks with several columns."
        )


def given_splits(units: Units, request: SplitRequest) -> int:
    """How many splits the source gives, of which one is taken; 0 where they are made here.

    Masks with several columns are as many, and so are fold numbers; a column of words, or lists of graphs, are one.
    """
    if (request.kind or _usual(units, request)) != "given":
        return 0
    if (column := _fold_column(units, request)) is not None:
        return int(column[1].max()) + 1
    masks = {} if request.column else split_masks(units.raw, units.level)
    return max((mask_values(units.raw, units.level, name).shape[1] for name in masks.values()), default=1)


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
    told += unused_shares(request.fractions)
    return fold_split(dealt, classes, request.fold, request.num_folds, request.seed), told


def _usual(units: Units, request: SplitRequest) -> str:
    if request.group is not None:
        return "groups"
    if request.column is not None or _by_lists(units) is not None or split_columns(units.raw, units.level, request):
        return "given"
    return "random" if units.classes is None else "stratified"


def _by_lists(units: Units) -> dict[str, np.ndarray] | None:
    """The split of a source that is lists of graphs, as masks `[U]` of the units."""
    if units.raw.splits is None or units.level != GRAPH:
        return None
    return {name: np.isin(units.rows, rows) for name, rows in units.raw.splits.items()}


def split_columns(raw: RawGraphs, level: str, request: SplitRequest) -> tuple[str, ...]:
    """Columns that say that they are splits: masks by their names, or words.

    Raises:
        BadInput: they contradict each other, or cannot be used though nothing else is asked for.
    """
    asked = request.column or request.group or request.kind not in (None, "given")
    return tuple(split_masks(raw, level).values()) or word_columns(raw, level, request.target, strict=not asked)


def used_columns(raw: RawGraphs, request: SplitRequest, level: str = GRAPH) -> tuple[str, ...]:
    """Columns of a level that say how to split, or would where nothing else is asked for."""
    names = (request.column, request.group, *split_columns(raw, level, request))
    return tuple(dict.fromkeys(name for name in names if name))


def _fold_column(units: Units, request: SplitRequest) -> tuple[str, np.ndarray] | None:
    """The column of fold numbers that the source gives, and the fold of each unit; None where it gives none.

    Raises:
        BadInput: the column that is named holds other numbers.
    """
    named = (request.column,) if request.column else word_columns(units.raw, units.level, request.target, strict=False)
    if len(named) != 1 or (not request.column and split_masks(units.raw, units.level)):
        return None
    values = units.column(named[0])
    if values.dtype == object or values.dtype == bool or values.size != len(units):
        return None
    try:
        numbers = fold_numbers(values.reshape(-1).tolist())
    except BadInput as error:
        raise BadInput(f"{named[0]}: {error}") from error
    return None if numbers is None else (named[0], numbers)


def _given(units: Units, request: SplitRequest) -> tuple[Rows, str]:
    if (column := _fold_column(units, request)) is not None:
        found = column_folds(column[1], request.fold)
        told = f"fold {request.fold} of {int(column[1].max()) + 1} in {column[0]} tests, the next one validates"
        told += f"; --data.fold{unused_shares(request.fractions)}"
        return {name: rows.numpy() for name, rows in found.items()}, told
    masks, lists = {} if request.column else split_masks(units.raw, units.level), _by_lists(units)
    if masks:
        told = f"as {_listed(tuple(masks.values()))}"
        several = any(units.column(name).size > len(units) for name in masks.values())
        told += f", column {request.fold}; --data.fold" if several else ""
        parts = {split: _mask(units, name, request.fold) for split, name in masks.items()}
    elif lists is not None and not request.column:
        parts, told = lists, units.raw.hints.get("split", f"as {units.raw.origin} gives it")
    else:
        columns = (request.column,) if request.column else word_columns(units.raw, units.level, request.target)
        if not columns:
            raise BadInput(
                f"the source gives none: it has no column of the {units.level}s with the words train, val and test, no "
                "train_mask, val_mask or test_mask, and no lists by split. Name a column with split_column, or take "
                "split=random."
            )
        parts, told = _words(units, columns[0]), f"as {_listed(columns)}"
    check_split({name: torch.from_numpy(np.flatnonzero(mask)) for name, mask in parts.items()}, len(units))
    rows, cut = completed(parts, units.classes, request)
    return rows, told + cut


def _listed(names: Sequence[str]) -> str:
    return f"{', '.join(names)} {'says' if len(names) == 1 else 'say'}"


def _words(units: Units, column: str) -> dict[str, np.ndarray]:
    """Masks `[U]` out of a column of words.

    Raises:
        BadInput: it holds another word; names the row.
    """
    values = units.column(column).reshape(-1)
    words = ["" if value is None else str(value).strip().lower() for value in values.tolist()]
    known = {*SPLIT_WORDS, ""} if units.level != GRAPH else {*SPLIT_WORDS}  # a node or edge may be in no split
    wrong = next((row for row, word in enumerate(words) if word not in known), None)
    if wrong is not None:
        place = units.raw.place(units.level, int(units.rows[wrong]))
        raise BadInput(f"{place}: {column} is {values[wrong]!r}; expected train, val or test.")
    found = np.array([SPLIT_WORDS.get(word, "") for word in words])
    return {name: found == name for name in SPLITS if (found == name).any()}


def completed(parts: dict[str, np.ndarray], classes: np.ndarray | None, request: SplitRequest) -> tuple[Rows, str]:
    """The splits that a source gives, and those that it lacks, with words for the latter; see `complete_split`.

    Args:
        parts: masks `[U]` of the splits that are given, at least one.
        classes: of the units `[U]`; each has its share of a cut.
        request: shares and seed.

    Raises:
        BadInput: too few units are left.
    """

    def cut(source: np.ndarray, names: Sequence[str], shares: np.ndarray) -> Rows:
        if classes is None:
            chosen = random_parts(len(source), shares.tolist(), request.seed, names)
        else:
            chosen = stratified_split(classes[source], shares.tolist(), request.seed, names)
        return {name: source[rows] for name, rows in chosen.items()}

    return complete_split(parts, request.fractions, cut)


def _mask(units: Units, name: str, fold: int) -> np.ndarray:
    """A mask `[U]`; of several side by side that of the fold."""
    values = mask_values(units.raw, units.level, name)[units.rows]
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
