"""Attention of Graphormer and SAT: a bias on the logits, or queries and keys that see more than the tokens.

Legend: T tokens of all graphs, B graphs of a block, N padded tokens, H heads, d head width, dim = H d.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from graphbench import LayerTrace, Traced
from graphbench.errors import BadInput
from graphbench.nn import DenseLayout, attend_within_graphs, attention_weights, mixed_values
from graphbench_baselines.depth import ReAttention


class StructuredAttention(Traced):
    """`out_i = W^O concat_h(sum_j softmax_j(q_i . k_j / sqrt(d) + bias_ij) v_j) + b^O`.

    Queries and keys come from `structure` where it is given, values always from the tokens. `4 dim^2` parameters and
    `4 dim` biases, of which `bias=False` leaves `dim`. Without re-attention the fused kernel does the work.

    A trace holds the values `x W^V W^O`. It has no matrices under re-attention,
    whose weights are neither positive nor do they sum to one.

    Args:
        dim: width of the tokens.
        num_heads: heads H; must divide `dim`.
        dropout: probability of dropping an attention weight.
        bias: give the maps to queries, keys and values a bias.
        re_attention: let heads exchange their weights, see `ReAttention`.
        extra_tokens: tokens of every graph that are no nodes, behind them; for traces.

    Raises:
        BadInput: `num_heads` does not divide `dim`.
    """

    def __init__(
        self,
        dim: int,
        num_heads: int,
        dropout: float = 0.0,
        bias: bool = True,
        re_attention: bool = False,
        extra_tokens: int = 0,
    ) -> None:
        super().__init__()
        if num_heads < 1 or dim % num_heads:
            raise BadInput(f"num_heads must divide hidden_dim, but got num_heads={num_heads} and hidden_dim={dim}.")
        self.num_heads, self.dropout, self.extra_tokens = num_heads, dropout, extra_tokens
        self.qk_map = nn.Linear(dim, 2 * dim, bias=bias)  # W^Q and W^K
        self.v_map = nn.Linear(dim, dim, bias=bias)  # W^V
        self.out_map = nn.Linear(dim, dim)  # W^O
        self.re_attention = ReAttention(num_heads, dim // num_heads) if re_attention else None

    def forward(
        self,
        x: Tensor,
        layout: DenseLayout,
        biases: Sequence[Tensor | None] | None = None,
        structure: Tensor | None = None,
    ) -> Tensor:
        """Attend within each graph.

        Args:
            x: tokens `[T, dim]`.
            layout: where they lie in padded graphs.
            biases: `layout.block_biases(bias)`; None where nothing is added.
            structure: what queries and keys are made of `[T, dim]`; the tokens themselves when left out.
        """
        qkv = torch.cat([self.qk_map(x if structure is None else structure), self.v_map(x)], dim=-1)
        if self.re_attention is None:
            dropout = self.dropout if self.training else 0.0
            mixed = attend_within_graphs(qkv, layout, self.num_heads, biases, dropout)
        else:
            blocks = layout.to_block_heads(qkv, 3, self.num_heads)
            mixed = layout.from_block_heads(self._exchanged(self.re_attention, blocks, layout, biases))
        out: Tensor = self.out_map(mixed)
        self.trace(lambda: self._record(x, qkv, layout, biases, out))
        return out

    def _exchanged(
        self,
        exchange: ReAttention,
        blocks: Sequence[tuple[Tensor, ...]],
        layout: DenseLayout,
        biases: Sequence[Tensor | None] | None,
    ) -> list[Tensor]:
        """Mixed values `[B, H, N, d]` of each block under re-attention."""
        biases = layout.block_biases() if biases is None else biases
        weights = [attention_weights(q, k, bias) for (q, k, _), bias in zip(blocks, biases, strict=True)]
        weights = [F.dropout(weight, self.dropout, self.training) for weight in weights]
        exchanged = exchange(weights, [block.layout.mask for block in layout.blocks])
        return [weight.to(v.dtype) @ v for weight, (_, _, v) in zip(exchanged, blocks, strict=True)]

    @torch.no_grad()
    def _record(
        self,
        x: Tensor,
        qkv: Tensor,
        layout: DenseLayout,
        biases: Sequence[Tensor | None] | None,
        out: Tensor,
    ) -> LayerTrace:
        matrices, biases = None, layout.block_biases() if biases is None else biases
        if self.re_attention is None:
            pairs = zip(layout.to_block_heads(qkv, 3, self.num_heads), biases, strict=True)
            matrices = layout.matrices_of_graphs([attention_weights(q, k, bias) for (q, k, _), bias in pairs])
        none = torch.zeros(len(x), dtype=torch.bool, device=x.device)
        return LayerTrace(
            tokens=out.detach(),
            batch=layout.graph_of,
            values=mixed_values(x, self.v_map.weight, self.out_map.weight, self.num_heads),
            attention=matrices,
            num_nodes=layout.ptr.diff() - self.extra_tokens,
            input=x.detach(),
            substructure=none if self.extra_tokens else None,  # a graph token stands for no substructure
        )
