"""Tables that are written part by part into one file, which appears when it is whole."""

from __future__ import annotations

import csv
import io
import sys
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import IO, TYPE_CHECKING, Literal

from graphbench.data.files.writing import place_of, writing
from graphbench.errors import BadInput, GraphbenchError

if TYPE_CHECKING:
    import pandas as pd

SUFFIXES = (".csv", ".parquet")
#: What names standard output, to which a table goes as CSV.
STANDARD_OUTPUT = Path("-")


def check_output(name: str | None, suffixes: tuple[str, ...] = SUFFIXES, streams: bool = False) -> Path:
    """Return the file to write, after a check that it can be written.

    Args:
        name: what the command line says.
        suffixes: types it may have.
        streams: `-` is taken for standard output.

    Raises:
        BadInput: none is named, or its type is another, or it is a folder.
    """
    if not name:
        raise BadInput(f"--output is missing: name the file to write, which ends in {' or '.join(suffixes)}.")
    path = Path(name)
    if streams and path == STANDARD_OUTPUT:
        return path
    if path.suffix.lower() not in suffixes:
        or_streams = ", or be - for standard output" if streams else ""
        raise BadInput(f"--output {path}: the name must end in {' or '.join(suffixes)}{or_streams}.")
    if path.is_dir():
        raise BadInput(f"--output {path}: this is a folder; name a file.")
    return path


def write_frames(frames: Iterable[pd.DataFrame], path: Path, after: Callable[[pd.DataFrame], None]) -> None:
    """Write tables of equal columns one after the other; a file that was there stays until the new one is whole.

    Args:
        frames: taken one by one.
        path: `.csv`, `.parquet` or `STANDARD_OUTPUT`, which shows every table at once.
        after: called with every table that was written.

    Raises:
        BadInput: a column holds values of several types, which a Parquet file cannot.
        GraphbenchError: the file cannot be written.
    """
    write = _parquet if path.suffix.lower() == ".parquet" else _csv
    try:
        if path == STANDARD_OUTPUT:
            _csv(frames, sys.stdout.buffer, after)
            return
        with writing(path) as file:
            write(frames, file, after)
    except OSError as error:
        raise GraphbenchError(f"{place_of(path)} cannot be written: {error.strerror or error}.") from error


def _csv(frames: Iterable[pd.DataFrame], file: IO[bytes], after: Callable[[pd.DataFrame], None]) -> None:
    from graphbench.data.files.cells import without_formulas

    text = io.TextIOWrapper(file, encoding="utf-8", newline="")
    for number, frame in enumerate(frames):
        quoting = _quoting(frame)
        without_formulas(frame).to_csv(text, index=False, header=number == 0, lineterminator="\n", quoting=quoting)
        text.flush()
        after(frame)
    text.detach()


def _quoting(frame: pd.DataFrame) -> Literal[0, 2]:
    """Quote every text where one holds a carriage return, which pandas leaves bare and readers take for a new row."""
    import pandas as pd  # a name is checked before anything is imported that takes its time

    texts = [frame[name].dropna().astype(str) for name in frame if not pd.api.types.is_numeric_dtype(frame[name])]
    returns = any(values.str.contains("\r", regex=False).any() for values in [pd.Series(map(str, frame)), *texts])
    return csv.QUOTE_NONNUMERIC if returns else csv.QUOTE_MINIMAL


def _parquet(frames: Iterable[pd.DataFrame], file: IO[bytes], after: Callable[[pd.DataFrame], None]) -> None:
    import pyarrow as pa  # slow to import and seldom needed
    import pyarrow.parquet as pq

    writer: pq.ParquetWriter | None = None
    try:
        for frame in frames:
            try:
                schema = None if writer is None else writer.schema
                table = pa.Table.from_pandas(frame, schema=schema, preserve_index=False).replace_schema_metadata()
            except (pa.ArrowInvalid, pa.ArrowTypeError) as error:
                raise BadInput(f"The output cannot be a Parquet file: {error}. Write a .csv file.") from error
            writer = writer or pq.ParquetWriter(file, table.schema)
            writer.write_table(table)
            after(frame)
    finally:
        if writer is not None:
            writer.close()
