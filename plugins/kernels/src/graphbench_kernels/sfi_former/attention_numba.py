"""Sparse-flow attention on a CPU in one kernel per direction: matrix products and everything between them.

Imported by `attention`, which `ops` imports if Numba runs. Sixteen rows of queries at a time are multiplied with all
keys, solved by `rows_numba` and multiplied with all values, in memory that stays in the caches of one core. The
backward pass treats derivatives in the same way and recomputes the scores, which is faster than storing them.

Arrays have one axis. Legend: M matrices (graphs times heads), N queries, K keys; widths are padded with 0 to a multiple
of LANES if a product requires it.
"""

from __future__ import annotations

import math

from graphbench_kernels import cpu_kernel
from graphbench_kernels.products_numba import LANES, add_product, multiply
from graphbench_kernels.sfi_former.attention_rows_numba import (
    CHUNK,
    UNIT,
    Given,
    Gradients,
    Part,
    Places,
    Sizes,
    aligned,
    begin_matrix,
    copy_lanes,
    copy_rows,
    dot,
    drop,
    fill,
    fill_scores,
    flat_arrays,
    flat_gradients,
    longest_vector,
    memory,
    multiply_rows,
    put_rows,
)
from graphbench_kernels.sfi_former.lanes_numba import inlined
from graphbench_kernels.sfi_former.rows_numba import (
    COLUMNS,
    COST,
    DOT,
    FLOW,
    FRICTION_LONGEST,
    LEAK,
    LONGEST,
    OF_PENALTY,
    ROWS,
    STATE,
    WEIGHT,
    Array,
    derive,
    solve,
    square_friction_rows,
    square_rows,
)


def num_chunks(part: Part) -> int:
    """Return the number of chunks of the rows of a matrix."""
    return (part.end + CHUNK - 1) // CHUNK - part.row // CHUNK


@inlined
def _chunk(item: int, part: Part) -> tuple[int, int, int, int]:
    """Return the matrix, the number of the chunk, its first row and its end row (exclusive)."""
    chunks = (part.end + CHUNK - 1) // CHUNK - part.row // CHUNK
    number = part.row // CHUNK + item % chunks
    return part.matrix + item // chunks, number, max(part.row, number * CHUNK), min(part.end, (number + 1) * CHUNK)


@inlined
def _forward_places(sizes: Sizes, start: int) -> Places:
    numbers = start + COLUMNS * sizes.keys * LANES
    queries = numbers + ROWS * LANES
    friction_queries = queries + 2 * LANES * aligned(sizes.width)
    values = friction_queries + 2 * LANES * aligned(sizes.friction_width)
    out = values + sizes.keys * aligned(sizes.value_width)
    end = out + LANES * aligned(sizes.value_width)
    return Places(start, numbers, queries, friction_queries, values, out, end, end, end, end)


@inlined
def _backward_places(sizes: Sizes, start: int) -> Places:
    width, friction_width, value_width = (
        aligned(sizes.width),
        aligned(sizes.friction_width),
        aligned(sizes.value_width),
    )
    numbers = start + COLUMNS * sizes.keys * LANES
    queries = numbers + ROWS * LANES
    friction_queries = queries + 2 * LANES * width
    values = friction_queries + 2 * LANES * friction_width
    out = values + 2 * LANES * value_width
    keys = out + LANES * (width + friction_width)
    friction_keys = keys + 2 * sizes.keys * width
    sums = friction_keys + 2 * sizes.keys * friction_width
    end = sums + sizes.keys * value_width
    return Places(start, numbers, queries, friction_queries, values, out, keys, friction_keys, sums, end)


@inlined
def _kept(part: Part, matrix: int, row: int) -> int:
    """Return the number of a row in the part."""
    return (matrix - part.matrix) * (part.end - part.row) + row - part.row


