"""Tables chunk by chunk: each chunk has the rows, names and types that it would have in the whole table.

The type of a column depends on all its cells: one text among numbers makes it text. So a file is read once, in chunks,
to find the types, and then again to have its rows. Both need the memory of a chunk, and of a Parquet file that of a row
group.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from graphbench.data.progress import track
from graphbench.errors import GraphbenchError
from graphbench.tables.frames import (
    PARQUET,
    TEXT_OPTIONS,
    UNREADABLE,
    as_numbers,
    columns_for,
    converted,
    has_fractions,
    is_nameless,
    is_text,
    may_have_commas,
    number_state,
    parquet_frame,
    renamed,
    separator_in,
    unreadable,
)
from graphbench.tables.text import open_text
from graphbench.tables.workbooks import WORKBOOK

#: Whether pandas, reading in chunks, sees that the first row of one has too many cells; before 3 it drops the surplus.
SEES_TORN_ROWS = int(pd.__version__.partition(".")[0]) >= 3
#: Rows of a chunk.
CHUNK = 8_192
#: Kind of a column -> what pandas reads text as; others it finds by itself.
_TYPES: dict[str, Any] = {"int": np.int64, "float": np.float64, "bool": np.bool_, "text": str}
_NUMPY_KINDS = {"i": "int", "u": "int", "f": "float", "b": "bool"}
_NUMBERS = {"int", "large int", "float"}


class ReadWhole(Exception):
    """Why tables cannot be read in parts, which is no fault of theirs."""


@dataclass(frozen=True)
class Head:
    """What the first line of a table says.

    Args:
        path: of the table.
        separator: of its cells; empty where it is no text.
        header: columns as the file calls them.
        read_for: needed column -> the column of the file that is read for it.
    """

    path: Path
    separator: str
    header: tuple[str, ...]
    read_for: dict[str, str]

    @property
    def names(self) -> list[str]:
        """Columns, the needed ones under their names."""
        return renamed(self.header, self.read_for)


@dataclass(frozen=True)
class FrameChunks:
    """A table whose types are known.

    Args:
        head: its first line.
        kinds: what each column is, by its name in the file.
        rows: of a chunk.
        blank: columns without a name and without cells, which no frame has, by their names in the file.
        numbers: columns of text that are numbers, by their names in the file.
        commas: those of them that have decimal commas, by the names of the frames.
    """

    head: Head
    kinds: Mapping[str, str]
    rows: int
    blank: tuple[str, ...] = ()
    numbers: tuple[str, ...] = ()
    commas: tuple[str, ...] = ()

    def frames(self, only: str | None = None) -> Iterator[pd.DataFrame]:
        """The chunks in their order, at least one; the index says which row of the table.

        Args:
            only: the one column that is read; None for all.

        Raises:
            CorruptData: the file is no longer what it was.
        """
        head, start = self.head, 0
        found = None if only is None else head.read_for.get(only, only)
        types = {name: _TYPES[kind] for name, kind in self.kinds.items() if kind in _TYPES and found in (None, name)}
        for frame in _raw_chunks(head.path, head.separator, self.rows, found, types):
            names = head.header if found is None else (found,)
            columns = {name: self._typed(values, name) for name, (_, values) in zip(names, frame.items(), strict=True)}
            frame = pd.DataFrame(columns)
            frame.columns = pd.Index(head.names if only is None else [only])
            if only is None:
                frame = frame.loc[:, [name not in self.blank for name in head.header]]
            frame.index = pd.RangeIndex(start, start + len(frame))
            start += len(frame)
            yield frame

    def _typed(self, values: pd.Series, name: str) -> pd.Series:
        if name in self.numbers:
            return as_numbers(values)
        kind = self.kinds[name]
        if kind == "float" and values.dtype.kind in "iu":
            return values.astype(np.float64)  # Parquet: other chunks have gaps
        return values.astype(object) if kind == "bool with gaps" else values


def read_head(path: Path, needed: Sequence[str]) -> Head:
    """What the first line of a table says.

    Args:
        path: of the table.
        needed: see `read_frame`.

    Raises:
        ReadWhole: it is a workbook, or has cells or names that only the whole file explains; or it is text, and pandas
            is too old to see a row with too many cells where a chunk begins.
        CorruptData: the file is no table.
        BadInput: two columns could be a needed one.
    """
    if path.suffix == WORKBOOK:
        raise ReadWhole(f"{path.name} is a workbook")
    separator = ""
    if path.suffix != PARQUET:
        if not SEES_TORN_ROWS:
            raise ReadWhole(f"pandas {pd.__version__} overlooks torn rows of {path.name} where it is read in parts")
        try:
            separator = separator_in(path, needed)
        except GraphbenchError:
            raise
        except UNREADABLE as error:
            raise unreadable(path, error) from error
    first = next(iter(_raw_chunks(path, separator, 1)))
    if not isinstance(first.index, pd.RangeIndex) and path.suffix != PARQUET:
        raise ReadWhole(f"{path.name}: rows have more cells than its header")
    header = tuple(str(name) for name in first.columns)
    if len(set(header)) < len(header):
        raise ReadWhole(f"{path.name}: two columns have one name")
    return Head(path, separator, header, columns_for(path, header, needed))


def in_chunks(head: Head, rows: int = CHUNK) -> FrameChunks:
    """Find the types of all columns, reading the file once, and once more where texts may be numbers.

    Args:
        head: of the table.
        rows: of a chunk.

    Raises:
        ReadWhole: a column holds what a chunk may take for something else than the whole, such as dates or lists.
        CorruptData: the file is no table.
    """
    kinds: dict[str, set[str]] = {name: set() for name in head.header}
    fractions: set[str] = set()
    texts: set[str] = set()
    chunks = _raw_chunks(head.path, head.separator, rows)
    for frame in track(chunks, f"Looking through {head.path.name}", unit="chunks"):
        for name, (_, values) in zip(head.header, frame.items(), strict=True):
            if len(values):
                kinds[name].add(_kind(values))
                fractions |= {name} if has_fractions(values) else set()
                if name not in texts and is_text(values) and "text" in number_state(values):
                    texts.add(name)
    known = {name: _joined(found) for name, found in kinds.items()}
    if odd := [name for name, kind in known.items() if not kind]:
        raise ReadWhole(f"{head.path.name}: {odd[0]} holds {' and '.join(sorted(kinds[odd[0]]))}")
    blank = tuple(name for name, found in kinds.items() if found <= {"nothing"} and is_nameless(name))
    table = FrameChunks(head, known, rows, blank)
    called = dict(zip(head.names, head.header, strict=True))
    open_ones = [name for name, found in called.items() if known[found] == "text" and found not in texts]
    if not open_ones:
        return table
    states: dict[str, set[str]] = {name: set() for name in open_ones}
    for frame in table.frames():
        for name in open_ones:
            states[name] |= number_state(frame[name])
    commas = may_have_commas(head.separator) and not any(known[name] == "float" for name in fractions)
    found = converted(states, head.read_for, commas)
    with_commas = tuple(name for name in found if "commas" in states[name])
    return FrameChunks(head, known, rows, blank, tuple(called[name] for name in found), with_commas)


def _raw_chunks(
    path: Path, separator: str, rows: int, only: str | None = None, types: Mapping[str, Any] | None = None
) -> Iterator[pd.DataFrame]:
    """Chunks as pandas reads them, at least one.

    Raises:
        CorruptData: the file is not what its suffix says.
    """
    columns = None if only is None else [only]
    try:
        if path.suffix == PARQUET:
            yield from _parquet_chunks(path, rows, columns)
            return
        options: dict[str, Any] = {"usecols": columns, "dtype": types, "chunksize": rows, **TEXT_OPTIONS}
        with open_text(path) as text, pd.read_csv(text, sep=separator, **options) as reader:
            yield from reader
    except GraphbenchError:
        raise
    except UNREADABLE as error:
        raise unreadable(path, error) from error


def _parquet_chunks(path: Path, rows: int, columns: list[str] | None) -> Iterator[pd.DataFrame]:
    import pyarrow as pa  # takes long to import
    import pyarrow.parquet as pq

    with pq.ParquetFile(path) as file:
        if not file.metadata.num_rows:
            yield parquet_frame(file.read(columns=columns))
        for batch in file.iter_batches(batch_size=rows, columns=columns):
            yield parquet_frame(pa.Table.from_batches([batch]))


def _kind(values: pd.Series) -> str:
    """What the cells of a chunk are."""
    if values.isna().all():
        return "nothing"
    if isinstance(values.dtype, np.dtype) and values.dtype.kind in _NUMPY_KINDS:
        return "large int" if values.dtype == np.uint64 else _NUMPY_KINDS[values.dtype.kind]
    found = pd.api.types.infer_dtype(values.astype(object), skipna=True)
    return {"string": "text", "boolean": "bool with gaps"}.get(found, found)


def _joined(kinds: set[str]) -> str:
    """What a column is whose chunks are of these kinds; empty where only the whole tells.

    Examples:
        >>> _joined({"int", "nothing"}), _joined({"int", "text"}), _joined({"int", "datetime"})
        ('float', 'text', '')
    """
    present = kinds - {"nothing"}
    if present == kinds and len(kinds) == 1 and kinds <= {*_NUMBERS, "bool", "bool with gaps", "text"}:
        return next(iter(kinds))
    if {"int", "large int"} <= present:
        return ""  # text if one is negative
    if present <= _NUMBERS:
        return "float" if kinds else "nothing"
    if present <= {"bool", "bool with gaps"}:
        return "bool with gaps"
    return "text" if present <= {*_NUMBERS, "bool", "bool with gaps", "text"} else ""
