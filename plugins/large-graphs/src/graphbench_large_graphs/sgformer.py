"""SGFormer: one layer of linear attention over all nodes combined with a graph convolution network.

Wu et al., "SGFormer: Simplifying and Empowering Transformers for Large-Graph Representations", NeurIPS 2023,
arXiv 2306.10759.

Legend: T nodes of all graphs, n nodes of a graph, H heads, each as wide as the model.
"""

from __future__ import annotations

import copy
from collections.abc import Sequence
from typing import Any, Literal

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from graphbench import Architecture, BenchmarkSpec, GraphBatch, LayerTrace, PositionalEncoder, Representation, Traced
from graphbench.errors import check_choice, check_range
from graphbench.nn import (
    BatchNorm,
    Categorical,
    ConvLayer,
    DenseLayout,
    GCNConvolution,
    NodeEncoder,
    gcn_edges,
)
from graphbench_large_graphs.linear import check_width, linear_attention, unit_norm

Normalisation = Literal["graph", "node"]
Aggregation = Literal["add", "concatenate"]


class SimpleAttention(Traced):
    """SGFormer's attention, the mean of its heads, with q and k divided by their norms.

        w_ij = [i = j] + q_i . k_j / n        x'_i = mean_h(sum_j w_ij V x_j / sum_j w_ij)

    With `normalisation="graph"` the norm is the Frobenius norm of all queries (keys) of a graph, heads together, as in
    the paper; with "node" each query (key) of each head has length 1, as in PyG's `SGFormerAttention`, whose sums
    include padding. Weights may be negative, so the trace has no matrices.

    Args:
        dim: width of the nodes and of each head.
        num_heads: heads H.
        normalisation: graph or node.

    Raises:
        BadInput: `normalisation` is unknown, or `dim` is 1.

    Examples:
        >>> from graphbench.testing import tiny_spec, tiny_table
        >>> batch = tiny_table(tiny_spec(), sizes=[3, 4]).batch([0, 1])
        >>> attention = SimpleAttention(8, num_heads=2)
        >>> attention(torch.randn(7, 8), batch, DenseLayout.from_batch(batch)).shape
        torch.Size([7, 8])
    """

    def __init__(self, dim: int, num_heads: int = 1, normalisation: Normalisation = "graph") -> None:
        super().__init__()
        check_choice("normalisation", normalisation, ("graph", "node"))
        check_width(dim)
        self.num_heads = num_heads
        self.normalisation = normalisation
        self.qkv_map = nn.Linear(dim, 3 * num_heads * dim)

    def forward(self, x: Tensor, batch: GraphBatch, layout: DenseLayout) -> Tensor:
        """Return mixed nodes `[T, dim]`."""
        q, k, v = (part.unflatten(-1, (self.num_heads, -1)) for part in self.qkv_map(x).chunk(3, dim=-1))
        if self.normalisation == "graph":
            q, k = (unit_norm(part, batch.batch, batch.num_graphs) for part in (q, k))
        else:
            q, k = F.normalize(q, dim=-1), F.normalize(k, dim=-1)
        # The loop is the term V added to Q (K^T V) / n in the paper; it prevents negative sums of weights.
        out = linear_attention(q, k, v, layout, loop=1.0).mean(1)
        self.trace(lambda: self._record(x, batch, out))
        return out

    @torch.no_grad()
    def _record(self, x: Tensor, batch: GraphBatch, out: Tensor) -> LayerTrace:
        values = F.linear(x, self.qkv_map.weight.chunk(3)[2]).unflatten(-1, (self.num_heads, -1)) / self.num_heads
        return LayerTrace(tokens=out.detach(), batch=batch.batch, values=values, num_nodes=batch.ptr.diff(), input=x)


class AttentionBranch(nn.Module):
    """SGFormer's global half: `x = Drop(ReLU(LN(encode)))`, then `Drop(act(LN(a attention(x) + (1 - a) x)))` per layer.

    Args:
        encoder: encodes a batch as vectors `[T, dim]`.
        dim: width of the nodes.
        num_layers: layers of attention.
        num_heads: heads.
        dropout: probability of dropout.
        alpha: share a of attention.
        activation: act is ReLU; False: the identity, as in the published runs.
        normalisation: see `SimpleAttention`.
    """

    def __init__(
        self,
        encoder: nn.Module,
        dim: int,
        num_layers: int,
        num_heads: int,
        dropout: float,
        alpha: float,
        activation: bool,
        normalisation: Normalisation,
    ) -> None:
        super().__init__()
        self.encoder = encoder
        self.attentions = nn.ModuleList(SimpleAttention(dim, num_heads, normalisation) for _ in range(num_layers))
        self.norms = nn.ModuleList(nn.LayerNorm(dim) for _ in range(num_layers + 1))
        self.dropout, self.alpha, self.activation = nn.Dropout(dropout), alpha, activation

    def forward(self, batch: GraphBatch, layout: DenseLayout) -> Tensor:
        """Return nodes `[T, dim]`."""
        x = self.dropout(self.norms[0](self.encoder(batch)).relu())
        for attention, norm in zip(self.attentions, self.norms[1:], strict=True):
            x = norm(self.alpha * attention(x, batch, layout) + (1 - self.alpha) * x)
            x = self.dropout(x.relu() if self.activation else x)
        return x


