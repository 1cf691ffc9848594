"""Return probabilities of random walks."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor

from graphbench.contracts import Column, Encoded, Encoding, GraphTable
from graphbench.contracts.table import EDGE, NODE
from graphbench.encodings import _sparse
from graphbench.encodings._dense import checked_edges, few_threads, size_blocks
from graphbench.encodings._sparse import LARGE, adjacency_of
from graphbench.errors import check_range
from graphbench.kernels import run_in_threads, runs_numba


class RWSE(Encoding):
    """Random-walk structural encoding: diag((D^-1 A)^k), k = 1 .. num_steps (Dwivedi et al. 2022, GraphGPS).

    The walk follows the edges as they are stored: their direction counts, parallel edges weigh as often as they
    occur, loops are steps. A walk that reaches a node without outgoing edges ends there; such a node has only zeros.

    Graphs of more than 2,048 nodes are walked by sparse products from a block of nodes at a time, as exactly: memory
    grows with the edges, time with nodes times edges.

    Field: `rwse [num_nodes, num_steps]`, float32.

    Args:
        num_steps: longest walk.

    Raises:
        BadInput: `num_steps` is below 1, or an edge names a node that its graph does not have.

    Examples:
        >>> import torch
        >>> from graphbench.contracts import GraphTable
        >>> table = GraphTable.from_graphs([{"num_nodes": 3, "edge_index": torch.tensor([[0, 1, 1, 2], [1, 0, 2, 1]])}])
        >>> RWSE(2).compute(table).columns["rwse"]  # nobody is back after one step; the middle surely after two
        tensor([[0.0000, 0.5000],
                [0.0000, 1.0000],
                [0.0000, 0.5000]])
    """

    def __init__(self, num_steps: int = 20) -> None:
        check_range(f"{self.name}: num_steps", num_steps, at_least=1, whole=True)
        self.num_steps = int(num_steps)

    def parameters(self) -> dict[str, Any]:
        """Every option that changes the result."""
        return {"num_steps": self.num_steps}

    @property
    def layout(self) -> Mapping[str, Column]:
        """One row per node."""
        return {"rwse": Column(NODE)}

    def memory(self, num_nodes: int, num_edges: int) -> int:
        """Powers of a dense matrix, or of large graphs the walks from some of the nodes."""
        if num_nodes > LARGE:
            return 8 * (3 * _sparse.WALK_ENTRIES + num_nodes * self.num_steps) + 32 * num_edges
        return 8 * num_nodes**2 * (math.isqrt(self.num_steps - 1) + 4)

    def compute(self, graphs: GraphTable) -> Encoded:
        """Sums over the edges of most graphs; of dense ones 2 sqrt(num_steps) products per block of one size."""
        rwse = torch.zeros(int(graphs.ptr[NODE][-1]), self.num_steps)
        by_edges = torch.zeros(len(graphs), dtype=torch.bool)
        if runs_numba():
            undirected = _undirected(graphs)
            by_edges = _walked_along_edges(graphs, undirected)
            self._walk_along_edges(graphs, by_edges.nonzero().flatten(), undirected, rwse)
        with few_threads(graphs):
            for block in size_blocks(graphs, chosen=~by_edges):
                if block.num_nodes > LARGE:
                    found = _sparse.return_probabilities(adjacency_of(block, simple=False), self.num_steps)
                    rwse[block.rows(graphs.ptr[NODE], block.num_nodes)] = found.float()
                    continue
                adjacency = block.adjacency()
                transition = adjacency / adjacency.sum(-1, keepdim=True).clamp(min=1)
                probabilities = return_probabilities(transition, self.num_steps)
                rwse[block.rows(graphs.ptr[NODE], block.num_nodes)] = probabilities.flatten(0, 1).float()
        return Encoded({"rwse": rwse})

    def _walk_along_edges(self, graphs: GraphTable, chosen: Tensor, undirected: Tensor, rwse: Tensor) -> None:
        from graphbench.encodings.rwse_numba import walk_along_edges

        steps = self.num_steps * int((graphs.num_nodes * graphs.num_edges)[chosen].sum())
        operands = (chosen, undirected, graphs.ptr[NODE], graphs.ptr[EDGE], checked_edges(graphs), rwse)
        run_in_threads(walk_along_edges, len(chosen), steps, *operands)


def _undirected(graphs: GraphTable) -> Tensor:
    """Which graphs `[G]` have as many edges i -> j as j -> i, so that half as many steps tell; large ones are not."""
    from graphbench.encodings.rwse_numba import find_undirected

    undirected = torch.empty(len(graphs), dtype=torch.bool)
    operands = (graphs.ptr[NODE], graphs.ptr[EDGE], checked_edges(graphs), LARGE, undirected)
    run_in_threads(find_undirected, len(graphs), 8 * int(graphs.num_edges.sum()), *operands)
    return undirected


def _walked_along_edges(graphs: GraphTable, undirected: Tensor) -> Tensor:
    """Which graphs `[G]` have so few edges that sums over them take less time than products of matrices.

    Sums over all possible edges take as long as products with 100 nodes, over 0.4 of them with 250 or more, and of
    directed graphs, which are walked twice as many steps, over half as many; a quarter leaves room for processors that
    multiply faster than the one that this was measured on.
    """
    nodes, passes = graphs.num_nodes, 2 - undirected.long()
    return (nodes <= LARGE) & (passes * graphs.num_edges <= 30 * nodes + nodes**2 // 4)


def return_probabilities(transition: Tensor, num_steps: int) -> Tensor:
    """diag(M^k) for k = 1 .. num_steps, `[b, n, num_steps]`, of `transition` M `[b, n, n]`.

    Baby steps M^1 .. M^s and giant steps M^s, M^2s, ..., s = ceil(sqrt(num_steps)): the diagonal of a product
    needs no product, diag(P Q)_i = sum_l P_il Q_li.
    """
    stride = math.isqrt(num_steps - 1) + 1
    powers = [transition]
    for _ in range(stride - 1):
        powers.append(powers[-1] @ transition)
    diagonals = [power.diagonal(dim1=1, dim2=2) for power in powers]
    giant = powers[-1]
    while len(diagonals) < num_steps:
        turned = giant.mT.contiguous()
        diagonals += [(power * turned).sum(-1) for power in powers[: num_steps - len(diagonals)]]
        if len(diagonals) < num_steps:
            giant = giant @ powers[-1]
    return torch.stack(diagonals, dim=-1)
