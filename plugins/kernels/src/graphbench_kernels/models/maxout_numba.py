"""Maxout scores on a CPU: one loop for the scores, one for both gradients, compiled by Numba.

Only imported by `maxout`, if `runs_numba` is true. Several rows at a time are compared with all others, in the cache;
only the results and a copy of an operand are stored.

Legend: M matrices (batch x heads), p and s rows of the two operands, d channels.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray
from torch import Tensor

from graphbench_kernels.models.maxout_tiles_numba import (
    give_rows,
    no_number,
    share_gradients,
    sums_of_maxima,
    take_rows,
    whole_lanes,
)
from graphbench_kernels.products_numba import LANES
from graphbench_kernels.running import cpu_kernel, run_in_threads

Array = NDArray[np.floating]
#: Rows that are processed at once.
_ROWS = 16


def scores(a: Tensor, b: Tensor) -> Tensor:
    """Compute `sum_c max(a_ic, b_jc)`, `[M, p, s]`, of `a [M, p, d]` and `b [M, s, d]`."""
    matrices, rows, channels = a.shape
    length = b.shape[1]
    out = a.new_empty(matrices, rows, length)
    # One channel after the other, so that a vector contains one channel of sixteen rows of b.
    by_channel = b.new_zeros(matrices, channels, -(-length // LANES) * LANES)
    by_channel[..., :length] = b.mT
    operands = [x.contiguous().view(-1) for x in (a, by_channel, out)]
    items = matrices * -(-rows // _ROWS)
    run_in_threads(_scores, items, out.numel() * channels // 8, rows, length, channels, *operands)
    return out


def gradients(a: Tensor, b: Tensor, grad: Tensor) -> tuple[Tensor, Tensor]:
    """Compute gradients `[M, p, d]` and `[M, s, d]` from `grad [M, p, s]`: to the larger number, half each if equal."""
    matrices, rows, channels = a.shape
    grad_a, grad_b = a.new_empty(a.shape), b.new_empty(b.shape)
    operands = [x.contiguous().view(-1) for x in (a, b, grad, grad_a, grad_b)]
    items = matrices * -(-channels // LANES)
    run_in_threads(_gradients, items, grad.numel() * channels // 2, rows, b.shape[1], channels, *operands)
    return grad_a, grad_b


@cpu_kernel
def _scores(first: int, last: int, rows: int, length: int, channels: int, a: Array, b: Array, out: Array) -> None:
    """Compute groups of rows of `out [M, p, s]`, counted over M, from `a [M, p, d]` and whole vectors `b [M, d, s]`."""
    groups, columns = -(-rows // _ROWS), whole_lanes(length)
    sums = np.empty(_ROWS * columns, a.dtype)
    for item in range(first, last):
        matrix, row = item // groups, item % groups * _ROWS
        here, place, count = matrix * rows + row, matrix * channels * columns, min(_ROWS, rows - row)
        one = a.dtype.type(1)
        sums_of_maxima(a, here * channels, channels, b, place, columns, sums, 0, columns, count, columns, channels, one)
        for i in range(count):
            start = no_number(a, (here + i) * channels, channels)
            at, to = np.uint64(i * columns), np.uint64((here + i) * length)
            for j in range(np.uint64(0), np.uint64(length)):
                out[to + j] = sums[at + j] + start


@cpu_kernel
def _gradients(
    first: int,
    last: int,
    rows: int,
    length: int,
    channels: int,
    a: Array,
    b: Array,
    grad: Array,
    grad_a: Array,
    grad_b: Array,
) -> None:
    """Fill vectors of channels, counted over M, of `grad_a [M, p, d]` and `grad_b [M, s, d]`, shaped as `a` and `b`."""
    groups, half = -(-channels // LANES), a.dtype.type(0.5)
    dtype = a.dtype
    a_rows, grad_a_rows, halves = (
        np.zeros(_ROWS * LANES, dtype),
        np.empty(_ROWS * LANES, dtype),
        np.empty(_ROWS * length, dtype),
    )
    b_rows, grad_b_rows = np.zeros(length * LANES, dtype), np.empty(length * LANES, dtype)
    totals = np.empty(length, dtype)
    for item in range(first, last):
        matrix, channel = item // groups, item % groups * LANES
        width, place = min(LANES, channels - channel), matrix * length * channels + channel
        take_rows(b, place, channels, length, width, b_rows, LANES)
        grad_b_rows[:] = 0
        totals[:] = 0
        for row in range(0, rows, _ROWS):
            count, here = min(_ROWS, rows - row), matrix * rows + row
            take_rows(a, here * channels + channel, channels, count, width, a_rows, LANES)
            for i in range(count):
                at, start = np.uint64((here + i) * length), np.uint64(i * length)
                for j in range(np.uint64(0), np.uint64(length)):
                    halves[start + j] = half * grad[at + j]
                for j in range(np.uint64(0), np.uint64(length)):
                    totals[j] += grad[at + j]
            share_gradients(
                a_rows, 0, LANES, b_rows, 0, LANES, halves, 0, length, grad_a_rows, grad_b_rows, count, LANES, length
            )
            give_rows(grad_a_rows, LANES, count, width, grad_a, here * channels + channel, channels)
        for j in range(length):
            at, total = np.uint64(j * LANES), totals[np.uint64(j)]
            # The part of a gradient that a does not get goes to b.
            for c in range(np.uint64(0), np.uint64(LANES)):
                grad_b_rows[at + c] = total - grad_b_rows[at + c]
        give_rows(grad_b_rows, LANES, length, width, grad_b, place, channels)
