"""Find the missing cells of a target by values, words and masks."""

from __future__ import annotations

import json
import math
from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np

from graphbench.benchmarks.graphs.raw import RawGraphs
from graphbench.benchmarks.graphs.splits.masks import counted_rows
from graphbench.errors import BadInput
from graphbench.tables.cells import RULE, Missing, as_number, split_signs

_SHOWN = 8  # words that a message names
UNLABELLED = -1  # class of a row without a target
#: Values that mean a missing target, for messages.
MISSING_WORDS = f"-1 beside two or more classes of which none is negative, {RULE}"


def words_for_missing(parts: Iterable[np.ndarray], missing: Sequence[Any] | None) -> tuple[Any, ...]:
    """Return the values that mean no target: `missing`, and usual words for it in columns of text `[rows, width]`.

    Examples:
        >>> words_for_missing([np.array([["ND"], ["wet"]], dtype=object)], [-999])
        (-999, 'ND')
    """
    rule = Missing.of(missing)
    cells = (cell for part in parts if part.dtype == object for cell in part.ravel().tolist())
    words = {cell for cell in cells if isinstance(cell, str) and cell in rule}
    return (*(missing or ()), *sorted(words - set(missing or ())))


def text_as_numbers(values: np.ndarray, missing: Sequence[Any]) -> np.ndarray:
    """Convert text `[rows, width]` to numbers, NaN for missing ones, where it holds missing words and numbers only.

    Examples:
        >>> text_as_numbers(np.array([["1.5"], ["ND"]], dtype=object), ["ND"]).tolist()
        [[1.5], [nan]]
    """
    words = {str(value) for value in missing}
    if values.dtype != object or not words.intersection(map(str, values.ravel().tolist())):
        return values
    cells = [None if cell is None or str(cell) in words else cell for cell in values.ravel().tolist()]
    numbers = np.array([as_number(cell) for cell in cells])
    present = np.array([cell is not None for cell in cells])
    return values if np.isnan(numbers[present]).any() else numbers.reshape(values.shape)


def bounds_as_numbers(values: np.ndarray, missing: Sequence[Any]) -> tuple[np.ndarray, np.ndarray]:
    """Convert text `[rows, width]` of numbers of which some are bounds, such as `>10`; see `split_signs`.

    Returns:
        The numbers, NaN where missing, and the signs of bounds int8 `[rows, width]`. Text with other words, and values
        without a bound, come back as they are, with signs of 0.

    Examples:
        >>> numbers, signs = bounds_as_numbers(np.array([["1.5"], [">10"], ["ND"]], dtype=object), ["ND"])
        >>> numbers.tolist(), signs.tolist()
        ([[1.5], [10.0], [nan]], [[0], [1], [0]])
    """
    none = np.zeros(values.shape, dtype=np.int8)
    if values.dtype != object:
        return values, none
    cells = values.ravel().tolist()
    stripped, signs = split_signs({"": ["" if cell is None else str(cell) for cell in cells]})
    words = set(map(str, missing))
    absent = np.array([cell is None or str(cell) in words for cell in cells], dtype=bool)
    numbers = np.array([as_number(text) for text in stripped[""]])
    if not signs.any() or np.isnan(numbers[~absent]).any():
        return values, none
    numbers[absent] = np.nan
    return numbers.reshape(values.shape), signs.reshape(values.shape)


def refuse_odd_words(raw: RawGraphs, level: str, names: Sequence[str], values: np.ndarray, marked: np.ndarray) -> None:
    """Refuse text of which most cells are numbers and the others unknown words."""
    if values.dtype != object:
        return
    odd = [
        (row, name, str(cell))
        for row, (cells, hidden) in enumerate(zip(values.tolist(), marked.tolist(), strict=True))
        for name, cell, left_out in zip(names, cells, hidden, strict=False)
        if cell is not None and not left_out and math.isnan(as_number(cell))
    ]
    if odd and len(odd) < (~(marked | empty_cells(values))).sum() / 2:
        row, name, word = odd[0]
        words = json.dumps(sorted({word for _, _, word in odd})[:_SHOWN], ensure_ascii=False)
        raise BadInput(
            f"{raw.place(level, row)}: the target {name} is {word!r}, though most are numbers. If it means a "
            f"missing target: --data.missing '{words}'; if these are classes: --data.task {level}-classification."
        )


def empty_cells(values: np.ndarray) -> np.ndarray:
    """Return the mask of cells without a value `[rows, width]`."""
    if values.dtype == object:
        return np.array([[value is None for value in row] for row in values], dtype=bool).reshape(values.shape)
    return np.isnan(values.astype(float))


def marked_cells(raw: RawGraphs, level: str, values: np.ndarray, missing: Sequence[Any]) -> np.ndarray:
    """Return the mask of cells `[rows, width]` with a value in `missing`, or in a row that does not count."""
    marked = np.zeros(values.shape, dtype=bool)
    counted = counted_rows(raw, level)
    if counted is not None:
        marked[~counted] = True
    for value in missing:
        marked |= (
            np.asarray([[class_name(cell) == str(value) for cell in row] for row in values.tolist()], dtype=bool)
            if values.dtype == object
            else values == as_number(value)
        )
    return marked


def usual_missing(values: np.ndarray) -> tuple[int, ...]:
    """Return -1 where it means that there is no class; see `MISSING_WORDS`."""
    if values.dtype == object or values.shape[1] != 1:
        return ()
    present = values[~np.isnan(values.astype(float))]
    # Beside classes from 0 on, -1 is PyG's and OGB's mark of no label; beside other negative numbers it is a class.
    others = present[present != UNLABELLED]
    two_or_more = len(others) and others.min() >= 0 and others.min() < others.max()
    return (UNLABELLED,) if two_or_more and len(others) < len(present) else ()


def class_name(value: Any) -> str:
    """Format a class as text; whole numbers without a decimal point."""
    return str(int(value)) if isinstance(value, float | bool) else str(value)
