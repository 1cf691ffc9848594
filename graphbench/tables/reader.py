"""Read users' tables in every format, some rows at a time, so that a file may be larger than memory."""

from __future__ import annotations

import difflib
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from functools import cached_property, partial
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from graphbench.errors import BadInput
from graphbench.tables.formats import (
    JSON_LINES,
    LINES,
    PARQUET,
    RECORDS,
    SEPARATED,
    Row,
    Rows,
    distinct_names,
    open_format,
    parts_of_rows,
)
from graphbench.tables.layout import describe_layout, find_column, near
from graphbench.tables.records import smiles_rows
from graphbench.tables.text import PACKED, suffix_of
from graphbench.tables.workbooks import WORKBOOK, check_workbook

#: Suffixes of tables with named columns, and of both these and files of molecules.
TABLES = (*SEPARATED, *JSON_LINES, PARQUET, WORKBOOK)
MOLECULES = (*TABLES, *LINES, *RECORDS)
_SHOWN = 20  # columns that a message names


@dataclass
class Table:
    """A table whose header has been read; its rows can be read once.

    Args:
        source: name of the table, for messages.
        header: columns as named in the file.
        places: wanted column -> its position.
        read: yields parts of a given number of rows; for text with separators, it also takes which parts to read.
        unit: unit of the numbers of rows, "line" or "row".
        separator: separator of cells in a text file.
        notes: differences from a plain file of its kind, in words.
        records: whether the first column contains records of an SDF file.
    """

    source: str
    header: list[str]
    places: dict[str, int]
    read: Callable[..., Iterator[Rows]]
    unit: str = "line"
    separator: str = ""
    notes: list[str] = field(default_factory=list)
    records: bool = False

    @cached_property
    def names(self) -> list[str]:
        """Return the columns of frames: those of the header, numbered if a name is blank or repeated."""
        return distinct_names(self.header)

    def column(self, wanted: str) -> str:
        """Return the name of a wanted column in frames."""
        return self.names[self.places[wanted]]

    def parts(self, size: int, wanted: Callable[[int], bool] | None = None) -> Iterator[Rows]:
        """Yield the rows in order, `size` at a time.

        `wanted` receives the number of a part's first row and returns whether to read its cells. In text with
        separators, rows of other parts are only counted, unless a quote is near.
        """
        return self.read(size, wanted) if wanted is not None and self.separator else self.read(size)


def check_table(path: Path, formats: Sequence[str], what: str = "tables") -> str:
    """Check the format of a file, which need not exist, and return its suffix without `.gz`.

    Raises:
        BadInput: it has another suffix.
        MissingExtra: it needs a package that is not installed.
        CorruptData: it is a workbook that unpacks to far more than its size.
    """
    suffix = suffix_of(path)
    plain = suffix.removesuffix(PACKED)
    if plain not in formats or (plain != suffix and plain in (PARQUET, WORKBOOK)):
        ending = f"a file that ends in {suffix!r}" if suffix else "a name without suffix"
        raise BadInput(
            f"{path}: {what} are read from {', '.join(formats)} files, text files also packed (.gz), not from {ending}."
        )
    check_workbook(path)
    return plain


