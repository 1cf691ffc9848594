"""Rows of sparse-flow attention on a CPU: formulas for sixteen rows at a time, from their scores to their flow.

Imported by the other kernels of this folder. The arithmetic and the notation are those of `blocks` and `sparse_flow`.
The numbers of rows stay in the fastest caches from their scores to their flow, and from the derivatives w.r.t. their
flow to those w.r.t. their scores. The same conditions define steep rows, which are marked; flow and derivatives are 0.

Scores are in units of log 2, so a softmax consists of powers of two. Their largest is subtracted only if the bound on
the logits is large, because any number near it is sufficient.
"""

from __future__ import annotations

import math

import numpy as np
from llvmlite import ir
from numpy.typing import NDArray

from graphbench_kernels.lanes_numba import Lanes, choose, larger, powers_of_two, root, smaller
from graphbench_kernels.products_numba import LANES
from graphbench_kernels.sfi_former.lanes_numba import Desk, in_all_rows, inlined, over_keys

Array = NDArray[np.floating]

#: Columns: S and g without their factors, and before that the scores of both kinds; in the backward pass they become
#: the derivatives w.r.t. the scores. The third contains the derivatives w.r.t. the flow, and then the flow itself.
WEIGHT, COST, FLOW, COLUMNS = range(4)
#: Numbers of rows that the backward pass needs: unit, level, slope and gain, the number subtracted from the scores and
#: the factor of their powers in S, the same from the friction's scores to g, and which rows are not solved here.
UNIT, LEVEL, SLOPE, GAIN, SHIFT, FACTOR, COST_SHIFT, COST_FACTOR, BOUNDED, MARK, STATE = range(11)
#: Given numbers: weights of the energy, the number of allowed keys and of all keys, limits of the dtype, the greatest
#: lengths of keys of both kinds, and the product of a row of the output with its gradient.
PENALTY, ALPHA, NUM_KEYS, LENGTH, TOLERANCE, STEEPEST, LONGEST, FRICTION_LONGEST, DOT = range(STATE, STATE + 9)
#: Intermediate ones.
_TOTAL, _INVERSES, _COST_TOTAL, _SLACK, _SCALE, _VOLUME, _FITS = range(DOT + 1, DOT + 8)
_WAITING, _SETTLED, _PASS, _NEAR, _DRY, _MEETS, _MEAN, _REST, _SHARE, _THROUGH = range(_FITS + 1, _FITS + 11)
_SIZE, _SQUARE, _FRICTION_SQUARE = range(_THROUGH + 1, _THROUGH + 4)
#: Results of the backward pass per row: dL/dpenalty and dL/d(log alpha).
OF_PENALTY, LEAK, ROWS = range(_FRICTION_SQUARE + 1, _FRICTION_SQUARE + 4)
#: Marks of rows that are not solved here: steep ones, and those without any key.
KEYLESS, STEEP = 1.0, 2.0
#: Score of a key that is not allowed, whose power is 0, and a number between it and all others.
CLOSED, _LOWEST = -1e30, -1e9
#: Newton passes after which a row is abandoned, in general and if its condition is too large.
_PASSES, _UNCHECKED = 24, 2
#: Size of logits from which a softmax may be 1 to within rounding, what is nearly 1, and keys up to which all hot rows
#: are steep: as in `blocks`.
_HOT, _NEAR_ONE, _FEW = 8.0, 0.9, 8.0
#: Size of logits up to which powers and their sums are normal numbers without subtracting the largest.
_MODERATE = 30.0


def _yes(condition: Lanes, desk: Desk) -> Lanes:
    """Return 1 where a condition is true, else 0: conditions are stored as numbers."""
    return choose(condition, desk.number(1.0), 0.0)


def _square(desk: Desk) -> tuple[Lanes, ...]:
    return (desk.column(0) * desk.column(0),)


#: Squared lengths of rows, whose numbers are in the place of keys.
square_rows = over_keys(_square, (), (_SQUARE,))
square_friction_rows = over_keys(_square, (), (_FRICTION_SQUARE,))


