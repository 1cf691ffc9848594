"""One reader for tables of the user: every format, some rows at a time, so that a file may be larger than memory."""

from __future__ import annotations

import csv
import difflib
import json
import logging
from collections.abc import Generator, Iterable, Iterator, Sequence
from contextlib import closing
from dataclasses import dataclass, field
from itertools import chain, islice
from pathlib import Path
from typing import Any

import pandas as pd

from graphbench.errors import BadInput
from graphbench.tables.layout import find_column, near, separator_of, told_layout
from graphbench.tables.records import NAME, properties, property_names, records, smiles_rows
from graphbench.tables.text import PACKED, open_text, suffix_of
from graphbench.tables.workbooks import WORKBOOK, check_workbook, workbook_rows

logger = logging.getLogger(__name__)

PARQUET = ".parquet"
#: Suffixes of text files with separators, and the usual separator of each.
SEPARATED = {".csv": ",", ".tsv": "\t", ".tab": "\t"}
JSON_LINES = (".jsonl", ".ndjson")
LINES = (".smi", ".smiles", ".txt")
RECORDS = (".sdf", ".sd", ".mol")
#: Suffixes of tables with named columns, and of those and files of molecules.
TABLES = (*SEPARATED, *JSON_LINES, PARQUET, WORKBOOK)
MOLECULES = (*TABLES, *LINES, *RECORDS)
#: Why a row cannot be taken apart.
TORN = "the row has another number of cells than the header"
BLANK = "the row is blank"
NO_OBJECT = "the line is no JSON object"
#: Characters of the longest cell; more is a quote that is never closed.
LONGEST = 1 << 26
#: Attribute of frames that says what separated their cells.
SEPARATOR = "separator"
_SHOWN = 20  # columns that a message names
_END = "\x04"  # behind the last line: it stands within a cell where a quote is open

#: (number of the line or row, cells); in place of cells the reason why there are none, and its detail.
Row = tuple[int, "Sequence[Any] | tuple[str, str]"]


@dataclass
class Rows:
    """Consecutive rows of a table.

    Args:
        frame: every column, under names that are all different; text, but for Parquet files. Its attribute `SEPARATOR`
            says what separated cells of text.
        numbers: line on which each row begins, or number of the row.
        problems: place in `frame` -> why the row could not be taken apart, and a detail.
    """

    frame: pd.DataFrame
    numbers: list[int]
    problems: dict[int, tuple[str, str]] = field(default_factory=dict)


@dataclass
class Table:
    """A table whose header is read; its rows come once.

    Args:
        source: of the table, for messages.
        header: columns as the file calls them.
        found: wanted column -> its place.
        unit: what the numbers of rows count, "line" or "row".
        separator: what separates cells, where a character does.
        notes: what is unlike a plain file of its kind, in words.
        records: the first column holds records of an SDF file.
    """

    source: str
    header: list[str]
    found: dict[str, int]
    body: Iterator[Row] | None
    unit: str = "line"
    separator: str = ""
    notes: list[str] = field(default_factory=list)
    records: bool = False

    @property
    def names(self) -> list[str]:
        """Columns of frames: those of the header, numbered where a name is blank or there several times."""
        return distinct_names(self.header)

    def parts(self, size: int) -> Iterator[Rows]:
        """The rows in their order.

        Args:
            size: rows per part.
        """
        if self.body is None:
            yield from _parquet_parts(Path(self.source), self.names, size)
            return
        names, width = self.names, len(self.header)
        with closing(self.body) as body:  # type: ignore[type-var]
            while block := list(islice(body, size)):
                rows, problems = [], {}
                for place, (_, cells) in enumerate(block):
                    if isinstance(cells, tuple):
                        problems[place], cells = cells, []
                    elif len(cells) != width:
                        while len(cells) > width and not cells[-1].strip():
                            cells = cells[:-1]
                        if len(cells) != width:
                            problems[place] = (TORN, f"{len(cells)} instead of {width}")
                    rows.append([*cells, *[""] * (width - len(cells))][:width])
                frame = pd.DataFrame(rows, columns=names, dtype=object)
                frame.attrs[SEPARATOR] = self.separator
                yield Rows(frame, [number for number, _ in block], problems)


def distinct_names(header: Sequence[str]) -> list[str]:
    """Names that are all different, as pandas makes them; a name that is there once stays.

    Examples:
        >>> distinct_names(["smiles", "y", "", "y", "y.1", ""])
        ['smiles', 'y', 'Unnamed: 2', 'y.2', 'y.1', 'Unnamed: 5']
    """
    taken, names = set(header), []
    for place, name in enumerate(header):
        if not name or name in header[:place]:
            stem = f"{name}." if name else "Unnamed: "
            number = 1 if name else place
            while f"{stem}{number}" in taken:
                number += 1
            name = f"{stem}{number}"
            taken.add(name)
        names.append(name)
    return names


