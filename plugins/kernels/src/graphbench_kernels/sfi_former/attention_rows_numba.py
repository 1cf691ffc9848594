"""Operands of sparse-flow attention as flat arrays, and some of their rows in the memory of a core.

Imported by `attention_numba`, whose legend it shares, and by `attention`.
"""

from __future__ import annotations

import math
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from graphbench_kernels.lanes_numba import transpose
from graphbench_kernels.products_numba import LANES, multiply
from graphbench_kernels.sfi_former.lanes_numba import inlined
from graphbench_kernels.sfi_former.rows_numba import (
    ALPHA,
    CLOSED,
    COST,
    LENGTH,
    NUM_KEYS,
    PENALTY,
    STEEPEST,
    TOLERANCE,
    Array,
)

Mask = NDArray[np.bool_]
Integers = NDArray[np.int64]

#: Rows of a matrix whose derivatives w.r.t. keys and values one thread sums: each such chunk has its own sums.
CHUNK = 512
UNIT = 1 / math.log(2)


class Sizes(NamedTuple):
    """Sizes of a problem.

    Args:
        matrices: M.
        rows: N.
        keys: K.
        width: width of queries and keys.
        friction_width: width of queries and keys of the friction.
        value_width: width of values.
        mask_rows: number of rows of a mask, 1 or N; 0 without a mask.
    """

    matrices: int
    rows: int
    keys: int
    width: int
    friction_width: int
    value_width: int
    mask_rows: int


class Given(NamedTuple):
    """Arguments of both kernels.

    Args:
        query: Q `[M, N, width]`.
        key: K `[M, K, width]`.
        friction_query: Q~ `[M, N, width]`.
        friction_key: K~ `[M, K, width]`.
        value: V `[M, K, width]`.
        allowed: masks `[L, N or 1, K]`; `[0, 0, 0]` without masks.
        mask_of: number of the mask of each matrix `[M]`.
        penalty: `[M, 1, 1]`, float64.
        alpha: `[M, 1, 1]`, float64; `[0, 0, 0]` for the hard constraint.
        limits: tolerance of a level, and `steepest`.
        state: state of the rows, `[STATE, M, padded N]`; set by the forward pass.
    """

    query: Array
    key: Array
    friction_query: Array
    friction_key: Array
    value: Array
    allowed: Mask
    mask_of: Integers
    penalty: Array
    alpha: Array
    limits: Array
    state: Array


class Part(NamedTuple):
    """Matrices and rows of a call.

    Args:
        matrix: the first matrix.
        row: first row of each.
        end: end row (exclusive).
    """

    matrix: int
    row: int
    end: int


class Gradients(NamedTuple):
    """Gradients that the backward pass sets; those of keys and values are per chunk of rows.

    Args:
        query: dL/dQ `[M, N, width]`.
        key: dL/dK `[chunks, M, K, width]`.
        friction_query: dL/dQ~ `[M, N, width]`.
        friction_key: dL/dK~ `[chunks, M, K, width]`.
        value: dL/dV `[chunks, M, K, width]`.
        sums: dL/dpenalty and dL/d(log alpha) of each row `[2, M, padded N]`.
    """

    query: Array
    key: Array
    friction_query: Array
    friction_key: Array
    value: Array
    sums: Array


class Places(NamedTuple):
    """Layout of a thread's memory: columns of keys, numbers of rows, and matrices with padded widths.

    Args:
        columns: `[COLUMNS, K, LANES]`.
        numbers: `[ROWS, LANES]`.
        queries: LANES rows of Q, then the same transposed.
        friction_queries: the same for Q~.
        values: in the forward pass V, in the backward pass LANES rows of dL/doutput, and the same transposed.
        out: LANES rows of a product.
        keys: K, then sums of its derivatives; only in the backward pass.
        friction_keys: the same for K~.
        sums: sums of derivatives w.r.t. V.
        end: total number of numbers.
    """

    columns: int
    numbers: int
    queries: int
    friction_queries: int
    values: int
    out: int
    keys: int
    friction_keys: int
    sums: int
    end: int


@inlined
def aligned(width: int) -> int:
    """Round a width up to a multiple of LANES."""
    return (width + LANES - 1) // LANES * LANES


