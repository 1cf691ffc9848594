"""Attention among the tokens of each graph, with one bias for all layers.

Legend: T tokens of all graphs, B graphs of a block, N padded tokens, H heads, d head width, dim = H d.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor, nn

from graphbench import LayerTrace, Traced
from graphbench.errors import BadInput
from graphbench.nn import attend_within_graphs, attention_weights, mixed_values
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
        dropout = self.dropout if self.training else 0.0
        out: Tensor = self.out_proj(attend_within_graphs(qkv, tokens.dense, self.num_heads, biases, dropout))
        if tokens.traced:
            self.trace(lambda: self._record(x, qkv, tokens, biases, out))
        return out

    @torch.no_grad()
    def _record(self, x: Tensor, qkv: Tensor, tokens: TokenLayout, biases: Sequence[Tensor], out: Tensor) -> LayerTrace:
        heads = tokens.dense.to_block_heads(qkv, 3, self.num_heads)
        weights = [attention_weights(q, k, bias) for (q, k, _), bias in zip(heads, biases, strict=True)]
        return LayerTrace(
            tokens=out.detach(),
            batch=tokens.batch,
            values=mixed_values(x, self.in_proj.weight.chunk(3)[2], self.out_proj.weight, self.num_heads),
            attention=tokens.dense.matrices_of_graphs(weights),
            num_nodes=tokens.num_nodes,
            input=x.detach(),
            substructure=tokens.is_substructure,
            residual_weight=self.residual_weight,
        )
