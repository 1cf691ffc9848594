"""Molecules of the user: a file as parts for a prediction, and as columns for a training, by one reader."""

from __future__ import annotations

import logging
import sys
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import pandas as pd
from rdkit import Chem, rdBase

from graphbench.benchmarks.molecules.chemistry.problems import UNREADABLE, RowProblem, quote
from graphbench.benchmarks.molecules.chemistry.stereo import as_smiles
from graphbench.errors import BadInput
from graphbench.tables.reader import BLANK, MOLECULES, Table, as_texts, check_table, lines_table, open_table
from graphbench.tables.records import RECORD_END

logger = logging.getLogger(__name__)

#: The word for standard input.
STANDARD_INPUT = "-"
_PART = 1_024  # rows that a training reads at once


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
