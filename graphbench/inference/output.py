"""Write tables part by part into one file, which appears when it is complete."""

from __future__ import annotations

import csv
import io
import os
import sys
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import IO, TYPE_CHECKING, Literal

from graphbench.data.files.writing import place_of, writing
from graphbench.data.progress import progress
from graphbench.errors import BadInput, GraphbenchError

if TYPE_CHECKING:
    import pandas as pd
    import pyarrow as pa

SUFFIXES = (".csv", ".parquet")
#: Name for standard output, to which a table is written as CSV.
STANDARD_OUTPUT = Path("-")


def names_parts(name: str | None) -> bool:
    """Return whether an output name ends like a folder, for a table in parts.

    Examples:
        >>> names_parts("screen/"), names_parts("screen.parquet")
        (True, False)
    """
    return name is not None and name.endswith(("/", os.sep))


def check_output(name: str | None, suffixes: tuple[str, ...] = SUFFIXES, streams: bool = False) -> Path:
    """Return the file to write after checking that it can be written; with `streams`, `-` is standard output.

    Raises:
        BadInput: none is named, its type is not supported, or it is a folder.
    """
    if not name:
        raise BadInput(f"--output is missing: name the file to write, which ends in {' or '.join(suffixes)}.")
    path = Path(name)
    if streams and path == STANDARD_OUTPUT:
        return path
    if path.suffix.lower() not in suffixes:
        or_streams = ", or in / for a folder of parts, or be - for standard output" if streams else ""
        raise BadInput(f"--output {path}: the name must end in {' or '.join(suffixes)}{or_streams}.")
    if path.is_dir():
        raise BadInput(f"--output {path}: this is a folder; name a file.")
    return path


@dataclass
class Counts:
    """Number of rows of predictions, of rows without one, and of rows unlike the training graphs.

    `columns` are those of problems and of remarks.
    """

    rows: int = 0
    without: int = 0
    outside: int = 0
    columns: list[str] = field(default_factory=lambda: ["problem", "outside_training"])

    def add(self, frame: pd.DataFrame) -> None:
        """Count the rows of a table of predictions."""
        from graphbench.inference.columns import OUTSIDE, PROBLEM, own_name

        names = [own_name(frame, name) for name in (PROBLEM, OUTSIDE)]
        problems, remarks = (0 if name is None else int((frame[name] != "").sum()) for name in names)
        columns = [name or usual for name, usual in zip(names, self.columns, strict=True)]
        self.merge(Counts(len(frame), problems, remarks, columns))

    def merge(self, other: Counts) -> None:
        """Add the counts of other rows of the same table."""
        self.rows += other.rows
        self.without += other.without
        self.outside += other.outside
        self.columns = other.columns

    def __str__(self) -> str:
        problems, remarks = self.columns
        return (
            f"{self.rows:,} rows, {self.without:,} without prediction (column {problems}), {self.outside:,} unlike the "
            f"training graphs (column {remarks})"
        )


def counted(frames: Iterable[pd.DataFrame], description: str) -> Iterator[pd.DataFrame]:
    """Yield tables of predictions, and show the number of their rows: an input may take hours."""
    with progress(description, unit="rows") as advance:
        for frame in frames:
            yield frame
            advance(len(frame))


def write_frames(frames: Iterable[pd.DataFrame], path: Path, after: Callable[[pd.DataFrame], None]) -> None:
    """Write tables with equal columns one after another; an existing file stays until the new one is complete.

    `path` is `.csv`, `.parquet` or `STANDARD_OUTPUT`, which shows every table immediately; `after` is called with every
    written table.

    Raises:
        BadInput: a column has values of several types, which a Parquet file cannot store.
        GraphbenchError: the file cannot be written.
        OSError: standard output cannot be written.
    """
    if path == STANDARD_OUTPUT:  # whose errors, such as a closed pipe, are handled as in any command
        _csv(frames, sys.stdout.buffer, after)
        return
    write = _parquet if path.suffix.lower() == ".parquet" else _csv
    try:
        with writing(path) as file:
            write(frames, file, after)
    except OSError as error:
        raise GraphbenchError(f"{place_of(path)} cannot be written: {error.strerror or error}.") from error


def _csv(frames: Iterable[pd.DataFrame], file: IO[bytes], after: Callable[[pd.DataFrame], None]) -> None:
    from graphbench.data.files.cells import without_formulas

    text = io.TextIOWrapper(file, encoding="utf-8", newline="")
    try:
        for number, frame in enumerate(frames):
            quoting = _quoting(frame)
            without_formulas(frame).to_csv(text, index=False, header=number == 0, lineterminator="\n", quoting=quoting)
            text.flush()
            after(frame)
    finally:
        text.detach()  # else the wrapper would close standard output after an error


def _quoting(frame: pd.DataFrame) -> Literal[0, 2]:
    """Quote every text if one has a carriage return, which pandas leaves unquoted and readers take for a new row."""
    import pandas as pd  # names are checked before slow imports

    texts = [frame[name].dropna().astype(str) for name in frame if not pd.api.types.is_numeric_dtype(frame[name])]
    returns = any(values.str.contains("\r", regex=False).any() for values in [pd.Series(map(str, frame)), *texts])
    return csv.QUOTE_NONNUMERIC if returns else csv.QUOTE_MINIMAL


def _parquet(frames: Iterable[pd.DataFrame], file: IO[bytes], after: Callable[[pd.DataFrame], None]) -> None:
    import pyarrow.parquet as pq  # slow to import and rarely needed

    writer: pq.ParquetWriter | None = None
    try:
        for frame in frames:
            table = to_arrow(frame, None if writer is None else writer.schema)
            # The first table decides the types of the file.
            writer = writer or pq.ParquetWriter(file, table.schema)
            writer.write_table(table)
            after(frame)
    finally:
        if writer is not None:
            writer.close()


def to_arrow(frame: pd.DataFrame, schema: pa.Schema | None) -> pa.Table:
    """Convert a table for a Parquet file, with types inferred from its values if there is no schema."""
    import pyarrow as pa

    try:
        return pa.Table.from_pandas(frame, schema=schema, preserve_index=False).replace_schema_metadata()
    except (pa.ArrowInvalid, pa.ArrowTypeError, KeyError) as error:
        raise BadInput(f"The output cannot be a Parquet file: {error}. Write a .csv file.") from error
