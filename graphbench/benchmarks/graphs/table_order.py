"""Whether tables can be read side by side: rows grouped by graph, and graphs in one order in all tables."""

from __future__ import annotations

from array import array
from collections.abc import Iterator, Mapping

import numpy as np
import pandas as pd

from graphbench.benchmarks.graphs.table_schema import KEY, first_table, listed_twice, unknown_graph, without_graph
from graphbench.errors import BadInput
from graphbench.tables.frame_chunks import FrameChunks, ReadWhole
from graphbench.tables.frames import row_words


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
