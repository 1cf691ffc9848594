"""Base classes that read new sequences: texts of tables, lines, files and strings, and pixels of images."""

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
from graphbench.benchmarks.superpixels.images import image_files, read_image
from graphbench.contracts import GraphTable, InputPart
from graphbench.contracts.table import EDGE, EDGE_INDEX, GRAPH, NODE, Column, pointer
from graphbench.errors import BadInput, CorruptData
from graphbench.tables.reader import TABLES, as_texts, open_table
from graphbench.tables.text import PACKED, open_text, suffix_of

logger = logging.getLogger(__name__)
STANDARD_INPUT = "-"
_LINES = ".txt"
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
            source: a table (see `graphbench.tables.reader.open_table`) with the columns `text_columns`; or a file
                (`.txt`) or "-" for standard input, whose lines are texts; or a folder, whose files (`.txt`) and those
                in the folders in it are texts. Lines and files are for benchmarks of single texts.
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
        for frame, texts, torn in _frames(source, columns, size):
            count += len(texts)
            if texts:
                yield self._as_part(frame, texts, torn)
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
            yield self._as_part(pd.DataFrame(chosen, columns=list(self.text_columns), dtype=object), chosen, {})

    def _as_part(self, frame: pd.DataFrame, rows: Sequence[Sequence[str]], torn: dict[int, str]) -> InputPart:
        found: dict[int, Tokens] = {}
        problems = dict(torn)
        for row, texts in enumerate(rows):
            if row in torn:
                continue
            try:
                found[row] = self.tokens_of(texts)
            except BadInput as error:
                problems[row] = str(error)
        return InputPart(frame, table_of(list(found.values()), len(self.text_columns) > 1), list(found), problems)


class ImageInput(SequenceBenchmark):
    """Base of benchmarks whose sequences are the pixels of images, so that other images can be read alike."""

    #: Images have three channels, which `grey_values` turns into one.
    colour: bool = False

    def image_side(self) -> int:
        """Pixels per side."""
        return int((self.spec.max_nodes or 0) ** 0.5)

    def grey_values(self, image: np.ndarray) -> np.ndarray:
        """uint8 `[height, width]` of an image as it was read."""
        return image

    def read_input(self, source: str, column: str | None = None, size: int = _SIZE) -> Iterator[InputPart]:
        """Images of a folder and the folders in it, or one image, read row by row; none is scaled.

        Args:
            source: the folder or the image.
            column: not used: a file is an image.
            size: images per part.

        Raises:
            BadInput: `source` is none of both, or there is a column.
        """
        return self._read(*image_files(Path(source), column, self.spec.name), size)

    def _read(self, files: Sequence[Path], root: Path, size: int) -> Iterator[InputPart]:
        for start in range(0, len(files), size):
            chosen = files[start : start + size]
            outcomes = [self._sequence(file) for file in chosen]
            found = {row: one for row, one in enumerate(outcomes) if isinstance(one, Tokens)}
            problems = {row: one for row, one in enumerate(outcomes) if isinstance(one, str)}
            frame = pd.DataFrame({"file": [file.relative_to(root).as_posix() for file in chosen]}, dtype=object)
            yield InputPart(frame, table_of(list(found.values()), False), list(found), problems)

    def _sequence(self, file: Path) -> Tokens | str:
        """The pixels of an image, or why there are none."""
        try:
            image = read_image(file, self.colour)
        except CorruptData as error:
            return str(error).replace(f"{file} cannot", "the file cannot")
        side = self.image_side()
        if image.shape[:2] != (side, side):
            return f"the image has {image.shape[1]} x {image.shape[0]} pixels; expected {side} x {side}"
        return Tokens(self.grey_values(image).reshape(-1).copy())


# -- files ---------------------------------------------------------------------------------------------------------

#: Rows as they came, the texts of each, and why some of them could not be taken apart.
Frame = tuple[pd.DataFrame, list[tuple[str, ...]], dict[int, str]]


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


def _frames(source: str, columns: Sequence[str], size: int) -> Iterator[Frame]:
    path = Path(source)
    if source == STANDARD_INPUT:
        _refuse_pairs("standard input", columns)
        yield from _of_lines(sys.stdin, columns[0], size)
    elif path.is_dir():
        _refuse_pairs(str(path), columns)
        yield from _of_folder(path, size)
    elif suffix_of(path).removesuffix(PACKED) == _LINES and path.is_file():
        _refuse_pairs(str(path), columns)
        with open_text(path, newline=None) as file:
            yield from _of_lines(file, columns[0], size)
    else:
        yield from _of_table(path, columns, size)


def _refuse_pairs(source: str, columns: Sequence[str]) -> None:
    if len(columns) > 1:
        raise BadInput(f"{source}: rows of {len(columns)} texts are read from tables with the columns {columns}.")


def _of_lines(lines: Iterable[str], column: str, size: int) -> Iterator[Frame]:
    texts = (line.rstrip("\r\n") for line in lines)
    while block := list(islice(texts, size)):
        yield pd.DataFrame({column: block}, dtype=object), [(text,) for text in block], {}


def _of_folder(folder: Path, size: int) -> Iterator[Frame]:
    files = sorted(path for path in folder.rglob(f"*{_LINES}") if path.is_file())
    for start in range(0, len(files), size):
        chosen = files[start : start + size]
        names = [file.relative_to(folder).as_posix() for file in chosen]
        # Bytes that are no UTF-8 come back as they were, see `bytes_of`.
        texts: list[tuple[str, ...]] = [(file.read_bytes().decode("utf-8", "surrogateescape"),) for file in chosen]
        yield pd.DataFrame({"file": names}, dtype=object), texts, {}


def bytes_of(text: str) -> bytes:
    """UTF-8 of a text, and of what was no UTF-8 the bytes that it was.

    Examples:
        >>> list(bytes_of(bytes([233]).decode("utf-8", "surrogateescape"))), list(bytes_of("é"))
        ([233], [195, 169])
    """
    return text.encode("utf-8", "surrogateescape")


def _of_table(path: Path, columns: Sequence[str], size: int) -> Iterator[Frame]:
    table = open_table(path, columns[0], columns[1:], (*TABLES, _LINES), "texts")
    if table.notes:
        logger.info("%s: %s", path, ", ".join(table.notes))
    names = [table.column(name) for name in columns]
    for part in table.parts(size):
        texts = list(zip(*(as_texts(part.frame[name], strip=False) for name in names), strict=True))
        yield part.frame, texts, {row: f"{kind}: {said}" for row, (kind, said) in part.problems.items()}
