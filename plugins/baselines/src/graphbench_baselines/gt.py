"""GT: attention over edges with edge features, and a feed-forward network for nodes and edges.

Dwivedi & Bresson, "A Generalization of Transformer Networks to Graphs", 2020, arXiv 2012.09699, section 2.4.

Legend: node i attends to node j along edge j -> i; `edge_index` contains (j, i). H heads, d head width, dim = H d.
"""

from __future__ import annotations

import copy
from typing import Any

import torch
from torch import Tensor, nn

from graphbench import Architecture, BenchmarkSpec, GraphBatch, LayerTrace, PositionalEncoder, Representation, Traced
from graphbench.errors import check_divides
from graphbench.nn import (
    Categorical,
    EdgeEncoder,
    FeedForward,
    NodeEncoder,
    NormName,
    attend_along_edges,
    make_norm,
    mixed_values,
)

#: Logits are clamped to this absolute value, as in the authors' code.
_LARGEST_LOGIT = 5.0


class EdgeAttention(Traced):
    """Attention of every node to its neighbours, modulated by edge vectors.

        s_ij = (Q x_i) * (K x_j) * (E e_ij) / sqrt(d)                   element-wise, per head
        x'_i = O Drop(sum_j softmax_j(clamp(sum_d s_ij, -5, 5)) V x_j)       e'_ij = O_e Drop(s_ij)

    The authors' code adds 1e-6 to the denominator of the softmax, at most 1.5e-4 of it. The trace's matrices are zero
    without an edge; a node without neighbours has a row of zeros.

    Args:
        dim: width of nodes and edges.
        num_heads: heads H; must divide `dim`.
        dropout: probability of both dropouts.
        bias: biases in Q, K, V and E.
        edges: False omits E, O_e and their factor.

    Raises:
        BadInput: `num_heads` does not divide `dim`.
    """

    def __init__(self, dim: int, num_heads: int, dropout: float = 0.0, bias: bool = True, edges: bool = True) -> None:
        super().__init__()
        check_divides("num_heads", num_heads, "hidden_dim", dim)
        self.num_heads = num_heads
        self.dropout = nn.Dropout(dropout)
        self.qkv_map = nn.Linear(dim, 3 * dim, bias=bias)  # Q, K, V of the equations, in one product
        self.edge_map = nn.Linear(dim, dim, bias=bias) if edges else None  # E
        self.node_out = nn.Linear(dim, dim)  # O
        self.edge_out = nn.Linear(dim, dim) if edges else None  # O_e

    def forward(self, x: Tensor, edge: Tensor | None, batch: GraphBatch) -> tuple[Tensor, Tensor | None]:
        """Return mixed nodes `[num_nodes, dim]` and edges `[num_edges, dim]`, without residuals."""
        steer = None if self.edge_map is None else self.edge_map(edge)
        mixed, scores, weights = attend_along_edges(
            self.qkv_map(x), batch.edge_index, steer, self.num_heads, _LARGEST_LOGIT, with_scores=steer is not None
        )
        out = self.node_out(self.dropout(mixed))
        self.trace(lambda: self._record(x, weights, batch, out))
        if self.edge_out is None or scores is None:
            return out, None
        return out, self.edge_out(self.dropout(scores))

    @torch.no_grad()
    def _record(self, x: Tensor, weights: Tensor, batch: GraphBatch, out: Tensor) -> LayerTrace:
        return LayerTrace(
            tokens=out.detach(),
            batch=batch.batch,
            values=mixed_values(x, self.qkv_map.weight.chunk(3)[2], self.node_out.weight, self.num_heads),
            attention=matrices_of_edges(weights, batch),
            num_nodes=batch.ptr.diff(),
            input=x,
        )


class GTLayer(nn.Module):
    """Attention, then a feed-forward network, for nodes and for edges; each with residual and norm after it.

        y = Norm(x + O Drop(attention(x)))        x' = Norm(y + W2 Drop(ReLU(W1 y + b1)) + b2)

    Dropout is placed as in the authors' code: before O, and between the two maps of the feed-forward network.
    Parameters with batch norm: `6 (dim^2 + dim) + 2 (2 dim f + f + dim) + 8 dim`, f the feed-forward width.

    Args:
        dim: width of nodes and edges.
        num_heads: heads; must divide `dim`.
        ffn_dim: width f of the feed-forward networks.
        dropout: probability of every dropout.
        norm: batch, layer or none.
        released: include two unused maps, see `GT`.
        bias: biases in the maps of attention.
        edges: False omits edges.
    """

    def __init__(
        self,
        dim: int,
        num_heads: int,
        ffn_dim: int,
        dropout: float,
        norm: NormName,
        released: bool,
        bias: bool = True,
        edges: bool = True,
    ) -> None:
        super().__init__()
        self.attention = EdgeAttention(dim, num_heads, dropout, bias, edges)
        # Nodes after attention, edges after attention, nodes after FFN, edges after FFN.
        edge_norm: NormName = norm if edges else "none"
        self.norms = nn.ModuleList(make_norm(name, dim) for name in (norm, edge_norm, norm, edge_norm))
        self.node_ffn = FeedForward(dim, ffn_dim, activation_dropout=dropout)
        self.edge_ffn = FeedForward(dim, ffn_dim, activation_dropout=dropout) if edges else None
        self.unused = nn.ModuleList(nn.Linear(dim, dim) for _ in range(2 if released else 0))

    def forward(self, x: Tensor, edge: Tensor | None, batch: GraphBatch) -> tuple[Tensor, Tensor | None]:
        """Return nodes `[num_nodes, dim]` and edges `[num_edges, dim]`, of the same shapes."""
        mixed_x, mixed_edge = self.attention(x, edge, batch)
        x = self.norms[0](x + mixed_x)
        x = self.norms[2](x + self.node_ffn(x))
        if self.edge_ffn is None or edge is None or mixed_edge is None:
            return x, None
        edge = self.norms[1](edge + mixed_edge)
        return x, self.norms[3](edge + self.edge_ffn(edge))


