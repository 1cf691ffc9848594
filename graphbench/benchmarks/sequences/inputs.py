"""Base classes that read new sequences: texts from tables, lines, files and strings, and pixels of images."""

from __future__ import annotations

import logging
import sys
from abc import abstractmethod
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import islice
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
import pandas as pd

from graphbench.benchmarks.inputs import files_with, parts_of_items
from graphbench.benchmarks.sequences.base import SequenceBenchmark, SequenceTable, token_table
from graphbench.benchmarks.superpixels.images import IMAGES, as_pixels, check_images, image_files
from graphbench.contracts import InputPart
from graphbench.errors import BadInput
from graphbench.tables.reader import TABLES, as_texts, open_table
from graphbench.tables.text import PACKED, open_text, suffix_of

logger = logging.getLogger(__name__)
STANDARD_INPUT = "-"
_LINES = ".txt"
_SIZE = 256  # sequences per part

#: Rows of a source, the texts of each row, and a mapping from rows to why they could not be split into cells.
Frame = tuple[pd.DataFrame, list[tuple[str, ...]], dict[int, str]]


@dataclass(frozen=True)
class Tokens:
    """One sequence, uint8 `[length]`, and the first token of the second document of a pair."""

    tokens: np.ndarray
    second: int | None = None


class TextInput(SequenceBenchmark):
    """Base of benchmarks whose sequences are texts, and that read new texts like those of training."""

    #: Columns of a user's table with the text or texts of a row.
    text_columns: ClassVar[tuple[str, ...]] = ("text",)
    python_input: ClassVar[str] = "strings, or tuples of them if a sequence has several texts"

    @abstractmethod
    def tokens_of(self, texts: Sequence[str]) -> Tokens:
        """Tokenize one row, with a text for each of `text_columns`, as in training, or raise `BadInput`."""

    def read_input(self, source: str, column: str | None = None, size: int = _SIZE) -> Iterator[InputPart]:
        """Read texts from a table, the lines of a file, or the files in a folder.

        The source is a table (see `graphbench.tables.reader.open_table`) with the columns `text_columns`, or `column`
        for single texts; a file (`.txt`) or "-" for standard input, whose lines are texts; or a folder, whose files
        (`.txt`), also in subfolders, are texts. Lines and files are only for benchmarks of single texts.
        """
        columns = self.text_columns
        if column is not None:
            if len(columns) > 1:
                raise BadInput(f"{self.spec.name} reads the columns {' and '.join(columns)}, not one ({column!r}).")
            columns = (column,)
        count = 0
        for frame, texts, problems in _frames(source, columns, size):
            count += len(texts)
            if texts:
                yield self._as_part(frame, texts, problems)
        if not count:
            raise BadInput(f"{'standard input' if source == STANDARD_INPUT else source}: it holds no texts.")

    def read_objects(self, objects: Sequence[Any], size: int = _SIZE) -> Iterator[InputPart]:
        """Read strings, or tuples of them for sequences of several texts."""
        expected = "strings" if len(self.text_columns) == 1 else f"tuples of {len(self.text_columns)} strings"
        rows = []
        for number, item in enumerate(objects):
            texts = (item,) if isinstance(item, str) else item
            if (
                not isinstance(texts, tuple)
                or len(texts) != len(self.text_columns)
                or not all(isinstance(text, str) for text in texts)
            ):
                raise BadInput(
                    f"{self.spec.name}: input {number} is of type {type(item).__name__}; expected {expected}."
                )
            rows.append(texts)
        for start in range(0, len(rows), size):
            chosen = rows[start : start + size]
            yield self._as_part(pd.DataFrame(chosen, columns=list(self.text_columns), dtype=object), chosen, {})

    def _as_part(self, frame: pd.DataFrame, rows: Sequence[Sequence[str]], broken: dict[int, str]) -> InputPart:
        sequences: dict[int, Tokens] = {}
        problems = dict(broken)
        for row, texts in enumerate(rows):
            if row in broken:
                continue
            try:
                sequences[row] = self.tokens_of(texts)
            except BadInput as error:
                problems[row] = str(error)
        table = _tokens_table(list(sequences.values()), len(self.text_columns) > 1)
        return InputPart(frame, table, list(sequences), problems)


