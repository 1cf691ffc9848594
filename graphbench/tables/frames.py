"""Read tables in chunks, as frames with one type per column, inferred from the whole table.

The type of a column depends on all its cells: one text among numbers makes it text. A file is therefore read once to
infer the types, and again for its rows. Both need the memory of a chunk, or of a row group for a Parquet file.
"""

from __future__ import annotations

import logging
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pandas as pd

from graphbench.data.progress import track
from graphbench.errors import BadInput
from graphbench.tables.cells import Missing
from graphbench.tables.formats import BLANK, PARQUET
from graphbench.tables.layout import is_decimal_comma, is_decimal_point, point_for_comma
from graphbench.tables.reader import TABLES, Table, open_table
from graphbench.tables.text import PACKED, suffix_of
from graphbench.tables.workbooks import WORKBOOK

logger = logging.getLogger(__name__)

SUFFIXES = (*TABLES, *(f"{suffix}{PACKED}" for suffix in TABLES if suffix not in (PARQUET, WORKBOOK)))
#: Rows of a chunk.
CHUNK = 8_192
#: Words of pandas for a missing value in every column of text; the other usual words count only among numbers.
_MISSING = frozenset(
    (
        "", "#N/A", "#N/A N/A", "#NA", "-1.#IND", "-1.#QNAN", "-NaN", "-nan", "1.#IND", "1.#QNAN", "<NA>", "N/A", "NA",
        "NULL", "NaN", "None", "n/a", "nan", "null",
    )
)  # fmt: skip
_MISSING_NUMBERS = Missing.of(None)
_BOOLEANS = {"True": True, "TRUE": True, "true": True, "False": False, "FALSE": False, "false": False}
_INTEGER = re.compile(r"[+-]?[0-9]+")
_LEADING_ZEROS = re.compile(r"[+-]?0[0-9]+")
_UNNAMED_INDEX = re.compile(r"__index_level_\d+__")  # of pandas, in a Parquet file
_INT64 = np.iinfo(np.int64)


@dataclass(frozen=True)
class TypedTable:
    """A table whose columns have known types.

    Args:
        path: path of the table.
        needed: columns that get these names even if the file has them in another case.
        kinds: type of each column: "int", "float", "bool", "bool with gaps", "text", "name" (text that only an empty
            cell lacks), "nothing", or "other" for Parquet types that stay unchanged.
        rows: rows per chunk.
        notes: differences from a plain file of its kind, in words.
    """

    path: Path
    needed: tuple[str, ...]
    kinds: dict[str, str]
    rows: int
    notes: tuple[str, ...]

    def frames(self, only: str | None = None) -> Iterator[pd.DataFrame]:
        """Yield the chunks in order, at least one; the index is the line or row of the file."""
        table = open_table(self.path, "", optional=self.needed)
        names = [only] if only is not None else list(self.kinds)
        is_empty = True
        for cells in _chunks(table, self.rows):
            is_empty = False
            yield pd.DataFrame({name: _convert(cells[name], self.kinds[name]) for name in names}, index=cells.index)
        if is_empty:
            yield pd.DataFrame({name: _convert(pd.Series(dtype=object), self.kinds[name]) for name in names})

    def log_layout(self) -> None:
        """Log differences from a plain file, if there are any."""
        if self.notes:
            logger.info("%s: %s", self.path, ", ".join(self.notes))


def table_file(folder: Path, name: str) -> Path | None:
    """Return the table of that name in a folder, in any format; return None if there is none."""
    paths = [folder / f"{name}{suffix}" for suffix in SUFFIXES if (folder / f"{name}{suffix}").is_file()]
    if len(paths) > 1:
        raise BadInput(f"{folder} holds {' and '.join(path.name for path in paths)}: keep one of them.")
    return paths[0] if paths else None


def read_frame(path: Path, needed: Sequence[str] = (), names: Sequence[str] = ()) -> pd.DataFrame:
    """Read a whole table, see `typed_table`."""
    table = typed_table(path, needed, names=names)
    table.log_layout()
    return pd.concat(list(table.frames()))


def table_columns(path: Path, needed: Sequence[str]) -> list[str]:
    """Read only the names of the columns, except for blank ones, see `typed_table`."""
    table = open_table(path, "", optional=needed)
    titled = {name for name, title in zip(table.names, table.header, strict=True) if title}
    return [renamed for name, renamed in _named(table).items() if name in titled]


