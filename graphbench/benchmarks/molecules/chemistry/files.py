"""Molecule files of the user as columns of text, every row with its line: CSV, TSV, SMILES, SDF, Parquet."""

from __future__ import annotations

import csv
import difflib
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import IO

from rdkit import Chem, rdBase

from graphbench.benchmarks.molecules.chemistry.problems import UNREADABLE, RowProblem, quote
from graphbench.errors import BadInput

#: Column that holds the molecule's own name in SMILES and SDF files (RDKit's word for it).
NAME = "_Name"


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
    """

    source: str
    header: list[str]
    columns: dict[str, list[str]]
    lines: list[int] = field(default_factory=list)
    problems: list[RowProblem] = field(default_factory=list)
    unit: str = "line"

    @property
    def num_rows(self) -> int:
        """Rows of the file, usable or not."""
        return len(self.lines) + len(self.problems)


def read_rows(path: Path, smiles_column: str, others: Sequence[str]) -> MoleculeRows:
    """Read the SMILES column and some others.

    Args:
        path: `.csv` and `.tsv` have a header line; `.smi`, `.smiles` and `.txt` have a SMILES and then, if anything,
            the molecule's name (column `_Name`) on each line, unless the first line begins with the word
            `smiles_column` and names all columns; `.sdf` has properties; `.parquet` has columns.
        smiles_column: where the SMILES stand; for SDF files they are written by RDKit.
        others: further columns.

    Raises:
        BadInput: there is no such file, its format is unknown or broken, or a column is missing or there twice.
    """
    readers: dict[str, Callable[[Path, str, Sequence[str]], MoleculeRows]] = {
        ".csv": _read_csv,
        ".tsv": _read_csv,
        ".smi": _read_smiles,
        ".smiles": _read_smiles,
        ".txt": _read_smiles,
        ".sdf": _read_sdf,
        ".parquet": _read_parquet,
    }
    if path.suffix.lower() not in readers:
        raise BadInput(f"{path}: molecules are read from {', '.join(readers)} files, not from {path.suffix!r}.")
    if not path.is_file():
        raise BadInput(f"{path}: there is no such file.")
    try:
        rows = readers[path.suffix.lower()](path, smiles_column, others)
    except UnicodeDecodeError as error:
        raise BadInput(f"{path}: not UTF-8 text (byte {error.start:,}: {error.reason}). Save it as UTF-8.") from error
    if rows.num_rows == 0:
        raise BadInput(f"{path}: the file holds no molecules.")
    return rows


def open_text(path: Path) -> IO[str]:
    """A text file in UTF-8."""
    return path.open(encoding="utf-8-sig", newline="")  # spreadsheets put a byte order mark first


def near(missing: Sequence[str], known: Sequence[str]) -> str:
    """What missing columns may have been meant to be, as a sentence; nothing where none is like them."""
    folded = {name.casefold(): name for name in known}
    found = [folded[m] for name in missing for m in difflib.get_close_matches(name.casefold(), folded, n=1)]
    return f" Did you mean {' or '.join(map(repr, dict.fromkeys(found)))}?" if found else ""


def _places(path: Path, header: Sequence[str], wanted: Sequence[str]) -> dict[str, int]:
    """Place of each wanted column."""
    missing = [name for name in wanted if name not in header]
    if missing:
        known = ", ".join(map(repr, header)) or "none"
        raise BadInput(
            f"{path}: no column {' or '.join(map(repr, missing))}. Its columns: {known}.{near(missing, header)}"
        )
    twice = sorted({name for name in wanted if header.count(name) > 1})
    if twice:
        at = "; ".join(
            f"{name!r} as columns {', '.join(str(i) for i, found in enumerate(header, 1) if found == name)}"
            for name in twice
        )
        raise BadInput(f"{path}: line 1 has duplicate columns: {at}. Rename or remove all but one.")
    return {name: header.index(name) for name in wanted}


def _fill(
    path: Path, header: Sequence[str], wanted: Sequence[str], body: Iterator[tuple[int, list[str]]]
) -> MoleculeRows:
    """Pick the wanted cells out of (line, cells) rows; rows of another width than the header are problems."""
    places = _places(path, header, wanted)
    rows = MoleculeRows(path.name, list(header), {name: [] for name in places})
    for line, cells in body:
        if len(cells) != len(header):
            detail = f"{len(cells)} instead of {len(header)}"
            rows.problems.append(RowProblem("the row has another number of cells than the header", line, detail))
            continue
        rows.lines.append(line)
        for name, place in places.items():
            rows.columns[name].append(cells[place].strip())
    return rows


def csv_rows(path: Path, reader: Iterator[list[str]]) -> Iterator[tuple[int, list[str]]]:
    """(first line, cells) of every row that is not blank; a quoted cell may span lines."""
    line = 0
    try:
        for cells in reader:
            first, line = line + 1, reader.line_num  # type: ignore[attr-defined]
            if cells:
                yield first, cells
    except csv.Error as error:
        raise BadInput(f"{path}: line {line + 1:,} is not valid CSV ({error}).") from error


def _read_csv(path: Path, smiles_column: str, others: Sequence[str]) -> MoleculeRows:
    with open_text(path) as file:
        delimiter = "\t" if path.suffix.lower() == ".tsv" else ","
        body = csv_rows(path, csv.reader(file, delimiter=delimiter))
        _, header = next(body, (1, []))
        return _fill(path, [name.strip() for name in header], [smiles_column, *others], body)


def _read_smiles(path: Path, smiles_column: str, others: Sequence[str]) -> MoleculeRows:
    with open_text(path) as file:
        lines = [(number, text.split()) for number, text in enumerate(file, 1)]
    lines = [(number, cells) for number, cells in lines if cells]
    if lines and lines[0][1][0] == smiles_column:
        return _fill(path, lines[0][1], [smiles_column, *others], iter(lines[1:]))
    named = ((number, [cells[0], " ".join(cells[1:])]) for number, cells in lines)
    return _fill(path, [smiles_column, NAME], [smiles_column, *others], named)


def _read_sdf(path: Path, smiles_column: str, others: Sequence[str]) -> MoleculeRows:
    """Every record as its SMILES and properties. RDKit keeps coordinates' stereo marks and drops plain hydrogens."""
    rows = MoleculeRows(path.name, [], {name: [] for name in (smiles_column, *others)})
    seen: set[str] = set()
    with rdBase.BlockLogs():
        records = _open_sdf(path)
        line = 1
        for number in range(len(records)):
            mol = records[number]
            if mol is None:
                rows.problems.append(RowProblem(UNREADABLE, line, f"record {number + 1:,}"))
            else:
                seen.update(mol.GetPropNames(includePrivate=True))
                rows.lines.append(line)
                rows.columns[smiles_column].append(Chem.MolToSmiles(mol))
                for name in others:
                    rows.columns[name].append(mol.GetProp(name).strip() if mol.HasProp(name) else "")
            line += records.GetItemText(number).count("\n")
    if rows.lines:
        rows.header = sorted(seen)
        _places(path, rows.header, others)
    return rows


def _open_sdf(path: Path) -> Chem.SDMolSupplier:
    try:
        return Chem.SDMolSupplier(str(path))
    except OSError as error:
        raise BadInput(f"{path}: RDKit cannot read it as an SDF file ({error}).") from error


def _read_parquet(path: Path, smiles_column: str, others: Sequence[str]) -> MoleculeRows:
    import pandas as pd  # slow to import and seldom needed
    import pyarrow as pa

    wanted = [smiles_column, *others]
    try:
        frame = pd.read_parquet(path)
    except (pa.ArrowInvalid, OSError) as error:
        raise BadInput(f"{path}: not a Parquet file that pyarrow can read ({error}).") from error
    header = [str(name) for name in frame.columns]
    _places(path, header, wanted)
    empty = frame[wanted].isna()
    columns = {
        name: ["" if missing else str(value).strip() for value, missing in zip(frame[name], empty[name], strict=True)]
        for name in wanted
    }
    return MoleculeRows(path.name, header, columns, list(range(1, len(frame) + 1)), unit="row")


def shorten(value: str) -> str:
    """A cell for a message: quoted, or "empty"."""
    return quote(value) if value else "empty"
