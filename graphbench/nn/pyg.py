"""Plain graphs of PyG in front of these layers: where their nodes lie, and their encodings."""

from __future__ import annotations

import copy
from itertools import chain
from typing import TypeVar

import torch
from torch import Tensor, nn
from torch_geometric.data import Data

from graphbench.contracts import Column, Encoding, GraphBatch, GraphTable
from graphbench.contracts.architecture import declared_encodings, merge_encodings
from graphbench.contracts.table import EDGE, EDGE_INDEX, NODE, pointer
from graphbench.errors import BadInput

Graphs = TypeVar("Graphs", bound=Data)

#: What encodings may read beside the edges, where a batch has it: name -> axis.
_READ = {"x": NODE, "x_dense": NODE, "pos": NODE, "edge_attr": EDGE, "edge_dense": EDGE}


def graphs_of_nodes(batch: Data | Tensor) -> tuple[Tensor, Tensor]:
    """Graph of each node `[num_nodes]` and first node of each graph `[num_graphs + 1]`.

    Args:
        batch: a `GraphBatch`; a `Batch` of PyG; a single `Data`, which is one graph; or the vector `batch` itself,
            whose largest entry is the last graph.

    Raises:
        BadInput: the nodes of a graph do not stand together, in the order of the graphs.

    Examples:
        >>> graphs_of_nodes(torch.tensor([0, 0, 0, 1, 1]))[1]
        tensor([0, 3, 5])
        >>> graphs_of_nodes(Data(num_nodes=3))
        (tensor([0, 0, 0]), tensor([0, 3]))
    """
    if isinstance(batch, GraphBatch):
        return batch.batch, batch.ptr
    vector = batch if isinstance(batch, Tensor) else batch.get("batch")
    if vector is None:
        assert isinstance(batch, Data)
        vector = torch.zeros(int(batch.num_nodes or 0), dtype=torch.int64, device=_device(batch))
        return vector, torch.tensor([0, len(vector)], device=vector.device)
    if vector.dim() != 1 or vector.is_floating_point() or bool((vector.diff() < 0).any()):
        raise BadInput(
            "batch must give the graph of every node, ascending, as PyG's Batch.from_data_list does; got "
            f"{vector.dtype} {list(vector.shape)} that is not."
        )
    ptr = None if isinstance(batch, Tensor) else batch.get("ptr")
    return vector, _pointer(vector) if ptr is None else ptr


def add_encodings(batch: Graphs, *parts: Encoding | nn.Module) -> Graphs:
    """The same graphs with the fields of encodings, computed here and now on the CPU.

    Benchmarks compute encodings once and keep them; this is for graphs that come from elsewhere.

    Args:
        batch: a `Batch` or `Data` of PyG, on any device. Encodings read its `edge_index`; those that read features
            take `x`, `x_dense`, `pos`, `edge_attr` and `edge_dense`.
        parts: encodings, or modules (positional encoders, whole models) whose encodings are meant.

    Returns:
        A shallow copy with the fields; `batch` stays as it is.

    Raises:
        BadInput: two parts want one encoding with different parameters, or nodes or edges are not in the order of the
            graphs.

    Examples:
        >>> from torch_geometric.data import Batch
        >>> from graphbench.encodings import RWSE
        >>> ring = Data(edge_index=torch.tensor([[0, 1, 2, 1, 2, 0], [1, 2, 0, 0, 1, 2]]), num_nodes=3)
        >>> add_encodings(Batch.from_data_list([ring, ring]), RWSE(4)).rwse[0]
        tensor([0.0000, 0.5000, 0.2500, 0.3750])
    """
    named = [(part,) if isinstance(part, Encoding) else declared_encodings(part) for part in parts]
    encodings = merge_encodings(chain.from_iterable(named))
    table = _table(batch)
    for encoding in encodings:
        encoded = encoding.compute(table)
        table = table.with_columns(encoded.columns, encoding.layout, encoded.ptr)
    gathered, device, out = table.batch(range(len(table))), _device(batch), copy.copy(batch)
    fields = {field for encoding in encodings for field in encoding.layout}
    axes = {column.axis for name, column in table.layout.items() if name in fields} - {NODE, EDGE}
    fields |= {f"{axis}_{what}" for axis in axes for what in ("ptr", "batch")} & set(gathered.keys())
    for field in sorted(fields):
        out[field] = gathered[field].to(device)
    return out


def _table(batch: Data) -> GraphTable:
    """The graphs as columns, with what encodings may read."""
    graph_of, ptr = (tensor.cpu() for tensor in graphs_of_nodes(batch))
    if batch.edge_index is None:
        raise BadInput("add_encodings needs graphs with an edge_index, but the batch has none.")
    edges = batch.edge_index.cpu()
    graph_of_edge = graph_of[edges[0]]
    if bool((graph_of_edge.diff() < 0).any()) or not torch.equal(graph_of_edge, graph_of[edges[1]]):
        raise BadInput("edge_index must hold the edges of one graph after the other, and no edge between two graphs.")
    columns, layout = {"edge_index": (edges - ptr[graph_of_edge]).t().contiguous()}, {"edge_index": EDGE_INDEX}
    for name, axis in _READ.items():
        value = batch.get(name)
        if value is not None:
            columns[name], layout[name] = value.cpu(), Column(axis)
    of_edges = pointer(torch.bincount(graph_of_edge, minlength=len(ptr) - 1))
    return GraphTable(columns, layout, {NODE: ptr, EDGE: of_edges})


def _pointer(vector: Tensor) -> Tensor:
    """First row of each graph; no graph is empty but by a gap in the numbers."""
    sizes = torch.bincount(vector)
    return torch.cat([sizes.new_zeros(1), sizes.cumsum(0)])


def _device(batch: Data) -> torch.device:
    edges = batch.get("edge_index")
    return torch.device("cpu") if edges is None else edges.device
