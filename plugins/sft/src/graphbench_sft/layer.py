"""One layer of the Sampling Foundational Transformer."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal, get_args

from torch import Tensor, nn

from graphbench.errors import check_choice
from graphbench.nn import DenseLayout, FeedForward
from graphbench_sft.attention import Relation, SampledAttention

NormPosition = Literal["pre", "post"]
#: Width of the feed-forward network in token widths (SFT, appendix D.4).
_EXPANSION = 4


class SFTLayer(nn.Module):
    """Sampled attention and a feed-forward network, each with a residual and a layer norm (SFT, figure 1).

    post: `y = Norm(x + Drop(Attention(x)))`, `x' = Norm(y + Drop(FFN(y)))`;
    pre: `y = x + Drop(Attention(Norm(x)))`, `x' = y + Drop(FFN(Norm(y)))`;
    FFN is a `FeedForward` with GELU of width 4 dim, without a dropout of its own behind it.

    Args:
        dim: width of the tokens.
        attention: the attention.
        norm_position: pre or post.
        embedding_dropout: probability of Drop.
        ffn_dropout: probability of dropout inside FFN.

    Raises:
        BadInput: `norm_position` is not known.

    Examples:
        >>> from graphbench.nn import DenseLayout
        >>> from graphbench_sft import SampledAttention
        >>> import torch
        >>> layer = SFTLayer(8, SampledAttention(8, num_heads=2, num_samples=2))
        >>> layer(torch.randn(5, 8), DenseLayout.from_batch(torch.tensor([0, 0, 0, 1, 1]))).shape
        torch.Size([5, 8])
    """

    def __init__(
        self,
        dim: int,
        attention: SampledAttention,
        norm_position: NormPosition = "post",
        embedding_dropout: float = 0.0,
        ffn_dropout: float = 0.0,
    ) -> None:
        super().__init__()
        check_choice("norm_position", norm_position, get_args(NormPosition))
        self.attention = attention
        self.attention_norm = nn.LayerNorm(dim)
        self.ffn = FeedForward(dim, _EXPANSION * dim, 0.0, "gelu", ffn_dropout)
        self.ffn_norm = nn.LayerNorm(dim)
        self.norm_position = norm_position
        self.embedding_dropout = nn.Dropout(embedding_dropout)

    def forward(
        self,
        x: Tensor,
        layout: DenseLayout,
        relations: Sequence[Relation] | None = None,
        visible: Tensor | None = None,
        names: Tensor | None = None,
    ) -> Tensor:
        """Tokens `[T, dim]` after the layer; arguments as those of `SampledAttention.forward`."""
        if self.norm_position == "pre":
            x = x + self._drop(self.attention(self.attention_norm(x), layout, relations, visible, names))
            return x + self._drop(self.ffn(self.ffn_norm(x)))
        x = self.attention_norm(x + self._drop(self.attention(x, layout, relations, visible, names)))
        return self.ffn_norm(x + self._drop(self.ffn(x)))

    def _drop(self, x: Tensor) -> Tensor:
        return self.embedding_dropout(x)
