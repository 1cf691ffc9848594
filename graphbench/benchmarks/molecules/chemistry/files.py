"""A user's file of molecules: streamed in parts, or loaded as columns and parsed into targets and weights."""

from __future__ import annotations

import json
import logging
import math
import sys
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal

import numpy as np
import pandas as pd
from rdkit import Chem, rdBase

from graphbench.benchmarks.molecules.chemistry.problems import UNREADABLE, RowProblem, quote
from graphbench.benchmarks.molecules.chemistry.smiles import as_smiles
from graphbench.errors import BadInput
from graphbench.tables.cells import Missing, as_number, parse_class, parse_number
from graphbench.tables.formats import BLANK
from graphbench.tables.layout import has_decimal_commas, point_for_comma
from graphbench.tables.reader import MOLECULES, Table, as_texts, check_table, lines_table, open_table
from graphbench.tables.records import RECORD_END

logger = logging.getLogger(__name__)
#: The word for standard input.
STANDARD_INPUT = "-"
_PART = 1_024  # rows that a training reads at once
TargetTask = Literal["regression", "classification", "multilabel"]
USUAL_MISSING = Missing.of(None)
#: Different texts of a column that can be names of classes.
_MOST_NAMED = 20


@dataclass
class MoleculeFrame:
    """Consecutive rows of a file.

    Args:
        frame: every column as the file has it; text, but for Parquet files.
        smiles: one a row; "" where the row has none.
        problems: row -> why it was not even taken apart, and a detail.
        numbers: line or number of each row.
    """

    frame: pd.DataFrame
    smiles: list[str]
    problems: dict[int, tuple[str, str]] = field(default_factory=dict)
    numbers: list[int] = field(default_factory=list)


@dataclass
class MoleculeRows:
    """The columns of a file that were asked for, as text.

    Args:
        source: name of the file, for messages.
        header: all columns of the file, wanted or not.
        columns: name -> one string per row; "" where the file has nothing.
        lines: line of the file on which each row begins, from 1 (for Parquet: number of the row).
        problems: rows that could not even be taken apart; they are not among `columns`.
        unit: what `lines` counts.
        separator: what separates cells, where a character does.
        notes: what is unlike a plain file of its kind, in words.
    """

    source: str
    header: list[str]
    columns: dict[str, list[str]]
    lines: list[int] = field(default_factory=list)
    problems: list[RowProblem] = field(default_factory=list)
    unit: str = "line"
    separator: str = ""
    notes: list[str] = field(default_factory=list)

    @property
    def num_rows(self) -> int:
        """Rows of the file, usable or not."""
        return len(self.lines) + len(self.problems)


def check_format(path: Path) -> None:
    """Refuse a file that is not of `MOLECULES`; whether it is there is not asked.

    Raises:
        BadInput: its suffix is another.
        MissingExtra: it needs a package that is not installed.
    """
    check_table(path, MOLECULES, "molecules")


def read_rows(path: Path, smiles_column: str, others: Sequence[str]) -> MoleculeRows:
    """Read the SMILES column and some others of a whole file.

    Args:
        path: see `graphbench.tables.reader.open_table` for the formats.
        smiles_column: where the SMILES stand; for SDF files they are written by RDKit.
        others: further columns.

    Raises:
        BadInput: there is no such file, its format is unknown or broken, it is empty, or a column is missing or there
            twice.
        MissingExtra: it is an `.xlsx` file, and openpyxl is not installed.
    """
    table = open_table(path, smiles_column, others, MOLECULES, "molecules")
    rows = MoleculeRows(path.name, table.header, {name: [] for name in (smiles_column, *others)}, unit=table.unit,
                        separator=table.separator, notes=table.notes)  # fmt: skip
    for part in _parts(table, smiles_column, _PART):
        columns = {name: as_texts(part.frame[table.column(name)]) for name in others}
        columns[smiles_column] = part.smiles
        if part.problems:
            torn = {row: problem for row, problem in part.problems.items() if problem[0] != BLANK}  # nothing is lost
            rows.problems += [RowProblem(kind, part.numbers[row], said) for row, (kind, said) in torn.items()]
            kept = [row for row in range(len(part.frame)) if row not in part.problems]
            columns = {name: [texts[row] for row in kept] for name, texts in columns.items()}
            part.numbers = [part.numbers[row] for row in kept]
        rows.lines += part.numbers
        for name, texts in columns.items():
            rows.columns[name] += texts
    return rows


def stream_molecules(source: str | Path, smiles_column: str, size: int) -> Iterator[MoleculeFrame]:
    """Read a file part by part, with all its columns.

    Args:
        source: path of the file, or "-" for a list of SMILES on standard input.
        smiles_column: where the SMILES stand; those of SDF files are written by RDKit into a column of that name.
        size: rows per part.

    Raises:
        BadInput: as `read_rows`.
    """
    if str(source) == STANDARD_INPUT:
        table = lines_table("standard input", sys.stdin, smiles_column)
    else:
        table = open_table(Path(source), smiles_column, (), MOLECULES, "molecules")
    if table.notes:
        logger.info("%s: %s", source, ", ".join(table.notes))
    yield from _parts(table, smiles_column, size)


def _parts(table: Table, smiles_column: str, size: int) -> Iterator[MoleculeFrame]:
    """Parts of a table with their SMILES.

    Raises:
        BadInput: there is none.
    """
    name, count = table.column(smiles_column), 0
    for part in table.parts(size):
        if table.records:
            found = [_record_smiles(record) for record in part.frame[name]]
            broken = [row for row, text in enumerate(found) if text is None]
            part.problems |= {row: (UNREADABLE, f"record {count + row + 1:,}") for row in broken}
            smiles = [text or "" for text in found]
            part.frame[name] = pd.Series(smiles, dtype=object)
        else:
            smiles = as_texts(part.frame[name])
        count += len(part.frame)
        yield MoleculeFrame(part.frame, smiles, part.problems, part.numbers)
    if not count:
        raise BadInput(f"{table.source}: it holds no molecules.")


def _record_smiles(record: str) -> str | None:
    """A record of an SDF file as a SMILES; None where RDKit cannot read it.

    RDKit keeps coordinates' stereo marks and drops plain hydrogens; marks of racemates stay, as with `as_smiles`.
    """
    with rdBase.BlockLogs():
        supplier = Chem.SDMolSupplier()
        supplier.SetData("\n".join([record, RECORD_END, ""]))
        try:
            mol = supplier[0] if len(supplier) else None
        except (OSError, RuntimeError, ValueError):
            mol = None
        return None if mol is None else as_smiles(mol)


def shorten(value: str) -> str:
    """A cell for a message: quoted, or "empty"."""
    return quote(value) if value else "empty"


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
