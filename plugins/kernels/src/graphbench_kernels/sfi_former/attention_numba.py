"""Sparse-flow attention on a processor in one kernel for each direction: products of matrices and what lies between.

Imported by `attention`, which `ops` imports where Numba runs. Sixteen rows of queries at a time are multiplied with
all keys, solved by `rows_numba` and multiplied with all values, in memory that stays in a core's own caches; so are
their derivatives in the backward pass, which computes the scores again: that takes less time than to keep them.

Arrays have one axis. Legend: M matrices (graphs times heads), N queries, K keys; widths are padded with 0 to a multiple
of LANES where a product wants it.
"""

from __future__ import annotations

import math
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from graphbench_kernels import cpu_kernel
from graphbench_kernels.lanes_numba import transpose
from graphbench_kernels.products_numba import LANES, add_product, multiply
from graphbench_kernels.sfi_former.lanes_numba import inlined
from graphbench_kernels.sfi_former.rows_numba import (
    ALPHA,
    CLOSED,
    COLUMNS,
    COST,
    DOT,
    FLOW,
    FRICTION_LONGEST,
    LEAK,
    LENGTH,
    LONGEST,
    NUM_KEYS,
    OF_PENALTY,
    PENALTY,
    ROWS,
    STATE,
    STEEPEST,
    TOLERANCE,
    WEIGHT,
    Array,
    derive,
    solve,
    square_friction_rows,
    square_rows,
)

Mask = NDArray[np.bool_]
Integers = NDArray[np.int64]

#: Rows of a matrix whose derivatives by keys and values are summed up by one thread: each such chunk has its own sums.
CHUNK = 512
_UNIT = 1 / math.log(2)


class Sizes(NamedTuple):
    """Sizes of a problem.

    Args:
        matrices: M.
        rows: N.
        keys: K.
        width: of queries and keys.
        friction_width: of those of the friction.
        value_width: of values.
        mask_rows: how many rows a mask has, 1 or N; 0 without one.
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
        allowed: masks `[L, N or 1, K]`; `[0, 0, 0]` without one.
        mask_of: number of the mask of each matrix `[M]`.
        penalty: `[M, 1, 1]`, float64.
        alpha: `[M, 1, 1]`, float64; `[0, 0, 0]` for the hard constraint.
        limits: tolerance of a level, and `steepest`.
        state: of the rows, `[STATE, M, padded N]`; the forward pass sets it.
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
        end: row to end before.
    """

    matrix: int
    row: int
    end: int


class Gradients(NamedTuple):
    """Gradients that the backward pass sets, those of keys and values by chunks of rows.

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


class _Places(NamedTuple):
    """Layout of a thread's memory: columns of keys, numbers of rows, and matrices with padded widths.

    Args:
        columns: `[COLUMNS, K, LANES]`.
        numbers: `[ROWS, LANES]`.
        queries: LANES rows of Q, then the same transposed.
        friction_queries: those of Q~.
        values: in the forward pass V, in the backward pass LANES rows of dL/doutput, and the same transposed.
        out: LANES rows of a product.
        keys: K, then sums of its derivatives; the backward pass alone.
        friction_keys: those of K~.
        sums: of derivatives by V.
        end: how many numbers that is.
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
def _padded(width: int) -> int:
    return (width + LANES - 1) // LANES * LANES


