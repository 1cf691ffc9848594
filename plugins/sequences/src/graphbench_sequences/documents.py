"""The order in which tokens are read, and the documents that they form.

Legend: T tokens of all graphs, D documents: one per graph, or two where a graph holds a pair.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from graphbench import BenchmarkSpec, GraphBatch
from graphbench.errors import BadInput

#: Categorical column that says which of two documents a token belongs to.
TOWER = "tower"


def check_sequences(spec: BenchmarkSpec) -> None:
    """Refuse benchmarks whose nodes have no order.

    Raises:
        BadInput: nodes have not one coordinate, the place in a sequence.

    Examples:
        >>> from graphbench.testing import tiny_spec
        >>> check_sequences(tiny_spec())  # doctest: +ELLIPSIS
        Traceback (most recent call last):
        graphbench.errors.BadInput: tiny-graph-regression-both is no benchmark of sequences: ...
    """
    if spec.coordinates != 1:
        raise BadInput(
            f"{spec.name} is no benchmark of sequences: its nodes have {spec.coordinates} coordinates, but a sequence "
            "needs one, the place of a token. Take ListOps, Text, Retrieval, SequentialImage or Pathfinder."
        )


def tower_column(spec: BenchmarkSpec) -> int | None:
    """Number of the categorical column that tells two documents apart; None where a graph is one document."""
    names = spec.node.names[: len(spec.node.vocabularies)]
    return names.index(TOWER) if TOWER in names else None


@dataclass(frozen=True)
class Documents:
    """Tokens in the order of reading: document by document, by ascending place.

    Args:
        order: row of the batch behind each token `[T]`.
        document: document of each token `[T]`, ascending.
        ptr: first token of each document `[D + 1]`.
        max_length: tokens of the longest one.
    """

    order: Tensor
    document: Tensor
    ptr: Tensor
    max_length: int

    @classmethod
    def of(cls, batch: GraphBatch, tower: int | None) -> Documents:
        """The documents of a batch; those of a pair stand one after the other, and one of them may be empty.

        Nodes are sorted by `pos`, so the order in which a batch numbers them says nothing.

        Args:
            batch: graphs with `pos [num_nodes, 1]`.
            tower: number of the column that tells the documents of a pair apart; None without pairs.

        Examples:
            >>> from graphbench import GraphTable
            >>> graph = {"num_nodes": 3, "edge_index": torch.zeros(2, 0, dtype=torch.long)}
            >>> graph |= {"x": torch.tensor([[7], [8], [9]]), "pos": torch.tensor([[2.0], [0.0], [1.0]])}
            >>> Documents.of(GraphTable.from_graphs([graph]).batch([0]), tower=None).order
            tensor([1, 2, 0])
        """
        graph, by_place = batch.batch, batch.pos[:, 0].argsort(stable=True)
        if tower is None:
            return cls(by_place[graph[by_place].argsort(stable=True)], graph, batch.ptr, batch.max_nodes)
        document, inner = (2 * graph + batch.x[:, tower])[by_place].sort(stable=True)
        sizes = torch.bincount(document, minlength=2 * batch.num_graphs)
        ptr = torch.cat([sizes.new_zeros(1), sizes.cumsum(0)])
        return cls(by_place[inner], document, ptr, int(sizes.max()))

    @property
    def place(self) -> Tensor:
        """Place of each token in its document `[T]`: 0, 1, 2, ..."""
        return torch.arange(len(self.order), device=self.order.device) - self.ptr[self.document]

    def to_nodes(self, x: Tensor) -> Tensor:
        """Rows of tokens `[T, d]` as rows of the batch `[num_nodes, d]`."""
        return torch.empty_like(x).index_copy(0, self.order, x)
