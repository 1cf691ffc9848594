"""Sums of maxima and their gradients in vector registers, for kernels with operands in the cache.

Only imported by Numba kernels, into which these functions are inlined; matrices are stored in one-dimensional arrays,
as in `graphbench_kernels.products_numba`.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from llvmlite import ir
from numba import types
from numba.core import cgutils
from numpy.typing import NDArray

from graphbench_kernels.products_numba import LANES, ROWS, WIDE, bytes_of, everywhere, instruction, tile
from graphbench_kernels.running import cpu_kernel

Array = NDArray[np.floating]


def _larger(builder: Any, left: Any, right: Any, factor: Any) -> Any:
    larger = builder.select(builder.fcmp_ordered(">", left, right), left, right)
    return builder.fmul(larger, factor, flags=("contract",))


_four_wide, _four_narrow = tile(ROWS, WIDE // LANES, _larger), tile(ROWS, 1, _larger)
_one_wide, _one_narrow = tile(1, WIDE // LANES, _larger), tile(1, 1, _larger)


@cpu_kernel
def sums_of_maxima(
    a: Array,
    a_at: int,
    a_row: int,
    b: Array,
    b_at: int,
    b_row: int,
    out: Array,
    out_at: int,
    out_row: int,
    rows: int,
    columns: int,
    count: int,
    factor: float,
) -> None:
    """Write `sum_t factor max(a_rt, b_tc)` to `out_rc`; arguments as in `multiply`, with contiguous columns of `a`.

    If `a_rt` is NaN, the maximum is `b_tc`; if `b_tc` is NaN, so is the sum.
    """
    many, wide = rows // ROWS * ROWS, columns // WIDE * WIDE
    for row in range(0, many, ROWS):
        left, to = a_at + row * a_row, out_at + row * out_row
        for column in range(0, wide, WIDE):
            _four_wide(a, left, a_row, 1, b, b_at + column, b_row, out, to + column, out_row, count, factor, False)
        if wide < columns:
            _four_narrow(a, left, a_row, 1, b, b_at + wide, b_row, out, to + wide, out_row, count, factor, False)
    for row in range(many, rows):
        left, to = a_at + row * a_row, out_at + row * out_row
        for column in range(0, wide, WIDE):
            _one_wide(a, left, a_row, 1, b, b_at + column, b_row, out, to + column, out_row, count, factor, False)
        if wide < columns:
            _one_narrow(a, left, a_row, 1, b, b_at + wide, b_row, out, to + wide, out_row, count, factor, False)


def _shares(rows: int) -> Any:
    """Create an instruction for gradients of some rows of `a` and a vector of its columns; see `share_gradients`."""

    def generate(builder: Any, a: Any, a_at: Any, a_row: Any, b: Any, b_at: Any, b_row: Any, *rest: Any) -> None:
        g, g_at, g_row, grad_a, grad_b, count = rest
        integer, vector = count.type, ir.VectorType(a.type.pointee, LANES)
        align = bytes_of(vector.element)

        def lanes(start: Any, at: Any, row: int, apart: Any) -> Any:
            place = builder.add(at, builder.mul(integer(row), apart))
            return builder.bitcast(builder.gep(start, [place]), vector.as_pointer())

        row_lanes = [builder.load(lanes(a, a_at, row, a_row), align=align) for row in range(rows)]
        sums = [cgutils.alloca_once(builder, vector) for _ in range(rows)]
        for held in sums:
            builder.store(vector([0.0] * LANES), held)
        with cgutils.for_range(builder, count) as loop:
            b_now = builder.add(b_at, builder.mul(loop.index, b_row))
            other = builder.load(lanes(b, b_now, 0, b_row), align=align)
            total = builder.load(lanes(grad_b, b_now, 0, b_row), align=align)
            for row in range(rows):
                place = builder.add(builder.add(g_at, builder.mul(integer(row), g_row)), loop.index)
                half = everywhere(builder, builder.load(builder.gep(g, [place])))
                row_sum = builder.load(sums[row])
                for comparison in (">", ">="):  # a half for each: both if larger, one if equal
                    taken = builder.fcmp_ordered(comparison, row_lanes[row], other)
                    row_sum = builder.select(taken, builder.fadd(row_sum, half), row_sum)
                    total = builder.select(taken, builder.fadd(total, half), total)
                builder.store(row_sum, sums[row])
            builder.store(total, lanes(grad_b, b_now, 0, b_row), align=align)
        for row, held in enumerate(sums):
            builder.store(builder.load(held), lanes(grad_a, a_at, row, a_row), align=align)

    n = types.int64
    return instruction(generate, None, n, n, None, n, n, None, n, n, None, None, n)


_shares_of_four, _shares_of_one = _shares(ROWS), _shares(1)


@cpu_kernel
def share_gradients(
    a: Array,
    a_at: int,
    a_row: int,
    b: Array,
    b_at: int,
    b_row: int,
    g: Array,
    g_at: int,
    g_row: int,
    grad_a: Array,
    grad_b: Array,
    rows: int,
    columns: int,
    count: int,
) -> None:
    """Write the share of `a_rt` in the gradients `2 g_rc` of sums of maxima to `grad_a`, and add it to `grad_b`.

    It is `2 g_rc` if `a_rt > b_ct` and `g_rc` if they are equal, summed over c for `grad_a` and over r for `grad_b`.
    The share of `b_ct` is the sum of all `2 g_rc` over r minus that.

    Args:
        a: contains the matrix `[rows, columns]`; columns are contiguous, here and in `b`.
        a_at: place of its first number, in `a` and `grad_a`.
        a_row: stride of its rows, in `a` and `grad_a`.
        b: contains the matrix `[count, columns]`.
        b_at: place of its first number, in `b` and `grad_b`.
        b_row: stride of its rows, in `b` and `grad_b`.
        g: contains half of the gradients `[rows, count]`.
        g_at: place of the first one.
        g_row: stride of its rows.
        grad_a: like `a`, another array.
        grad_b: like `b`, another array.
        rows: rows of `a`.
        columns: columns of `a` and `b`, a multiple of `LANES`.
        count: rows of `b`.
    """
    many = rows // ROWS * ROWS
    for column in range(0, columns, LANES):
        left, right = a_at + column, b_at + column
        for row in range(0, many, ROWS):
            a_place, g_place = left + row * a_row, g_at + row * g_row
            _shares_of_four(a, a_place, a_row, b, right, b_row, g, g_place, g_row, grad_a, grad_b, count)
        for row in range(many, rows):
            a_place, g_place = left + row * a_row, g_at + row * g_row
            _shares_of_one(a, a_place, a_row, b, right, b_row, g, g_place, g_row, grad_a, grad_b, count)


@cpu_kernel
def whole_lanes(count: int) -> int:
    """Round the count up to whole vectors."""
    return -(-count // LANES) * LANES


@cpu_kernel
def no_number(a: Array, at: int, count: int) -> float:
    """Return 0, or NaN if one of `a` is NaN: `sums_of_maxima` ignores these, so this is added to its sums."""
    nan_bits = np.int32(0)
    for t in range(np.uint64(at), np.uint64(at + count)):
        nan_bits += np.int32(a[t] != a[t])
    return a.dtype.type(np.nan if nan_bits else 0)


@cpu_kernel
def take_rows(x: Array, x_at: int, x_row: int, rows: int, width: int, own: Array, own_row: int) -> None:
    """Copy a matrix `[rows, width]` to the start of `own`; places and strides of rows as in `multiply`."""
    for i in range(rows):
        place, to = np.uint64(x_at + i * x_row), np.uint64(i * own_row)
        for c in range(np.uint64(0), np.uint64(width)):
            own[to + c] = x[place + c]


@cpu_kernel
def give_rows(own: Array, own_row: int, rows: int, width: int, x: Array, x_at: int, x_row: int) -> None:
    """Undo `take_rows`."""
    for i in range(rows):
        place, to = np.uint64(i * own_row), np.uint64(x_at + i * x_row)
        for c in range(np.uint64(0), np.uint64(width)):
            x[to + c] = own[place + c]
