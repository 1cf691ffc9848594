"""Masks that came with graphs: which columns say who trains, validates and tests, and which rows count at all."""

from __future__ import annotations

import re
from collections.abc import Sequence

import numpy as np

from graphbench.benchmarks.graphs.raw import RawGraphs, as_rows
from graphbench.contracts import SPLITS
from graphbench.data.splits import fold_numbers
from graphbench.errors import BadInput

#: What a split may be called in a column of words, in a mapping of lists, or in the name of a mask.
SPLIT_WORDS = {
    **dict.fromkeys(("train", "training"), "train"),
    **dict.fromkeys(("val", "valid", "validation", "dev"), "val"),
    **dict.fromkeys(("test", "testing"), "test"),
}
_NAME = re.compile(
    rf"(?P<prefix>is_?|in_?)?(?P<word>{'|'.join(sorted(SPLIT_WORDS, key=len, reverse=True))})"
    r"_?(?P<suffix>masks?|idx|index|indices|ids|nodes)?",
    re.IGNORECASE,
)
#: The column that is a split by its name.
SPLIT_COLUMN = "split"
_SURE = ("mask", "masks", "idx", "index", "indices")
#: Columns that say which nodes or graphs have a target that counts.
_COUNTED = ("mask", "node_mask", "label_mask", "labeled_mask", "labelled_mask", "y_mask", "target_mask", "loss_mask")


def _role(name: str) -> tuple[str, str]:
    """The split that a column is named after, and the end of its name; empty texts where there is none."""
    found = _NAME.fullmatch(name)
    return (SPLIT_WORDS[found["word"].lower()], (found["suffix"] or "").lower()) if found else ("", "")


def masks_from_indices(arrays: Sequence[dict[str, np.ndarray]], sizes: Sequence[int], places: Sequence[str]) -> None:
    """Turn lists of node numbers, by their name those of a split, into masks; in place.

    `train_mask` may hold them, too, where it is no mask of 0 and 1 with a value for each node or graph.

    Args:
        arrays: attributes of each graph.
        sizes: nodes of each graph.
        places: of the graphs, for messages.

    Raises:
        BadInput: a number is no node, or is there twice.
    """
    for name in dict.fromkeys(name for graph in arrays for name in graph):
        role, suffix = _role(name)
        shared = [
            (graph, size, place) for graph, size, place in zip(arrays, sizes, places, strict=True) if name in graph
        ]
        values = [graph[name] for graph, _, _ in shared]
        if not role or any(value.ndim != 1 or (value.size and value.dtype.kind not in "iu") for value in values):
            continue
        if not suffix.startswith(("idx", "ind")) and _are_masks(values, [size for _, size, _ in shared]):
            continue
        if suffix == "" and all(value.size == 1 for value in values):
            continue  # a number of each graph
        for graph, size, place in shared:
            graph[name] = _mask_of(graph[name], size, f"{place}: {name}")


def _are_masks(values: Sequence[np.ndarray], sizes: Sequence[int]) -> bool:
    binary = all(bool(np.isin(value, (0, 1)).all()) for value in values)
    of_nodes = all(len(value) == size for value, size in zip(values, sizes, strict=True))
    return binary and (of_nodes or (len(values) > 1 and all(len(value) == 1 for value in values)))


def _mask_of(numbers: np.ndarray, size: int, what: str) -> np.ndarray:
    """Node numbers as a mask `[size]`.

    Raises:
        BadInput: names the number that is wrong.
    """
    rows = numbers.astype(np.int64)
    if rows.size and (rows.min() < 0 or rows.max() >= size):
        wrong = int(rows[(rows < 0) | (rows >= size)][0])
        raise BadInput(f"{what} holds {wrong}, but its nodes are numbered from 0 to {size - 1}.")
    if len(np.unique(rows)) != len(rows):
        raise BadInput(f"{what} lists a node twice.")
    mask = np.zeros(size, dtype=bool)
    mask[rows] = True
    return mask