class GT(Architecture):
    """The graph transformer over edges; positions are mapped to `hidden_dim` and added to the node features.

    Defaults are the base model of "Graph Transformers Dream of Electric Flow" (arXiv 2410.16699): all maps with bias
    and feed-forward width `hidden_dim`; the first paper has no bias in Q, K, V and twice the width.

    Time and memory: `B L (N + E) (d^2 + H)`, `B L (N + E) (d + H)`.

    Args:
        spec: the benchmark's description.
        hidden_dim: width of nodes and edges.
        num_layers: layers.
        num_heads: heads; must divide `hidden_dim`.
        ffn_dim: width of the feed-forward networks; by default `hidden_dim`.
        dropout: probability of every dropout.
        norm: batch, layer or none.
        positional_encoders: their outputs are concatenated, mapped to `hidden_dim` and added to the node features.
        categorical: how categorical features enter: xavier_uniform, normal or one_hot.
        full: attend to all other nodes of the graph, as the first paper's baseline does: the edges and their features
            are ignored, and all pairs share one learned row.
        bias: biases in the maps of attention; the first paper has none.
        edge_updates: False is the first paper's network for PATTERN and CLUSTER, which has no edge vectors.
        released: include the two unused maps per layer of the authors' code, so that parameter counts match the
            published ones; outputs do not change.

    Raises:
        BadInput: there is no layer, or `num_heads` does not divide `hidden_dim`.

    Examples:
        >>> from graphbench.testing import tiny_batch, tiny_spec
        >>> model = GT(tiny_spec(), hidden_dim=16, num_layers=2)
        >>> model(tiny_batch(model)).node.shape  # 4 graphs of a few nodes
        torch.Size([23, 16])
    """

    def __init__(
        self,
        spec: BenchmarkSpec,
        hidden_dim: int = 128,
        num_layers: int = 4,
        num_heads: int = 8,
        ffn_dim: int | None = None,
        dropout: float = 0.0,
        norm: NormName = "batch",
        positional_encoders: list[PositionalEncoder] | None = None,
        categorical: Categorical = "xavier_uniform",
        full: bool = False,
        bias: bool = True,
        edge_updates: bool = True,
        released: bool = False,
    ) -> None:
        super().__init__(spec, hidden_dim)
        self.node_encoder = NodeEncoder(spec, hidden_dim, categorical=categorical)
        self.full = full
        self.edge_encoder = EdgeEncoder(spec, hidden_dim, categorical, not full) if edge_updates else None
        self.edge_dim = hidden_dim if edge_updates and not full else 0
        self.positional = nn.ModuleList(positional_encoders or ())
        width = sum(encoder.dim for encoder in positional_encoders or ())
        self.position_map = nn.Linear(width, hidden_dim) if width else None
        self.layers = nn.ModuleList(
            GTLayer(hidden_dim, num_heads, ffn_dim or hidden_dim, dropout, norm, released, bias, edge_updates)
            for _ in range(num_layers)
        )

    def precompute(self, batch: GraphBatch, generator: torch.Generator | None = None) -> dict[str, Any]:
        """List all pairs of nodes of a graph, with `full`."""
        return {"all_pairs": complete_graphs(batch)} if self.full else {}

    def forward(self, batch: GraphBatch) -> Representation:
        """Return nodes `[num_nodes, hidden_dim]`, and edges `[num_edges, hidden_dim]` unless `full`."""
        x = self.node_encoder(batch)
        if self.position_map is not None:
            # Encoders without weights return stored values, float32 whatever the model's precision.
            positions = torch.cat([encoder(batch) for encoder in self.positional], dim=-1)
            x = x + self.position_map(positions.to(self.position_map.weight.dtype))
        if self.full:
            # A shallow copy: the caller's batch keeps its own edges.
            batch = copy.copy(batch)
            batch.edge_index = batch.all_pairs
        edge = self.edge_encoder(batch) if self.edge_encoder is not None else None
        for layer in self.layers:
            x, edge = layer(x, edge, batch)
        return Representation(node=x, edge=None if self.full else edge)


def complete_graphs(batch: GraphBatch) -> Tensor:
    """List edges between all pairs of different nodes of a graph `[2, E]`."""
    size = batch.ptr.diff()[batch.batch]
    target = torch.repeat_interleave(torch.arange(len(size), device=size.device), size)
    # Number of each pair among those of its target, which is the number of its source in the graph.
    rank = torch.arange(len(target), device=size.device) - (size.cumsum(0) - size)[target]
    source = batch.ptr[batch.batch[target]] + rank
    return torch.stack([source, target])[:, source != target]


def matrices_of_edges(weights: Tensor, batch: GraphBatch) -> list[Tensor]:
    """Scatter weights of edges `[num_edges, H]` into matrices `[H, n, n]` of the graphs; zero without an edge."""
    graph_of_edge = batch.batch[batch.edge_index[1]]
    source, target = batch.edge_index - batch.ptr[graph_of_edge]
    matrices = []
    for graph, n in enumerate(batch.ptr.diff().tolist()):
        inside = graph_of_edge == graph
        matrix = weights.new_zeros(n, n, weights.shape[1])
        # Rows are queries, so targets; the weights of parallel edges add up.
        matrix.index_put_((target[inside], source[inside]), weights[inside], accumulate=True)
        matrices.append(matrix.permute(2, 0, 1))
    return matrices
