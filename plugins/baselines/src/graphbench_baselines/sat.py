"""SAT: global attention whose queries and keys depend on the structure around a node."""

from __future__ import annotations

from dataclasses import dataclass, fields, replace
from typing import Any, cast, get_args

import torch
from torch import Tensor, nn

from graphbench import Architecture, BenchmarkSpec, GraphBatch, PositionalEncoder, Representation
from graphbench.errors import BadInput, check_choice, check_range
from graphbench.nn import (
    Categorical,
    DenseLayout,
    EdgeEncoder,
    FeedForward,
    NodeEncoder,
    NormName,
    count_nodes,
    count_pairs,
    make_norm,
)
from graphbench_baselines.attention import GateFusion, StructuredAttention, run_layer
from graphbench_baselines.structure import (
    EDGE_GNNS,
    GNN,
    Extractor,
    MessagePassing,
    NetworkEdges,
    SubgraphExtractor,
    Subgraphs,
    SubtreeExtractor,
    khop_subgraphs,
    network_edges,
    subgraph_distances,
)


@dataclass(frozen=True)
class Surroundings:
    """Layout, edges and damping, shared by all layers of a forward pass.

    Args:
        layout: layout of the nodes in padded graphs.
        edges: edges of the extractors' networks.
        damping: `1 / sqrt(1 + out-degree)` of every node `[num_nodes, 1]`.
    """

    layout: DenseLayout
    edges: NetworkEdges
    damping: Tensor


class SATLayer(nn.Module):
    """`y = Norm(x + Drop(c * Attention(x)))`, `x' = Norm(y + FFN(y))`, with `c_i = 1 / sqrt(1 + degree_i)`.

    Queries and keys are maps of the extractor's output, values are maps of x; these three maps have no bias.

    Args:
        dim: width of the nodes.
        ffn_dim: width of the feed-forward network.
        num_heads: heads; must divide `dim`.
        extractor: structure of every node.
        dropout: probability of every dropout.
        norm: batch, layer or none.
        re_attention: let heads exchange their weights, see `ReAttention`.
    """

    def __init__(
        self,
        dim: int,
        ffn_dim: int,
        num_heads: int,
        extractor: nn.Module,
        dropout: float = 0.0,
        norm: NormName = "batch",
        re_attention: bool = False,
    ) -> None:
        super().__init__()
        self.extractor = extractor
        self.attention = StructuredAttention(dim, num_heads, dropout, bias=False, re_attention=re_attention)
        # Queries and keys as one matrix, as in the authors' code; Xavier's bound uses its fan-out, 2 dim.
        for linear in (self.attention.qk_map, self.attention.v_map):
            nn.init.xavier_uniform_(linear.weight)
        self.attention_norm = make_norm(norm, dim)
        self.feed_forward = FeedForward(dim, ffn_dim, dropout)
        self.ffn_norm = make_norm(norm, dim)
        self.dropout = nn.Dropout(dropout)

    def forward(self, x: Tensor, around: Surroundings) -> Tensor:
        """Return nodes `[num_nodes, dim]` after the layer."""
        structure = self.extractor(x, around.edges)
        mixed = self.attention(x, around.layout, structure=structure)
        # The paper's degree factor reduces the weight of highly connected nodes; 1 + d is as in the authors' code.
        x = self.attention_norm(x + self.dropout(around.damping * mixed))
        normed: Tensor = self.ffn_norm(x + self.feed_forward(x))
        return normed