@in_all_rows
def _examine(desk: Desk) -> Lanes:
    """Write bounds on the logits, NaN where there are none; return whether powers or closed keys need them."""
    lengths = root(desk.row(_SQUARE)) * desk.row(LONGEST), root(desk.row(_FRICTION_SQUARE)) * desk.row(FRICTION_LONGEST)
    none = (lengths[0] - lengths[0]) + (lengths[1] - lengths[1])
    desk.put_row(_SIZE, larger(*lengths) + none)
    return ~((desk.row(_SIZE) <= _MODERATE) & (desk.row(NUM_KEYS) >= desk.row(LENGTH)))


def _scores(desk: Desk) -> tuple[Lanes, Lanes]:
    return desk.column(WEIGHT), desk.column(COST)


_find_largest = over_keys(_scores, (), (SHIFT, COST_SHIFT), larger)


@in_all_rows
def _choose_shifts(desk: Desk) -> Lanes:
    """Choose the shift of scores: the largest one if it may be large, never that of a closed key."""
    large = desk.row(_SIZE) > _MODERATE
    for kind in (SHIFT, COST_SHIFT):
        desk.put_row(kind, choose(large, larger(desk.row(kind), _LOWEST), 0.0))
    return large


def _bounded_power(desk: Desk, kind: int, shift: Lanes) -> tuple[Lanes, Lanes]:
    """Compute a power, 0 if it is not a normal number, and its inverse, infinite in this case but 0 at closed keys."""
    lowest = math.log2(desk.limits.tiny)
    x = desk.column(kind) - shift
    inside = x >= lowest
    power, inverse = powers_of_two(larger(x, lowest))
    outside = choose(x > _LOWEST, desk.number(math.inf), 0.0)
    return choose(inside, power, 0.0), choose(inside, inverse, outside)


def _powers(desk: Desk, power: Lanes, inverse: Lanes, cost: Lanes) -> tuple[Lanes, ...]:
    desk.put_column(WEIGHT, power)
    desk.put_column(COST, cost)
    return power, inverse, cost


def _plain_powers(desk: Desk) -> tuple[Lanes, ...]:
    return _powers(desk, *powers_of_two(desk.column(WEIGHT)), powers_of_two(desk.column(COST))[0])


def _bounded_powers(desk: Desk, shift: Lanes, cost_shift: Lanes) -> tuple[Lanes, ...]:
    return _powers(desk, *_bounded_power(desk, WEIGHT, shift), _bounded_power(desk, COST, cost_shift)[0])


_SUMS_OF_POWERS = (_TOTAL, _INVERSES, _COST_TOTAL)
_take_plain_powers = over_keys(_plain_powers, (), _SUMS_OF_POWERS)
_take_bounded_powers = over_keys(_bounded_powers, (SHIFT, COST_SHIFT), _SUMS_OF_POWERS)


def _cube_root_of_inverse(x: Lanes) -> Lanes:
    """Compute x^(-1/3) within a few percent: the bits of a number are its logarithm up to a factor and an offset."""
    builder, single = x.builder, isinstance(x.value.type.element, ir.FloatType)
    digits, bias, integer = (23, 127, ir.IntType(32)) if single else (52, 1023, ir.IntType(64))
    bits = ir.VectorType(integer, LANES)
    logarithm = Lanes(builder, builder.sitofp(builder.bitcast(x.value, bits), x.value.type))
    bits_of_root = logarithm * (-1 / 3) + (bias - 0.045) * 2.0**digits * (4 / 3)
    return Lanes(builder, builder.bitcast(builder.fptosi(bits_of_root.value, bits), x.value.type))


