"""Recognise columns that are masks: of the splits, and of the rows whose targets count."""

from __future__ import annotations

import re
from collections.abc import Sequence

import numpy as np

from graphbench.benchmarks.graphs.raw import RawGraphs, as_rows
from graphbench.contracts import SPLITS
from graphbench.data.splits import SPLIT_WORDS, fold_numbers
from graphbench.errors import BadInput

_NAME = re.compile(
    # longest words first: "val" would match the beginning of "validation"
    rf"(?P<prefix>is_?|in_?)?(?P<word>{'|'.join(sorted(SPLIT_WORDS, key=len, reverse=True))})"
    r"_?(?P<suffix>masks?|idx|index|indices|ids|nodes)?",
    re.IGNORECASE,
)
SPLIT_COLUMN = "split"  # a column of this name is always read as a split
_MASK_SUFFIXES = ("mask", "masks", "idx", "index", "indices")
#: Columns that mark the nodes or graphs whose targets count.
_COUNTED = ("mask", "node_mask", "label_mask", "labeled_mask", "labelled_mask", "y_mask", "target_mask", "loss_mask")


def _parse_name(name: str) -> tuple[str, str]:
    """Parse the name of a column as split and suffix; empty texts for other names."""
    match = _NAME.fullmatch(name)
    return (SPLIT_WORDS[match["word"].lower()], (match["suffix"] or "").lower()) if match else ("", "")


def masks_from_indices(arrays: Sequence[dict[str, np.ndarray]], sizes: Sequence[int], places: Sequence[str]) -> None:
    """Replace lists of node numbers, named after a split, by masks in place.

    `train_mask` may also be such a list, if it is not a mask of 0 and 1 with a value for each node or graph.

    Raises:
        BadInput: a number is out of range, or is listed twice; starts with the place of the graph.
    """
    for name in dict.fromkeys(name for graph in arrays for name in graph):
        split, suffix = _parse_name(name)
        having = [
            (graph, size, place) for graph, size, place in zip(arrays, sizes, places, strict=True) if name in graph
        ]
        values = [graph[name] for graph, _, _ in having]
        if not split or any(value.ndim != 1 or (value.size and value.dtype.kind not in "iu") for value in values):
            continue
        if not suffix.startswith(("idx", "ind")) and _are_masks(values, [size for _, size, _ in having]):
            continue
        if suffix == "" and all(value.size == 1 for value in values):
            continue  # one number per graph
        for graph, size, place in having:
            graph[name] = _mask_of(graph[name], size, f"{place}: {name}")


def _are_masks(values: Sequence[np.ndarray], sizes: Sequence[int]) -> bool:
    binary = all(bool(np.isin(value, (0, 1)).all()) for value in values)
    of_nodes = all(len(value) == size for value, size in zip(values, sizes, strict=True))
    return binary and (of_nodes or (len(values) > 1 and all(len(value) == 1 for value in values)))


def _mask_of(numbers: np.ndarray, size: int, what: str) -> np.ndarray:
    """Convert node numbers to a mask `[size]`."""
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
    """Return the columns of a level that are masks of splits: `{"train": "train_mask"}`.

    `train_mask`, `valid_mask`, `test_idx` and the like are masks; `train`, `is_test` or `val_nodes` only if they are
    boolean.

    Raises:
        BadInput: two masks of a split differ, some graphs lack a mask, or it has values other than 0 and 1.
    """
    masks: dict[str, str] = {}
    faulty = (name for at, name in raw.faults if at == level)
    for name in (*raw.columns[level], *faulty):
        split, suffix = _parse_name(name)
        if not split or (suffix not in _MASK_SUFFIXES and raw.columns[level].get(name, np.empty(0)).dtype != bool):
            continue
        mask = mask_values(raw, level, name)
        if split in masks and not np.array_equal(mask, mask_values(raw, level, masks[split])):
            raise BadInput(f"{raw.origin}: {masks[split]} and {name} differ, but both name the {split} split.")
        masks.setdefault(split, name)
    return {split: masks[split] for split in SPLITS if split in masks}


def counted_mask(raw: RawGraphs, level: str) -> str | None:
    """Return the column that marks the rows of a level whose targets count, such as `mask`; None without one."""
    if level not in raw.columns:
        return None
    names = [name for name in _COUNTED if name in raw.columns[level] or (level, name) in raw.faults]
    if len(names) > 1:
        raise BadInput(f"{raw.origin}: {' and '.join(names)} may each mark the {level}s that count; keep one of them.")
    if names and mask_values(raw, level, names[0]).shape[1] != 1:
        raise BadInput(f"{raw.origin}: {names[0]} has several columns; expected one truth value for each {level}.")
    return names[0] if names else None


def counted_rows(raw: RawGraphs, level: str) -> np.ndarray | None:
    """Return the mask of the rows of a level whose targets count `[rows]`; None without one."""
    name = counted_mask(raw, level)
    return None if name is None else mask_values(raw, level, name)[:, 0]


def mask_values(raw: RawGraphs, level: str, name: str) -> np.ndarray:
    """Return a mask as booleans `[rows, splits]`."""
    values = as_rows(raw.column(level, name))
    if values.dtype == object:
        raise BadInput(f"{raw.origin}: {name} is text; a mask holds 0 and 1, or true and false.")
    if values.dtype != bool and (wrong := ~np.isin(values, (0, 1))).any():
        row = int(np.flatnonzero(wrong.any(1))[0])
        raise BadInput(f"{raw.place(level, row)}: {name} is {values[row][wrong[row]][0]}; a mask holds 0 and 1.")
    return values.astype(bool)


def are_folds(values: np.ndarray) -> bool:
    """Return whether a column contains fold numbers: 0 to k - 1, for three or more folds."""
    try:
        return values.dtype != bool and fold_numbers(as_rows(values).reshape(-1).tolist()) is not None
    except BadInput:
        return False


def word_columns(raw: RawGraphs, level: str, other: Sequence[str] = (), strict: bool = True) -> tuple[str, ...]:
    """Return the column that names the split of each row: train, val, test or the like, at least two of them.

    `other` columns are ignored. Unless `strict`, several such columns are returned, and a column of numbers is ignored.

    Raises:
        BadInput: a column `split` has no such words, or several columns name splits.
    """
    columns = []
    for name, values in raw.columns[level].items():
        named = name.lower() == SPLIT_COLUMN
        if name in other or (values.dtype != object and not named):
            continue
        if values.dtype != object:
            if named and are_folds(values):
                columns.append(name)
            elif strict:
                raise BadInput(
                    f"{raw.origin}: the column {name} of {level}s holds numbers other than fold numbers. Write "
                    "train, val and test, or pass --data.split random to ignore it."
                )
            continue
        words = {str(value).strip().lower() for value in values.reshape(-1).tolist() if value is not None} - {""}
        if named or (words <= SPLIT_WORDS.keys() and len({SPLIT_WORDS[word] for word in words}) > 1):
            columns.append(name)
    if strict and len(columns) > 1:
        raise BadInput(f"{raw.origin}: the columns {', '.join(columns)} all name splits; choose one with split_column.")
    return tuple(columns)