@cpu_kernel
def attend(first: int, last: int, nested: Given, sizes: Sizes, part: Part, keep: Array, output: Array) -> None:
    """Compute the output of all rows from projections, 0 for steep rows.

    Args:
        first: first chunk, counted over the part's matrices and chunks of their rows.
        last: end of the chunks (exclusive).
        nested: projections and more.
        sizes: sizes of all.
        part: which matrices and rows.
        keep: dropout's factors of the part, `[matrices, rows, K]`; `[0, 0, 0]` without dropout.
        output: output `[M, N, width]`.
    """
    given, factors, out = flat_arrays(nested), keep.reshape(-1), output.reshape(-1)
    keys, width, one = sizes.keys, sizes.value_width, out.dtype.type(1)
    work, start = memory(_forward_places(sizes, 0).end, out)
    at, padded, flow = _forward_places(sizes, start), aligned(width), start + FLOW * keys * LANES
    num_state = aligned(sizes.rows)
    for item in range(first, last):
        matrix, _, begin, end = _chunk(item, part)
        copy_rows(given.value, matrix * keys * width, keys, width, one, work, at.values, keys)
        begin_matrix(given, sizes, matrix, work, at.numbers)
        friction_width, numbers = sizes.friction_width, at.numbers
        longest = longest_vector(given.key, matrix * keys * sizes.width, keys, sizes.width)
        fill(work, numbers + LONGEST * LANES, LANES, longest)
        longest = longest_vector(given.friction_key, matrix * keys * friction_width, keys, friction_width)
        fill(work, numbers + FRICTION_LONGEST * LANES, LANES, longest)
        for row in range(begin, end, LANES):
            many = min(LANES, end - row)
            fill_scores(given, sizes, matrix, row, many, work, at)
            # From the transposed rows, which are stored after the rows.
            square_rows(work, at.queries + LANES * aligned(sizes.width), sizes.width, at.numbers)
            square_friction_rows(
                work, at.friction_queries + LANES * aligned(friction_width), friction_width, at.numbers
            )
            solve(work, at.columns, keys, at.numbers)
            copy_lanes(
                work, at.numbers, LANES, STATE, given.state, matrix * num_state + row, sizes.matrices * num_state
            )
            if len(factors):
                drop(factors, _kept(part, matrix, row) * keys, many, keys, work, flow)
            multiply(work, flow, 1, LANES, work, at.values, padded, work, at.out, padded, many, padded, keys)
            put_rows(work, at.out, many, width, one, out, (matrix * sizes.rows + row) * width, False)


@inlined
def _multiply_back(sizes: Sizes, row: int, many: int, work: Array, at: Places, grads: Gradients) -> None:
    """Convert derivatives w.r.t. scores, and the flow, to those w.r.t. queries from this row on, and sums of others."""
    keys, size = sizes.keys, sizes.keys * LANES
    width, friction_width, value_width = (
        aligned(sizes.width),
        aligned(sizes.friction_width),
        aligned(sizes.value_width),
    )
    key_sums, friction_sums = at.keys + keys * width, at.friction_keys + keys * friction_width
    columns = at.columns + WEIGHT * size, at.columns + COST * size, at.columns + FLOW * size
    widths, rows = (width, friction_width, value_width), (at.queries, at.friction_queries, at.values)
    sums, others, outs = (
        (key_sums, friction_sums, at.sums),
        (at.keys, at.friction_keys),
        (at.out, at.out + LANES * width),
    )
    # In loops, because each written product is compiled separately.
    for i in range(3):
        add_product(work, columns[i], LANES, 1, work, rows[i], widths[i], work, sums[i], widths[i],
                         keys, widths[i], many)  # fmt: skip
    for i in range(2):
        multiply(work, columns[i], 1, LANES, work, others[i], widths[i], work, outs[i], widths[i],
                 many, widths[i], keys)  # fmt: skip
    number = work.dtype.type
    root, friction_root = number(1 / math.sqrt(sizes.width)), number(1 / math.sqrt(sizes.friction_width))
    put_rows(work, outs[0], many, sizes.width, root, grads.query, row * sizes.width, False)
    to = row * sizes.friction_width
    put_rows(work, outs[1], many, sizes.friction_width, friction_root, grads.friction_query, to, False)