class GraphBranch(nn.Module):
    """SGFormer's local half: `x0 = Drop(ReLU(BN(encode)))`, then `x0 + Drop(ReLU(BN(GCN(x))))` per layer.

    The residual comes from x0 in every layer, as in the released code and in PyG's.

    Args:
        encoder: encodes a batch as vectors `[T, dim]`.
        dim: width of the nodes.
        num_layers: layers of graph convolution.
        dropout: probability of dropout.
    """

    def __init__(self, encoder: nn.Module, dim: int, num_layers: int, dropout: float) -> None:
        super().__init__()
        self.encoder = encoder
        self.norm = BatchNorm(dim)
        self.layers = nn.ModuleList(
            # Without the layer's residual, which would add x: `forward` adds x0.
            ConvLayer(GCNConvolution(dim, dim, normalize=False), dim, dropout, "batch", False, True, F.relu)
            for _ in range(num_layers)
        )
        self.dropout = nn.Dropout(dropout)

    def forward(self, batch: GraphBatch) -> Tensor:
        """Return nodes `[T, dim]`."""
        start = x = self.dropout(self.norm(self.encoder(batch)).relu())
        index, weight = gcn_edges(batch.edge_index, x.shape[0], x.dtype)
        for layer in self.layers:
            new, _ = layer(x, index, weight)
            x = start + new
        return x


class SGFormer(Architecture):
    """SGFormer (Wu et al., NeurIPS 2023): `g gnn + (1 - g) attention`, or their concatenation; defaults for ogbn-arxiv.

    Each half has a separate feature encoder with separate positional encoders.

    Time and memory: `B L (H N d^2 + E d)`, `B L (H (N d + d^2) + E d)`.

    Args:
        spec: the benchmark's description.
        hidden_dim: width of the nodes and of each head.
        num_layers: layers of attention; one is enough according to the paper.
        num_heads: heads, which are averaged.
        gnn_layers: layers of graph convolution.
        dropout: probability of every dropout in the graph convolution network.
        attention_dropout: probability of every dropout in the attention half.
        alpha: share of attention in each of its layers; the residual has the rest.
        graph_weight: share g of the graph convolution network.
        aggregation: add, or concatenate, which doubles the width of the representation.
        attention_activation: ReLU after each layer of attention, as in PyG but not in the published runs.
        normalisation: graph (paper) or node (PyG), see `SimpleAttention`.
        attention_weight_decay: weight decay of the attention half, if different from the optimizer's.
        positional_encoders: their outputs are concatenated to the node features.
        categorical: how categorical features enter: xavier_uniform, normal or one_hot.

    Raises:
        BadInput: an option is unknown or out of range.

    Examples:
        >>> from graphbench.testing import tiny_batch, tiny_spec
        >>> model = SGFormer(tiny_spec(), hidden_dim=16)
        >>> model(tiny_batch(model)).node.shape  # 4 graphs of a few nodes
        torch.Size([23, 16])
    """

    def __init__(
        self,
        spec: BenchmarkSpec,
        hidden_dim: int = 256,
        num_layers: int = 1,
        num_heads: int = 1,
        gnn_layers: int = 3,
        dropout: float = 0.5,
        attention_dropout: float = 0.5,
        alpha: float = 0.5,
        graph_weight: float = 0.5,
        aggregation: Aggregation = "add",
        attention_activation: bool = False,
        normalisation: Normalisation = "graph",
        attention_weight_decay: float | None = None,
        positional_encoders: list[PositionalEncoder] | None = None,
        categorical: Categorical = "xavier_uniform",
    ) -> None:
        check_choice("aggregation", aggregation, ("add", "concatenate"))
        super().__init__(spec, hidden_dim * (2 if aggregation == "concatenate" else 1))
        check_range("gnn_layers", gnn_layers, at_least=1, whole=True)
        check_range("alpha", alpha, above=0, at_most=1)
        check_range("graph_weight", graph_weight, above=0, below=1)
        if attention_weight_decay is not None:
            check_range("attention_weight_decay", attention_weight_decay, at_least=0)

        def encoder(positional: Sequence[PositionalEncoder]) -> NodeEncoder:
            return NodeEncoder(spec, hidden_dim, positional, categorical)

        encoders = positional_encoders or []
        self.attention_branch = AttentionBranch(
            encoder(encoders), hidden_dim, num_layers, num_heads, attention_dropout, alpha, attention_activation,
            normalisation,
        )  # fmt: skip
        # A copy: the halves may decay their weights differently, so they must not share any.
        self.graph_branch = GraphBranch(encoder(copy.deepcopy(encoders)), hidden_dim, gnn_layers, dropout)
        self.graph_weight = graph_weight
        self.aggregation = aggregation
        self.attention_weight_decay = attention_weight_decay

    def forward(self, batch: GraphBatch) -> Representation:
        """Return nodes `[num_nodes, dim]`."""
        attended = self.attention_branch(batch, DenseLayout.from_batch(batch))
        convolved = self.graph_branch(batch)
        if self.aggregation == "concatenate":
            return Representation(node=torch.cat([attended, convolved], dim=-1))
        return Representation(node=self.graph_weight * convolved + (1 - self.graph_weight) * attended)

    def parameter_groups(self) -> Sequence[dict[str, Any]]:
        """Group the attention half if it has its own weight decay."""
        if self.attention_weight_decay is None:
            return ()
        decay = self.attention_weight_decay
        return ({"params": list(self.attention_branch.parameters()), "weight_decay": decay},)
