"""Read and write a run's CSV tables; name the columns of the tables in `diagnostics/`, and the splits."""

from __future__ import annotations

import csv
import io
import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from graphbench.data.files.writing import write_text

#: First columns of every table: finished epochs, and optimizer steps.
POSITION = ("epoch", "step")
#: Columns of a table by layer, with a row per layer, measure and time.
LAYER_COLUMNS = ("layer", "module", "measure", "value", "graphs", "left_out")
#: Columns that the report needs from a table by layer; tables of other packages may have only these.
SHOWN_OF_LAYERS = ("epoch", "layer", "measure", "value")
#: Columns of the table for the gap between training and unseen graphs.
GAP_COLUMNS = ("split", "measure", "train", "unseen", "gap", "stage")
#: Numeric columns of all tables.
NUMBERS = ("epoch", "layer", "value", "train", "unseen", "gap")
#: Splits with scores -> their names for readers.
SCORED = {"val": "validation", "test": "test"}


@dataclass(frozen=True)
class RunTable:
    """Rows of a table as text.

    Args:
        columns: names in the header; empty without a table.
        rows: the cells of every complete row.
        torn: line of the first incomplete row, which is dropped with all that follow; None if there is none.
    """

    columns: tuple[str, ...] = ()
    rows: tuple[tuple[str, ...], ...] = ()
    torn: int | None = None

    def as_dicts(self) -> list[dict[str, str]]:
        """Return a mapping for every row."""
        return [dict(zip(self.columns, row, strict=True)) for row in self.rows]


def load_table(path: Path) -> RunTable:
    """Read a table up to the first row that a killed process or a full disk left incomplete; empty without a file.

    A row is complete if its line ends, it has a cell for every column, and its epoch and step are numbers or empty.
    """
    if not path.is_file():
        return RunTable()
    with path.open(encoding="utf-8", errors="replace", newline="") as file:
        text = file.read()
    whole = text[: text.rfind("\n") + 1]
    # Strict: an unclosed quotation mark is then an error, not a cell that extends to the end of the file.
    reader = csv.reader(io.StringIO(whole, newline=""), strict=True)
    columns: tuple[str, ...] = ()
    rows: list[tuple[str, ...]] = []
    line = 1
    try:
        for cells in reader:
            if not cells:
                continue
            if not columns:
                columns = tuple(cells)
                if len(set(columns)) < len(columns):
                    return RunTable(torn=line)
            elif _is_whole(cells, columns):
                rows.append(tuple(cells))
            else:
                return RunTable(columns, tuple(rows), line)
            line = reader.line_num + 1
    except csv.Error:
        return RunTable(columns, tuple(rows), line)
    return RunTable(columns, tuple(rows), line if whole != text else None)


def _is_whole(cells: Sequence[str], columns: Sequence[str]) -> bool:
    """Return whether a row has a cell for every column, and a number or nothing as its position."""
    return len(cells) == len(columns) and all(
        name not in POSITION or not cell or _is_finite(cell) for name, cell in zip(columns, cells, strict=True)
    )


def _is_finite(text: str) -> bool:
    try:
        return math.isfinite(float(text))
    except ValueError:
        return False


def write_table(path: Path, columns: Iterable[str], rows: Iterable[Mapping[str, object]]) -> None:
    """Replace a table atomically.

    Raises:
        ValueError: a row has a column that is not among `columns`.
        OSError: the file cannot be written.
    """
    write_text(path, _as_csv(list(columns), rows, header=True))


def append_rows(path: Path, columns: Sequence[str], rows: Iterable[Mapping[str, object]]) -> None:
    """Append rows to a table, created if missing in an existing folder."""
    with path.open("a", newline="", encoding="utf-8") as file:
        file.write(_as_csv(columns, rows, header=not file.tell()))


def _as_csv(columns: Sequence[str], rows: Iterable[Mapping[str, object]], header: bool) -> str:
    text = io.StringIO(newline="")
    writer = csv.DictWriter(text, columns, lineterminator="\n")
    if header:
        writer.writeheader()
    writer.writerows(rows)
    return text.getvalue()


def show_number(value: float) -> str:
    """Format a score with four significant digits, trailing zeros included; powers of ten for very large or small.

    Examples:
        >>> [show_number(value) for value in (0.62241, 1, 12.3456, 1234.6, 264435120, 0.00001234)]
        ['0.6224', '1.000', '12.35', '1235', '2.644e+08', '1.234e-05']
    """
    if not math.isfinite(value):
        return str(value)
    return f"{value:#.4g}".removesuffix(".").replace(".e", "e") if value else "0.000"
