"""Checks of representations and traces, shared by the contracts."""

from __future__ import annotations

import math

import torch
from torch import Tensor

from graphbench.contracts import GraphBatch, LayerTrace, Representation


def parts(representation: Representation) -> dict[str, Tensor]:
    """Return the tensors of a representation, by name."""
    named = {name: getattr(representation, name) for name in ("node", "edge", "graph", "tokens")}
    return {name: tensor for name, tensor in named.items() if tensor is not None}


def by_graph(representation: Representation, batch: GraphBatch) -> list[dict[str, Tensor]]:
    """Split the parts by graph; extra tokens are summed, because the model may order them freely."""
    graphs = range(batch.num_graphs)
    split = [{"node": representation.node[batch.batch == graph]} for graph in graphs]
    for graph in graphs:
        if representation.edge is not None:
            split[graph]["edge"] = representation.edge[batch.batch[batch.edge_index[0]] == graph]
        if representation.graph is not None:
            split[graph]["graph"] = representation.graph[graph]
        if representation.tokens is not None and representation.tokens_batch is not None:
            split[graph]["tokens"] = representation.tokens[representation.tokens_batch == graph].sum(0)
    return split


def check_representation(
    representation: Representation, batch: GraphBatch, dim: int, edge_dim: int | None = None
) -> None:
    """Check for the shapes documented by `Representation` and finite values; edges of any width without `edge_dim`."""
    representation.check(batch, dim, edge_dim)
    if edge_dim is not None:
        given_dim = 0 if representation.edge is None else representation.edge.shape[-1]
        assert given_dim == edge_dim, (
            f"edge_dim is {edge_dim}, but the representation of edges has the width {given_dim}"
        )
    for name, tensor in parts(representation).items():
        assert tensor.isfinite().all(), f"{name} has values that are not finite"


def check_trace(trace: LayerTrace, batch: GraphBatch) -> None:
    """Check for the shapes documented by `LayerTrace` and finite values."""
    where = f"trace of layer {trace.layer} {trace.name}".rstrip()
    num_tokens = len(trace.batch)
    assert trace.tokens.dim() == 2, f"{where}: tokens must be [T, dim], but are {list(trace.tokens.shape)}"
    assert len(trace.tokens) == num_tokens, f"{where}: {len(trace.tokens)} tokens, but batch names {num_tokens}"
    sizes = torch.bincount(trace.batch, minlength=batch.num_graphs).tolist()
    assert len(sizes) == batch.num_graphs, f"{where}: batch names more than {batch.num_graphs} graphs"
    assert trace.tokens.isfinite().all(), f"{where}: tokens are not finite"
    if trace.num_nodes is not None:
        assert trace.num_nodes.tolist() == batch.ptr.diff().tolist(), f"{where}: num_nodes are not those of the batch"
    if trace.values is not None:
        assert trace.values.dim() == 3, f"{where}: values must be [T, H, dim], but are {list(trace.values.shape)}"
        assert len(trace.values) == num_tokens, f"{where}: {len(trace.values)} values for {num_tokens} tokens"
        assert trace.values.isfinite().all(), f"{where}: values are not finite"
    if trace.attention is not None:
        _check_attention(trace, sizes, where)
    _check_optional(trace, num_tokens, where)


def _check_optional(trace: LayerTrace, num_tokens: int, where: str) -> None:
    """Check fields that diagnostics read if they are set."""
    for name, dimensions in (("input", 2), ("substructure", 1)):
        tensor = getattr(trace, name)
        if tensor is not None:
            assert tensor.dim() == dimensions, f"{where}: {name} is {list(tensor.shape)}"
            assert len(tensor) == num_tokens, f"{where}: {name} has {len(tensor)} rows for {num_tokens} tokens"
    if trace.substructure is not None:
        assert trace.substructure.dtype == torch.bool, f"{where}: substructure must be bool, one per token"
    assert math.isfinite(trace.residual_weight), f"{where}: residual_weight must be finite"
    if trace.mixing_weight is not None:
        assert trace.mixing_weight.numel() == 1, f"{where}: mixing_weight must be one number"


def _check_attention(trace: LayerTrace, sizes: list[int], where: str) -> None:
    """Check for one matrix per graph, with one row per token and one column per token or sampled token."""
    assert trace.attention is not None
    assert len(trace.attention) == len(sizes), f"{where}: {len(trace.attention)} matrices for {len(sizes)} graphs"
    for graph, (matrix, size) in enumerate(zip(trace.attention, sizes, strict=True)):
        columns = trace.columns[graph] if trace.columns is not None else None
        expected = (matrix.shape[0], size, size if columns is None else len(columns))
        assert tuple(matrix.shape) == expected, (
            f"{where}: attention of graph {graph} must be [H, {size}, {expected[2]}], but is {list(matrix.shape)}"
        )
        assert matrix.isfinite().all(), f"{where}: attention of graph {graph} is not finite"
        assert (matrix >= 0).all(), f"{where}: attention of graph {graph} has negative weights"
        if columns is not None and len(columns):
            lowest, highest = (int(bound) for bound in columns.aminmax())
            message = f"{where}: columns of graph {graph} must name tokens 0 .. {size - 1}, not {lowest} .. {highest}"
            assert lowest >= 0, message
            assert highest < size, message