@inlined
def _begin_back(given: Given, sizes: Sizes, matrix: int, work: Array, at: Places) -> None:
    """Copy the keys, and set sums to 0."""
    keys, width, friction_width, one = sizes.keys, sizes.width, sizes.friction_width, given.key.dtype.type(1)
    size, friction_size, zero = keys * aligned(width), keys * aligned(friction_width), given.key.dtype.type(0)
    copy_rows(given.key, matrix * keys * width, keys, width, one, work, at.keys, keys)
    copy_rows(
        given.friction_key, matrix * keys * friction_width, keys, friction_width, one, work, at.friction_keys, keys
    )
    fill(work, at.keys + size, size, zero)
    fill(work, at.friction_keys + friction_size, friction_size, zero)
    fill(work, at.sums, keys * aligned(sizes.value_width), zero)
    begin_matrix(given, sizes, matrix, work, at.numbers)


@inlined
def _end_back(sizes: Sizes, first_key: int, work: Array, at: Places, grads: Gradients, adds: bool) -> None:
    """Write the sums to the gradients of keys and values, from this key on, or add them."""
    keys, width, friction_width, value_width = sizes.keys, sizes.width, sizes.friction_width, sizes.value_width
    one, unscale = grads.key.dtype.type(1), grads.key.dtype.type(1 / UNIT)
    sums, friction_sums = at.keys + keys * aligned(width), at.friction_keys + keys * aligned(friction_width)
    put_rows(work, sums, keys, width, unscale, grads.key, first_key * width, adds)
    put_rows(work, friction_sums, keys, friction_width, unscale, grads.friction_key, first_key * friction_width, adds)
    put_rows(work, at.sums, keys, value_width, one, grads.value, first_key * value_width, adds)


@inlined
def _derive_rows(given: Given, sizes: Sizes, part: Part, keep: Array, output: Array, upstream: Array, matrix: int,
                 row: int, many: int, work: Array, at: Places, sums: Array) -> None:  # fmt: skip
    """Compute derivatives w.r.t. scores of LANES rows and the flow in their columns, those w.r.t. energy in `sums`."""
    keys, width, start = sizes.keys, sizes.value_width, (matrix * sizes.rows + row) * sizes.value_width
    padded, flow = aligned(sizes.rows), at.columns + FLOW * keys * LANES
    fill_scores(given, sizes, matrix, row, many, work, at)
    multiply_rows(
        upstream, start, many, given.value, matrix * keys * width, keys, width, upstream.dtype.type(1), work,
        at.values, flow,
    )  # fmt: skip
    for lane in range(LANES):
        # Lanes beyond the last row repeat it, and their results are not read.
        out_at = start + min(lane, many - 1) * width
        work[at.numbers + DOT * LANES + lane] = dot(output, out_at, upstream, out_at, width)
    state_at, apart = matrix * padded + row, sizes.matrices * padded
    copy_lanes(given.state, state_at, apart, STATE, work, at.numbers, LANES)
    factors_at = _kept(part, matrix, row) * keys
    if len(keep):
        drop(keep, factors_at, many, keys, work, flow)
    # `derive` writes the flow over derivatives w.r.t. it: dropout applies to the latter before, to the flow after.
    derive(work, at.columns, keys, at.numbers)
    if len(keep):
        drop(keep, factors_at, many, keys, work, flow)
    copy_lanes(work, at.numbers + OF_PENALTY * LANES, LANES, LEAK - OF_PENALTY + 1, sums, state_at, apart)


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
    """Compute gradients of the projections and the energy from that of the output; steep rows contribute nothing.

    Args:
        first: as in `attend`, like all arguments up to `output`, which are not changed.
        last: as in `attend`.
        nested: as in `attend`, with the state that it has set.
        sizes: as in `attend`.
        part: as in `attend`.
        keep: as in `attend`.
        output: output of `attend`.
        upstream: its gradient `[M, N, width]`.
        grads: gradients to set; if a part starts inside a chunk, the sums of the chunk are added to.
    """
    given, factors = flat_arrays(nested), keep.reshape(-1)
    flat = flat_gradients(grads)
    out, out_grad = output.reshape(-1), upstream.reshape(-1)
    work, start = memory(_backward_places(sizes, 0).end, out)
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
