"""Tables in CSV, Parquet or Excel files."""

from __future__ import annotations

import logging
import zipfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from graphbench.errors import BadInput, CorruptData
from graphbench.tables.layout import (
    find_column,
    is_decimal_comma,
    is_decimal_point,
    point_for_comma,
    separator_of,
    told_layout,
)
from graphbench.tables.workbooks import WORKBOOK, check_workbook

logger = logging.getLogger(__name__)

#: Usual separator of text files with columns.
_USUAL = {".csv": ",", ".tsv": "\t"}
PARQUET = ".parquet"
SUFFIXES = (PARQUET, *_USUAL, WORKBOOK)
#: How pandas reads text; without `low_memory=False`, a long column may be numbers above and text below.
TEXT_OPTIONS: dict[str, Any] = {"skip_blank_lines": False, "encoding": "utf-8-sig", "low_memory": False}
#: What pandas raises for a file that is not what its suffix says.
UNREADABLE = (ValueError, OSError, EOFError, KeyError, OverflowError, pd.errors.ParserError, zipfile.BadZipFile)


def table_file(folder: Path, name: str) -> Path | None:
    """The table of that name in a folder, whatever its format; None where there is none.

    Raises:
        BadInput: there are several.
    """
    found = [folder / f"{name}{suffix}" for suffix in SUFFIXES if (folder / f"{name}{suffix}").is_file()]
    if len(found) > 1:
        raise BadInput(f"{folder} holds {' and '.join(path.name for path in found)}: keep one of them.")
    return found[0] if found else None


def read_frame(path: Path, needed: Sequence[str] = ()) -> pd.DataFrame:
    """A table with its columns as text names; of a workbook the first sheet.

    Text files may have commas, semicolons or tabs between cells, and where these are no commas, decimal commas; one
    line in the log says so.

    Args:
        path: a file with one of `SUFFIXES`.
        needed: columns that get these names where the file has them in another case.

    Raises:
        CorruptData: the file is not what its suffix says.
        MissingExtra: it is an `.xlsx` file, and openpyxl is not installed.
        BadInput: two columns could be a needed one.
    """
    check_workbook(path)
    separator = ""
    try:
        if path.suffix == PARQUET:
            frame = _plain_numbers(pd.read_parquet(path))
        elif path.suffix == WORKBOOK:
            frame = pd.read_excel(path, engine="openpyxl")
        else:
            separator = separator_in(path, needed)
            frame = pd.read_csv(path, sep=separator, **TEXT_OPTIONS)
    except UNREADABLE as error:
        raise unreadable(path, error) from error
    header = [str(name) for name in frame.columns]
    read_for = columns_for(path, header, needed)
    frame.columns = pd.Index(renamed(header, read_for))
    commas = _convert_commas(frame) if may_have_commas(separator) else []
    tell_layout(path, separator, read_for, commas)
    return frame


def _plain_numbers(frame: pd.DataFrame) -> pd.DataFrame:
    """Pandas' nullable integers and floats as those of NumPy; as from a CSV file, floats where some are missing."""
    plain: dict[Any, Any] = {}
    for name in frame:
        dtype: Any = frame[name].dtype
        if not isinstance(dtype, np.dtype) and dtype.kind in "iuf":
            plain[name] = np.float64 if frame[name].isna().any() else dtype.numpy_dtype
    return frame.astype(plain)


def _convert_commas(frame: pd.DataFrame) -> list[str]:
    """Make columns of numbers with decimal commas numeric, and name them; none where another column has points."""
    if any(has_fractions(frame[name]) for name in frame):
        return []
    found = [name for name, commas in comma_columns(frame).items() if commas]
    for name in found:
        frame[name] = points_for_commas(frame[name])
    return found


def unreadable(path: Path, error: Exception) -> CorruptData:
    """What to say of a file that pandas cannot read."""
    return CorruptData(f"{path} cannot be read as a table ({type(error).__name__}: {error}).")


def separator_in(path: Path, needed: Sequence[str]) -> str:
    """What separates the cells of a text file."""
    with path.open(encoding="utf-8-sig") as file:
        first = next((line for line in file if line.strip()), "")
    return separator_of(first, _USUAL[path.suffix], needed)


def columns_for(path: Path, header: Sequence[str], needed: Sequence[str]) -> dict[str, str]:
    """Needed column -> the column of the file that is read for it, of those that are there.

    Raises:
        BadInput: two columns could be a needed one.
    """
    places = {name: find_column(path, header, name) for name in needed}
    return {name: header[place] for name, place in places.items() if place is not None}


def renamed(header: Sequence[str], read_for: Mapping[str, str]) -> list[str]:
    """Names of all columns, with those that are read for others under their names."""
    called = {found: name for name, found in read_for.items()}
    return [called.get(name, name) for name in header]


def tell_layout(path: Path, separator: str, read_for: dict[str, str], commas: Sequence[str]) -> None:
    """Log what is unlike a plain file, if anything is.

    Args:
        path: of the table.
        separator: of its cells; empty where it is no text.
        read_for: see `columns_for`.
        commas: columns with decimal commas.
    """
    notes = told_layout(separator, _USUAL.get(path.suffix, ""), read_for)
    if commas:
        notes.append(f"numbers have decimal commas in {', '.join(commas)}")
    if notes:
        logger.info("%s: %s", path, ", ".join(notes))


def may_have_commas(separator: str) -> bool:
    """Whether numbers of a text file may have decimal commas."""
    return separator not in ("", ",")


def has_fractions(values: pd.Series) -> bool:
    """Whether a column has real numbers that are not whole, which were written with a decimal point."""
    return values.dtype.kind == "f" and bool((values.dropna() % 1 != 0).any())


def comma_columns(frame: pd.DataFrame) -> dict[str, bool | None]:
    """Of columns that are no numbers: whether they would be with decimal commas.

    Returns:
        True where they would, False where they would not, and None where no cell has a comma but all are numbers.
    """
    return {str(name): _commas(frame[name]) for name in frame if not pd.api.types.is_numeric_dtype(frame[name].dtype)}


def _commas(values: pd.Series) -> bool | None:
    texts = pd.Series(values.dropna().astype(str).unique(), dtype=object)
    if any(map(is_decimal_point, texts)) or pd.to_numeric(texts.map(point_for_comma), errors="coerce").isna().any():
        return False
    return True if any(map(is_decimal_comma, texts)) else None


def points_for_commas(values: pd.Series) -> pd.Series:
    """Numbers out of texts with decimal commas."""
    texts = values.dropna().astype(str)
    return pd.to_numeric(texts.map(point_for_comma)).astype(float).reindex(values.index)


def row_place(path: Path, row: int) -> str:
    """Where a row stands: its line in a text file with a header or row of a sheet, else its number from 1."""
    return f"{path}, {row_words(path, row)}"


def row_words(path: Path, *rows: int) -> str:
    """Rows as people count them.

    Examples:
        >>> row_words(Path("nodes.csv"), 0, 4), row_words(Path("nodes.parquet"), 0)
        ('lines 2 and 6', 'row 1')
    """
    word = "row" if path.suffix in (PARQUET, WORKBOOK) else "line"
    numbers = [str(row + (1 if path.suffix == PARQUET else 2)) for row in rows]
    return f"{word}{'s' if len(rows) > 1 else ''} {' and '.join(numbers)}"
