"""One layer of DeepGraph: attention and a feed-forward network with deepnorm residuals."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor, nn

from graphbench.nn import FeedForward, WeightInit, draw_normal_maps
from graphbench_deepgraph.attention import TokenAttention
from graphbench_deepgraph.tokens import TokenLayout


def deepnorm_factors(num_layers: int) -> tuple[float, float]:
    """`alpha = (2 L)^(1/4)` and `beta = (8 L)^(-1/4)` of L layers (Wang et al. 2022, arXiv 2203.00555)."""
    return (2 * num_layers) ** 0.25, (8 * num_layers) ** -0.25


class DeepGraphLayer(nn.Module):
    """Post-norm transformer layer (section 5), `4 d^2 + 2 d f + 9 d + f` parameters.

        y  = LN(alpha x + Drop(Attention(x)))
        x' = LN(alpha y + FFN(y)),      FFN a `FeedForward` with GELU

    Values, the output map and the feed-forward network start at beta times their usual size, biases included. The usual
    sizes are, with `init` xavier, the released code's: Xavier-uniform maps of attention, with gain 1/sqrt(2) to
    queries, keys and values, and PyTorch's default in the feed-forward network; with normal N(0, 0.02^2), no biases.

    Args:
        dim: width d of the tokens.
        ffn_dim: width f of the feed-forward network.
        num_heads: heads; must divide `dim`.
        dropout: probability of Drop.
        attention_dropout: probability of dropping an attention weight.
        activation_dropout: probability of dropout inside FFN.
        alpha: weight of the residual branches.
        beta: scale of the weights named above at the start.
        init: xavier or normal.

    Raises:
        BadInput: `num_heads` does not divide `dim`.

    Examples:
        >>> layer = DeepGraphLayer(dim=16, ffn_dim=32, num_heads=4)
        >>> sum(parameter.numel() for parameter in layer.parameters()), 4 * 16**2 + 2 * 16 * 32 + 9 * 16 + 32
        (2224, 2224)
    """

    def __init__(
        self,
        dim: int,
        ffn_dim: int,
        num_heads: int,
        dropout: float = 0.0,
        attention_dropout: float = 0.0,
        activation_dropout: float = 0.0,
        alpha: float = 1.0,
        beta: float = 1.0,
        init: WeightInit = "xavier",
    ) -> None:
        super().__init__()
        self.alpha, self.dropout = alpha, nn.Dropout(dropout)
        self.attention = TokenAttention(dim, num_heads, attention_dropout, residual_weight=alpha)
        self.attention_norm = nn.LayerNorm(dim)
        self.ffn = FeedForward(dim, ffn_dim, dropout, "gelu", activation_dropout)
        self.ffn_norm = nn.LayerNorm(dim)
        self.reset_parameters(beta, init)

    @torch.no_grad()
    def reset_parameters(self, beta: float, init: WeightInit = "xavier") -> None:
        """Draw the maps as the class says, then scale by beta."""
        for linear in (self.attention.in_proj, self.attention.out_proj, self.ffn.expand, self.ffn.contract):
            linear.reset_parameters()
        for weight in self.attention.in_proj.weight.chunk(3):
            nn.init.xavier_uniform_(weight, gain=2**-0.5)
        nn.init.xavier_uniform_(self.attention.out_proj.weight)
        nn.init.zeros_(self.attention.out_proj.bias)
        if init == "normal":
            draw_normal_maps(self)
        for part in (self.attention.in_proj.weight, self.attention.in_proj.bias):
            part.chunk(3)[2].mul_(beta)
        for linear in (self.attention.out_proj, self.ffn.expand, self.ffn.contract):
            linear.weight.mul_(beta)
            linear.bias.mul_(beta)

    def forward(self, x: Tensor, tokens: TokenLayout, biases: Sequence[Tensor]) -> Tensor:
        """Tokens `[T, dim]` after the layer; arguments as those of `TokenAttention.forward`."""
        attended = self.dropout(self.attention(x, tokens, biases))
        x = self.attention_norm(self.alpha * x + attended)
        return self.ffn_norm(self.alpha * x + self.ffn(x))
