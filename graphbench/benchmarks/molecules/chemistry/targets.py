"""Target columns: text to numbers, with every cell that is none named."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Literal

import numpy as np

from graphbench.benchmarks.molecules.chemistry.files import MoleculeRows, shorten
from graphbench.benchmarks.molecules.chemistry.problems import RowProblem

TargetTask = Literal["regression", "classification", "multilabel"]

_MISSING = frozenset({"", "nan", "na", "n/a", "none", "null", "<na>"})
_BOOLEANS = {"true": 1.0, "false": 0.0}
_LARGEST = float(np.finfo(np.float32).max)


def parse_targets(
    rows: MoleculeRows, names: Sequence[str], task: TargetTask, num_classes: int = 2
) -> tuple[np.ndarray, list[RowProblem]]:
    """Targets of every row, and what is wrong with them.

    Empty cells (and "nan", "NA", "none", ...) are missing labels: allowed as long as the row has another label, for
    regression and multi-label tasks.

    Args:
        rows: the file.
        names: its target columns.
        task: decides which numbers are valid: finite ones; classes `0 .. num_classes - 1`; 0, 1, true and false.
        num_classes: classes of a classification.

    Returns:
        float64 `[rows, T]`, or int64 `[rows, 1]` for classification; NaN (or -1) where missing or wrong. Problems in
        the order of columns.
    """
    values = np.full((len(rows.lines), len(names)), np.nan)
    problems: list[RowProblem] = []
    for place, name in enumerate(names):
        for row, text in enumerate(rows.columns[name]):
            if text.lower() in _MISSING:
                continue
            value, fault = _number(text, task, num_classes)
            if fault:
                problems.append(RowProblem(f"target {name!r} {fault}", rows.lines[row], shorten(text)))
            else:
                values[row, place] = value
    faulty = {problem.line for problem in problems}
    kind = f"target {names[0]!r} is missing" if len(names) == 1 else "all targets are missing"
    empty = [rows.lines[row] for row in np.flatnonzero(np.isnan(values).all(axis=1))]
    problems += [RowProblem(kind, line) for line in empty if line not in faulty]
    if task == "classification":
        return np.nan_to_num(values, nan=-1.0).astype(np.int64), problems
    return values, problems


def _number(text: str, task: TargetTask, num_classes: int) -> tuple[float, str]:
    """The number in a cell, and what is wrong with it ("" when nothing is)."""
    if task == "multilabel" and text.lower() in _BOOLEANS:
        return _BOOLEANS[text.lower()], ""
    try:
        value = float(text.replace("_", "?"))  # Python alone reads 1_000 as a number
    except ValueError:
        return math.nan, "is not a number"
    if not abs(value) <= _LARGEST:
        return value, "is not a finite number in single precision"
    if task == "multilabel" and value not in (0.0, 1.0):
        return value, "is not 0 or 1"
    if task == "classification" and not (value.is_integer() and 0 <= value < num_classes):
        return value, f"is not a class number from 0 to {num_classes - 1}"
    return value, ""
