"""Graphs of equal size as dense stacks, so that linear algebra runs over many graphs in one call.

Legend: b graphs of a block, n nodes of each, e directed edges of the whole block.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import pairwise
from typing import Literal

import torch
from torch import Tensor

from graphbench.contracts.table import EDGE, EDGE_INDEX, NODE, GraphTable, pointer, ranges
from graphbench.errors import BadInput

Normalization = Literal["none", "symmetric", "random_walk"]

#: Entries of one `[b, n, n]` stack. 2 MB in float64: a block and its products stay in the processor's cache.
_BLOCK_ENTRIES = 2**18
#: Nodes from which on a single eigen-decomposition gains clearly from a second thread.
_LARGE_GRAPH = 256


@contextmanager
def few_threads(graphs: GraphTable) -> Iterator[None]:
    """Hold torch to one thread while small graphs are encoded.

    Thousands of short parallel regions gain little from more threads on an idle machine, and on a busy one each of
    them waits for a thread that the scheduler has put aside: `LapPE` of 12,000 molecules took 41 s with two threads
    and 2 s with one on two cores under a load of 10.
    """
    threads = torch.get_num_threads()
    small = len(graphs) == 0 or int(graphs.num_nodes.max()) < _LARGE_GRAPH
    torch.set_num_threads(1 if small else threads)
    try:
        yield
    finally:
        torch.set_num_threads(threads)


@dataclass(frozen=True)
class SizeBlock:
    """Some graphs of one size.

    Args:
        num_nodes: n, at least 1.
        graphs: number of each graph in the table `[b]`.
        source: row of each edge's source among the block's nodes, `graph * n + node` `[e]`.
        target: row of its target `[e]`.
        num_edges: edges of each graph `[b]`, which follow one another.
    """

    num_nodes: int
    graphs: Tensor
    source: Tensor
    target: Tensor
    num_edges: Tensor

    def __len__(self) -> int:
        return len(self.graphs)

    @property
    def edge(self) -> Tensor:
        """Number of each edge within its graph `[e]`."""
        return ranges(torch.zeros_like(self.num_edges), self.num_edges)

    def adjacency(self) -> Tensor:
        """`A[g, i, j]` = number of edges i -> j, float64 `[b, n, n]`: directed, loops and parallel edges counted."""
        counts = torch.bincount(self._cells(), minlength=len(self) * self.num_nodes**2)
        return counts.view(len(self), self.num_nodes, self.num_nodes).double()

    def simple_adjacency(self) -> Tensor:
        """`A[g, i, j]` = 1 where an edge i -> j or j -> i exists and i != j, float64 `[b, n, n]`."""
        flat = torch.zeros(len(self) * self.num_nodes**2, dtype=torch.float64)
        flat[self._cells()] = 1.0
        directed = flat.view(len(self), self.num_nodes, self.num_nodes)
        adjacency = torch.maximum(directed, directed.mT)
        adjacency.diagonal(dim1=1, dim2=2).zero_()
        return adjacency

    def rows(self, starts: Tensor, length: int) -> Tensor:
        """Rows of a table's axis `[b * length]` where each graph has `length` rows from `starts [G]` on."""
        return (starts[self.graphs][:, None] + torch.arange(length)).flatten()

    def _cells(self) -> Tensor:
        return self.source * self.num_nodes + self.target % self.num_nodes


def size_blocks(
    graphs: GraphTable, max_entries: int = _BLOCK_ENTRIES, chosen: Tensor | None = None
) -> Iterator[SizeBlock]:
    """Split a table into blocks of equal graph size, each of at most `max_entries` node pairs (or one graph).

    Graphs without nodes are in no block.

    Args:
        graphs: the table.
        max_entries: node pairs of a block.
        chosen: True for the graphs that blocks are made of `[G]`; all by default.

    Raises:
        BadInput: an edge names a node that its graph does not have.
    """
    order = graphs.num_nodes.argsort(stable=True)
    inside = graphs.num_nodes > 0
    if not inside.all():  # an edge of a graph without nodes is in no block
        check_edges(graphs)
    if chosen is not None:
        inside &= chosen
    order = order[inside[order]]
    sizes = graphs.num_nodes[order]
    starts = (_places(sizes, max_entries) == 0).nonzero().flatten().tolist()
    for start, stop in pairwise([*starts, len(order)]):
        yield _block(graphs, int(sizes[start]), order[start:stop])