class ImageInput(SequenceBenchmark):
    """Base of benchmarks whose sequences are pixels of images, and that read new images like those of training."""

    python_input: ClassVar[str] = IMAGES
    #: Whether images have three channels, which `grey_values` converts to one.
    colour: bool = False

    def image_side(self) -> int:
        """Return the number of pixels per side."""
        return int((self.spec.max_nodes or 0) ** 0.5)

    def grey_values(self, image: np.ndarray) -> np.ndarray:
        """Convert an image to grey values, uint8 `[height, width]`."""
        return image

    def read_input(self, source: str, column: str | None = None, size: int = _SIZE) -> Iterator[InputPart]:
        """Read images of a folder and its subfolders, or one image, row by row, without scaling."""
        files, root = image_files(Path(source), column, self.spec.name)
        names = pd.DataFrame({"file": [file.relative_to(root).as_posix() for file in files]}, dtype=object)
        return self._read(files, names, size)

    def read_objects(self, objects: Sequence[Any], size: int = _SIZE) -> Iterator[InputPart]:
        """Read Pillow images, or arrays of uint8 pixels, like those of files."""
        check_images(objects, self.spec.name)
        return self._read(objects, pd.DataFrame(index=range(len(objects))), size)

    def _read(self, images: Sequence[Any], rows: pd.DataFrame, size: int) -> Iterator[InputPart]:
        return parts_of_items(self._sequence, images, rows, size, partial(_tokens_table, pairs=False))

    def _sequence(self, image: object) -> Tokens | str:
        """Read the pixels of an image, see `as_pixels`, or describe the problem."""
        try:
            pixels = as_pixels(image, self.colour)
        except BadInput as error:
            return str(error)
        side = self.image_side()
        if pixels.shape[:2] != (side, side):
            return f"the image has {pixels.shape[1]} x {pixels.shape[0]} pixels; expected {side} x {side}"
        return Tokens(self.grey_values(pixels).reshape(-1).copy())


def _tokens_table(sequences: Sequence[Tokens], pairs: bool) -> SequenceTable:
    tokens = np.concatenate([np.zeros(0, dtype=np.uint8), *(sequence.tokens for sequence in sequences)])
    lengths = np.array([len(sequence.tokens) for sequence in sequences], dtype=np.int64)
    second = np.array([sequence.second or 0 for sequence in sequences], dtype=np.int32) if pairs else None
    return SequenceTable.of(token_table(tokens, lengths, second))


def _frames(source: str, columns: Sequence[str], size: int) -> Iterator[Frame]:
    path, is_stream = Path(source), source == STANDARD_INPUT
    is_lines = not is_stream and suffix_of(path).removesuffix(PACKED) == _LINES and path.is_file()
    if len(columns) > 1 and (is_stream or is_lines or path.is_dir()):
        name = "standard input" if is_stream else source
        raise BadInput(f"{name}: rows of {len(columns)} texts are read from tables with the columns {columns}.")
    if is_stream:
        yield from _read_lines(sys.stdin, columns[0], size)
    elif path.is_dir():
        yield from _read_folder(path, size)
    elif is_lines:
        with open_text(path, newline=None) as file:
            yield from _read_lines(file, columns[0], size)
    else:
        yield from _read_table(path, columns, size)


def _read_lines(lines: Iterable[str], column: str, size: int) -> Iterator[Frame]:
    texts = (line.rstrip("\r\n") for line in lines)
    while block := list(islice(texts, size)):
        yield pd.DataFrame({column: block}, dtype=object), [(text,) for text in block], {}


def _read_folder(folder: Path, size: int) -> Iterator[Frame]:
    files = files_with(folder, (_LINES,))
    for start in range(0, len(files), size):
        chosen = files[start : start + size]
        names = [file.relative_to(folder).as_posix() for file in chosen]
        # `bytes_of` restores bytes that are not UTF-8.
        texts: list[tuple[str, ...]] = [(file.read_bytes().decode("utf-8", "surrogateescape"),) for file in chosen]
        yield pd.DataFrame({"file": names}, dtype=object), texts, {}


def bytes_of(text: str) -> bytes:
    """Encode a text in UTF-8, and restore bytes that were not UTF-8.

    Examples:
        >>> list(bytes_of(bytes([233]).decode("utf-8", "surrogateescape"))), list(bytes_of("é"))
        ([233], [195, 169])
    """
    return text.encode("utf-8", "surrogateescape")


def _read_table(path: Path, columns: Sequence[str], size: int) -> Iterator[Frame]:
    table = open_table(path, columns[0], columns[1:], (*TABLES, _LINES), "texts")
    if table.notes:
        logger.info("%s: %s", path, ", ".join(table.notes))
    names = [table.column(name) for name in columns]
    for part in table.parts(size):
        texts = list(zip(*(as_texts(part.frame[name], strip=False) for name in names), strict=True))
        yield part.frame, texts, {row: f"{kind}: {detail}" for row, (kind, detail) in part.problems.items()}