def split_masks(raw: RawGraphs, level: str) -> dict[str, str]:
    """The columns of a level that are masks of splits, by the split: `{"train": "train_mask"}`.

    `train_mask`, `valid_mask`, `test_idx` and the like always are; `train`, `is_test` or `val_nodes` where they hold
    truth values.

    Raises:
        BadInput: two columns say the same split differently, some graphs lack a mask, or it holds other values.
    """
    found: dict[str, str] = {}
    broken = (name for of, name in raw.faults if of == level)
    for name in (*raw.columns[level], *broken):
        role, suffix = _role(name)
        if not role or (suffix not in _SURE and (raw.columns[level].get(name, np.empty(0)).dtype != bool)):
            continue
        mask = mask_values(raw, level, name)
        if role in found and not np.array_equal(mask, mask_values(raw, level, found[role])):
            raise BadInput(f"{raw.origin}: {found[role]} and {name} differ, but both name the {role} split.")
        found.setdefault(role, name)
    return {split: found[split] for split in SPLITS if split in found}


def counted_mask(raw: RawGraphs, level: str) -> str | None:
    """The column that says which rows of a level have a target that counts, such as `mask`; None where there is none.

    Raises:
        BadInput: there are several, some graphs lack it, or it holds other values than 0 and 1.
    """
    if level not in raw.columns:
        return None
    known = [name for name in _COUNTED if name in raw.columns[level] or (level, name) in raw.faults]
    if len(known) > 1:
        raise BadInput(f"{raw.origin}: {' and '.join(known)} may each say which {level}s count; keep one of them.")
    if known and mask_values(raw, level, known[0]).shape[1] != 1:
        raise BadInput(f"{raw.origin}: {known[0]} has several columns; expected one truth value for each {level}.")
    return known[0] if known else None


def counted_rows(raw: RawGraphs, level: str) -> np.ndarray | None:
    """Which rows of a level have a target that counts `[rows]`; None where the source leaves none out."""
    name = counted_mask(raw, level)
    return None if name is None else mask_values(raw, level, name)[:, 0]


def mask_values(raw: RawGraphs, level: str, name: str) -> np.ndarray:
    """A mask as truth values `[rows, splits]`.

    Raises:
        BadInput: it holds other values than 0 and 1; names the row.
    """
    values = as_rows(raw.column(level, name))
    if values.dtype == object:
        raise BadInput(f"{raw.origin}: {name} is text; a mask holds 0 and 1, or true and false.")
    if values.dtype != bool and (wrong := ~np.isin(values, (0, 1))).any():
        row = int(np.flatnonzero(wrong.any(1))[0])
        raise BadInput(f"{raw.place(level, row)}: {name} is {values[row][wrong[row]][0]}; a mask holds 0 and 1.")
    return values.astype(bool)


def are_folds(values: np.ndarray) -> bool:
    """Return whether a column of numbers holds fold numbers: 0 to k - 1, for three folds or more."""
    try:
        return values.dtype != bool and fold_numbers(as_rows(values).reshape(-1).tolist()) is not None
    except BadInput:
        return False


def word_columns(raw: RawGraphs, level: str, other: Sequence[str] = (), strict: bool = True) -> tuple[str, ...]:
    """The column of words that say which split: all of them train, val, test or the like, and two of them are there.

    Args:
        raw: the graphs.
        level: "graph" or "node".
        other: columns that are something else.
        strict: refuse what cannot be used; otherwise give all such columns.

    Raises:
        BadInput: a column `split` holds no words, or several columns name splits.
    """
    found = []
    for name, values in raw.columns[level].items():
        named = name.lower() == SPLIT_COLUMN
        if name in other or (values.dtype != object and not named):
            continue
        if values.dtype != object:
            if named and are_folds(values):
                found.append(name)
            elif strict:
                raise BadInput(
                    f"{raw.origin}: the column {name} of {level}s holds numbers, of which nobody can tell which one "
                    "trains. Write train, val and test, or say --data.split random to leave it aside."
                )
            continue
        words = {str(value).strip().lower() for value in values.reshape(-1).tolist() if value is not None} - {""}
        if named or (words <= SPLIT_WORDS.keys() and len({SPLIT_WORDS[word] for word in words}) > 1):
            found.append(name)
    if strict and len(found) > 1:
        raise BadInput(f"{raw.origin}: the columns {', '.join(found)} all name splits; say which with split_column.")
    return tuple(found)
