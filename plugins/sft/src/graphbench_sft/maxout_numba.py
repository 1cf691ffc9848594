"""Maxout scores on a processor: one loop for the scores, one for both gradients, compiled by Numba.

Imported by `maxout` when `runs_numba` says yes, and never else. Nothing is stored but the results: a loop goes along
the keys, whose numbers of one channel lie side by side, and keeps a row of sums in the first-level cache.

Legend: M matrices (batch x heads), p and s rows of the two operands, d channels.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray
from torch import Tensor

from graphbench.kernels import cpu_kernel, run_in_threads

Array = NDArray[np.floating]
#: Channels that are compared and added before a sum is written back.
_CHANNELS = 4


def scores(a: Tensor, b: Tensor) -> Tensor:
    """`sum_c max(a_ic, b_jc)`, `[M, p, s]`, of `a [M, p, d]` and `b [M, s, d]`."""
    matrices, rows, channels = a.shape
    out = a.new_empty(matrices, rows, b.shape[1])
    run_in_threads(_scores, matrices * rows, out.numel() * channels, a.contiguous(), _by_channel(b), out)
    return out


def gradients(a: Tensor, b: Tensor, grad: Tensor) -> tuple[Tensor, Tensor]:
    """Gradients `[M, p, d]` and `[M, s, d]` from `grad [M, p, s]`: to the larger number, half each where equal."""
    matrices, _, channels = a.shape
    grad_a, grad_b = a.new_empty(a.shape), b.new_empty(matrices, channels, b.shape[1])
    operands = (a.contiguous(), _by_channel(b), grad.contiguous(), grad_a, grad_b)
    run_in_threads(_gradients, matrices * channels, grad.numel() * channels, *operands)
    return grad_a, grad_b.transpose(1, 2)


def _by_channel(rows: Tensor) -> Tensor:
    return rows.transpose(1, 2).contiguous()


@cpu_kernel
def _scores(first: int, last: int, a: Array, b: Array, out: Array) -> None:
    """Rows of `out [M, p, s]`, counted over M and p; `a [M, p, d]` and `b [M, d, s]`."""
    channels, length = b.shape[1], b.shape[2]
    whole = channels // _CHANNELS * _CHANNELS
    for item in range(first, last):
        matrix, row = item // a.shape[1], item % a.shape[1]
        own, others, sums = a[matrix, row], b[matrix], out[matrix, row]
        start = own.dtype.type(0)
        for channel in range(channels):
            if own[channel] != own[channel]:  # no number: the comparisons below would choose the other one
                start = own[channel]
        for j in range(length):
            sums[j] = start
        for channel in range(0, whole, _CHANNELS):
            x0, x1, x2, x3 = own[channel], own[channel + 1], own[channel + 2], own[channel + 3]
            y0, y1, y2, y3 = others[channel], others[channel + 1], others[channel + 2], others[channel + 3]
            for j in range(length):
                m0 = x0 if x0 > y0[j] else y0[j]
                m1 = x1 if x1 > y1[j] else y1[j]
                m2 = x2 if x2 > y2[j] else y2[j]
                m3 = x3 if x3 > y3[j] else y3[j]
                sums[j] += (m0 + m1) + (m2 + m3)
        for channel in range(whole, channels):
            x, y = own[channel], others[channel]
            for j in range(length):
                sums[j] += x if x > y[j] else y[j]


@cpu_kernel
def _gradients(first: int, last: int, a: Array, b: Array, grad: Array, grad_a: Array, grad_b: Array) -> None:
    """Channels, counted over M and d, of `grad_a [M, p, d]` and `grad_b [M, d, s]`; `b [M, d, s]`, `grad [M, p, s]`.

    As all of `grad` is needed for each channel, those of one matrix are worked on together, row after row.
    """
    rows, channels, length = a.shape[1], b.shape[1], b.shape[2]
    half, zero = a.dtype.type(0.5), a.dtype.type(0)
    halves, total = np.empty(length, a.dtype), np.empty(length, a.dtype)
    for matrix in range(first // channels, (last - 1) // channels + 1):
        begin = max(first - matrix * channels, 0)
        end = min(last - matrix * channels, channels)
        own, others = grad_a[matrix], grad_b[matrix]
        others[begin:end] = zero
        total[:] = zero
        for row in range(rows):
            for j in range(length):
                halves[j] = half * grad[matrix, row, j]
                total[j] += grad[matrix, row, j]
            for channel in range(begin, end):
                x, y, taken = a[matrix, row, channel], b[matrix, channel], others[channel]
                kept = zero
                for j in range(length):
                    share = (halves[j] if x > y[j] else zero) + (halves[j] if x >= y[j] else zero)
                    kept += share
                    taken[j] -= share
                own[row, channel] = kept
        for channel in range(begin, end):
            for j in range(length):
                others[channel, j] += total[j]
