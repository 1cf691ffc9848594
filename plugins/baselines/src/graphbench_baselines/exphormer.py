"""Exphormer: attention along edges, along an expander graph, and to and from virtual nodes, within GPS.

Shirzad et al., "Exphormer: Sparse Transformers for Graphs", ICML 2023, arXiv 2303.06147.

Legend: N nodes, B graphs, V virtual nodes per graph, I interactions; node i attends to node j along interaction j -> i.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import cast

import torch
from torch import Tensor, nn

from graphbench import BenchmarkSpec, GraphBatch, PositionalEncoder, Representation
from graphbench.encodings import ExpanderEdges
from graphbench.errors import check_divides, check_range
from graphbench.nn import (
    Categorical,
    DenseLayout,
    EdgeEncoder,
    GPSBackbone,
    LocalName,
    NormName,
    attend_along_edges,
)

#: Logits are clamped to this absolute value, as in the authors' code.
_LARGEST_LOGIT = 5.0


@dataclass
class Interactions:
    """Pairs that attend to each other, shared by all layers, and the virtual nodes, which each layer replaces.

    Args:
        index: interactions (j, i) `[2, I]`; virtual nodes are numbered `N + v B + graph`.
        edge: their vectors `[I, dim]`.
        virtual: virtual nodes `[V B, dim]`.
    """

    index: Tensor
    edge: Tensor
    virtual: Tensor


class ExphormerAttention(nn.Module):
    """Attention along interactions, modulated by their vectors; `4 dim^2` parameters.

        s_ij = sum_d (Q x_i) * (K x_j) * (E e_ij) / sqrt(d)       x'_i = sum_j softmax_j(clamp(s_ij, -5, 5)) V x_j

    per head and without biases. As in the authors' code there is neither a map after it nor dropout of weights; that
    code adds 1e-6 to the denominator. Virtual nodes are replaced by the sums they receive.

    Args:
        dim: width of nodes and interactions.
        num_heads: heads; must divide `dim`.

    Raises:
        BadInput: `num_heads` does not divide `dim`.
    """

    def __init__(self, dim: int, num_heads: int) -> None:
        super().__init__()
        check_divides("num_heads", num_heads, "hidden_dim", dim)
        self.num_heads = num_heads
        self.qkv_map = nn.Linear(dim, 3 * dim, bias=False)  # Q, K, V of the equation, in one product
        self.edge_map = nn.Linear(dim, dim, bias=False)  # E

    def forward(self, x: Tensor, batch: GraphBatch, layout: Interactions) -> Tensor:
        """Return mixed nodes `[N, dim]`, and replace the virtual nodes of `layout` in place."""
        rows = torch.cat([x, layout.virtual.to(x.dtype)])
        steer = self.edge_map(layout.edge)
        mixed, _, _ = attend_along_edges(self.qkv_map(rows), layout.index, steer, self.num_heads, _LARGEST_LOGIT)
        # Sums without residual, norm or feed-forward network: the GPS layer has those only for nodes.
        layout.virtual = mixed[x.shape[0] :]
        return mixed[: x.shape[0]]


class Exphormer(GPSBackbone):
    """Exphormer (Shirzad et al., ICML 2023); defaults are the paper's CIFAR10 model without encodings.

    The layers are those of GPS with a sparse global branch. It attends along the edges of the graph, with the vectors
    of the edge encoder; along the edges of a random expander graph, which share one learned row; and between all nodes
    and each virtual node, with one learned row per virtual node and direction. These vectors are the same in all
    layers; virtual nodes start as learned rows.

    Time and memory: `B L (N + E) (d^2 + H)`, `B L (N + E) (d + H)`.

    Args:
        spec: the benchmark's description.
        hidden_dim: width of nodes and edges.
        num_layers: layers.
        num_heads: heads of the attention (and of the local layer GAT); must divide `hidden_dim`.
        local_layer: GatedGCN, GINE, GCN, GAT or none.
        expander_degree: permutations d of the expander, whose nodes have 2 d edges; 0: no expander.
        expander_seed: selects the expanders, which also depend on the graph, see `ExpanderEdges`.
        num_virtual_nodes: virtual nodes of each graph.
        dropout: probability of every dropout.
        norm: batch, layer or none.
        positional_encoders: outputs are concatenated to the node features, which get the remaining width.
        gate_encoder: positions whose distances gate the edges of GatedGCN (ES-LapPE); not added to node features.
        categorical: how categorical features enter: xavier_uniform, normal or one_hot.

    Raises:
        BadInput: an option is out of range, or conflicts with another.

    Examples:
        >>> from graphbench.testing import tiny_batch, tiny_spec
        >>> model = Exphormer(tiny_spec(), hidden_dim=16, num_layers=2)
        >>> model(tiny_batch(model)).node.shape  # 4 graphs of a few nodes
        torch.Size([23, 16])
    """

    def __init__(
        self,
        spec: BenchmarkSpec,
        hidden_dim: int = 40,
        num_layers: int = 5,
        num_heads: int = 4,
        local_layer: LocalName = "GatedGCN",
        expander_degree: int = 5,
        expander_seed: int = 0,
        num_virtual_nodes: int = 1,
        dropout: float = 0.1,
        norm: NormName = "batch",
        positional_encoders: list[PositionalEncoder] | None = None,
        gate_encoder: PositionalEncoder | None = None,
        categorical: Categorical = "xavier_uniform",
    ) -> None:
        check_range("expander_degree", expander_degree, at_least=0, whole=True)
        check_range("num_virtual_nodes", num_virtual_nodes, at_least=0, whole=True)
        super().__init__(
            spec,
            hidden_dim,
            num_layers,
            lambda: ExphormerAttention(hidden_dim, num_heads),
            local_layer=local_layer,
            num_heads=num_heads,
            dropout=dropout,
            norm=norm,
            positional_encoders=positional_encoders or (),
            gate_encoder=gate_encoder,
            categorical=categorical,
        )
        if self.edge_encoder is None:  # the local layer reads no edges, attention does
            self.edge_encoder = EdgeEncoder(spec, hidden_dim, categorical)
        self.edge_dim = hidden_dim
        self.encodings = (ExpanderEdges(expander_degree, expander_seed),) if expander_degree else ()
        # From N(0, 1), since they are rows of `nn.Embedding` in the authors' code.
        self.expander_row = nn.Parameter(torch.randn(hidden_dim)) if expander_degree else None
        self.virtual_nodes = nn.Parameter(torch.randn(num_virtual_nodes, hidden_dim))
        self.to_virtual = nn.Parameter(torch.randn(num_virtual_nodes, hidden_dim))
        self.from_virtual = nn.Parameter(torch.randn(num_virtual_nodes, hidden_dim))

    def forward(self, batch: GraphBatch) -> Representation:
        """Return nodes `[num_nodes, hidden_dim]` and edges `[num_edges, hidden_dim]`."""
        assert self.edge_encoder is not None
        x, edge = self.node_encoder(batch), self.edge_encoder(batch)
        distances = self._distances(batch)
        interactions = self._interactions(batch, edge)
        for layer in self.layers:  # a GPS layer passes the layout to its attention without inspecting it
            x, edge = layer(x, edge, batch, cast(DenseLayout, interactions), distances)
        return Representation(node=x, edge=edge)

    def _interactions(self, batch: GraphBatch, edge: Tensor) -> Interactions:
        index, vectors = [batch.edge_index], [edge]
        if self.expander_row is not None:
            index.append(batch.expander_edges.t())
            vectors.append(self.expander_row.expand(batch.expander_edges.shape[0], -1).to(edge.dtype))
        num_nodes = batch.batch.shape[0]
        node = torch.arange(num_nodes, device=batch.batch.device)
        for number, (inward, outward) in enumerate(zip(self.to_virtual, self.from_virtual, strict=True)):
            virtual = num_nodes + number * batch.num_graphs + batch.batch
            index += [torch.stack([node, virtual]), torch.stack([virtual, node])]
            vectors += [row.expand(num_nodes, -1).to(edge.dtype) for row in (inward, outward)]
        # Virtual node v of all graphs, then v + 1: the order of the numbers N + v B + graph above.
        rows = self.virtual_nodes.repeat_interleave(batch.num_graphs, dim=0)
        return Interactions(torch.cat(index, dim=1), torch.cat(vectors), rows)
