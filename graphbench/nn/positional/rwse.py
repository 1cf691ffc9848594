"""Encoder of return probabilities."""

from __future__ import annotations

from torch import Tensor, nn

from graphbench.contracts import GraphBatch, PositionalEncoder
from graphbench.encodings import RWSE
from graphbench.nn.norms import BatchNorm
from graphbench.nn.positional._fields import encoded_field


class RWSEEncoder(PositionalEncoder):
    """Linear(BatchNorm(rwse)): the return probabilities are normalised step by step, then mapped (GraphGPS).

    2 K + K p + p parameters.

    Args:
        num_steps: K, see `RWSE`.
        dim: p.
    """

    def __init__(self, num_steps: int = 20, dim: int = 28) -> None:
        super().__init__()
        self.dim = dim
        self.encodings = (RWSE(num_steps),)
        self.norm = BatchNorm(num_steps)
        self.encode = nn.Linear(num_steps, dim)

    def forward(self, batch: GraphBatch) -> Tensor:
        """Features of every node `[num_nodes, dim]`."""
        return self.encode(self.norm(encoded_field(batch, "rwse", self.encodings[0])))