def check_table(path: Path, formats: Sequence[str], what: str = "tables") -> str:
    """Refuse a file that is not of these formats; whether it is there is not asked.

    Args:
        path: of the file.
        formats: suffixes; those of text may have `.gz` behind.
        what: is read, for the message.

    Returns:
        Its suffix, without `.gz`.

    Raises:
        BadInput: its suffix is another.
        MissingExtra: it needs a package that is not installed.
        CorruptData: it is a workbook that unpacks to far more than it is.
    """
    suffix = suffix_of(path)
    plain = suffix.removesuffix(PACKED)
    if plain not in formats or (plain != suffix and plain in (PARQUET, WORKBOOK)):
        ending = f"a file that ends in {suffix!r}" if suffix else "a name without suffix"
        raise BadInput(
            f"{path}: {what} are read from {', '.join(formats)} files, those of text also packed (.gz), not from "
            f"{ending}."
        )
    check_workbook(path)
    return plain


def open_table(path: Path, key: str, others: Sequence[str] = (), formats: Sequence[str] = TABLES,
               what: str = "tables") -> Table:  # fmt: skip
    """Open a table and find its columns; a name that the file has in another case only will do.

    `.csv`, `.tsv` and `.tab` have a header line, and commas, semicolons or tabs between cells; `.jsonl` and `.ndjson`
    an object on each line; `.parquet` columns, the index of pandas among them; `.xlsx` columns on its first sheet.
    `.smi`, `.smiles` and `.txt` have a SMILES and then, if anything, a name (column `_Name`) on each line, unless the
    first line begins with the word `key`. `.sdf`, `.sd` and `.mol` have records, which stand in the column `key`, with
    names in `_Name` and properties. Files of text may be packed (`.gz`), and in UTF-8 or UTF-16. Lines and rows of a
    sheet without any content are no rows.

    Args:
        path: the file.
        key: the column that must be there, and has this name where the format has none for it.
        others: further columns that must be there.
        formats: suffixes that are read.
        what: is read, for messages.

    Raises:
        BadInput: there is no such file, its format is unknown or broken, or a wanted column is missing or there twice.
        MissingExtra: it is an `.xlsx` file, and openpyxl is not installed.
        CorruptData: it unpacks to far more than it is.
    """
    if path.is_dir():
        raise BadInput(f"{path} is a folder; {what} are read from a file.")
    suffix = check_table(path, formats, what)
    if not path.is_file():
        beside = difflib.get_close_matches(path.name, [p.name for p in path.parent.glob("*")], n=1)
        hint = f" Did you mean {path.with_name(beside[0])}?" if beside else ""
        raise BadInput(f"{path}: there is no such file.{hint}")
    notes: list[str] = []
    separator = usual = ""
    body: Generator[Row, None, None] | None = None
    if suffix in SEPARATED:
        usual = SEPARATED[suffix]
        with open_text(path) as file:
            separator = separator_of(next((line for line in file if line.strip()), ""), usual, [key])
        body = _separated(path, separator)
    elif suffix in LINES:
        body = _lines(path, key)
    elif suffix in RECORDS:
        body = _records(path, key, notes)
    elif suffix in JSON_LINES:
        body = _objects(path)
    elif suffix == WORKBOOK:
        body = workbook_rows(path, notes)  # type: ignore[assignment]
    header = _parquet_header(path) if body is None else _first_row(body)
    if not header:
        raise BadInput(f"{path}: the file holds no {what}.")
    made = suffix in RECORDS  # the first column is no property, whatever properties are called
    found = {key: 0} if made else {}
    for names in ([key], others):  # a training, which needs more columns, says of the first what a prediction says
        found |= _places(path, header, [name for name in names if name not in found])
    notes += told_layout(separator, usual, {name: header[place] for name, place in found.items()})
    renamed = [f"{name!r}" for name in distinct_names(header) if name not in header]
    if renamed:
        notes.append(f"columns without a name of their own are called {', '.join(renamed)}")
    unit = "row" if suffix in (PARQUET, WORKBOOK) else "line"
    return Table(str(path), header, found, body, unit, separator, notes, made)


def lines_table(source: str, lines: Iterable[str], key: str) -> Table:
    """A list of SMILES that is no file, such as standard input.

    Raises:
        BadInput: a column is there twice.
    """
    body = smiles_rows(lines, key)
    header = list(next(body, (1, [key]))[1])
    return Table(source, header, _places(source, header, [key]), body)


def _first_row(body: Iterator[Row]) -> list[str]:
    """The first row that is not blank."""
    return [name.strip() for name in next((cells for _, cells in body if isinstance(cells, list)), [])]


def _places(source: object, header: Sequence[str], wanted: Sequence[str]) -> dict[str, int]:
    """Place of each wanted column.

    Raises:
        BadInput: one is missing, or there twice.
    """
    found = {name: find_column(source, header, name) for name in wanted}
    if missing := [name for name, place in found.items() if place is None]:
        known = ", ".join(map(repr, header[:_SHOWN])) + (", ..." if len(header) > _SHOWN else "")
        hint = near(missing, header)
        raise BadInput(f"{source}: no column {' or '.join(map(repr, missing))}. Its columns: {known}.{hint}")
    return {name: place for name, place in found.items() if place is not None}