@inlined
def _memory(numbers: int, like: Array) -> tuple[Array, int]:
    """Memory for so many numbers, and the first place in it that begins a cache line."""
    work = np.empty(numbers + LANES, like.dtype)
    return work, (-(work.ctypes.data // work.itemsize)) % LANES


@inlined
def _copy_rows(
    source: Array, start: int, rows: int, width: int, factor: Any, work: Array, to: int, all_rows: int
) -> None:
    """Copy `[rows, width]` times `factor` to `[all_rows, padded width]`."""
    apart, zero, one = np.uint64(_padded(width)), source.dtype.type(0), np.uint64(1)
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
def _put_rows(work: Array, at: int, rows: int, width: int, factor: Any, out: Array, to: int, adds: bool) -> None:
    """Copy `[rows, padded width]` times `factor` to `[rows, width]`, or add it to what stands there."""
    apart, width_, source_at, out_at = np.uint64(_padded(width)), np.uint64(width), np.uint64(at), np.uint64(to)
    for _ in range(rows):
        set_, added = np.uint64(0) if adds else width_, width_ if adds else np.uint64(0)
        for j in range(np.uint64(0), set_):
            out[out_at + j] = work[source_at + j] * factor
        for j in range(np.uint64(0), added):
            out[out_at + j] += work[source_at + j] * factor
        source_at, out_at = source_at + apart, out_at + width_


@inlined
def _fill(work: Array, at: int, count: int, number: Any) -> None:
    for j in range(np.uint64(at), np.uint64(at + count)):
        work[j] = number


@inlined
def _dot(a: Array, a_at: int, b: Array, b_at: int, count: int) -> Any:
    total, first, second = a.dtype.type(0), np.uint64(a_at), np.uint64(b_at)
    for j in range(np.uint64(0), np.uint64(count)):
        total += a[first + j] * b[second + j]
    return total


@inlined
def _longest(vectors: Array, start: int, rows: int, width: int) -> Any:
    """Return the greatest length of rows, in the unit of scores; no number if one is infinite or none."""
    longest, none = vectors.dtype.type(0), vectors.dtype.type(0)
    for row in range(rows):
        square = _dot(vectors, start + row * width, vectors, start + row * width, width)
        longest = max(longest, square)
        none += square - square
    return np.sqrt(longest) * vectors.dtype.type(1 / _UNIT) + none


@inlined
def _transpose_rows(work: Array, rows: int, width: int, to: int) -> None:
    """Transpose `[LANES, padded width]` to `[padded width, LANES]`."""
    padded = _padded(width)
    for column in range(0, padded, LANES):
        transpose(work, rows + column, padded, work, to + column * LANES, LANES)


@inlined
def _multiply_rows(rows: Array, start: int, many: int, keys: Array, first_key: int, num_keys: int, width: int,
                   factor: Any, work: Array, spare: int, out: int) -> None:  # fmt: skip
    """Products of LANES rows, times `factor`, with all keys, to `out [K, LANES]`.

    The rows, times `factor`, are left in `spare`, followed by the same transposed.
    """
    _copy_rows(rows, start, many, width, factor, work, spare, LANES)
    turned = spare + LANES * _padded(width)
    _transpose_rows(work, spare, width, turned)
    multiply(keys, first_key, width, 1, work, turned, LANES, work, out, LANES, num_keys, LANES, width)


@inlined
def _fill_scores(given: Given, sizes: Sizes, matrix: int, row: int, many: int, work: Array, at: _Places) -> None:
    """Scores of both kinds, of this many rows and of none to fill the lanes; keys that are not allowed are closed."""
    keys, width, friction_width, number = sizes.keys, sizes.width, sizes.friction_width, given.query.dtype.type
    start, first_key = matrix * sizes.rows + row, matrix * keys
    _multiply_rows(given.query, start * width, many, given.key, first_key * width, keys, width,
                   number(_UNIT / math.sqrt(width)), work, at.queries, at.columns)  # fmt: skip
    _multiply_rows(given.friction_query, start * friction_width, many, given.friction_key, first_key * friction_width,
                   keys, friction_width, number(_UNIT / math.sqrt(friction_width)), work, at.friction_queries,
                   at.columns + COST * keys * LANES)  # fmt: skip
    if sizes.mask_rows:
        _close_keys(given, sizes, matrix, row, many, work, at)


@inlined
def _close_keys(given: Given, sizes: Sizes, matrix: int, row: int, many: int, work: Array, at: _Places) -> None:
    """Close the keys that are not allowed, for all lanes or lane by lane, and count the others."""
    closed, keys, together = work.dtype.type(CLOSED), sizes.keys, LANES if sizes.mask_rows == 1 else 1
    friction, first = COST * keys * LANES, given.mask_of[matrix] * sizes.mask_rows
    for lane in range(0, LANES, together):
        mask_row = first if together > 1 else first + row + min(lane, many - 1)
        number = 0
        for j in range(keys):
            may = given.allowed[mask_row * keys + j]
            number += may
            if not may:
                _fill(work, at.columns + j * LANES + lane, together, closed)
                _fill(work, at.columns + friction + j * LANES + lane, together, closed)
        _fill(work, at.numbers + NUM_KEYS * LANES + lane, together, number)


@inlined
def _drop(keep: Array, start: int, rows: int, keys: int, work: Array, column: int) -> None:
    """Multiply a column by dropout's factors `[rows, K]`."""
    for row in range(rows):
        at, to = np.uint64(start + row * keys), np.uint64(column + row)
        for j in range(np.uint64(0), np.uint64(keys)):
            work[to + j * np.uint64(LANES)] *= keep[at + j]


@inlined
def _flat(given: Given) -> Given:
    """Flatten every array: views made here cost nothing, where in torch each takes a microsecond."""
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
def _flat_gradients(grads: Gradients) -> Gradients:
    """Flatten every gradient."""
    of_query, of_friction_query = grads.query.reshape(-1), grads.friction_query.reshape(-1)
    of_key, of_friction_key = grads.key.reshape(-1), grads.friction_key.reshape(-1)
    of_value, sums = grads.value.reshape(-1), grads.sums.reshape(-1)
    return Gradients(of_query, of_key, of_friction_query, of_friction_key, of_value, sums)


@inlined
def _begin_matrix(given: Given, sizes: Sizes, matrix: int, work: Array, numbers: int) -> None:
    """Numbers that all rows of a matrix share."""
    _fill(work, numbers + PENALTY * LANES, LANES, given.penalty[matrix])
    _fill(work, numbers + ALPHA * LANES, LANES, given.alpha[matrix] if len(given.alpha) else np.inf)
    _fill(work, numbers + NUM_KEYS * LANES, LANES, sizes.keys)
    _fill(work, numbers + LENGTH * LANES, LANES, sizes.keys)
    _fill(work, numbers + TOLERANCE * LANES, LANES, given.limits[0])
    _fill(work, numbers + STEEPEST * LANES, LANES, given.limits[1])


@inlined
def _copy_lanes(source: Array, start: int, apart: int, kinds: int, to: Array, at: int, to_apart: int) -> None:
    """Copy numbers of LANES rows, of so many kinds."""
    for kind in range(kinds):
        first, second = np.uint64(start + kind * apart), np.uint64(at + kind * to_apart)
        for lane in range(np.uint64(0), np.uint64(LANES)):
            to[second + lane] = source[first + lane]


def num_chunks(part: Part) -> int:
    """Into how many chunks the rows of a matrix fall."""
    return (part.end + CHUNK - 1) // CHUNK - part.row // CHUNK


@inlined
def _chunk(item: int, part: Part) -> tuple[int, int, int, int]:
    """Matrix, number of the chunk, its first row and the row that it ends before."""
    chunks = (part.end + CHUNK - 1) // CHUNK - part.row // CHUNK
    number = part.row // CHUNK + item % chunks
    return part.matrix + item // chunks, number, max(part.row, number * CHUNK), min(part.end, (number + 1) * CHUNK)


@inlined
def _forward_places(sizes: Sizes, start: int) -> _Places:
    numbers = start + COLUMNS * sizes.keys * LANES
    queries = numbers + ROWS * LANES
    friction_queries = queries + 2 * LANES * _padded(sizes.width)
    values = friction_queries + 2 * LANES * _padded(sizes.friction_width)
    out = values + sizes.keys * _padded(sizes.value_width)
    end = out + LANES * _padded(sizes.value_width)
    return _Places(start, numbers, queries, friction_queries, values, out, end, end, end, end)


@inlined
def _backward_places(sizes: Sizes, start: int) -> _Places:
    width, friction_width, value_width = _padded(sizes.width), _padded(sizes.friction_width), _padded(sizes.value_width)
    numbers = start + COLUMNS * sizes.keys * LANES
    queries = numbers + ROWS * LANES
    friction_queries = queries + 2 * LANES * width
    values = friction_queries + 2 * LANES * friction_width
    out = values + 2 * LANES * value_width
    keys = out + LANES * (width + friction_width)
    friction_keys = keys + 2 * sizes.keys * width
    sums = friction_keys + 2 * sizes.keys * friction_width
    end = sums + sizes.keys * value_width
    return _Places(start, numbers, queries, friction_queries, values, out, keys, friction_keys, sums, end)


@inlined
def _kept(part: Part, matrix: int, row: int) -> int:
    """Return the number of a row in the part."""
    return (matrix - part.matrix) * (part.end - part.row) + row - part.row


@cpu_kernel
def attend(first: int, last: int, nested: Given, sizes: Sizes, part: Part, keep: Array, output: Array) -> None:
    """From projections to the output of all rows but the steep ones, whose is 0.

    Args:
        first: chunk to begin with, counted over the part's matrices and chunks of their rows.
        last: chunk to end before.
        nested: projections and more.
        sizes: of all.
        part: which matrices and rows.
        keep: dropout's factors of the part, `[matrices, rows, K]`; `[0, 0, 0]` without dropout.
        output: receives `[M, N, width]`.
    """
    given, factors, out = _flat(nested), keep.reshape(-1), output.reshape(-1)
    keys, width, one = sizes.keys, sizes.value_width, out.dtype.type(1)
    work, start = _memory(_forward_places(sizes, 0).end, out)
    at, padded, flow = _forward_places(sizes, start), _padded(width), start + FLOW * keys * LANES
    num_state = _padded(sizes.rows)
    for item in range(first, last):
        matrix, _, begin, end = _chunk(item, part)
        _copy_rows(given.value, matrix * keys * width, keys, width, one, work, at.values, keys)
        _begin_matrix(given, sizes, matrix, work, at.numbers)
        friction_width, numbers = sizes.friction_width, at.numbers
        longest = _longest(given.key, matrix * keys * sizes.width, keys, sizes.width)
        _fill(work, numbers + LONGEST * LANES, LANES, longest)
        longest = _longest(given.friction_key, matrix * keys * friction_width, keys, friction_width)
        _fill(work, numbers + FRICTION_LONGEST * LANES, LANES, longest)
        for row in range(begin, end, LANES):
            many = min(LANES, end - row)
            _fill_scores(given, sizes, matrix, row, many, work, at)
            # From the rows transposed, which stand behind the rows.
            square_rows(work, at.queries + LANES * _padded(sizes.width), sizes.width, at.numbers)
            square_friction_rows(
                work, at.friction_queries + LANES * _padded(friction_width), friction_width, at.numbers
            )
            solve(work, at.columns, keys, at.numbers)
            _copy_lanes(
                work, at.numbers, LANES, STATE, given.state, matrix * num_state + row, sizes.matrices * num_state
            )
            if len(factors):
                _drop(factors, _kept(part, matrix, row) * keys, many, keys, work, flow)
            multiply(work, flow, 1, LANES, work, at.values, padded, work, at.out, padded, many, padded, keys)
            _put_rows(work, at.out, many, width, one, out, (matrix * sizes.rows + row) * width, False)


@inlined
def _multiply_back(sizes: Sizes, row: int, many: int, work: Array, at: _Places, grads: Gradients) -> None:
    """From derivatives by scores, and the flow, to those by queries from this row on, and to sums of the others."""
    keys, size = sizes.keys, sizes.keys * LANES
    width, friction_width, value_width = _padded(sizes.width), _padded(sizes.friction_width), _padded(sizes.value_width)
    key_sums, friction_sums = at.keys + keys * width, at.friction_keys + keys * friction_width
    columns = at.columns + WEIGHT * size, at.columns + COST * size, at.columns + FLOW * size
    widths, rows = (width, friction_width, value_width), (at.queries, at.friction_queries, at.values)
    sums, others, outs = (
        (key_sums, friction_sums, at.sums),
        (at.keys, at.friction_keys),
        (at.out, at.out + LANES * width),
    )
    # In loops, because each product that is written down is compiled anew.
    for i in range(3):
        add_product(work, columns[i], LANES, 1, work, rows[i], widths[i], work, sums[i], widths[i],
                         keys, widths[i], many)  # fmt: skip
    for i in range(2):
        multiply(work, columns[i], 1, LANES, work, others[i], widths[i], work, outs[i], widths[i],
                 many, widths[i], keys)  # fmt: skip
    number = work.dtype.type
    root, friction_root = number(1 / math.sqrt(sizes.width)), number(1 / math.sqrt(sizes.friction_width))
    _put_rows(work, outs[0], many, sizes.width, root, grads.query, row * sizes.width, False)
    to = row * sizes.friction_width
    _put_rows(work, outs[1], many, sizes.friction_width, friction_root, grads.friction_query, to, False)


@inlined
def _begin_back(given: Given, sizes: Sizes, matrix: int, work: Array, at: _Places) -> None:
    """Copy the keys, and set sums to 0."""
    keys, width, friction_width, one = sizes.keys, sizes.width, sizes.friction_width, given.key.dtype.type(1)
    size, friction_size, zero = keys * _padded(width), keys * _padded(friction_width), given.key.dtype.type(0)
    _copy_rows(given.key, matrix * keys * width, keys, width, one, work, at.keys, keys)
    _copy_rows(
        given.friction_key, matrix * keys * friction_width, keys, friction_width, one, work, at.friction_keys, keys
    )
    _fill(work, at.keys + size, size, zero)
    _fill(work, at.friction_keys + friction_size, friction_size, zero)
    _fill(work, at.sums, keys * _padded(sizes.value_width), zero)
    _begin_matrix(given, sizes, matrix, work, at.numbers)


@inlined
def _end_back(sizes: Sizes, first_key: int, work: Array, at: _Places, grads: Gradients, adds: bool) -> None:
    """Put the sums into the gradients of keys and values, from this key on, or add them."""
    keys, width, friction_width, value_width = sizes.keys, sizes.width, sizes.friction_width, sizes.value_width
    one, unscale = grads.key.dtype.type(1), grads.key.dtype.type(1 / _UNIT)
    sums, friction_sums = at.keys + keys * _padded(width), at.friction_keys + keys * _padded(friction_width)
    _put_rows(work, sums, keys, width, unscale, grads.key, first_key * width, adds)
    _put_rows(work, friction_sums, keys, friction_width, unscale, grads.friction_key, first_key * friction_width, adds)
    _put_rows(work, at.sums, keys, value_width, one, grads.value, first_key * value_width, adds)


@inlined
def _derive_rows(given: Given, sizes: Sizes, part: Part, keep: Array, output: Array, upstream: Array, matrix: int,
                 row: int, many: int, work: Array, at: _Places, sums: Array) -> None:  # fmt: skip
    """Compute derivatives by the scores of LANES rows, and the flow, in their columns; those by energy in `sums`."""
    keys, width, start = sizes.keys, sizes.value_width, (matrix * sizes.rows + row) * sizes.value_width
    padded, flow = _padded(sizes.rows), at.columns + FLOW * keys * LANES
    _fill_scores(given, sizes, matrix, row, many, work, at)
    _multiply_rows(
        upstream, start, many, given.value, matrix * keys * width, keys, width, upstream.dtype.type(1), work,
        at.values, flow,
    )  # fmt: skip
    for lane in range(LANES):
        out_at = start + min(lane, many - 1) * width
        work[at.numbers + DOT * LANES + lane] = _dot(output, out_at, upstream, out_at, width)
    state_at, apart = matrix * padded + row, sizes.matrices * padded
    _copy_lanes(given.state, state_at, apart, STATE, work, at.numbers, LANES)
    factors_at = _kept(part, matrix, row) * keys
    if len(keep):
        _drop(keep, factors_at, many, keys, work, flow)
    derive(work, at.columns, keys, at.numbers)
    if len(keep):
        _drop(keep, factors_at, many, keys, work, flow)
    _copy_lanes(work, at.numbers + OF_PENALTY * LANES, LANES, LEAK - OF_PENALTY + 1, sums, state_at, apart)


@cpu_kernel
def attend_back(
    first: int,
    last: int,
    nested: Given,
    sizes: Sizes,
    part: Part,
    keep: Array,
    output: Array,
    upstream: Array,
    grads: Gradients,
) -> None:
    """From the gradient of the output to those of the projections and of the energy; steep rows give none.

    Args:
        first: as in `attend`, like all up to `output`, of which nothing is changed.
        last: as there.
        nested: as there, with the state that was left.
        sizes: as there.
        part: as there.
        keep: as there.
        output: as it was left.
        upstream: its gradient `[M, N, width]`.
        grads: what is set; where a part begins inside of a chunk, the sums of the chunk are added to.
    """
    given, factors = _flat(nested), keep.reshape(-1)
    flat = _flat_gradients(grads)
    out, out_grad = output.reshape(-1), upstream.reshape(-1)
    work, start = _memory(_backward_places(sizes, 0).end, out)
    at = _backward_places(sizes, start)
    for item in range(first, last):
        matrix, chunk, begin, end = _chunk(item, part)
        _begin_back(given, sizes, matrix, work, at)
        for row in range(begin, end, LANES):
            many = min(LANES, end - row)
            _derive_rows(given, sizes, part, factors, out, out_grad, matrix, row, many, work, at, flat.sums)
            _multiply_back(sizes, matrix * sizes.rows + row, many, work, at, flat)
        first_key = (chunk * sizes.matrices + matrix) * sizes.keys
        _end_back(sizes, first_key, work, at, flat, begin > chunk * CHUNK)
