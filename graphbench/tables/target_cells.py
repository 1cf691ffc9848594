"""Cells of target columns: text to numbers, or why a cell holds none."""

from __future__ import annotations

import math
from collections.abc import Mapping

import numpy as np

_BOOLEANS = {"true": 1.0, "false": 0.0}
_LARGEST = float(np.finfo(np.float32).max)


def parse_class(text: str, numbers: Mapping[str, int]) -> tuple[float, str]:
    """Return the number of the class that a cell names, and what is wrong with the cell ("" for nothing).

    Examples:
        >>> parse_class("active", {"inactive": 0, "active": 1})
        (1, '')
    """
    if text in numbers:
        return numbers[text], ""
    return math.nan, f"is none of the classes {', '.join(map(repr, numbers))}"


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