# -- formats -------------------------------------------------------------------------------------------------------


def _separated(path: Path, separator: str) -> Generator[Row, None, None]:
    """Rows of a text file, the header first; a quoted cell may span lines."""
    csv.field_size_limit(max(csv.field_size_limit(), LONGEST))
    line = 0
    with open_text(path) as file:
        reader = csv.reader(chain(file, [_END]), delimiter=separator)
        try:
            for cells in reader:
                first, line = line + 1, reader.line_num
                if cells == [_END]:
                    return
                if cells and cells[-1].endswith(_END):
                    raise BadInput(f"{path}: a quote that opens on line {first:,} is not closed.")
                if cells:
                    yield first, cells if any(cell and not cell.isspace() for cell in cells) else (BLANK, "")
        except csv.Error as error:
            raise BadInput(f"{path}: line {line + 1:,} is not valid CSV ({error}).") from error


def _lines(path: Path, key: str) -> Generator[Row, None, None]:
    with open_text(path, newline=None) as file:
        yield from smiles_rows(file, key)


def _records(path: Path, key: str, notes: list[str]) -> Generator[Row, None, None]:
    """Records with their names and properties; the file is read twice, first for the names of the properties."""
    errors = "strict"
    try:
        names = _property_names(path, errors)
    except BadInput as error:
        if not isinstance(error.__cause__, UnicodeDecodeError):
            raise
        errors = "backslashreplace"  # structures are ASCII in any case
        names = _property_names(path, errors)
        notes.append("bytes that are not UTF-8 are written as \\xNN")
    if names is None:
        return
    yield 1, [key, NAME, *names]
    with open_text(path, None, errors) as file:
        for first, lines in records(file):
            given = properties(lines)
            yield first, ["\n".join(lines), lines[0].strip(), *(given.get(name, "") for name in names)]


def _property_names(path: Path, errors: str) -> list[str] | None:
    """Names of properties beside that of the molecule; None where the file is empty."""
    with open_text(path, None, errors) as file:
        if not any(line.strip() for line in file):
            return None
        return [name for name in property_names(file) if name != NAME]  # none stands before the first line


def _objects(path: Path) -> Generator[Row, None, None]:
    """Objects of JSON lines; the file is read twice, first for the names of all their members."""
    names: dict[str, None] = {}
    with open_text(path) as file:
        for line in file:
            names |= dict.fromkeys(_members(line) or ())
    yield 1, list(names)
    with open_text(path) as file:
        for number, line in enumerate(file, 1):
            if line.strip():
                given = _members(line)
                yield number, (NO_OBJECT, "") if given is None else [given.get(name, "") for name in names]


def _members(line: str) -> dict[str, str] | None:
    """Members of a JSON object as text, numbers as they are written; None for anything else."""
    try:
        value = json.loads(line, parse_float=str, parse_int=str, parse_constant=str)
    except (ValueError, RecursionError):
        return None
    return {name: _text(cell) for name, cell in value.items()} if isinstance(value, dict) else None


def _text(value: Any) -> str:
    return value if isinstance(value, str) else "" if value is None else json.dumps(value, ensure_ascii=False)


def _parquet_header(path: Path) -> list[str]:
    import pyarrow as pa  # slow to import and seldom needed
    import pyarrow.parquet as pq

    try:
        with pq.ParquetFile(path) as file:
            return list(file.schema_arrow.names)
    except (pa.ArrowException, OSError) as error:
        raise BadInput(f"{path}: not a Parquet file that pyarrow can read ({error}).") from error


def _parquet_parts(path: Path, names: list[str], size: int) -> Iterator[Rows]:
    import pyarrow as pa
    import pyarrow.parquet as pq

    start = 1
    try:
        with pq.ParquetFile(path) as file:
            for batch in file.iter_batches(batch_size=size):
                table = pa.Table.from_batches([batch]).replace_schema_metadata().rename_columns(names)
                frame = table.to_pandas(types_mapper=pd.ArrowDtype)
                yield Rows(frame, list(range(start, start + len(frame))))
                start += len(frame)
    except (pa.ArrowException, OSError) as error:
        raise BadInput(f"{path}: not a Parquet file that pyarrow can read ({error}).") from error


def as_texts(column: pd.Series, strip: bool = True) -> list[str]:
    """Cells of a column as text, without blanks around it unless they are asked for; "" where there is nothing.

    Examples:
        >>> as_texts(pd.Series([1.5, None])), as_texts(pd.Series([" CCO", ""], dtype=object))
        (['1.5', ''], ['CCO', ''])
    """
    import numpy as np

    values: Iterable[Any] = column
    if str(column.dtype) in ("float[pyarrow]", "halffloat[pyarrow]"):  # a float32 0.1 is the text 0.1
        values = column.astype(np.float32)
    texts = ["" if missing else str(cell) for cell, missing in zip(values, column.isna(), strict=True)]
    return [text.strip() for text in texts] if strip else texts