@inlined
def memory(numbers: int, like: Array) -> tuple[Array, int]:
    """Allocate memory for `numbers` numbers, and return it with the first place that starts a cache line."""
    work = np.empty(numbers + LANES, like.dtype)
    return work, (-(work.ctypes.data // work.itemsize)) % LANES


@inlined
def copy_rows(
    source: Array, start: int, rows: int, width: int, factor: Any, work: Array, to: int, all_rows: int
) -> None:
    """Copy `[rows, width]` times `factor` to `[all_rows, padded width]`."""
    apart, zero, one = np.uint64(aligned(width)), source.dtype.type(0), np.uint64(1)
    width_, source_at, at = np.uint64(width), np.uint64(start), np.uint64(to)
    for _ in range(rows):
        for j in range(np.uint64(0), width_):
            work[at + j] = source[source_at + j] * factor
        for j in range(width_, apart):
            work[at + j] = zero
        source_at, at = source_at + width_, at + apart
    for j in range(at, np.uint64(to) + np.uint64(all_rows) * apart, one):
        work[j] = zero


@inlined
def put_rows(work: Array, at: int, rows: int, width: int, factor: Any, out: Array, to: int, adds: bool) -> None:
    """Copy `[rows, padded width]` times `factor` to `[rows, width]`, or add it to existing numbers."""
    apart, width_, source_at, out_at = np.uint64(aligned(width)), np.uint64(width), np.uint64(at), np.uint64(to)
    for _ in range(rows):
        set_, added = np.uint64(0) if adds else width_, width_ if adds else np.uint64(0)
        for j in range(np.uint64(0), set_):
            out[out_at + j] = work[source_at + j] * factor
        for j in range(np.uint64(0), added):
            out[out_at + j] += work[source_at + j] * factor
        source_at, out_at = source_at + apart, out_at + width_


@inlined
def fill(work: Array, at: int, count: int, number: Any) -> None:
    """Set `count` numbers from `at` on."""
    for j in range(np.uint64(at), np.uint64(at + count)):
        work[j] = number


@inlined
def dot(a: Array, a_at: int, b: Array, b_at: int, count: int) -> Any:
    """Sum the products of `count` numbers."""
    total, first, second = a.dtype.type(0), np.uint64(a_at), np.uint64(b_at)
    for j in range(np.uint64(0), np.uint64(count)):
        total += a[first + j] * b[second + j]
    return total


@inlined
def longest_vector(vectors: Array, start: int, rows: int, width: int) -> Any:
    """Return the largest norm of rows, in the unit of scores; NaN if one is infinite or NaN."""
    longest, none = vectors.dtype.type(0), vectors.dtype.type(0)
    for row in range(rows):
        square = dot(vectors, start + row * width, vectors, start + row * width, width)
        longest = max(longest, square)
        none += square - square
    return np.sqrt(longest) * vectors.dtype.type(1 / UNIT) + none


@inlined
def _transpose_rows(work: Array, rows: int, width: int, to: int) -> None:
    """Transpose `[LANES, padded width]` to `[padded width, LANES]`."""
    padded = aligned(width)
    for column in range(0, padded, LANES):
        transpose(work, rows + column, padded, work, to + column * LANES, LANES)


@inlined
def multiply_rows(rows: Array, start: int, many: int, keys: Array, first_key: int, num_keys: int, width: int,
                   factor: Any, work: Array, spare: int, out: int) -> None:  # fmt: skip
    """Write products of LANES rows, times `factor`, with all keys to `out [K, LANES]`.

    The rows, times `factor`, are stored in `spare`, followed by the same transposed.
    """
    copy_rows(rows, start, many, width, factor, work, spare, LANES)
    turned = spare + LANES * aligned(width)
    _transpose_rows(work, spare, width, turned)
    multiply(keys, first_key, width, 1, work, turned, LANES, work, out, LANES, num_keys, LANES, width)


@inlined
def fill_scores(given: Given, sizes: Sizes, matrix: int, row: int, many: int, work: Array, at: Places) -> None:
    """Compute scores of both kinds for `many` rows, padded to full lanes; keys that are not allowed are closed."""
    keys, width, friction_width, number = sizes.keys, sizes.width, sizes.friction_width, given.query.dtype.type
    start, first_key = matrix * sizes.rows + row, matrix * keys
    multiply_rows(given.query, start * width, many, given.key, first_key * width, keys, width,
                   number(UNIT / math.sqrt(width)), work, at.queries, at.columns)  # fmt: skip
    multiply_rows(given.friction_query, start * friction_width, many, given.friction_key, first_key * friction_width,
                   keys, friction_width, number(UNIT / math.sqrt(friction_width)), work, at.friction_queries,
                   at.columns + COST * keys * LANES)  # fmt: skip
    if sizes.mask_rows:
        _close_keys(given, sizes, matrix, row, many, work, at)


@inlined
def _close_keys(given: Given, sizes: Sizes, matrix: int, row: int, many: int, work: Array, at: Places) -> None:
    """Close the keys that are not allowed, for all lanes or per lane, and count the others."""
    closed, keys, together = work.dtype.type(CLOSED), sizes.keys, LANES if sizes.mask_rows == 1 else 1
    friction, first = COST * keys * LANES, given.mask_of[matrix] * sizes.mask_rows
    for lane in range(0, LANES, together):
        mask_row = first if together > 1 else first + row + min(lane, many - 1)
        number = 0
        for j in range(keys):
            may = given.allowed[mask_row * keys + j]
            number += may
            if not may:
                fill(work, at.columns + j * LANES + lane, together, closed)
                fill(work, at.columns + friction + j * LANES + lane, together, closed)
        fill(work, at.numbers + NUM_KEYS * LANES + lane, together, number)


@inlined
def drop(keep: Array, start: int, rows: int, keys: int, work: Array, column: int) -> None:
    """Multiply a column by dropout's factors `[rows, K]`."""
    for row in range(rows):
        at, to = np.uint64(start + row * keys), np.uint64(column + row)
        for j in range(np.uint64(0), np.uint64(keys)):
            work[to + j * np.uint64(LANES)] *= keep[at + j]


@inlined
def flat_arrays(given: Given) -> Given:
    """Flatten every array: views cost nothing here, but a microsecond each in torch."""
    return Given(
        given.query.reshape(-1),
        given.key.reshape(-1),
        given.friction_query.reshape(-1),
        given.friction_key.reshape(-1),
        given.value.reshape(-1),
        given.allowed.reshape(-1),
        given.mask_of,
        given.penalty.reshape(-1),
        given.alpha.reshape(-1),
        given.limits,
        given.state.reshape(-1),
    )


@inlined
def flat_gradients(grads: Gradients) -> Gradients:
    """Flatten every gradient."""
    of_query, of_friction_query = grads.query.reshape(-1), grads.friction_query.reshape(-1)
    of_key, of_friction_key = grads.key.reshape(-1), grads.friction_key.reshape(-1)
    of_value, sums = grads.value.reshape(-1), grads.sums.reshape(-1)
    return Gradients(of_query, of_key, of_friction_query, of_friction_key, of_value, sums)


@inlined
def begin_matrix(given: Given, sizes: Sizes, matrix: int, work: Array, numbers: int) -> None:
    """Write the numbers that all rows of a matrix share."""
    fill(work, numbers + PENALTY * LANES, LANES, given.penalty[matrix])
    fill(work, numbers + ALPHA * LANES, LANES, given.alpha[matrix] if len(given.alpha) else np.inf)
    fill(work, numbers + NUM_KEYS * LANES, LANES, sizes.keys)
    fill(work, numbers + LENGTH * LANES, LANES, sizes.keys)
    fill(work, numbers + TOLERANCE * LANES, LANES, given.limits[0])
    fill(work, numbers + STEEPEST * LANES, LANES, given.limits[1])


@inlined
def copy_lanes(source: Array, start: int, apart: int, kinds: int, to: Array, at: int, to_apart: int) -> None:
    """Copy numbers of LANES rows, of `kinds` kinds."""
    for kind in range(kinds):
        first, second = np.uint64(start + kind * apart), np.uint64(at + kind * to_apart)
        for lane in range(np.uint64(0), np.uint64(LANES)):
            to[second + lane] = source[first + lane]
