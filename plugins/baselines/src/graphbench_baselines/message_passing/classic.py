"""Message passing baselines with the residuals, norms and dropout of "Benchmarking Graph Neural Networks".

Dwivedi et al., JMLR 2023, arXiv 2003.00982, in the order of the released code, which differs between layers:

    GCN, GIN, GatedGCN (nodes and edges)    x' = Drop(x + ReLU(Norm(conv(x))))
    GAT                                     x' = x + ELU(Norm(conv(Drop(x)))), attention weights also dropped
    GraphSAGE                               x' = x + Norm(ReLU(conv(Drop(x))))

GINE, which is not in the paper, follows GIN. Widths default to that paper's ZINC models of about 100,000 parameters.
"""

from __future__ import annotations

from functools import partial
from typing import Any, Literal

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch_geometric.nn import GATConv, SAGEConv
from torch_geometric.utils import add_remaining_self_loops

from graphbench import BenchmarkSpec, GraphBatch, PositionalEncoder
from graphbench.errors import check_choice, check_divides
from graphbench.nn import (
    Categorical,
    ConvLayer,
    GatedGCNLayer,
    GCNConvolution,
    GINConvolution,
    GINEConvolution,
    NormName,
    gcn_edges,
    make_norm,
)
from graphbench_baselines.message_passing.network import MessagePassingNetwork


class GCN(MessagePassingNetwork):
    """Graph convolutional network (Kipf & Welling 2017): `conv(x)_i = W sum_j x_j / sqrt(d_i d_j) + b`, with loops.

    The layer is `Drop(x + ReLU(Norm(conv(x))))`. Self-loops and weights are those of Kipf & Welling; the published
    scores of "Benchmarking Graph Neural Networks" use a mean over neighbours without loops, `W mean_j x_j + b`, which
    ignores degrees (its code of 2020; that of 2022 has the weights above). `unit_length` scales every row of
    `ReLU(Norm(conv(x)))` to length 1, as GraphGym does around the baselines of the Long Range Graph Benchmark.

    Time and memory: `B L (N d^2 + E d)`, `B L (N + E) d`.

    Args:
        spec: the benchmark's description.
        hidden_dim: width of the nodes.
        num_layers: layers.
        dropout: probability of dropout in every layer.
        norm: batch, layer or none.
        residual: add each layer's input to its output.
        self_loops: make every node its own neighbour; without them a node without neighbours gets 0.
        edge_weights: symmetric, by `1 / sqrt(d_i d_j)`, or mean.
        unit_length: scale every row to length 1 before the residual.
        positional_encoders: outputs are concatenated to the node features.
        categorical: how categorical features enter: xavier_uniform, normal or one_hot.

    Examples:
        >>> from graphbench.testing import tiny_batch, tiny_spec
        >>> model = GCN(tiny_spec(), hidden_dim=16, num_layers=2)
        >>> model(tiny_batch(model)).node.shape  # 4 graphs of a few nodes
        torch.Size([23, 16])
    """

    def __init__(
        self,
        spec: BenchmarkSpec,
        hidden_dim: int = 145,
        num_layers: int = 4,
        dropout: float = 0.0,
        norm: NormName = "batch",
        residual: bool = True,
        self_loops: bool = True,
        edge_weights: Literal["symmetric", "mean"] = "symmetric",
        unit_length: bool = False,
        positional_encoders: list[PositionalEncoder] | None = None,
        categorical: Categorical = "xavier_uniform",
    ) -> None:
        def layer() -> nn.Module:
            conv = GCNConvolution(hidden_dim, hidden_dim, normalize=False)  # `make_edges` does this once
            activation = _unit_relu if unit_length else F.relu
            return ConvLayer(conv, hidden_dim, dropout, norm, residual, True, activation, "output")

        check_choice("edge_weights", edge_weights, ("symmetric", "mean"))
        make_edges = partial(gcn_edges, self_loops=self_loops, mean=edge_weights == "mean")
        super().__init__(spec, hidden_dim, num_layers, layer, positional_encoders, categorical, make_edges=make_edges)
        self.self_loops = self_loops


