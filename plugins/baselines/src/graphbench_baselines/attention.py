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
from graphbench.nn import DenseLayout, mixed_values
from graphbench_baselines.depth import ReAttention


class StructuredAttention(Traced):
    """`out_i = W^O concat_h(sum_j softmax_j(q_i . k_j / sqrt(d) + bias_ij) v_j) + b^O`.

    Queries and keys come from `structure` where it is given, values always from the tokens. `4 dim^2` parameters and
    `4 dim` biases, of which `bias=False` leaves `dim`. Without re-attention the fused kernel does the work.

    A trace holds the values `x W^V W^O` and the weight 1 of the residual branch. It has no matrices under re-attention,
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
        self, x: Tensor, layout: DenseLayout, biases: Sequence[Tensor | None], structure: Tensor | None = None
    ) -> Tensor:
        """Attend within each graph.

        Args:
            x: tokens `[T, dim]`.
            layout: where they lie in padded graphs.
            biases: `layout.block_biases(bias)`.
            structure: what queries and keys are made of `[T, dim]`; the tokens themselves when left out.
        """
        qkv = torch.cat([self.qk_map(x if structure is None else structure), self.v_map(x)], dim=-1)
        blocks = [self._heads(block.take(qkv), block.layout) for block in layout.blocks]
        if self.re_attention is None:
            mixed = [self._fused(*qkv, bias) for qkv, bias in zip(blocks, biases, strict=True)]
        else:
            mixed = self._exchanged(self.re_attention, blocks, layout, biases)
        rows = [
            block.layout.to_ragged(part.transpose(1, 2).flatten(2))
            for block, part in zip(layout.blocks, mixed, strict=True)
        ]
        out: Tensor = self.out_map(layout.join_blocks(rows))
        self.trace(lambda: self._record(x, blocks, layout, biases, out))
        return out

    def _heads(self, qkv: Tensor, layout: DenseLayout) -> tuple[Tensor, Tensor, Tensor]:
        """Queries, keys and values, each `[B, H, N, d]`, of projected tokens `[T, 3 dim]`."""
        dense = layout.to_dense(qkv).view(layout.num_graphs, layout.max_nodes, 3, self.num_heads, -1)
        q, k, v = dense.permute(2, 0, 3, 1, 4).unbind(0)
        return q, k, v

    def _fused(self, q: Tensor, k: Tensor, v: Tensor, bias: Tensor | None) -> Tensor:
        """Mixed values `[B, H, N, d]` of one block."""
        dropout = self.dropout if self.training else 0.0
        if dropout and q.device.type == "cpu":
            # A CPU has no fused kernel with dropout, and uniform numbers are quicker to draw than F.dropout's.
            weights = attention_weights(q, k, bias)
            return (weights * (torch.rand(weights.shape) >= dropout)) @ (v / (1.0 - dropout))
        return F.scaled_dot_product_attention(q, k, v, None if bias is None else bias.to(q.dtype), dropout)

    def _exchanged(
        self,
        exchange: ReAttention,
        blocks: Sequence[tuple[Tensor, Tensor, Tensor]],
        layout: DenseLayout,
        biases: Sequence[Tensor | None],
    ) -> list[Tensor]:
        """Mixed values `[B, H, N, d]` of each block under re-attention."""
        weights = [attention_weights(q, k, bias) for (q, k, _), bias in zip(blocks, biases, strict=True)]
        weights = [F.dropout(weight, self.dropout, self.training) for weight in weights]
        exchanged = exchange(weights, [block.layout.mask for block in layout.blocks])
        return [weight.to(v.dtype) @ v for weight, (_, _, v) in zip(exchanged, blocks, strict=True)]

    @torch.no_grad()
    def _record(
        self,
        x: Tensor,
        blocks: Sequence[tuple[Tensor, Tensor, Tensor]],
        layout: DenseLayout,
        biases: Sequence[Tensor | None],
        out: Tensor,
    ) -> LayerTrace:
        sizes = layout.ptr.diff()
        matrices: dict[int, Tensor] = {}
        for block, (q, k, _), bias in zip(layout.blocks, blocks, biases, strict=True):
            graphs = range(len(sizes)) if block.graphs is None else block.graphs.tolist()
            matrices.update(zip(graphs, attention_weights(q, k, bias), strict=True))
        cut = [matrices[graph][:, :size, :size] for graph, size in enumerate(sizes.tolist())]
        extra = {"input": x.detach(), "residual_weight": torch.ones((), device=x.device)}
        if self.extra_tokens:  # a graph token stands for no substructure
            extra["substructure"] = torch.zeros(len(x), dtype=torch.bool, device=x.device)
        return LayerTrace(
            layer=self.layer,
            tokens=out.detach(),
            batch=torch.repeat_interleave(torch.arange(len(sizes), device=sizes.device), sizes),
            values=mixed_values(x, self.v_map.weight, self.out_map.weight, self.num_heads),
            attention=cut if self.re_attention is None else None,
            num_nodes=sizes - self.extra_tokens,
            extra=extra,
        )


def attention_weights(q: Tensor, k: Tensor, bias: Tensor | None) -> Tensor:
    """Attention weights `[B, H, N, N]` of queries and keys `[B, H, N, d]`."""
    logits = (q * q.shape[-1] ** -0.5) @ k.transpose(-1, -2)
    return (logits if bias is None else logits + bias.to(logits.dtype)).softmax(-1)
