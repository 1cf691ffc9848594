"""Texts that nobody trained on as sequences of tokens: columns of a table, lines, files, and strings of Python."""

from __future__ import annotations

import logging
import sys
from abc import abstractmethod
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
import pandas as pd
import torch

from graphbench.benchmarks.sequences.base import SECOND, SequenceBenchmark, SequenceTable
from graphbench.contracts import GraphTable, InputPart
from graphbench.contracts.table import EDGE, EDGE_INDEX, GRAPH, NODE, Column, pointer
from graphbench.errors import BadInput
from graphbench.tables.layout import SEES_TORN_ROWS, find_column, near, separator_of, told_layout

logger = logging.getLogger(__name__)

STANDARD_INPUT = "-"
_SEPARATED = {".csv": ",", ".tsv": "\t"}
_LINES, _PARQUET = ".txt", ".parquet"
SUFFIXES = (*_SEPARATED, _PARQUET, _LINES)
_SIZE = 256  # sequences per part


@dataclass(frozen=True)
class Tokens:
    """One sequence.

    Args:
        tokens: uint8 `[length]`.
        second: where the second document begins; None for single ones.
    """

    tokens: np.ndarray
    second: int | None = None


class TextInput(SequenceBenchmark):
    """Base of benchmarks whose sequences are texts, so that other texts can be read alike.

    Args:
        options: see `GraphBenchmark`.
    """

    #: Columns of a user's table in which the text of a row stands, or the texts.
    text_columns: ClassVar[tuple[str, ...]] = ("text",)
    python_input: ClassVar[str] = "strings, or a tuple of them where a sequence is of several texts"

    @abstractmethod
    def tokens_of(self, texts: Sequence[str]) -> Tokens:
        """The sequence of one row, as those of training are made.

        Args:
            texts: one for each of `text_columns`.

        Raises:
            BadInput: there is none; says why.
        """

    def read_input(self, source: str, column: str | None = None, size: int = _SIZE) -> Iterator[InputPart]:
        """Texts of a table, of the lines of a file, or of the files in a folder.

        Args:
            source: a table (`.csv`, `.tsv`, `.parquet`) with the columns `text_columns`; or a file (`.txt`) or "-" for
                standard input, whose lines are texts; or a folder, whose files (`.txt`) and those in the folders in it
                are texts. Lines and files are for benchmarks of single texts.
            column: that of a table that has the text, under another name.
            size: texts per part.

        Raises:
            BadInput: the source cannot be read, is empty, or lacks a column.
        """
        columns = self.text_columns
        if column is not None:
            if len(columns) > 1:
                raise BadInput(f"{self.spec.name} reads the columns {' and '.join(columns)}, not one ({column!r}).")
            columns = (column,)
        count = 0
        for frame, texts in _frames(source, columns, size):
            count += len(texts)
            if texts:
                yield self._as_part(frame, texts)
        if not count:
            raise BadInput(f"{'standard input' if source == STANDARD_INPUT else source}: it holds no texts.")

    def read_objects(self, objects: Sequence[Any], size: int = _SIZE) -> Iterator[InputPart]:
        """Strings; a tuple of them where a sequence is of several texts.

        Raises:
            BadInput: an object is something else.
        """
        expected = "strings" if len(self.text_columns) == 1 else f"tuples of {len(self.text_columns)} strings"
        rows = []
        for number, thing in enumerate(objects):
            texts = (thing,) if isinstance(thing, str) else thing
            if (
                not isinstance(texts, tuple)
                or len(texts) != len(self.text_columns)
                or not all(isinstance(text, str) for text in texts)
            ):
                raise BadInput(
                    f"{self.spec.name}: input {number} is of type {type(thing).__name__}; expected {expected}."
                )
            rows.append(texts)
        for start in range(0, len(rows), size):
            chosen = rows[start : start + size]
            yield self._as_part(pd.DataFrame(chosen, columns=list(self.text_columns), dtype=object), chosen)

    def _as_part(self, frame: pd.DataFrame, rows: Sequence[Sequence[str]]) -> InputPart:
        found: dict[int, Tokens] = {}
        problems: dict[int, str] = {}
        for row, texts in enumerate(rows):
            try:
                found[row] = self.tokens_of(texts)
            except BadInput as error:
                problems[row] = str(error)
        return InputPart(frame, table_of(list(found.values()), len(self.text_columns) > 1), list(found), problems)


def table_of(sequences: Sequence[Tokens], pairs: bool) -> SequenceTable:
    """Sequences without classes, see `base.to_table`.

    Args:
        sequences: may be none.
        pairs: they are of two documents.
    """
    tokens = np.concatenate([one.tokens for one in sequences]) if sequences else np.zeros(0, dtype=np.uint8)
    columns = {"x": torch.from_numpy(tokens)[:, None], "edge_index": torch.zeros(0, 2, dtype=torch.uint8)}
    layout = {"x": Column(NODE), "edge_index": EDGE_INDEX}
    if pairs:
        columns[SECOND] = torch.tensor([one.second or 0 for one in sequences], dtype=torch.int32)[:, None]
        layout[SECOND] = Column(GRAPH)
    lengths = torch.tensor([len(one.tokens) for one in sequences], dtype=torch.int64)
    return SequenceTable.of(
        GraphTable(columns, layout, {NODE: pointer(lengths), EDGE: pointer(torch.zeros_like(lengths))})
    )


# -- files ---------------------------------------------------------------------------------------------------------

#: Rows as they came, and the texts of each.
Frame = tuple[pd.DataFrame, list[tuple[str, ...]]]


