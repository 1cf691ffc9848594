"""Rows of sparse-flow attention on a processor: all that happens to a row between matrix products, in one kernel.

Imported by `native` when `runs_numba` says yes, and never else. It is the arithmetic of `fused`, `rows` and
`waterfill`, whose notation it shares, row by row: the numbers of a row stay in the first-level cache from its scores to
its flow, and from the derivatives by its flow to those by its scores. The same conditions make a row steep; such rows
are marked and left as they are.

Scores come in units of log 2, so that a softmax is made of powers of two. Their largest is taken away only where the
bound on the logits is large, and rounded, because any number near it will do.

Legend: M matrices (graphs times heads), N queries, K keys; rows are counted over M and N.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from graphbench.kernels import cpu_kernel
from graphbench_sfi_former.powers_numba import (
    Array,
    Mask,
    bounded_powers,
    bounded_powers_and_inverses,
    close_keys,
    inlined,
    plain_powers,
    plain_powers_and_inverses,
    rounded_largest,
)

#: Columns of the state of a row, `[M N, STATE]`: the fields of `RowState`, the number that was taken from the scores
#: and what their powers were multiplied by to give S, the same from the friction's scores to g, whether
#: their powers were taken as they are, and the bound on logits.
UNIT, LEVEL, SLOPE, GAIN, SHIFT, FACTOR, COST_SHIFT, COST_FACTOR, PLAIN, SIZE, STATE = range(11)
#: Columns of what the backward pass finds by row, `[M N, SUMS]`: dL/dpenalty and dL/d(log alpha).
OF_PENALTY, LEAK, SUMS = range(3)
#: Marks of rows that are not solved here: steep ones, and those without any key.
STEEP, KEYLESS = 1, 2
#: Numbers that depend on the dtype, in the order of `native._limits`.
_TOLERANCE, _STEEPEST, _LEAST_UNIT, _TINY, _EPS, _LEAST_SCALE, _MOST_SCALE, _LEAST_EXPONENT = range(8)
#: Newton passes after which a row is given up, and after which it is where its condition is too large.
_PASSES, _UNCHECKED = 24, 2
#: Size of logits from which a softmax may be 1 to within rounding, what is nearly 1, and keys up to which all hot rows
#: are steep: as in `rows`.
_HOT, _NEAR_ONE, _FEW = 8.0, 0.9, 8
#: Size of logits up to which powers and their sums are ordinary numbers without taking the largest away.
_MODERATE = 30.0


@inlined
def _water_level(
    weight: Array, factor: Any, cost: Array, cost_factor: Any, slack: Any, level: Any, limits: Array, count: int
) -> tuple[Any, Any, Any, bool]:
    """Level, slope, volume, and whether the level is right to within rounding, as `waterfill.water_level`."""
    zero, one = weight.dtype.type(0), weight.dtype.type(1)
    lowest, highest = weight.dtype.type(-0.999), weight.dtype.type(999.0)
    tolerance, steepest = limits[_TOLERANCE], weight.dtype.type(100) * limits[_STEEPEST]
    for number in range(_PASSES):
        slope, volume = zero, zero
        for j in range(count):
            gap = level - cost_factor * cost[j]
            w = weight[j] if gap > zero else zero
            slope += w
            volume += w * gap
        slope, volume = slope * factor + slack, volume * factor
        step = (one - volume - slack * level) / (slope * level)
        settled = abs(step) <= tolerance
        ordinary = slope * level <= steepest  # not where they are no numbers
        if (ordinary and settled) or (number >= _UNCHECKED and not ordinary) or number == _PASSES - 1:
            break
        level += level * min(max(step, lowest), highest)
    return level, slope, volume, settled


@inlined
def _saturated(
    weight: Array,
    factor: Any,
    cost: Array,
    cost_factor: Any,
    unit: Any,
    scale: Any,
    level: Any,
    volume: Any,
    few: bool,
    count: int,
) -> bool:
    """Whether a row with large logits is hot and saturated, as `rows.hot_rows` and `rows._saturated` tell."""
    zero, one = weight.dtype.type(0), weight.dtype.type(1)
    near_one, share = weight.dtype.type(_NEAR_ONE), weight.dtype.type(0.01)
    near, dry, meets = zero, zero, zero
    for j in range(count):
        w, g = weight[j] * factor, cost[j] * cost_factor
        gap = level - g
        nearly = (w > zero) & (unit > near_one * w) | (g > near_one * scale)
        near += one if nearly else zero
        dry += one if gap <= zero else zero
        meets += gap if (gap > zero) & (w > zero) else zero
    return near > zero and (few or dry == zero or meets * unit > share * volume)


@inlined
def _friction_scale(penalty: Any, unit: Any, limits: Array) -> Any:
    """As in `fused`."""
    return min(max(penalty / unit, limits[_LEAST_SCALE]), limits[_MOST_SCALE])


@inlined
def _solve_row(
    scores: Array,
    frictions: Array,
    item: int,
    num_keys: int,
    length: int,
    penalty: Any,
    alpha: Any,
    limits: Array,
    state: Array,
    row: int,
    weight: Array,
    cost: Array,
) -> bool:
    """From the scores of a row to its state, and to S and g without their factors; returns whether it can be used."""
    number = scores.dtype.type
    one, size, steepest, lowest = number(1), state[row, SIZE], limits[_STEEPEST], limits[_LEAST_EXPONENT]
    fits = num_keys > 0 and size <= steepest  # no condition is below 1
    plain = fits and size <= _MODERATE and num_keys == length
    plainly, else_count = length if plain else 0, length if fits and not plain else 0
    large = length if fits and size > _MODERATE else 0
    shift, cost_shift = rounded_largest(scores, item, large), rounded_largest(frictions, item, large)
    total, inverses = plain_powers_and_inverses(scores, item, weight, plainly)
    more, more_inverses = bounded_powers_and_inverses(scores, item, shift, lowest, weight, else_count)
    total, inverses = total + more, inverses + more_inverses
    factor, unit = one / total, one / (total * inverses)
    scale = _friction_scale(penalty, unit, limits)
    total = plain_powers(frictions, item, cost, plainly)
    total += bounded_powers(frictions, item, cost_shift, lowest, cost, else_count)
    cost_factor, slack, keys = scale / total, unit / alpha, number(num_keys)
    guess = (unit * keys * keys) ** number(-1 / 3) * (penalty * keys + one)
    fits = fits and unit >= limits[_LEAST_UNIT]
    count = length if fits else 0
    level, slope, volume, settled = _water_level(weight, factor, cost, cost_factor, slack, guess, limits, count)
    fits = fits and settled and slope * level * (one + size) <= steepest
    hot = length if size > _HOT and fits else 0
    few = length <= _FEW
    saturated = _saturated(weight, factor, cost, cost_factor, unit, scale, level, volume, few, hot)
    fits = fits and not saturated
    gain = (one - slack * level) / max(volume, limits[_TINY])
    if not fits:  # a level below every cost: no key is active
        unit, level, slope, gain = one, -one, one, number(num_keys > 0)
        factor, cost_factor = number(0), number(0)
    state[row, UNIT], state[row, LEVEL], state[row, SLOPE], state[row, GAIN] = unit, level, slope, gain
    state[row, SHIFT], state[row, FACTOR] = shift, factor
    state[row, COST_SHIFT], state[row, COST_FACTOR] = cost_shift, cost_factor
    state[row, PLAIN] = number(plain)
    return fits


@inlined
def _flow(weight: Array, cost: Array, state: Array, row: int, flow: Array, item: int, count: int) -> None:
    zero, level = weight.dtype.type(0), state[row, LEVEL]
    gain, cost_factor = state[row, GAIN] * state[row, FACTOR], state[row, COST_FACTOR]
    for j in range(count):
        gap = level - cost_factor * cost[j]
        flow[item, j] = weight[j] * gap * gain if gap > zero else zero


@inlined
def _fill(out: Array, item: int, number: Any, count: int) -> None:
    for j in range(count):
        out[item, j] = number


@inlined
def _multiply(out: Array, factors: Array, item: int, count: int) -> None:
    for j in range(count):
        out[item, j] *= factors[item, j]


@inlined
def _put(numbers: Array, out: Array, row: int, count: int) -> None:
    for j in range(count):
        out[row, j] = numbers[j]


@inlined
def _take(numbers: Array, row: int, out: Array, count: int) -> None:
    for j in range(count):
        out[j] = numbers[row, j]


@cpu_kernel
def solve_rows(
    first: int,
    last: int,
    start: int,
    scores: Array,
    frictions: Array,
    allowed: Mask,
    mask_of: NDArray[np.int64],
    energy: Array,
    limits: Array,
    state: Array,
    steep: NDArray[np.uint8],
    kept_weight: Array,
    kept_cost: Array,
    flow: Array,
) -> None:
    """Rows of a block from their scores to their flow.

    Args:
        first: row of the block to begin with.
        last: row to end before.
        start: number of the block's first row among all.
        scores: Q K^T over sqrt d and log 2, `[rows, K]`; keys are closed in them.
        frictions: Q~ K~^T likewise.
        allowed: masks `[L, N or 1, K]`; `[0, 0, 0]` without one.
        mask_of: number of the mask of each matrix, `[M]`.
        energy: penalty and alpha, infinite for the hard constraint, `[M, 2]`.
        limits: see `native._limits`.
        state: `[M N, STATE]`, of which SIZE is there and the others are set.
        steep: `[M N]`; becomes STEEP at steep rows, whose flow is not set, KEYLESS at those without any key, else 0.
        kept_weight: where S, without its factors, is kept for the backward pass, `[M N, K]`; `[0, 0]` for not.
        kept_cost: where g is kept likewise.
        flow: receives the flow `[rows, K]`; may be the memory of `scores`.
    """
    length, num_rows = scores.shape[1], state.shape[0] // energy.shape[0]
    masked, by_row, keeps = allowed.shape[0] > 0, allowed.shape[1] > 1, length if kept_weight.shape[0] > 0 else 0
    zero = scores.dtype.type(0)
    weight, cost = np.empty(length, scores.dtype), np.empty(length, scores.dtype)
    for item in range(first, last):
        row = start + item
        matrix = row // num_rows
        mask, mask_row, num_keys = mask_of[matrix] if masked else 0, row % num_rows if by_row else 0, length
        closable = close_keys(scores, frictions, item, allowed, mask, mask_row, length if masked else 0)
        num_keys = closable if masked else length
        penalty, alpha = energy[matrix, 0], energy[matrix, 1]
        fits = _solve_row(scores, frictions, item, num_keys, length, penalty, alpha, limits, state, row, weight, cost)
        steep[row] = 0 if fits else STEEP if num_keys > 0 else KEYLESS
        _flow(weight, cost, state, row, flow, item, length if fits else 0)
        _fill(flow, item, zero, length if num_keys == 0 else 0)
        _put(weight, kept_weight, row, keeps)
        _put(cost, kept_cost, row, keeps)


@inlined
def _dot(a: Array, b: Array, row: int) -> Any:
    total = a.dtype.type(0)
    for j in range(a.shape[1]):
        total += a[row, j] * b[row, j]
    return total


@inlined
def _derive_row(
    scores: Array,
    frictions: Array,
    upstream: Array,
    item: int,
    weight: Array,
    cost: Array,
    penalty: Any,
    alpha: Any,
    dot: Any,
    limits: Array,
    state: Array,
    sums: Array,
    row: int,
    count: int,
) -> None:
    """From S and g, without their factors, and u, in `upstream`, to the flow in its place and both derivatives."""
    zero, one = weight.dtype.type(0), weight.dtype.type(1)
    unit, level, slope, gain = state[row, UNIT], state[row, LEVEL], state[row, SLOPE], state[row, GAIN]
    factor, cost_factor, slack = state[row, FACTOR], state[row, COST_FACTOR], unit / alpha
    mean = dot / max(one - slack * level, limits[_EPS])
    rest = zero
    for j in range(count):
        w = weight[j] if level - cost_factor * cost[j] > zero else zero
        rest += w * (upstream[item, j] - mean)
    rest = (rest * factor - slack * mean) / slope
    total, through = zero, zero
    for j in range(count):
        g = cost_factor * cost[j]
        gap = level - g
        w = weight[j] * factor if gap > zero else zero
        push = w * (rest - (upstream[item, j] - mean))  # dL/dg
        by_cost, by_gap = push * g, push * gap
        total += by_cost
        through += by_gap
        frictions[item, j] = by_cost
        scores[item, j] = by_gap
        upstream[item, j] = w * gap * gain
    scale = _friction_scale(penalty, unit, limits)
    sums[row, OF_PENALTY] = total / (scale * unit)  # 0 without a key, and replaced in steep rows
    sums[row, LEAK] = (rest + mean) * slack * level
    share, through = total / scale * cost_factor, through * unit / factor
    for j in range(count):
        w = weight[j]
        rise = through / w if w > zero else zero  # none at keys that are not allowed
        scores[item, j] = (rise - scores[item, j]) * gain
        frictions[item, j] -= cost[j] * share


@cpu_kernel
def derive_rows(
    first: int,
    last: int,
    start: int,
    scores: Array,
    frictions: Array,
    upstream: Array,
    keep: Array,
    allowed: Mask,
    mask_of: NDArray[np.int64],
    energy: Array,
    limits: Array,
    state: Array,
    steep: NDArray[np.uint8],
    kept_weight: Array,
    kept_cost: Array,
    output: Array,
    output_grad: Array,
    sums: Array,
) -> None:
    """Rows of a block from the derivatives by their flow to those by their scores; steep ones are left alone.

    Args:
        first: row of the block to begin with.
        last: row to end before.
        start: number of the block's first row among all.
        scores: as `solve_rows` got them, or anything where S and g were kept; become dL/d(Q K^T / sqrt d).
        frictions: likewise; become dL/d(Q~ K~^T / sqrt d).
        upstream: derivatives by what V is multiplied with `[rows, K]`; becomes the flow, with dropout's factors.
        keep: dropout's factors `[rows, K]`; `[0, 0]` without dropout.
        allowed: as in `solve_rows`, like all up to `kept_cost`, of which nothing is changed.
        mask_of: as there.
        energy: as there.
        limits: as there.
        state: as it was left.
        steep: as it was left.
        kept_weight: as it was left.
        kept_cost: as it was left.
        output: of the attention `[M N, d_v]`.
        output_grad: its gradient `[M N, d_v]`.
        sums: `[M N, SUMS]`; is set, but for steep rows.
    """
    length, num_rows = scores.shape[1], state.shape[0] // energy.shape[0]
    masked, by_row = allowed.shape[0] > 0, allowed.shape[1] > 1
    drops, keeps = keep.shape[0] > 0, kept_weight.shape[0] > 0
    zero, lowest = scores.dtype.type(0), limits[_LEAST_EXPONENT]
    weight, cost = np.empty(length, scores.dtype), np.empty(length, scores.dtype)
    for item in range(first, last):
        row = start + item
        matrix, none = row // num_rows, length if steep[row] == KEYLESS else 0
        _fill(scores, item, zero, none)
        _fill(frictions, item, zero, none)
        _fill(upstream, item, zero, none)
        count, plain = 0 if steep[row] else length, state[row, PLAIN] > zero
        again, dropped = 0 if keeps else count, count if drops else 0
        mask, mask_row = mask_of[matrix] if masked else 0, row % num_rows if by_row else 0
        close_keys(scores, frictions, item, allowed, mask, mask_row, again if masked else 0)
        plainly, else_count = again if plain else 0, 0 if plain else again
        plain_powers(scores, item, weight, plainly)
        plain_powers(frictions, item, cost, plainly)
        bounded_powers(scores, item, state[row, SHIFT], lowest, weight, else_count)
        bounded_powers(frictions, item, state[row, COST_SHIFT], lowest, cost, else_count)
        _take(kept_weight, row, weight, count if keeps else 0)
        _take(kept_cost, row, cost, count if keeps else 0)
        _multiply(upstream, keep, item, dropped)
        penalty, alpha = energy[matrix, 0], energy[matrix, 1]
        dot = _dot(output, output_grad, row)
        _derive_row(
            scores, frictions, upstream, item, weight, cost, penalty, alpha, dot, limits, state, sums, row, count
        )
        _multiply(upstream, keep, item, dropped)
