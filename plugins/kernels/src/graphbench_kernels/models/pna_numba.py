"""Sums and largest of the messages that arrive at nodes, in loops that Numba compiles.

Imported by `pna` when `runs_numba` says yes, and never else. Items are channels, so that each thread goes through all
edges and no two write to the same number.

Legend: N nodes, E edges, C channels. The message of edge e is `sent[source_e] + edges_e`; `sent [N, C]`, `edges [E, C]`
or one row of zeros for all. Edges stand in the order of their targets; `arriving [N]` says how many each node has.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from graphbench_kernels.running import cpu_kernel

Array = NDArray[np.floating]
Integers = NDArray[np.int64]


@cpu_kernel
def fit_together(source: Integers, arriving: Integers) -> bool:
    """Whether all sources are nodes, and all edges arrive; else the loops would read and write elsewhere."""
    least, most, total = np.int64(0), np.int64(-1), np.int64(0)
    for j in range(source.shape[0]):
        least = min(least, source[j])
        most = max(most, source[j])
    for node in range(arriving.shape[0]):
        least = min(least, arriving[node])
        total += arriving[node]
    return least >= 0 and most < arriving.shape[0] and total == source.shape[0]


@cpu_kernel
def reduce_messages(
    first: int,
    last: int,
    source: Integers,
    arriving: Integers,
    sent: Array,
    edges: Array,
    totals: Array,
    largest: Array,
) -> None:
    """Add messages to `totals [N, C]`, which is 0 before, and find the `largest [N, C]`, minus infinity before."""
    begin, stop, has_edges = np.uint64(first), np.uint64(last), edges.shape[0] == source.shape[0]
    edge = 0
    for node in range(arriving.shape[0]):
        for _ in range(arriving[node]):
            start, row = source[edge], edge if has_edges else 0
            for c in range(begin, stop):
                totals[node, c] += sent[start, c] + edges[row, c]
            for c in range(begin, stop):
                message = sent[start, c] + edges[row, c]
                keeps = message <= largest[node, c] or largest[node, c] != largest[node, c]  # what is no number stays
                largest[node, c] = largest[node, c] if keeps else message
            edge += 1


@cpu_kernel
def message_gradients(
    first: int,
    last: int,
    source: Integers,
    arriving: Integers,
    sent: Array,
    edges: Array,
    largest: Array,
    of_totals: Array,
    of_largest: Array,
    shares: Array,
    of_sent: Array,
    of_edges: Array,
) -> None:
    """Gradients of `reduce_messages`; messages that equal the largest share its gradient.

    `shares [C]` is overwritten, to `of_sent [N, C]` is added, `of_edges` is filled, and means nothing where all edges
    have one row.
    """
    begin, stop, has_edges = np.uint64(first), np.uint64(last), edges.shape[0] == source.shape[0]
    zero, one = sent.dtype.type(0), sent.dtype.type(1)
    edge = 0
    for node in range(arriving.shape[0]):
        here = edge
        for c in range(begin, stop):
            shares[c] = zero
        for other in range(here, here + arriving[node]):
            start, row = source[other], other if has_edges else 0
            for c in range(begin, stop):
                shares[c] += one if sent[start, c] + edges[row, c] == largest[node, c] else zero
        for c in range(begin, stop):
            shares[c] = of_largest[node, c] / max(shares[c], one)
        for _ in range(arriving[node]):
            start, row = source[edge], edge if has_edges else 0
            for c in range(begin, stop):
                share = shares[c] if sent[start, c] + edges[row, c] == largest[node, c] else zero
                of_edges[row, c] = of_totals[node, c] + share
            for c in range(begin, stop):
                of_sent[start, c] += of_edges[row, c]
            edge += 1
