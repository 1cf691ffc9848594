"""The GPS layer and a network of GPS layers, for any local layer and any global attention.

Rampasek et al., "Recipe for a General, Powerful, Scalable Graph Transformer", NeurIPS 2022, arXiv 2205.12454.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Protocol

from torch import Tensor, nn
from torch_geometric.data import Data

from graphbench.contracts import Architecture, BenchmarkSpec, GraphBatch, PositionalEncoder, Representation
from graphbench.errors import BadInput
from graphbench.nn.attention import MultiHeadAttention
from graphbench.nn.dense import DenseLayout
from graphbench.nn.features import Categorical, EdgeEncoder, NodeEncoder
from graphbench.nn.feed_forward import Activation, FeedForward
from graphbench.nn.local import EDGE_LAYERS, LocalName, as_local_layer, make_local_layer
from graphbench.nn.norms import NormName, make_norm


class GlobalAttention(Protocol):
    """Interface of the global branch of a GPS layer: any `nn.Module` with this call signature.

    Examples:
        >>> import torch
        >>> from torch_geometric.data import Data
        >>> class Mean(nn.Module):  # every node gets the mean of its graph
        ...     def forward(self, x, batch, layout):
        ...         dense = layout.to_dense(x)
        ...         means = dense.sum(1, keepdim=True) / layout.mask.sum(1)[:, None, None]
        ...         return layout.to_ragged(means.expand_as(dense))
        >>> branch: GlobalAttention = Mean()
        >>> branch(torch.tensor([[1.0], [3.0], [5.0]]), Data(), DenseLayout.from_batch(torch.tensor([0, 0, 1])))
        tensor([[2.],
                [2.],
                [5.]])
    """

    def __call__(self, x: Tensor, batch: Data, layout: DenseLayout) -> Tensor:
        """Mix nodes `[num_nodes, dim]` within each graph; without residual, dropout or norm around it."""


class TransformerAttention(nn.Module):
    """Softmax attention as a global branch; `4 dim^2 + 4 dim` parameters.

    Args:
        dim: width of the nodes.
        num_heads: heads; must divide `dim`.
        dropout: probability of dropping an attention weight.
        packed: on a GPU, pad nothing; see `attend_within_graphs`.

    Examples:
        >>> import torch
        >>> from torch_geometric.data import Data
        >>> TransformerAttention(8, num_heads=2)(torch.randn(3, 8), Data(num_nodes=3)).shape
        torch.Size([3, 8])
    """

    def __init__(self, dim: int, num_heads: int, dropout: float = 0.0, packed: bool = False) -> None:
        super().__init__()
        self.attention = MultiHeadAttention(dim, num_heads, dropout, packed)

    def forward(self, x: Tensor, batch: Data | Tensor | None = None, layout: DenseLayout | None = None) -> Tensor:
        """Mix nodes `[num_nodes, dim]`, of one graph if neither is given; the batch's edges are not used."""
        return self.attention(x, batch if layout is None else layout)


class GPSLayer(nn.Module):
    """One GPS layer: a local and a global branch from the same input, added, then a feed-forward network.

        x_L, e' = Norm(Local(x, e)), e'                 (the local layer adds its own residual)
        x_G     = Norm(x + Drop(Attention(x)))
        s       = x_L + x_G
        x'      = Norm(s + FFN(s)),                     FFN of width 2 dim

    The norms see real nodes only. With batch norm and softmax attention a layer has `13 dim^2 + 22 dim` parameters
    around GatedGCN and `10 dim^2 + 15 dim` around GINE.

    Args:
        dim: width of nodes and edges.
        local: a local layer as returned by `make_local_layer`, or any PyG convolution that maps `dim` to `dim`, see
            `as_local_layer`; None for no local branch.
        attention: a `GlobalAttention`; None for no global branch.
        dropout: probability of every dropout outside the two branches, and of the one after a PyG convolution.
        norm: batch, layer or none.
        activation: relu or gelu, of FFN.

    Raises:
        BadInput: both branches are absent, or the activation is unknown.

    Examples:
        >>> import torch
        >>> from torch_geometric.data import Data
        >>> layer = GPSLayer(8, make_local_layer("GatedGCN", 8), TransformerAttention(8, num_heads=2))
        >>> graph = Data(edge_index=torch.tensor([[0, 1, 1, 2], [1, 0, 2, 1]]), num_nodes=3)
        >>> x, edge = layer(torch.randn(3, 8), torch.randn(4, 8), graph)
        >>> x.shape, edge.shape
        (torch.Size([3, 8]), torch.Size([4, 8]))
    """

    def __init__(
        self,
        dim: int,
        local: nn.Module | None,
        attention: nn.Module | None,
        dropout: float = 0.0,
        norm: NormName = "batch",
        activation: Activation = "relu",
    ) -> None:
        super().__init__()
        if local is None and attention is None:
            raise BadInput("A GPS layer needs a local layer, global attention or both, but got neither.")
        self.local = None if local is None else as_local_layer(local, dim, dropout)
        # GatedGCN has an inner norm, before its residual; the branch's norm is applied in addition, as in GraphGPS.
        self.local_norm = make_norm(norm, dim) if local is not None else None
        self.attention = attention
        self.attention_norm = make_norm(norm, dim) if attention is not None else None
        self.feed_forward = FeedForward(dim, 2 * dim, dropout, activation)
        self.norm = make_norm(norm, dim)
        self.dropout = nn.Dropout(dropout)

    def forward(
        self,
        x: Tensor,
        edge: Tensor | None,
        batch: Data,
        layout: DenseLayout | None = None,
        distances: Tensor | None = None,
    ) -> tuple[Tensor, Tensor | None]:
        """Update nodes `[num_nodes, dim]` and edges `[num_edges, dim]`; the shapes do not change.

        Edges, and squared distances of their ends `[num_edges, 1]`, are for local layers that read them. `layout` gives
        the positions of the batch's nodes in padded graphs; layers in a stack share one.
        """
        branches = []  # both read the same `x`: the branches are parallel, not sequential
        if self.local is not None and self.local_norm is not None:
            local, edge = self.local(x, batch.edge_index, edge, distances)
            branches.append(self.local_norm(local))
        if self.attention is not None and self.attention_norm is not None:
            layout = DenseLayout.from_batch(batch) if layout is None else layout
            mixed = self.dropout(self.attention(x, batch, layout))
            branches.append(self.attention_norm(x + mixed))
        # A plain sum, although each branch already contains x.
        joined = branches[0] if len(branches) == 1 else branches[0] + branches[1]
        return self.norm(joined + self.feed_forward(joined)), edge


