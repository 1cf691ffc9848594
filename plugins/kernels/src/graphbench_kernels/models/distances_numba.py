"""Relative terms from squared distances and products of normals, one row at a time, for `mixture_numba`.

They are computed when used, so nothing as large as the scores is stored. Arrays have one axis.

Legend: N rows of the largest graph, K slots of the sample, L the same rounded up to whole vectors, H heads.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from graphbench_kernels.running import cpu_kernel

Array = NDArray[np.float32]
Integers = NDArray[np.int64]

#: Numbers per node: three coordinates and the normal, padded with 0.
PLACE = 6
#: Numbers per head: maps of distance, product and 1 to a factor (before the softplus), and to a summand.
MAPS = 6
#: Rows of the table `[8, L]` that `distance_terms` passes to `distance_gradients`: distance and product at the sampled
#: token, the same at its partner, then an exponential and the softplus for both.
TABLE = 8

_ZERO, _HALF, _ONE, _TWO = np.float32(0), np.float32(0.5), np.float32(1), np.float32(2)
_LOWEST = np.float32(-126)
_LOG2_E = np.float32(1.44269504)


@cpu_kernel
def take_places(
    places: Array,
    graph: int,
    nodes: int,
    slots: int,
    columns: int,
    index: Integers,
    partner: Integers,
    weight: Array,
    own: Array,
    shares: Array,
) -> None:
    """Write the places of sampled tokens and of their partners to `own [2, PLACE, L]` and their weights to `shares`.

    Args:
        places: `[b, N, PLACE]`.
        graph: number of the graph.
        nodes: N.
        slots: K.
        columns: L.
        index: sampled tokens `[b, K]`.
        partner: `[b, K]`.
        weight: weight of the sampled tokens `[b, K]`.
        own: see above.
        shares: `[L]`.
    """
    for j in range(slots):
        at = np.uint64(graph * slots + j)
        shares[np.uint64(j)] = weight[at]
        first, second = (graph * nodes + index[at]) * PLACE, (graph * nodes + partner[at]) * PLACE
        for c in range(PLACE):
            own[np.uint64(c * columns + j)] = places[np.uint64(first + c)]
            own[np.uint64((PLACE + c) * columns + j)] = places[np.uint64(second + c)]


@cpu_kernel
def distance_terms(
    places: Array,
    at: int,
    columns: int,
    own: Array,
    shares: Array,
    hidden: Array,
    maps: Array,
    head: int,
    table: Array,
    factors: Array,
    summands: Array,
) -> None:
    """Write the factors of the scores of a row, and the summands added afterwards.

    Args:
        places: `[b, N, PLACE]`.
        at: start of the row's place.
        columns: L.
        own: see `take_places`.
        shares: see `take_places`.
        hidden: added to the summands `[L]`.
        maps: `[H, MAPS]`.
        head: head of the maps.
        table: see `TABLE`.
        factors: `[L]`.
        summands: `[L]`.
    """
    length, map_at = np.uint64(columns), np.uint64(head * MAPS)
    for part in range(2):
        of_part = np.uint64(part * PLACE * columns)
        to, end = np.uint64(2 * part * columns), np.uint64((4 + part) * columns)
        _squares(places, np.uint64(at), own, of_part, length, table, to)
        _products(places, np.uint64(at + 3), own, of_part + np.uint64(3) * length, length, table, to + length)
        _powers(table, to, length, maps, map_at, end)
        _softplus(table, to, length, maps, map_at, end, end + np.uint64(2) * length)
    one, two = np.uint64(6) * length, np.uint64(7) * length
    for j in range(length):
        factors[j] = table[two + j] + shares[j] * (table[one + j] - table[two + j])
    distance, product = maps[map_at + np.uint64(3)], maps[map_at + np.uint64(4)]
    constant = maps[map_at + np.uint64(5)]
    for j in range(length):
        first = distance * table[j] + product * table[length + j]
        second = distance * table[np.uint64(2) * length + j] + product * table[np.uint64(3) * length + j]
        summands[j] = second + shares[j] * (first - second) + constant + hidden[j]


@cpu_kernel
def distance_gradients(
    slopes: Array,
    scores: Array,
    at: int,
    columns: int,
    shares: Array,
    maps: Array,
    head: int,
    table: Array,
    of_maps: Array,
    of_shares: Array,
) -> None:
    """Add the contribution of a row to the gradients of its maps and the weights.

    Args:
        slopes: gradients of the scores with relative terms.
        scores: scores without relative terms.
        at: start of the row in both.
        columns: L.
        shares: see `take_places`.
        maps: `[H, MAPS]`.
        head: head of the maps.
        table: from `distance_terms` for this row; its exponentials are overwritten.
        of_maps: `[MAPS]`.
        of_shares: `[L]`.
    """
    length, map_at, start = np.uint64(columns), np.uint64(head * MAPS), np.uint64(at)
    _slopes(
        slopes, scores, start, shares, _ZERO, _ONE, table, np.uint64(0), length, maps, map_at, np.uint64(4) * length
    )
    second = np.uint64(2) * length
    _slopes(slopes, scores, start, shares, _ONE, -_ONE, table, second, length, maps, map_at, np.uint64(5) * length)
    for part in range(2):
        where, power = np.uint64(2 * part * columns), np.uint64((4 + part) * columns)
        distance, product, constant = _ZERO, _ZERO, _ZERO
        for j in range(length):
            distance += table[power + j] * table[where + j]
            product += table[power + j] * table[where + length + j]
            constant += table[power + j]
        of_maps[0] += distance
        of_maps[1] += product
        of_maps[2] += constant
        distance, product, constant = _ZERO, _ZERO, _ZERO
        base, sign = np.float32(part), np.float32(1 - 2 * part)
        for j in range(length):
            slope = slopes[start + j] * (base + sign * shares[j])
            distance += slope * table[where + j]
            product += slope * table[where + length + j]
            constant += slope
        of_maps[3] += distance
        of_maps[4] += product
        of_maps[5] += constant
    distance, product = maps[map_at + np.uint64(3)], maps[map_at + np.uint64(4)]
    one, two, third = np.uint64(6) * length, np.uint64(7) * length, np.uint64(3) * length
    for j in range(length):
        of_shares[j] += slopes[start + j] * (scores[start + j] * (table[one + j] - table[two + j]))
    for j in range(length):
        added = distance * (table[j] - table[second + j]) + product * (table[length + j] - table[third + j])
        of_shares[j] += slopes[start + j] * added


@cpu_kernel
def _squares(places: Array, at: int, own: Array, first: int, length: int, table: Array, to: int) -> None:
    x, y, z = places[at], places[at + np.uint64(1)], places[at + np.uint64(2)]
    second, third = first + length, first + length + length
    for j in range(length):
        a, b, c = x - own[first + j], y - own[second + j], z - own[third + j]
        table[to + j] = a * a + b * b + c * c


@cpu_kernel
def _products(places: Array, at: int, own: Array, first: int, length: int, table: Array, to: int) -> None:
    x, y, z = places[at], places[at + np.uint64(1)], places[at + np.uint64(2)]
    second, third = first + length, first + length + length
    for j in range(length):
        table[to + j] = x * own[first + j] + y * own[second + j] + z * own[third + j]


@cpu_kernel
def _powers(table: Array, at: int, length: int, maps: Array, map_at: int, to: int) -> None:
    """Compute `exp(-|u|)` of `u`, the mapped distance and product."""
    distance, product, constant = maps[map_at], maps[map_at + np.uint64(1)], maps[map_at + np.uint64(2)]
    for j in range(length):
        u = distance * table[at + j] + product * table[at + length + j] + constant
        table[to + j] = _power_of_two(-_LOG2_E * (u if u > _ZERO else -u))


@cpu_kernel
def _softplus(table: Array, at: int, length: int, maps: Array, map_at: int, power: int, to: int) -> None:
    """`log(1 + exp(u)) = max(u, 0) + log(1 + exp(-|u|))`; NaN stays NaN."""
    distance, product, constant = maps[map_at], maps[map_at + np.uint64(1)], maps[map_at + np.uint64(2)]
    for j in range(length):
        u = distance * table[at + j] + product * table[at + length + j] + constant
        table[to + j] = (_ZERO if u <= _ZERO else u) + _logarithm_of_one_and(table[power + j])


@cpu_kernel
def _slopes(
    slopes: Array,
    scores: Array,
    start: int,
    shares: Array,
    base: np.float32,
    sign: np.float32,
    table: Array,
    at: int,
    length: int,
    maps: Array,
    map_at: int,
    power: int,
) -> None:
    """Write the gradients of `u` over the exponentials; the weight is `base + sign share`."""
    distance, product, constant = maps[map_at], maps[map_at + np.uint64(1)], maps[map_at + np.uint64(2)]
    for j in range(length):
        u = distance * table[at + j] + product * table[at + length + j] + constant
        part = (_ONE if u > _ZERO else table[power + j]) / (_ONE + table[power + j])
        table[power + j] = part * (base + sign * shares[j]) * slopes[start + j] * scores[start + j]


@cpu_kernel
def _power_of_two(x: np.float32) -> np.float32:
    """Compute 2^x for `x <= 0` to about one unit in the last place, with a Chebyshev polynomial of degree 6."""
    bounded = x if x > _LOWEST else _LOWEST
    # Truncation is towards 0, so for x <= 0 this is the nearest integer; it is added to the exponent below.
    n = np.int32(bounded - _HALF)
    f = bounded - np.float32(n)
    p = np.float32(0.0001545318283)
    p = p * f + np.float32(0.001339088633)
    p = p * f + np.float32(0.009618082520)
    p = p * f + np.float32(0.05550357071)
    p = p * f + np.float32(0.2402265076)
    p = p * f + np.float32(0.6931471880)
    p = np.float32(p * f + _ONE)
    return np.int32(p.view(np.int32) + np.int32(n << np.int32(23))).view(np.float32)


@cpu_kernel
def _logarithm_of_one_and(x: np.float32) -> np.float32:
    """`log(1 + x) = 2 artanh(x / (2 + x))` for x in [0, 1], as a series: the next term is below rounding."""
    t = x / (_TWO + x)
    s = t * t
    p = np.float32(1 / 13)
    p = p * s + np.float32(1 / 11)
    p = p * s + np.float32(1 / 9)
    p = p * s + np.float32(1 / 7)
    p = p * s + np.float32(1 / 5)
    p = p * s + np.float32(1 / 3)
    return _TWO * t * (p * s + _ONE)
