"""Read the first sheet of an `.xlsx` file row by row as text; needs the extra `excel`."""

from __future__ import annotations

import contextlib
import importlib.util
import re
import zipfile
from collections.abc import Generator, Iterator
from pathlib import Path
from typing import Any

from graphbench.data.archives import open_zip
from graphbench.errors import BadInput, MissingExtra

#: Suffix of the files.
WORKBOOK = ".xlsx"


def check_workbook(path: Path) -> None:
    """Refuse a workbook without openpyxl, or one that unpacks to far more than its size, before it is opened.

    A workbook is a zip archive: a few hundred kilobytes can contain gigabytes of shared strings, all of which openpyxl
    loads into memory.

    Raises:
        MissingExtra: it is a workbook, and openpyxl is not installed.
        CorruptData: it exceeds the limits of archives.
    """
    if path.suffix.lower() != WORKBOOK:
        return
    if importlib.util.find_spec("openpyxl") is None:
        raise MissingExtra("openpyxl", "excel", f"Reading {path.name}")
    if zipfile.is_zipfile(path):
        open_zip(path).close()


def workbook_rows(path: Path, notes: list[str]) -> Generator[tuple[int, list[str]], None, None]:
    """Yield (row number, cells) of every row that is not blank; each is at least as wide as the first one.

    Numbers are written as Python writes them, formulas as their saved values (or unchanged, in a file of a program that
    saves none), and empty cells as "".

    Args:
        path: the file; one row at a time is in memory.
        notes: receives a sentence if there are other sheets.
    """
    check_workbook(path)
    import openpyxl  # an extra

    try:
        # Sheets are parsed while their rows are read, so a damaged one raises an error in the middle of the rows.
        with contextlib.closing(openpyxl.load_workbook(path, read_only=True, data_only=True)) as book:
            sheet = book.worksheets[0]
            if len(book.worksheets) > 1:
                notes.append(f"the sheet {sheet.title!r} is read, the first of {len(book.worksheets)}")
            sheet.reset_dimensions()  # the size that the file states may be wrong
            width = 0
            rows = _with_formulas(path, sheet) if _has_formulas(path) else sheet.iter_rows(values_only=True)
            for number, values in enumerate(rows, 1):
                cells = ["" if value is None else str(value).strip() for value in values]
                while len(cells) > width and not cells[-1]:
                    cells.pop()
                if any(cells):
                    width = width or len(cells)
                    yield number, cells + [""] * (width - len(cells))
    except Exception as error:  # altered XML can make openpyxl raise anything, even an AttributeError
        raise BadInput(f"{path}: not a workbook that openpyxl can read ({error}).") from error


def _has_formulas(path: Path) -> bool:
    """Return whether a sheet of the workbook has a formula, `<f>` or `<f ...>` in its XML."""
    with zipfile.ZipFile(path) as archive:
        for name in archive.namelist():
            if name.startswith("xl/worksheets/"):
                with archive.open(name) as sheet:
                    end = b""
                    while chunk := sheet.read(1 << 20):
                        if re.search(rb"<f[\s>]", end + chunk):
                            return True
                        end = chunk[-2:]
    return False


def _with_formulas(path: Path, sheet: Any) -> Iterator[list[Any]]:
    """Yield the values of each row; a formula without a saved value is yielded itself.

    Left empty, it would be a missing value. A formula whose result is an empty text has that saved in a text cell.
    """
    import openpyxl

    with contextlib.closing(openpyxl.load_workbook(path, read_only=True)) as book:
        written = book.worksheets[0]
        written.reset_dimensions()
        for saved, cells in zip(sheet.iter_rows(), written.iter_rows(), strict=True):
            yield [
                getattr(cell.value, "text", cell.value)  # for a range of cells it is an object with the text
                if one.value is None and one.data_type == "n" and cell.data_type == "f"
                else one.value
                for one, cell in zip(saved, cells, strict=True)
            ]
