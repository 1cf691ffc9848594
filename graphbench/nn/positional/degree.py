"""Encoder of degrees."""

from __future__ import annotations

from torch import Tensor, nn
from torch_geometric.data import Data

from graphbench.contracts import PositionalEncoder
from graphbench.encodings import Degree
from graphbench.nn.positional._fields import encoded_field


class DegreeEncoder(PositionalEncoder):
    """z_in[in-degree] + z_out[out-degree]: the centrality encoding of Graphormer (Ying et al. 2021, equation 5).

    2 (max_degree + 1) p parameters.

    Args:
        max_degree: larger degrees share its row, see `Degree`.
        dim: p.

    Examples:
        >>> import torch
        >>> from graphbench.nn import add_encodings
        >>> encoder = DegreeEncoder(max_degree=4, dim=8)
        >>> graph = Data(edge_index=torch.tensor([[0, 1, 1, 2], [1, 0, 2, 1]]), num_nodes=3)
        >>> encoder(add_encodings(graph, encoder)).shape
        torch.Size([3, 8])
    """

    by_node = True

    def __init__(self, max_degree: int = 511, dim: int = 64) -> None:
        super().__init__()
        self.dim = dim
        self.encodings = (Degree(max_degree),)
        self.incoming = nn.Embedding(max_degree + 1, dim)
        self.outgoing = nn.Embedding(max_degree + 1, dim)

    def forward(self, batch: Data) -> Tensor:
        """Return the features of every node `[num_nodes, dim]`."""
        (encoding,) = self.encodings
        incoming = self.incoming(encoded_field(batch, "in_degree", encoding))
        return incoming + self.outgoing(encoded_field(batch, "out_degree", encoding))
