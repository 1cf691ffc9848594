"""Read a user's file of molecules: stream it in parts, or load columns and parse them into targets and weights."""

from __future__ import annotations

import json
import logging
import math
import sys
from array import array
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal

import numpy as np
import pandas as pd
from rdkit import Chem, rdBase

from graphbench.benchmarks.molecules.chemistry.problems import UNREADABLE, RowProblem, quote
from graphbench.benchmarks.molecules.chemistry.smiles import as_smiles
from graphbench.data.progress import progress
from graphbench.errors import BadInput
from graphbench.tables.cells import Missing, as_number, parse_cells, parse_number
from graphbench.tables.formats import BLANK
from graphbench.tables.layout import has_decimal_commas, point_for_comma
from graphbench.tables.reader import MOLECULES, Table, as_texts, lines_table, open_table
from graphbench.tables.records import RECORD_END
from graphbench.tables.texts import Texts

logger = logging.getLogger(__name__)
STANDARD_INPUT = "-"
_PART = 1_024  # rows read at once in training
TargetTask = Literal["regression", "classification", "multilabel"]
_USUAL_MISSING = Missing.of(None)
_MAX_NAMED = 20  # maximum number of distinct texts that can be class names
_EPOCH = pd.Timestamp(0, tz="UTC").as_unit("s")  # nanoseconds would end in 2262, before 9999-12-31


@dataclass
class MoleculeFrame:
    """Consecutive rows of a file with all columns, as text except for Parquet files.

    `smiles` has "" for empty cells, `problems` has kind and detail of rows that could not be split into cells, and
    `numbers` has the line or number of each row.
    """

    frame: pd.DataFrame
    smiles: list[str]
    problems: dict[int, tuple[str, str]] = field(default_factory=dict)
    numbers: list[int] = field(default_factory=list)


@dataclass
class MoleculeRows:
    """Columns of a file, as text with "" for an empty cell.

    Args:
        source: name of the file, for messages.
        header: all columns of the file.
        columns: name -> one string per row.
        lines: line of the file on which each row begins, from 1 (for Parquet, row number).
        problems: rows that could not be split into cells; they are not in `columns`.
        unit: what `lines` counts.
        separator: character between cells, if any.
        notes: differences from a plain file of its kind, in words.
    """

    source: str
    header: list[str]
    columns: dict[str, Sequence[str]]
    lines: Sequence[int] = ()
    problems: list[RowProblem] = field(default_factory=list)
    unit: str = "line"
    separator: str = ""
    notes: list[str] = field(default_factory=list)

    @property
    def num_rows(self) -> int:
        """Return the number of rows in the file, usable or not."""
        return len(self.lines) + len(self.problems)


def read_rows(path: Path, smiles_column: str, others: Sequence[str]) -> MoleculeRows:
    """Read the SMILES column (written by RDKit for SDF files) and some others of a whole file.

    Raises:
        BadInput: there is no such file, its format is unknown or broken, it is empty, or a column is missing or
            repeated.
        MissingExtra: it is an `.xlsx` file, and openpyxl is not installed.
    """
    table = open_table(path, smiles_column, others, MOLECULES, "molecules")
    read, lines = {name: Texts() for name in (smiles_column, *others)}, array("q")
    rows = MoleculeRows(path.name, table.header, dict(read), lines, unit=table.unit, separator=table.separator,
                        notes=table.notes)  # fmt: skip
    with progress(f"Reading {path.name}", unit="rows") as advance:  # of an SDF file RDKit reads every record
        for part in _parts(table, smiles_column, _PART):
            columns = {name: as_texts(part.frame[table.column(name)]) for name in others}
            columns[smiles_column] = part.smiles
            for row, (kind, detail) in part.problems.items():
                if kind != BLANK:
                    rows.problems.append(RowProblem(kind, part.numbers[row], detail))
            intact = [row for row in range(len(part.frame)) if row not in part.problems]
            lines.extend(part.numbers[row] for row in intact)
            for name, texts in columns.items():
                read[name].extend(texts[row] for row in intact)
            advance(len(part.frame))
    return rows


