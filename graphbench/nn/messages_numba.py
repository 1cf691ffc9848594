"""Sums over the edges that arrive at nodes, in loops that Numba compiles.

Imported by `messages` when `runs_numba` says yes, and never else. Nothing is stored for each edge but what is asked
for. Items are channels, so that each thread goes through all edges and no two write to the same number. An inner loop
writes to one or two rows: with more, the compiler gives up proving that they do not overlap, and computes number by
number.

Legend: T nodes, E edges, C channels; edge e goes from node `source[e]` to node `target[e]`.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from graphbench.nn.kernels import cpu_kernel

Array = NDArray[np.floating]
Integers = NDArray[np.int64]


@cpu_kernel
def check(source: Integers, target: Integers, num_nodes: int) -> None:
    """Raise IndexError where an edge names a node that is not there; the loops below would write elsewhere."""
    least, most = np.int64(0), np.int64(-1)
    for edge in range(source.shape[0]):
        least = min(least, min(source[edge], target[edge]))
        most = max(most, max(source[edge], target[edge]))
    if least < 0 or most >= num_nodes:
        raise IndexError("edge_index names a node that is not among the nodes")


@cpu_kernel
def add_neighbours(
    first: int, last: int, source: Integers, target: Integers, weight: Array, x: Array, sums: Array
) -> None:
    """Add `weight_e x_source(e)` to `sums_target(e)`; x and sums `[T, C]`, weight `[E]` or of length 0 for ones."""
    for edge in range(source.shape[0]):
        sent, total = x[source[edge], first:last], sums[target[edge], first:last]
        factor = weight[edge] if weight.shape[0] else sums.dtype.type(1)
        for channel in range(last - first):
            total[channel] += factor * sent[channel]


@cpu_kernel
def add_rectified(
    first: int, last: int, source: Integers, target: Integers, x: Array, edges: Array, sums: Array
) -> None:
    """Add `relu(x_source(e) + edges_e)` to `sums_target(e)`; x and sums `[T, C]`, edges `[E, C]`."""
    zero = sums.dtype.type(0)
    for edge in range(source.shape[0]):
        sent, own, total = x[source[edge], first:last], edges[edge, first:last], sums[target[edge], first:last]
        for channel in range(last - first):
            message = sent[channel] + own[channel]
            total[channel] += zero if message < zero else message


@cpu_kernel
def rectified_gradients(
    first: int,
    last: int,
    source: Integers,
    target: Integers,
    x: Array,
    edges: Array,
    upstream: Array,
    of_x: Array,
    of_edges: Array,
) -> None:
    """Gradients of `add_rectified`; to `of_x [T, C]` they are added, `of_edges [E, C]` is filled."""
    zero = x.dtype.type(0)
    for edge in range(source.shape[0]):
        start, end = source[edge], target[edge]
        sent, own, slope = x[start, first:last], edges[edge, first:last], upstream[end, first:last]
        to_x, to_edge = of_x[start, first:last], of_edges[edge, first:last]
        for channel in range(last - first):
            through = slope[channel] if sent[channel] + own[channel] > zero else zero
            to_x[channel] += through
            to_edge[channel] = through


@cpu_kernel
def raw_gates(
    first: int, last: int, source: Integers, target: Integers, nodes: Array, edges: Array, raw: Array
) -> None:
    """`raw_e = D x_target(e) + E x_source(e) + edges_e` `[E, C]`; `nodes [T, 4 C]` are A x, B x, D x and E x."""
    width = edges.shape[1]
    for edge in range(source.shape[0]):
        sent = nodes[source[edge], 3 * width + first : 3 * width + last]
        received = nodes[target[edge], 2 * width + first : 2 * width + last]
        own, out = edges[edge, first:last], raw[edge, first:last]
        for channel in range(last - first):
            out[channel] = received[channel] + sent[channel] + own[channel]


@cpu_kernel
def gated_mean(
    first: int,
    last: int,
    source: Integers,
    target: Integers,
    nodes: Array,
    gates: Array,
    epsilon: np.floating,
    means: Array,
    shares: Array,
    out: Array,
) -> None:
    """`out = A x + means`, `means_i = sum_e gates_e B x_source(e) / (sum_e gates_e + epsilon)`, `[T, C]`.

    `shares` gets one over that sum; it and `means` are 0 before.
    """
    width = gates.shape[1]
    for edge in range(source.shape[0]):
        sent, gate = nodes[source[edge], width + first : width + last], gates[edge, first:last]
        mean, share = means[target[edge], first:last], shares[target[edge], first:last]
        for channel in range(last - first):
            mean[channel] += gate[channel] * sent[channel]
            share[channel] += gate[channel]
    for node in range(nodes.shape[0]):
        own, mean, share, result = (
            nodes[node, first:last],
            means[node, first:last],
            shares[node, first:last],
            out[node, first:last],
        )
        for channel in range(last - first):
            share[channel] = 1 / (share[channel] + epsilon)
            mean[channel] *= share[channel]
            result[channel] = own[channel] + mean[channel]


@cpu_kernel
def gated_gradients(
    first: int,
    last: int,
    source: Integers,
    target: Integers,
    nodes: Array,
    gates: Array,
    means: Array,
    shares: Array,
    of_out: Array,
    of_raw: Array,
    of_nodes: Array,
    of_edges: Array,
) -> None:
    """From gradients of `gated_mean`'s `out` and of `raw_gates`' `raw` to those of nodes and edges; `of_nodes` is 0."""
    width = gates.shape[1]
    one = gates.dtype.type(1)
    for node in range(nodes.shape[0]):
        of_nodes[node, first:last] = of_out[node, first:last]
    for edge in range(source.shape[0]):
        start, end = source[edge], target[edge]
        sent, gate = nodes[start, width + first : width + last], gates[edge, first:last]
        mean, share, slope = means[end, first:last], shares[end, first:last], of_out[end, first:last]
        to_sent = of_nodes[start, width + first : width + last]
        to_source = of_nodes[start, 3 * width + first : 3 * width + last]
        to_target = of_nodes[end, 2 * width + first : 2 * width + last]
        to_edge, direct = of_edges[edge, first:last], of_raw[edge, first:last]
        for channel in range(last - first):
            through = slope[channel] * share[channel] * (sent[channel] - mean[channel])
            to_edge[channel] = direct[channel] + gate[channel] * (one - gate[channel]) * through
        for channel in range(last - first):
            to_sent[channel] += gate[channel] * slope[channel] * share[channel]
        for channel in range(last - first):
            to_target[channel] += to_edge[channel]
        for channel in range(last - first):
            to_source[channel] += to_edge[channel]
