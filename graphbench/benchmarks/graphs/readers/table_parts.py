"""Read graphs from a folder of tables part by part, so that tables may be larger than memory.

Tables whose rows are grouped by graph, with the same order of graphs in all tables, are read side by side in chunks.
Other tables are read whole and sorted.
"""

from __future__ import annotations

import logging
from array import array
from collections import deque
from collections.abc import Iterator, Mapping, Sequence
from functools import partial
from pathlib import Path

import numpy as np
import pandas as pd

from graphbench.benchmarks.graphs.raw import RawGraphs, RawPart
from graphbench.benchmarks.graphs.readers.tables import (
    KEY,
    NODE_NAME,
    columns_of,
    first_table,
    graph_names,
    graphs_of,
    is_one_graph,
    known_columns,
    name_columns,
    no_graph_error,
    read_frames,
    repeated_graph_error,
    sort_by_graph,
    table_paths,
    unknown_graph_error,
)
from graphbench.errors import BadInput
from graphbench.tables.frames import CHUNK, TypedTable, row_words, typed_table

logger = logging.getLogger(__name__)


class ReadWhole(Exception):
    """Reason why tables cannot be read side by side, which is not an error."""


def parts_of_tables(folder: Path, directed: bool, size: int, rows: int = CHUNK) -> Iterator[RawPart]:
    """Read the graphs of `read_tables` in parts; an invalid row is an error only of its graph.

    A chunk and a part of each table are in memory, and 8 bytes for each graph while the order is checked. If tables are
    read whole, the reason is logged. A part has `size` graphs, a chunk of a table `rows` rows.

    Raises:
        BadInput: a file is not a table, a column is missing, or a row names an unknown graph; names file and line.
    """
    paths = table_paths(folder)
    try:
        tables = _side_by_side(folder, paths, rows)
        ahead = {name: _RowsAhead(table.frames()) for name, table in tables.items()}
    except ReadWhole as reason:
        logger.info("%s, so the tables are read whole.", reason)
        frames = read_frames(folder)
        names = graph_names(paths, frames)
        ahead = {
            name: _RowsAhead(iter([sort_by_graph(paths[name], frame, names).frame])) for name, frame in frames.items()
        }
    return _parts(folder, paths, ahead, directed, size)


def _side_by_side(folder: Path, paths: Mapping[str, Path], rows: int) -> dict[str, TypedTable]:
    """Open tables that can be read side by side; raise `ReadWhole` for others."""
    if is_one_graph(columns_of(paths)):
        raise ReadWhole(f"{folder}: no table has a column {KEY}")
    tables = {name: typed_table(path, known_columns(name), rows, name_columns(name)) for name, path in paths.items()}
    check_order(tables)
    for table in tables.values():
        table.log_layout()
    return tables


class _RowsAhead:
    """Buffer rows of a table that have not been taken yet; at least one chunk follows."""

    def __init__(self, frames: Iterator[pd.DataFrame]) -> None:
        self._frames = frames
        self._buffer: deque[tuple[pd.DataFrame, np.ndarray]] = deque()
        self._read()
        self._no_rows = self._buffer[0][0].iloc[:0]

    def _read(self) -> bool:
        """Buffer the next chunk; return False at the end of the table."""
        frame = next(self._frames, None)
        if frame is not None:
            self._buffer.append((frame, graph_texts(frame[KEY])))
        return frame is not None

    def next_names(self, count: int) -> list[str]:
        """Return the names of the next `count` graphs, or of the remaining ones."""
        names: dict[str, None] = {}
        for _, chunk in self._buffer:
            names |= dict.fromkeys(chunk)
        while len(names) < count and self._read():
            names |= dict.fromkeys(self._buffer[-1][1])
        return list(names)[:count]

    def take(self, names: Sequence[str]) -> pd.DataFrame:
        """Remove and return the rows of the next graphs."""
        wanted, taken = set(names), []
        while self._buffer or self._read():
            frame, row_names = self._buffer.popleft()
            count = next((row for row, name in enumerate(row_names) if name not in wanted), len(frame))
            if count:
                taken.append(frame.iloc[:count])
            if count < len(frame):
                self._buffer.appendleft((frame.iloc[count:], row_names[count:]))
                break
        return pd.concat(taken) if taken else self._no_rows


def _parts(
    folder: Path, paths: Mapping[str, Path], ahead: Mapping[str, _RowsAhead], directed: bool, size: int
) -> Iterator[RawPart]:
    first = ahead[first_table(ahead)]
    while names := first.next_names(size):
        frames = {name: rows.take(names) for name, rows in ahead.items()}
        named = "nodes" in frames and NODE_NAME in frames["nodes"]
        join = partial(_graphs, folder, paths, frames, names, directed)
        yield RawPart(len(names), join, names.__getitem__, named)


