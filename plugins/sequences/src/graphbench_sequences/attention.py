"""Attention within each document: common projections, softmax over all tokens, and Linformer.

Linformer: Wang et al., "Linformer: Self-Attention with Linear Complexity", arXiv 2006.04768, section 4.

Legend: T tokens of all documents, B documents of a block, N padded tokens, H heads, d head width, H d = qkv_dim,
r mixtures.
"""

from __future__ import annotations

from abc import abstractmethod
from typing import ClassVar

import torch
from torch import Tensor, nn

from graphbench.errors import check_divides, check_range
from graphbench.nn import DenseLayout, attend


def draw_xavier(weight: Tensor, num_maps: int = 1) -> None:
    """Draw the weights of several maps in one tensor `[num_maps out_dim, in_dim]`, each map separately.

    Examples:
        >>> import torch
        >>> weight = torch.zeros(6, 4)
        >>> draw_xavier(weight, num_maps=2)
        >>> bool((weight.abs() <= (6 / (3 + 4)) ** 0.5).all())
        True
    """
    for part in weight.data.chunk(num_maps):
        nn.init.xavier_uniform_(part)


class ProjectedAttention(nn.Module):
    """`W^O concat_h(mix(W^Q x, W^K x, W^V x))`, without biases, as in the code of the Long Range Arena.

    The width of queries, keys and values may differ from that of the tokens. Subclasses mix them, and may have
    fewer than three maps. `4 dim qkv_dim` parameters with three.

    Args:
        dim: width of the tokens.
        num_heads: heads H; must divide `qkv_dim`.
        qkv_dim: width of queries, keys and values, over all heads; None for `dim`.
        dropout: probability of dropping an attention weight.

    Raises:
        BadInput: `num_heads` does not divide the width, or `dropout` is not a probability below 1.
    """

    #: Number of maps before the last one.
    num_maps: ClassVar[int] = 3

    def __init__(self, dim: int, num_heads: int, qkv_dim: int | None = None, dropout: float = 0.0) -> None:
        super().__init__()
        width = dim if qkv_dim is None else qkv_dim
        check_range("num_heads", num_heads, at_least=1, whole=True)
        check_range("qkv_dim", width, at_least=1, whole=True)
        check_range("attention_dropout", dropout, at_least=0, below=1)
        check_divides("num_heads", num_heads, "qkv_dim", width)
        self.num_heads, self.dropout = num_heads, dropout
        self.qkv_map = nn.Linear(dim, self.num_maps * width, bias=False)
        self.out_map = nn.Linear(width, dim, bias=False)
        draw_xavier(self.qkv_map.weight, self.num_maps)
        draw_xavier(self.out_map.weight)

    def forward(self, x: Tensor, layout: DenseLayout) -> Tensor:
        """Mix tokens `[T, dim]`."""
        heads = layout.to_block_heads(self.qkv_map(x), self.num_maps, self.num_heads)
        mixed = [self.mix(maps, block.layout) for maps, block in zip(heads, layout.blocks, strict=True)]
        out: Tensor = self.out_map(layout.from_block_heads(mixed))
        return out

    @abstractmethod
    def mix(self, heads: tuple[Tensor, ...], layout: DenseLayout) -> Tensor:
        """Mix values `[B, H, N, d]`, given queries, keys and values, each `[B, H, N, d]` and zero on padding."""

    @property
    def active_dropout(self) -> float:
        """Probability of dropping a weight in the current mode."""
        return self.dropout if self.training else 0.0


class SoftmaxAttention(ProjectedAttention):
    """`sum_j softmax_j(q_i . k_j / sqrt(d)) v_j` over all tokens of the document (Vaswani et al. 2017).

    Args:
        dim, num_heads, qkv_dim, dropout: see `ProjectedAttention`.

    Examples:
        >>> import torch
        >>> layout = DenseLayout.from_batch(torch.tensor([0, 0, 0, 1]))
        >>> SoftmaxAttention(8, num_heads=2, qkv_dim=4)(torch.randn(4, 8), layout).shape
        torch.Size([4, 8])
    """

    def mix(self, heads: tuple[Tensor, ...], layout: DenseLayout) -> Tensor:
        """Mix with softmax."""
        q, k, v = heads
        # Without padding nothing is hidden, and a fused kernel that supports no bias may run.
        return attend(q, k, v, None if layout.is_full else layout.key_bias, self.active_dropout)


class LinformerAttention(ProjectedAttention):
    """`softmax(Q (E^T K)^T / sqrt(d)) E^T V`: keys and values are r mixtures, O(n r) time and memory.

    Keys, values and heads share the map `E [max_length, r]`, as in the code of the Long Range Arena; a document of n
    tokens uses its first n rows. The arena also mixes padding in; here each document is mixed separately.
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
        """Mix with softmax over mixtures; padding of keys and values is zero and adds nothing to a mixture."""
        q, k, v = heads
        # Cast E to the precision of the keys: under autocast these have half precision, but E does not.
        mixture = self.mixture[: k.shape[2]].t().to(k.dtype)
        return attend(q, mixture @ k, mixture @ v, dropout=self.active_dropout)
