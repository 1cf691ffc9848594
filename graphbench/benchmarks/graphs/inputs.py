"""Graphs that nobody trained on, with the features of a benchmark."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from itertools import islice, product
from typing import Any

import pandas as pd
import torch

from graphbench.benchmarks.graphs.data_objects import raw_from_objects
from graphbench.benchmarks.graphs.raw import OneGraph, RawGraphs, Unread, stack
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
        source: of the graphs; where it gives them one by one, never more than a part of them is in memory.
        needed: `(level, name)` of the columns that are features.
        table_of: makes the features of graphs.
        size: graphs per part.

    Raises:
        BadInput: there is no graph, or they lack a column; of graphs that come one by one, the first is asked.
    """
    if source.unread is None:
        raw = source.read()
        for level, name in needed:
            raw.column(level, name)
        return _parts_of_raw(raw, table_of, size)
    first = next(source.unread(), None)
    if first is None:
        raise BadInput(f"{source.origin} holds no graph.")
    asked: list[RawGraphs] = []
    with contextlib.suppress(GraphbenchError):  # which is a problem of its row
        asked.append(stack([first.read()], source.origin))
    for raw, (level, name) in product(asked, needed):
        raw.column(level, name)
    return _parts_of_unread(source.unread(), table_of, size, source.origin)


def _parts_of_raw(raw: RawGraphs, table_of: MakeTable, size: int) -> Iterator[InputPart]:
    for start in range(0, len(raw), size):
        numbers = range(start, min(start + size, len(raw)))
        rows, problems = _tried([partial(raw.select, [number]) for number in numbers], table_of)
        table = table_of(raw.select([numbers[row] for row in rows])) if rows else _no_graph()
        yield InputPart(pd.DataFrame({"id": [raw.names[n] for n in numbers]}), table, rows, problems)


def _parts_of_unread(graphs: Iterator[Unread], table_of: MakeTable, size: int, origin: str) -> Iterator[InputPart]:
    while chosen := list(islice(graphs, size)):
        yield _part_of_unread(chosen, table_of, origin)


def _part_of_unread(chosen: Sequence[Unread], table_of: MakeTable, origin: str) -> InputPart:
    graphs: dict[int, OneGraph] = {}

    def alone(row: int) -> RawGraphs:
        graphs[row] = chosen[row].read()
        return stack([graphs[row]], origin)

    rows, problems = _tried([partial(alone, row) for row in range(len(chosen))], table_of)
    names = [graphs[row].name if row in graphs else unread.name for row, unread in enumerate(chosen)]
    table = table_of(stack([graphs[row] for row in rows], origin)) if rows else _no_graph()
    return InputPart(pd.DataFrame({"id": names}), table, rows, problems)


def parts_of_objects(objects: Sequence[Any], directed: bool, table_of: MakeTable, size: int) -> Iterator[InputPart]:
    """Graphs of Python part by part; one that cannot be used is a problem of its row.

    Args:
        objects: PyG's `Data`, mappings of tensors, or networkx graphs.
        directed: see `raw_from_objects`.
        table_of: makes their features.
        size: graphs per part.
    """
    for start in range(0, len(objects), size):
        chosen = objects[start : start + size]
        reads = [
            lambda thing=thing, row=start + row: raw_from_objects([thing], f"input {row}", directed)  # type: ignore[misc]
            for row, thing in enumerate(chosen)
        ]
        rows, problems = _tried(reads, table_of)
        if rows:
            table = table_of(raw_from_objects([chosen[row] for row in rows], "the inputs", directed))
        else:
            table = _no_graph()
        yield InputPart(pd.DataFrame(index=pd.RangeIndex(len(chosen))), table, rows, problems)


def _tried(reads: Sequence[Callable[[], RawGraphs]], table_of: MakeTable) -> tuple[list[int], dict[int, str]]:
    """Which graphs can be used, each tried alone, and why the others cannot."""
    problems: dict[int, str] = {}
    for row, read in enumerate(reads):
        try:
            one = read()
            one.check()
            table_of(one)
        except GraphbenchError as error:
            problems[row] = str(error)
    return [row for row in range(len(reads)) if row not in problems], problems


def _no_graph() -> GraphTable:
    return GraphTable.from_graphs([{"num_nodes": 1, "edge_index": torch.empty(2, 0, dtype=torch.int64)}]).slice(0, 0)
