"""GCN and GIN of the Open Graph Benchmark, which encode the bonds separately in every layer.

Hu et al., "OGB-LSC: A Large-Scale Challenge for Machine Learning on Graphs", NeurIPS 2021 (datasets and benchmarks),
arXiv 2103.09430, and its released baselines; the message passing of GIN is that of Hu et al., "Strategies for
Pre-training Graph Neural Networks", ICLR 2020, arXiv 1905.12265.
"""

from __future__ import annotations

from typing import Literal, get_args

import torch
from torch import Tensor, nn
from torch_geometric.utils import degree, scatter

from graphbench import Architecture, BenchmarkSpec, GraphBatch, PositionalEncoder, Representation
from graphbench.errors import check_choice
from graphbench.nn import Categorical, EdgeEncoder, GINEConvolution, NodeEncoder, NormName, make_norm

LayerName = Literal["GCN", "GIN"]


class BondGCNConv(nn.Module):
    """Graph convolution that applies ReLU to the sum of message and edge vector.

        out_i = sum_j ReLU(W x_j + b + e_ij) / sqrt(d_i d_j) + ReLU(W x_i + b + r) / d_i

    d is one plus the number of outgoing edges; r is learned and represents the edge of a node to itself.

    Args:
        dim: width of nodes and edges.

    Examples:
        >>> index = torch.tensor([[0, 1], [1, 0]])
        >>> BondGCNConv(8)(torch.randn(2, 8), index, torch.randn(2, 8)).shape
        torch.Size([2, 8])
    """

    def __init__(self, dim: int) -> None:
        super().__init__()
        self.linear = nn.Linear(dim, dim)
        self.root = nn.Parameter(torch.randn(dim))

    def forward(self, x: Tensor, edge_index: Tensor, edge: Tensor) -> Tensor:
        """Return nodes `[num_nodes, dim]` from nodes and vectors of edges `[num_edges, dim]`."""
        x = self.linear(x)
        source, target = edge_index
        # Counted in float32, since bfloat16 has no odd number above 256; the additional one is the node itself.
        degrees = degree(source, x.shape[0], torch.promote_types(x.dtype, torch.float32)) + 1
        weights = (degrees[source] * degrees[target]).rsqrt()
        # In float32 like the weights: bfloat16 sums of many messages may end at 256 times a term.
        messages = weights[:, None] * (x.index_select(0, source) + edge.to(x.dtype)).relu()
        # A self-loop has no bond: `root` replaces it, and 1 / sqrt(d_i d_i) = 1 / d_i.
        loop = (x + self.root.to(x.dtype)).relu() / degrees.to(x.dtype)[:, None]
        return loop + scatter(messages, target, 0, x.shape[0], reduce="sum").to(x.dtype)


class OGBGNN(Architecture):
    """GCN and GIN of the Open Graph Benchmark's large-scale challenge, without a virtual node; defaults are its GIN.

    A layer is `x' = Drop(ReLU(Norm(conv(x, encode(edges)))))` with its own encoder of edges; the last one has no
    ReLU. GCN is `BondGCNConv`. GIN is PyG's `GINEConv`, `conv(x)_i = MLP((1 + eps) x_i + sum_j ReLU(x_j + e_ij))`, with
    a norm in the MLP and a learned eps that starts at 0.

    Time and memory: `B L (N d^2 + E d)`, `B L (N + E) d`.

    Args:
        spec: the benchmark's description.
        layer: GCN or GIN.
        hidden_dim: width of nodes and edges.
        num_layers: layers.
        dropout: probability of dropout after every layer.
        norm: batch, layer or none, after every convolution and inside the MLP of GIN.
        residual: add each layer's input to its output.
        positional_encoders: outputs are concatenated to the node features.
        categorical: how categorical features enter: xavier_uniform, normal or one_hot.

    Raises:
        BadInput: an option is unknown or out of range.

    Examples:
        >>> from graphbench.testing import tiny_batch, tiny_spec
        >>> model = OGBGNN(tiny_spec(), layer="GCN", hidden_dim=16)
        >>> model(tiny_batch(model)).node.shape  # 4 graphs of a few nodes
        torch.Size([23, 16])
    """

    def __init__(
        self,
        spec: BenchmarkSpec,
        layer: LayerName = "GIN",
        hidden_dim: int = 600,
        num_layers: int = 5,
        dropout: float = 0.0,
        norm: NormName = "batch",
        residual: bool = False,
        positional_encoders: list[PositionalEncoder] | None = None,
        categorical: Categorical = "xavier_uniform",
    ) -> None:
        super().__init__(spec, hidden_dim)
        check_choice("layer", layer, get_args(LayerName))
        self.node_encoder = NodeEncoder(spec, hidden_dim, positional_encoders or (), categorical)
        self.edge_encoders = nn.ModuleList(EdgeEncoder(spec, hidden_dim, categorical) for _ in range(num_layers))
        self.layers = nn.ModuleList(_make_conv(layer, hidden_dim, norm) for _ in range(num_layers))
        self.norms = nn.ModuleList(make_norm(norm, hidden_dim) for _ in range(num_layers))
        self.dropout, self.residual = nn.Dropout(dropout), residual

    def forward(self, batch: GraphBatch) -> Representation:
        """Return nodes `[num_nodes, hidden_dim]`."""
        x = self.node_encoder(batch)
        for number, (conv, norm, encoder) in enumerate(
            zip(self.layers, self.norms, self.edge_encoders, strict=True), 1
        ):
            new = norm(conv(x, batch.edge_index, encoder(batch)))
            new = self.dropout(new if number == len(self.layers) else new.relu())
            x = x + new if self.residual else new
        return Representation(node=x)


def _make_conv(layer: LayerName, dim: int, norm: NormName) -> nn.Module:
    if layer == "GCN":
        return BondGCNConv(dim)
    mlp = nn.Sequential(nn.Linear(dim, dim), make_norm(norm, dim), nn.ReLU(), nn.Linear(dim, dim))
    return GINEConvolution(mlp, train_eps=True)
