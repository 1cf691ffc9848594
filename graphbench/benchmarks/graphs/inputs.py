"""Graphs that nobody trained on, with the features of a benchmark."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator, Sequence
from itertools import chain, islice, product
from typing import Any

import pandas as pd
import torch

from graphbench.benchmarks.graphs.data_objects import raw_from_objects
from graphbench.benchmarks.graphs.raw import OneGraph, RawGraphs, RawPart, Unread, parts_of_raw, stack
from graphbench.benchmarks.graphs.sources import Source
from graphbench.contracts import GraphTable, InputPart
from graphbench.errors import BadInput, GraphbenchError

#: Makes graphs with their features out of raw ones.
MakeTable = Callable[[RawGraphs], GraphTable]


@contextlib.contextmanager
def told_as_input() -> Iterator[None]:
    """Errors of a source name the option that names new inputs, not that of the data to train on."""
    try:
        yield
    except GraphbenchError as error:
        if not str(error).startswith("--data.source"):
            raise
        raise type(error)(str(error).replace("--data.source", "--input", 1)) from error


def parts_of_source(
    source: Source, needed: Sequence[tuple[str, str]], table_of: MakeTable, size: int
) -> Iterator[InputPart]:
    """Graphs of a source part by part, by their names; one that cannot be used is a problem of its row.

    Args:
        source: of the graphs; where it gives them one by one or in parts, never more than a part is in memory.
        needed: `(level, name)` of the columns that are features.
        table_of: makes the features of graphs.
        size: graphs per part.

    Raises:
        BadInput: there is no graph, or they lack a column; of graphs that come one by one, the first is asked.
    """
    if source.unread is None:
        parts = parts_of_raw(source.read(), size) if source.parts is None else source.parts(size)
        return _parts_of_raw(parts, needed, table_of, source.origin)
    first = next(source.unread(), None)
    if first is None:
        raise BadInput(f"{source.origin} holds no graph.")
    asked: list[RawGraphs] = []
    with contextlib.suppress(GraphbenchError):  # which is a problem of its row
        asked.append(stack([first.read()], source.origin))
    for raw, (level, name) in product(asked, needed):
        raw.column(level, name)
    return _parts_of_unread(source.unread(), table_of, size, source.origin)


def _parts_of_raw(
    parts: Iterator[RawPart], needed: Sequence[tuple[str, str]], table_of: MakeTable, origin: str
) -> Iterator[InputPart]:
    first = next(parts, None)
    if first is None:
        raise BadInput(f"{origin} holds no graph.")
    no_graph = first.join([])  # which has all columns nevertheless
    for level, name in needed:
        no_graph.column(level, name)
    return (_part_of_raw(part, table_of) for part in chain([first], parts))


def _part_of_raw(part: RawPart, table_of: MakeTable) -> InputPart:
    rows, problems, table = _usable(range(len(part.names)), part.join, table_of)
    return InputPart(pd.DataFrame({"id": part.names}), table, rows, problems)


def _parts_of_unread(graphs: Iterator[Unread], table_of: MakeTable, size: int, origin: str) -> Iterator[InputPart]:
    while chosen := list(islice(graphs, size)):
        yield _part_of_unread(chosen, table_of, origin)


def _part_of_unread(chosen: Sequence[Unread], table_of: MakeTable, origin: str) -> InputPart:
    read: dict[int, OneGraph] = {}
    problems: dict[int, str] = {}
    for row, unread in enumerate(chosen):
        try:
            read[row] = unread.read()
        except GraphbenchError as error:
            problems[row] = str(error)
    rows, found, table = _usable(list(read), lambda rows: stack([read[row] for row in rows], origin), table_of)
    names = [read[row].name if row in read else unread.name for row, unread in enumerate(chosen)]
    return InputPart(pd.DataFrame({"id": names}), table, rows, problems | found)


def parts_of_objects(objects: Sequence[Any], directed: bool, table_of: MakeTable, size: int) -> Iterator[InputPart]:
    """Graphs of Python part by part; one that cannot be used is a problem of its row.

    Args:
        objects: PyG's `Data`, mappings of tensors, or networkx graphs.
        directed: see `raw_from_objects`.
        table_of: makes their features.
        size: graphs per part.
    """
    for start in range(0, len(objects), size):
        count = len(objects[start : start + size])

        def join(rows: Sequence[int], start: int = start) -> RawGraphs:
            origin = f"input {start + rows[0]}" if len(rows) == 1 else "the inputs"
            return raw_from_objects([objects[start + row] for row in rows], origin, directed)

        rows, problems, table = _usable(range(count), join, table_of)
        yield InputPart(pd.DataFrame(index=pd.RangeIndex(count)), table, rows, problems)


def _usable(
    rows: Sequence[int], join: Callable[[Sequence[int]], RawGraphs], table_of: MakeTable
) -> tuple[list[int], dict[int, str], GraphTable]:
    """Rows whose graphs can be used, why the others cannot, and the features of the former.

    All are tried at once; only where that fails, each alone.
    """

    def features(some: Sequence[int]) -> GraphTable:
        raw = join(some)
        raw.check()
        return table_of(raw)

    problems: dict[int, str] = {}
    try:
        return list(rows), problems, features(rows) if rows else _no_graph()
    except GraphbenchError:  # a loop over graphs, which is for files with faults alone
        for row in rows:
            try:
                features([row])
            except GraphbenchError as error:
                problems[row] = str(error)
    good = [row for row in rows if row not in problems]
    return good, problems, features(good) if good else _no_graph()


def _no_graph() -> GraphTable:
    return GraphTable.from_graphs([{"num_nodes": 1, "edge_index": torch.empty(2, 0, dtype=torch.int64)}]).slice(0, 0)
