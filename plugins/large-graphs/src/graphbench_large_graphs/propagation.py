"""Sums over neighbours with the weights of a normalised adjacency matrix.

Legend: T nodes of all graphs, E edges, H heads, d head width; `edge_index` contains (source, target).
"""

from __future__ import annotations

import warnings
from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor
from torch_geometric.utils import add_remaining_self_loops, degree, scatter

from graphbench import GraphBatch
from graphbench.nn import gcn_edges


@dataclass(frozen=True)
class WeightedEdges:
    """Edges and the weights of messages along them.

    Args:
        index: `[2, E]`.
        weight: `[E]`.

    Examples:
        >>> edges = WeightedEdges(torch.tensor([[0, 1], [1, 1]]), torch.tensor([2.0, 3.0]))
        >>> edges.mix(torch.tensor([[1.0], [10.0]]))
        tensor([[ 0.],
                [32.]])
    """

    index: Tensor
    weight: Tensor

    def mix(self, x: Tensor) -> Tensor:
        """Return the weighted sum of `x [T, ...]` over neighbours, in the same shape."""
        # In float32 at least: a bfloat16 sum over the neighbours of a hub may end at 256 times a term.
        weight = self.weight.to(torch.promote_types(x.dtype, torch.float32)).view(-1, *[1] * (x.dim() - 1))
        messages = x.index_select(0, self.index[0]) * weight
        return scatter(messages, self.index[1], 0, x.shape[0], reduce="sum").to(x.dtype)


def symmetric_edges(batch: GraphBatch, dtype: torch.dtype) -> WeightedEdges:
    """Create edges with self-loops and weights `1 / sqrt(d_i d_j)`, d degrees including the loop (Kipf & Welling).

    Args:
        batch: the graphs.
        dtype: precision of the nodes; half precision counts degrees in float32.

    Examples:
        >>> from torch_geometric.data import Data
        >>> symmetric_edges(Data(edge_index=torch.tensor([[0, 1], [1, 0]]), num_nodes=2), torch.float32).weight
        tensor([0.5000, 0.5000, 0.5000, 0.5000])
    """
    precision = torch.promote_types(dtype, torch.float32)
    return WeightedEdges(*gcn_edges(batch.edge_index, batch.num_nodes, precision))


def row_edges(batch: GraphBatch, dtype: torch.dtype) -> WeightedEdges:
    """Create edges with weights `1 / d_i`, d the degree of the target: means over neighbours, 0 without neighbours.

    Args:
        batch: the graphs.
        dtype: precision of the nodes; half precision counts degrees in float32.

    Examples:
        >>> from torch_geometric.data import Data
        >>> row_edges(Data(edge_index=torch.tensor([[0, 1], [2, 2]]), num_nodes=3), torch.float32).weight
        tensor([0.5000, 0.5000])
    """
    target = batch.edge_index[1]
    # Read only at targets, each of which has an edge: no degree is 0.
    degrees = degree(target, batch.num_nodes, torch.promote_types(dtype, torch.float32))
    return WeightedEdges(batch.edge_index, degrees[target].reciprocal())


def hop_pairs(batch: GraphBatch, order: int) -> list[Tensor]:
    """Find pairs of nodes within 1, 2, 4, ... steps, `[2, pairs]` each.

    The pattern of an order is the square of the previous one, as in NodeFormer's code; self-loops include nodes within
    fewer steps. A hub of degree d adds d^2 pairs to the second order.

    Args:
        batch: the graphs.
        order: number of patterns; 0 for none.

    Examples:
        >>> from torch_geometric.data import Data
        >>> path = Data(edge_index=torch.tensor([[0, 1, 1, 2], [1, 0, 2, 1]]), num_nodes=3)
        >>> [pairs.shape[1] for pairs in hop_pairs(path, 2)]
        [7, 9]
    """
    # One matrix for the batch: no edge connects two graphs, so no power of the matrix does.
    n, patterns = batch.num_nodes, []
    index, _ = add_remaining_self_loops(batch.edge_index, num_nodes=n)
    for number in range(order):
        if number:
            with torch.autocast(index.device.type, enabled=False), warnings.catch_warnings():
                warnings.filterwarnings("ignore", message="Sparse CSR tensor support", category=UserWarning)
                ones = torch.ones(index.shape[1], dtype=torch.float32, device=index.device)
                pattern = torch.sparse_coo_tensor(index, ones, (n, n), check_invariants=False).coalesce()
                # Values count walks, which are unused: only the pattern of a product matters.
                index = torch.sparse.mm(pattern, pattern).coalesce().indices()
        patterns.append(index)
    return patterns


def hop_edges(patterns: Sequence[Tensor], num_nodes: int, dtype: torch.dtype) -> list[WeightedEdges]:
    """Weight pairs of nodes by `1 / sqrt(d_out_j d_in_i)`, d their degrees in the pattern.

    Args:
        patterns: from `hop_pairs`.
        num_nodes: T.
        dtype: precision of the nodes; half precision counts degrees in float32.
    """
    precision, weighted = torch.promote_types(dtype, torch.float32), []
    for index in patterns:
        # Patterns contain every self-loop, so no degree is 0.
        incoming, outgoing = (degree(index[end], num_nodes, precision) for end in (1, 0))
        weighted.append(WeightedEdges(index, (incoming[index[1]] * outgoing[index[0]]).rsqrt()))
    return weighted
