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
def told_as(option: str) -> Iterator[None]:
    """Errors of a source name the option that it was given by, not that of the data to train on."""
    try:
        yield
    except GraphbenchError as error:
        if not str(error).startswith("--data.source"):
            raise
        raise type(error)(str(error).replace("--data.source", option, 1)) from error


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
    frame = pd.DataFrame({"id": part.names})
    return _with_graphs(frame, range(len(part.names)), part.join, table_of, part.names_nodes)


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
    names = [read[row].name if row in read else unread.name_in_vain() for row, unread in enumerate(chosen)]
    frame, join = pd.DataFrame({"id": names}), lambda rows: stack([read[row] for row in rows], origin)
    part = _with_graphs(frame, list(read), join, table_of, chosen[0].names_nodes)
    part.problems |= problems
    return part


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

        yield _with_graphs(pd.DataFrame(index=pd.RangeIndex(count)), range(count), join, table_of)


def _with_graphs(
    frame: pd.DataFrame,
    rows: Sequence[int],
    join: Callable[[Sequence[int]], RawGraphs],
    table_of: MakeTable,
    names_nodes: bool = False,
) -> InputPart:
    """A part with those of its rows whose graphs can be used, and why the others cannot.

    All are tried at once; only where that fails, each alone.

    Args:
        frame: all rows of the part.
        rows: those that have a graph.
        join: makes the graphs of some rows.
        table_of: makes the features of graphs.
        names_nodes: whether the source names nodes, which counts where no graph can be used.
    """

    def usable(some: Sequence[int], problems: dict[int, str]) -> InputPart:
        if not some:
            return InputPart(frame, _no_graph(), [], problems, {} if names_nodes else None)
        raw = join(some)
        raw.check()
        names = raw.names_of_nodes()
        called = None if names is None else dict(zip(some, names, strict=True))
        return InputPart(frame, table_of(raw), list(some), problems, called)

    try:
        return usable(rows, {})
    except GraphbenchError:  # a loop over graphs, which is for files with faults alone
        problems: dict[int, str] = {}
        for row in rows:
            try:
                usable([row], {})
            except GraphbenchError as error:
                problems[row] = str(error)
    return usable([row for row in rows if row not in problems], problems)


def _no_graph() -> GraphTable:
    return GraphTable.from_graphs([{"num_nodes": 1, "edge_index": torch.empty(2, 0, dtype=torch.int64)}]).slice(0, 0)
