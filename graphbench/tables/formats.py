"""Read rows of each table format part by part: text with separators, JSON lines, records, Parquet, workbooks."""

from __future__ import annotations

import contextlib
import csv
import json
from collections import deque
from collections.abc import Callable, Generator, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from functools import partial
from io import StringIO
from itertools import chain, islice
from operator import methodcaller
from pathlib import Path
from string import whitespace
from typing import Any

import pandas as pd

from graphbench.errors import BadInput
from graphbench.tables.layout import separator_of
from graphbench.tables.records import NAME, properties, property_names, records, smiles_rows
from graphbench.tables.text import open_text
from graphbench.tables.workbooks import workbook_rows

PARQUET = ".parquet"
#: Suffixes of text files with separators, and the usual separator of each.
SEPARATED = {".csv": ",", ".tsv": "\t", ".tab": "\t"}
JSON_LINES = (".jsonl", ".ndjson")
LINES = (".smi", ".smiles", ".txt")
RECORDS = (".sdf", ".sd", ".mol")
#: Reasons why a row cannot be split into cells.
TORN = "the row has another number of cells than the header"
BLANK = "the row is blank"
NO_OBJECT = "the line is not a JSON object"
#: Maximum characters of a cell; a longer one is a quote that is never closed.
LONGEST = 1 << 26
#: Attribute of frames that stores the separator of their cells.
SEPARATOR = "separator"
_END = "\x04"  # after the last line: it is part of a cell if a quote is open

#: (number of the line or row, cells), or instead of cells (reason why there are none, detail).
Row = tuple[int, "Sequence[Any] | tuple[str, str]"]


@dataclass
class Rows:
    """Consecutive rows of a table.

    Args:
        frame: all columns, under distinct names; text, except for Parquet files. Its attribute `SEPARATOR` is the
            separator of cells in text files.
        numbers: line on which each row begins, or number of the row.
        problems: position in `frame` -> why the row could not be split into cells, and a detail.
    """

    frame: pd.DataFrame
    numbers: list[int]
    problems: dict[int, tuple[str, str]] = field(default_factory=dict)


def distinct_names(header: Sequence[str]) -> list[str]:
    """Make names distinct as pandas does; names that occur once stay unchanged.

    Examples:
        >>> distinct_names(["smiles", "y", "", "y", "y.1", ""])
        ['smiles', 'y', 'Unnamed: 2', 'y.2', 'y.1', 'Unnamed: 5']
    """
    taken, names = set(header), []
    seen: set[str] = set()  # tables of gene expression have tens of thousands of columns
    for place, name in enumerate(header):
        is_repeated = name in seen
        seen.add(name)
        if not name or is_repeated:
            stem = f"{name}." if name else "Unnamed: "
            number = 1 if name else place
            while f"{stem}{number}" in taken:
                number += 1
            name = f"{stem}{number}"
            taken.add(name)
        names.append(name)
    return names


def _first_row(rows: Iterator[Row]) -> list[str]:
    """Read the first row that is not blank; blank ones come as tuples, see `Row`."""
    return [name.strip() for name in next((cells for _, cells in rows if isinstance(cells, list)), [])]


def parts_of_rows(rows: Iterator[Row], names: Sequence[str], separator: str, size: int) -> Iterator[Rows]:
    """Yield parts of rows; each row matches the header, apart from trailing blank cells, or has a problem."""
    width = len(names)
    while block := list(islice(rows, size)):
        filled, problems = [], {}
        for place, (_, cells) in enumerate(block):
            if isinstance(cells, tuple):
                problems[place], cells = cells, []
            elif len(cells) != width:
                while len(cells) > width and not cells[-1].strip():
                    cells = cells[:-1]
                if len(cells) != width:
                    problems[place] = (TORN, f"{len(cells)} instead of {width}")
            filled.append(cells if len(cells) == width else [*cells, *[""] * (width - len(cells))][:width])
        frame = pd.DataFrame(filled, columns=list(names), dtype=object)
        frame.attrs[SEPARATOR] = separator
        yield Rows(frame, [number for number, _ in block], problems)


def open_format(
    path: Path, suffix: str, key: str, wanted: Sequence[str], notes: list[str]
) -> tuple[str, list[str], Callable[..., Iterator[Rows]]]:
    """Open a file of a format.

    `key` is the name of the column of SMILES or records. The columns `wanted` help to detect the separator of text;
    `notes` receives differences from a plain file, in words.

    Returns:
        The separator of text, or ""; the header; and a function that yields parts of a given number of rows.
    """
    if suffix in SEPARATED:
        return _open_separated(path, SEPARATED[suffix], wanted)
    if suffix == PARQUET:
        with _parquet(path) as file:
            header = list(file.schema_arrow.names)
        return "", header, partial(_parquet_parts, path, distinct_names(header))
    rows = _rows(path, suffix, key, notes)
    header = _first_row(rows)
    return "", header, partial(parts_of_rows, rows, distinct_names(header), "")


def _open_separated(
    path: Path, usual: str, wanted: Sequence[str]
) -> tuple[str, list[str], Callable[..., Iterator[Rows]]]:
    with open_text(path) as file:
        separator = separator_of(next((line for line in file if line.strip()), ""), usual, wanted)
    with open_text(path) as file:
        rows = _csv_rows(path, file, 0, separator)
        header = _first_row(rows)
        first = next(rows, (0, ()))[0]
    return separator, header, partial(_separated_parts, path, separator, distinct_names(header), first - 1)


def _every(row: int) -> bool:
    return True


