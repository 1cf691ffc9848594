"""Stack graphs of equal size as dense matrices, so that linear algebra runs over many graphs in one call.

Eigenvectors get one canonical basis per matrix. An eigenvector is defined up to its sign, a degenerate eigenspace up to
a rotation, and a library's choice depends on the last bit of its arithmetic, even on the memory address of the matrix:
molecules have many symmetric groups, and would get a different basis in a chunk with different graphs. Here the basis
depends only on the eigenspaces, up to rounding.

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

#: Entries of one `[b, n, n]` stack. 2 MB in float64: a block and its products stay in the CPU's cache.
_BLOCK_ENTRIES = 2**18
#: Number of nodes from which a single eigendecomposition clearly gains from a second thread.
_LARGE_GRAPH = 256
#: Eigenvalues closer than this fraction of the largest one share an eigenspace. Rounding separates equal ones by about
#: 1e-13 of it. A connected graph of n nodes has no eigenvalue between 0 and 4 / n^2 (Mohar 1991) and none above n, so
#: up to the 2,048 nodes of a dense matrix only eigenvectors of 0 share the eigenspace of 0.
SAME_VALUE = 1e-11
#: Weights that differ by less are ties, unless one is below half of the other (in graphs of a million nodes all weights
#: are this small); the first of them is the pivot.
TIE = 1e-6


@contextmanager
def few_threads(graphs: GraphTable) -> Iterator[None]:
    """Limit torch to one thread while small graphs are encoded.

    Thousands of short parallel regions gain little from more threads on an idle machine, and on a busy one each of
    them waits for a thread that is not scheduled: `LapPE` of 12,000 molecules took 41 s with two threads and 2 s with
    one, on two cores under a load of 10.
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
    """Graphs of one size.

    Args:
        num_nodes: n, at least 1.
        graphs: number of each graph in the table `[b]`.
        source: row of each edge's source among the block's nodes, `graph * n + node` `[e]`.
        target: row of its target `[e]`.
        num_edges: number of edges of each graph `[b]`; edges are stored graph after graph.
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
        """Count edges: `A[g, i, j]` = number of edges i -> j, including loops, float64 `[b, n, n]`."""
        counts = torch.bincount(self._cells(), minlength=len(self) * self.num_nodes**2)
        return counts.view(len(self), self.num_nodes, self.num_nodes).double()

    def simple_adjacency(self) -> Tensor:
        """Mark neighbours: `A[g, i, j]` = 1 if an edge i -> j or j -> i exists and i != j, float64 `[b, n, n]`."""
        flat = torch.zeros(len(self) * self.num_nodes**2, dtype=torch.float64)
        flat[self._cells()] = 1.0
        directed = flat.view(len(self), self.num_nodes, self.num_nodes)
        adjacency = torch.maximum(directed, directed.mT)
        adjacency.diagonal(dim1=1, dim2=2).zero_()
        return adjacency

    def rows(self, starts: Tensor, length: int) -> Tensor:
        """List the graphs' rows `[b * length]` of a table's axis: `length` rows each, from `starts [G]` on."""
        return (starts[self.graphs][:, None] + torch.arange(length)).flatten()

    def _cells(self) -> Tensor:
        return self.source * self.num_nodes + self.target % self.num_nodes


def size_blocks(
    graphs: GraphTable, max_entries: int = _BLOCK_ENTRIES, chosen: Tensor | None = None
) -> Iterator[SizeBlock]:
    """Split a table into blocks of equal graph size, each of at most `max_entries` node pairs (or one graph).

    Graphs without nodes are in no block. `chosen` is a mask of the graphs to split `[G]`.

    Raises:
        BadInput: an edge refers to a node that its graph does not have.
    """
    order = graphs.num_nodes.argsort(stable=True)  # stable: blocks must not depend on the torch version
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
    """Gather the graphs `chosen [b]`, all of one size; it reads only their edges, which then stay in the cache."""
    first = graphs.ptr[EDGE][chosen]
    num_edges = graphs.ptr[EDGE][chosen + 1] - first
    rows = ranges(first, num_edges)
    ends = [end[rows] for end in graphs.columns["edge_index"].unbind(1)]
    # Checked here, while the block's edges are in the cache; `check_edges` then finds the invalid edge.
    if any(len(end) and (end.min() < 0 or end.max() >= num_nodes) for end in ends):
        check_edges(graphs)
    first_node = torch.repeat_interleave(torch.arange(len(chosen)) * num_nodes, num_edges, output_size=len(rows))
    return SizeBlock(num_nodes, chosen, ends[0] + first_node, ends[1] + first_node, num_edges)


def _places(sizes: Tensor, max_entries: int) -> Tensor:
    """Return the place of every graph within its block, for ascending `sizes [G]`; see `size_blocks`."""
    values, counts = sizes.unique_consecutive(return_counts=True)
    rank = torch.arange(len(sizes)) - pointer(counts)[:-1].repeat_interleave(counts)
    return rank % (max_entries // values**2).clamp(min=1).repeat_interleave(counts)


def check_edges(graphs: GraphTable) -> None:
    """Raise `BadInput` for the first edge that refers to a node which its graph does not have."""
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
    """Return first nodes `[G + 1]`, first edges `[G + 1]` and edges `[E, 2]` of a table, int64, for an `operation`.

    Raises:
        BadInput: an edge refers to a node that its graph does not have.
    """
    check_edges(graphs)
    return graphs.ptr[NODE], graphs.ptr[EDGE], graphs.columns["edge_index"].to(torch.int64).contiguous()


def as_table(node_ptr: Tensor, edge_ptr: Tensor, edges: Tensor) -> GraphTable:
    """Rebuild the table from the tensors of `as_tensors`."""
    return GraphTable({"edge_index": edges}, {"edge_index": EDGE_INDEX}, {NODE: node_ptr, EDGE: edge_ptr})


def laplacian(adjacency: Tensor, normalization: Normalization = "none") -> Tensor:
    """Return a symmetric matrix with the spectrum of the Laplacian `[b, n, n]`, for symmetric `adjacency [b, n, n]`.

    "none" is L = D - A. "symmetric" and "random_walk" both give D^(-1/2) L D^(-1/2), the matrix similar to
    D^(-1) L, with D^(-1/2) = 0 at nodes of degree 0 (Chung, Spectral Graph Theory, section 1.2): an isolated node
    has eigenvalue 0 with all three.
    """
    degree = adjacency.sum(-1)
    matrix = torch.diag_embed(degree) - adjacency
    if normalization == "none":
        return matrix
    scale = inverse_root(degree)
    return scale[:, :, None] * matrix * scale[:, None, :]


def inverse_root(degree: Tensor) -> Tensor:
    """Return d^(-1/2), or 0 where d = 0."""
    return torch.where(degree > 0, degree.clamp(min=1).rsqrt(), 0.0)


def smallest_eigenpairs(matrices: Tensor, count: int) -> tuple[Tensor, Tensor]:
    """Compute the `count` smallest eigenvalues and orthonormal eigenvectors of positive semi-definite matrices.

    The basis of each eigenspace is the pivoted Cholesky factor of its projector P: the pivot is the node with the
    largest P_ii (the first of equals), its vector is P e_i / sqrt(P_ii), which is then projected out of P. So a vector
    is as large at one node as its eigenspace allows, and positive there; the largest entry of a simple eigenvector is
    positive. The basis depends on the order of nodes only if nodes are symmetric. Matrices are float64 `[b, n, n]`.

    Returns:
        Eigenvalues `[b, count]`, ascending, with those within rounding of 0 set to 0; eigenvectors `[b, n, count]`.
    """
    values, vectors = torch.linalg.eigh(matrices)
    largest = values[:, -1:]
    joined = torch.zeros_like(values, dtype=torch.bool)
    joined[:, 1:] = values.diff(dim=1) <= SAME_VALUE * largest
    _rotate_to_canonical(vectors, joined, count)
    # The error of a backward stable solver is n eps |M|; smaller values are the zeros of the components.
    rounding = matrices.shape[-1] * torch.finfo(matrices.dtype).eps * largest
    values = torch.where(values <= rounding, 0.0, values)[:, :count]
    return values, vectors[:, :, :count]


def _rotate_to_canonical(vectors: Tensor, joined: Tensor, count: int) -> None:
    """Rotate, in place, every eigenspace that starts before column `count` to its canonical basis.

    `joined [b, n]` is True where a column shares the eigenspace of the column before it.
    """
    space = (~joined).cumsum(1) - 1
    multiplicity = torch.zeros_like(space).scatter_add_(1, space, torch.ones_like(space))
    starts = (~joined).nonzero()
    # An eigenspace that begins within the first `count` columns is rotated as a whole, even if it ends after them:
    # its basis must not depend on the number of requested columns.
    starts = starts[starts[:, 1] < count]
    sizes = multiplicity[starts[:, 0], space[starts[:, 0], starts[:, 1]]]
    rows = torch.arange(vectors.shape[1])[None, :, None]
    # Eigenspaces of equal dimension are stacked across matrices: one call for each dimension.
    for size in sizes.unique().tolist():
        graph, first = starts[sizes == size].unbind(1)
        columns = first[:, None, None] + torch.arange(size)
        where = (graph[:, None, None], rows, columns)
        vectors[where] = pivoted_basis(vectors[where], min(size, count))


def pivoted_basis(basis: Tensor, count: int) -> Tensor:
    """Return canonical bases of the spaces spanned by `basis [c, n, m]`; only the first `count` columns are final."""
    remaining, result = basis.clone(), basis.clone()
    spaces = torch.arange(len(basis))
    for column in range(count):
        # P = V V^T has these sums on its diagonal, so P itself is never formed.
        weight = remaining.square().sum(-1)
        # argmax of the mask is the first node within TIE of the largest; argmax of the weights depends on rounding.
        most = weight.amax(1, keepdim=True)
        pivot = (weight >= torch.maximum(most - TIE, most / 2)).int().argmax(1)
        lead = remaining[spaces, pivot]
        lead = lead / lead.norm(dim=1, keepdim=True)
        # The projection of the pivot's unit vector onto the remaining space.
        result[:, :, column] = (remaining * lead[:, None, :]).sum(-1)
        remaining -= result[:, :, column, None] * lead[:, None, :]
    return result
