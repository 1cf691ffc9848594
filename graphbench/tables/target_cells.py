"""Parse cells of target columns into numbers, with the fault of each cell that holds none."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence

import numpy as np

from graphbench.tables.missing import Missing

_BOOLEANS = {"true": 1.0, "false": 0.0}
_LARGEST = float(np.finfo(np.float32).max)


def parse_cells(
    columns: Mapping[str, Sequence[str]],
    kind: str,
    missing: Missing,
    num_classes: int = 0,
    classes: Mapping[str, int] | None = None,
) -> tuple[np.ndarray, list[tuple[int, str, str]]]:
    """Parse target columns into numbers.

    Args:
        columns: name of each of T targets -> its cells.
        kind: see `parse_number`.
        missing: cells that hold no target; names of classes come first.
        num_classes: of a classification.
        classes: name -> number of the class; empty if the cells hold the numbers.

    Returns:
        float64 `[rows, T]`, NaN where a cell is missing or faulty; and row, fault and text of each faulty cell, column
        by column.

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
            if text in classes:
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
    """Return the number in a cell, and what is wrong with the cell ("" for nothing).

    Args:
        text: the cell.
        kind: regression takes finite numbers; classification `0 .. num_classes - 1`; multilabel 0, 1, true and false.
        num_classes: of a classification.

    Examples:
        >>> parse_number("1e3", "regression"), parse_number("2", "multilabel")
        ((1000.0, ''), (2.0, 'is not 0 or 1'))
    """
    if kind == "multilabel" and text.lower() in _BOOLEANS:
        return _BOOLEANS[text.lower()], ""
    try:
        value = float(text.replace("_", "?"))  # Python alone reads 1_000 as a number
    except ValueError:
        return math.nan, "is not a number"
    if not abs(value) <= _LARGEST:
        return value, "is not a finite number in single precision"
    if kind == "multilabel" and value not in (0.0, 1.0):
        return value, "is not 0 or 1"
    if kind == "classification" and not (value.is_integer() and 0 <= value < num_classes):
        return value, f"is not a class number from 0 to {num_classes - 1}"
    return value, ""
