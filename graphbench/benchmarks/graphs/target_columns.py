"""Read the cells of a target: columns by name, numbers and bounds in text, and missing cells."""

from __future__ import annotations

import json
import math
from collections.abc import Iterable, Iterator, Sequence
from typing import Any, NamedTuple

import numpy as np
import pandas as pd

from graphbench.benchmarks.graphs.raw import LEVELS, RawGraphs, as_rows
from graphbench.benchmarks.graphs.splits.masks import counted_rows
from graphbench.contracts.table import NODE
from graphbench.errors import BadInput
from graphbench.tables.cells import RULE, Missing, as_number, split_signs

_SHOWN = 8  # words that a message names
UNLABELLED = -1  # class of a row without a target
#: Description of the values that mean a missing target, for messages.
MISSING_WORDS = f"-1 with two or more classes, none of them negative, {RULE}"


def split_name(raw: RawGraphs, name: str) -> tuple[str, int | None]:
    """Split `y:4` into the column y and 4, unless a column has that name."""
    base, _, number = name.rpartition(":")
    is_column = any(name in raw.columns[level] for level in LEVELS)
    return (base, int(number)) if base and number.isdecimal() and not is_column else (name, None)


def takes_bounds(task: str | None) -> bool:
    """Return whether a task accepts bounds in text as targets."""
    return task is not None and task.endswith("-regression")


def target_parts(raw: RawGraphs, level: str, names: Sequence[str]) -> Iterator[np.ndarray]:
    """Yield the columns `[rows, width]` unchanged."""
    for name in names:
        base, number = split_name(raw, name)
        values = raw.columns[level].get(base)
        if values is None:  # a graph has as many targets as nodes
            values = raw.columns[NODE][base].reshape(len(raw), -1)
        values = as_rows(values)
        if number is not None:
            if number >= values.shape[1]:
                raise BadInput(f"target {name}: {base} has {values.shape[1]} columns, numbered from 0.")
            values = values[:, number : number + 1]
        yield values


def words_for_missing(parts: Iterable[np.ndarray], missing: Sequence[Any] | None) -> tuple[Any, ...]:
    """Return the values that mean no target: `missing`, and the usual words in columns of text `[rows, width]`.

    Examples:
        >>> words_for_missing([np.array([["ND"], ["wet"]], dtype=object)], [-999])
        (-999, 'ND')
    """
    rule = Missing.of(missing)
    cells = (cell for part in parts if part.dtype == object for cell in part.ravel().tolist())
    words = {cell for cell in cells if isinstance(cell, str) and cell in rule}
    return (*(missing or ()), *sorted(words - set(missing or ())))


def text_as_numbers(values: np.ndarray, missing: Sequence[Any], bounds: bool = False) -> tuple[np.ndarray, np.ndarray]:
    """Convert text `[rows, width]` of numbers, words for missing values and, with `bounds`, bounds such as `>10`.

    Returns:
        The numbers, NaN where missing, and the signs of bounds int8 `[rows, width]`, see `split_signs`. Text with other
        words, and text of only numbers, is returned unchanged, with signs of 0.

    Examples:
        >>> numbers, signs = text_as_numbers(np.array([["1.5"], [">10"], ["ND"]], dtype=object), ["ND"], bounds=True)
        >>> numbers.tolist(), signs.tolist()
        ([[1.5], [10.0], [nan]], [[0], [1], [0]])
    """
    signs = np.zeros(values.shape, dtype=np.int8)
    if values.dtype != object:
        return values, signs
    cells, words = values.ravel().tolist(), set(map(str, missing))
    empty = np.array([cell is None for cell in cells], dtype=bool)
    # Parse each distinct text once: classes of millions of nodes are a few words.
    codes, distinct = pd.factorize(np.array(["" if cell is None else str(cell) for cell in cells], dtype=object))
    texts = distinct.tolist()
    absent = empty | np.array([text in words for text in texts], dtype=bool)[codes]
    stripped, read_signs = split_signs({"": texts}) if bounds else ({"": texts}, np.zeros(len(texts), dtype=np.int8))
    numbers, read_signs = np.array([as_number(text) for text in stripped[""]])[codes], read_signs.reshape(-1)[codes]
    present = {texts[code] for code in np.unique(codes[~empty])} | ({"None"} if empty.any() else set())
    if np.isnan(numbers[~absent]).any() or not (read_signs.any() or words & present):
        return values, signs
    numbers[absent] = np.nan
    return numbers.reshape(values.shape), read_signs.reshape(values.shape)