class GraphSAGE(MessagePassingNetwork):
    """GraphSAGE (Hamilton et al. 2017): `conv(x)_i = W1 x_i + W2 aggregate_j(x_j) + b`.

    The max aggregation reads `ReLU(W3 x_j + b3)`, as in the paper (the released code of "Benchmarking Graph Neural
    Networks" also passes that to W1). The layer is `x + Norm(ReLU(conv(Drop(x))))`; the published one scales every
    `conv(x)_i` to length 1 before the ReLU, as with `unit_length`; by default the norm replaces this.

    Time and memory: `B L (N d^2 + E d)`, `B L (N + E) d`.

    Args:
        spec: the benchmark's description.
        hidden_dim: width of the nodes.
        num_layers: layers.
        aggregation: max or mean over neighbours.
        unit_length: scale every row of the convolution to length 1.
        dropout: probability of dropout in every layer.
        norm: batch, layer or none.
        residual: add each layer's input to its output.
        positional_encoders: outputs are concatenated to the node features.
        categorical: how categorical features enter: xavier_uniform, normal or one_hot.

    Examples:
        >>> from graphbench.testing import tiny_batch, tiny_spec
        >>> model = GraphSAGE(tiny_spec(), hidden_dim=16, num_layers=2)
        >>> model(tiny_batch(model)).node.shape  # 4 graphs of a few nodes
        torch.Size([23, 16])
    """

    def __init__(
        self,
        spec: BenchmarkSpec,
        hidden_dim: int = 90,
        num_layers: int = 4,
        aggregation: Literal["max", "mean"] = "max",
        unit_length: bool = False,
        dropout: float = 0.0,
        norm: NormName = "batch",
        residual: bool = True,
        positional_encoders: list[PositionalEncoder] | None = None,
        categorical: Categorical = "xavier_uniform",
    ) -> None:
        check_choice("aggregation", aggregation, ("max", "mean"))

        def layer() -> nn.Module:
            conv = SAGEConv(
                hidden_dim, hidden_dim, aggr=aggregation, normalize=unit_length, project=aggregation == "max"
            )
            return ConvLayer(
                conv, hidden_dim, dropout, norm, residual, activation=F.relu, drops="input", activation_first=True
            )

        super().__init__(spec, hidden_dim, num_layers, layer, positional_encoders, categorical)