def open_table(
    path: Path,
    key: str,
    others: Sequence[str] = (),
    formats: Sequence[str] = TABLES,
    what: str = "tables",
    optional: Sequence[str] = (),
) -> Table:
    """Open a table and locate its columns by name; the only match in another case is accepted.

    `.csv`, `.tsv` and `.tab` have a header line, and commas, semicolons or tabs between cells; `.jsonl` and `.ndjson`
    have an object on each line; `.parquet` has columns, including pandas' index; `.xlsx` has them on its first sheet.
    `.smi`, `.smiles` and `.txt` have a SMILES and optionally a name (column `_Name`) on each line, unless the first
    line begins with the word `key`. `.sdf`, `.sd` and `.mol` have records, which become the column `key`, with names in
    `_Name` and properties. Text files are in UTF-8 or UTF-16, and may be packed (`.gz`). Blank lines and blank rows of
    a sheet are skipped. The column `key` ("" for none) and `others` are required; `optional` ones are located if
    they exist. `formats` are the accepted suffixes, and messages call the content `what`.

    Raises:
        BadInput: there is no such file, its format is unknown or broken, or a wanted column is missing or repeated.
        MissingExtra: it is an `.xlsx` file, and openpyxl is not installed.
        CorruptData: it unpacks to far more than its size.
    """
    if path.is_dir():
        raise BadInput(f"{path} is a folder; {what} are read from a file.")
    suffix = check_table(path, formats, what)
    if not path.is_file():
        beside = difflib.get_close_matches(path.name, [p.name for p in path.parent.glob("*")], n=1)
        hint = f" Did you mean {path.with_name(beside[0])}?" if beside else ""
        raise BadInput(f"{path}: there is no such file.{hint}")
    notes: list[str] = []
    separator, header, read = open_format(path, suffix, key, [key] if key else optional, notes)
    if not header:
        raise BadInput(f"{path}: the file holds no {what}.")
    is_record = suffix in RECORDS  # the first column is not a property, whatever the properties are called
    places = {key: 0} if is_record else {}
    # Locate the key first, so that training refuses a file with the same words as prediction
    for names in ([key] if key else [], others):
        places |= _locate(path, header, [name for name in names if name not in places])
    candidates = {name: find_column(path, header, name) for name in optional}
    places |= {name: place for name, place in candidates.items() if place is not None}
    notes += describe_layout(
        separator, SEPARATED.get(suffix, ""), {name: header[place] for name, place in places.items()}
    )
    renamed = [f"{name!r}" for name in distinct_names(header) if name not in header]
    if renamed:
        notes.append(f"unnamed or repeated columns are called {', '.join(renamed)}")
    unit = "row" if suffix in (PARQUET, WORKBOOK) else "line"
    return Table(str(path), header, places, read, unit, separator, notes, is_record)


def lines_table(source: str, lines: Iterable[str], key: str) -> Table:
    """Open a list of SMILES that is not a file, such as standard input."""
    rows: Iterator[Row] = smiles_rows(lines, key)
    header = list(next(rows, (1, [key]))[1])
    return Table(
        source, header, _locate(source, header, [key]), partial(parts_of_rows, rows, distinct_names(header), "")
    )


def _locate(source: object, header: Sequence[str], wanted: Sequence[str]) -> dict[str, int]:
    """Locate each wanted column; raise `BadInput` if one is missing or repeated."""
    places = {name: find_column(source, header, name) for name in wanted}
    if missing := [name for name, place in places.items() if place is None]:
        columns = ", ".join(map(repr, header[:_SHOWN])) + (", ..." if len(header) > _SHOWN else "")
        hint = near(missing, header)
        raise BadInput(f"{source}: no column {' or '.join(map(repr, missing))}. Its columns: {columns}.{hint}")
    return {name: place for name, place in places.items() if place is not None}


def as_texts(column: pd.Series, strip: bool = True) -> list[str]:
    """Convert the cells of a column to text, stripped by default; "" for missing values.

    Examples:
        >>> as_texts(pd.Series([1.5, None])), as_texts(pd.Series([" CCO", ""], dtype=object))
        (['1.5', ''], ['CCO', ''])
    """
    values: Iterable[Any] = column
    # Use float32, whose text is "0.1": pyarrow returns Python floats, whose text is "0.10000000149011612".
    if str(column.dtype) in ("float[pyarrow]", "halffloat[pyarrow]"):
        values = column.astype(np.float32)
    texts = ["" if missing else str(cell) for cell, missing in zip(values, column.isna(), strict=True)]
    return [text.strip() for text in texts] if strip else texts
