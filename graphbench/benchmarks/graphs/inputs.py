"""Graphs that nobody trained on, with the features of a benchmark."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any

import pandas as pd
import torch

from graphbench.benchmarks.graphs.data_objects import raw_from_objects
from graphbench.benchmarks.graphs.raw import RawGraphs
from graphbench.contracts import GraphTable, InputPart
from graphbench.errors import GraphbenchError

#: Makes graphs with their features out of raw ones.
MakeTable = Callable[[RawGraphs], GraphTable]


def parts_of_source(raw: RawGraphs, table_of: MakeTable, size: int) -> Iterator[InputPart]:
    """Graphs of a source part by part, by their names; one that cannot be used is a problem of its row.

    Args:
        raw: the graphs.
        table_of: makes their features.
        size: graphs per part.
    """
    for start in range(0, len(raw), size):
        numbers = range(start, min(start + size, len(raw)))
        rows, problems = _tried([lambda n=number: raw.select([n]) for number in numbers], table_of)  # type: ignore[misc]
        table = table_of(raw.select([numbers[row] for row in rows])) if rows else _no_graph()
        yield InputPart(pd.DataFrame({"id": [raw.names[n] for n in numbers]}), table, rows, problems)


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
