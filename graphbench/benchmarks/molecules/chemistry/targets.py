"""Target columns: text to numbers, with every cell that is none named."""

from __future__ import annotations

import json
import math
from collections.abc import Sequence
from typing import Literal

import numpy as np

from graphbench.benchmarks.molecules.chemistry.files import MoleculeRows, shorten
from graphbench.benchmarks.molecules.chemistry.problems import RowProblem
from graphbench.tables.cells import Missing, as_number, parse_class, parse_number
from graphbench.tables.layout import has_decimal_commas, point_for_comma

TargetTask = Literal["regression", "classification", "multilabel"]

USUAL_MISSING = Missing.of(None)
#: Different texts of a column that can be names of classes.
_MOST_NAMED = 20


def parse_targets(
    rows: MoleculeRows,
    names: Sequence[str],
    task: TargetTask,
    num_classes: int = 2,
    classes: Sequence[str] = (),
    missing: Missing = USUAL_MISSING,
) -> tuple[np.ndarray, list[RowProblem]]:
    """Targets of every row, and what is wrong with them.

    Empty cells and words for missing ones are allowed as long as the row has another target.

    Args:
        rows: the file.
        names: its target columns.
        task: decides which numbers are valid: finite ones; classes `0 .. num_classes - 1`; 0, 1, true and false.
        num_classes: classes of a classification.
        classes: what the file calls them, from class 0 on; empty where it has their numbers.
        missing: cells that hold no target; names of classes come first.

    Returns:
        float64 `[rows, T]`, or int64 `[rows, 1]` for classification; NaN (or -1) where missing or wrong. Problems in
        the order of columns.
    """
    values = np.full((len(rows.lines), len(names)), np.nan)
    problems: list[RowProblem] = []
    numbers = {name: number for number, name in enumerate(classes)}
    for place, name in enumerate(names):
        for row, text in enumerate(rows.columns[name]):
            if text not in numbers and text in missing:
                continue
            value, fault = parse_class(text, numbers) if numbers else parse_number(text, task, num_classes)
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


def parse_weights(
    rows: MoleculeRows, name: str, missing: Missing = USUAL_MISSING
) -> tuple[np.ndarray, list[RowProblem]]:
    """Weights of every row, and what is wrong with them: each row needs a finite number of 0 or more.

    Args:
        rows: the file.
        name: its column of weights.
        missing: cells that hold none.

    Returns:
        float64 `[rows]`; NaN where wrong. Problems in the order of rows.
    """
    values, problems = np.full(len(rows.lines), np.nan), []
    for row, text in enumerate(rows.columns[name]):
        value, fault = (math.nan, "is missing") if text in missing else parse_number(text, "regression", 0)
        if not fault and value < 0:
            fault = "is below 0"
        if fault:
            problems.append(RowProblem(f"weight {name!r} {fault}", rows.lines[row], shorten(text)))
        else:
            values[row] = value
    return values, problems


def points_for_commas(rows: MoleculeRows, names: Sequence[str]) -> None:
    """Write numbers with decimal points where the file has decimal commas, and note it.

    It has them where a cell of these columns has one and none has a point, unless commas separate its cells: there
    "1,5" in quotes may as well mean 1500 and so stays no number.

    Args:
        rows: the file; changed.
        names: its columns of numbers.
    """
    if rows.separator == "," or not has_decimal_commas(cell for name in names for cell in rows.columns[name]):
        return
    for name in names:
        rows.columns[name] = [point_for_comma(cell) for cell in rows.columns[name]]
    rows.notes.append("numbers have decimal commas")


def classes_hint(rows: MoleculeRows, target: str, numbers: bool = False) -> str:
    """How to have the texts or numbers of a column as classes; empty where they are too many to be classes.

    Numbers are offered where a classification was asked for, which has found other ones than 0 to C - 1.
    """
    found = sorted({text for text in rows.columns[target] if text not in USUAL_MISSING})
    some_number = any(not parse_number(text, "regression", 0)[1] for text in found)
    if not 2 <= len(found) <= _MOST_NAMED or (some_number and not numbers):
        return ""
    named = json.dumps(found, ensure_ascii=False)
    return f" Classes by name: --data.task classification --data.classes '{named}', in the order that you want."


def missing_hint(rows: MoleculeRows, targets: Sequence[str], missing: Missing) -> str:
    """How to have texts among numbers as missing targets; empty where there are none, or too many for that."""
    texts = {text for name in targets for text in rows.columns[name] if text not in missing}
    words = sorted(text for text in texts if math.isnan(as_number(text)) and not any(map(str.isdigit, text)))
    if not 0 < len(words) <= _MOST_NAMED or len(words) == len(texts):
        return ""
    return f" Words for a missing target: --data.missing '{json.dumps(words, ensure_ascii=False)}'."