class GAT(MessagePassingNetwork):
    """Graph attention network (Velickovic et al. 2018): concatenated heads, ELU, by default self-loops in every layer.

    The layer is `x + ELU(Norm(conv(Drop(x))))`, and the convolution also drops attention weights. It has no bias: the
    norm that follows would cancel it. The published runs of "Benchmarking Graph Neural Networks" omit self-loops and
    use one head in the last layer.

    Time and memory: `B L (N d^2 + (N + E) (d + H))`, `B L (N + E) (d + H)`.

    Args:
        spec: the benchmark's description.
        hidden_dim: width of the nodes, over all heads.
        num_layers: layers.
        num_heads: heads; must divide `hidden_dim`.
        dropout: probability of dropout of every layer's input and of attention weights.
        norm: batch, layer or none.
        residual: add each layer's input to its output.
        self_loops: make every node its own neighbour.
        last_head_alone: the last layer has one head of the whole width, with equally many parameters.
        positional_encoders: outputs are concatenated to the node features.
        categorical: how categorical features enter: xavier_uniform, normal or one_hot.

    Raises:
        BadInput: `num_heads` does not divide `hidden_dim`.

    Examples:
        >>> from graphbench.testing import tiny_batch, tiny_spec
        >>> model = GAT(tiny_spec(), hidden_dim=16, num_layers=2)
        >>> model(tiny_batch(model)).node.shape  # 4 graphs of a few nodes
        torch.Size([23, 16])
    """

    def __init__(
        self,
        spec: BenchmarkSpec,
        hidden_dim: int = 144,
        num_layers: int = 4,
        num_heads: int = 8,
        dropout: float = 0.0,
        norm: NormName = "batch",
        residual: bool = True,
        self_loops: bool = True,
        last_head_alone: bool = False,
        positional_encoders: list[PositionalEncoder] | None = None,
        categorical: Categorical = "xavier_uniform",
    ) -> None:
        check_divides("num_heads", num_heads, "hidden_dim", hidden_dim)
        numbers = iter(range(num_layers))

        def layer() -> nn.Module:
            # Layers are created in order, so the number identifies the last one.
            heads = 1 if last_head_alone and next(numbers) == num_layers - 1 else num_heads
            conv = GATConv(
                hidden_dim, hidden_dim // heads, heads, dropout=dropout, add_self_loops=False, bias=norm == "none"
            )
            return ConvLayer(conv, hidden_dim, dropout, norm, residual, activation=F.elu, drops="input")

        super().__init__(spec, hidden_dim, num_layers, layer, positional_encoders, categorical)
        self.self_loops = self_loops

    def precompute(self, batch: GraphBatch, generator: torch.Generator | None = None) -> dict[str, Any]:
        """Give every node exactly one self-loop, if enabled."""
        if not self.self_loops:
            return {}
        return {"looped_edges": add_remaining_self_loops(batch.edge_index, num_nodes=batch.num_nodes)[0]}

    def ends(self, batch: GraphBatch) -> Tensor:
        """Return the edges, with loops if enabled."""
        looped: Tensor = batch.looped_edges if self.self_loops else batch.edge_index
        return looped


class GIN(MessagePassingNetwork):
    """Graph isomorphism network (Xu et al. 2019): `conv(x)_i = MLP((1 + eps) x_i + sum_j x_j)`, eps learned.

    The layer is `Drop(x + ReLU(Norm(conv(x))))`. The paper sums linear read-outs of all depths, which equals one linear
    read-out of `all_layers` (with one bias instead of `num_layers + 1`); otherwise the head reads the last layer.

    Time and memory: `B L (N d^2 + E d)`, `B L (N + E) d`.

    Args:
        spec: the benchmark's description.
        hidden_dim: width of the nodes.
        num_layers: layers.
        dropout: probability of dropout in every layer.
        norm: batch, layer or none, inside the MLP and after it.
        residual: add each layer's input to its output.
        all_layers: the head reads all depths, a width of `hidden_dim (num_layers + 1)`.
        positional_encoders: outputs are concatenated to the node features.
        categorical: how categorical features enter: xavier_uniform, normal or one_hot.

    Examples:
        >>> from graphbench.testing import tiny_batch, tiny_spec
        >>> model = GIN(tiny_spec(), hidden_dim=16, num_layers=2)
        >>> model(tiny_batch(model)).node.shape  # 4 graphs of a few nodes
        torch.Size([23, 16])
    """

    def __init__(
        self,
        spec: BenchmarkSpec,
        hidden_dim: int = 110,
        num_layers: int = 4,
        dropout: float = 0.0,
        norm: NormName = "batch",
        residual: bool = True,
        all_layers: bool = False,
        positional_encoders: list[PositionalEncoder] | None = None,
        categorical: Categorical = "xavier_uniform",
    ) -> None:
        def layer() -> nn.Module:
            conv = GINConvolution(_gin_mlp(hidden_dim, norm), train_eps=True)
            return ConvLayer(conv, hidden_dim, dropout, norm, residual, activation=F.relu, drops="output")

        super().__init__(spec, hidden_dim, num_layers, layer, positional_encoders, categorical, all_layers=all_layers)


