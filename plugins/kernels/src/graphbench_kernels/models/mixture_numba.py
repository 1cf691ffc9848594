"""Attention of all tokens to a few sampled ones, from scores to mixed values, several rows at a time in the cache.

Only imported by `mixture`, if `runs_numba` is true. An item is a head of a graph. Nothing as large as the scores is
stored: the backward pass recomputes them, which is faster than writing and reading them.

All arrays have one axis, for which the compiler vectorises loops with unsigned indices; comments give their shapes.

Legend: T tokens of all graphs, b graphs of a block, N rows of its largest graph, K slots of the sample, H heads, h head
width, P pairs with separate relative terms.
"""

from __future__ import annotations

import math

import numpy as np
from numpy.typing import NDArray

from graphbench_kernels.models.distances_numba import (
    MAPS,
    PLACE,
    TABLE,
    distance_gradients,
    distance_terms,
    take_places,
)
from graphbench_kernels.models.maxout_tiles_numba import (
    give_rows,
    no_number,
    share_gradients,
    sums_of_maxima,
    take_rows,
    whole_lanes,
)
from graphbench_kernels.products_numba import add_product, multiply
from graphbench_kernels.running import cpu_kernel

Array = NDArray[np.floating]
Integers = NDArray[np.int64]
Flags = NDArray[np.bool_]

#: Rows that are processed at once: their scores of 256 keys need half of the first-level cache.
_ROWS = 16
#: As `ops.EPSILON`; a number from another module would be stored with the compiled code even if it changed.
_EPSILON = 1e-6


@cpu_kernel
def mix(
    first: int,
    last: int,
    starts: Integers,
    sizes: Integers,
    slots: int,
    heads: int,
    width: int,
    query: Array,
    key: Array,
    value: Array,
    leak: Array,
    mask: Flags,
    all_mul: Array,
    all_add: Array,
    nodes: int,
    pair_row: Integers,
    pair_slot: Integers,
    pair_mul: Array,
    pair_add: Array,
    places: Array,
    index: Integers,
    partner: Integers,
    weight: Array,
    maps: Array,
    mixed: Array,
    inverse: Array,
) -> None:
    """Compute mixed values of the graphs of a block.

    Args:
        first: number of the first item, counted over graphs and heads.
        last: end of the items (exclusive).
        starts: first token of each graph `[b]`.
        sizes: tokens of each graph `[b]`.
        slots: K.
        heads: H.
        width: h.
        query: `[T, H, h]`.
        key: `[b, K, H, h]`.
        value: `[b, K, H, h]`.
        leak: after the softplus `[b, K, H]`; empty for none.
        mask: which slots are filled `[b, K]`; empty if all are.
        all_mul: factor of every score `[H]`.
        all_add: summand of every score `[H]`.
        nodes: N.
        pair_row: padded number `graph * N + row` of the rows of pairs, ascending `[P]`.
        pair_slot: their slots `[P]`.
        pair_mul: added to the factors of their scores `[P, H]`.
        pair_add: added to the summands of their scores `[P, H]`.
        places: places of the nodes `[b, N, PLACE]`, which determine all terms instead of `all_mul` and `all_add`; empty
            for none.
        index: sampled tokens `[b, K]`.
        partner: tokens mixed into them `[b, K]`.
        weight: weight of the sampled tokens `[b, K]`.
        maps: maps of places `[H, MAPS]`.
        mixed: output for the result `[T, H, h]`.
        inverse: output for the inverse denominators `[T, H]`.
    """
    wide, lanes, columns = heads * width, whole_lanes(width), whole_lanes(slots)
    zero, one = query.dtype.type(0), query.dtype.type(1)
    factor = query.dtype.type(one / math.sqrt(width))
    values, keys = np.zeros(slots * lanes, query.dtype), np.zeros(width * columns, query.dtype)
    hidden = np.full(columns, -np.inf, query.dtype)
    factors, summands = np.empty(columns, query.dtype), np.empty(columns, query.dtype)
    table, spots = np.empty(TABLE * columns, query.dtype), np.zeros(2 * PLACE * columns, query.dtype)
    shares = np.zeros(columns, query.dtype)
    queries, sums = np.empty(_ROWS * lanes, query.dtype), np.empty(_ROWS * lanes, query.dtype)
    scores, moved = np.empty(_ROWS * columns, query.dtype), np.empty(_ROWS * columns, query.dtype)
    length = np.uint64(columns)
    for item in range(first, last):
        graph, head = item // heads, item % heads
        constant = _take_slots(graph, head, slots, heads, width, leak, mask, hidden)
        _take_columns(key, graph, head, slots, heads, width, hidden, keys, columns)
        take_rows(value, graph * slots * wide + head * width, wide, slots, width, values, lanes)
        _clear_hidden(hidden, slots, values, lanes)
        _set_terms(all_mul[head], all_add[head], hidden, factors, summands)
        if places.shape[0]:
            take_places(places, graph, nodes, slots, columns, index, partner, weight, spots, shares)
        pair = _first_pair(pair_row, graph * nodes)
        for row in range(0, sizes[graph], _ROWS):
            token, rows = starts[graph] + row, min(_ROWS, sizes[graph] - row)
            here = token * wide + head * width
            take_rows(query, here, wide, rows, width, queries, lanes)
            sums_of_maxima(queries, 0, lanes, keys, 0, columns, scores, 0, columns, rows, columns, width, factor)
            for i in range(rows):
                at = np.uint64(i * columns)
                begin, start = pair, no_number(queries, i * lanes, width)
                pair = _last_pair(pair, pair_row, graph * nodes + row + i)
                _add_pairs(begin, pair, heads, head, pair_slot, pair_mul, pair_add, factors, summands)
                if places.shape[0]:
                    place_at = (graph * nodes + row + i) * PLACE
                    distance_terms(
                        places, place_at, columns, spots, shares, hidden, maps, head, table, factors, summands
                    )
                for j in range(length):
                    moved[at + j] = scores[at + j] * factors[j] + (summands[j] + start)
                _forget_pairs(begin, pair, pair_slot, all_mul[head], all_add[head], factors, summands)
                total = zero
                for j in range(length):
                    positive = zero if moved[at + j] <= zero else moved[at + j]
                    moved[at + j] = positive
                    total += positive
                inverse[np.uint64((token + i) * heads + head)] = one / (total + constant)
            multiply(moved, 0, columns, 1, values, 0, lanes, sums, 0, lanes, rows, lanes, slots)
            for i in range(rows):
                share = inverse[np.uint64((token + i) * heads + head)]
                to, at = np.uint64(here + i * wide), np.uint64(i * lanes)
                for c in range(np.uint64(0), np.uint64(width)):
                    mixed[to + c] = sums[at + c] * share


