"""Which graphs train, validate and test."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch

from graphbench.benchmarks.graphs.raw import RawGraphs, as_rows
from graphbench.contracts import SPLITS
from graphbench.contracts.table import GRAPH
from graphbench.data.splits import check_split, given_split, index_split, permutation, random_split
from graphbench.errors import BadInput, check_choice, check_range

_KINDS = ("given", "random", "stratified", "k-fold", "groups")
#: Columns of graphs that are a split by their name.
SPLIT_COLUMN = "split"
MASKS = {f"{split}_mask": split for split in SPLITS}
_WORDS = {
    **dict.fromkeys(("train", "training"), "train"),
    **dict.fromkeys(("val", "valid", "validation", "dev"), "val"),
    "test": "test",
}

Rows = dict[str, np.ndarray]


@dataclass(frozen=True)
class SplitRequest:
    """What a user asks for.

    Args:
        kind: how to split; None for the usual way.
        column: of graphs that names the split of each.
        group: column of graphs; those of one value stay together.
        fractions: shares of train, val and test.
        fold, num_folds: which of how many folds tests.
        seed: decides what is random.
    """

    kind: str | None
    column: str | None
    group: str | None
    fractions: tuple[float, float, float]
    fold: int
    num_folds: int
    seed: int

    def check(self) -> None:
        """Refuse options out of range, and such that contradict each other.

        Raises:
            BadInput: names the option.
        """
        if self.kind is not None:
            check_choice("split", self.kind, _KINDS)
        if len(self.fractions) != len(SPLITS) or min(self.fractions) <= 0 or abs(sum(self.fractions) - 1) > 1e-6:
            raise BadInput(f"fractions must be three shares above 0 that add up to 1, got {list(self.fractions)}.")
        check_range("num_folds", self.num_folds, at_least=3, whole=True)
        check_range("fold", self.fold, at_least=0, at_most=self.num_folds - 1, whole=True)
        if self.column is not None and self.kind not in (None, "given"):
            raise BadInput(f"split_column belongs to split=given, not to split={self.kind}.")
        if self.group is not None and self.kind not in (None, "groups", "k-fold"):
            raise BadInput(f"group_column belongs to split=groups or k-fold, not to split={self.kind}.")
        if self.kind == "groups" and self.group is None:
            raise BadInput("split=groups needs group_column, a column of the graphs.")
        if self.column is not None and self.group is not None:
            raise BadInput("split_column and group_column: give one of them.")

    def as_json(self) -> list[Any]:
        """Plain values that decide about the split, for the store."""
        return [self.kind, self.column, self.group, list(self.fractions), self.fold, self.num_folds, self.seed]


def split_graphs(raw: RawGraphs, request: SplitRequest, classes: np.ndarray | None) -> tuple[Rows, str]:
    """Rows of each split, ascending, and how they were found.

    Args:
        raw: the graphs.
        request: what is asked for.
        classes: class of each graph `[G]`, None where graphs have none.

    Raises:
        BadInput: the source has no split, or a split would be empty.
        UnknownName: a column is not there.
    """
    kind = request.kind or _usual(raw, request, classes)
    try:
        split, told = _RULES[kind](raw, request, classes)
        split = {name: np.sort(rows) for name, rows in split.items()}
        check_split({name: torch.from_numpy(rows) for name, rows in split.items()}, len(raw))
    except BadInput as error:
        raise BadInput(f"{raw.origin}, split={kind} of {len(raw)} graphs: {error}") from error
    return split, told


def _random(raw: RawGraphs, request: SplitRequest, classes: np.ndarray | None) -> tuple[Rows, str]:
    found = random_split(len(raw), dict(zip(SPLITS, request.fractions, strict=True)), request.seed)
    return {name: rows.numpy() for name, rows in found.items()}, "random"


def _stratified(raw: RawGraphs, request: SplitRequest, classes: np.ndarray | None) -> tuple[Rows, str]:
    if classes is None:
        raise BadInput("it needs one class per graph; take random for this task.")
    return stratified_split(classes, request.fractions, request.seed), "random, equal shares of each class"


def _groups(raw: RawGraphs, request: SplitRequest, classes: np.ndarray | None) -> tuple[Rows, str]:
    groups = group_numbers(raw.column(GRAPH, str(request.group)))
    return group_split(groups, request.fractions, request.seed), f"whole groups of {request.group}"


def _folds(raw: RawGraphs, request: SplitRequest, classes: np.ndarray | None) -> tuple[Rows, str]:
    told = f"fold {request.fold} of {request.num_folds} tests, the next one validates"
    if request.group is not None:
        units, of_unit = group_numbers(raw.column(GRAPH, request.group)), None
        told += f", whole groups of {request.group}"
    else:
        units, of_unit = np.arange(len(raw)), classes
        told += ", stratified" if classes is not None else ""
    return fold_split(units, of_unit, request.fold, request.num_folds, request.seed), told


def _usual(raw: RawGraphs, request: SplitRequest, classes: np.ndarray | None) -> str:
    if request.group is not None:
        return "groups"
    if request.column is not None or raw.splits is not None or _split_columns(raw):
        return "given"
    return "random" if classes is None else "stratified"


def _split_columns(raw: RawGraphs) -> tuple[str, ...]:
    """Columns that say by their names that they are splits."""
    if MASKS.keys() <= raw.columns[GRAPH].keys():
        return tuple(MASKS)
    values = raw.columns[GRAPH].get(SPLIT_COLUMN)
    return (SPLIT_COLUMN,) if values is not None and values.dtype == object else ()


def used_columns(raw: RawGraphs, request: SplitRequest) -> tuple[str, ...]:
    """Columns of graphs that say how to split."""
    return tuple(name for name in (request.column, request.group, *_split_columns(raw)) if name)


def _given(raw: RawGraphs, request: SplitRequest, classes: np.ndarray | None) -> tuple[Rows, str]:
    columns = (request.column,) if request.column else _split_columns(raw)
    if not columns and raw.splits is not None:
        return dict(raw.splits), f"as {raw.origin} gives it"
    if not columns:
        raise BadInput(
            "the source gives none: it has no column split of the graphs, no train_mask, val_mask and "
            "test_mask, and no lists by split. Name a column with split_column, or take split=random."
        )
    if columns == tuple(MASKS):
        masks = {split: np.flatnonzero(raw.column(GRAPH, name).reshape(-1)) for name, split in MASKS.items()}
        found = index_split(masks, len(raw))
    else:
        values = raw.column(GRAPH, columns[0]).reshape(-1)
        words = ["" if value is None else str(value).strip().lower() for value in values.tolist()]
        wrong = next((row for row, word in enumerate(words) if word not in _WORDS), None)
        if wrong is not None:
            raise BadInput(
                f"{raw.place(GRAPH, wrong)}: {columns[0]} is {values[wrong]!r}; expected train, val or test."
            )
        found = given_split(words, _WORDS)
    return {name: rows.numpy() for name, rows in found.items()}, f"as {', '.join(columns)} says"


_RULES: dict[str, Callable[[RawGraphs, SplitRequest, np.ndarray | None], tuple[Rows, str]]] = {
    "given": _given,
    "random": _random,
    "stratified": _stratified,
    "groups": _groups,
    "k-fold": _folds,
}


def group_numbers(values: np.ndarray) -> np.ndarray:
    """The group of each graph as a number `[G]`."""
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
