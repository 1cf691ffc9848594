"""Attention within the graphs of a block, for each graph and head in turn, in loops that Numba compiles.

Imported by `attention` when its kernel first runs. A graph's rows are read in place from the batch; scores of several
queries become weights, and weights become mixed values, while they are in the CPU's cache. Nothing is stored per pair:
the backward pass recomputes the weights.

Arrays are one-dimensional and indexed with unsigned integers: views would cost reference counting, and possibly
negative indices would prevent vectorised loops.

Legend: T rows of all graphs, b graphs of a block, n rows of its largest one, H heads, d head width.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from graphbench_kernels.lanes_numba import transpose
from graphbench_kernels.nn.softmax_rows_numba import derive_row, find_top, keep_row, raise_row, weigh_row
from graphbench_kernels.products_numba import LANES, add_product, multiply
from graphbench_kernels.running import cpu_kernel

Array = NDArray[np.float32]
Integers = NDArray[np.int64]
#: Random bits of each weight; empty without dropout.
Bits = NDArray[np.int16]

#: Queries whose scores are in the cache at the same time.
_QUERIES = 32
_ZERO, _ONE = np.float32(0), np.float32(1)
#: Scores are products of queries and keys; divided by sqrt(d) and in units of log 2 they are exponents of two.
_UNIT = np.float32(1 / np.log(2))


@cpu_kernel
def attend(
    first: int,
    last: int,
    rows: Array,
    starts: Integers,
    sizes: Integers,
    pairs: Integers,
    length: int,
    num_heads: int,
    width: int,
    bias: Array,
    bias_steps: Integers,
    bits: Bits,
    least: np.int16,
    factor: np.float32,
    tops: Array,
    shares: Array,
    mixed: Array,
) -> None:
    """Compute mixed values of some graphs and heads.

    Args:
        first: number of the first item, counted over graphs and heads.
        last: end of the items (exclusive).
        rows: queries, keys and values `[T, 3, H, d]`.
        starts: first row of each graph `[b]`.
        sizes: rows of each graph `[b]`.
        pairs: first pair of rows of each graph `[b]`, in a concatenation of the pairs of all graphs of the batch.
        length: n.
        num_heads: H.
        width: d.
        bias: added to the scores; empty for none.
        bias_steps: strides of graphs, heads and queries in the bias; 0 if they share it.
        bits: random bits of each weight, `[H, size, size]` for each graph of the batch in turn, plus `LANES` unused,
            because rows are read in whole vectors; empty without dropout.
        least: weights whose bits are below this are dropped.
        factor: factor of the remaining weights.
        tops: output for the largest score of each query, `[H, size]` for each graph of the batch in turn.
        shares: output for the inverse sum of its powers, from which the weights are recomputed.
        mixed: output `[T, H, d]`.
    """
    own_row, three_rows = num_heads * width, 3 * num_heads * width
    padded, wide, unit, root = _up(length), _up(width), np.float32(_UNIT / np.sqrt(width)), np.float32(np.sqrt(width))
    # Memory for the largest graph of the block, once for all items of this thread.
    keys, values = np.empty(width * padded, np.float32), np.zeros(length * wide, np.float32)
    weights, left = np.empty(_QUERIES * padded, np.float32), np.empty(_QUERIES * padded, np.float32)
    out = np.empty(_QUERIES * wide, np.float32)
    for item in range(first, last):
        graph, head = item // num_heads, item % num_heads
        size = sizes[graph]
        stride, query = _up(size), starts[graph] * three_rows + head * width
        vectors = stride // LANES
        # Keys as columns, since `multiply` reads whole vectors of its right matrix.
        _turn(rows, query + own_row, three_rows, keys, padded, size, width)
        _copy(rows, query + 2 * own_row, three_rows, values, 0, wide, size, width, _ONE)
        for begin in range(0, size, _QUERIES):
            count, number = min(_QUERIES, size - begin), starts[graph] * num_heads + head * size + begin
            drawn = pairs[graph] * num_heads + (head * size + begin) * size
            added = graph * bias_steps[0] + head * bias_steps[1] + begin * bias_steps[2]
            at = query + begin * three_rows
            multiply(rows, at, three_rows, 1, keys, 0, padded, weights, 0, stride, count, stride, width)
            for row in range(count):
                _add(bias, added + row * bias_steps[2], root, weights, row * stride, size)
                find_top(weights, row * stride, vectors, size, tops, number + row)
            for row in range(count):
                raise_row(weights, row * stride, vectors, unit, tops, shares, number + row)
            for row in range(count):
                # Dropout's factor is combined with the division by the sum.
                share_after_dropout = shares[number + row] * factor
                keep_row(weights, row * stride, vectors, share_after_dropout, bits, drawn + row * size, least, left)
            multiply(left, 0, stride, 1, values, 0, wide, out, 0, wide, count, wide, size)
            at = (starts[graph] + begin) * own_row + head * width
            _copy(out, 0, wide, mixed, at, own_row, count, width, _ONE)


@cpu_kernel
def attend_gradient(
    first: int,
    last: int,
    rows: Array,
    starts: Integers,
    sizes: Integers,
    pairs: Integers,
    length: int,
    num_heads: int,
    width: int,
    bias: Array,
    bias_steps: Integers,
    bits: Bits,
    least: np.int16,
    factor: np.float32,
    tops: Array,
    shares: Array,
    upstream: Array,
    grad_rows: Array,
    grad_scores: Array,
) -> None:
    """Compute gradients of `attend`: `p (g - sum_j p_j g_j)` for scores with weights p and their gradients g.

    Args:
        first: number of the first item, counted over graphs and heads.
        last: end of the items (exclusive).
        rows: as for `attend`, like all arguments up to `factor`.
        starts: first row of each graph.
        sizes: rows of each graph.
        pairs: first pair of rows of each graph.
        length: n.
        num_heads: H.
        width: d.
        bias: added to the scores.
        bias_steps: strides of the bias.
        bits: random bits of each weight.
        least: weights whose bits are below this are dropped.
        factor: factor of the remaining weights.
        tops: as `attend` returned them.
        shares: as `attend` returned them.
        upstream: gradient of the mixed values `[T, H, d]`.
        grad_rows: output for the gradient of queries, keys and values `[T, 3, H, d]`.
        grad_scores: output for the gradient of scores and bias `[b, H, n, n]`, initially 0; empty to skip it.
    """
    own_row, three_rows = num_heads * width, 3 * num_heads * width
    padded, wide, unit, root = _up(length), _up(width), np.float32(_UNIT / np.sqrt(width)), np.float32(np.sqrt(width))
    scale = np.float32(1 / np.sqrt(width))
    keys, values = np.empty(width * padded, np.float32), np.empty(width * padded, np.float32)
    queries, key_rows = np.zeros(length * wide, np.float32), np.zeros(length * wide, np.float32)
    above, out = np.zeros(length * wide, np.float32), np.empty(_QUERIES * wide, np.float32)
    grad_keys, grad_values = np.empty(length * wide, np.float32), np.empty(length * wide, np.float32)
    weights, left = np.empty(_QUERIES * padded, np.float32), np.empty(_QUERIES * padded, np.float32)
    means = np.empty(_QUERIES, np.float32)
    before, slopes = np.empty(_QUERIES * padded, np.float32), np.empty(_QUERIES * padded, np.float32)
    for item in range(first, last):
        graph, head = item // num_heads, item % num_heads
        size = sizes[graph]
        stride, query, mixed = (
            _up(size),
            starts[graph] * three_rows + head * width,
            starts[graph] * own_row + head * width,
        )
        key, value = query + own_row, query + 2 * own_row
        vectors = stride // LANES
        _turn(rows, key, three_rows, keys, padded, size, width)
        _turn(rows, value, three_rows, values, padded, size, width)
        # Scaled here, so that gradients of the other operand need no separate 1 / sqrt(d).
        _copy(rows, query, three_rows, queries, 0, wide, size, width, scale)
        _copy(rows, key, three_rows, key_rows, 0, wide, size, width, scale)
        _copy(upstream, mixed, own_row, above, 0, wide, size, width, _ONE)
        _fill(grad_keys, 0, size * wide, _ZERO)
        _fill(grad_values, 0, size * wide, _ZERO)
        for begin in range(0, size, _QUERIES):
            count, number = min(_QUERIES, size - begin), starts[graph] * num_heads + head * size + begin
            drawn = pairs[graph] * num_heads + (head * size + begin) * size
            added = graph * bias_steps[0] + head * bias_steps[1] + begin * bias_steps[2]
            at = query + begin * three_rows
            multiply(rows, at, three_rows, 1, keys, 0, padded, weights, 0, stride, count, stride, width)
            multiply(above, begin * wide, wide, 1, values, 0, padded, before, 0, stride, count, stride, width)
            for row in range(count):
                at, top, share, place = row * stride, tops[number + row], shares[number + row], drawn + row * size
                _add(bias, added + row * bias_steps[2], root, weights, at, size)
                weigh_row(
                    weights, before, at, vectors, size, unit, top, share, bits, place, least, factor, left, means, row
                )
            for row in range(count):
                at = row * stride
                derive_row(weights, left, before, at, vectors, means[row], slopes)
                if grad_scores.shape[0]:
                    place = (item * length + begin + row) * length
                    _copy(slopes, at, size, grad_scores, place, size, 1, size, _ONE)
            multiply(slopes, 0, stride, 1, key_rows, 0, wide, out, 0, wide, count, wide, size)
            _copy(out, 0, wide, grad_rows, query + begin * three_rows, three_rows, count, width, _ONE)
            add_product(slopes, 0, 1, stride, queries, begin * wide, wide, grad_keys, 0, wide, size, wide, count)
            add_product(left, 0, 1, stride, above, begin * wide, wide, grad_values, 0, wide, size, wide, count)
        _copy(grad_keys, 0, wide, grad_rows, key, three_rows, size, width, _ONE)
        _copy(grad_values, 0, wide, grad_rows, value, three_rows, size, width, _ONE)


@cpu_kernel
def _add(bias: Array, bias_at: int, root: np.float32, scores: Array, at: int, size: int) -> None:
    """Add the bias, multiplied by sqrt(d), to products of queries and keys."""
    if bias.shape[0]:
        start, place = np.uint64(bias_at), np.uint64(at)
        for j in range(np.uint64(size)):
            scores[place + j] += bias[start + j] * root


@cpu_kernel
def _up(number: int) -> int:
    """Round a number up to a multiple of `LANES`."""
    return (number + LANES - 1) // LANES * LANES


@cpu_kernel
def _turn(x: Array, at: int, step: int, out: Array, out_step: int, count: int, width: int) -> None:
    """Write rows `[count, width]` as columns `[width, count]`, padded with 0 to a multiple of `LANES`."""
    wide = width // LANES * LANES if count >= LANES else 0
    for c in range(0, wide, LANES):
        for row in range(0, count - LANES, LANES):
            transpose(x, at + row * step + c, step, out, c * out_step + row, out_step)
        last = count - LANES  # the last rows, some of them again
        transpose(x, at + last * step + c, step, out, c * out_step + last, out_step)
    for row in range(count):
        place, to = np.uint64(at + row * step), np.uint64(row)
        for c in range(np.uint64(wide), np.uint64(width)):
            out[c * np.uint64(out_step) + to] = x[place + c]
    for c in range(width):
        _fill(out, c * out_step + count, _up(count) - count, _ZERO)


@cpu_kernel
def _copy(
    x: Array, at: int, step: int, out: Array, to: int, out_step: int, count: int, width: int, scale: np.float32
) -> None:
    """Copy rows `[count, width]` from one place to another, multiplied by `scale`."""
    for row in range(np.uint64(count)):
        source, place = np.uint64(at) + row * np.uint64(step), np.uint64(to) + row * np.uint64(out_step)
        for c in range(np.uint64(width)):
            out[place + c] = x[source + c] * scale


@cpu_kernel
def _fill(x: Array, at: int, count: int, value: np.float32) -> None:
    start = np.uint64(at)
    for j in range(np.uint64(count)):
        x[start + j] = value
