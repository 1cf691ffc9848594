"""Encodings in loops over graphs on a CPU; graphs are independent and distributed over threads.

Graphs that the loops skip, large or dense ones, are passed to the plain forms.

Legend: G graphs; `node_ptr [G + 1]` and `edge_ptr [G + 1]` are the starts of the nodes and edges of each, and
`edges [E, 2]` number nodes within their graph.
"""

from __future__ import annotations

from functools import cache
from itertools import pairwise

import numpy as np
import torch
from threadpoolctl import ThreadpoolController
from torch import Tensor

from graphbench.contracts.kernels import plain_form
from graphbench_kernels.running import run_in_threads, runs_numba

#: Nodes up to which loops compute a graph.
_LARGE = 2048
#: Pairs of nodes that are searched at once, since intermediate results are larger.
_SEARCHED = 1 << 22
#: Distance of an unconnected pair, while distances are computed.
_NEVER = np.iinfo(np.int32).max // 2


def random_walks(node_ptr: Tensor, edge_ptr: Tensor, edges: Tensor, num_steps: int) -> Tensor:
    """Compute `graphbench::random_walks`, as sums over edges for graphs with few edges."""
    if not runs_numba():
        return plain_form("graphbench::random_walks")(node_ptr, edge_ptr, edges, num_steps)
    from graphbench_kernels.encodings import rwse_numba as loops

    num_nodes, num_edges = node_ptr.diff(), edge_ptr.diff()
    undirected = torch.empty(len(num_nodes), dtype=torch.bool)
    operands = (node_ptr, edge_ptr, edges, _LARGE, undirected)
    run_in_threads(loops.find_undirected, len(num_nodes), 8 * len(edges), *operands)
    by_edges = _walked_along_edges(num_nodes, num_edges, undirected)
    diagonals = torch.zeros(int(node_ptr[-1]), num_steps, dtype=torch.float32)
    chosen = by_edges.nonzero().flatten()
    steps = num_steps * int((num_nodes * num_edges)[chosen].sum())
    run_in_threads(loops.walk_along_edges, len(chosen), steps, chosen, undirected, node_ptr, edge_ptr, edges, diagonals)
    left = (~by_edges).nonzero().flatten()
    if len(left):
        nodes, *others = select(node_ptr, edge_ptr, edges, left)
        diagonals[nodes] = plain_form("graphbench::random_walks")(*others, num_steps)
    return diagonals


