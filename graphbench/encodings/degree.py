"""Encode nodes by their degrees."""

from __future__ import annotations

from collections.abc import Mapping
from typing import ClassVar

import torch

from graphbench.contracts import Column, Encoded, Encoding, GraphTable
from graphbench.contracts.table import NODE
from graphbench.encodings._dense import as_tensors
from graphbench.errors import check_range


class Degree(Encoding):
    """Number of incoming and outgoing edges of every node, up to `max_degree` (Graphormer's centrality).

    Edges count as stored: parallel edges count separately, a loop counts once in each direction.

    Fields: `in_degree [num_nodes]`, `out_degree [num_nodes]`, integers in `0 .. max_degree`.

    Args:
        max_degree: larger degrees are stored as this value; an embedding needs `max_degree + 1` rows.

    Raises:
        BadInput: `max_degree` is below 1, or an edge refers to a node that its graph does not have.

    Examples:
        >>> import torch
        >>> from graphbench.contracts import GraphTable
        >>> table = GraphTable.from_graphs([{"num_nodes": 3, "edge_index": torch.tensor([[0, 1, 1, 2], [1, 0, 2, 1]])}])
        >>> Degree().compute(table).columns
        {'out_degree': tensor([1, 2, 1], dtype=torch.int16), 'in_degree': tensor([1, 2, 1], dtype=torch.int16)}
    """

    layout: ClassVar[Mapping[str, Column]] = {"in_degree": Column(NODE), "out_degree": Column(NODE)}

    def __init__(self, max_degree: int = 511) -> None:
        check_range(f"{self.name}: max_degree", max_degree, at_least=1, whole=True)
        self.max_degree = int(max_degree)

    def compute(self, graphs: GraphTable) -> Encoded:
        """Count the ends of all edges of the table."""
        node_ptr, _, edges = as_tensors(graphs)
        first_node = torch.repeat_interleave(node_ptr[:-1], graphs.num_edges)
        dtype = torch.int16 if self.max_degree <= torch.iinfo(torch.int16).max else torch.int32
        # Node numbers are per graph; offsets make them distinct, so that one count is enough for all graphs.
        counts = [torch.bincount(end + first_node, minlength=int(node_ptr[-1])) for end in edges.unbind(1)]
        outgoing, incoming = (count.clamp(max=self.max_degree).to(dtype) for count in counts)
        return Encoded({"out_degree": outgoing, "in_degree": incoming})