class GINE(MessagePassingNetwork):
    """GIN with edge features (Hu et al. 2020): `conv(x)_i = MLP((1 + eps) x_i + sum_j ReLU(x_j + e_ij))`, eps learned.

    The layer is that of GIN, `Drop(x + ReLU(Norm(conv(x))))`.

    Time and memory: `B L (N d^2 + E d)`, `B L (N + E) d`.

    Args:
        spec: the benchmark's description.
        hidden_dim: width of nodes and edges.
        num_layers: layers.
        dropout: probability of dropout in every layer.
        norm: batch, layer or none, inside the MLP and after it.
        residual: add each layer's input to its output.
        edge_features: read the benchmark's edge features; False: one learned row for all edges.
        positional_encoders: outputs are concatenated to the node features.
        categorical: how categorical features enter: xavier_uniform, normal or one_hot.

    Examples:
        >>> from graphbench.testing import tiny_batch, tiny_spec
        >>> model = GINE(tiny_spec(), hidden_dim=16, num_layers=2)
        >>> model(tiny_batch(model)).node.shape  # 4 graphs of a few nodes
        torch.Size([23, 16])
    """

    def __init__(
        self,
        spec: BenchmarkSpec,
        hidden_dim: int = 110,
        num_layers: int = 4,
        dropout: float = 0.0,
        norm: NormName = "batch",
        residual: bool = True,
        edge_features: bool = True,
        positional_encoders: list[PositionalEncoder] | None = None,
        categorical: Categorical = "xavier_uniform",
    ) -> None:
        def layer() -> nn.Module:
            conv = GINEConvolution(_gin_mlp(hidden_dim, norm), train_eps=True)
            return ConvLayer(conv, hidden_dim, dropout, norm, residual, True, activation=F.relu, drops="output")

        super().__init__(spec, hidden_dim, num_layers, layer, positional_encoders, categorical, True, edge_features)


class GatedGCN(MessagePassingNetwork):
    """GatedGCN (Bresson & Laurent 2017) with edge updates, see `graphbench.nn.GatedGCNLayer`.

    Dropout is applied to nodes and edges, after the residuals.

    Time and memory: `B L (N + E) d^2`, `B L (N + E) d`.

    Args:
        spec: the benchmark's description.
        hidden_dim: width of nodes and edges.
        num_layers: layers.
        dropout: probability of dropout in every layer, on nodes and edges.
        norm: batch, layer or none.
        residual: add each layer's input to its output.
        edge_features: read the benchmark's edge features; False: one learned row for all edges.
        positional_encoders: outputs are concatenated to the node features.
        categorical: how categorical features enter: xavier_uniform, normal or one_hot.

    Examples:
        >>> from graphbench.testing import tiny_batch, tiny_spec
        >>> model = GatedGCN(tiny_spec(), hidden_dim=16, num_layers=2)
        >>> model(tiny_batch(model)).node.shape  # 4 graphs of a few nodes
        torch.Size([23, 16])
    """

    def __init__(
        self,
        spec: BenchmarkSpec,
        hidden_dim: int = 70,
        num_layers: int = 4,
        dropout: float = 0.0,
        norm: NormName = "batch",
        residual: bool = True,
        edge_features: bool = True,
        positional_encoders: list[PositionalEncoder] | None = None,
        categorical: Categorical = "xavier_uniform",
    ) -> None:
        def layer() -> nn.Module:
            return GatedGCNLayer(hidden_dim, dropout, norm, residual, drops="output")

        super().__init__(spec, hidden_dim, num_layers, layer, positional_encoders, categorical, True, edge_features)


def _unit_relu(x: Tensor) -> Tensor:
    """Apply ReLU, then scale every row to length 1."""
    return F.normalize(F.relu(x), dim=-1)


def _gin_mlp(dim: int, norm: NormName) -> nn.Module:
    return nn.Sequential(nn.Linear(dim, dim), make_norm(norm, dim), nn.ReLU(), nn.Linear(dim, dim))
