"""Graphormer: global attention with degrees, distances and the edges of shortest paths."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any, Literal, get_args

import torch
from torch import Tensor, nn

from graphbench import Architecture, BenchmarkSpec, GraphBatch, Representation
from graphbench.encodings import Ties
from graphbench.errors import check_choice, check_range
from graphbench.nn import (
    EMBEDDING_STD,
    FAIRSEQ_TABLES,
    CentralityEmbedding,
    DenseLayout,
    FeedForward,
    PairBias,
    ReleasedTables,
    TokenReadout,
    WeightInit,
    check_weight_init,
    compute_dtype,
    count_pairs,
    draw_normal_maps,
)
from graphbench_baselines.attention import GateFusion, Padding, StructuredAttention, run_layer

#: "paper": norms before the branches and one after the last layer. "fairseq": norms after the branches and on the
#: embeddings, and a read-out after the last layer.
Version = Literal["paper", "fairseq"]
#: Tables of the first code on ZINC.
FIRST_TABLES = ReleasedTables(atoms=64, degrees=64, edges=64, hops=40, distances=40, step=0, first=1)


class GraphormerLayer(nn.Module):
    """Attention and a feed-forward network, `4 d^2 + 2 d f + 9 d + f` parameters.

        y  = x + Drop(Attention(LN(x)))         x' = y + FFN(LN(y))       norms first (equations 8 and 9)
        y  = LN(x + Drop(Attention(x)))         x' = LN(y + FFN(y))       norms after
        FFN a `FeedForward` with GELU

    Args:
        dim: width d of the tokens.
        ffn_dim: width f of the feed-forward network.
        num_heads: heads; must divide `dim`.
        dropout: probability of Drop.
        attention_dropout: probability of dropping an attention weight.
        activation_dropout: probability of dropout inside FFN.
        norm_first: norms before the branches.
        re_attention: let heads exchange their weights, see `ReAttention`.
        attention: padded or packed, see `StructuredAttention`.
    """

    def __init__(
        self,
        dim: int,
        ffn_dim: int,
        num_heads: int,
        dropout: float = 0.0,
        attention_dropout: float = 0.0,
        activation_dropout: float = 0.0,
        norm_first: bool = True,
        re_attention: bool = False,
        attention: Padding = "padded",
    ) -> None:
        super().__init__()
        self.norm_first, self.dropout = norm_first, nn.Dropout(dropout)
        self.attention = StructuredAttention(
            dim, num_heads, attention_dropout, re_attention=re_attention, extra_tokens=1, attention=attention
        )
        self.attention_norm = nn.LayerNorm(dim)
        self.ffn = FeedForward(dim, ffn_dim, dropout, "gelu", activation_dropout)
        self.ffn_norm = nn.LayerNorm(dim)

    def forward(self, x: Tensor, layout: DenseLayout, biases: Sequence[Tensor | None]) -> Tensor:
        """Return tokens `[T, dim]` after the layer; arguments as for `StructuredAttention.forward`."""
        if self.norm_first:
            x = x + self.dropout(self.attention(self.attention_norm(x), layout, biases))
            return x + self.ffn(self.ffn_norm(x))
        x = self.attention_norm(x + self.dropout(self.attention(x, layout, biases)))
        normed: Tensor = self.ffn_norm(x + self.ffn(x))
        return normed


class SpatialBias(PairBias):
    """Bias of the attention logits (equations 6 and 7), shared by all layers.

    Node pairs use that of `PairBias`; the bias from the graph token to any token and vice versa is `t[h]`.

    Args:
        spec: the benchmark's description.
        num_heads: heads H.
        max_distance: larger distances share the row of this one.
        max_hops: edges of a path to include; 0 omits the edge term, as do edges without features.
        tables: sizes of a released code; they also determine `max_distance`.
        ties: which shortest paths count, see `PairBias`.

    Raises:
        BadInput: the features do not fit the released tables.
    """

    def __init__(
        self,
        spec: BenchmarkSpec,
        num_heads: int,
        max_distance: int,
        max_hops: int,
        tables: ReleasedTables | None = None,
        ties: Ties = "all",
    ) -> None:
        super().__init__(spec, num_heads, max_distance, max_hops, tables, ties)
        self.token = nn.Embedding(1, num_heads)
        nn.init.normal_(self.token.weight, std=EMBEDDING_STD)

    def forward(self, batch: GraphBatch, node_slots: Tensor, padded: int) -> Tensor:
        """Return the bias `[G, H, N, N]` in the precision of the parameters, rows are queries; padding is arbitrary.

        Args:
            batch: the graphs.
            node_slots: slot of each node among the `G * N` padded ones `[num_nodes]`.
            padded: padded tokens N of a graph.
        """
        return self.place(batch, node_slots, self.token.weight.expand(batch.num_graphs, padded, padded, -1))


class Graphormer(Architecture):
    """Graphormer (Ying et al., NeurIPS 2021, arXiv 2106.05234); defaults are the slim model.

    The base model has `hidden_dim=768, ffn_dim=768, num_heads=32`, the small one 512, 512, 32 and six layers; the slim
    one reads 20 hops on ZINC. The tokens of a graph are its nodes and a graph token, which is `graph` in the
    representation; the head should have one layer (`head: {num_layers: 1}`).

    Time and memory: `B L (N d^2 + N^2 (d + H))`, `B L (N d + H N^2)`.

    Args:
        spec: the benchmark's description.
        hidden_dim: width d of the tokens.
        ffn_dim: width of the feed-forward networks.
        num_layers: layers L.
        num_heads: heads H; must divide `hidden_dim`.
        dropout: probability of dropout on both branches of a layer.
        input_dropout: probability of dropout on the embeddings.
        attention_dropout: probability of dropping an attention weight.
        activation_dropout: probability of dropout inside the feed-forward networks.
        max_distance: larger distances share the bias of this one.
        max_degree: larger degrees share the embedding of this one.
        max_hops: edges of a shortest path that enter the edge term; 0 omits the term.
        version: paper or fairseq, the authors' second code, which DeepGraph's authors deepened.
        init: initial values of linear maps, normal or xavier. normal, as published: N(0, 0.02^2 / L) in the paper's
            version, N(0, 0.02^2) for fairseq, biases zero. xavier: as in fairseq's encoder without Graphormer's
            weights, which DeepGraph's authors deepened: Xavier-uniform maps of attention, with gain 1/sqrt(2) for
            queries, keys and values, and PyTorch's default elsewhere. Both draw tables from N(0, 0.02^2).
        fusion: pass a gated mean of all depths to the head, see `GateFusion`.
        re_attention: let heads exchange their weights, see `ReAttention`.
        checkpointing: keep only the tokens between layers in memory and recompute each layer in the backward pass.
        released: include the tables of the released code of this version with all their unused rows, and for fairseq an
            unused map, which published parameter counts include. `max_distance` and `max_degree` are then those of the
            code.
        attention: padded, or packed: on a GPU by a kernel without padding, see `attend_within_graphs`; its speed has
            not been measured on a GPU yet. Not with `re_attention`.
        ties: paths whose edges enter the edge term if several shortest paths join a pair: all (their mean does not
            depend on the numbering of nodes), or one, as in the released code, whose weights were trained this way.

    Raises:
        BadInput: an option is out of range, or with `released` the features do not fit the released tables.

    Examples:
        >>> from graphbench.testing import tiny_batch, tiny_spec
        >>> model = Graphormer(tiny_spec(kind="categorical"), hidden_dim=16, ffn_dim=16, num_layers=2)
        >>> model(tiny_batch(model)).graph.shape  # one graph token per graph
        torch.Size([4, 16])
    """

    def __init__(
        self,
        spec: BenchmarkSpec,
        hidden_dim: int = 80,
        ffn_dim: int = 80,
        num_layers: int = 12,
        num_heads: int = 8,
        dropout: float = 0.1,
        input_dropout: float = 0.0,
        attention_dropout: float = 0.1,
        activation_dropout: float = 0.0,
        max_distance: int = 40,
        max_degree: int = 8,
        max_hops: int = 5,
        version: Version = "paper",
        init: WeightInit = "normal",
        fusion: bool = False,
        re_attention: bool = False,
        checkpointing: bool = False,
        released: bool = False,
        attention: Padding = "padded",
        ties: Ties = "all",
    ) -> None:
        super().__init__(spec, hidden_dim)
        check_choice("ties", ties, get_args(Ties))
        check_range("max_hops", max_hops, at_least=0, whole=True)
        check_choice("version", version, get_args(Version))
        check_weight_init(init)
        self.re_attention = re_attention
        fairseq = version == "fairseq"
        tables = (FAIRSEQ_TABLES if fairseq else FIRST_TABLES) if released else None
        self.input_dropout, self.checkpointing = nn.Dropout(input_dropout), checkpointing
        self.embedding = CentralityEmbedding(spec, hidden_dim, max_degree, tables)
        self.graph_token = nn.Embedding(1, hidden_dim)
        self.embedding_norm = nn.LayerNorm(hidden_dim) if fairseq else None
        self.bias = SpatialBias(spec, num_heads, max_distance, max_hops, tables, ties)
        self.layers = nn.ModuleList(
            GraphormerLayer(
                hidden_dim,
                ffn_dim,
                num_heads,
                dropout,
                attention_dropout,
                activation_dropout,
                norm_first=not fairseq,
                re_attention=re_attention,
                attention=attention,
            )
            for _ in range(num_layers)
        )
        self.fusion = GateFusion(hidden_dim) if fusion else None
        # With norms before the branches the last sum has no norm.
        self.final: nn.Module = TokenReadout(hidden_dim) if fairseq else nn.LayerNorm(hidden_dim)
        #: The fairseq code allocates this map and never uses it.
        self.pooler = nn.Linear(hidden_dim, hidden_dim) if released and fairseq else None
        nn.init.normal_(self.graph_token.weight, std=EMBEDDING_STD)
        if init == "normal":
            draw_normal_maps(self, EMBEDDING_STD if fairseq else EMBEDDING_STD * num_layers**-0.5)
        else:
            self._draw_xavier_maps()

    @torch.no_grad()
    def _draw_xavier_maps(self) -> None:
        """Draw the maps of attention from Xavier-uniform distributions; the others keep PyTorch's default."""
        for layer in self.layers:
            assert isinstance(layer, GraphormerLayer)
            attention = layer.attention
            # Separately, as fairseq has three maps: a joined matrix would have a larger fan-out and a different bound.
            for weight in (*attention.qk_map.weight.chunk(2), attention.v_map.weight):
                nn.init.xavier_uniform_(weight, gain=2**-0.5)
            nn.init.xavier_uniform_(attention.out_map.weight)
            nn.init.zeros_(attention.out_map.bias)

    def precompute(self, batch: GraphBatch, generator: torch.Generator | None = None) -> dict[str, Any]:
        """Count the pairs of tokens of a graph, over which heads exchange weights."""
        return {"num_token_pairs": count_pairs(_token_ptr(batch))} if self.re_attention else {}

    def forward(self, batch: GraphBatch) -> Representation:
        """Return nodes `[num_nodes, hidden_dim]` and graph tokens `[num_graphs, hidden_dim]`."""
        layout, node, graph = token_layout(batch)
        if self.re_attention:
            # Counted on the host by `precompute`; otherwise every forward pass would read it from the device.
            layout = replace(layout, num_pairs=batch.num_token_pairs)
        x = torch.cat([self.embedding(batch), self.graph_token.weight.expand(batch.num_graphs, -1)])
        # From all nodes, then graph tokens, to an order by graph: argsort inverts the permutation.
        x = x[torch.cat([node, graph]).argsort()]
        if self.embedding_norm is not None:
            x = self.embedding_norm(x)
        x = self.input_dropout(x)
        # Computed and cast once for all layers, which share it (section 3.1.2).
        bias = self.bias(batch, layout.index[node], layout.max_nodes)
        biases = layout.block_biases(bias.to(compute_dtype(x)))
        states = [x]
        for layer in self.layers:
            x = run_layer(layer, x, layout, biases, checkpointing=self.checkpointing)
            if self.fusion is not None:
                states.append(x)
        x = self.final(x if self.fusion is None else self.fusion(states))
        return Representation(node=x[node], graph=x[graph])


def token_layout(batch: GraphBatch) -> tuple[DenseLayout, Tensor, Tensor]:
    """Lay out nodes and graph tokens; within a graph the graph token comes last.

    Returns:
        The layout of all tokens, the token of each node `[num_nodes]`, the graph token of each graph `[num_graphs]`.
    """
    numbers = torch.arange(batch.num_graphs, device=batch.ptr.device)
    ptr = _token_ptr(batch)
    graph_of = torch.repeat_interleave(numbers, ptr.diff(), output_size=batch.num_nodes + batch.num_graphs)
    node = torch.arange(batch.num_nodes, device=ptr.device) + batch.batch
    return DenseLayout.from_rows(graph_of, ptr, batch.max_nodes + 1), node, ptr[1:] - 1


def _token_ptr(batch: GraphBatch) -> Tensor:
    """Return the first token of each graph `[B + 1]`."""
    return batch.ptr + torch.arange(batch.num_graphs + 1, device=batch.ptr.device)
