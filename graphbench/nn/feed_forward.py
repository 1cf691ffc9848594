"""The feed-forward network of a transformer layer."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Literal

import torch.nn.functional as F
from torch import Tensor, nn

from graphbench.errors import check_choice

Activation = Literal["relu", "gelu"]
ACTIVATIONS: Mapping[str, Callable[[Tensor], Tensor]] = {"relu": F.relu, "gelu": F.gelu}


class FeedForward(nn.Module):
    """`Drop(W2 Drop_act(act(W1 x + b1)) + b2)`; parameters `2 d f + f + d`.

    Args:
        dim: input and output width d.
        hidden_dim: width f between the two maps.
        dropout: probability of Drop.
        activation: act, relu or gelu.
        activation_dropout: probability of Drop_act; defaults to that of Drop.

    Raises:
        BadInput: `activation` is unknown.

    Examples:
        >>> import torch
        >>> FeedForward(8, 16, dropout=0.1)(torch.randn(5, 8)).shape
        torch.Size([5, 8])
    """

    def __init__(
        self,
        dim: int,
        hidden_dim: int,
        dropout: float = 0.0,
        activation: Activation = "relu",
        activation_dropout: float | None = None,
    ) -> None:
        super().__init__()
        check_choice("activation", activation, ACTIVATIONS)
        self.expand = nn.Linear(dim, hidden_dim)
        self.contract = nn.Linear(hidden_dim, dim)
        self.activation: Activation = activation
        self.dropout = nn.Dropout(dropout)
        self.activation_dropout = nn.Dropout(dropout if activation_dropout is None else activation_dropout)

    def forward(self, x: Tensor) -> Tensor:
        """Map rows `[..., dim]` to rows `[..., dim]`, without the residual."""
        hidden = self.activation_dropout(ACTIVATIONS[self.activation](self.expand(x)))
        return self.dropout(self.contract(hidden))
