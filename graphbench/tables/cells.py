"""Parse table cells (words for missing values, class names and numbers) by the same rule for every family."""

from __future__ import annotations

import math
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

#: Words for a missing value, in any case; they include those of pandas.
USUAL = (
    "NA", "N/A", "n.a.", "#N/A", "#N/A N/A", "#NA", "<NA>", "NaN", "-NaN", "null", "None", "nil", "ND", "n/d", "n.d.",
    "1.#IND", "-1.#IND", "1.#QNAN", "-1.#QNAN", "-", "--", "\N{EN DASH}", "\N{EM DASH}", "?",
)  # fmt: skip
#: The rule, in words.
RULE = "empty, NA, N/A, #N/A, NaN, null, None, ND, -, ? and the like; --data.missing"
_ALWAYS = ("", "nan")
_BOOLEANS = {"true": 1.0, "false": 0.0}
_BOUND = re.compile(r"([<>\u2264\u2265])=?\s*(.+)")
_LARGEST = float(np.finfo(np.float32).max)


@dataclass(frozen=True)
class Missing:
    """Words (in lower case) and numbers (in any notation) that represent a missing value.

    Examples:
        >>> usual, further, none = Missing.of(None), Missing.of([-999, "not tested"]), Missing.of([])
        >>> [text for text in ("", "n/a", "ND", "-999.0", "Not tested", "-1") if text in usual]
        ['', 'n/a', 'ND']
        >>> [text for text in ("", "ND", "-999.0", "Not tested") if text in further], "ND" in none
        (['', 'ND', '-999.0', 'Not tested'], False)
    """

    words: frozenset[str]
    numbers: frozenset[float] = frozenset()

    @classmethod
    def of(cls, further: Sequence[Any] | None) -> Missing:
        """Combine the usual words with further ones or numbers; an empty list leaves only empty cells and NaN."""
        # None and an empty list differ: an empty list means that the usual words are values.
        chosen = (*_ALWAYS, *(() if further is not None and not further else USUAL), *(further or ()))
        numbers = {as_number(word) for word in further or ()}
        return cls(
            frozenset(str(word).strip().casefold() for word in chosen),
            frozenset(number for number in numbers if not math.isnan(number)),
        )

    def __contains__(self, cell: str) -> bool:
        return cell.casefold() in self.words or (bool(self.numbers) and as_number(cell) in self.numbers)


def as_number(value: Any) -> float:
    """Convert a value to a number; NaN if it is not one.

    Examples:
        >>> as_number("-999"), as_number("ND"), as_number("1_000")
        (-999.0, nan, nan)
    """
    try:
        return math.nan if isinstance(value, str) and "_" in value else float(value)  # only Python reads 1_000
    except (TypeError, ValueError):
        return math.nan


def split_signs(columns: Mapping[str, Sequence[str]]) -> tuple[dict[str, list[str]], np.ndarray]:
    """Remove the signs of numbers that are bounds, which an assay reports as above or below what it can measure.

    Args:
        columns: name of each of T targets -> its cells.

    Returns:
        The cells, with bounds reduced to their numbers; and signs int8 `[rows, T]`: 1 for `>10` and `>=10`, -1 for
        `<0.1` and `<=0.1`, else 0. A sign before anything but a number stays.

    Examples:
        >>> cells, signs = split_signs({"IC50": [">10", "3", "<= 0,1", ">high"]})
        >>> cells["IC50"], signs[:, 0].tolist()
        (['10', '3', '0,1', '>high'], [1, 0, -1, 0])
    """
    signs = np.zeros((len(next(iter(columns.values()), ())), len(columns)), dtype=np.int8)
    numbers = {name: list(cells) for name, cells in columns.items()}
    for place, cells in enumerate(numbers.values()):
        for row, cell in enumerate(cells):
            bound = _BOUND.fullmatch(cell)
            if bound is not None and not math.isnan(as_number(bound[2].replace(",", "."))):
                cells[row], signs[row, place] = bound[2], 1 if bound[1] in ">\u2265" else -1
    return numbers, signs


def parse_cells(
    columns: Mapping[str, Sequence[str]],
    kind: str,
    missing: Missing,
    num_classes: int = 0,
    classes: Mapping[str, int] | None = None,
) -> tuple[np.ndarray, list[tuple[int, str, str]]]:
    """Parse the cells of T target columns into numbers.

    Kinds are those of `parse_number`. Names of `classes` take precedence over `missing` words; without `classes` the
    cells contain numbers.

    Returns:
        float64 `[rows, T]`, NaN for missing or faulty cells; and row, fault and text of each faulty cell, column by
        column.

    Examples:
        >>> values, faults = parse_cells({"y": ["2", "n/a", "low"]}, "regression", Missing.of(None))
        >>> values[:, 0].tolist(), faults
        ([2.0, nan, nan], [(2, "target 'y' is not a number", 'low')])
    """
    classes = classes or {}
    unknown = f"is none of the classes {', '.join(map(repr, classes))}"
    values = np.full((len(next(iter(columns.values()), ())), len(columns)), np.nan)
    faults = []
    for place, (name, cells) in enumerate(columns.items()):
        for row, text in enumerate(cells):
            if text in classes:  # first: "NA" or "-" may be the name of a class
                values[row, place] = classes[text]
                continue
            if text in missing:
                continue
            value, fault = (math.nan, unknown) if classes else parse_number(text, kind, num_classes)
            if fault:
                faults.append((row, f"target {name!r} {fault}", text))
            else:
                values[row, place] = value
    return values, faults


def parse_number(text: str, kind: str, num_classes: int = 0) -> tuple[float, str]:
    """Return the number in a cell, and the cell's fault ("" for none).

    Regression accepts finite numbers, classification `0 .. num_classes - 1`, and multilabel 0, 1, true and false.

    Examples:
        >>> parse_number("1e3", "regression"), parse_number("2", "multilabel")
        ((1000.0, ''), (2.0, 'is not 0 or 1'))
    """
    if kind == "multilabel" and text.lower() in _BOOLEANS:
        return _BOOLEANS[text.lower()], ""
    value = as_number(text)
    if math.isnan(value):
        return math.nan, "is not a number"
    if abs(value) > _LARGEST:
        return value, "is not a finite number in single precision"
    if kind == "multilabel" and value not in (0.0, 1.0):
        return value, "is not 0 or 1"
    if kind == "classification" and not (value.is_integer() and 0 <= value < num_classes):
        return value, f"is not a class number from 0 to {num_classes - 1}"
    return value, ""
