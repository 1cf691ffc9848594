"""Encode nodes by the return probabilities of random walks."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import ClassVar

import torch
from torch import Tensor

from graphbench.contracts import Column, Encoded, Encoding, GraphTable
from graphbench.contracts.kernels import operation
from graphbench.contracts.table import NODE
from graphbench.encodings import _sparse
from graphbench.encodings._dense import as_table, as_tensors, few_threads, size_blocks
from graphbench.encodings._sparse import LARGE, adjacency_of
from graphbench.errors import check_range


class RWSE(Encoding):
    """Random-walk structural encoding: diag((D^-1 A)^k), k = 1 .. num_steps (Dwivedi et al. 2022, GraphGPS).

    The walk follows the edges as stored: their direction counts, parallel edges count separately, and loops are
    steps. A walk ends at a node without outgoing edges; such a node has only zeros.

    For graphs of more than 2,048 nodes sparse products compute the same values from one block of nodes at a time:
    memory grows with the edges, time with nodes times edges.

    Field: `rwse [num_nodes, num_steps]`, float32.

    Args:
        num_steps: longest walk.

    Raises:
        BadInput: `num_steps` is below 1, or an edge refers to a node that its graph does not have.

    Examples:
        >>> import torch
        >>> from graphbench.contracts import GraphTable
        >>> table = GraphTable.from_graphs([{"num_nodes": 3, "edge_index": torch.tensor([[0, 1, 1, 2], [1, 0, 2, 1]])}])
        >>> RWSE(2).compute(table).columns["rwse"]  # no walk is back after one step; the middle always after two
        tensor([[0.0000, 0.5000],
                [0.0000, 1.0000],
                [0.0000, 0.5000]])
    """

    layout: ClassVar[Mapping[str, Column]] = {"rwse": Column(NODE)}

    def __init__(self, num_steps: int = 20) -> None:
        check_range(f"{self.name}: num_steps", num_steps, at_least=1, whole=True)
        self.num_steps = int(num_steps)

    def memory(self, num_nodes: int, num_edges: int) -> int:
        """Count powers of a dense matrix, or the walks from one block of nodes for large graphs."""
        if num_nodes > LARGE:
            return 8 * (3 * _sparse.WALK_ENTRIES + num_nodes * self.num_steps) + 32 * num_edges
        # `return_probabilities` keeps all baby steps and three more matrices.
        return 8 * num_nodes**2 * (math.isqrt(self.num_steps - 1) + 4)

    def compute(self, graphs: GraphTable) -> Encoded:
        """Multiply dense matrices, 2 sqrt(num_steps) times for each block of equally sized graphs."""
        return Encoded({"rwse": random_walks(*as_tensors(graphs), self.num_steps)})


@operation("graphbench")
def random_walks(node_ptr: Tensor, edge_ptr: Tensor, edges: Tensor, num_steps: int) -> Tensor:
    """Compute the probability that a random walk is back after 1 .. num_steps steps, for every node of many graphs.

    The arguments come from `as_tensors`; the result is `[num_nodes, num_steps]`, float32.

    Examples:
        >>> random_walks(torch.tensor([0, 2]), torch.tensor([0, 2]), torch.tensor([[0, 1], [1, 0]]), 3)
        tensor([[0., 1., 0.],
                [0., 1., 0.]])
    """
    graphs = as_table(node_ptr, edge_ptr, edges)
    rwse = torch.zeros(int(node_ptr[-1]), num_steps, dtype=torch.float32)
    with few_threads(graphs):
        for block in size_blocks(graphs):
            if block.num_nodes > LARGE:
                probabilities = _sparse.return_probabilities(adjacency_of(block, simple=False), num_steps)
            else:
                adjacency = block.adjacency()
                # Clamped, so that rows without edges stay zero and not NaN: the walk ends there.
                transition = adjacency / adjacency.sum(-1, keepdim=True).clamp(min=1)
                probabilities = return_probabilities(transition, num_steps).flatten(0, 1)
            rwse[block.rows(node_ptr, block.num_nodes)] = probabilities.float()
    return rwse


def return_probabilities(transition: Tensor, num_steps: int) -> Tensor:
    """Compute diag(M^k) for k = 1 .. num_steps, `[b, n, num_steps]`, of `transition` M `[b, n, n]`.

    Use baby steps M^1 .. M^s and giant steps M^s, M^2s, ..., with s = ceil(sqrt(num_steps)): the diagonal of a
    product does not need the product, diag(P Q)_i = sum_l P_il Q_li.
    """
    stride = math.isqrt(num_steps - 1) + 1  # ceil of the root, without rounding errors
    powers = [transition]
    for _ in range(stride - 1):
        powers.append(powers[-1] @ transition)
    diagonals = [power.diagonal(dim1=1, dim2=2) for power in powers]
    giant = powers[-1]
    while len(diagonals) < num_steps:
        # Copied once, since it is read row by row for every power.
        transposed = giant.mT.contiguous()
        diagonals += [(power * transposed).sum(-1) for power in powers[: num_steps - len(diagonals)]]
        if len(diagonals) < num_steps:
            giant = giant @ powers[-1]
    return torch.stack(diagonals, dim=-1)