@cpu_kernel
def mix_gradient(
    first: int,
    last: int,
    starts: Integers,
    sizes: Integers,
    slots: int,
    heads: int,
    width: int,
    query: Array,
    key: Array,
    value: Array,
    leak: Array,
    mask: Flags,
    all_mul: Array,
    all_add: Array,
    nodes: int,
    pair_row: Integers,
    pair_slot: Integers,
    pair_mul: Array,
    pair_add: Array,
    places: Array,
    index: Integers,
    partner: Integers,
    weight: Array,
    maps: Array,
    mixed: Array,
    inverse: Array,
    grad: Array,
    of_query: Array,
    of_key: Array,
    of_value: Array,
    of_leak: Array,
    of_all_mul: Array,
    of_all_add: Array,
    of_pair_mul: Array,
    of_pair_add: Array,
    of_weight: Array,
    of_maps: Array,
) -> None:
    """Compute gradients of all operands of `mix` from `grad [T, H, h]`, each shaped as its operand except `of_all_*`.

    Those are `[b, H]`, per graph. Arguments up to `inverse` are those of `mix`, including its outputs.
    """
    wide, lanes, columns = heads * width, whole_lanes(width), whole_lanes(slots)
    dtype = query.dtype
    zero, half = dtype.type(0), dtype.type(0.5)
    factor = dtype.type(1 / math.sqrt(width))
    passed = half * factor
    keys, turned_keys = np.zeros(columns * lanes, dtype), np.zeros(width * columns, dtype)
    turned_values, hidden = np.zeros(width * columns, dtype), np.full(columns, -np.inf, dtype)
    factors, summands = np.empty(columns, dtype), np.empty(columns, dtype)
    table, spots = np.empty(TABLE * columns, dtype), np.zeros(2 * PLACE * columns, dtype)
    shares, of_shares, of_own_maps = np.zeros(columns, dtype), np.empty(columns, dtype), np.empty(MAPS, dtype)
    of_keys, of_values = np.empty(columns * lanes, dtype), np.empty(columns * lanes, dtype)
    totals, ones = np.empty(columns, dtype), np.ones(_ROWS, dtype)
    queries, of_queries = np.zeros(_ROWS * lanes, dtype), np.empty(_ROWS * lanes, dtype)
    grads = np.zeros(_ROWS * lanes, dtype)
    scores, moved = np.empty(_ROWS * columns, dtype), np.empty(_ROWS * columns, dtype)
    slopes = np.empty(_ROWS * columns, dtype)
    length, channels = np.uint64(columns), np.uint64(width)
    for item in range(first, last):
        graph, head = item // heads, item % heads
        _take_slots(graph, head, slots, heads, width, leak, mask, hidden)
        _take_columns(key, graph, head, slots, heads, width, hidden, turned_keys, columns)
        _take_columns(value, graph, head, slots, heads, width, hidden, turned_values, columns)
        take_rows(key, graph * slots * wide + head * width, wide, slots, width, keys, lanes)
        _clear_hidden(hidden, slots, keys, lanes)
        of_keys[:] = zero
        of_values[:] = zero
        totals[:] = zero
        of_shares[:] = zero
        of_own_maps[:] = zero
        _set_terms(all_mul[head], all_add[head], hidden, factors, summands)
        if places.shape[0]:
            take_places(places, graph, nodes, slots, columns, index, partner, weight, spots, shares)
        of_mul, of_add, of_constant = zero, zero, zero
        pair = _first_pair(pair_row, graph * nodes)
        for row in range(0, sizes[graph], _ROWS):
            token, rows = starts[graph] + row, min(_ROWS, sizes[graph] - row)
            here = token * wide + head * width
            take_rows(query, here, wide, rows, width, queries, lanes)
            take_rows(grad, here, wide, rows, width, grads, lanes)
            sums_of_maxima(queries, 0, lanes, turned_keys, 0, columns, scores, 0, columns, rows, columns, width, factor)
            multiply(grads, 0, lanes, 1, turned_values, 0, columns, slopes, 0, columns, rows, columns, width)
            for i in range(rows):
                at, number = np.uint64(i * columns), (token + i) * heads + head
                share, offset, place = inverse[np.uint64(number)], np.uint64(number * width), np.uint64(i * lanes)
                mean = zero
                for c in range(np.uint64(0), channels):
                    mean += grads[place + c] * mixed[offset + c]
                of_constant -= mean * share
                begin, start = pair, no_number(queries, i * lanes, width)
                pair = _last_pair(pair, pair_row, graph * nodes + row + i)
                _add_pairs(begin, pair, heads, head, pair_slot, pair_mul, pair_add, factors, summands)
                if places.shape[0]:
                    place_at = (graph * nodes + row + i) * PLACE
                    distance_terms(
                        places, place_at, columns, spots, shares, hidden, maps, head, table, factors, summands
                    )
                for j in range(length):
                    moved[at + j] = scores[at + j] * factors[j] + (summands[j] + start)
                for j in range(length):
                    slope = zero if moved[at + j] <= zero else (slopes[at + j] - mean) * share
                    slopes[at + j] = slope
                    of_mul += slope * scores[at + j]
                    of_add += slope
                for j in range(length):
                    moved[at + j] = zero if moved[at + j] <= zero else moved[at + j] * share
                for earlier in range(begin, pair):
                    where, what = at + np.uint64(pair_slot[np.uint64(earlier)]), np.uint64(earlier * heads + head)
                    of_pair_add[what] = slopes[where]
                    of_pair_mul[what] = slopes[where] * scores[where]
                if places.shape[0]:
                    distance_gradients(
                        slopes, scores, i * columns, columns, shares, maps, head, table, of_own_maps, of_shares
                    )
                for j in range(length):
                    slopes[at + j] = slopes[at + j] * factors[j] * passed
                _forget_pairs(begin, pair, pair_slot, all_mul[head], all_add[head], factors, summands)
            add_product(ones, 0, 1, 1, slopes, 0, columns, totals, 0, columns, 1, columns, rows)
            add_product(moved, 0, 1, columns, grads, 0, lanes, of_values, 0, lanes, slots, lanes, rows)
            share_gradients(
                queries, 0, lanes, keys, 0, lanes, slopes, 0, columns, of_queries, of_keys, rows, lanes, slots
            )
            give_rows(of_queries, lanes, rows, width, of_query, here, wide)
        for j in range(slots):
            to, at = np.uint64(((graph * slots + j) * heads + head) * width), np.uint64(j * lanes)
            total = totals[np.uint64(j)] + totals[np.uint64(j)]
            filled = hidden[np.uint64(j)] == zero
            for c in range(np.uint64(0), channels):
                of_key[to + c] = total - of_keys[at + c]
            if leak.shape[0]:
                place = np.uint64((graph * slots + j) * heads + head)
                of_leak[place] = of_constant if filled else zero
        give_rows(of_values, lanes, slots, width, of_value, graph * slots * wide + head * width, wide)
        if places.shape[0]:
            give_rows(of_shares, 0, 1, slots, of_weight, item * slots, 0)
            give_rows(of_own_maps, 0, 1, MAPS, of_maps, item * MAPS, 0)
        of_all_mul[np.uint64(item)], of_all_add[np.uint64(item)] = of_mul, of_add


