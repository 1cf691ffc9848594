"""Maxout scores on a GPU: one Triton kernel for the scores, one for both gradients.

Only imported by `maxout`, if `runs_triton` is true: the CPU builds of torch do not include Triton. Only the results are
stored: a program keeps a tile of these in registers and iterates over the summed axis, one outer comparison per step.

Legend: M matrices (batch x heads), p and s rows of the two operands, d channels.
"""

from __future__ import annotations

import torch
import triton
import triton.language as tl
from torch import Tensor

#: Sides of a tile: 64 x 64 float32 are 32 registers for each of 128 threads.
_TILE = 64
#: Channels of a tile of gradients, and its numbers per warp: operands, addresses and sums need ten registers per
#: number, and a thread has at most 255.
_CHANNELS, _NUMBERS_PER_WARP = 32, 256
_FEWEST = 16  # a tile of a short axis is as long as that axis, but not shorter


def scores(a: Tensor, b: Tensor) -> Tensor:
    """Compute `sum_c max(a_ic, b_jc)`, `[M, p, s]`, of `a [M, p, d]` and `b [M, s, d]`."""
    matrices, rows, channels = a.shape
    columns = b.shape[1]
    out = a.new_empty(matrices, rows, columns)
    if not out.numel():
        return out
    # Channels first, so that neighbouring threads read neighbouring numbers.
    a, b = a.transpose(1, 2).contiguous(), b.transpose(1, 2).contiguous()
    tall, wide = _tile(rows), _tile(columns)
    grid = (matrices, triton.cdiv(rows, tall), triton.cdiv(columns, wide))
    with torch.cuda.device_of(a):
        _scores[grid](a, b, out, rows, columns, channels, ROWS=tall, COLUMNS=wide)
    return out


def gradients(a: Tensor, b: Tensor, grad: Tensor) -> tuple[Tensor, Tensor]:
    """Compute gradients `[M, p, d]` and `[M, s, d]` from `grad [M, p, s]`: to the larger number, half each if equal."""
    a, b, grad = a.contiguous(), b.contiguous(), grad.contiguous()
    # Separate programs sum each result, without atomics: b's is a's with the operands swapped.
    return _gradient(a, b, grad), _gradient(b, a, grad.transpose(1, 2))


def _gradient(own: Tensor, other: Tensor, grad: Tensor) -> Tensor:
    """Compute the gradient of `own [M, p, d]`; the last two axes of `grad [M, p, s]` need not be contiguous."""
    matrices, rows, channels = own.shape
    out = torch.empty_like(own)
    if not out.numel():
        return out
    tall, wide = _tile(rows), min(_CHANNELS, _tile(channels))
    grid = (matrices, triton.cdiv(rows, tall), triton.cdiv(channels, wide))
    with torch.cuda.device_of(own):
        _gradient_of_rows[grid](
            own,
            other,
            grad,
            out,
            rows,
            other.shape[1],
            channels,
            grad.stride(1),
            grad.stride(2),
            ROWS=tall,
            COLUMNS=wide,
            num_warps=max(1, tall * wide // _NUMBERS_PER_WARP),
        )
    return out


def _tile(length: int) -> int:
    return min(_TILE, max(_FEWEST, triton.next_power_of_2(length)))


@triton.jit
def _scores(
    a: tl.tensor,
    b: tl.tensor,
    out: tl.tensor,
    p: tl.tensor,
    s: tl.tensor,
    d: tl.tensor,
    ROWS: tl.constexpr,
    COLUMNS: tl.constexpr,
) -> None:
    """Compute one tile of `out [M, p, s]`; `a [M, d, p]` and `b [M, d, s]` are contiguous."""
    matrix = tl.program_id(0).to(tl.int64)
    rows = tl.program_id(1) * ROWS + tl.arange(0, ROWS)
    columns = tl.program_id(2) * COLUMNS + tl.arange(0, COLUMNS)
    left = a + matrix * d * p + rows
    right = b + matrix * d * s + columns
    total = tl.zeros((ROWS, COLUMNS), out.dtype.element_ty)
    channel = 0  # Triton 3.6 cannot interpret `range` of an argument with NumPy 2.4
    while channel < d:
        x = tl.load(left, mask=rows < p, other=0.0)
        y = tl.load(right, mask=columns < s, other=0.0)
        total += tl.maximum(x[:, None], y[None, :], propagate_nan=tl.PropagateNan.ALL)
        left += p
        right += s
        channel += 1
    inside = (rows < p)[:, None] & (columns < s)[None, :]
    place = rows.to(tl.int64)[:, None] * s + columns[None, :]
    tl.store(out + matrix * p * s + place, total, mask=inside)


@triton.jit
def _gradient_of_rows(
    own: tl.tensor,
    other: tl.tensor,
    grad: tl.tensor,
    out: tl.tensor,
    p: tl.tensor,
    s: tl.tensor,
    d: tl.tensor,
    grad_row: tl.tensor,
    grad_column: tl.tensor,
    ROWS: tl.constexpr,
    COLUMNS: tl.constexpr,
) -> None:
    """Fill one tile of `out_ic = sum_j grad_ij (1 where own_ic > other_jc, 1/2 where equal, else 0)`, `[M, p, d]`."""
    matrix = tl.program_id(0).to(tl.int64)
    rows = tl.program_id(1) * ROWS + tl.arange(0, ROWS)
    columns = tl.program_id(2) * COLUMNS + tl.arange(0, COLUMNS)
    inside = (rows < p)[:, None] & (columns < d)[None, :]
    place = matrix * p * d + rows.to(tl.int64)[:, None] * d + columns[None, :]
    mine = tl.load(own + place, mask=inside, other=0.0)
    theirs = other + matrix * s * d + columns
    weight = grad + matrix * p * s + rows.to(tl.int64) * grad_row
    total = tl.zeros((ROWS, COLUMNS), out.dtype.element_ty)
    column = 0
    while column < s:
        y = tl.load(theirs, mask=columns < d, other=0.0)[None, :]
        g = tl.load(weight, mask=rows < p, other=0.0)[:, None]
        total += g * tl.where(mine > y, 1.0, tl.where(mine == y, 0.5, 0.0)).to(total.dtype)
        theirs += d
        weight += grad_column
        column += 1
    tl.store(out + place, total, mask=inside)