class GPSBackbone(Architecture):
    """Encoders and a stack of GPS layers; an architecture adds its attention and its options.

        class MyModel(GPSBackbone):
            def __init__(self, spec: BenchmarkSpec, hidden_dim: int = 64, num_layers: int = 10) -> None:
                super().__init__(spec, hidden_dim, num_layers, lambda: MyAttention(hidden_dim))

    Args:
        spec: the benchmark's description.
        hidden_dim: width of nodes and edges.
        num_layers: GPS layers.
        make_attention: creates the global attention of one layer, or returns None for no global branch.
        local_layer: GatedGCN, GINE, GCN, GAT or none.
        num_heads: heads of the local layer GAT.
        dropout: probability of every dropout except that of attention weights.
        norm: batch, layer or none.
        positional_encoders: outputs are concatenated to the node features, which get the remaining width.
        gate_encoder: positions whose distances gate the edges of GatedGCN (ES-LapPE); not added to node features.
        categorical: how categorical features are encoded, see `FeatureEncoder`.
        activation: relu or gelu, of the feed-forward networks and of GatedGCN and GINE.

    Raises:
        BadInput: there is no layer, or the options do not fit together.

    Examples:
        >>> from graphbench.testing import tiny_spec, tiny_table
        >>> spec = tiny_spec()
        >>> batch = tiny_table(spec, sizes=[3, 4]).batch([0, 1])
        >>> model = GPSBackbone(spec, 8, num_layers=2, make_attention=lambda: TransformerAttention(8, num_heads=2))
        >>> model(batch).node.shape
        torch.Size([7, 8])
    """

    def __init__(
        self,
        spec: BenchmarkSpec,
        hidden_dim: int,
        num_layers: int,
        make_attention: Callable[[], nn.Module | None],
        *,
        local_layer: LocalName = "GatedGCN",
        num_heads: int = 4,
        dropout: float = 0.0,
        norm: NormName = "batch",
        positional_encoders: Sequence[PositionalEncoder] = (),
        gate_encoder: PositionalEncoder | None = None,
        categorical: Categorical = "xavier_uniform",
        activation: Activation = "relu",
    ) -> None:
        super().__init__(spec, hidden_dim)
        self.node_encoder = NodeEncoder(spec, hidden_dim, positional_encoders, categorical)
        # Only for layers that read edges: DDP fails on parameters without a gradient.
        self.edge_encoder = EdgeEncoder(spec, hidden_dim, categorical) if local_layer in EDGE_LAYERS else None
        self.edge_dim = hidden_dim if self.edge_encoder is not None else 0
        self.gate_encoder = gate_encoder
        self.layers = nn.ModuleList()
        for _ in range(num_layers):
            local = make_local_layer(
                local_layer, hidden_dim, num_heads, dropout, norm, gate_encoder is not None, activation
            )
            self.layers.append(GPSLayer(hidden_dim, local, make_attention(), dropout, norm, activation))

    def forward(self, batch: GraphBatch) -> Representation:
        """Return nodes `[num_nodes, hidden_dim]`, and edges `[num_edges, hidden_dim]` if the local layer reads them."""
        x = self.node_encoder(batch)
        edge = self.edge_encoder(batch) if self.edge_encoder is not None else None
        # Once per batch: neither the distances nor the layout depend on the layer.
        distances = self._distances(batch)
        layout = self.lay_out(batch)
        for layer in self.layers:
            x, edge = layer(x, edge, batch, layout, distances)
        return Representation(node=x, edge=edge)

    def lay_out(self, batch: GraphBatch) -> DenseLayout:
        """Return the padded layout that all layers share."""
        return DenseLayout.from_batch(batch)

    def _distances(self, batch: GraphBatch) -> Tensor | None:
        """Return the squared distances `[num_edges, 1]` of the positions at the ends of each edge."""
        if self.gate_encoder is None:
            return None
        position = self.gate_encoder(batch)
        source, target = batch.edge_index[0], batch.edge_index[1]
        difference = position.index_select(0, target) - position.index_select(0, source)
        return difference.square().sum(-1, keepdim=True)