@cpu_kernel
def _clear_hidden(hidden: Array, slots: int, own: Array, apart: int) -> None:
    """Overwrite unfilled slots of `own [K, apart]`, which may contain NaN, with 0."""
    for j in range(slots):
        if hidden[np.uint64(j)] != 0:
            for c in range(np.uint64(j * apart), np.uint64((j + 1) * apart)):
                own[c] = 0


@cpu_kernel
def _take_columns(
    x: Array, graph: int, head: int, slots: int, heads: int, width: int, hidden: Array, own: Array, apart: int
) -> None:
    """Copy one head of a graph of `x [b, K, H, h]` to `own [h, apart]`, and 0 at hidden slots, even if NaN."""
    for j in range(slots):
        place = np.uint64(((graph * slots + j) * heads + head) * width)
        filled = hidden[np.uint64(j)] == 0
        for c in range(width):
            number = x[place + np.uint64(c)] if filled else x.dtype.type(0)
            own[np.uint64(c * apart + j)] = number


@cpu_kernel
def _take_slots(
    graph: int, head: int, slots: int, heads: int, width: int, leak: Array, mask: Flags, hidden: Array
) -> float:
    """Write minus infinity to `hidden [K]` for unfilled slots, else 0, and return the leak of the others."""
    constant = hidden.dtype.type(_EPSILON)
    for j in range(slots):
        filled = mask.shape[0] == 0 or mask[np.uint64(graph * slots + j)]
        hidden[np.uint64(j)] = 0.0 if filled else -np.inf
        if leak.shape[0] and filled:
            constant += leak[np.uint64((graph * slots + j) * heads + head)]
    return constant