def _separated_parts(
    path: Path, separator: str, names: Sequence[str], line: int, size: int, wanted: Callable[[int], bool] = _every
) -> Iterator[Rows]:
    """Yield parts of a text file after some lines; pandas parses lines without quotes several times faster than `csv`.

    `wanted` gets the number of a part's first row. Unwanted parts have empty cells: only their rows are counted.
    """
    if line < 0:
        return
    row = 0
    count, strip = methodcaller("count", separator), methodcaller("strip", f"{separator}{whitespace}")
    with open_text(path) as file:
        deque(islice(file, line), maxlen=0)
        while lines := list(islice(file, size)):
            text = "".join(lines)
            if '"' in text or "\0" in text:  # a quoted cell may span lines and blocks; pandas ends a cell at NUL
                yield from parts_of_rows(_csv_rows(path, chain(lines, file), line, separator), names, separator, size)
                return
            # Only complete rows that are not blank: pandas would silently fill, shift or skip others.
            if not wanted(row) and all(map(strip, lines)):
                row += len(lines)
                frame = pd.DataFrame("", range(len(lines)), list(names))
                yield Rows(frame, list(range(line + 1, line + 1 + len(lines))))
            elif set(map(count, lines)) == {len(names) - 1} and all(map(strip, lines)):
                options: dict[str, Any] = {"dtype": object, "na_filter": False, "quoting": csv.QUOTE_NONE}
                frame = pd.read_csv(StringIO(text), sep=separator, header=None, names=list(names), **options)
                frame.attrs[SEPARATOR] = separator
                row += len(lines)
                yield Rows(frame, list(range(line + 1, line + 1 + len(lines))))
            else:
                for part in parts_of_rows(_csv_rows(path, lines, line, separator), names, separator, size):
                    row += len(part.frame)
                    yield part
            line += len(lines)


def _csv_rows(path: Path, lines: Iterable[str], line: int, separator: str) -> Iterator[Row]:
    """Yield CSV rows after some lines; a quoted cell may span lines."""
    # Some sequences and records exceed Python's limit of 131,072 characters; the limit applies to the whole process.
    csv.field_size_limit(max(csv.field_size_limit(), LONGEST))
    reader = csv.reader(chain(lines, [_END]), delimiter=separator)
    start, number = line, line
    try:
        for cells in reader:
            first, number = number + 1, start + reader.line_num
            if cells == [_END]:
                return
            if cells and cells[-1].endswith(_END):
                raise BadInput(f"{path}: a quote that opens on line {first:,} is not closed.")
            if cells:
                yield first, cells if any(map(str.strip, cells)) else (BLANK, "")
    except csv.Error as error:
        raise BadInput(f"{path}: line {number + 1:,} is not valid CSV ({error}).") from error


def _rows(path: Path, suffix: str, key: str, notes: list[str]) -> Iterator[Row]:
    """Yield the rows of a format that is read row by row, the header first."""
    if suffix in LINES:
        with open_text(path, newline=None) as file:
            yield from smiles_rows(file, key)
    elif suffix in RECORDS:
        yield from _records(path, key, notes)
    elif suffix in JSON_LINES:
        yield from _objects(path)
    else:
        yield from workbook_rows(path, notes)


def _records(path: Path, key: str, notes: list[str]) -> Generator[Row, None, None]:
    """Yield records with their names and properties; the file is read twice, first for the property names."""
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
            values = properties(lines)
            yield first, ["\n".join(lines), lines[0].strip(), *(values.get(name, "") for name in names)]


def _property_names(path: Path, errors: str) -> list[str] | None:
    """List the names of properties other than the molecule's name; return None if the file is empty."""
    with open_text(path, None, errors) as file:
        if not any(line.strip() for line in file):  # stops at the first line with content, which is not a property
            return None
        return [name for name in property_names(file) if name != NAME]


def _objects(path: Path) -> Generator[Row, None, None]:
    """Yield objects of JSON lines; the file is read twice, first for the names of all members."""
    names: dict[str, None] = {}
    with open_text(path) as file:
        for line in file:
            names |= dict.fromkeys(_members(line) or ())
    yield 1, list(names)
    with open_text(path) as file:
        for number, line in enumerate(file, 1):
            if line.strip():
                values = _members(line)
                yield number, (NO_OBJECT, "") if values is None else [values.get(name, "") for name in names]


def _members(line: str) -> dict[str, str] | None:
    """Parse the members of a JSON object as text, with numbers as written; return None for any other value."""
    try:
        value = json.loads(line, parse_float=str, parse_int=str, parse_constant=str)
    except (ValueError, RecursionError):
        return None
    if not isinstance(value, dict):
        return None
    return {
        name: cell if isinstance(cell, str) else "" if cell is None else json.dumps(cell, ensure_ascii=False)
        for name, cell in value.items()
    }


@contextlib.contextmanager
def _parquet(path: Path) -> Iterator[Any]:
    """Open a Parquet file with pyarrow."""
    import pyarrow as pa  # slow to import and seldom needed
    import pyarrow.parquet as pq

    try:
        with pq.ParquetFile(path) as file:
            yield file
    except (pa.ArrowException, OSError) as error:
        raise BadInput(f"{path}: not a Parquet file that pyarrow can read ({error}).") from error


def _parquet_parts(path: Path, names: list[str], size: int) -> Iterator[Rows]:
    import pyarrow as pa

    start = 1
    with _parquet(path) as file:
        for batch in file.iter_batches(batch_size=size):
            # Drop the metadata of pandas, which would turn columns that others read as data into an index.
            table = pa.Table.from_batches([batch]).replace_schema_metadata().rename_columns(names)
            frame = table.to_pandas(types_mapper=pd.ArrowDtype)
            yield Rows(frame, list(range(start, start + len(frame))))
            start += len(frame)
