"""Tables in CSV, Parquet or Excel files."""

from __future__ import annotations

import logging
import zipfile
from collections.abc import Sequence
from pathlib import Path

import pandas as pd

from graphbench.data.delimited import find_column, has_decimal_commas, point_for_comma, separator_of, told_layout
from graphbench.data.workbooks import WORKBOOK, check_workbook
from graphbench.errors import BadInput, CorruptData

logger = logging.getLogger(__name__)

#: Usual separator of text files with columns.
_USUAL = {".csv": ",", ".tsv": "\t"}
SUFFIXES = (".parquet", *_USUAL, WORKBOOK)
_BAD = (ValueError, OSError, EOFError, KeyError, OverflowError, pd.errors.ParserError, zipfile.BadZipFile)


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
    separator = usual = _USUAL.get(path.suffix, "")
    check_workbook(path)
    try:
        if path.suffix == ".parquet":
            frame = pd.read_parquet(path)
        elif path.suffix == WORKBOOK:
            frame = pd.read_excel(path, engine="openpyxl")
        else:
            with path.open(encoding="utf-8-sig") as file:
                first = next((line for line in file if line.strip()), "")
            separator = separator_of(first, usual, needed)
            frame = pd.read_csv(path, sep=separator, skip_blank_lines=False, encoding="utf-8-sig")
    except _BAD as error:
        raise CorruptData(f"{path} cannot be read as a table ({type(error).__name__}: {error}).") from error
    header = [str(name) for name in frame.columns]
    places = {name: find_column(path, header, name) for name in needed}
    read_for = {name: header[place] for name, place in places.items() if place is not None}
    frame.columns = pd.Index([{found: name for name, found in read_for.items()}.get(name, name) for name in header])
    notes = told_layout(separator, usual, read_for)
    if separator not in ("", ",") and (columns := _points_for_commas(frame)):
        notes.append(f"numbers have decimal commas in {', '.join(columns)}")
    if notes:
        logger.info("%s: %s", path, ", ".join(notes))
    return frame


def _points_for_commas(frame: pd.DataFrame) -> list[str]:
    """Make columns of numbers with decimal commas numeric, and name them; none where another column has points."""
    if any(frame[name].dtype.kind == "f" and (frame[name].dropna() % 1 != 0).any() for name in frame):
        return []
    found = []
    for name in frame:
        present = frame[name].dropna()
        if pd.api.types.is_numeric_dtype(frame[name].dtype) or not has_decimal_commas(texts := present.astype(str)):
            continue
        numbers = pd.to_numeric(texts.map(point_for_comma), errors="coerce")
        if not numbers.isna().any():
            frame[name] = numbers.reindex(frame.index)
            found.append(str(name))
    return found


def row_place(path: Path, row: int) -> str:
    """Where a row stands: its line in a text file with a header or row of a sheet, else its number from 1."""
    if path.suffix == WORKBOOK:
        return f"{path}, row {row + 2}"
    return f"{path}, row {row + 1}" if path.suffix == ".parquet" else f"{path}, line {row + 2}"