@cpu_kernel
def _first_pair(pair_row: Integers, row: int) -> int:
    """Return the number of the first pair whose row is not before this one."""
    low, high = 0, pair_row.shape[0]
    while low < high:
        middle = (low + high) // 2
        if pair_row[np.uint64(middle)] < row:
            low = middle + 1
        else:
            high = middle
    return low


@cpu_kernel
def _last_pair(pair: int, pair_row: Integers, row: int) -> int:
    """Return the number after the last pair of a row, whose first pair is this one."""
    while pair < pair_row.shape[0] and pair_row[np.uint64(pair)] == row:
        pair += 1
    return pair


@cpu_kernel
def _set_terms(mul: float, add: float, hidden: Array, factors: Array, summands: Array) -> None:
    """Set factor and summand of a row's scores, without pairs."""
    for j in range(np.uint64(0), np.uint64(hidden.shape[0])):
        factors[j] = mul
    for j in range(np.uint64(0), np.uint64(hidden.shape[0])):
        summands[j] = add + hidden[j]


@cpu_kernel
def _add_pairs(
    begin: int,
    end: int,
    heads: int,
    head: int,
    pair_slot: Integers,
    pair_mul: Array,
    pair_add: Array,
    factors: Array,
    summands: Array,
) -> None:
    """Add the additional terms of some pairs."""
    for pair in range(begin, end):
        where, what = np.uint64(pair_slot[np.uint64(pair)]), np.uint64(pair * heads + head)
        factors[where] += pair_mul[what]
        summands[where] += pair_add[what]


@cpu_kernel
def _forget_pairs(
    begin: int, end: int, pair_slot: Integers, mul: float, add: float, factors: Array, summands: Array
) -> None:
    """Restore the terms of `_set_terms` at the slots of some pairs."""
    for pair in range(begin, end):
        where = np.uint64(pair_slot[np.uint64(pair)])
        factors[where], summands[where] = mul, add
