"""Sequoia: attention within the families of a fixed tree over the tokens.

Trang et al., "Scalable Hierarchical Self-Attention with Learnable Hierarchy for Long-Range Interactions", TMLR 2024,
openreview.net/forum?id=qH4YFMyhce. Their code for the Long Range Arena is one file, `lra/model.py`.

Legend: as in `tree.py`; H heads, d head width, A ancestors.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import chain
from typing import Literal, get_args

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from graphbench import BenchmarkSpec
from graphbench.errors import check_choice, check_range
from graphbench.nn import DenseLayout, FeedForward, attention_weights
from graphbench_sequences.model import InteractionName, PoolingName, SequenceModel
from graphbench_sequences.tokens import PositionName, TokenName, check_sequences
from graphbench_sequences.tree import Relatives, Tree

LevelOrder = Literal["bottom_up", "top_down", "complete", "interleaved"]
#: Initial standard deviation of token vectors, as in the released code.
_TOKEN_STD = 0.02
#: Relatives of a node: ancestors, siblings and children.
_KINDS = 3


def visits(order: LevelOrder, num_levels: int) -> Iterator[tuple[int, int | None]]:
    """Yield levels in the order in which values are written, each with the depth of its trees.

    * bottom_up: `0 ... D - 1` in a tree of D levels; top_down: `D - 1 ... 0`;
    * complete: bottom_up, then top_down;
    * interleaved: `0, D - 1, 1, D - 2, ..., D - 1, 0`.

    Trees have no levels above their root, so all orders except the last work for every depth, shown as None.

    Args:
        order: see above.
        num_levels: number of levels of the deepest tree.

    Examples:
        >>> list(visits("complete", 2))
        [(0, None), (1, None), (1, None), (0, None)]
        >>> list(visits("interleaved", 2))
        [(0, None), (0, 1), (1, 2), (1, None), (0, 2)]
    """
    upwards = range(num_levels)
    if order == "interleaved":
        for level in upwards:
            yield level, None
            yield from ((depth - 1 - level, depth) for depth in range(level + 1, num_levels + 1))
        return
    parts = {"bottom_up": [upwards], "top_down": [upwards[::-1]], "complete": [upwards, upwards[::-1]]}
    yield from ((level, None) for level in chain(*parts[order]))


class SequoiaAttention(nn.Module):
    """`o_i = (A_i(ancestors) + A_i(siblings) + A_i(children)) / 3`, written into the values level by level.

        A_i(S) = sum_(j in S) softmax_(j in S)(q_i . k_j / sqrt(d)) v_j,      v_i <- o_i,      out = W_O o + b

    Later levels see the values that earlier ones have written; queries and keys do not change. Ancestors are those of
    all levels above; siblings are all children of the same parent, including the node itself. A kind that a node lacks
    (ancestors of the root, children of tokens) counts as zero. `4 dim H d + 3 H d + dim` parameters.

    Args:
        dim: width of the nodes.
        num_heads, head_dim: H, d; the total width of the heads may differ from `dim`.
        level_order: see `visits`.
        dropout: probability of dropping an attention weight.
        is_last: return only tokens, since nothing reads the other levels.

    Examples:
        >>> tree = Tree.over(torch.tensor([5, 1]), max_length=5, num_children=2)
        >>> x = tree.grow(torch.randn(2, 5, 8))
        >>> x.shape, SequoiaAttention(8, num_heads=2, head_dim=4)(x, tree).shape
        (torch.Size([2, 14, 8]), torch.Size([2, 14, 8]))
    """

    def __init__(
        self,
        dim: int,
        num_heads: int,
        head_dim: int,
        level_order: LevelOrder = "bottom_up",
        dropout: float = 0.0,
        is_last: bool = False,
    ) -> None:
        super().__init__()
        self.num_heads, self.dropout, self.is_last = num_heads, nn.Dropout(dropout), is_last
        self.level_order: LevelOrder = level_order
        self.qkv_map = nn.Linear(dim, 3 * num_heads * head_dim)
        self.out_map = nn.Linear(num_heads * head_dim, dim)

    def forward(self, x: Tensor, tree: Tree) -> Tensor:
        """Attend among slots `[B, W, dim]`; with `is_last` return only the tokens, `[B, w_0, dim]`."""
        heads = self.qkv_map(x).unflatten(-1, (3, self.num_heads, -1)).permute(2, 0, 3, 1, 4)
        q, k, v = (tree.split(part, 2) for part in heads)
        steps = list(visits(self.level_order, tree.num_levels))
        if self.is_last:  # nothing reads values written after the tokens' last turn
            steps = steps[: max(number for number, step in enumerate(steps) if step[0] == 0) + 1]
        for level, depth in steps:
            new = self._attend(level, q, k, v, tree)
            fits = None if depth is None else (tree.depth == depth)[:, None, None, None, None]
            # Put a new tensor in the list: autograd still needs the values that earlier levels have read.
            v[level] = new if fits is None else torch.where(fits, new, v[level])
        levels = v[:1] if self.is_last else v
        joined = torch.cat([part.flatten(2, 3) for part in levels], dim=2)
        out: Tensor = self.out_map(joined.transpose(1, 2).flatten(2))
        return out

    def _attend(self, level: int, q: Sequence[Tensor], k: Sequence[Tensor], v: Sequence[Tensor], tree: Tree) -> Tensor:
        """Compute values `[B, H, m, k, d]` of one level; arguments contain one such tensor per level."""
        out = self._mix(q[level], k[level], v[level], tree.siblings[level])
        if level < tree.num_levels - 1:  # a group shares its ancestors
            keys, values = (_choose(part[level + 1 :], tree.places[level]) for part in (k, v))
            out = out + self._mix(q[level], keys, values, tree.ancestors[level])
        if level > 0:  # the groups below are the children of one node each
            nodes, slots = q[level - 1].shape[2], q[level].flatten(2, 3)
            mixed = self._mix(slots[:, :, :nodes].unsqueeze(3), k[level - 1], v[level - 1], tree.siblings[level - 1])
            out = out + F.pad(mixed.squeeze(3), (0, 0, 0, slots.shape[2] - nodes)).view_as(out)
        return (out / _KINDS).to(v[level].dtype)

    def _mix(self, q: Tensor, k: Tensor, v: Tensor, relatives: Relatives) -> Tensor:
        """Mix values `[B, H, m, r, d]` for r queries of each group from its c keys `[B, H, m, c, d]`."""
        # A group without keys has a bias of zeros to avoid NaN in the softmax; the factor removes its result.
        weights = attention_weights(q, k, relatives.bias) * relatives.has_some.to(q.dtype)
        return self.dropout(weights.to(v.dtype)) @ v


def _choose(levels: Sequence[Tensor], places: Sequence[Tensor]) -> Tensor:
    """Select the node of each level `[B, H, m', k, d]` at its place `[m]`: `[B, H, m, A, d]`."""
    chosen = [part.flatten(2, 3).index_select(2, place) for part, place in zip(levels, places, strict=True)]
    return torch.stack(chosen, dim=3)


class SequoiaLayer(nn.Module):
    """`y = x + Drop(A(Norm(x)))`, `x' = y + FFN(Norm(y))` on the nodes of all levels; FFN has GELU.

    Args:
        dim: width of the nodes.
        attention: A.
        ffn_dim: width of the feed-forward network.
        dropout: probability of Drop and of the dropouts of FFN.

    Examples:
        >>> tree = Tree.over(torch.tensor([5, 1]), max_length=5, num_children=2)
        >>> layer = SequoiaLayer(8, SequoiaAttention(8, num_heads=2, head_dim=4), ffn_dim=16)
        >>> layer(tree.grow(torch.randn(2, 5, 8)), tree).shape
        torch.Size([2, 14, 8])
    """

    def __init__(self, dim: int, attention: SequoiaAttention, ffn_dim: int, dropout: float = 0.0) -> None:
        super().__init__()
        self.attention_norm, self.ffn_norm = nn.LayerNorm(dim), nn.LayerNorm(dim)
        self.attention = attention
        self.ffn = FeedForward(dim, ffn_dim, dropout, "gelu")
        self.dropout = nn.Dropout(dropout)

    def forward(self, x: Tensor, tree: Tree) -> Tensor:
        """Run the layer; shapes as in `SequoiaAttention.forward`."""
        mixed = self.attention(self.attention_norm(x), tree)
        x = x[:, : mixed.shape[1]] + self.dropout(mixed)
        out: Tensor = x + self.ffn(self.ffn_norm(x))
        return out


class SequoiaStack(nn.Module):
    """Build the tree of each document and run the layers over its nodes.

    Args:
        layers: layers in order; the attention of the last one returns only tokens.
        num_children: k.
        dropout: probability of dropping an entry of a node before the first layer.

    Examples:
        >>> stack = SequoiaStack([SequoiaLayer(8, SequoiaAttention(8, 2, 4, is_last=True), ffn_dim=16)], num_children=2)
        >>> stack(torch.randn(4, 8), DenseLayout.from_batch(torch.tensor([0, 0, 0, 1]))).shape
        torch.Size([4, 8])
    """

    def __init__(self, layers: Sequence[SequoiaLayer], num_children: int, dropout: float = 0.0) -> None:
        super().__init__()
        self.layers = nn.ModuleList(layers)
        self.num_children, self.dropout = num_children, nn.Dropout(dropout)

    def forward(self, x: Tensor, layout: DenseLayout) -> Tensor:
        """Return tokens `[T, dim]` after the last layer."""
        blocks = zip(layout.to_blocks(x), layout.blocks, strict=True)
        return layout.from_blocks([self._run(dense, block.layout) for dense, block in blocks])

    def _run(self, dense: Tensor, layout: DenseLayout) -> Tensor:
        length = dense.shape[1]
        tree = Tree.over(layout.ptr.diff(), length, self.num_children)
        nodes = self.dropout(tree.grow(dense))
        for layer in self.layers:
            nodes = layer(nodes, tree)
        return nodes[:, :length]


class SequenceSequoia(SequenceModel):
    """Sequoia with a fixed tree (Trang et al., TMLR 2024); defaults are from its code for the Long Range Arena.

    Every document has the k-ary `Tree` of its own length. Nodes attend within their family (`SequoiaAttention`), layers
    are pre-norm, and the head reads the mean of the tokens. Contrary to its configuration, the released code masks all
    attention as for language modelling; it replaces hidden relatives with the first token and repeats the last member
    of incomplete families. Here attention is not causal, and missing relatives are hidden. Attention weights are
    dropped; that code has the option but does not use it.

    Time and memory: `B L N (d^2 + H (d + log N))`, `B L N (d + H log N)`.

    Args:
        spec: the benchmark's description; nodes have one coordinate, their place.
        hidden_dim: width of the tokens.
        num_layers: layers.
        num_heads: heads.
        head_dim: width of a head.
        ffn_dim: width of the feed-forward network.
        num_children: children of a node, k.
        level_order: order in which levels attend, bottom_up, top_down, complete or interleaved, see `visits`.
        dropout: probability of every dropout except that of attention weights.
        attention_dropout: probability of dropping an attention weight.
        tokens: categories, each with a learned vector, or values, see `TokenEncoder`.
        positions: positions of tokens, learned, sinusoidal or none; the other nodes have sinusoidal ones.
        pooling: mean, or cls (a learned token before the first one, a leaf of the tree).
        interaction: how two documents are joined, concatenate or NLI, see `PairReadout`.
        max_length: tokens of the longest document, for learned positions; by default the benchmark's.

    Raises:
        BadInput: the benchmark has no sequences, or an option is out of range.

    Examples:
        >>> from graphbench.testing import tiny_batch, tiny_spec
        >>> spec = tiny_spec("graph-classification", "sequence")
        >>> model = SequenceSequoia(spec, hidden_dim=16, num_layers=2, head_dim=4, ffn_dim=32)
        >>> model(tiny_batch(model)).graph.shape  # 4 sequences
        torch.Size([4, 16])
    """

    def __init__(
        self,
        spec: BenchmarkSpec,
        hidden_dim: int = 128,
        num_layers: int = 4,
        num_heads: int = 4,
        head_dim: int = 128,
        ffn_dim: int = 128,
        num_children: int = 8,
        level_order: LevelOrder = "bottom_up",
        dropout: float = 0.1,
        attention_dropout: float = 0.1,
        tokens: TokenName = "categories",
        positions: PositionName = "learned",
        pooling: PoolingName = "mean",
        interaction: InteractionName = "concatenate",
        max_length: int | None = None,
    ) -> None:
        check_sequences(spec)
        check_choice("level_order", level_order, get_args(LevelOrder))
        check_range("head_dim", head_dim, at_least=1, whole=True)
        check_range("num_children", num_children, at_least=2, whole=True)
        if max_length is not None:
            check_range("max_length", max_length, at_least=1, whole=True)
        shared = (hidden_dim, num_heads, head_dim, level_order, attention_dropout)
        attentions = [SequoiaAttention(*shared, number == num_layers - 1) for number in range(num_layers)]
        layers = [SequoiaLayer(hidden_dim, attention, ffn_dim, dropout) for attention in attentions]
        super().__init__(
            spec,
            hidden_dim,
            [SequoiaStack(layers, num_children, dropout)],
            nn.LayerNorm(hidden_dim),
            tokens=tokens,
            positions=positions,
            pooling=pooling,
            interaction=interaction,
            max_length=max_length,
        )
        for name, parameter in self.token_encoder.named_parameters():
            if name.endswith("table"):  # vectors of categories
                nn.init.normal_(parameter, std=_TOKEN_STD)
