"""The attention of Performer, graph by graph, as a global branch of GPS.

Choromanski et al., "Rethinking Attention with Performers", ICLR 2021, arXiv 2009.14794, section 2.2.
"""

from __future__ import annotations

import torch
from torch import Tensor, nn
from torch_geometric.nn.attention import PerformerAttention
from torch_geometric.nn.attention.performer import generalized_kernel, linear_attention

from graphbench import GraphBatch
from graphbench.errors import BadInput
from graphbench.nn import DenseLayout


class PerformerBranch(nn.Module):
    """`x'_i = O sum_j (f(q_i) . f(k_j)) v_j / sum_j f(q_i) . f(k_j) + b`, `f(a) = ReLU(R a) + 0.001`; linear in n.

    Weights, random features R (orthogonal rows, `int(d log d)` of them) and f are those of PyG's
    `PerformerAttention`. Its own forward pass lets padding into the denominator, so that a graph's answer depends on
    its batch; here both sums run over the nodes of the graph. The features are drawn once and saved with the weights.
    `256 H dim + dim` parameters, for heads of width 64 as in PyG and in the library that GraphGPS takes.

    Args:
        dim: width of the nodes.
        num_heads: heads H; must divide `dim`.
        dropout: probability of dropping an entry of the result.

    Raises:
        BadInput: `num_heads` does not divide `dim`.

    Examples:
        >>> from torch_geometric.data import Data
        >>> x, batch = torch.randn(3, 8), torch.tensor([0, 0, 1])
        >>> PerformerBranch(8, num_heads=2)(x, Data(num_nodes=3), DenseLayout.from_batch(batch)).shape
        torch.Size([3, 8])
    """

    def __init__(self, dim: int, num_heads: int, dropout: float = 0.0) -> None:
        super().__init__()
        if num_heads < 1 or dim % num_heads:
            raise BadInput(f"num_heads must divide hidden_dim, but got num_heads={num_heads} and hidden_dim={dim}.")
        self.performer = PerformerAttention(dim, num_heads, dropout=dropout)

    def forward(self, x: Tensor, batch: GraphBatch, layout: DenseLayout) -> Tensor:
        """Mixed nodes `[num_nodes, dim]`."""
        qkv = torch.cat([self.performer.q(x), self.performer.k(x), self.performer.v(x)], dim=-1)
        heads = layout.to_block_heads(qkv, 3, self.performer.heads)
        parts = [
            self._attend(q, k, v, block.layout.mask) for (q, k, v), block in zip(heads, layout.blocks, strict=True)
        ]
        out: Tensor = self.performer.dropout(self.performer.attn_out(layout.from_block_heads(parts)))
        return out

    def _attend(self, q: Tensor, k: Tensor, v: Tensor, mask: Tensor) -> Tensor:
        """Mixed values `[B, H, N, d]` of queries, keys and values `[B, H, N, d]`; `mask [B, N]` is true at nodes."""
        features = self.performer.fast_attn
        q, k = (generalized_kernel(part, features.projection_matrix, features.kernel) for part in (q, k))
        mixed: Tensor = linear_attention(q, k * mask[:, None, :, None].to(k.dtype), v)
        return mixed
