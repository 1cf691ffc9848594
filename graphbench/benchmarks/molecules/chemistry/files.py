"""Molecule files of the user as columns of text, every row with its line: CSV, TSV, SMILES, SDF, Parquet, Excel."""

from __future__ import annotations

import csv
import re
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import IO

from rdkit import Chem, rdBase

from graphbench.benchmarks.molecules.chemistry.problems import UNREADABLE, RowProblem, quote
from graphbench.data.delimited import find_column, near, separator_of, told_layout
from graphbench.data.workbooks import WORKBOOK, check_workbook, workbook_rows
from graphbench.errors import BadInput

#: Column that holds the molecule's own name in SMILES and SDF files (RDKit's word for it).
NAME = "_Name"
#: Line of an SDF file that names a property.
PROPERTY = re.compile(r"^>.*?<(.+?)>")
#: Suffixes of text files with separators, and the usual separator of each.
USUAL = {".csv": ",", ".tsv": "\t"}
#: Suffixes of all files of molecules.
FORMATS = (*USUAL, ".smi", ".smiles", ".txt", ".sdf", ".parquet", WORKBOOK)


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


def read_rows(path: Path, smiles_column: str, others: Sequence[str]) -> MoleculeRows:
    """Read the SMILES column and some others; a name that the file has in another case only will do.

    Args:
        path: `.csv` and `.tsv` have a header line, and commas, semicolons or tabs between cells; `.smi`, `.smiles` and
            `.txt` have a SMILES and then, if anything, the molecule's name (column `_Name`) on each line, unless the
            first line begins with the word `smiles_column` and names all columns; `.sdf` has properties; `.parquet`
            has columns; `.xlsx` has them on its first sheet.
        smiles_column: where the SMILES stand; for SDF files they are written by RDKit.
        others: further columns.

    Raises:
        BadInput: there is no such file, its format is unknown or broken, or a column is missing or there twice.
        MissingExtra: it is an `.xlsx` file, and openpyxl is not installed.
    """
    check_format(path)
    readers: dict[str, Callable[[Path, str, Sequence[str]], MoleculeRows]] = {
        ".csv": _read_csv,
        ".tsv": _read_csv,
        ".smi": _read_smiles,
        ".smiles": _read_smiles,
        ".txt": _read_smiles,
        ".sdf": _read_sdf,
        ".parquet": _read_parquet,
        WORKBOOK: _read_workbook,
    }
    if not path.is_file():
        raise BadInput(f"{path}: there is no such file.")
    try:
        rows = readers[path.suffix.lower()](path, smiles_column, others)
    except UnicodeDecodeError as error:
        raise BadInput(f"{path}: not UTF-8 text (byte {error.start:,}: {error.reason}). Save it as UTF-8.") from error
    if rows.num_rows == 0:
        raise BadInput(f"{path}: the file holds no molecules.")
    return rows


def check_format(path: Path) -> None:
    """Refuse a file that is not of `FORMATS`; whether it is there is not asked.

    Raises:
        BadInput: its suffix is another.
        MissingExtra: it needs a package that is not installed.
    """
    if path.suffix.lower() not in FORMATS:
        raise BadInput(f"{path}: molecules are read from {', '.join(FORMATS)} files, not from {path.suffix!r}.")
    check_workbook(path)


def open_text(path: Path) -> IO[str]:
    """A text file in UTF-8."""
    return path.open(encoding="utf-8-sig", newline="")  # spreadsheets put a byte order mark first


def _places(path: Path, header: Sequence[str], wanted: Sequence[str]) -> dict[str, int]:
    """Place of each wanted column."""
    found = {name: find_column(path, header, name) for name in wanted}
    missing = [name for name, place in found.items() if place is None]
    if missing:
        known = ", ".join(map(repr, header)) or "none"
        raise BadInput(
            f"{path}: no column {' or '.join(map(repr, missing))}. Its columns: {known}.{near(missing, header)}"
        )
    return {name: place for name, place in found.items() if place is not None}