class Cells(NamedTuple):
    """Cells of several target columns.

    Args:
        values: numbers, NaN where missing, or text of dtype object `[rows, width]`.
        signs: signs of bounds, int8 `[rows, width]`; the value is then the bound.
        marked: cells with a value that means a missing target, or in a row that does not count `[rows, width]`.
    """

    values: np.ndarray
    signs: np.ndarray
    marked: np.ndarray

    @property
    def absent(self) -> np.ndarray:
        """Return the mask of missing cells `[rows, width]`: marked ones and those without a value."""
        if self.values.dtype != object:
            return self.marked | np.isnan(self.values.astype(float))
        empty = np.array([value is None for value in self.values.ravel()], dtype=bool)
        return self.marked | empty.reshape(self.values.shape)

    @property
    def numbers(self) -> np.ndarray:
        """Return the numbers and bounds, NaN where missing: float64 `[rows, width]`."""
        return np.where(self.absent, np.nan, self.values.astype(np.float64))


def read_cells(
    raw: RawGraphs, level: str, names: Sequence[str], missing: Sequence[Any] = (), bounds: bool = False
) -> Cells:
    """Read columns by name; text of numbers and `missing` words becomes numbers, with `bounds` also that of bounds.

    Raises:
        BadInput: a column number does not exist, or the columns mix text and numbers.
    """
    parts, signs = zip(
        *(text_as_numbers(part, missing, bounds) for part in target_parts(raw, level, names)), strict=True
    )
    if len({part.dtype == object for part in parts}) > 1:
        raise BadInput(f"target: {', '.join(names)} are text and numbers; a task predicts one kind.")
    values = np.concatenate(parts, axis=1)
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
    return Cells(values, np.concatenate(signs, axis=1), marked)


def refuse_odd_words(raw: RawGraphs, level: str, names: Sequence[str], cells: Cells) -> None:
    """Refuse text whose cells are mostly numbers, and otherwise unknown words."""
    if cells.values.dtype != object:
        return
    odd = [
        (row, name, str(cell))
        for row, (texts, hidden) in enumerate(zip(cells.values.tolist(), cells.absent.tolist(), strict=True))
        for name, cell, left_out in zip(names, texts, hidden, strict=False)
        if not left_out and math.isnan(as_number(cell))
    ]
    if odd and len(odd) < (~cells.absent).sum() / 2:
        row, name, word = odd[0]
        words = json.dumps(sorted({word for _, _, word in odd})[:_SHOWN], ensure_ascii=False)
        raise BadInput(
            f"{raw.place(level, row)}: the target {name} is {word!r}, though most are numbers. If it means a "
            f"missing target: --data.missing '{words}'; if these are classes: --data.task {level}-classification."
        )


def usual_missing(values: np.ndarray) -> tuple[int, ...]:
    """Return -1 if it means that there is no class; see `MISSING_WORDS`."""
    if values.dtype == object or values.shape[1] != 1:
        return ()
    present = values[~np.isnan(values.astype(float))]
    # With classes from 0 on, -1 is PyG's and OGB's mark of no label; with other negative numbers it is a class.
    others = present[present != UNLABELLED]
    two_or_more = len(others) and others.min() >= 0 and others.min() < others.max()
    return (UNLABELLED,) if two_or_more and len(others) < len(present) else ()


def class_name(value: Any) -> str:
    """Format a class as text, with whole numbers without a decimal point."""
    is_whole = isinstance(value, bool) or (isinstance(value, float) and value.is_integer())
    return str(int(value)) if is_whole else str(value)
