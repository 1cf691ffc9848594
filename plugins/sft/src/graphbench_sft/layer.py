"""One layer of the Sampling Foundational Transformer."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal

import torch.nn.functional as F
from torch import Tensor, nn

from graphbench.errors import BadInput
from graphbench.nn import DenseLayout
from graphbench_sft.attention import Relation, SampledAttention

NormPosition = Literal["pre", "post"]
#: Width of the feed-forward network in token widths (SFT, appendix D.4).
_EXPANSION = 4


class SFTLayer(nn.Module):
    """Sampled attention and a feed-forward network, each with a residual and a layer norm (SFT, figure 1).

    post: `y = Norm(x + Drop(Attention(x)))`, `x' = Norm(y + Drop(FFN(y)))`;
    pre: `y = x + Drop(Attention(Norm(x)))`, `x' = y + Drop(FFN(Norm(y)))`;
    `FFN(y) = W_2 Drop_ffn(GELU(W_1 y + b_1)) + b_2`, of width 4 dim.

    Args:
        dim: width of the tokens.
        attention: the attention.
        norm_position: pre or post.
        embedding_dropout: probability of Drop.
        ffn_dropout: probability of Drop_ffn.

    Raises:
        BadInput: `norm_position` is not known.
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
        if norm_position not in ("pre", "post"):
            raise BadInput(f"norm_position must be pre or post, but got {norm_position!r}.")
        self.attention = attention
        self.attention_norm = nn.LayerNorm(dim)
        self.expand = nn.Linear(dim, _EXPANSION * dim)
        self.contract = nn.Linear(_EXPANSION * dim, dim)
        self.ffn_norm = nn.LayerNorm(dim)
        self.norm_position = norm_position
        self.embedding_dropout = embedding_dropout
        self.ffn_dropout = ffn_dropout

    def forward(
        self,
        x: Tensor,
        layout: DenseLayout,
        relations: Sequence[Relation] | None = None,
        visible: Tensor | None = None,
    ) -> Tensor:
        """Tokens `[T, dim]` after the layer; arguments as those of `SampledAttention.forward`."""
        if self.norm_position == "pre":
            x = x + self._drop(self.attention(self.attention_norm(x), layout, relations, visible))
            return x + self._drop(self._feed_forward(self.ffn_norm(x)))
        x = self.attention_norm(x + self._drop(self.attention(x, layout, relations, visible)))
        return self.ffn_norm(x + self._drop(self._feed_forward(x)))

    def _feed_forward(self, x: Tensor) -> Tensor:
        hidden = F.gelu(self.expand(x))
        return self.contract(F.dropout(hidden, self.ffn_dropout, self.training))

    def _drop(self, x: Tensor) -> Tensor:
        return F.dropout(x, self.embedding_dropout, self.training)