def _frames(source: str, columns: Sequence[str], size: int) -> Iterator[Frame]:
    path = Path(source)
    if source == STANDARD_INPUT:
        _refuse_pairs("standard input", columns)
        yield from _of_lines(sys.stdin, columns[0], size)
    elif path.is_dir():
        _refuse_pairs(str(path), columns)
        yield from _of_folder(path, size)
    elif not path.is_file():
        raise BadInput(f"{path}: there is no such file or folder.")
    elif path.suffix.lower() not in SUFFIXES:
        raise BadInput(f"{path}: texts are read from {', '.join(SUFFIXES)} files and from folders, not from this file.")
    else:
        try:
            yield from _of_file(path, columns, size)
        except UnicodeDecodeError as error:
            raise BadInput(
                f"{path}: not UTF-8 text (byte {error.start:,}: {error.reason}). Save it as UTF-8."
            ) from error


def _refuse_pairs(source: str, columns: Sequence[str]) -> None:
    if len(columns) > 1:
        raise BadInput(f"{source}: rows of {len(columns)} texts are read from tables with the columns {columns}.")


def _of_file(path: Path, columns: Sequence[str], size: int) -> Iterator[Frame]:
    suffix = path.suffix.lower()
    if suffix == _LINES:
        _refuse_pairs(str(path), columns)
        with path.open(encoding="utf-8-sig") as file:
            yield from _of_lines(file, columns[0], size)
    elif suffix == _PARQUET:
        yield from _of_parquet(path, columns, size)
    else:
        yield from _of_table(path, columns, size)


def _of_lines(lines: Iterable[str], column: str, size: int) -> Iterator[Frame]:
    texts = (line.rstrip("\r\n") for line in lines)
    while block := list(islice(texts, size)):
        yield pd.DataFrame({column: block}, dtype=object), [(text,) for text in block]


def _of_folder(folder: Path, size: int) -> Iterator[Frame]:
    files = sorted(path for path in folder.rglob(f"*{_LINES}") if path.is_file())
    for start in range(0, len(files), size):
        chosen = files[start : start + size]
        names = [file.relative_to(folder).as_posix() for file in chosen]
        # Bytes that are no UTF-8 come back as they were, see `bytes_of`.
        texts: list[tuple[str, ...]] = [(file.read_bytes().decode("utf-8", "surrogateescape"),) for file in chosen]
        yield pd.DataFrame({"file": names}, dtype=object), texts


def bytes_of(text: str) -> bytes:
    """UTF-8 of a text, and of what was no UTF-8 the bytes that it was.

    Examples:
        >>> list(bytes_of(bytes([233]).decode("utf-8", "surrogateescape"))), list(bytes_of("é"))
        ([233], [195, 169])
    """
    return text.encode("utf-8", "surrogateescape")


def _of_table(path: Path, columns: Sequence[str], size: int) -> Iterator[Frame]:
    usual = _SEPARATED[path.suffix.lower()]
    with path.open(encoding="utf-8-sig", newline="") as file:
        header = file.readline().rstrip("\r\n")
    if not header:
        return
    separator = separator_of(header, usual, columns)
    try:
        names: list[str] | None = None
        for frame in _text_chunks(path, separator, size):
            frame = frame.reset_index(drop=True).astype(object).fillna("")
            if names is None:
                names = _named(path, list(frame.columns), columns)
                _tell(path, separator, usual, dict(zip(columns, names, strict=True)))
            yield frame, list(zip(*(frame[name] for name in names), strict=True))
    except (pd.errors.ParserError, pd.errors.EmptyDataError) as error:
        raise BadInput(f"{path}: not a table that pandas can read ({str(error).strip()}).") from error


def _text_chunks(path: Path, separator: str, size: int) -> Iterator[pd.DataFrame]:
    """So many rows at a time; all at once where pandas would overlook a torn row."""
    options: dict[str, Any] = {"sep": separator, "dtype": str, "keep_default_na": False, "encoding": "utf-8-sig"}
    if SEES_TORN_ROWS:
        with pd.read_csv(path, chunksize=size, **options) as frames:
            yield from frames
        return
    logger.info("pandas %s overlooks torn rows in parts of a table, so %s is read whole.", pd.__version__, path)
    whole = pd.read_csv(path, **options)
    for start in range(0, max(len(whole), 1), size):
        yield whole.iloc[start : start + size]


def _of_parquet(path: Path, columns: Sequence[str], size: int) -> Iterator[Frame]:
    import pyarrow as pa  # slow to import and seldom needed
    import pyarrow.parquet as pq

    try:
        with pq.ParquetFile(path) as file:
            names = _named(path, file.schema_arrow.names, columns)
            _tell(path, "", "", dict(zip(columns, names, strict=True)))
            for batch in file.iter_batches(batch_size=size):
                frame = pa.Table.from_batches([batch]).replace_schema_metadata().to_pandas(types_mapper=pd.ArrowDtype)
                yield frame, list(zip(*(frame[name].astype(object).fillna("").map(str) for name in names), strict=True))
    except (pa.ArrowInvalid, OSError) as error:
        raise BadInput(f"{path}: not a Parquet file that pyarrow can read ({error}).") from error


def _named(path: Path, header: Sequence[str], columns: Sequence[str]) -> list[str]:
    """The columns of a file that are wanted.

    Raises:
        BadInput: one is not there, or is there twice.
    """
    places = [find_column(path, header, name) for name in columns]
    missing = [name for name, place in zip(columns, places, strict=True) if place is None]
    if missing:
        known = ", ".join(map(repr, header[:20]))
        raise BadInput(
            f"{path}: no column {' and no '.join(map(repr, missing))}. Its columns: {known}.{near(missing, header)}"
        )
    return [header[place] for place in places if place is not None]


def _tell(path: Path, separator: str, usual: str, read_for: dict[str, str]) -> None:
    if notes := told_layout(separator, usual, read_for):
        logger.info("%s: %s", path, ", ".join(notes))