def typed_table(path: Path, needed: Sequence[str] = (), rows: int = CHUNK, names: Sequence[str] = ()) -> TypedTable:
    """Infer the types of all columns, reading the file once.

    Columns of numbers may have words for missing values. They may have decimal commas if commas do not separate cells
    and no number of the file has a decimal point. Blank columns without a name are dropped, and so is an unnamed index
    in a Parquet file.

    Args:
        path: a table in one of the formats of `open_table`.
        needed: columns that get these names even if the file has them in another case.
        rows: rows per chunk.
        names: columns with names of things, which stay as written unless all are whole numbers: 1.1 is not 1.10, 1 not
            01, and NA is a name.

    Raises:
        BadInput: the file is not a table, a row does not match the header, or two columns match a needed one.
        CorruptData: it unpacks to far more than its size.
        MissingExtra: it is an `.xlsx` file, and openpyxl is not installed.
    """
    table = open_table(path, "", optional=needed)
    facts: dict[str, set[str]] = {name: set() for name in _named(table).values()}
    for cells in track(_chunks(table, rows), f"Inferring types of {path.name}", unit="chunks"):
        for name, values in cells.items():
            facts[str(name)] |= _typed_facts(values) if _is_typed(values) else _text_facts(values)
    kinds = {name: _kind(facts[name], name in names) for name in facts}
    has_fractions = any(kinds[name] == "float" and "fraction" in facts[name] for name in facts)
    if table.separator not in ("", ",") and not has_fractions:
        kinds = {name: _kind(facts[name], name in names, may_have_commas=True) for name in facts}
    if suffix_of(path) == WORKBOOK:  # programs may write whole numbers with a point
        kinds |= {name: "int" for name in facts if facts[name] - {"points", "int"} == {"float"}}
        # Numbers in a workbook have no leading zeros: 007 was entered as text to keep them.
        kinds |= {name: "text" for name in facts if "leading zeros" in facts[name] and name not in names}
    nameless = {name for name, title in zip(table.names, table.header, strict=True) if not title}
    kinds = {name: kind for name, kind in kinds.items() if name not in nameless or kind != "nothing"}
    commas = [name for name in kinds if kinds[name] == "float" and "commas" in facts[name]]
    notes = [*table.notes, *([f"numbers have decimal commas in {', '.join(commas)}"] if commas else [])]
    return TypedTable(path, tuple(needed), kinds, rows, tuple(notes))


def _named(table: Table) -> dict[str, str]:
    """Return a mapping from columns of the reader's frames to names of columns here."""
    renamed = {table.column(name): name for name in table.places}
    return {name: renamed.get(name, name) for name in table.names if not _UNNAMED_INDEX.fullmatch(name)}


def _chunks(table: Table, rows: int) -> Iterator[pd.DataFrame]:
    """Yield frames of cells without blank rows; the index is the line or row of the file."""
    names = _named(table)
    for part in table.parts(rows):
        frame = part.frame[list(names)].rename(columns=names).set_axis(part.numbers)
        for place, (reason, detail) in part.problems.items():
            if reason != BLANK:
                reason += f" ({detail})" if detail else ""
                raise BadInput(f"{table.source}, {table.unit} {part.numbers[place]}: {reason}.")
        yield frame.drop(index=[part.numbers[place] for place in part.problems]) if part.problems else frame


# -- types -----------------------------------------------------------------------------------------------------------


def _is_typed(values: pd.Series) -> bool:
    """Return whether cells keep the type of their Parquet file."""
    return isinstance(values.dtype, pd.ArrowDtype)


def _text_facts(cells: pd.Series) -> set[str]:
    """Describe the cells of a text column by words that `_kind` combines over chunks.

    Examples:
        >>> sorted(_text_facts(pd.Series(["1,5", "ND", ""]))), sorted(_text_facts(pd.Series(["1.5", "x"])))
        (['commas', 'gaps', 'words'], ['float', 'fraction', 'points', 'text'])
    """
    texts = pd.Series([text.strip() for text in cells.unique()], dtype=object)
    numbers = pd.to_numeric(texts, errors="coerce").astype(float)
    others = set(texts[numbers.isna()])
    plain = texts[numbers.notna()].tolist()
    facts = _number_facts(plain, numbers.dropna().to_numpy()) if plain else set()
    facts |= {"gaps"} if others & _MISSING else set()
    others -= _MISSING
    words = {text for text in others if text in _MISSING_NUMBERS}
    facts |= {"words"} if words else set()
    others -= words
    if others and all(map(is_decimal_comma, others)):
        facts.add("commas")
    elif others:
        facts.add("bool" if others <= _BOOLEANS.keys() else "text")
    return facts


def _number_facts(texts: list[str], numbers: np.ndarray) -> set[str]:
    """Describe texts that are plain numbers."""
    if all(map(_INTEGER.fullmatch, texts)):
        size = "int" if all(_INT64.min <= int(text) <= _INT64.max for text in texts) else "large int"
        return {size, "leading zeros"} if any(map(_LEADING_ZEROS.fullmatch, texts)) else {size}
    has_fraction = np.isinf(numbers).any() or not np.array_equal(numbers, np.trunc(numbers))
    facts = {"points": any(map(is_decimal_point, texts)), "fraction": has_fraction, "float": True}
    return {name for name, holds in facts.items() if holds}