def _walked_along_edges(num_nodes: Tensor, num_edges: Tensor, undirected: Tensor) -> Tensor:
    """Mark the graphs `[G]` with so few edges that sums over them are faster than matrix products.

    Sums over all possible edges take as long as products with 100 nodes, sums over 0.4 of them with 250 or more; for
    directed graphs, which need twice as many steps, over half as many. A quarter leaves a margin for CPUs with faster
    products than the one that this was measured on.
    """
    passes = 2 - undirected.long()
    return (num_nodes <= _LARGE) & (passes * num_edges <= 30 * num_nodes + num_nodes**2 // 4)


def laplacian_eigenvectors(
    node_ptr: Tensor, edge_ptr: Tensor, edges: Tensor, count: int, normalization: str, skip_trivial: bool
) -> tuple[Tensor, Tensor]:
    """Compute `graphbench::laplacian_eigenvectors`, using LAPACK for one graph after the other."""
    if not runs_numba():
        return plain_form("graphbench::laplacian_eigenvectors")(
            node_ptr, edge_ptr, edges, count, normalization, skip_trivial
        )
    from graphbench_kernels.encodings.lap_pe_numba import decompose

    num_nodes = node_ptr.diff()
    vectors = torch.zeros(int(node_ptr[-1]), count, dtype=torch.float32)
    values = torch.zeros(len(num_nodes), count, dtype=torch.float32)
    left = num_nodes > 0
    chosen = (left & (num_nodes <= _LARGE)).nonzero().flatten()
    failed = torch.zeros(len(chosen), dtype=torch.bool)
    options = (normalization != "none", normalization == "random_walk", int(skip_trivial))
    steps = 4 * int((num_nodes[chosen] ** 3).sum())
    operands = (chosen, node_ptr, edge_ptr, edges, *options, vectors, values, failed)
    with _libraries().limit(limits=1, user_api="blas"):  # each of our threads has its own graphs
        run_in_threads(decompose, len(chosen), steps, *operands)
    left[chosen[~failed]] = False
    graphs = left.nonzero().flatten()
    if len(graphs):
        nodes, *others = select(node_ptr, edge_ptr, edges, graphs)
        vectors[nodes], values[graphs] = plain_form("graphbench::laplacian_eigenvectors")(
            *others, count, normalization, skip_trivial
        )
    return vectors, values


@cache
def _libraries() -> ThreadpoolController:
    """Return libraries with their own threads, including SciPy's LAPACK; the look-up takes as long as 100 molecules."""
    return ThreadpoolController()


def find_shortest_paths(
    node_ptr: Tensor, edge_ptr: Tensor, edges: Tensor, max_distance: int, with_steps: bool
) -> tuple[Tensor, Tensor, Tensor, Tensor, Tensor]:
    """Compute `graphbench::shortest_paths` with breadth-first searches, several graphs at a time."""
    if not runs_numba():
        return plain_form("graphbench::shortest_paths")(node_ptr, edge_ptr, edges, max_distance, with_steps)
    from graphbench_kernels.encodings import shortest_paths_numba as loops

    num_nodes = node_ptr.diff()
    pairs, work = _pointer(num_nodes**2), num_nodes * edge_ptr.diff()
    stored = torch.empty(int(pairs[-1]), dtype=torch.uint8 if max_distance < 255 else torch.int16)
    counts, lists = torch.zeros(len(num_nodes), dtype=torch.int64), [_empty_lists(0)]
    cuts = torch.searchsorted(pairs, torch.arange(0, int(pairs[-1]), _SEARCHED)).unique().tolist()
    for first, last in pairwise([*cuts, len(num_nodes)]):
        rows, here = slice(int(pairs[first]), int(pairs[last])), slice(first, last + 1)
        count, steps = last - first, int(work[first:last].sum())
        where = node_ptr[here], edge_ptr[here], pairs[here] - rows.start, edges
        distance = torch.empty(rows.stop - rows.start, dtype=torch.int32)
        if with_steps:
            paths, slots = torch.empty(len(distance), dtype=torch.float64), counts[first:last]
            run_in_threads(loops.to_every_node, count, steps, *where, _NEVER, distance, paths, slots)
            listed = _empty_lists(int(slots.sum()))
            run_in_threads(loops.list_steps, count, steps, *where, distance, paths, _pointer(slots), *listed)
            lists.append(listed)
        else:
            run_in_threads(loops.from_every_node, count, steps, *where, _NEVER, distance)
        bounded = torch.where(distance == _NEVER, max_distance + 1, distance.clamp(max=max_distance))
        stored[rows] = bounded.to(stored.dtype)
    edge, goal, weight = (torch.cat(parts) for parts in zip(*lists, strict=True))
    return stored, counts, edge, goal, weight


def _empty_lists(length: int) -> tuple[Tensor, ...]:
    """Allocate edges, goals and weights of `length` steps."""
    return tuple(torch.empty(length, dtype=dtype) for dtype in (torch.int32, torch.int32, torch.float32))


def select(node_ptr: Tensor, edge_ptr: Tensor, edges: Tensor, graphs: Tensor) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """Select the nodes of some graphs, and the three tensors of the table with only these graphs.

    Examples:
        >>> ptr, edges = torch.tensor([0, 1, 3]), torch.tensor([[0, 0], [0, 1], [1, 0]])
        >>> select(ptr, ptr, edges, torch.tensor([1]))
        (tensor([1, 2]), tensor([0, 2]), tensor([0, 2]), tensor([[0, 1],
                [1, 0]]))
    """
    rows = []
    for ptr in (node_ptr, edge_ptr):
        counts = ptr[graphs + 1] - ptr[graphs]
        new = _pointer(counts)
        rows.append((torch.arange(int(new[-1])) + (ptr[graphs] - new[:-1]).repeat_interleave(counts), new))
    (nodes, new_node_ptr), (chosen, new_edge_ptr) = rows
    return nodes, new_node_ptr, new_edge_ptr, edges[chosen]


def _pointer(counts: Tensor) -> Tensor:
    return torch.cat([counts.new_zeros(1), counts.cumsum(0)])
