"""The two-layer network of a transformer layer."""

from __future__ import annotations

import torch.nn.functional as F
from torch import Tensor, nn


class FeedForward(nn.Module):
    """`Drop(W2 Drop(ReLU(W1 x)))`, both maps with bias; parameters `2 d f + f + d`.

    Args:
        dim: input and output width d.
        hidden_dim: width f between the two maps.
        dropout: probability of both dropouts.
    """

    def __init__(self, dim: int, hidden_dim: int, dropout: float = 0.0) -> None:
        super().__init__()
        self.expand = nn.Linear(dim, hidden_dim)
        self.contract = nn.Linear(hidden_dim, dim)
        self.dropout = dropout

    def forward(self, x: Tensor) -> Tensor:
        """Rows `[num_rows, dim]` to rows `[num_rows, dim]`, without the residual."""
        hidden = F.dropout(F.relu(self.expand(x)), self.dropout, self.training)
        return F.dropout(self.contract(hidden), self.dropout, self.training)