def stream_molecules(
    source: str | Path, smiles_column: str, size: int, wanted: Callable[[int], bool] | None = None
) -> Iterator[MoleculeFrame]:
    """Read a file, or SMILES from standard input ("-"), in parts of `size` rows; raise the errors of `read_rows`.

    `wanted` receives the number of a part's first row and returns whether its molecules are needed, see
    `Table.parts`; others are only counted.
    """
    if str(source) == STANDARD_INPUT:
        table = lines_table("standard input", sys.stdin, smiles_column)
    else:
        table = open_table(Path(source), smiles_column, (), MOLECULES, "molecules")
    if table.notes:
        logger.info("%s: %s", source, ", ".join(table.notes))
    yield from _parts(table, smiles_column, size, wanted)


def _parts(
    table: Table, smiles_column: str, size: int, wanted: Callable[[int], bool] | None = None
) -> Iterator[MoleculeFrame]:
    name, count = table.column(smiles_column), 0
    for part in table.parts(size, wanted):
        if wanted is not None and not wanted(count):
            smiles, part.problems = [], {}
        elif table.records:  # from here on, a record is its SMILES, also in the row repeated in predictions
            parsed = [_record_smiles(record) for record in part.frame[name]]
            broken = [row for row, text in enumerate(parsed) if text is None]
            part.problems |= {row: (UNREADABLE, f"record {count + row + 1:,}") for row in broken}
            smiles = [text or "" for text in parsed]
            part.frame[name] = pd.Series(smiles, dtype=object)
        else:
            smiles = as_texts(part.frame[name])
        count += len(part.frame)
        yield MoleculeFrame(part.frame, smiles, part.problems, part.numbers)
    if not count:
        raise BadInput(f"{table.source}: it holds no molecules.")


