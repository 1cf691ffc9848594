"""Graphs that a user holds in Python, with the fields that a specification names: PyG's `Data` and networkx graphs."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import pandas as pd
import torch
from torch_geometric.data import Data

from graphbench.contracts import BenchmarkSpec, GraphTable, InputPart
from graphbench.contracts.pyg import named_features
from graphbench.data.checks import check_graphs
from graphbench.errors import BadInput


def is_graph(thing: Any) -> bool:
    """Whether this is PyG's `Data` or a networkx graph; networkx is not imported for it."""
    return isinstance(thing, Data) or (hasattr(thing, "number_of_nodes") and hasattr(thing, "adjacency"))


def read_graphs(graphs: Sequence[Any], spec: BenchmarkSpec, size: int) -> Iterator[InputPart]:
    """Graphs part by part; one that is not what the specification says is a problem of its row.

    Args:
        graphs: `Data` or networkx graphs. Their fields have the names of a batch: `x`, `x_dense`, `pos`, `edge_attr`,
            `edge_dense`; `x` and `edge_attr` of real numbers are read as `x_dense` and `edge_dense`. An edge of an
            undirected networkx graph counts in both directions.
        spec: which of them there must be.
        size: graphs per part.

    Raises:
        BadInput: an object is no graph.
    """
    for number, thing in enumerate(graphs):
        if not is_graph(thing):
            raise BadInput(
                f"{spec.name}: input {number} is of type {type(thing).__name__}; expected torch_geometric.data.Data or "
                "a networkx graph."
            )
    for start in range(0, len(graphs), size):
        chosen = graphs[start : start + size]
        found: dict[int, dict[str, Any]] = {}
        problems: dict[int, str] = {}
        for row, graph in enumerate(chosen):
            try:
                found[row] = _fields(graph, spec)
                check_graphs(GraphTable.from_graphs([found[row]]), spec, "input")
            except (BadInput, ValueError, TypeError, RuntimeError, IndexError, KeyError) as error:
                found.pop(row, None)
                problems[row] = str(error).removeprefix("input: ").replace("graph 0 ", "the graph ")
        frame = pd.DataFrame(index=pd.RangeIndex(len(chosen)))
        yield InputPart(frame, GraphTable.from_graphs(found.values()), list(found), problems)


def _fields(graph: Any, spec: BenchmarkSpec) -> dict[str, Any]:
    """What the specification asks for, as `GraphTable.from_graphs` takes it."""
    data = graph if isinstance(graph, Data) else _from_networkx(graph)
    count = data.num_nodes
    if not count:
        raise BadInput("the graph has no nodes")
    edges = data.edge_index if data.edge_index is not None else torch.empty(2, 0, dtype=torch.int64)
    return {"num_nodes": count, "edge_index": edges} | named_features(data, spec, count, edges.shape[1])


def _from_networkx(graph: Any) -> Data:
    from torch_geometric.utils import from_networkx

    return from_networkx(graph)
