"""Softmax of a row of scores, with dropout and derivatives, in instructions for kernels in Numba.

Only imported by `attention_numba`. A row of a small graph has one or two vectors of numbers; Numba's own loops, one per
operation, would spend most of their time on starting and ending.

All numbers are float32. Rows have room for whole vectors; values after their end do not matter unless stated.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np
from llvmlite import ir
from numba import types
from numba.core import cgutils
from numpy.typing import NDArray

from graphbench_kernels.lanes_numba import Lanes, choose, larger, largest, powers_of_two, total
from graphbench_kernels.products_numba import LANES, everywhere, instruction
from graphbench_kernels.running import cpu_kernel

__all__ = ["derive_row", "find_top", "keep_row", "raise_row", "weigh_row"]

Array = NDArray[np.float32]
#: Random bits of each weight; empty without dropout.
Bits = NDArray[np.int16]

_INTEGER, _NUMBER = ir.IntType(64), ir.FloatType()
_VECTOR, _BITS = ir.VectorType(_NUMBER, LANES), ir.VectorType(ir.IntType(16), LANES)
_I, _F, _H = types.int64, types.float32, types.int16
_LANE = ir.VectorType(ir.IntType(32), LANES)(list(range(LANES)))
#: Below this a power of two is less than the smallest normal number, and treated as 0.
_LEAST_EXPONENT = -126.0


class _Row:
    """The vectors of a row.

    Args:
        builder: receives instructions.
        vectors: number of vectors.
        size: number of scores in them, if values after them matter.
    """

    def __init__(self, builder: Any, vectors: Any, size: Any = None) -> None:
        self.builder, self._vectors, self._size = builder, vectors, size

    @contextmanager
    def each(self) -> Iterator[Any]:
        """Repeat the instructions created within for the place of every vector in the row."""
        with cgutils.for_range(self.builder, self._vectors) as loop:
            yield self.builder.mul(loop.index, _INTEGER(LANES))

    def everywhere(self, number: Any) -> Lanes:
        """Return the number in all lanes."""
        return Lanes(self.builder, everywhere(self.builder, number))

    def within(self, place: Any) -> Lanes:
        """Mark the lanes of the vector at this place that contain scores."""
        rest = self.everywhere(self.builder.trunc(self.builder.sub(self._size, place), ir.IntType(32)))
        return Lanes(self.builder, self.builder.icmp_signed("<", _LANE, rest.value))

    def load(self, start: Any, at: Any, kind: Any = _VECTOR) -> Lanes:
        """Load the vector at a place in an array."""
        return Lanes(self.builder, self.builder.load(self._pointer(start, at, kind), align=_align(kind)))

    def store(self, lanes: Lanes, start: Any, at: Any) -> None:
        """Write it there."""
        self.builder.store(lanes.value, self._pointer(start, at, _VECTOR), align=_align(_VECTOR))

    def _pointer(self, start: Any, at: Any, kind: Any) -> Any:
        return self.builder.bitcast(self.builder.gep(start, [at]), kind.as_pointer())


class _Held:
    """Lanes that a loop modifies."""

    def __init__(self, row: _Row, begin: float) -> None:
        self._row, self._place = row, cgutils.alloca_once(row.builder, _VECTOR)
        row.builder.store(_VECTOR([begin] * LANES), self._place)

    @property
    def lanes(self) -> Lanes:
        """Return the current lanes."""
        return Lanes(self._row.builder, self._row.builder.load(self._place))

    @lanes.setter
    def lanes(self, lanes: Lanes) -> None:
        self._row.builder.store(lanes.value, self._place)


def _align(kind: Any) -> int:
    return 4 if kind is _VECTOR else 2


def _power(exponent: Lanes) -> Lanes:
    """Compute 2^x for x up to 0; NaN stays NaN."""
    least = exponent.same(_LEAST_EXPONENT)
    small = least > exponent
    return choose(small, exponent.same(0.0), powers_of_two(choose(small, least, exponent))[0])


def _left(row: _Row, powers: Lanes, kept: Lanes, bits: Any, at: Any, least: Any) -> Lanes:
    """Apply dropout to powers times a factor; `least` is None without dropout."""
    weights = powers * kept
    if least is None:
        return weights
    drawn = row.load(bits, at, _BITS)
    stays = row.builder.icmp_signed(">=", drawn.value, row.everywhere(least).value)
    return choose(Lanes(row.builder, stays), weights, 0.0)


def _find_top(builder: Any, scores: Any, at: Any, vectors: Any, size: Any, tops: Any, number: Any) -> None:
    """Write the largest score of a row, 0 if it is minus infinity, and hide values after the row's end.

    Args:
        builder: receives instructions.
        scores: scores of many rows.
        at: start of this row.
        vectors: number of vectors that it fills, the last one perhaps in part.
        size: number of its scores.
        tops: output for the largest score.
        number: number of the row in `tops`.
    """
    row = _Row(builder, vectors, size)
    best = _Held(row, -math.inf)
    with row.each() as place:
        score = choose(row.within(place), row.load(scores, builder.add(at, place)), -math.inf)
        row.store(score, scores, builder.add(at, place))
        best.lanes = larger(score, best.lanes)
    top = largest(best.lanes)
    top = builder.select(builder.fcmp_ordered("==", top, _NUMBER(-math.inf)), _NUMBER(0.0), top)
    builder.store(top, builder.gep(tops, [number]))


def _raise_row(
    builder: Any, scores: Any, at: Any, vectors: Any, unit: Any, tops: Any, shares: Any, number: Any
) -> None:
    """Replace the scores of a row by their powers `w_j = 2^(unit (s_j - top))`, and write the inverse of their sum.

    Multiplying differences in this order keeps more digits.

    Args:
        builder: receives instructions.
        scores: scores of many rows.
        at: start of this row.
        vectors: number of vectors that it fills.
        unit: factor of differences of scores.
        tops: the largest score of each row.
        shares: output for the inverse sum; 0 if all powers are 0, because all scores are minus infinity.
        number: number of the row, in both.
    """
    row = _Row(builder, vectors)
    top, scale = row.everywhere(builder.load(builder.gep(tops, [number]))), row.everywhere(unit)
    sums = _Held(row, 0.0)
    with row.each() as place:
        power = _power((row.load(scores, builder.add(at, place)) - top) * scale)
        row.store(power, scores, builder.add(at, place))
        sums.lanes = sums.lanes + power
    whole = total(sums.lanes)
    empty = builder.fcmp_ordered("==", whole, _NUMBER(0.0))
    share = builder.select(empty, _NUMBER(0.0), builder.fdiv(_NUMBER(1.0), whole))
    builder.store(share, builder.gep(shares, [number]))


find_top: Any = instruction(_find_top, None, _I, _I, _I, None, _I)
raise_row: Any = instruction(_raise_row, None, _I, _I, _F, None, None, _I)


def _keep(drops: bool) -> Any:
    """Create the instruction for `keep_row`."""

    def generate(builder: Any, powers: Any, at: Any, vectors: Any, kept: Any, *rest: Any) -> None:
        bits, bits_at, least, left = rest
        row = _Row(builder, vectors)
        factor = row.everywhere(kept)
        with row.each() as place:
            power = row.load(powers, builder.add(at, place))
            weights = _left(row, power, factor, bits, builder.add(bits_at, place), least if drops else None)
            row.store(weights, left, builder.add(at, place))

    return instruction(generate, None, _I, _I, _F, None, _I, _H, None)


def _weigh(drops: bool) -> Any:
    """Create the instruction for `weigh_row`."""

    def generate(builder: Any, scores: Any, before: Any, at: Any, vectors: Any, size: Any, *rest: Any) -> None:
        unit, top, share, bits, bits_at, least, factor, left, means, number = rest
        row = _Row(builder, vectors, size)
        dropped_share, dots = row.everywhere(builder.fmul(share, factor)), _Held(row, 0.0)
        lowest, scale = row.everywhere(top), row.everywhere(unit)
        with row.each() as place:
            here = builder.add(at, place)
            score = choose(row.within(place), row.load(scores, here), -math.inf)
            power = _power((score - lowest) * scale)
            weights = _left(row, power, dropped_share, bits, builder.add(bits_at, place), least if drops else None)
            row.store(power, scores, here)
            row.store(weights, left, here)
            dots.lanes = dots.lanes + weights * row.load(before, here)
        builder.store(builder.fmul(share, total(dots.lanes)), builder.gep(means, [number]))

    return instruction(generate, None, None, _I, _I, _I, _F, _F, _F, None, _I, _H, _F, None, None, _I)


def _derive_row(
    builder: Any, powers: Any, left: Any, before: Any, at: Any, vectors: Any, mean: Any, slopes: Any
) -> None:
    """Write the gradients of a row's scores, `l_j g_j - w_j mean`, without the factor of scores.

    Given the weights after dropout, `l_j = p_j d_j`, the gradient `p_j (d_j g_j - sum_i p_i d_i g_i)` does not need d.

    Args:
        builder: receives instructions.
        powers: powers w of many rows.
        left: their weights after dropout.
        before: gradients g of these.
        at: start of this row, in all of them.
        vectors: number of vectors that it fills.
        mean: from `weigh_row`.
        slopes: output for the gradients.
    """
    row = _Row(builder, vectors)
    shared = row.everywhere(mean)
    with row.each() as place:
        here = builder.add(at, place)
        slope = row.load(left, here) * row.load(before, here) - shared * row.load(powers, here)
        row.store(slope, slopes, here)


derive_row: Any = instruction(_derive_row, None, None, None, _I, _I, _F, None)


_keep_all, _keep_some, _weigh_all, _weigh_some = _keep(False), _keep(True), _weigh(False), _weigh(True)


@cpu_kernel
def keep_row(
    powers: Array,
    at: int,
    vectors: int,
    kept: np.float32,
    bits: Bits,
    bits_at: int,
    least: np.int16,
    left: Array,
) -> None:
    """Apply dropout to powers times a factor.

    Args:
        powers: powers of many rows.
        at: start of this row, in `powers` and `left`.
        vectors: number of vectors that it fills.
        kept: the factor.
        bits: random bits of each weight; empty without dropout.
        bits_at: start of the bits of this row.
        least: weights whose bits are below this are dropped.
        left: output.
    """
    if bits.shape[0]:
        _keep_some(powers, at, vectors, kept, bits, bits_at, least, left)
    else:
        _keep_all(powers, at, vectors, kept, bits, bits_at, least, left)


@cpu_kernel
def weigh_row(
    scores: Array,
    before: Array,
    at: int,
    vectors: int,
    size: int,
    unit: np.float32,
    top: np.float32,
    share: np.float32,
    bits: Bits,
    bits_at: int,
    least: np.int16,
    factor: np.float32,
    left: Array,
    means: Array,
    number: int,
) -> None:
    """Recompute `find_top`, `raise_row` and `keep_row`, and write `share sum_j l_j g_j` for `derive_row`.

    Args:
        scores: scores of many rows; replaced by powers.
        before: gradients g of the weights after dropout, 0 after the end of the row.
        at: start of the row, in these and `left`.
        vectors: number of vectors that it fills.
        size: number of its scores.
        unit: factor of differences of scores.
        top: the largest score.
        share: inverse sum of the powers.
        bits: random bits of each weight; empty without dropout.
        bits_at: start of the bits of this row.
        least: weights whose bits are below this are dropped.
        factor: factor of the remaining weights; 1 without dropout.
        left: output for l, the weights after dropout.
        means: output for the mean.
        number: number of the row in `means`.
    """
    if bits.shape[0]:
        _weigh_some(
            scores, before, at, vectors, size, unit, top, share, bits, bits_at, least, factor, left, means, number
        )
    else:
        _weigh_all(
            scores, before, at, vectors, size, unit, top, share, bits, bits_at, least, factor, left, means, number
        )