@in_all_rows
def _begin(desk: Desk) -> Lanes:
    """Write factors of S and g, and an initial level."""
    total, size, keys, penalty = desk.row(_TOTAL), desk.row(_SIZE), desk.row(NUM_KEYS), desk.row(PENALTY)
    factor, unit = 1.0 / total, 1.0 / (total * desk.row(_INVERSES))
    scale = _friction_scale(penalty, unit, desk)
    cost_factor, slack = scale / desk.row(_COST_TOTAL), unit / desk.row(ALPHA)
    fits = (keys > 0.0) & (size <= desk.row(STEEPEST)) & (unit >= desk.limits.tiny**0.7)
    guess = _cube_root_of_inverse(unit * keys * keys) * (penalty * keys + 1.0)
    for kind, value in (
        (FACTOR, factor),
        (UNIT, unit),
        (_SCALE, scale),
        (COST_FACTOR, cost_factor),
        (_SLACK, slack),
        (LEVEL, guess),
        (_FITS, _yes(fits, desk)),
        (_WAITING, _yes(fits, desk)),
        (_PASS, desk.number(0.0)),
    ):
        desk.put_row(kind, value)
    return fits


def _friction_scale(penalty: Lanes, unit: Lanes, desk: Desk) -> Lanes:
    """Return the scale g / F, as in `blocks`."""
    return smaller(larger(penalty / unit, desk.limits.eps**2), desk.limits.max**0.8)


def _water(desk: Desk, level: Lanes, cost_factor: Lanes) -> tuple[Lanes, ...]:
    gap, weight = level - cost_factor * desk.column(COST), desk.column(WEIGHT)
    open_weight = choose(gap > 0.0, weight, 0.0)
    return open_weight, open_weight * gap


_measure_water = over_keys(_water, (LEVEL, COST_FACTOR), (SLOPE, _VOLUME))


@in_all_rows
def _step(desk: Desk) -> Lanes:
    """Take a Newton step in rows that have not converged, as in `sparse_flow.water_level`; True while any moves."""
    level, slack, factor, number = desk.row(LEVEL), desk.row(_SLACK), desk.row(FACTOR), desk.row(_PASS)
    slope, volume = desk.row(SLOPE) * factor + slack, desk.row(_VOLUME) * factor
    step = (1.0 - volume - slack * level) / (slope * level)
    settled = larger(step, 0.0 - step) <= desk.row(TOLERANCE)
    ordinary = slope * level <= desk.row(STEEPEST) * 100.0  # false if NaN
    done = (ordinary & settled) | (~ordinary & (number >= float(_UNCHECKED)))
    waiting = (desk.row(_WAITING) > 0.0) & ~done
    # Steps are relative: a level stays above zero, and no pass multiplies it by more than 1,000.
    bounded = smaller(larger(step, -0.999), 999.0)
    for kind, value in (
        (SLOPE, slope),
        (_VOLUME, volume),
        (_SETTLED, _yes(settled, desk)),
        (_WAITING, _yes(waiting, desk)),
        (_PASS, number + 1.0),
        (LEVEL, choose(waiting, level + level * bounded, level)),
    ):
        desk.put_row(kind, value)
    return waiting


@in_all_rows
def _judge(desk: Desk) -> Lanes:
    """Determine whether rows are solved, and whether some of them are hot."""
    size = desk.row(_SIZE)
    steep = desk.row(SLOPE) * desk.row(LEVEL) * (size + 1.0)
    fits = (desk.row(_FITS) > 0.0) & (desk.row(_SETTLED) > 0.0) & (steep <= desk.row(STEEPEST))
    desk.put_row(_FITS, _yes(fits, desk))
    return fits & (size > _HOT)


def _heat(desk: Desk, level: Lanes, factor: Lanes, cost_factor: Lanes, unit: Lanes, scale: Lanes) -> tuple[Lanes, ...]:
    """Compute `_hot` and `_saturated` as in `blocks`."""
    w, g = desk.column(WEIGHT) * factor, desk.column(COST) * cost_factor
    gap = level - g
    nearly = (w > 0.0) & (unit > w * _NEAR_ONE) | (g > scale * _NEAR_ONE)
    return _yes(nearly, desk), _yes(gap <= 0.0, desk), choose((gap > 0.0) & (w > 0.0), gap, 0.0)


_look_for_saturation = over_keys(_heat, (LEVEL, FACTOR, COST_FACTOR, UNIT, _SCALE), (_NEAR, _DRY, _MEETS))


