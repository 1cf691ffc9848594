"""Molecule files with all their columns, some rows at a time, so that a file may be larger than memory."""

from __future__ import annotations

import csv
import difflib
import logging
import sys
from collections.abc import Callable, Generator, Iterable, Iterator, Sequence
from contextlib import closing
from dataclasses import dataclass, field
from itertools import chain, islice
from pathlib import Path
from typing import IO

import pandas as pd
from rdkit import Chem, rdBase

from graphbench.benchmarks.molecules.chemistry.files import (
    NAME,
    PROPERTY,
    USUAL,
    csv_rows,
    open_text,
    property_names,
    separator_in,
)
from graphbench.benchmarks.molecules.chemistry.problems import UNREADABLE
from graphbench.data.delimited import find_column, near, told_layout
from graphbench.data.workbooks import WORKBOOK, workbook_rows
from graphbench.errors import BadInput

logger = logging.getLogger(__name__)

#: The word for standard input.
STANDARD_INPUT = "-"
_RECORD_END = "$$$$"


@dataclass
class MoleculeFrame:
    """Consecutive rows of a file.

    Args:
        frame: every column as the file has it; text, but for Parquet files.
        smiles: one a row; "" where the row has none.
        problems: row -> why it was not even taken apart.
    """

    frame: pd.DataFrame
    smiles: list[str]
    problems: dict[int, str] = field(default_factory=dict)


def stream_molecules(source: str | Path, smiles_column: str, size: int) -> Iterator[MoleculeFrame]:
    """Read a file part by part; formats as in `files.read_rows`.

    Args:
        source: path of the file, or "-" for a list of SMILES on standard input.
        smiles_column: where the SMILES stand; those of SDF files are written by RDKit into a column of that name.
        size: rows per part.

    Raises:
        BadInput: there is no such file, its format is unknown or broken, it is empty, or the column is missing.
    """
    path = Path(source)
    if str(source) == STANDARD_INPUT:
        parts = _smiles(smiles_column, "standard input", sys.stdin, size)
    else:
        if path.is_dir():
            raise BadInput(f"{path} is a folder; molecules are read from a file.")
        reader = _reader(path)
        if not path.is_file():
            beside = difflib.get_close_matches(path.name, [p.name for p in path.parent.glob("*")], n=1)
            hint = f" Did you mean {path.with_name(beside[0])}?" if beside else ""
            raise BadInput(f"{path}: there is no such file.{hint}")
        parts = reader(path, smiles_column, size)
    count = 0
    try:
        for part in parts:
            count += len(part.frame)
            yield part
    except UnicodeDecodeError as error:
        raise BadInput(f"{path}: not UTF-8 text (byte {error.start:,}: {error.reason}). Save it as UTF-8.") from error
    if not count:
        raise BadInput(f"{path if str(source) != STANDARD_INPUT else 'standard input'}: it holds no molecules.")


def _reader(path: Path) -> Callable[[Path, str, int], Iterator[MoleculeFrame]]:
    readers: dict[str, Callable[[Path, str, int], Iterator[MoleculeFrame]]] = {
        **dict.fromkeys(USUAL, _delimited),
        ".smi": _smiles_file,
        ".smiles": _smiles_file,
        ".txt": _smiles_file,
        ".sdf": _sdf,
        ".parquet": _parquet,
        WORKBOOK: _workbook,
    }
    if path.suffix.lower() not in readers:
        raise BadInput(
            f"{path}: molecules are read from {', '.join(readers)} files, or SMILES from standard input (-), not from "
            f"{f'a file that ends in {path.suffix!r}' if path.suffix else 'a name without suffix'}."
        )
    return readers[path.suffix.lower()]


def _place(source: str | Path, header: Sequence[str], smiles_column: str) -> int:
    """Where the one column of SMILES stands; no name may be there twice."""
    place = find_column(source, header, smiles_column)
    if place is None:
        known = ", ".join(map(repr, header[:20])) or "none"
        hint = near([smiles_column], header)
        raise BadInput(f"{source}: no column {smiles_column!r}. Its columns: {known}.{hint}")
    twice = sorted({name for name in header if header.count(name) > 1})
    if twice:
        raise BadInput(f"{source}: line 1 has duplicate columns: {', '.join(map(repr, twice))}. Rename all but one.")
    return place


def _tell(source: str | Path, notes: Sequence[str]) -> None:
    """One line about what is unlike a plain file."""
    if notes:
        logger.info("%s: %s", source, ", ".join(notes))


def _cut(header: Sequence[str], place: int, body: Iterator[Sequence[str]], size: int) -> Iterator[MoleculeFrame]:
    """Rows of cells as frames, with SMILES at a place; a row of another width than the header is cut or filled up.

    Such a row is a problem.
    """
    width = len(header)
    while block := list(islice(body, size)):
        problems = {
            row: f"the row has {len(cells)} cells, the header {width}"
            for row, cells in enumerate(block)
            if len(cells) != width
        }
        cells = [[*row, *[""] * (width - len(row))][:width] for row in block]
        yield MoleculeFrame(
            pd.DataFrame(cells, columns=list(header), dtype=object),
            [row[place].strip() for row in cells],
            problems,
        )


