"""Predictions of edges: from their two ends, and from what is known of the edge itself."""

from __future__ import annotations

from typing import get_args

import torch
from torch import Tensor, nn

from graphbench.contracts import BenchmarkSpec, GraphBatch, Representation
from graphbench.errors import check_choice
from graphbench.nn.features import EdgeEncoder
from graphbench.nn.heads import EdgeInput, HeadConfig


class EdgeHead(nn.Module):
    """Predictions of directed edges i -> j by an MLP f of `[x_i, x_j, e_ij]`.

    e_ij is the architecture's representation of the edge where it has one, else its encoded features, else nothing;
    with `edge_input="ends"` it is left out, as in the edge predictions of "Benchmarking Graph Neural Networks".

    Symmetric predictions are `(f(x_i, x_j, m) + f(x_j, x_i, m)) / 2`, where m is the mean of e_ij and of the edges
    j -> i (of their mean where they are several; e_ij alone where there is none): the same for i -> j and j -> i
    in a graph without parallel edges.

    Args:
        dim: width of nodes.
        output_dim: numbers per edge.
        config: options of the head.
        spec: features of edges, and whether both directions of an edge have one target (`extra["edges"]`).
        edge_dim: width of the architecture's representation of edges; 0 where it has none.

    Raises:
        BadInput: `edge_input` is not known.

    Examples:
        >>> from graphbench.testing import tiny_spec, tiny_table
        >>> spec = tiny_spec("edge-regression")
        >>> batch = tiny_table(spec, sizes=[3, 4]).batch([0, 1])
        >>> head = EdgeHead(8, 2, HeadConfig(symmetric=True), spec)
        >>> out = head(Representation(node=torch.randn(7, 8)), batch)
        >>> out.shape == (batch.edge_index.shape[1], 2)
        True
        >>> there, back = (batch.edge_index.T == torch.tensor([[0, 1]])), (batch.edge_index.T == torch.tensor([[1, 0]]))
        >>> torch.allclose(out[there.all(1)], out[back.all(1)])
        True
    """

    def __init__(self, dim: int, output_dim: int, config: HeadConfig, spec: BenchmarkSpec, edge_dim: int = 0) -> None:
        super().__init__()
        check_choice("edge_input of a head", config.edge_input, get_args(EdgeInput))
        reads, self.encoder = config.edge_input == "all", None
        self.reads_representation = reads and edge_dim > 0
        if reads and not edge_dim and (spec.edge.vocabularies or spec.edge.dense):
            self.encoder, edge_dim = EdgeEncoder(spec, dim), dim
        undirected = spec.extra.get("edges") == "undirected"
        self.symmetric = undirected if config.symmetric is None else config.symmetric
        self.mlp = config.mlp(2 * dim + (edge_dim if reads else 0), output_dim)

    def forward(self, representation: Representation, batch: GraphBatch) -> Tensor:
        """`[num_edges, output_dim]`, in the order of `edge_index`."""
        node, (source, target) = representation.node, batch.edge_index
        first, second = node.index_select(0, source), node.index_select(0, target)
        edge = representation.edge if self.reads_representation else None
        if self.encoder is not None:
            edge = self.encoder(batch)
        if not self.symmetric:
            return self._mlp(first, second, edge)
        if edge is not None:
            edge = with_reverse(edge, batch.edge_index, node.shape[0])
        return (self._mlp(first, second, edge) + self._mlp(second, first, edge)) / 2

    def _mlp(self, first: Tensor, second: Tensor, edge: Tensor | None) -> Tensor:
        parts = (first, second) if edge is None else (first, second, edge.to(first.dtype))
        out: Tensor = self.mlp(torch.cat(parts, dim=-1))
        return out


def with_reverse(edge: Tensor, edge_index: Tensor, num_nodes: int) -> Tensor:
    """Return the mean of every edge and its reverse one `[num_edges, dim]`; an edge without one stays.

    Several reverse edges count as their mean. Nothing is read from the device.

    Args:
        edge: `[num_edges, dim]`.
        edge_index: `[2, num_edges]`.
        num_nodes: of the batch.

    Examples:
        >>> with_reverse(torch.tensor([[1.0], [3.0], [5.0]]), torch.tensor([[0, 1, 1], [1, 0, 2]]), num_nodes=3)
        tensor([[2.],
                [2.],
                [5.]])
    """
    if not len(edge):
        return edge
    source, target = edge_index
    key, wanted = source * num_nodes + target, target * num_nodes + source
    order = key.sort().values
    own, other = torch.searchsorted(order, key), torch.searchsorted(order, wanted).clamp(max=len(edge) - 1)
    sums = torch.zeros_like(edge).index_add(0, own, edge)
    counts = torch.zeros_like(key).index_add(0, own, torch.ones_like(key))
    mean = sums.index_select(0, other) / counts.index_select(0, other).clamp(min=1)[:, None].to(edge.dtype)
    known = order.index_select(0, other) == wanted
    return torch.where(known[:, None], (edge + mean) / 2, edge)