@in_all_rows
def _finish(desk: Desk) -> Lanes:
    """Write the state of the rows; for unsolved rows one without active keys."""
    level, volume, unit = desk.row(LEVEL), desk.row(_VOLUME), desk.row(UNIT)
    saturated = (desk.row(LENGTH) <= _FEW) | (desk.row(_DRY) <= 0.0) | (desk.row(_MEETS) * unit > volume * 0.01)
    hot = desk.row(_SIZE) > _HOT
    fits = (desk.row(_FITS) > 0.0) & ~(hot & (desk.row(_NEAR) > 0.0) & saturated)
    has_keys = _yes(desk.row(NUM_KEYS) > 0.0, desk)
    gain = (1.0 - desk.row(_SLACK) * level) / larger(volume, float(desk.limits.tiny))
    mark = has_keys * (STEEP - KEYLESS) + KEYLESS
    for kind, solved, else_value in (
        (UNIT, unit, 1.0),
        (LEVEL, level, -1.0),
        (SLOPE, desk.row(SLOPE), 1.0),
        (GAIN, gain, has_keys),
        (FACTOR, desk.row(FACTOR), 0.0),
        (COST_FACTOR, desk.row(COST_FACTOR), 0.0),
        (MARK, desk.number(0.0), mark),
    ):
        desk.put_row(kind, choose(fits, solved, else_value))
    return fits


def _flow(desk: Desk, level: Lanes, factor: Lanes, gain: Lanes, cost_factor: Lanes) -> tuple[Lanes, ...]:
    gap = level - cost_factor * desk.column(COST)
    desk.put_column(FLOW, choose(gap > 0.0, desk.column(WEIGHT) * gap * (gain * factor), 0.0))
    return ()


_pour = over_keys(_flow, (LEVEL, FACTOR, GAIN, COST_FACTOR))


@inlined
def take_powers(work: Array, columns: int, count: int, rows: int) -> None:
    """Convert scores to S and g without their factors, and compute their sums, according to the row BOUNDED."""
    bounded = work[rows + BOUNDED * LANES] > 0
    _take_plain_powers(work, columns, 0 if bounded else count, rows)
    if bounded:
        _take_bounded_powers(work, columns, count, rows)


@inlined
def solve(work: Array, columns: int, count: int, rows: int) -> None:
    """Compute flow and state of LANES rows from their scores.

    Args:
        work: contains all operands.
        columns: place of the columns; WEIGHT and COST contain the scores, FLOW receives the flow.
        count: keys K.
        rows: place of the numbers of rows.
    """
    bounded = _examine(work, rows)
    for lane in range(LANES):
        work[rows + BOUNDED * LANES + lane] = 1 if bounded else 0
    _find_largest(work, columns, count if bounded else 0, rows)
    _choose_shifts(work, rows)
    take_powers(work, columns, count, rows)
    waiting = _begin(work, rows)
    for _ in range(_PASSES):
        _measure_water(work, columns, count, rows)
        waiting = _step(work, rows)
        if not waiting:
            break
    hot = _judge(work, rows)
    _look_for_saturation(work, columns, count if hot else 0, rows)
    _finish(work, rows)
    _pour(work, columns, count, rows)


@in_all_rows
def _begin_back(desk: Desk) -> Lanes:
    slack = desk.row(UNIT) / desk.row(ALPHA)
    inside = larger(1.0 - slack * desk.row(LEVEL), float(desk.limits.eps))
    desk.put_row(_SLACK, slack)
    desk.put_row(_MEAN, desk.row(DOT) / inside)
    return desk.row(MARK) > 0.0


def _rest(desk: Desk, level: Lanes, cost_factor: Lanes, mean: Lanes) -> tuple[Lanes, ...]:
    gap = level - cost_factor * desk.column(COST)
    # Subtract a number near the mean first: otherwise the differences below would lose their digits.
    return (choose(gap > 0.0, desk.column(WEIGHT) * (desk.column(FLOW) - mean), 0.0),)


