"""Encoder of random-walk return probabilities."""

from __future__ import annotations

from torch import Tensor, nn
from torch_geometric.data import Data

from graphbench.contracts import PositionalEncoder
from graphbench.encodings import RWSE
from graphbench.nn.norms import BatchNorm
from graphbench.nn.positional._fields import encoded_field


class RWSEEncoder(PositionalEncoder):
    """Linear(BatchNorm(rwse)): the return probabilities are normalised per step, then mapped (GraphGPS).

    2 K + K p + p parameters.

    Args:
        num_steps: K, see `RWSE`.
        dim: p.

    Examples:
        >>> import torch
        >>> from graphbench.nn import add_encodings
        >>> encoder = RWSEEncoder(num_steps=4, dim=8)
        >>> graph = Data(edge_index=torch.tensor([[0, 1, 1, 2], [1, 0, 2, 1]]), num_nodes=3)
        >>> encoder(add_encodings(graph, encoder)).shape
        torch.Size([3, 8])
    """

    by_node = True

    def __init__(self, num_steps: int = 20, dim: int = 28) -> None:
        super().__init__()
        self.dim = dim
        self.encodings = (RWSE(num_steps),)
        # Each step separately: scales differ, and without odd cycles no walk of odd length returns at all.
        self.norm = BatchNorm(num_steps)
        self.encode = nn.Linear(num_steps, dim)

    def forward(self, batch: Data) -> Tensor:
        """Return the features of every node `[num_nodes, dim]`."""
        (encoding,) = self.encodings
        return self.encode(self.norm(encoded_field(batch, "rwse", encoding, self.encode.weight.dtype)))
