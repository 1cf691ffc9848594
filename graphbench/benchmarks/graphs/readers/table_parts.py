"""Graphs of a folder of tables part by part, so that tables may be longer than memory.

Where the rows of every table are grouped by graph, and the graphs stand in one order in all of them, as whoever wrote
them graph by graph left them, the tables are read side by side in chunks. Other tables are read whole and sorted.
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
    first_table,
    graph_names,
    graphs_of,
    is_one_graph,
    known_columns,
    listed_twice,
    need,
    read_frames,
    sorted_frame,
    table_paths,
    unknown_graph,
    without_graph,
)
from graphbench.errors import BadInput
from graphbench.tables.frame_chunks import CHUNK, FrameChunks, ReadWhole, in_chunks, read_head
from graphbench.tables.frames import row_words, tell_layout

logger = logging.getLogger(__name__)


def parts_of_tables(folder: Path, directed: bool, size: int, rows: int = CHUNK) -> Iterator[RawPart]:
    """The graphs of `read_tables` in parts; a row that does not fit its graph is an error of that graph alone.

    What is in memory is a chunk and a part of each table, and 8 bytes for each graph while the order is looked at. A
    line in the log says why tables are read whole, where they are.

    Args:
        folder: of the tables.
        directed: see `read_tables`.
        size: graphs per part.
        rows: of a table that are read at a time.

    Raises:
        BadInput: a column is missing, or a row names a graph that is not there; names file and line.
        CorruptData: a file is no table.
    """
    paths = table_paths(folder)
    try:
        tables = _side_by_side(folder, paths, rows)
        ahead = {name: _RowsAhead(table.frames()) for name, table in tables.items()}
    except ReadWhole as reason:
        logger.info("%s, so the tables are read whole.", reason)
        frames = read_frames(folder)
        names = graph_names(paths, frames)
        ahead = {name: _RowsAhead(iter([sorted_frame(paths[name], frame, names)])) for name, frame in frames.items()}
    return _parts(folder, paths, ahead, directed, size)


def _side_by_side(folder: Path, paths: Mapping[str, Path], rows: int) -> dict[str, FrameChunks]:
    """The tables in chunks, when it is known that they can be read side by side.

    Raises:
        ReadWhole: they cannot.
        BadInput, CorruptData: as `parts_of_tables`.
    """
    heads = {name: read_head(path, known_columns(name)) for name, path in paths.items()}
    if is_one_graph({name: head.names for name, head in heads.items()}):
        raise ReadWhole(f"{folder}: no table has a column {KEY}")
    for name, head in heads.items():
        need(head.path, name, head.names)
    tables = {name: in_chunks(head, rows) for name, head in heads.items()}
    check_order(tables)
    for table in tables.values():
        tell_layout(table.head.path, table.head.separator, table.head.read_for, table.commas)
    return tables


class _RowsAhead:
    """The rows of a table that no graph has taken yet; those of one graph stand together.

    Args:
        frames: at least one; the index says which row of the file.
    """

    def __init__(self, frames: Iterator[pd.DataFrame]) -> None:
        self._frames = frames
        self._held: deque[tuple[pd.DataFrame, np.ndarray]] = deque()
        self._read()
        self._none = self._held[0][0].iloc[:0]

    def _read(self) -> bool:
        """Hold one chunk more; False at the end of the table."""
        frame = next(self._frames, None)
        if frame is not None:
            self._held.append((frame, run_names(frame[KEY])))
        return frame is not None

    def next_names(self, count: int) -> list[str]:
        """The graphs that come next, so many at most."""
        found: dict[str, None] = {}
        for name in self._owners():
            found[name] = None
            if len(found) == count:
                break
        return list(found)

    def _owners(self) -> Iterator[str]:
        """The graph of every row that is left."""
        for _, owners in tuple(self._held):
            yield from owners
        while self._read():
            yield from self._held[-1][1]

    def take(self, names: Sequence[str]) -> pd.DataFrame:
        """The rows of the graphs that come next, those that have some."""
        wanted, taken = set(names), []
        while self._held or self._read():
            frame, owners = self._held.popleft()
            count = next((row for row, name in enumerate(owners) if name not in wanted), len(frame))
            if count:
                taken.append(frame.iloc[:count])
            if count < len(frame):
                self._held.appendleft((frame.iloc[count:], owners[count:]))
                break
        return pd.concat(taken) if taken else self._none


def _parts(
    folder: Path, paths: Mapping[str, Path], ahead: Mapping[str, _RowsAhead], directed: bool, size: int
) -> Iterator[RawPart]:
    first = ahead[first_table(ahead)]
    while names := first.next_names(size):
        frames = {name: rows.take(names) for name, rows in ahead.items()}
        named = "nodes" in frames and NODE_NAME in frames["nodes"]
        yield RawPart(names, partial(_graphs, folder, paths, frames, names, directed), named)


def _graphs(
    folder: Path,
    paths: Mapping[str, Path],
    frames: Mapping[str, pd.DataFrame],
    names: Sequence[str],
    directed: bool,
    rows: Sequence[int],
) -> RawGraphs:
    """Some graphs of a part; raises as `graphs_of` does."""
    chosen = [names[row] for row in rows]
    if len(chosen) < len(names):
        frames = {name: frame[frame[KEY].astype(str).isin(chosen)] for name, frame in frames.items()}
    return graphs_of(folder, paths, frames, chosen, directed)


def check_order(tables: Mapping[str, FrameChunks]) -> None:
    """Refuse tables that cannot be read side by side.

    Reads nothing but the column `graph` of each table. The first table is `graphs`, or `nodes` where that is not there:
    of each of its graphs 8 bytes stay in memory, a hash of the name, by which one that returns is found. The other
    tables are walked beside it, which keeps nothing.

    Args:
        tables: in the order of `TABLES`, all with a column `graph`.

    Raises:
        ReadWhole: rows of a graph stand apart, or graphs in another order than in the first table.
        BadInput: as for tables that are read whole: a row names no graph, or one that is not there, or `graphs` lists
            one twice.
    """
    first = first_table(tables)
    _check_first(tables[first], listed_once=first == "graphs")
    for name, table in tables.items():
        if name != first:
            _walk(tables[first], table)


def run_names(column: pd.Series) -> np.ndarray:
    """Names of the graphs of all rows, as text; None where a row has none."""
    names = np.array(column.astype(str), dtype=object)
    names[column.isna().to_numpy()] = None
    return names


def _runs(table: FrameChunks, every_row: bool = False) -> Iterator[tuple[np.ndarray, np.ndarray]]:
    """Names and first rows of the groups of equal names that stand together, chunk by chunk.

    Args:
        table: with a column `graph`.
        every_row: take every row for a group of its own.
    """
    before: object = np.nan  # unlike any name
    for frame in table.frames(KEY):
        names = run_names(frame[KEY])
        if len(names):
            new = np.concatenate([[names[0] != before], names[1:] != names[:-1]]) | every_row
            before = names[-1]
            yield names[new], frame.index.to_numpy()[new]


def _each_run(table: FrameChunks) -> Iterator[tuple[str | None, int]]:
    for names, rows in _runs(table):
        yield from zip(names, rows.tolist(), strict=True)


def _check_first(table: FrameChunks, listed_once: bool) -> None:
    """Raise where a row names no graph, or one that was left before."""
    path, hashes = table.head.path, array("Q")
    for names, rows in _runs(table, listed_once):
        if missing := [row for name, row in zip(names, rows.tolist(), strict=True) if name is None]:
            raise without_graph(path, missing[0])
        hashes.frombytes(pd.util.hash_array(names, categorize=False).tobytes())
    ordered = np.frombuffer(hashes, dtype=np.uint64)
    ordered.sort()  # in place: it may be long
    twice = ordered[1:][ordered[1:] == ordered[:-1]]
    if not len(twice):
        return
    seen: dict[str, int] = {}
    for names, rows in _runs(table, listed_once):
        suspect = np.isin(pd.util.hash_array(names, categorize=False), twice)
        for name, row in zip(names[suspect], rows[suspect].tolist(), strict=True):
            if name in seen:  # and not another name with that hash
                raise listed_twice(path, row, name) if listed_once else _apart(table, name, seen[name], row)
            seen[name] = row


def _walk(first: FrameChunks, table: FrameChunks) -> None:
    """Find each group of a table behind the one before it in the first table."""
    known = _each_run(first)
    for name, row in _each_run(table):
        if name is None or not any(name == other for other, _ in known):
            raise _out_of_order(first, table, name, row)


def _out_of_order(first: FrameChunks, table: FrameChunks, name: str | None, row: int) -> BadInput | ReadWhole:
    """Why a graph was not found where it should be."""
    path = table.head.path
    if name is None or not any(name == other for other, _ in _each_run(first)):
        return unknown_graph(path, row, "nan" if name is None else name)
    before = next(other for found, other in _each_run(table) if found == name)
    if before != row:
        return _apart(table, name, before, row)
    beside = first.head.path.name
    return ReadWhole(f"{path.name}: graph {name} ({row_words(path, row)}) stands in another order than in {beside}")


def _apart(table: FrameChunks, name: str, row: int, other: int) -> ReadWhole:
    path = table.head.path
    return ReadWhole(f"{path.name}: rows of graph {name} stand apart ({row_words(path, row, other)})")
