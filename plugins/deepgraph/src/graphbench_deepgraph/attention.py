"""Attention among the tokens of each graph, with one bias for all layers.

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
from graphbench_deepgraph.tokens import TokenLayout


class TokenAttention(Traced):
    """`out_i = W^O concat_h(sum_j softmax_j(q_i . k_j / sqrt(d) + bias_ij) v_j) + b^O`; `4 dim^2 + 4 dim` parameters.

    A trace holds the values `x W^V W^O` of all tokens, which of them stand for substructures, and the weight of the
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
        if dim % num_heads:
            raise BadInput(f"num_heads must divide hidden_dim, but got num_heads={num_heads} and hidden_dim={dim}.")
        self.num_heads, self.dropout, self.residual_weight = num_heads, dropout, residual_weight
        self.in_proj = nn.Linear(dim, 3 * dim)
        self.out_proj = nn.Linear(dim, dim)

    def forward(self, x: Tensor, tokens: TokenLayout, biases: Sequence[Tensor]) -> Tensor:
        """Attend within each graph.

        Args:
            x: tokens `[T, dim]`.
            tokens: where they stand.
            biases: bias `[B, H, N, N]` of each of `tokens.dense.blocks`.
        """
        qkv = self.in_proj(x)
        blocks = zip(tokens.dense.blocks, biases, strict=True)
        mixed = [self._attend(block.take(qkv), block.layout, bias) for block, bias in blocks]
        out: Tensor = self.out_proj(tokens.dense.join_blocks(mixed))
        if tokens.traced:
            self.trace(lambda: self._record(x, qkv, tokens, biases, out))
        return out

    def _heads(self, qkv: Tensor, layout: DenseLayout) -> tuple[Tensor, Tensor, Tensor]:
        """Queries, keys and values, each `[B, H, N, d]`, of projected tokens `[T, 3 dim]`."""
        dense = layout.to_dense(qkv).view(layout.num_graphs, layout.max_nodes, 3, self.num_heads, -1)
        q, k, v = dense.permute(2, 0, 3, 1, 4).unbind(0)
        return q, k, v

    def _attend(self, qkv: Tensor, layout: DenseLayout, bias: Tensor) -> Tensor:
        """Mixed values `[T, dim]` of projected tokens `[T, 3 dim]`."""
        q, k, v = self._heads(qkv, layout)
        dropout = self.dropout if self.training else 0.0
        if dropout and q.device.type == "cpu":
            # No fused kernel for this case on a CPU; uniform numbers are quicker to draw than F.dropout's.
            weights = attention_weights(q, k, bias)
            mixed = (weights * (torch.rand(weights.shape) >= dropout)) @ (v / (1.0 - dropout))
        else:
            mixed = F.scaled_dot_product_attention(q, k, v, bias, dropout)
        return layout.to_ragged(mixed.transpose(1, 2).flatten(2))

    @torch.no_grad()
    def _record(self, x: Tensor, qkv: Tensor, tokens: TokenLayout, biases: Sequence[Tensor], out: Tensor) -> LayerTrace:
        sizes = tokens.dense.ptr.diff().tolist()
        matrices: dict[int, Tensor] = {}
        for block, bias in zip(tokens.dense.blocks, biases, strict=True):
            q, k, _ = self._heads(block.take(qkv), block.layout)
            graphs = range(len(sizes)) if block.graphs is None else block.graphs.tolist()
            matrices.update(zip(graphs, attention_weights(q, k, bias), strict=True))
        return LayerTrace(
            layer=self.layer,
            tokens=out.detach(),
            batch=tokens.batch,
            values=mixed_values(x, self.in_proj.weight.chunk(3)[2], self.out_proj.weight, self.num_heads),
            attention=[matrices[graph][:, :size, :size] for graph, size in enumerate(sizes)],
            num_nodes=tokens.num_nodes,
            extra={
                "input": x.detach(),
                "residual_weight": torch.tensor(self.residual_weight, device=x.device),
                "substructure": tokens.is_substructure,
            },
        )


def attention_weights(q: Tensor, k: Tensor, bias: Tensor) -> Tensor:
    """Attention weights `[B, H, N, N]` of queries and keys `[B, H, N, d]`."""
    return ((q * q.shape[-1] ** -0.5) @ k.transpose(-1, -2) + bias).softmax(-1)
