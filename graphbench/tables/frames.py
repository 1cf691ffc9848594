"""Tables whose columns have types, as pandas finds them: whole files of text, Parquet or Excel."""

from __future__ import annotations

import csv
import logging
import re
import zipfile
from collections.abc import Collection, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pandas as pd

from graphbench.errors import BadInput, CorruptData, GraphbenchError
from graphbench.tables.cells import Missing
from graphbench.tables.formats import PARQUET, SEPARATED
from graphbench.tables.layout import (
    describe_layout,
    find_column,
    is_decimal_comma,
    is_decimal_point,
    point_for_comma,
    separator_of,
)
from graphbench.tables.text import PACKED, open_text, suffix_of
from graphbench.tables.workbooks import WORKBOOK, check_workbook

if TYPE_CHECKING:
    import pyarrow as pa

logger = logging.getLogger(__name__)

SUFFIXES = (PARQUET, *SEPARATED, *(f"{suffix}{PACKED}" for suffix in SEPARATED), WORKBOOK)
#: How pandas reads text; without `low_memory=False`, a long column may be numbers above and text below.
TEXT_OPTIONS: dict[str, Any] = {"skip_blank_lines": False, "low_memory": False}
#: What pandas calls an index without a name in a Parquet file.
_UNNAMED_INDEX = re.compile(r"__index_level_\d+__")
_NAMELESS = re.compile(r"Unnamed: \d+")
_USUAL_MISSING = Missing.of(None)
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
    """A table with its columns as text names, but for blank columns without a name; of a workbook the first sheet.

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
            import pyarrow.parquet as pq  # takes long to import

            with pq.ParquetFile(path) as file:
                frame = parquet_frame(file.read())
        elif path.suffix == WORKBOOK:
            frame = pd.read_excel(path, engine="openpyxl")
        else:
            separator = separator_in(path, needed)
            with open_text(path) as text:
                frame = _without_trailing(pd.read_csv(text, sep=separator, **TEXT_OPTIONS))
    except GraphbenchError:
        raise
    except UNREADABLE as error:
        raise unreadable(path, error) from error
    frame = frame.loc[:, [not (is_nameless(str(name)) and frame[name].isna().all()) for name in frame]]
    header = [str(name) for name in frame.columns]
    read_for = columns_for(path, header, needed)
    frame.columns = pd.Index(renamed(header, read_for))
    commas = _convert_numbers(frame, needed, may_have_commas(separator))
    tell_layout(path, separator, read_for, commas)
    return frame


def is_nameless(name: str) -> bool:
    """Whether pandas made up the name of a column; one without cells is what spreadsheets export beside a table.

    Examples:
        >>> is_nameless("Unnamed: 2"), is_nameless("x")
        (True, False)
    """
    return _NAMELESS.fullmatch(name) is not None


def parquet_frame(table: pa.Table) -> pd.DataFrame:
    """Content of a Parquet file with an index of pandas as columns, but for one without a name.

    Integers with gaps are floats, as from a CSV file.
    """
    kept = [name for name in table.column_names if not _UNNAMED_INDEX.fullmatch(name)]
    return table.select(kept).replace_schema_metadata().to_pandas()


def _without_trailing(frame: pd.DataFrame) -> pd.DataFrame:
    """A table whose rows end with a separator that its header has not: pandas takes their first cells for an index."""
    if isinstance(frame.index, pd.RangeIndex) or frame.shape[1] == 0 or not frame.iloc[:, -1].isna().all():
        return frame
    shifted = frame.reset_index().iloc[:, : frame.shape[1]]
    shifted.columns = frame.columns
    return shifted


def _convert_numbers(frame: pd.DataFrame, needed: Sequence[str], may_have_commas: bool) -> list[str]:
    """Make columns of numbers with decimal commas or words for missing ones numeric; name those with commas."""
    states = {str(name): number_state(frame[name]) for name in frame if is_text(frame[name])}
    may_have_commas = may_have_commas and not any(has_fractions(frame[name]) for name in frame)
    found = converted(states, needed, may_have_commas)
    for name in found:
        frame[name] = as_numbers(frame[name])
    return [name for name in found if "commas" in states[name]]


def unreadable(path: Path, error: Exception) -> CorruptData:
    """What to say of a file that pandas cannot read."""
    return CorruptData(f"{path} cannot be read as a table ({type(error).__name__}: {error}).")


def separator_in(path: Path, needed: Sequence[str]) -> str:
    """What separates the cells of a text file.

    Raises:
        BadInput: a needed column is there twice, or it is no text in UTF-8 or UTF-16.
    """
    with open_text(path) as file:
        first = next((line for line in file if line.strip()), "")
    separator = separator_of(first, SEPARATED[plain_suffix(path)], needed)
    columns_for(path, [name.strip() for name in next(csv.reader([first], delimiter=separator), [])], needed)
    return separator


def plain_suffix(path: Path) -> str:
    """Suffix of a table without `.gz`."""
    return suffix_of(path).removesuffix(PACKED)


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
    notes = describe_layout(separator, SEPARATED.get(plain_suffix(path), ""), read_for)
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


def is_text(values: pd.Series) -> bool:
    """Whether pandas read a column as neither numbers nor true and false."""
    return not pd.api.types.is_numeric_dtype(values.dtype)


def number_state(values: pd.Series) -> set[str]:
    """What is in a column of text: "text", or, of numbers and words for none, "commas", "points" and "words".

    Examples:
        >>> sorted(number_state(pd.Series(["1,5", "ND"]))), sorted(number_state(pd.Series(["1.5", "x"])))
        (['commas', 'words'], ['text'])
    """
    texts = pd.Series(values.dropna().unique(), dtype=object)
    known = _without_words(texts)
    if pd.to_numeric(known.map(point_for_comma), errors="coerce").isna().any():
        return {"text"}
    found = {"commas": any(map(is_decimal_comma, known)), "points": any(map(is_decimal_point, known))}
    return {name for name, there in (found | {"words": len(known) < len(texts)}).items() if there}


def converted(states: Mapping[str, Collection[str]], needed: Collection[str], may_have_commas: bool) -> list[str]:
    """Columns of text that are numbers: those with decimal commas where the file may have some, and those with words.

    Args:
        states: what `number_state` finds in each column.
        needed: columns that name things; "-" may be a name.
        may_have_commas: see there.
    """
    numbers = {name: set(found) for name, found in states.items() if "text" not in found}
    commas = [name for name, found in numbers.items() if may_have_commas and {"commas", "points"} & found == {"commas"}]
    words = [name for name, found in numbers.items() if "words" in found and name not in needed]
    return [*commas, *(name for name in words if "commas" not in numbers[name])]


def as_numbers(values: pd.Series) -> pd.Series:
    """Numbers out of texts, NaN for words that mean none."""
    texts = _without_words(values.dropna().astype(object))
    return pd.to_numeric(texts.map(point_for_comma)).astype(float).reindex(values.index)


def _without_words(cells: pd.Series) -> pd.Series:
    """Cells as text, without words for missing ones."""
    texts = cells.map(str).map(str.strip)
    return texts[[text not in _USUAL_MISSING for text in texts]]


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