def _block(graphs: GraphTable, num_nodes: int, chosen: Tensor) -> SizeBlock:
    """The graphs `chosen [b]`, all of one size. Only their edges are touched, so that they stay in the cache."""
    first = graphs.ptr[EDGE][chosen]
    num_edges = graphs.ptr[EDGE][chosen + 1] - first
    rows = ranges(first, num_edges)
    ends = [end[rows] for end in graphs.columns["edge_index"].unbind(1)]
    if any(len(end) and (end.min() < 0 or end.max() >= num_nodes) for end in ends):
        check_edges(graphs)
    first_node = torch.repeat_interleave(torch.arange(len(chosen)) * num_nodes, num_edges, output_size=len(rows))
    return SizeBlock(num_nodes, chosen, ends[0] + first_node, ends[1] + first_node, num_edges)


def _places(sizes: Tensor, max_entries: int) -> Tensor:
    """Place of every graph within its block, from ascending `sizes [G]`.

    A block ends where the size changes or where one more graph would exceed `max_entries` node pairs.
    """
    values, counts = sizes.unique_consecutive(return_counts=True)
    rank = torch.arange(len(sizes)) - pointer(counts)[:-1].repeat_interleave(counts)
    return rank % (max_entries // values**2).clamp(min=1).repeat_interleave(counts)


def check_edges(graphs: GraphTable) -> None:
    """Raise `BadInput` for the first edge that names a node which its graph does not have."""
    edges = graphs.columns["edge_index"]
    if not len(edges) or (edges.min() >= 0 and edges.max() < graphs.num_nodes.min()):
        return
    limit = torch.repeat_interleave(graphs.num_nodes, graphs.num_edges, output_size=len(edges))
    outside = torch.zeros(len(edges), dtype=torch.bool)
    for end in edges.unbind(1):
        outside |= (end < 0) | (end >= limit)
    if outside.any():
        first = int(outside.nonzero()[0])
        graph = int(torch.searchsorted(graphs.ptr[EDGE], first, right=True)) - 1
        raise BadInput(
            f"Edge {first - int(graphs.ptr[EDGE][graph])} of graph {graph} joins nodes {edges[first].tolist()}, but "
            f"that graph has {int(graphs.num_nodes[graph])} nodes. Number the nodes of every graph from 0."
        )


def as_tensors(graphs: GraphTable) -> tuple[Tensor, Tensor, Tensor]:
    """First nodes `[G + 1]`, first edges `[G + 1]`, and edges `[E, 2]` of a table, for an `operation`; int64.

    Raises:
        BadInput: an edge names a node that its graph does not have.
    """
    check_edges(graphs)
    return graphs.ptr[NODE], graphs.ptr[EDGE], graphs.columns["edge_index"].to(torch.int64).contiguous()


def as_table(node_ptr: Tensor, edge_ptr: Tensor, edges: Tensor) -> GraphTable:
    """The table of what `as_tensors` returned."""
    return GraphTable({"edge_index": edges}, {"edge_index": EDGE_INDEX}, {NODE: node_ptr, EDGE: edge_ptr})


def laplacian(adjacency: Tensor, normalization: Normalization = "none") -> Tensor:
    """Symmetric matrix whose spectrum is that of the Laplacian `[b, n, n]`, from symmetric `adjacency [b, n, n]`.

    "none" is L = D - A. "symmetric" and "random_walk" both give D^(-1/2) L D^(-1/2), the matrix similar to
    D^(-1) L, with D^(-1/2) = 0 at nodes of degree 0 (Chung, Spectral Graph Theory, section 1.2): an isolated node
    has eigenvalue 0 under all three.
    """
    degree = adjacency.sum(-1)
    matrix = torch.diag_embed(degree) - adjacency
    if normalization == "none":
        return matrix
    scale = inverse_root(degree)
    return scale[:, :, None] * matrix * scale[:, None, :]


def inverse_root(degree: Tensor) -> Tensor:
    """d^(-1/2), and 0 where d = 0."""
    return torch.where(degree > 0, degree.clamp(min=1).rsqrt(), 0.0)
