"""Encode pairs of nodes by their effective resistance."""

from __future__ import annotations

from collections.abc import Mapping
from typing import ClassVar

import numpy as np
import torch
from scipy.sparse import csr_matrix
from scipy.sparse.csgraph import connected_components
from torch import Tensor

from graphbench.contracts import Column, Encoded, Encoding, GraphTable
from graphbench.contracts.table import PAIR, pointer
from graphbench.encodings._dense import SizeBlock, few_threads, laplacian, size_blocks


class EffectiveResistance(Encoding):
    """R_ij = (e_i - e_j)^T L^+ (e_i - e_j), L = D - A with unit resistors on the edges (Klein and Randic 1993).

    The graph is first made simple and undirected: an edge in either direction is one resistor, loops do not count.

    Field: `effective_resistance [pairs]` (pair `i * n + j` of a graph), float32, in units of one edge; -1
    (`EffectiveResistance.disconnected`) if i and j are in different components, whose resistance is infinite.

    Raises:
        BadInput: an edge refers to a node that its graph does not have.

    Examples:
        >>> import torch
        >>> from graphbench.contracts import GraphTable
        >>> table = GraphTable.from_graphs([{"num_nodes": 3, "edge_index": torch.tensor([[0, 1, 1, 2], [1, 0, 2, 1]])}])
        >>> EffectiveResistance().compute(table).columns["effective_resistance"].view(3, 3)  # unit resistors in series
        tensor([[0., 1., 2.],
                [1., 0., 1.],
                [2., 1., 0.]])
    """

    #: Stored for pairs without a path.
    disconnected: ClassVar[float] = -1.0
    layout: ClassVar[Mapping[str, Column]] = {"effective_resistance": Column(PAIR)}

    def memory(self, num_nodes: int, num_edges: int) -> int:
        """Count the dense matrices of an inversion."""
        return 8 * num_nodes**2 * 6

    def compute(self, graphs: GraphTable) -> Encoded:
        """Invert one Cholesky factor per block of graphs of one size, O(n^3) per graph."""
        ptr = pointer(graphs.num_nodes**2)
        resistance = torch.empty(int(ptr[-1]), dtype=torch.float32)
        with few_threads(graphs):
            for block in size_blocks(graphs):
                rows = block.rows(ptr, block.num_nodes**2)
                resistance[rows] = self._resistances(block).flatten().float()
        return Encoded({"effective_resistance": resistance})

    def _resistances(self, block: SizeBlock) -> Tensor:
        """Compute R `[b, n, n]`, float64.

        With J = sum_c 1_c 1_c^T / n_c over the components, L + J is positive definite and (L + J)^-1 = L^+ + J;
        J does not contribute to a difference within one component.
        """
        connected = _same_component(block)
        shift = connected / connected.sum(-1, keepdim=True)
        # Cholesky fails on a matrix that is not positive definite; `pinv` would drop eigenvalues silently.
        inverse = torch.cholesky_inverse(torch.linalg.cholesky(laplacian(block.simple_adjacency()) + shift))
        diagonal = inverse.diagonal(dim1=1, dim2=2)
        # A resistance is a metric: negative values, and nonzero values on the diagonal, are rounding errors.
        resistance = (diagonal[:, :, None] + diagonal[:, None, :] - 2 * inverse).clamp(min=0)
        resistance.diagonal(dim1=1, dim2=2).zero_()
        return torch.where(connected, resistance, self.disconnected)


def _same_component(block: SizeBlock) -> Tensor:
    """Mark pairs in the same component, ignoring the direction of edges, `[b, n, n]`."""
    # One sparse graph for the block: no edge joins two of its graphs, so neither does a component.
    nodes = len(block) * block.num_nodes
    ends = (block.source.numpy(), block.target.numpy())
    graph = csr_matrix((np.ones(len(ends[0]), dtype=np.int8), ends), shape=(nodes, nodes))
    label = torch.from_numpy(connected_components(graph, directed=False)[1]).view(len(block), block.num_nodes)
    return label[:, :, None] == label[:, None, :]
