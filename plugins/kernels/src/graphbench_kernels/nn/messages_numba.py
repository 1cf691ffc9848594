"""Sums over the incoming edges of nodes, in loops that Numba compiles.

Only imported by `messages`, if `runs_numba` is true. Nothing is stored per edge except requested results. Items are
channels, so each thread processes all edges and no two write to the same number. An inner loop writes to one or two
rows: with more, the compiler cannot prove that they do not overlap and does not vectorise, nor does it if an index
might be negative, so channels are unsigned.

Legend: T nodes, E edges, C channels; edge e goes from node `source[e]` to node `target[e]`.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from graphbench_kernels.running import cpu_kernel

Array = NDArray[np.floating]
Integers = NDArray[np.int64]


@cpu_kernel
def are_below(bound: int, numbers: Integers) -> bool:
    """Return whether all numbers are in [0, bound); with others the loops would read and write out of range."""
    least, most = np.int64(0), np.int64(-1)
    for j in range(numbers.shape[0]):
        least = min(least, numbers[j])
        most = max(most, numbers[j])
    return least >= 0 and most < bound


@cpu_kernel
def add_neighbours(
    first: int, last: int, source: Integers, target: Integers, weight: Array, x: Array, sums: Array
) -> None:
    """Add `weight_e x_source(e)` to `sums_target(e)`; x and sums `[T, C]`, weight `[E]` or empty for ones."""
    begin, stop = np.uint64(first), np.uint64(last)
    for edge in range(source.shape[0]):
        start, end = source[edge], target[edge]
        factor = weight[edge] if weight.shape[0] else sums.dtype.type(1)
        for c in range(begin, stop):
            sums[end, c] += factor * x[start, c]


@cpu_kernel
def add_rectified(
    first: int, last: int, source: Integers, target: Integers, x: Array, edges: Array, sums: Array
) -> None:
    """Add `relu(x_source(e) + edges_e)` to `sums_target(e)`; x and sums `[T, C]`, edges `[E, C]`."""
    begin, stop, zero = np.uint64(first), np.uint64(last), sums.dtype.type(0)
    for edge in range(source.shape[0]):
        start, end = source[edge], target[edge]
        for c in range(begin, stop):
            message = x[start, c] + edges[edge, c]
            # Written like this to pass on NaN: comparisons with it are false.
            sums[end, c] += zero if message < zero else message


@cpu_kernel
def rectified_gradients(
    first: int,
    last: int,
    source: Integers,
    target: Integers,
    x: Array,
    edges: Array,
    upstream: Array,
    grad_x: Array,
    grad_edges: Array,
) -> None:
    """Compute gradients of `add_rectified`: add to `grad_x [T, C]` and fill `grad_edges [E, C]`."""
    begin, stop, zero = np.uint64(first), np.uint64(last), x.dtype.type(0)
    for edge in range(source.shape[0]):
        start, end = source[edge], target[edge]
        for c in range(begin, stop):
            # As for torch's ReLU: zero at 0, and the full gradient if the message is NaN.
            grad_edges[edge, c] = zero if x[start, c] + edges[edge, c] <= zero else upstream[end, c]
        for c in range(begin, stop):
            grad_x[start, c] += grad_edges[edge, c]


@cpu_kernel
def raw_gates(
    first: int, last: int, source: Integers, target: Integers, nodes: Array, edges: Array, raw: Array
) -> None:
    """`raw_e = D x_target(e) + E x_source(e) + edges_e` `[E, C]`; `nodes [T, 4 C]` are A x, B x, D x and E x."""
    begin, stop, width = np.uint64(first), np.uint64(last), np.uint64(edges.shape[1])
    received, sent = np.uint64(2) * width, np.uint64(3) * width
    for edge in range(source.shape[0]):
        start, end = source[edge], target[edge]
        for c in range(begin, stop):
            raw[edge, c] = nodes[end, received + c] + nodes[start, sent + c] + edges[edge, c]


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

    `shares` gets the inverse of that sum; it and `means` are initially 0.
    """
    begin, stop, width = np.uint64(first), np.uint64(last), np.uint64(gates.shape[1])
    for edge in range(source.shape[0]):
        start, end = source[edge], target[edge]
        for c in range(begin, stop):
            means[end, c] += gates[edge, c] * nodes[start, width + c]
        for c in range(begin, stop):
            shares[end, c] += gates[edge, c]
    for node in range(nodes.shape[0]):
        for c in range(begin, stop):
            # Stored for the backward pass, like the mean.
            shares[node, c] = 1 / (shares[node, c] + epsilon)
            means[node, c] *= shares[node, c]
        for c in range(begin, stop):
            out[node, c] = nodes[node, c] + means[node, c]


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
    grad_out: Array,
    grad_raw: Array,
    grad_nodes: Array,
    grad_edges: Array,
) -> None:
    """Differentiate `gated_mean` and `raw_gates`, from gradients of `out` and `raw`; `grad_nodes` starts at 0."""
    begin, stop, width = np.uint64(first), np.uint64(last), np.uint64(gates.shape[1])
    received, sent = np.uint64(2) * width, np.uint64(3) * width
    one = gates.dtype.type(1)
    for node in range(nodes.shape[0]):
        for c in range(begin, stop):
            grad_nodes[node, c] = grad_out[node, c]
    for edge in range(source.shape[0]):
        start, end = source[edge], target[edge]
        for c in range(begin, stop):
            # Derivative of a quotient: with gate e the mean changes by share (B x_j - mean). Then that of the sigmoid.
            through = grad_out[end, c] * shares[end, c] * (nodes[start, width + c] - means[end, c])
            grad_edges[edge, c] = grad_raw[edge, c] + gates[edge, c] * (one - gates[edge, c]) * through
        for c in range(begin, stop):
            grad_nodes[start, width + c] += gates[edge, c] * grad_out[end, c] * shares[end, c]
        for c in range(begin, stop):
            grad_nodes[end, received + c] += grad_edges[edge, c]
        for c in range(begin, stop):
            grad_nodes[start, sent + c] += grad_edges[edge, c]
