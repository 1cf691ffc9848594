"""Tables in CSV or Parquet files."""

from __future__ import annotations

from pathlib import Path

import pandas as pd

from graphbench.errors import BadInput, CorruptData

SUFFIXES = (".parquet", ".csv", ".tsv")
_BAD = (ValueError, OSError, EOFError, KeyError, OverflowError, pd.errors.ParserError)


def table_file(folder: Path, name: str) -> Path | None:
    """The table of that name in a folder, whatever its format; None where there is none.

    Raises:
        BadInput: there are several.
    """
    found = [folder / f"{name}{suffix}" for suffix in SUFFIXES if (folder / f"{name}{suffix}").is_file()]
    if len(found) > 1:
        raise BadInput(f"{folder} holds {' and '.join(path.name for path in found)}: keep one of them.")
    return found[0] if found else None


def read_frame(path: Path) -> pd.DataFrame:
    """A table with its columns as text names.

    Raises:
        CorruptData: the file is not what its suffix says.
        BadInput: it has no row.
    """
    try:
        if path.suffix == ".parquet":
            frame = pd.read_parquet(path)
        else:
            frame = pd.read_csv(path, sep="\t" if path.suffix == ".tsv" else ",", skip_blank_lines=False)
    except _BAD as error:
        raise CorruptData(f"{path} cannot be read as a table ({type(error).__name__}: {error}).") from error
    frame.columns = [str(name) for name in frame.columns]
    return frame


def row_place(path: Path, row: int) -> str:
    """Where a row stands: its line in a text file with a header, else its number from 1."""
    return f"{path}, row {row + 1}" if path.suffix == ".parquet" else f"{path}, line {row + 2}"