def _record_smiles(record: str) -> str | None:
    """Convert a record of an SDF file to SMILES; None if RDKit cannot read it.

    RDKit derives stereo marks from coordinates and drops plain hydrogens; marks of racemates stay, as in `as_smiles`.
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
    """Return a cell for a message: quoted and cut, or "empty"."""
    return quote(value) if value else "empty"


def parse_targets(
    rows: MoleculeRows,
    names: Sequence[str],
    task: TargetTask,
    num_classes: int = 2,
    classes: Sequence[str] = (),
    missing: Missing = _USUAL_MISSING,
) -> tuple[np.ndarray, list[RowProblem]]:
    """Parse the targets of every row; some, but not all, targets of a row may be missing.

    Arguments are those of `graphbench.tables.cells.parse_cells`, `classes` in the order of their numbers.

    Returns:
        float64 `[rows, T]`, or int64 `[rows, 1]` for classification; NaN (or -1) where missing or faulty. Problems in
        the order of columns.
    """
    numbers = {name: number for number, name in enumerate(classes)}
    values, faults = parse_cells({name: rows.columns[name] for name in names}, task, missing, num_classes, numbers)
    problems = [RowProblem(fault, rows.lines[row], shorten(text)) for row, fault, text in faults]
    faulty = {row for row, _, _ in faults}
    kind = f"target {names[0]!r} is missing" if len(names) == 1 else "all targets are missing"
    empty = np.flatnonzero(np.isnan(values).all(axis=1)).tolist()
    problems += [RowProblem(kind, rows.lines[row]) for row in empty if row not in faulty]
    if task == "classification":
        return np.nan_to_num(values, nan=-1.0).astype(np.int64), problems
    return values, problems


def parse_weights(
    rows: MoleculeRows, name: str, missing: Missing = _USUAL_MISSING
) -> tuple[np.ndarray, list[RowProblem]]:
    """Parse the weight of every row, finite and 0 or more: float64 `[rows]`, NaN if faulty, and the problems."""
    values, problems = np.full(len(rows.lines), np.nan), []
    for row, text in enumerate(rows.columns[name]):
        value, fault = (math.nan, "is missing") if text in missing else parse_number(text, "regression")
        fault = fault or ("is below 0" if value < 0 else "")
        if fault:
            problems.append(RowProblem(f"weight {name!r} {fault}", rows.lines[row], shorten(text)))
        else:
            values[row] = value
    return values, problems


def parse_times(
    rows: MoleculeRows, name: str, form: str | None = None, missing: Missing = _USUAL_MISSING
) -> tuple[np.ndarray, list[RowProblem]]:
    """Parse the time of every row: float64 `[rows]`, larger for later times, NaN if faulty; and the problems.

    Dates have a `form` like `%d/%m/%Y` of Python's `strptime`. Without it the column has numbers, such as years, or ISO
    8601 dates (`2021`, `2021-03`, `2021-03-04`, `2021-03-04 12:00`), in UTC if they have no zone. `03/04/2021` is not
    accepted, since it means one day in London and another in Boston.
    """
    texts = rows.columns[name]
    values = read_times(texts, form, missing)
    hint = (
        f"is not of the form {form}" if form else "is neither a number nor ISO 8601; give time_format for another form"
    )
    problems = []
    for row in np.flatnonzero(np.isnan(values)).tolist():
        fault = "is missing" if texts[row] in missing else hint
        problems.append(RowProblem(f"time {name!r} {fault}", rows.lines[row], shorten(texts[row])))
    return values, problems


def read_times(texts: Sequence[str], form: str | None = None, missing: Missing = _USUAL_MISSING) -> np.ndarray:
    """Read times like `parse_times`: float64 `[rows]`, NaN where missing or faulty."""
    lacking = np.array([text in missing for text in texts], dtype=bool)
    values = np.array([math.nan if empty else as_number(text) for text, empty in zip(texts, lacking, strict=True)])
    if form is not None or np.isnan(values[~lacking]).any():
        dates = pd.to_datetime(pd.Series(texts, dtype=object), format=form or "ISO8601", errors="coerce", utc=True)
        elapsed = (dates - _EPOCH).dt.total_seconds().to_numpy(np.float64)
        seconds = np.where(lacking, np.nan, elapsed)
        # Most cells decide: one cell that is neither must not make dates of numbers, such as May of 2021.5.
        if form is not None or np.isfinite(seconds).sum() > np.isfinite(values).sum():
            values = seconds
    return np.where(np.isfinite(values), values, np.nan)


def points_for_commas(rows: MoleculeRows, names: Sequence[str]) -> None:
    """Replace decimal commas in columns of numbers by points in place, and note it.

    A file has decimal commas if a cell of these columns has one and none has a point. If commas separate cells, a
    quoted "1,5" may also mean 1500, so it is not read as a number.
    """
    if rows.separator == "," or not has_decimal_commas(cell for name in names for cell in rows.columns[name]):
        return
    for name in names:
        rows.columns[name] = [point_for_comma(cell) for cell in rows.columns[name]]
    rows.notes.append("numbers have decimal commas")


def classes_hint(rows: MoleculeRows, target: str, numbers: bool = False) -> str:
    """Suggest options that read the texts of a column as classes; "" if they are too many.

    With `numbers`, numbers of a classification that are not 0 to C - 1 may also be classes.
    """
    texts = sorted({text for text in rows.columns[target] if text not in _USUAL_MISSING})
    has_number = any(not parse_number(text, "regression")[1] for text in texts)
    if not 2 <= len(texts) <= _MAX_NAMED or (has_number and not numbers):
        return ""
    named = json.dumps(texts, ensure_ascii=False)
    return f" Classes by name: --data.task classification --data.classes '{named}', in the order that you want."


def missing_hint(rows: MoleculeRows, targets: Sequence[str], missing: Missing) -> str:
    """Suggest an option to read words among numbers as missing targets; "" if there are none, or too many."""
    texts = {text for name in targets for text in rows.columns[name] if text not in missing}
    words = sorted(text for text in texts if math.isnan(as_number(text)) and not any(map(str.isdigit, text)))
    if not 0 < len(words) <= _MAX_NAMED or len(words) == len(texts):
        return ""
    return f" Words for a missing target: --data.missing '{json.dumps(words, ensure_ascii=False)}'."