class SAT(Architecture):
    """Structure-Aware Transformer (Chen et al., ICML 2022, arXiv 2202.03036); defaults are k-subtree SAT on ZINC.

    Time and memory: `B L (k (N + E) d^2 + N^2 (d + H))`, `B L (k (N + E) d + H N^2)`.

    Args:
        spec: the benchmark's description.
        hidden_dim: width of the nodes.
        ffn_dim: width of the feed-forward networks; by default twice `hidden_dim`.
        num_layers: layers.
        num_heads: heads; must divide `hidden_dim`.
        extractor: subtree or subgraph, see `SubtreeExtractor` and `SubgraphExtractor`.
        gnn: network of the extractor: GCN, GIN, GINE, GraphConv, GraphSAGE or PNA.
        num_hops: rounds of messages k, and the radius of subgraphs.
        num_towers: towers of PNA; must divide `hidden_dim`.
        edge_dim: width of edge vectors for GINE and PNA, if the benchmark has edge features; 0: ignore them.
        dropout: probability of every dropout.
        norm: batch, layer or none.
        positional_encoders: their outputs are concatenated, mapped to `hidden_dim` and added to the node features:
            `RandomWalkPE`, or `graphbench.nn.LapPEEncoder` with `model: raw`.
        categorical: how categorical features enter: xavier_uniform, normal or one_hot, whose map has no bias here, as
            in the authors' code.
        fusion: pass a gated mean of all depths to the head, see `GateFusion`.
        re_attention: let heads exchange their weights, see `ReAttention`.
        checkpointing: keep only the nodes between layers in memory and recompute each layer in the backward pass.
        released: include the unused norm and map of the authors' subgraph extractor, which published counts include.

    Raises:
        BadInput: an option is unknown or out of range, or `released` is used with the subtree extractor.

    Examples:
        >>> from graphbench.testing import tiny_batch, tiny_spec
        >>> model = SAT(tiny_spec(), hidden_dim=16, num_layers=2)
        >>> model(tiny_batch(model)).node.shape  # 4 graphs of a few nodes
        torch.Size([23, 16])
    """

    def __init__(
        self,
        spec: BenchmarkSpec,
        hidden_dim: int = 64,
        ffn_dim: int | None = None,
        num_layers: int = 6,
        num_heads: int = 8,
        extractor: Extractor = "subtree",
        gnn: GNN = "PNA",
        num_hops: int = 3,
        num_towers: int = 4,
        edge_dim: int = 32,
        dropout: float = 0.2,
        norm: NormName = "batch",
        positional_encoders: list[PositionalEncoder] | None = None,
        categorical: Categorical = "normal",
        fusion: bool = False,
        re_attention: bool = False,
        checkpointing: bool = False,
        released: bool = False,
    ) -> None:
        super().__init__(spec, hidden_dim)
        check_range("num_hops", num_hops, at_least=1, whole=True)
        check_range("edge_dim", edge_dim, at_least=0, whole=True)
        check_choice("extractor", extractor, get_args(Extractor))
        if released and extractor != "subgraph":
            raise BadInput("released: true adds unused parts of the subgraph extractor, but extractor is 'subtree'.")
        has_edges = bool(spec.edge.vocabularies or spec.edge.dense)
        width = edge_dim if has_edges and gnn in EDGE_GNNS and edge_dim else None
        self.checkpointing, self.num_hops = checkpointing, num_hops
        self.subgraphs = extractor == "subgraph"
        self.re_attention = re_attention
        self.encodings = (subgraph_distances(num_hops),) if self.subgraphs else ()
        self.node_encoder = NodeEncoder(spec, hidden_dim, categorical=categorical, one_hot_bias=False)
        self.edge_encoder = EdgeEncoder(spec, width, categorical) if width else None
        self.positional = nn.ModuleList(positional_encoders or ())
        positions = sum(encoder.dim for encoder in positional_encoders or ())
        self.position_map = nn.Linear(positions, hidden_dim) if positions else None
        self.layers = nn.ModuleList()
        for _ in range(num_layers):
            network = MessagePassing(gnn, hidden_dim, num_hops, width, num_towers)
            structure: nn.Module = SubtreeExtractor(network, hidden_dim, norm)
            if self.subgraphs:
                structure = SubgraphExtractor(network, hidden_dim, norm, released)
            self.layers.append(
                SATLayer(hidden_dim, ffn_dim or 2 * hidden_dim, num_heads, structure, dropout, norm, re_attention)
            )
        self.fusion = GateFusion(hidden_dim) if fusion else None

    def precompute(self, batch: GraphBatch, generator: torch.Generator | None = None) -> dict[str, Any]:
        """Extract the subgraphs of all nodes, if needed, and count the pairs for re-attention."""
        counted = {"num_pairs": count_pairs(batch.ptr)} if self.re_attention else {}
        if not self.subgraphs:
            return counted
        subgraphs = khop_subgraphs(batch, self.num_hops)
        return counted | {f"subgraph_{field.name}": getattr(subgraphs, field.name) for field in fields(Subgraphs)}

    def forward(self, batch: GraphBatch) -> Representation:
        """Return nodes `[num_nodes, hidden_dim]`."""
        x = self.node_encoder(batch)
        if self.position_map is not None:
            positions = torch.cat([encoder(batch) for encoder in self.positional], dim=-1)
            x = x + self.position_map(positions.to(self.position_map.weight.dtype))
        around = self._surroundings(batch, x.dtype)
        states = [x]
        for layer in self.layers:
            x = run_layer(layer, x, around, checkpointing=self.checkpointing)
            if self.fusion is not None:
                states.append(x)
        return Representation(node=x if self.fusion is None else self.fusion(states))

    def _surroundings(self, batch: GraphBatch, dtype: torch.dtype) -> Surroundings:
        layout = DenseLayout.from_batch(batch)
        if self.re_attention:
            layout = replace(layout, num_pairs=batch.num_pairs)
        degree = count_nodes(batch.edge_index[0], cast(int, batch.num_nodes))
        return Surroundings(
            layout=layout,
            edges=network_edges(
                batch,
                self.edge_encoder(batch) if self.edge_encoder is not None else None,
                Subgraphs(**{field.name: batch[f"subgraph_{field.name}"] for field in fields(Subgraphs)})
                if self.subgraphs
                else None,
            ),
            damping=(1 + degree).to(dtype).rsqrt()[:, None],
        )
