"""Attention within the graphs of a block, one graph and head after the other, in loops that Numba compiles.

Imported by `block_attention` when `runs_numba` says yes, and never else. A graph's rows are read where they lie in the
batch; scores of some queries become weights, and weights mixed values, while they are in the processor's cache. Nothing
is kept for each pair: the backward pass makes weights again.

Arrays have one axis, and places in them are counted without sign: with views, references are counted, and with indices
that might be negative, loops are not made of vector instructions.

Legend: T rows of all graphs, b graphs of a block, n rows of its largest one, H heads, d head width.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from graphbench.kernels import cpu_kernel
from graphbench.kernels.products_numba import LANES, add_product, multiply

Array = NDArray[np.float32]
Integers = NDArray[np.int64]
#: Random bits of each weight; of length 0 without dropout.
Bits = NDArray[np.int16]

#: Queries whose scores are in the cache at a time.
_QUERIES = 32
_ZERO, _ONE, _HIDDEN = np.float32(0), np.float32(1), np.float32(-np.inf)
#: Scores are products of queries and keys; over the root of d and in units of log 2 they are exponents of two.
_UNIT = np.float32(1 / np.log(2))
#: Below this a power of two is less than the smallest normal number.
_LEAST_EXPONENT = np.float32(-126.0)
_LOWEST = np.int32(-(1 << 31))
_ALL_BUT_SIGN = np.int32((1 << 31) - 1)


@cpu_kernel
def attend(
    first: int,
    last: int,
    rows: Array,
    starts: Integers,
    sizes: Integers,
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
    """Mixed values of some graphs and heads.

    Args:
        first: number of the first item, counted over graphs and heads.
        last: the item before which to stop.
        rows: queries, keys and values `[T, 3, H, d]`.
        starts: first row of each graph `[b]`.
        sizes: rows of each graph `[b]`.
        length: n.
        num_heads: H.
        width: d.
        bias: added to the scores; of length 0 for none.
        bias_steps: how far graphs, heads and queries lie apart in the bias; 0 where they share it.
        bits: random ones of each weight `[b, H, n, n]`, and `LANES` more that mean nothing, because rows are read in
            whole vectors; of length 0 without dropout.
        least: weights whose bits are less are dropped.
        factor: what the others are multiplied by.
        tops: receives the largest score of each query `[b, H, n]`, and
        shares: one over the sum of its powers, with which its weights are made again.
        mixed: receives `[T, H, d]`.
    """
    own_row, three_rows = num_heads * width, 3 * num_heads * width
    padded, wide, unit, root = _up(length), _up(width), np.float32(_UNIT / np.sqrt(width)), np.float32(np.sqrt(width))
    keys, values = np.empty(width * padded, np.float32), np.zeros(length * wide, np.float32)
    weights, left = np.empty(_QUERIES * padded, np.float32), np.empty(_QUERIES * padded, np.float32)
    out = np.empty(_QUERIES * wide, np.float32)
    for item in range(first, last):
        graph, head = item // num_heads, item % num_heads
        size = sizes[graph]
        own, query = _up(size), starts[graph] * three_rows + head * width
        _turn(rows, query + own_row, three_rows, keys, padded, size, width)
        _copy(rows, query + 2 * own_row, three_rows, values, 0, wide, size, width, _ONE)
        for begin in range(0, size, _QUERIES):
            count, number = min(_QUERIES, size - begin), item * length + begin
            added = graph * bias_steps[0] + head * bias_steps[1] + begin * bias_steps[2]
            at = query + begin * three_rows
            multiply(rows, at, three_rows, 1, keys, 0, padded, weights, 0, own, count, own, width)
            for row in range(count):
                _finish(bias, added + row * bias_steps[2], root, weights, row * own, size, own)
                tops[number + row] = _largest(weights, row * own, own)
                _lower(weights, row * own, tops[number + row], unit, own)
            _raise(weights, count * own)
            for row in range(count):
                at, place = row * own, (number + row) * length
                share = _share(weights, at, own)
                shares[number + row] = share
                if bits.shape[0]:
                    _drop(weights, at, share, bits, place, least, factor, left, at, own)
                else:
                    _scale(weights, at, share, left, at, own)
            multiply(left, 0, own, 1, values, 0, wide, out, 0, wide, count, wide, size)
            at = (starts[graph] + begin) * own_row + head * width
            _copy(out, 0, wide, mixed, at, own_row, count, width, _ONE)


@cpu_kernel
def attend_gradient(
    first: int,
    last: int,
    rows: Array,
    starts: Integers,
    sizes: Integers,
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
    of_rows: Array,
    of_scores: Array,
) -> None:
    """Gradients of what `attend` computes, `p (g - sum_j p_j g_j)` for scores with weights p and their gradients g.

    Args:
        first: number of the first item, counted over graphs and heads.
        last: the item before which to stop.
        rows: as for `attend`, as are all up to `factor`.
        starts: first row of each graph.
        sizes: rows of each graph.
        length: n.
        num_heads: H.
        width: d.
        bias: added to the scores.
        bias_steps: how far its parts lie apart.
        bits: random ones of each weight.
        least: weights whose bits are less are dropped.
        factor: what the others are multiplied by.
        tops: as `attend` returned them.
        shares: as `attend` returned them.
        upstream: gradient of the mixed values `[T, H, d]`.
        of_rows: receives that of queries, keys and values `[T, 3, H, d]`.
        of_scores: receives that of scores and bias `[b, H, n, n]`, 0 before; of length 0: it is not kept.
    """
    own_row, three_rows = num_heads * width, 3 * num_heads * width
    padded, wide, unit, root = _up(length), _up(width), np.float32(_UNIT / np.sqrt(width)), np.float32(np.sqrt(width))
    scale = np.float32(1 / np.sqrt(width))
    keys, values = np.empty(width * padded, np.float32), np.empty(width * padded, np.float32)
    queries, key_rows = np.zeros(length * wide, np.float32), np.zeros(length * wide, np.float32)
    above, out = np.zeros(length * wide, np.float32), np.empty(_QUERIES * wide, np.float32)
    of_keys, of_values = np.empty(length * wide, np.float32), np.empty(length * wide, np.float32)
    weights, left = np.empty(_QUERIES * padded, np.float32), np.empty(_QUERIES * padded, np.float32)
    before, slopes = np.empty(_QUERIES * padded, np.float32), np.empty(_QUERIES * padded, np.float32)
    for item in range(first, last):
        graph, head = item // num_heads, item % num_heads
        size = sizes[graph]
        own, query, mixed = _up(size), starts[graph] * three_rows + head * width, starts[graph] * own_row + head * width
        key, value = query + own_row, query + 2 * own_row
        _turn(rows, key, three_rows, keys, padded, size, width)
        _turn(rows, value, three_rows, values, padded, size, width)
        _copy(rows, query, three_rows, queries, 0, wide, size, width, scale)
        _copy(rows, key, three_rows, key_rows, 0, wide, size, width, scale)
        _copy(upstream, mixed, own_row, above, 0, wide, size, width, _ONE)
        _fill(of_keys, 0, size * wide, _ZERO)
        _fill(of_values, 0, size * wide, _ZERO)
        for begin in range(0, size, _QUERIES):
            count, number = min(_QUERIES, size - begin), item * length + begin
            added = graph * bias_steps[0] + head * bias_steps[1] + begin * bias_steps[2]
            at = query + begin * three_rows
            multiply(rows, at, three_rows, 1, keys, 0, padded, weights, 0, own, count, own, width)
            multiply(above, begin * wide, wide, 1, values, 0, padded, before, 0, own, count, own, width)
            for row in range(count):
                _finish(bias, added + row * bias_steps[2], root, weights, row * own, size, own)
                _lower(weights, row * own, tops[number + row], unit, own)
            _raise(weights, count * own)
            for row in range(count):
                at, place, share = row * own, (number + row) * length, shares[number + row]
                _derive(weights, before, at, share, bits, place, least, factor, left, slopes, own)
                if of_scores.shape[0]:
                    _scale(slopes, at, _ONE, of_scores, place, size)
            multiply(slopes, 0, own, 1, key_rows, 0, wide, out, 0, wide, count, wide, size)
            _copy(out, 0, wide, of_rows, query + begin * three_rows, three_rows, count, width, _ONE)
            add_product(slopes, 0, 1, own, queries, begin * wide, wide, of_keys, 0, wide, size, wide, count)
            add_product(left, 0, 1, own, above, begin * wide, wide, of_values, 0, wide, size, wide, count)
        _copy(of_keys, 0, wide, of_rows, key, three_rows, size, width, _ONE)
        _copy(of_values, 0, wide, of_rows, value, three_rows, size, width, _ONE)


@cpu_kernel
def _finish(bias: Array, bias_at: int, root: np.float32, scores: Array, at: int, size: int, padded: int) -> None:
    """Add the bias, times the root of d, to products of queries and keys, and hide what is padding."""
    if bias.shape[0]:
        start, place = np.uint64(bias_at), np.uint64(at)
        for j in range(np.uint64(size)):
            scores[place + j] += bias[start + j] * root
    _fill(scores, at + size, padded - size, _HIDDEN)


@cpu_kernel
def _up(number: int) -> int:
    """The number, up to a multiple of `LANES`."""
    return (number + LANES - 1) // LANES * LANES


@cpu_kernel
def _turn(x: Array, at: int, step: int, out: Array, out_step: int, count: int, width: int) -> None:
    """Rows `[count, width]` as columns `[width, count]`, with 0 behind up to a multiple of `LANES`."""
    apart, end = np.uint64(out_step), np.uint64(_up(count))
    for row in range(np.uint64(count)):
        place = np.uint64(at) + row * np.uint64(step)
        for c in range(np.uint64(width)):
            out[c * apart + row] = x[place + c]
    for c in range(np.uint64(width)):
        for row in range(np.uint64(count), end):
            out[c * apart + row] = _ZERO


@cpu_kernel
def _copy(
    x: Array, at: int, step: int, out: Array, to: int, out_step: int, count: int, width: int, scale: np.float32
) -> None:
    """Rows `[count, width]` from one place to another, times `scale`."""
    for row in range(np.uint64(count)):
        source, place = np.uint64(at) + row * np.uint64(step), np.uint64(to) + row * np.uint64(out_step)
        for c in range(np.uint64(width)):
            out[place + c] = x[source + c] * scale


@cpu_kernel
def _fill(x: Array, at: int, count: int, value: np.float32) -> None:
    start = np.uint64(at)
    for j in range(np.uint64(count)):
        x[start + j] = value


@cpu_kernel
def _scale(x: Array, at: int, factor: np.float32, out: Array, to: int, count: int) -> None:
    start, place = np.uint64(at), np.uint64(to)
    for j in range(np.uint64(count)):
        out[place + j] = x[start + j] * factor


@cpu_kernel
def _drop(
    x: Array,
    at: int,
    share: np.float32,
    bits: Bits,
    bits_at: int,
    least: np.int16,
    factor: np.float32,
    out: Array,
    to: int,
    count: int,
) -> None:
    """What dropout leaves of numbers times `share`."""
    start, drawn, place = np.uint64(at), np.uint64(bits_at), np.uint64(to)
    kept = share * factor
    for j in range(np.uint64(count)):
        out[place + j] = x[start + j] * kept if bits[drawn + j] >= least else _ZERO


@cpu_kernel
def _dot(x: Array, at: int, y: Array, y_at: int, count: int) -> np.float32:
    start, place, total = np.uint64(at), np.uint64(y_at), _ZERO
    for j in range(np.uint64(count)):
        total += x[start + j] * y[place + j]
    return total


@cpu_kernel
def _derive(
    powers: Array,
    before: Array,
    at: int,
    share: np.float32,
    bits: Bits,
    bits_at: int,
    least: np.int16,
    factor: np.float32,
    left: Array,
    slopes: Array,
    count: int,
) -> None:
    """Of a row: what dropout left of its weights, and gradients of scores from those `before` of what it left.

    With what is left, `l_j = p_j d_j`, the gradient `p_j (d_j g_j - sum_i p_i d_i g_i)` needs d no second time.
    """
    if bits.shape[0]:
        _drop(powers, at, share, bits, bits_at, least, factor, left, at, count)
    else:
        _scale(powers, at, share, left, at, count)
    mean = share * _dot(left, at, before, at, count)
    start = np.uint64(at)
    for j in range(np.uint64(count)):
        slopes[start + j] = left[start + j] * before[start + j] - mean * powers[start + j]


@cpu_kernel
def _lower(scores: Array, at: int, top: np.float32, unit: np.float32, count: int) -> None:
    """Take the largest away, and multiply by the unit, in this order, which keeps more of the digits."""
    start = np.uint64(at)
    top = _ZERO if top == -np.inf else top
    for j in range(np.uint64(count)):
        scores[start + j] = (scores[start + j] - top) * unit


@cpu_kernel
def _raise(exponents: Array, count: int) -> None:
    """Exponents of many rows to powers of two: a row alone is too short to hide how long one takes."""
    for j in range(np.uint64(count)):
        exponents[j] = _power_of_two(exponents[j])


@cpu_kernel
def _share(powers: Array, at: int, count: int) -> np.float32:
    """One over the sum; 0 where all powers are 0, because all scores are minus infinity."""
    start, total = np.uint64(at), _ZERO
    for j in range(np.uint64(count)):
        total += powers[start + j]
    return _ONE / total if total != _ZERO else _ZERO


@cpu_kernel
def _largest(x: Array, at: int, count: int) -> np.float32:
    """The largest of some numbers; what is no number counts as the largest.

    As whole numbers, which are in the order of the floats once the bits of negative ones are turned round: those a
    processor compares many at a time, where the compiler leaves a maximum of floats to one after the other.
    """
    start, largest = np.uint64(at), _LOWEST
    for j in range(np.uint64(count)):
        bits = np.float32(x[start + j]).view(np.int32)
        ordered = np.int32(bits ^ np.int32(np.int32(bits >> np.int32(31)) & _ALL_BUT_SIGN))
        largest = ordered if ordered > largest else largest
    return np.int32(largest ^ np.int32(np.int32(largest >> np.int32(31)) & _ALL_BUT_SIGN)).view(np.float32)


@cpu_kernel
def _power_of_two(x: np.float32) -> np.float32:
    """`2^x` of `x <= 0` to within two units in the last place, in arithmetic that fills vector registers.

    `2^x = 2^n 2^f` with n the nearest whole number; the polynomial is Chebyshev's of `(2^f - 1) / f` for f in
    [-1/2, 1/2]. What is below the smallest normal number is 0.
    """
    bounded = _LEAST_EXPONENT if x < _LEAST_EXPONENT else x
    n = np.int32(bounded - np.float32(0.5))
    f = bounded - np.float32(n)
    p = np.float32(0.0001545318283)
    p = p * f + np.float32(0.001339088633)
    p = p * f + np.float32(0.009618082520)
    p = p * f + np.float32(0.05550357071)
    p = p * f + np.float32(0.2402265076)
    p = p * f + np.float32(0.6931471880)
    p = p * f + _ONE
    power = np.int32((n + np.int32(127)) << np.int32(23)).view(np.float32)
    return _ZERO if x < _LEAST_EXPONENT else p * power
