"""What a node holds before the first layer: its features and its degree (Graphormer, equation 5)."""

from __future__ import annotations

import torch.nn.functional as F
from torch import Tensor, nn

from graphbench import BenchmarkSpec, GraphBatch
from graphbench.encodings import Degree
from graphbench.errors import BadInput
from graphbench.nn import NodeEncoder

#: Standard deviation of embeddings at the start.
EMBEDDING_STD = 0.02
#: Rows of the released tables, and rows between the first values of two feature columns.
_RELEASED_ATOMS, _RELEASED_DEGREES, _RELEASED_STEP = 91, 512, 10


class NodeEmbedding(nn.Module):
    """`h_i = features(x_i) + z[degree_i]`, `[num_nodes, dim]`.

    One table of degrees, not one for either direction: the graphs are undirected, so both would read the same row.

    Args:
        spec: the benchmark's description.
        dim: width.
        max_degree: larger degrees share its row.
    """

    def __init__(self, spec: BenchmarkSpec, dim: int, max_degree: int) -> None:
        super().__init__()
        self.encodings = (Degree(max_degree),)
        self.features = NodeEncoder(spec, dim, categorical="normal")
        self.degree = nn.Embedding(max_degree + 1, dim)
        for name, parameter in self.named_parameters():
            if not name.endswith(("linear.weight", "linear.bias")):
                nn.init.normal_(parameter, std=EMBEDDING_STD)

    def forward(self, batch: GraphBatch) -> Tensor:
        """Vectors of all nodes `[num_nodes, dim]`."""
        return self.features(batch) + self.degree(batch.in_degree)


class ReleasedNodeEmbedding(nn.Module):
    """The tables of the released code: 91 rows of atoms and two of 512 degrees.

    Value x of feature column f reads row `x + 2 + 10 f`, so columns overlap: on PCQM4M silicon reads the row of a
    chirality. Values beyond the table, where the released code stops, share its last row.

    Args:
        spec: the benchmark's description.
        dim: width.

    Raises:
        BadInput: nodes have no categorical features, or dense ones or positions, which the tables cannot hold.
    """

    def __init__(self, spec: BenchmarkSpec, dim: int) -> None:
        super().__init__()
        if not spec.node.vocabularies or spec.node.dense or spec.coordinates:
            raise BadInput(
                f"released: true reads categorical node features only, but {spec.name} has vocabularies "
                f"{spec.node.vocabularies}, {spec.node.dense} dense columns and {spec.coordinates} coordinates."
            )
        self.encodings = (Degree(_RELEASED_DEGREES - 1),)
        self.atom = nn.Embedding(_RELEASED_ATOMS, dim)
        self.in_degree = nn.Embedding(_RELEASED_DEGREES, dim)
        self.out_degree = nn.Embedding(_RELEASED_DEGREES, dim)
        for parameter in self.parameters():
            nn.init.normal_(parameter, std=EMBEDDING_STD)

    def forward(self, batch: GraphBatch) -> Tensor:
        """Vectors of all nodes `[num_nodes, dim]`."""
        rows = released_rows(batch.x, first=2, size=_RELEASED_ATOMS)
        degree = self.in_degree(batch.in_degree) + self.out_degree(batch.out_degree)
        return F.embedding_bag(rows, self.atom.weight, mode="sum") + degree


def released_rows(values: Tensor, first: int, size: int) -> Tensor:
    """Rows of a released table for categorical columns `[rows, columns]`; values past its end share the last row.

    Args:
        values: the columns.
        first: row of value 0 of column 0.
        size: rows of the table.
    """
    columns = values.new_tensor(range(values.shape[1]))
    return (values + first + _RELEASED_STEP * columns).clamp(max=size - 1)
