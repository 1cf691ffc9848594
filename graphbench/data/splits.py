"""Split graphs into train, validation and test sets: at random, in folds, by index, or as given with the data.

A split maps names ("train", "val", "test") to row numbers, as int64 tensors.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
import torch
from torch import Tensor

from graphbench.contracts import SPLITS
from graphbench.data.worker_pool import random_state
from graphbench.errors import BadInput

Split = dict[str, Tensor]
#: Words for the splits in a user's data, in lower case.
SPLIT_WORDS = {
    **dict.fromkeys(("train", "training"), "train"),
    **dict.fromkeys(("val", "valid", "validation", "dev"), "val"),
    **dict.fromkeys(("test", "testing"), "test"),
}
#: Default shares of train, val and test.
USUAL_SHARES = (0.8, 0.1, 0.1)
_MIN_FOLDS = 3
_ROUNDED = 1e-6  # by which the sum of shares may differ from 1, as that of 0.3333333, three times


def check_fractions(fractions: Sequence[float]) -> tuple[float, float, float]:
    """Check that shares of train, val and test add up to 1; those of val and test may be 0.

    Examples:
        >>> check_fractions([0.9, 0.1, 0])
        (0.9, 0.1, 0.0)
    """
    shares = tuple(map(float, fractions))
    if len(shares) != len(SPLITS) or min(shares) < 0 or not shares[0] > 0 or not abs(sum(shares) - 1) < _ROUNDED:
        raise BadInput(
            f"fractions: expected shares of train (above 0), val and test (0 or more) that add up to 1, got "
            f"{list(fractions)}."
        )
    train, val, test = shares
    return train, val, test


def without_share(fractions: Sequence[float]) -> tuple[str, ...]:
    """Return the splits that may stay empty.

    Examples:
        >>> without_share([0.9, 0.1, 0])
        ('test',)
    """
    return tuple(name for name, share in zip(SPLITS, fractions, strict=True) if not share)


def unused_shares(fractions: Sequence[float]) -> str:
    """Return a note that shares other than the default have no effect, for data with all splits given.

    Examples:
        >>> unused_shares([0.8, 0.1, 0.1]), unused_shares([0.5, 0.25, 0.25])
        ('', '; fractions are not used')
    """
    return "" if tuple(fractions) == USUAL_SHARES else "; fractions are not used"


def permutation(size: int, *seeds: int) -> np.ndarray:
    """Return a permutation of `0 .. size - 1` that depends only on the seeds: `[size]`, int64.

    Examples:
        >>> permutation(5, 0)
        array([3, 0, 1, 2, 4])
    """
    return random_state(*seeds).permutation(size)


def random_split(
    num_graphs: int, parts: Mapping[str, float | int], seed: int, groups: Sequence[str] | None = None
) -> Split:
    """Split rows at random.

    Args:
        num_graphs: rows to split.
        parts: name -> number of graphs (int) or share of them (float). Shares are rounded down; if they add up to one,
            the last part above 0 gets the remainder. A part of 0 stays empty.
        seed: seed of the split, its only source of randomness.
        groups: label of every row; rows with the same label stay together. A group goes to the part of its first row in
            the random order, or to an earlier part that would be empty, so parts may be larger or smaller by a group.
            Rows beyond the parts are left out.

    Raises:
        BadInput: the parts need more graphs than there are, or one of them would be empty.

    Examples:
        >>> {name: rows.tolist() for name, rows in random_split(6, {"train": 0.5, "test": 0.5}, 0, "aabbcc").items()}
        {'train': [3, 2, 0, 1], 'test': [4, 5]}
    """
    # 0.29 * 100 is 28.999999999999996: without the tiny addend, a share of exactly n rows would lose one.
    sizes = {name: part if isinstance(part, int) else int(part * num_graphs + 1e-9) for name, part in parts.items()}
    shares = [part for part in parts.values() if not isinstance(part, int)]
    if len(shares) == len(parts) and abs(sum(shares) - 1) < _ROUNDED:
        sizes[[name for name, part in parts.items() if part > 0][-1]] += num_graphs - sum(sizes.values())
    empty = [name for name, size in sizes.items() if size < 1 and parts[name] != 0]
    if empty or sum(sizes.values()) > num_graphs:
        raise BadInput(
            f"Cannot split {num_graphs} graphs into {dict(parts)}: the parts would have {sizes} graphs. Every part "
            f"needs at least one graph, and together they may have at most {num_graphs}."
        )
    order = permutation(num_graphs, seed)
    ends = np.cumsum(list(sizes.values()))
    if groups is None:
        chosen = np.split(order[: ends[-1]], ends[:-1])
    else:
        chosen = _whole_groups(order, ends, groups)
        short = [name for name, rows in zip(sizes, chosen, strict=True) if not len(rows) and sizes[name]]
        if short:
            raise BadInput(
                f"Cannot split {num_graphs} graphs in {len(set(groups))} groups into {dict(parts)}: no group is left "
                f"for {' and '.join(short)}. Use other shares or another seed."
            )
    return {name: torch.from_numpy(rows).to(torch.int64) for name, rows in zip(sizes, chosen, strict=True)}


def _whole_groups(order: np.ndarray, ends: np.ndarray, groups: Sequence[str]) -> list[np.ndarray]:
    """Cut ordered rows into parts near `ends`; each whole group goes to the part of its first row."""
    rows, sizes = _by_group(order, groups)
    is_empty = (np.diff(ends, prepend=0) > 0).tolist()  # of parts that should have rows
    last, placed, part_of = ends.tolist(), 0, np.empty(len(sizes), dtype=np.int64)
    for group, size in enumerate(sizes.tolist()):
        due = bisect_right(last, placed)
        part = next((earlier for earlier in range(min(due, len(last))) if is_empty[earlier]), due)
        if part < len(last):
            is_empty[part] = False
        part_of[group] = part
        placed += size
    part_of_row = np.repeat(part_of, sizes)
    return [rows[part_of_row == part] for part in range(len(last))]


def _by_group(order: np.ndarray, groups: Sequence[Any]) -> tuple[np.ndarray, np.ndarray]:
    """Return the rows group by group, and the size of each group; groups and rows keep the given order."""
    number = _by_first(group_numbers(groups)[order])
    return order[np.argsort(number, kind="stable")], np.bincount(number)


def group_numbers(labels: Sequence[Any]) -> np.ndarray:
    """Assign numbers to labels in the order in which they first occur, int64 `[rows]`.

    Texts are compared by 8-byte hashes, since a dictionary of ten million texts takes gigabytes. Among so many, two
    different texts share a hash with a probability of 3e-6, and then count as one group.

    Examples:
        >>> group_numbers(["b", "a", "b"]), group_numbers([-1, -2, -1])
        (array([0, 1, 0]), array([0, 1, 0]))
    """
    if all(isinstance(label, str) for label in labels):
        return _by_first(np.fromiter(map(hash, labels), dtype=np.int64, count=len(labels)))
    number: dict[Any, int] = {}
    return np.array([number.setdefault(label, len(number)) for label in labels], dtype=np.int64)


def _by_first(keys: np.ndarray) -> np.ndarray:
    """Assign numbers to keys in the order in which they first occur."""
    _, first, place = np.unique(keys, return_index=True, return_inverse=True)
    number = np.empty(len(first), dtype=np.int64)
    number[np.argsort(first)] = np.arange(len(first))
    return number[place.reshape(-1)]


def k_fold_split(num_graphs: int, folds: int, fold: int, seed: int, groups: Sequence[str] | None = None) -> Split:
    """Return one split of a k-fold cross-validation, whose test parts together contain every graph once.

    The graphs are cut into `folds` parts of nearly equal size, at least three. Part `fold` is the test set, the next
    one (after the last, the first) the validation set, and the others the training set. Folds with the same seed belong
    together. Rows with the same label in `groups`, such as a scaffold, stay together: groups are assigned from largest
    to smallest, each to the part that is smallest so far. `seed` decides the order of groups of equal size.

    Examples:
        >>> {name: rows.tolist() for name, rows in k_fold_split(5, 3, 1, 0, groups="aabbc").items()}
        {'train': [2, 3], 'val': [4], 'test': [0, 1]}
    """
    order = permutation(num_graphs, seed)
    fold_of = np.empty(num_graphs, dtype=np.int64)
    if groups is None:
        for number, part in enumerate(np.array_split(order, folds)):
            fold_of[part] = number
    else:
        rows, sizes = _by_group(order, groups)
        fold_of[rows] = np.repeat(_balance(sizes, folds), sizes)
    if len(np.unique(fold_of)) < folds:
        counts = f"{num_graphs:,} graphs" + (f" in {len(set(groups)):,} groups" if groups is not None else "")
        raise BadInput(f"folds={folds}: {counts} cannot be cut into {folds} parts; use fewer folds.")
    return column_folds(fold_of, fold)


def _balance(sizes: np.ndarray, folds: int) -> np.ndarray:
    """Assign groups to folds of nearly equal size: largest first, each to the smallest fold (LPT scheduling)."""
    filled, fold_of = [0] * folds, np.empty(len(sizes), dtype=np.int64)
    for group in np.argsort(-sizes, kind="stable").tolist():  # ties as in the permutation
        smallest = filled.index(min(filled))
        filled[smallest] += int(sizes[group])
        fold_of[group] = smallest
    return fold_of


def fold_numbers(labels: Sequence[Any]) -> np.ndarray | None:
    """Parse the fold of every row `[rows]` from a column of fold numbers; return None if it has other values.

    Raises:
        BadInput: the numbers are not 0 to k - 1 for three or more folds.

    Examples:
        >>> fold_numbers(["0", "2", "1"]), fold_numbers(["train", "test"])
        (array([0, 2, 1]), None)
    """
    try:
        values = np.array([float(label) for label in labels])  # also "1.0": a column with gaps was read as floats
    except (TypeError, ValueError):
        return None
    if not len(values):
        return None
    distinct = np.unique(values)
    if len(distinct) < _MIN_FOLDS or not np.array_equal(distinct, np.arange(len(distinct))):
        shown = ", ".join(f"{value:g}" for value in distinct[:5]) + (", ..." if len(distinct) > 5 else "")
        raise BadInput(
            f"the numbers {shown} are not folds: folds are numbered from 0 without gaps, and are {_MIN_FOLDS} or "
            "more. For other splits write train, val and test."
        )
    return values.astype(np.int64)


def column_folds(numbers: np.ndarray, fold: int) -> Split:
    """Return the split with `fold` as test set and the next fold (after the last, the first) as validation set.

    `numbers` are the folds of the rows `[rows]`, from 0.

    Examples:
        >>> {name: rows.tolist() for name, rows in column_folds(np.array([0, 1, 2, 0]), 2).items()}
        {'train': [1], 'val': [0, 3], 'test': [2]}
    """
    count = int(numbers.max()) + 1
    if not 0 <= fold < count:
        raise BadInput(f"fold is {fold}, but there are {count} folds, numbered from 0.")
    ahead = (numbers - fold) % count
    masks = {"train": ahead > 1, "val": ahead == 1, "test": ahead == 0}
    return {name: torch.from_numpy(np.flatnonzero(mask)) for name, mask in masks.items()}


#: Cuts rows `[n]` into parts with names and shares that add up to 1.
Cut = Callable[[np.ndarray, Sequence[str], np.ndarray], Mapping[str, np.ndarray]]


def complete_split(
    parts: Mapping[str, np.ndarray], fractions: Sequence[float], cut: Cut
) -> tuple[dict[str, np.ndarray], str]:
    """Add missing splits to given ones; also describe in words where they come from.

    Without `train`, all rows that are in no other split are used for training. Other missing splits are cut from the
    training part, in the shares of `fractions`; a missing split without a share stays empty. If only `train` is given,
    the rows outside of it are split, if there are any. `parts` are masks `[rows]` of the given splits, at least one.

    Examples:
        >>> parts = {"train": np.array([True, True, True, False]), "test": np.array([False, False, False, True])}
        >>> cut = lambda rows, names, shares: dict(zip(names, np.split(rows, [2])))
        >>> complete_split(parts, (0.8, 0.1, 0.1), cut)
        ({'train': array([0, 1]), 'test': array([3]), 'val': array([2])}, '; val is cut from train')
    """
    rows = {name: np.flatnonzero(mask) for name, mask in parts.items()}
    if len(rows) == len(SPLITS):
        return rows, unused_shares(fractions)
    others, note = np.flatnonzero(~np.logical_or.reduce(list(parts.values()))), ""
    if "train" not in rows:
        rows["train"], others, note = others, others[:0], "; all others train"
    share = dict(zip(SPLITS, fractions, strict=True))
    if empty := [name for name in SPLITS if name not in rows and not share[name]]:
        rows |= dict.fromkeys(empty, others[:0])
        note += f"; no {' and no '.join(empty)}"
    missing = [name for name in SPLITS if name not in rows]
    if not missing:
        return rows, note
    is_from_others = list(parts) == ["train"] and len(others) > 0
    source, names = (others, missing) if is_from_others else (rows["train"], ["train", *missing])
    if len(source) < len(names):
        raise BadInput(
            f"it lacks {' and '.join(missing)}, but {len(source)} are too few to cut {'them' if missing[1:] else 'it'} "
            "from. Use split=random."
        )
    shares = np.array([share[name] for name in names])
    chosen = cut(source, names, shares / shares.sum())
    rows |= {name: np.asarray(chosen[name]) for name in names}
    verb = "is" if len(missing) == 1 else "are"
    where = "taken from all others" if is_from_others else "cut from train"
    return rows, f"{note}; {' and '.join(missing)} {verb} {where}"


def index_split(indices: Mapping[str, Sequence[int] | Tensor | np.ndarray], num_graphs: int) -> Split:
    """Build a split from lists of row numbers.

    Raises:
        BadInput: a number is out of range, listed twice, or not an integer.

    Examples:
        >>> index_split({"train": [0, 2], "val": [1], "test": [3]}, num_graphs=4)["train"]
        tensor([0, 2])
    """
    split = {}
    for name, rows in indices.items():
        values = torch.as_tensor(rows)
        if values.is_floating_point() or values.dtype == torch.bool or values.dim() != 1:
            raise BadInput(f"The {name} split must be a list of row numbers, got {values.dtype}, {values.dim()}-d.")
        split[name] = values.to(torch.int64)
    check_split(split, num_graphs)
    return split


def given_split(labels: Sequence[str], names: Mapping[str, str] | None = None) -> Split:
    """Split by a label of every row ("train", "val", "test"), as given in many data files.

    Args:
        labels: one per row.
        names: label in the file -> name of the split; rows with other labels are left out. By default every label must
            be in `SPLIT_WORDS`: the three names, "valid", "validation" and the like.

    Raises:
        BadInput: a label is unknown (by default), or a split has no rows.

    Examples:
        >>> {name: rows.tolist() for name, rows in given_split(["train", "test", "valid", "train"]).items()}
        {'train': [0, 3], 'val': [2], 'test': [1]}
    """
    split_of, texts = SPLIT_WORDS if names is None else names, [str(label) for label in labels]
    unknown = sorted(set(texts) - set(split_of))
    if unknown and names is None:
        raise BadInput(f"Rows are labelled {unknown[:5]}; a split label must be one of {sorted(split_of)}.")
    of_row = np.array([split_of.get(text, "") for text in texts])
    split = {name: torch.from_numpy(np.flatnonzero(of_row == name)) for name in dict.fromkeys(split_of.values())}
    check_split(split, len(labels))
    return split


def check_split(
    split: Mapping[str, Tensor], num_graphs: int, complete: bool = False, empty: Sequence[str] = ()
) -> None:
    """Check that every part has rows, that all rows exist, and that no row is used twice.

    With `complete` every row must be used; parts in `empty` may have none.

    Raises:
        BadInput: a check fails; names the part and the first offending row.
    """
    owner = torch.full((num_graphs,), -1, dtype=torch.int64)
    for number, (name, rows) in enumerate(split.items()):
        if not len(rows) and name not in empty:
            raise BadInput(f"The {name} split is empty.")
        outside = rows[(rows < 0) | (rows >= num_graphs)]
        if len(outside):
            raise BadInput(f"The {name} split has row {int(outside[0])}, but rows go from 0 to {num_graphs - 1}.")
        taken = rows[owner[rows] >= 0]
        if len(taken):
            other = list(split)[int(owner[taken[0]])]
            raise BadInput(f"Row {int(taken[0])} is in the {other} split and in the {name} split.")
        owner[rows] = number
        # A row that is listed twice gets one owner.
        if int((owner == number).sum()) != len(rows):
            values, counts = rows.unique(return_counts=True)
            raise BadInput(f"The {name} split lists row {int(values[counts > 1][0])} more than once.")
    if complete and bool((owner < 0).any()):
        raise BadInput(f"Row {int((owner < 0).nonzero()[0])} is in no split, but every row must be in one.")
