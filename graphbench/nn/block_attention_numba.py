"""What attention within the graphs of a block does beside its products of matrices, in loops that Numba compiles.

Imported by `block_attention` when `runs_numba` says yes, and never else.

Legend: T rows of all graphs, b graphs of a block, n rows of its largest one, m maps (queries, keys, values), H heads,
d head width.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from graphbench.kernels import cpu_kernel

Array = NDArray[np.float32]
Integers = NDArray[np.int64]
#: Random bits of each weight; of length 0 without dropout.
Bits = NDArray[np.int16]

_ZERO, _ONE = np.float32(0), np.float32(1)
#: Below this the exponential is less than the smallest normal number.
_LEAST_EXPONENT = np.float32(-87.0)
_LOWEST = np.int32(-(1 << 31))
_ALL_BUT_SIGN = np.int32((1 << 31) - 1)


@cpu_kernel
def pack(
    first: int, last: int, rows: Array, starts: Integers, sizes: Integers, scale: np.float32, blocks: Array
) -> None:
    """Graphs of `rows [T, m, H, d]` to `blocks [m, b * H, n, d]`, padded with 0; the first map times `scale`."""
    maps, heads, width = rows.shape[1:]
    length = blocks.shape[2]
    for graph in range(first, last):
        start, size = starts[graph], sizes[graph]
        for number in range(maps):
            factor = scale if number == 0 else _ONE
            for head in range(heads):
                matrix = blocks[number, graph * heads + head]
                for row in range(size):
                    for channel in range(width):
                        matrix[row, channel] = rows[start + row, number, head, channel] * factor
                for row in range(size, length):
                    for channel in range(width):
                        matrix[row, channel] = _ZERO


@cpu_kernel
def unpack(
    first: int, last: int, blocks: Array, starts: Integers, sizes: Integers, scale: np.float32, rows: Array
) -> None:
    """What `pack` does, the other way."""
    maps, heads, width = rows.shape[1:]
    for graph in range(first, last):
        start, size = starts[graph], sizes[graph]
        for number in range(maps):
            factor = scale if number == 0 else _ONE
            for head in range(heads):
                matrix = blocks[number, graph * heads + head]
                for row in range(size):
                    for channel in range(width):
                        rows[start + row, number, head, channel] = matrix[row, channel] * factor


@cpu_kernel
def softmax(
    first: int,
    last: int,
    logits: Array,
    sizes: Integers,
    bias: Array,
    bits: Bits,
    least: np.int16,
    factor: np.float32,
    left: Array,
) -> None:
    """Logits `[b, H, n, n]` to weights, in place, and what dropout leaves of them to `left`.

    Padding gets 0, and so do rows whose logits are all minus infinity.

    Args:
        first: number of the first item, counted over graphs and heads.
        last: the item before which to stop.
        logits: of queries and keys.
        sizes: rows of the graphs `[b]`.
        bias: added to the logits `[b or 1, H or 1, n or 1, n]`; of length 0 for none.
        bits: random ones of each weight `[b * H * n * n]`; of length 0 without dropout, which leaves `left` as it is.
        least: weights whose bits are less are dropped.
        factor: what the others are multiplied by.
        left: `[b, H, n, n]`.
    """
    heads, length = logits.shape[1], logits.shape[3]
    for item in range(first, last):
        graph, head = item // heads, item % heads
        size = sizes[graph]
        for row in range(size):
            values = logits[graph, head, row]
            if bias.shape[0]:
                added = bias[min(graph, bias.shape[0] - 1), min(head, bias.shape[1] - 1), min(row, bias.shape[2] - 1)]
                for j in range(size):
                    values[j] += added[j]
            _softmax_of_row(values, size)
        logits[graph, head, size:] = _ZERO
        if bits.shape[0]:
            for row in range(length):
                start = (item * length + row) * length
                _drop(logits[graph, head, row], bits[start : start + length], least, factor, left[graph, head, row])


@cpu_kernel
def softmax_gradient(
    first: int,
    last: int,
    weights: Array,
    grad: Array,
    sizes: Integers,
    bits: Bits,
    least: np.int16,
    factor: np.float32,
    left: Array,
) -> None:
    """Gradient of what dropout left of weights to that of logits, in place: `p (g - sum_j p_j g_j)`, 0 at padding.

    Args:
        first: number of the first item, counted over graphs and heads.
        last: the item before which to stop.
        weights: as `softmax` returned them `[b, H, n, n]`.
        grad: `[b, H, n, n]`, 0 at padded keys.
        sizes: as for `softmax`.
        bits: as for `softmax`.
        least: as for `softmax`.
        factor: as for `softmax`.
        left: receives what dropout left `[b, H, n, n]`, once more.
    """
    heads, length = weights.shape[1], weights.shape[3]
    for item in range(first, last):
        graph, head = item // heads, item % heads
        for row in range(length):
            values, slopes = weights[graph, head, row], grad[graph, head, row]
            if bits.shape[0]:
                start = (item * length + row) * length
                drawn = bits[start : start + length]
                _drop(values, drawn, least, factor, left[graph, head, row])
                for j in range(length):  # not by `_drop`: what has two names is computed number by number
                    slopes[j] = slopes[j] * factor if drawn[j] >= least else _ZERO
            mean = _ZERO
            for j in range(length):
                mean += values[j] * slopes[j]
            for j in range(length):
                slopes[j] = values[j] * (slopes[j] - mean)


@cpu_kernel
def _softmax_of_row(values: Array, size: int) -> None:
    """Softmax of the first numbers, in place; the others get 0."""
    top = _largest(values, size)
    if top == -np.inf:
        top = _ZERO
    total = _ZERO
    for j in range(size):
        value = _exponential(values[j] - top)
        values[j] = value
        total += value
    share = _ONE / total if total != _ZERO else _ZERO
    for j in range(size):
        values[j] *= share
    for j in range(size, values.shape[0]):
        values[j] = _ZERO


@cpu_kernel
def _drop(values: Array, drawn: Bits, least: np.int16, factor: np.float32, left: Array) -> None:
    """What is left of a row."""
    for j in range(values.shape[0]):
        left[j] = values[j] * factor if drawn[j] >= least else _ZERO


@cpu_kernel
def _largest(values: Array, size: int) -> np.float32:
    """The largest of the first numbers; what is no number counts as the largest.

    As whole numbers, which are in the order of the floats once the bits of negative ones are turned round: those a
    processor compares many at a time, where the compiler leaves a maximum of floats to one after the other.
    """
    largest = _LOWEST
    for j in range(size):
        bits = np.float32(values[j]).view(np.int32)
        ordered = np.int32(bits ^ np.int32(np.int32(bits >> np.int32(31)) & _ALL_BUT_SIGN))
        largest = ordered if ordered > largest else largest
    return np.int32(largest ^ np.int32(np.int32(largest >> np.int32(31)) & _ALL_BUT_SIGN)).view(np.float32)


@cpu_kernel
def _exponential(x: np.float32) -> np.float32:
    """`exp(x)` of `x <= 0` to about one unit in the last place, in arithmetic that fills vector registers.

    `exp(x) = 2^n exp(r)` with n the nearest whole number to `x / log 2`; log 2 is taken off in two parts, and exp(r) is
    the polynomial of degree 7 of the Cephes library (Moshier 1992). Less than exp(-87) is 0.
    """
    bounded = _LEAST_EXPONENT if x < _LEAST_EXPONENT else x
    n = np.int32(bounded * np.float32(1.44269504) - np.float32(0.5))
    r = bounded - np.float32(n) * np.float32(0.693359375)
    r = r - np.float32(n) * np.float32(-2.12194440e-4)
    p = np.float32(1.9875691500e-4)
    p = p * r + np.float32(1.3981999507e-3)
    p = p * r + np.float32(8.3334519073e-3)
    p = p * r + np.float32(4.1665795894e-2)
    p = p * r + np.float32(1.6666665459e-1)
    p = p * r + np.float32(5.0000001201e-1)
    p = p * r * r + r + _ONE
    power = np.int32((n + np.int32(127)) << np.int32(23)).view(np.float32)
    return _ZERO if x < _LEAST_EXPONENT else p * power