def _fill(
    path: Path,
    header: Sequence[str],
    wanted: Sequence[str],
    body: Iterator[tuple[int, list[str]]],
    separator: str = "",
    usual: str = "",
) -> MoleculeRows:
    """Pick the wanted cells out of (line, cells) rows; rows of another width than the header are problems."""
    places = _places(path, header, wanted)
    rows = MoleculeRows(path.name, list(header), {name: [] for name in places}, separator=separator)
    rows.notes = told_layout(separator, usual, {name: header[place] for name, place in places.items()})
    for line, cells in body:
        if len(cells) != len(header):
            detail = f"{len(cells)} instead of {len(header)}"
            rows.problems.append(RowProblem("the row has another number of cells than the header", line, detail))
            continue
        rows.lines.append(line)
        for name, place in places.items():
            rows.columns[name].append(cells[place].strip())
    return rows


def separator_in(path: Path, file: IO[str], wanted: Sequence[str]) -> str:
    """What separates the cells of a text file, by its first line that is not blank; rewinds the file."""
    first = next((line for line in file if line.strip()), "")
    file.seek(0)
    return separator_of(first, USUAL[path.suffix.lower()], wanted)


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
    wanted = [smiles_column, *others]
    with open_text(path) as file:
        separator = separator_in(path, file, wanted)
        body = csv_rows(path, csv.reader(file, delimiter=separator))
        _, header = next(body, (1, []))
        return _fill(path, [name.strip() for name in header], wanted, body, separator, USUAL[path.suffix.lower()])


def _read_smiles(path: Path, smiles_column: str, others: Sequence[str]) -> MoleculeRows:
    with open_text(path) as file:
        lines = [(number, text.split()) for number, text in enumerate(file, 1)]
    lines = [(number, cells) for number, cells in lines if cells]
    if lines and lines[0][1][0].casefold() == smiles_column.casefold():
        return _fill(path, lines[0][1], [smiles_column, *others], iter(lines[1:]))
    named = ((number, [cells[0], " ".join(cells[1:])]) for number, cells in lines)
    return _fill(path, [smiles_column, NAME], [smiles_column, *others], named)


def _read_sdf(path: Path, smiles_column: str, others: Sequence[str]) -> MoleculeRows:
    """Every record as its SMILES and properties. RDKit keeps coordinates' stereo marks and drops plain hydrogens."""
    with rdBase.BlockLogs():
        records = _open_sdf(path)
        header = property_names(path)
        places = _places(path, header, others) if len(records) else {}
        meant = {name: header[place] for name, place in places.items()}
        rows = MoleculeRows(path.name, header, {name: [] for name in (smiles_column, *others)})
        rows.notes = told_layout("", "", meant)
        line = 1
        for number in range(len(records)):
            mol = records[number]
            if mol is None:
                rows.problems.append(RowProblem(UNREADABLE, line, f"record {number + 1:,}"))
            else:
                rows.lines.append(line)
                rows.columns[smiles_column].append(Chem.MolToSmiles(mol))
                for name, found in meant.items():
                    rows.columns[name].append(mol.GetProp(found).strip() if mol.HasProp(found) else "")
            line += records.GetItemText(number).count("\n")
    return rows


def property_names(path: Path) -> list[str]:
    """Names of all properties in an SDF file, in their order, after that of the molecule's own name."""
    with path.open(encoding="utf-8", errors="replace") as file:  # as RDKit, which takes any bytes
        return list(dict.fromkeys([NAME, *(match[1] for line in file if (match := PROPERTY.match(line)))]))


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
    places = _places(path, header, wanted)
    columns = {}
    for name, place in places.items():
        column = frame.iloc[:, place]
        texts = zip(column, column.isna(), strict=True)
        columns[name] = ["" if missing else str(value).strip() for value, missing in texts]
    rows = MoleculeRows(path.name, header, columns, list(range(1, len(frame) + 1)), unit="row")
    rows.notes = told_layout("", "", {name: header[place] for name, place in places.items()})
    return rows


def _read_workbook(path: Path, smiles_column: str, others: Sequence[str]) -> MoleculeRows:
    notes: list[str] = []
    body = workbook_rows(path, notes)
    _, header = next(body, (1, []))
    rows = _fill(path, header, [smiles_column, *others], body)
    rows.unit, rows.notes = "row", notes + rows.notes
    return rows


def shorten(value: str) -> str:
    """A cell for a message: quoted, or "empty"."""
    return quote(value) if value else "empty"
