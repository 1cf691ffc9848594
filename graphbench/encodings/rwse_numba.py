"""Random walks along the edges of graphs, in loops that Numba compiles.

Imported by `rwse` when `runs_numba` says yes, and never else. Every graph is walked by itself.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from graphbench.kernels import cpu_kernel

Integers = NDArray[np.int64]


@cpu_kernel
def walk_along_edges(
    first: int,
    last: int,
    chosen: Integers,
    node_ptr: Integers,
    edge_ptr: Integers,
    edges: Integers,
    rwse: NDArray[np.float32],
) -> None:
    """Fill `rwse[i, k - 1]` with `(M^k)_ii`, M = D^-1 A, of some graphs: `M^k = M M^(k-1)`, a sum over edges per row.

    Args:
        first: number of the first item of `chosen`.
        last: the item before which to stop.
        chosen: numbers of graphs.
        node_ptr: where the nodes of graphs begin `[G + 1]`.
        edge_ptr: where their edges begin `[G + 1]`.
        edges: source and target of each edge, numbered within graphs `[E, 2]`.
        rwse: `[N, num_steps]`.
    """
    for item in range(first, last):
        graph = chosen[item]
        start, n = node_ptr[graph], node_ptr[graph + 1] - node_ptr[graph]
        here = edges[edge_ptr[graph] : edge_ptr[graph + 1]]
        degree, columns = np.zeros(n), np.uint64(n)
        for edge in range(len(here)):
            degree[here[edge, 0]] += 1.0
        power, product = np.eye(n), np.empty((n, n))
        for step in range(rwse.shape[1]):
            product[:] = 0.0
            for edge in range(len(here)):
                source, target = here[edge, 0], here[edge, 1]
                for c in range(columns):
                    product[source, c] += power[target, c]
            for node in range(n):
                share = 1.0 / max(degree[node], 1.0)
                for c in range(columns):
                    product[node, c] *= share
                rwse[start + node, step] = product[node, node]
            power, product = product, power