def _delimited(path: Path, smiles_column: str, size: int) -> Iterator[MoleculeFrame]:
    with open_text(path) as file:
        separator = separator_in(path, file, [smiles_column])
        body = csv_rows(path, csv.reader(file, delimiter=separator))
        first = next(body, None)
        if first is None:
            return
        header = [name.strip() for name in first[1]]
        place = _place(path, header, smiles_column)
        _tell(path, told_layout(separator, USUAL[path.suffix.lower()], {smiles_column: header[place]}))
        yield from _cut(header, place, (cells for _, cells in body), size)


def _workbook(path: Path, smiles_column: str, size: int) -> Iterator[MoleculeFrame]:
    notes: list[str] = []
    with closing(workbook_rows(path, notes)) as body:
        first = next(body, None)
        if first is None:
            return
        place = _place(path, first[1], smiles_column)
        _tell(path, notes + told_layout("", "", {smiles_column: first[1][place]}))
        yield from _cut(first[1], place, (cells for _, cells in body), size)


def _smiles_file(path: Path, smiles_column: str, size: int) -> Iterator[MoleculeFrame]:
    with open_text(path) as file:
        yield from _smiles(smiles_column, path, file, size)


def _smiles(smiles_column: str, source: str | Path, file: IO[str], size: int) -> Iterator[MoleculeFrame]:
    lines = (cells for cells in map(str.split, file) if cells)
    first = next(lines, None)
    if first is None:
        return
    if first[0].casefold() == smiles_column.casefold():
        yield from _cut(first, _place(source, first, first[0]), lines, size)
        return
    named = ([cells[0], " ".join(cells[1:])] for cells in chain([first], lines))
    yield from _cut([smiles_column, NAME], 0, named, size)


def _sdf(path: Path, smiles_column: str, size: int) -> Iterator[MoleculeFrame]:
    """Records with their names and properties; the file is read twice, first for the names of the properties."""
    header = list(dict.fromkeys([smiles_column, *property_names(path)]))
    with path.open(encoding="utf-8", errors="replace") as file, closing(_records(file)) as records:
        while block := list(islice(records, size)):
            rows, smiles, problems = [], [], {}
            for row, lines in enumerate(block):
                cells = {NAME: lines[0].strip(), **_properties(lines)}
                text = _as_smiles(lines)
                if text is None:
                    problems[row] = f"{UNREADABLE}: record of the SDF file"
                smiles.append(text or "")
                rows.append({smiles_column: text or "", **cells})
            frame = pd.DataFrame(rows, columns=header, dtype=object).fillna("")
            yield MoleculeFrame(frame, smiles, problems)


def _records(file: Iterable[str]) -> Generator[list[str], None, None]:
    """Lines of each record, without the one that ends it."""
    lines: list[str] = []
    for line in file:
        if line.startswith(_RECORD_END):
            yield lines or [""]
            lines = []
        else:
            lines.append(line.rstrip("\r\n"))
    if any(map(str.strip, lines)):
        yield lines


def _properties(lines: Sequence[str]) -> dict[str, str]:
    """Properties of a record as text; those of several lines keep them."""
    found: dict[str, list[str]] = {}
    current: list[str] | None = None
    for line in lines:
        if match := PROPERTY.match(line):
            current = found.setdefault(match[1], [])
        elif current is not None and line.strip():
            current.append(line)
        else:
            current = None
    return {name: "\n".join(text).strip() for name, text in found.items()}


def _as_smiles(lines: Sequence[str]) -> str | None:
    """A record as the SMILES that training would read of it; None where RDKit cannot read it."""
    with rdBase.BlockLogs():
        supplier = Chem.SDMolSupplier()
        supplier.SetData("\n".join([*lines, _RECORD_END, ""]))
        try:
            mol = supplier[0] if len(supplier) else None
        except (OSError, RuntimeError, ValueError):
            mol = None
        return None if mol is None else str(Chem.MolToSmiles(mol))


def _parquet(path: Path, smiles_column: str, size: int) -> Iterator[MoleculeFrame]:
    import pyarrow as pa  # slow to import and seldom needed
    import pyarrow.parquet as pq

    try:
        with pq.ParquetFile(path) as file:
            header = file.schema_arrow.names
            place = _place(path, header, smiles_column)
            _tell(path, told_layout("", "", {smiles_column: header[place]}))
            for batch in file.iter_batches(batch_size=size):
                frame = pa.Table.from_batches([batch]).replace_schema_metadata().to_pandas(types_mapper=pd.ArrowDtype)
                column = frame[header[place]]
                texts = [
                    "" if missing else str(text).strip() for text, missing in zip(column, column.isna(), strict=True)
                ]
                yield MoleculeFrame(frame, texts)
    except (pa.ArrowInvalid, OSError) as error:
        raise BadInput(f"{path}: not a Parquet file that pyarrow can read ({error}).") from error