_sum_rest = over_keys(_rest, (LEVEL, COST_FACTOR, _MEAN), (_REST,))


@in_all_rows
def _share_rest(desk: Desk) -> Lanes:
    slope = desk.row(SLOPE)
    desk.put_row(_REST, (desk.row(_REST) * desk.row(FACTOR) - desk.row(_SLACK) * desk.row(_MEAN)) / slope)
    return slope > 0.0


def _push(
    desk: Desk, level: Lanes, cost_factor: Lanes, factor: Lanes, mean: Lanes, rest: Lanes
) -> tuple[Lanes, Lanes, Lanes, Lanes]:
    """Return S and the gap of an active key, dL/dg and g."""
    g = cost_factor * desk.column(COST)
    gap = level - g
    w = choose(gap > 0.0, desk.column(WEIGHT) * factor, 0.0)
    return w, gap, w * (rest - (desk.column(FLOW) - mean)), g


def _pushes(desk: Desk, level: Lanes, cost_factor: Lanes, factor: Lanes, mean: Lanes, rest: Lanes) -> tuple[Lanes, ...]:
    _, gap, push, g = _push(desk, level, cost_factor, factor, mean, rest)
    return push * g, push * gap


_sum_pushes = over_keys(_pushes, (LEVEL, COST_FACTOR, FACTOR, _MEAN, _REST), (_TOTAL, _THROUGH))


@in_all_rows
def _share_pushes(desk: Desk) -> Lanes:
    unit, total = desk.row(UNIT), desk.row(_TOTAL)
    scale = _friction_scale(desk.row(PENALTY), unit, desk)
    desk.put_row(OF_PENALTY, total / (scale * unit))  # 0 without a key, and replaced in steep rows
    desk.put_row(LEAK, (desk.row(_REST) + desk.row(_MEAN)) * desk.row(_SLACK) * desk.row(LEVEL))
    desk.put_row(_SHARE, total / scale * desk.row(COST_FACTOR))
    desk.put_row(_THROUGH, desk.row(_THROUGH) * unit / desk.row(FACTOR))
    return unit > 0.0


def _derivatives(
    desk: Desk,
    level: Lanes,
    cost_factor: Lanes,
    factor: Lanes,
    mean: Lanes,
    rest: Lanes,
    gain: Lanes,
    share: Lanes,
    through: Lanes,
    mark: Lanes,
) -> tuple[Lanes, ...]:
    """Replace the scores with derivatives w.r.t. them, and the derivatives w.r.t. the flow with the flow."""
    weight, cost, solved = desk.column(WEIGHT), desk.column(COST), mark <= 0.0
    w, gap, push, g = _push(desk, level, cost_factor, factor, mean, rest)
    rise = choose(weight > 0.0, through / weight, 0.0)  # 0 at keys that are not allowed
    desk.put_column(WEIGHT, choose(solved, (rise - push * gap) * gain, 0.0))
    desk.put_column(COST, choose(solved, push * g - cost * share, 0.0))
    desk.put_column(FLOW, w * gap * gain)
    return ()


_derive = over_keys(_derivatives, (LEVEL, COST_FACTOR, FACTOR, _MEAN, _REST, GAIN, _SHARE, _THROUGH, MARK))


@inlined
def derive(work: Array, columns: int, count: int, rows: int) -> None:
    """Convert derivatives w.r.t. the flow of LANES rows to those w.r.t. their scores, 0 in rows not solved here.

    Args:
        work: contains all operands.
        columns: place of the columns; WEIGHT and COST contain the scores and become the derivatives w.r.t. them,
            FLOW contains the derivatives w.r.t. the flow and becomes the flow.
        count: keys K.
        rows: place of the numbers of rows, with the state from `solve`, and DOT.
    """
    take_powers(work, columns, count, rows)
    _begin_back(work, rows)
    _sum_rest(work, columns, count, rows)
    _share_rest(work, rows)
    _sum_pushes(work, columns, count, rows)
    _share_pushes(work, rows)
    _derive(work, columns, count, rows)
