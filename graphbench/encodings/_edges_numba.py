"""Passes over all edges of a table, in loops that Numba compiles.

Imported by `_dense` and `degree` when `runs_numba` says yes, and never else. Items are graphs.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from graphbench.kernels import cpu_kernel

Integers = NDArray[np.int64]


@cpu_kernel
def find_outside(
    first: int, last: int, num_nodes: Integers, edge_ptr: Integers, edges: Integers, outside: NDArray[np.bool_]
) -> None:
    """Mark in `outside [G]` the graphs with an edge of `edges [E, 2]` that names a node which they do not have."""
    for graph in range(first, last):
        least, most = np.int64(0), np.int64(-1)
        for edge in range(edge_ptr[graph], edge_ptr[graph + 1]):
            least = min(least, min(edges[edge, 0], edges[edge, 1]))
            most = max(most, max(edges[edge, 0], edges[edge, 1]))
        outside[graph] = least < 0 or most >= num_nodes[graph]


@cpu_kernel
def count_ends(
    first: int,
    last: int,
    node_ptr: Integers,
    edge_ptr: Integers,
    edges: Integers,
    outgoing: Integers,
    ingoing: Integers,
) -> None:
    """Add to `outgoing [N]` and `ingoing [N]` how many edges of `edges [E, 2]` begin and end at each node."""
    for graph in range(first, last):
        start = node_ptr[graph]
        for edge in range(edge_ptr[graph], edge_ptr[graph + 1]):
            outgoing[start + edges[edge, 0]] += 1
            ingoing[start + edges[edge, 1]] += 1
