"""Linformer: attention to a few mixtures of all tokens.

Wang et al., "Linformer: Self-Attention with Linear Complexity", arXiv 2006.04768, section 4.

Legend: B documents, N padded tokens, H heads, d head width, r mixtures.
"""

from __future__ import annotations

import torch
from torch import Tensor, nn

from graphbench.errors import check_range
from graphbench.nn import DenseLayout, attend
from graphbench_sequences.attention import ProjectedAttention, draw_xavier


class LinformerAttention(ProjectedAttention):
    """`softmax(Q (E^T K)^T / sqrt(d)) E^T V`: keys and values of r mixtures, O(n r) time and memory.

    The map `E [max_length, r]` is shared by keys, values and heads, as in the code of the Long Range Arena; a document
    of n tokens uses its first n rows. The arena mixes padding in, too; here a document is mixed for itself.
    `4 dim qkv_dim + r max_length` parameters.

    Args:
        dim, num_heads, qkv_dim, dropout: see `ProjectedAttention`.
        max_length: tokens of the longest document.
        rank: mixtures r.

    Raises:
        BadInput: an option is out of range.

    Examples:
        >>> layout = DenseLayout.from_batch(torch.tensor([0, 0, 0, 1]))
        >>> LinformerAttention(8, num_heads=2, max_length=5, rank=2)(torch.randn(4, 8), layout).shape
        torch.Size([4, 8])
    """

    def __init__(
        self,
        dim: int,
        num_heads: int,
        qkv_dim: int | None = None,
        dropout: float = 0.0,
        max_length: int = 2_000,
        rank: int = 16,
    ) -> None:
        super().__init__(dim, num_heads, qkv_dim, dropout)
        check_range("max_length", max_length, at_least=1, whole=True)
        check_range("rank", rank, at_least=1, whole=True)
        self.mixture = nn.Parameter(torch.empty(max_length, rank))
        draw_xavier(self.mixture)

    def mix(self, heads: tuple[Tensor, ...], layout: DenseLayout) -> Tensor:
        """As `ProjectedAttention.mix`; padding of keys and values is zero, and so adds nothing to a mixture."""
        q, k, v = heads
        mixture = self.mixture[: k.shape[2]].t().to(k.dtype)
        return attend(q, mixture @ k, mixture @ v, dropout=self.active_dropout)