def _typed_facts(values: pd.Series) -> set[str]:
    """Describe the cells of a column of a Parquet file."""
    values = _from_arrow(values)
    facts = {"gaps"} if values.isna().any() else set()
    if values.isna().all():
        return facts
    if isinstance(values.dtype, np.dtype) and values.dtype.kind in "iufb":
        return facts | {{"i": "int", "u": "int", "f": "float", "b": "bool"}[values.dtype.kind]}
    inferred = pd.api.types.infer_dtype(values.astype(object), skipna=True)
    if inferred == "boolean":
        return facts | {"bool"}
    if inferred != "string":
        return facts | {"other"}
    texts = _text_facts(values.dropna().astype(str))
    return facts | texts | {"declared text"} | ({"words"} if "gaps" in texts else set())


def _kind(facts: set[str], is_name: bool, may_have_commas: bool = False) -> str:
    """Combine the facts about all cells of a column into its type.

    Examples:
        >>> _kind({"int", "gaps"}, False), _kind({"int", "text"}, False), _kind({"int", "gaps"}, True)
        ('float', 'text', 'name')
    """
    numbers = facts & {"int", "large int", "float", "commas"}
    if "other" in facts:
        return "other"
    if is_name:
        return "int" if facts == {"int"} else "name"
    if (
        "text" in facts
        or ("declared text" in facts and "words" not in facts)
        or ("bool" in facts and (numbers or "words" in facts))
        or ("commas" in facts and (not may_have_commas or "points" in facts))
        or ("large int" in facts and not facts & {"float", "commas"})  # as floats they would lose digits
    ):
        return "text"
    if "bool" in facts:
        return "bool with gaps" if "gaps" in facts else "bool"
    if not numbers and "words" not in facts:
        return "nothing"
    return "int" if facts - {"leading zeros"} == {"int"} else "float"


def _convert(cells: pd.Series, kind: str) -> pd.Series:
    """Convert a column of a chunk to its type."""
    if _is_typed(cells):
        values = _from_arrow(cells)
        if kind != "float":
            return values.astype(object) if kind in ("text", "name", "bool with gaps") else values
        if values.dtype.kind in "iu":  # other chunks have gaps
            return values.astype(np.float64)
        if pd.api.types.is_numeric_dtype(values.dtype):
            return values
        cells = values.astype(object).fillna("")  # text with words for missing numbers
    codes, texts = pd.factorize(cells)  # parse each distinct text once: columns of categories are long
    parsed = _parse([text.strip() for text in texts], kind)[codes]
    return pd.Series(parsed, index=cells.index, dtype=parsed.dtype)


def _from_arrow(values: pd.Series) -> pd.Series:
    """Convert a column of a Parquet file as pandas does: integers with gaps to floats."""
    import pyarrow as pa

    return pa.array(values).to_pandas().set_axis(values.index)


def _parse(texts: list[str], kind: str) -> np.ndarray:
    """Parse texts that all have the same type."""
    values = np.empty(len(texts), dtype=object)
    if kind in ("int", "float", "nothing"):
        values[:] = texts
        try:
            return values.astype(np.int64 if kind == "int" else np.float64)
        except ValueError:  # words for missing numbers, decimal commas, or whole numbers with a point
            values[:] = [np.nan if text in _MISSING_NUMBERS else float(point_for_comma(text)) for text in texts]
            return values.astype(np.int64 if kind == "int" else np.float64)
    if kind == "bool":
        return np.array([_BOOLEANS[text] for text in texts], dtype=bool)
    if kind == "name":
        values[:] = [text or np.nan for text in texts]
        return values
    values[:] = [np.nan if text in _MISSING else _BOOLEANS[text] if kind != "text" else text for text in texts]
    return values


# -- rows in messages ------------------------------------------------------------------------------------------------


def row_place(path: Path, row: int) -> str:
    """Name a row of a file by its number."""
    return f"{path}, {row_words(path, row)}"


def row_words(path: Path, *rows: int) -> str:
    """Name rows of a file by their numbers, which are lines of text files.

    Examples:
        >>> row_words(Path("nodes.csv"), 2, 6), row_words(Path("nodes.XLSX"), 1)
        ('lines 2 and 6', 'row 1')
    """
    word = "row" if suffix_of(path) in (PARQUET, WORKBOOK) else "line"
    return f"{word}{'s' if len(rows) > 1 else ''} {' and '.join(map(str, rows))}"
