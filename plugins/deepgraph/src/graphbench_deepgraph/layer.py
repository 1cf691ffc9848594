"""One layer of DeepGraph: biased attention and a feed-forward network with deepnorm residuals.

Legend: T tokens of all graphs, G graphs, B graphs of a block, N padded tokens, H heads, d head width, dim = H d;
P node pairs, K memberships of nodes in sampled substructures.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from graphbench import BenchmarkSpec, GraphBatch, LayerTrace, Traced
from graphbench.errors import check_divides
from graphbench.nn import (
    EMBEDDING_STD,
    FAIRSEQ_TABLES,
    FeedForward,
    PairBias,
    WeightInit,
    attend_within_graphs,
    attention_weights,
    draw_normal_maps,
    mixed_values,
)
from graphbench_deepgraph.tokens import TokenLayout

#: Edges of a shortest path that enter the edge term: equation 3 uses all of them, the released code the first five.
MAX_HOPS = 5
#: Rows of the table for pairs other than two nodes.
_HIDDEN, _GRAPH, _MEMBER = range(3)


def deepnorm_factors(num_layers: int) -> tuple[float, float]:
    """Compute `alpha = (2 L)^(1/4)` and `beta = (8 L)^(-1/4)` of L layers (Wang et al. 2022, arXiv 2203.00555)."""
    return (2 * num_layers) ** 0.25, (8 * num_layers) ** -0.25


class DeepGraphLayer(nn.Module):
    """Post-norm transformer layer (section 5), `4 d^2 + 2 d f + 9 d + f` parameters.

        y  = LN(alpha x + Drop(Attention(x)))
        x' = LN(alpha y + FFN(y)),      FFN a `FeedForward` with GELU

    Values, the output map and the feed-forward network start at beta times their usual size, biases included. With
    `init` xavier these are the released code's: Xavier-uniform maps of attention, with gain 1/sqrt(2) for queries, keys
    and values, and PyTorch's default in the feed-forward network. With normal they are N(0, 0.02^2), with biases of 0.

    Args:
        dim: width d of the tokens.
        ffn_dim: width f of the feed-forward network.
        num_heads: heads; must divide `dim`.
        dropout: probability of Drop.
        attention_dropout: probability of dropping an attention weight.
        activation_dropout: probability of dropout inside FFN.
        alpha: weight of the residual branches.
        beta: initial scale of these weights.
        init: xavier or normal.

    Raises:
        BadInput: `num_heads` does not divide `dim`.

    Examples:
        >>> layer = DeepGraphLayer(dim=16, ffn_dim=32, num_heads=4)
        >>> sum(parameter.numel() for parameter in layer.parameters()), 4 * 16**2 + 2 * 16 * 32 + 9 * 16 + 32
        (2224, 2224)
    """

    def __init__(
        self,
        dim: int,
        ffn_dim: int,
        num_heads: int,
        dropout: float = 0.0,
        attention_dropout: float = 0.0,
        activation_dropout: float = 0.0,
        alpha: float = 1.0,
        beta: float = 1.0,
        init: WeightInit = "xavier",
    ) -> None:
        super().__init__()
        self.alpha, self.dropout = alpha, nn.Dropout(dropout)
        self.attention = TokenAttention(dim, num_heads, attention_dropout, residual_weight=alpha)
        self.attention_norm = nn.LayerNorm(dim)
        # GELU as in the released code; the paper's theory section writes ReLU.
        self.ffn = FeedForward(dim, ffn_dim, dropout, "gelu", activation_dropout)
        self.ffn_norm = nn.LayerNorm(dim)
        self.reset_parameters(beta, init)

    @torch.no_grad()
    def reset_parameters(self, beta: float, init: WeightInit = "xavier") -> None:
        """Draw the maps as described in the class, then scale by beta."""
        for linear in (self.attention.in_proj, self.attention.out_proj, self.ffn.expand, self.ffn.contract):
            linear.reset_parameters()
        # Initialise the three separately: as a single matrix they would have a fan-out of 3 d, and smaller bounds.
        for weight in self.attention.in_proj.weight.chunk(3):
            nn.init.xavier_uniform_(weight, gain=2**-0.5)
        nn.init.xavier_uniform_(self.attention.out_proj.weight)
        nn.init.zeros_(self.attention.out_proj.bias)
        if init == "normal":
            draw_normal_maps(self)
        # Scale only the values: queries and keys enter a softmax, whose output does not grow with them.
        for part in (self.attention.in_proj.weight, self.attention.in_proj.bias):
            part.chunk(3)[2].mul_(beta)
        for linear in (self.attention.out_proj, self.ffn.expand, self.ffn.contract):
            linear.weight.mul_(beta)
            linear.bias.mul_(beta)

    def forward(self, x: Tensor, tokens: TokenLayout, biases: Sequence[Tensor | None]) -> Tensor:
        """Return tokens `[T, dim]` after the layer; arguments as for `TokenAttention.forward`."""
        attended = self.dropout(self.attention(x, tokens, biases))
        x = self.attention_norm(self.alpha * x + attended)
        return self.ffn_norm(self.alpha * x + self.ffn(x))


class TokenAttention(Traced):
    """`out_i = W^O concat_h(sum_j softmax_j(q_i . k_j / sqrt(d) + bias_ij) v_j) + b^O`; `4 dim^2 + 4 dim` parameters.

    A trace contains the values `x W^V W^O` of all tokens, a mask of the substructure tokens, and the weight of the
    residual branch around this layer.

    Args:
        dim: width of the tokens.
        num_heads: heads H; must divide `dim`.
        dropout: probability of dropping an attention weight.
        residual_weight: weight alpha of the residual branch around the layer, for traces.

    Raises:
        BadInput: `num_heads` does not divide `dim`.
    """

    def __init__(self, dim: int, num_heads: int, dropout: float = 0.0, residual_weight: float = 1.0) -> None:
        super().__init__()
        check_divides("num_heads", num_heads, "hidden_dim", dim)
        self.num_heads, self.dropout, self.residual_weight = num_heads, dropout, residual_weight
        self.in_proj = nn.Linear(dim, 3 * dim)
        self.out_proj = nn.Linear(dim, dim)

    def forward(self, x: Tensor, tokens: TokenLayout, biases: Sequence[Tensor | None]) -> Tensor:
        """Attend within each graph.

        Args:
            x: tokens `[T, dim]`.
            tokens: their layout.
            biases: bias `[B, H, N, N]` of each of `tokens.dense.blocks`.
        """
        qkv = self.in_proj(x)
        dropout = self.dropout if self.training else 0.0
        out: Tensor = self.out_proj(attend_within_graphs(qkv, tokens.dense, self.num_heads, biases, dropout))
        if tokens.traced:
            self.trace(lambda: self._record(x, qkv, tokens, biases, out))
        return out

    @torch.no_grad()
    def _record(
        self, x: Tensor, qkv: Tensor, tokens: TokenLayout, biases: Sequence[Tensor | None], out: Tensor
    ) -> LayerTrace:
        heads = tokens.dense.to_block_heads(qkv, 3, self.num_heads)
        weights = [attention_weights(q, k, bias) for (q, k, _), bias in zip(heads, biases, strict=True)]
        return LayerTrace(
            tokens=out.detach(),
            batch=tokens.batch,
            values=mixed_values(x, self.in_proj.weight.chunk(3)[2], self.out_proj.weight, self.num_heads),
            attention=tokens.dense.matrices_of_graphs(weights),
            num_nodes=tokens.num_nodes,
            input=x,
            substructure=tokens.is_substructure,
            residual_weight=self.residual_weight,
        )


class RelativeBias(PairBias):
    """Bias of attention logits, minus infinity where attention is masked: `[G, H, N, N]`.

    | query, key | bias of head h |
    |---|---|
    | node, node | `D[distance, h]` + edge term, see `PairBias` |
    | graph token, any; any, graph token | `t[h]` |
    | substructure, its node; node, its substructure | `m[h]` |
    | everything else | minus infinity |

    So nodes attend to all nodes of their graph, but a substructure attends to its own nodes and the graph token only,
    not even to itself (section 5). Padded queries see the graph token, which keeps their softmax finite.

    Args:
        spec: the benchmark's description.
        num_heads: heads H.
        max_distance: larger distances share the row of this one; unreachable pairs have their own row.
        members: whether graphs have substructures.
        released: use the released tables, see `ReleasedTables`; substructures then share the row of pairs without a
            path.

    Raises:
        BadInput: the features do not fit the released tables.

    Examples:
        >>> from graphbench.testing import tiny_spec
        >>> bias = RelativeBias(tiny_spec(kind="categorical"), num_heads=4, max_distance=5)
        >>> tuple(bias.distance.weight.shape)  # distances 0 to 5, and pairs without a path
        (7, 4)
    """

    def __init__(
        self, spec: BenchmarkSpec, num_heads: int, max_distance: int, members: bool = True, released: bool = False
    ) -> None:
        super().__init__(spec, num_heads, max_distance, MAX_HOPS, FAIRSEQ_TABLES if released else None)
        self.member = nn.Parameter(torch.empty(1, num_heads)) if members and not released else None
        self.graph = nn.Parameter(torch.empty(1, num_heads))
        for row in (self.member, self.graph):
            if row is not None:
                nn.init.normal_(row, std=EMBEDDING_STD)

    @property
    def member_row(self) -> Tensor:
        """The bias between a substructure and its nodes `[1, H]`."""
        if self.member is not None:
            return self.member
        return self.distance.weight[self.paths.unreachable, None]

    def forward(self, batch: GraphBatch, tokens: TokenLayout) -> Tensor:
        """Return the bias `[G, H, N, N]` in the precision of the parameters, rows are queries."""
        hidden = torch.full_like(self.graph, -torch.inf)
        others = F.embedding(_codes(tokens), torch.cat([hidden, self.graph, self.member_row]))
        return self.place(batch, tokens.dense.index[tokens.node], others)


def _codes(tokens: TokenLayout) -> Tensor:
    """Encode each pair of slots, except those of two nodes, as `_HIDDEN`, `_GRAPH` or `_MEMBER`: `[G, N, N]`."""
    dense, padded = tokens.dense, tokens.dense.max_nodes
    codes = torch.full((dense.num_graphs * padded**2,), _HIDDEN, device=dense.index.device)
    node, substructure = dense.index[tokens.member_node], dense.index[tokens.member_substructure]
    # Pairs of two nodes stay hidden here: `place` overwrites them with their biases.
    codes[substructure * padded + node % padded] = _MEMBER
    codes[node * padded + substructure % padded] = _MEMBER
    # Written last. Its column includes padded queries, which would otherwise have no key; its row skips padded keys.
    graph = dense.index[tokens.graph]
    everything = torch.arange(dense.num_graphs * padded, device=codes.device)
    codes[everything * padded + (graph % padded).repeat_interleave(padded)] = _GRAPH
    codes[graph[tokens.batch] * padded + dense.index % padded] = _GRAPH
    return codes.view(dense.num_graphs, padded, padded)
