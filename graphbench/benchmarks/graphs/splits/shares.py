"""Divide rows among the splits: by classes, in whole groups, in folds; no split with a share stays empty."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from graphbench.benchmarks.graphs.raw import as_rows
from graphbench.contracts import SPLITS
from graphbench.data.splits import column_folds, permutation
from graphbench.errors import BadInput

Rows = dict[str, np.ndarray]


def group_numbers(values: np.ndarray) -> np.ndarray:
    """Return the group of each row `[rows]` or `[rows, width]` as a number `[rows]`; equal rows are one group.

    Examples:
        >>> group_numbers(np.array([[1, 1], [1, 2], [1, 1]]))
        array([0, 1, 0])
    """
    texts = np.array(["\x1f".join(map(str, row)) for row in as_rows(values).tolist()])
    return np.unique(texts, return_inverse=True)[1]


def stratified_split(classes: np.ndarray, fractions: Sequence[float], seed: int, names: Sequence[str] = SPLITS) -> Rows:
    """Give every split its random share of every class `[R]`, exact to within one row.

    The remainder of a class goes to the splits that are furthest behind their share of all rows. A class with at least
    as many rows as there are splits is in each of them.

    Examples:
        >>> classes = np.array([0] * 96 + [1] * 4)
        >>> [int((classes[rows] == 1).sum()) for rows in stratified_split(classes, (0.8, 0.1, 0.1), 0).values()]
        [2, 1, 1]
    """
    order = permutation(len(classes), seed)
    parts: dict[str, list[np.ndarray]] = {name: [order[:0]] for name in names}
    names = [name for name, share in zip(names, fractions, strict=True) if share > 0]
    shares, counts = np.array([share for share in fractions if share > 0]), np.zeros(len(names))
    seen = 0
    for value in np.unique(classes):
        rows = order[classes[order] == value]
        sizes = np.floor(shares * len(rows) + 1e-9)
        seen += len(rows)
        behind = np.argsort(counts + sizes - shares * seen, kind="stable")
        sizes[behind[: len(rows) - int(sizes.sum())]] += 1
        if len(rows) >= len(names):
            while (sizes == 0).any():
                sizes[np.argmax(sizes)] -= 1
                sizes[np.argmin(sizes)] += 1
        counts += sizes
        for name, part in zip(names, np.split(rows, np.cumsum(sizes.astype(int))[:-1]), strict=True):
            parts[name].append(part)
    return {name: np.concatenate(rows) for name, rows in parts.items()}


def random_parts(count: int, fractions: Sequence[float], seed: int, names: Sequence[str]) -> Rows:
    """Cut random parts according to their shares, each with at least one row if there are enough."""
    return stratified_split(np.zeros(count, dtype=np.int64), fractions, seed, names)


def group_split(groups: np.ndarray, fractions: Sequence[float], seed: int) -> Rows:
    """Assign whole groups in random order, each to the split that is furthest behind its share.

    The last groups go to splits that have none: for shares of 0.8, 0.1 and 0.1, 6 groups of 10 are split 4/1/1.
    """
    sizes = np.bincount(groups)
    counts, split_of = np.zeros(len(SPLITS)), np.zeros(len(sizes), dtype=np.int64)
    shares = np.array(fractions)
    for place, group in enumerate(permutation(len(sizes), seed)):
        behind = np.where(shares > 0, shares * len(groups) - counts, -np.inf)
        if len(sizes) - place <= ((counts == 0) & (shares > 0)).sum():
            behind[counts > 0] = -np.inf
        choice = int(np.argmax(behind))
        split_of[group] = choice
        counts[choice] += sizes[group]
    return {name: np.flatnonzero(split_of[groups] == number) for number, name in enumerate(SPLITS)}


def fold_split(units: np.ndarray, classes: np.ndarray | None, fold: int, num_folds: int, seed: int) -> Rows:
    """Cut folds of units (rows or groups) `[R]`: `fold` is for test, the next one for validation, the others train.

    Units are shuffled, sorted by class if they have classes, and dealt to the folds in turn, so that every class is
    spread evenly and no unit is in two folds.
    """
    count = int(units.max()) + 1
    if count < num_folds:
        raise BadInput(f"num_folds is {num_folds}, but there are only {count} graphs or groups to share out.")
    order = permutation(count, seed)
    if classes is not None:
        order = order[np.argsort(classes[order], kind="stable")]
    fold_of = np.empty(count, dtype=np.int64)
    fold_of[order] = np.arange(count) % num_folds
    return {name: rows.numpy() for name, rows in column_folds(fold_of[units], fold).items()}