def _graphs(
    folder: Path,
    paths: Mapping[str, Path],
    frames: Mapping[str, pd.DataFrame],
    names: Sequence[str],
    directed: bool,
    rows: Sequence[int],
) -> RawGraphs:
    """Build some graphs of a part; raise the errors of `graphs_of`."""
    chosen = [names[row] for row in rows]
    if len(chosen) < len(names):
        frames = {name: frame[frame[KEY].astype(str).isin(chosen)] for name, frame in frames.items()}
    return graphs_of(folder, paths, frames, chosen, directed)


def check_order(tables: Mapping[str, TypedTable]) -> None:
    """Refuse tables, all with a column `graph`, if they cannot be read side by side.

    Reads only the column `graph` of each table. For each graph of the first table (`graphs`, else `nodes`) an 8-byte
    hash stays in memory, to detect a graph that occurs again. The other tables are compared with the first one.

    Raises:
        ReadWhole: rows of a graph are not adjacent, or the order of the graphs differs from the first table.
        BadInput: a row names no graph or an unknown one, or `graphs` lists a graph twice.
    """
    first = first_table(tables)
    _check_first(tables[first], listed_once=first == "graphs")
    for name, table in tables.items():
        if name != first:
            _check_same_order(tables[first], table)


def graph_texts(column: pd.Series) -> np.ndarray:
    """Return the name of the graph of each row as text; None if a row has none."""
    names = np.array(column.astype(str), dtype=object)
    names[column.isna().to_numpy()] = None
    return names


def _runs(table: TypedTable, every_row: bool = False) -> Iterator[tuple[np.ndarray, np.ndarray]]:
    """Yield names and first rows of runs of equal names, chunk by chunk; optionally every row is a run."""
    before: object = np.nan  # unequal to every name
    for frame in table.frames(KEY):
        names = graph_texts(frame[KEY])
        if len(names):
            new = np.concatenate([[names[0] != before], names[1:] != names[:-1]]) | every_row
            before = names[-1]
            yield names[new], frame.index.to_numpy()[new]


def _each_run(table: TypedTable) -> Iterator[tuple[str | None, int]]:
    for names, rows in _runs(table):
        yield from zip(names, rows.tolist(), strict=True)


def _check_first(table: TypedTable, listed_once: bool) -> None:
    """Raise an error if a row names no graph, or a graph of an earlier run."""
    path, hashes = table.path, array("Q")
    for names, rows in _runs(table, listed_once):
        if missing := [row for name, row in zip(names, rows.tolist(), strict=True) if name is None]:
            raise no_graph_error(path, missing[0])
        hashes.frombytes(pd.util.hash_array(names, categorize=False).tobytes())
    ordered = np.frombuffer(hashes, dtype=np.uint64)
    ordered.sort()  # in place, since there may be very many
    repeated = ordered[1:][ordered[1:] == ordered[:-1]]
    if not len(repeated):
        return
    seen: dict[str, int] = {}
    for names, rows in _runs(table, listed_once):
        suspect = np.isin(pd.util.hash_array(names, categorize=False), repeated)
        for name, row in zip(names[suspect], rows[suspect].tolist(), strict=True):
            if name in seen:  # else another name has the same hash
                raise (
                    repeated_graph_error(path, row, name)
                    if listed_once
                    else _not_adjacent(table, name, seen[name], row)
                )
            seen[name] = row


def _check_same_order(first: TypedTable, table: TypedTable) -> None:
    """Raise an error if the runs of a table are not in the order of the first table."""
    listed = _each_run(first)
    for name, row in _each_run(table):
        # `any` consumes the generator up to a match: both tables are read once, and graphs may be skipped.
        if name is None or not any(name == other for other, _ in listed):
            raise _order_error(first, table, name, row)


def _order_error(first: TypedTable, table: TypedTable, name: str | None, row: int) -> BadInput | ReadWhole:
    """Distinguish an unknown graph from one that is not adjacent or out of order."""
    path = table.path
    if name is None or not any(name == other for other, _ in _each_run(first)):
        return unknown_graph_error(path, row, "nan" if name is None else name)
    before = next(start for other, start in _each_run(table) if other == name)
    if before != row:
        return _not_adjacent(table, name, before, row)
    beside = first.path.name
    return ReadWhole(f"{path.name}: graph {name} ({row_words(path, row)}) is in another order than in {beside}")


def _not_adjacent(table: TypedTable, name: str, row: int, other: int) -> ReadWhole:
    path = table.path
    return ReadWhole(f"{path.name}: rows of graph {name} are apart ({row_words(path, row, other)})")
