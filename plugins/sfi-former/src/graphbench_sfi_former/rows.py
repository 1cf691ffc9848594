"""From softmaxes of a block of rows to its flow, for rows of ordinary size; others go to `steep`.

Let unit = 1 / sum_j (1 / r_j), the resistance of all links of a row in parallel, and S_i = unit / r_i, which sum to
one: the flow without friction, that is ordinary attention. Then z_i = max(mu - penalty f_i, 0) / r_i becomes

    z_i = S_i max(t - g_i, 0),    g_i = (penalty / unit) f_i,    sum_i S_i max(t - g_i, 0) + (unit / alpha) t = 1

with mu = unit t and a water level t (see `waterfill`). A flow is the difference t - g_i times S_i, and a derivative by
a logit of friction S_i g_i times another difference, so that rounding enters both multiplied by

    t (unit / alpha + sum over the active keys of S) = 1 + sum over the active keys of S g,

the condition of the row. Where condition times (1 + largest logit) exceeds `steepest`, r_i leaves the numbers that the
dtype can state, or the derivative of a saturated softmax counts, the row is steep: what is computed here is not used.
"""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import Tensor

from graphbench_sfi_former.waterfill import Vessels, water_level, where_positive

#: Slices of the matrices and of the rows of `[M, N, K]`.
Block = tuple[slice, slice]
#: What rounding may come to in ordinary rows, relative to the flow's largest possible value 1.
TOLERANCE = {torch.float32: 1e-3, torch.float64: 1e-9}
#: Size of logits from which a softmax may be 1 to within the rounding of a float32.
_HOT = 8.0
#: A softmax is nearly 1 from here on: its derivative, a multiple of what is left of 1, loses a digit or more.
_NEAR_ONE = 0.9
#: Keys up to which all hot rows are steep.
_FEW = 8


class RowState(NamedTuple):
    """What the backward pass needs to know of the rows, `[M, N, 1]` each.

    Args:
        unit: parallel resistance.
        level: the water level t; below all costs in rows without a key and in steep ones.
        slope: unit / alpha + sum of S over the active keys.
        gain: the flow divided by S max(t - g, 0): 1 up to rounding, 0 in rows without a key.
    """

    unit: Tensor
    level: Tensor
    slope: Tensor
    gain: Tensor

    @classmethod
    def empty(cls, num_matrices: int, num_rows: int, like: Tensor) -> RowState:
        """Uninitialised state of M matrices with N rows."""
        return cls(*like.new_empty(4, num_matrices, num_rows, 1).unbind(0))

    def cut(self, at: Block) -> RowState:
        """The part in this block, as views."""
        return self if covers(at, self.unit) else RowState(*(x[at] for x in self))

    def fill(self, at: Block, part: RowState) -> None:
        """Copy `part` to its place."""
        for whole, piece in zip(self.cut(at), part, strict=True):
            whole.copy_(piece)


def blocks(num_matrices: int, num_rows: int, num_keys: int, limit: int) -> list[Block]:
    """Blocks whose `[m, n, K]` part has `limit` numbers at most, but at least one row."""
    rows = max(1, min(num_rows, limit // max(1, num_keys)))
    matrices = max(1, limit // max(1, num_rows * num_keys))
    return [
        (slice(first, min(first + matrices, num_matrices)), slice(start, min(start + rows, num_rows)))
        for first in range(0, num_matrices, matrices)
        for start in range(0, num_rows, rows)
    ]


def covers(at: tuple[slice, ...], whole: Tensor) -> bool:
    """Whether the slices select all of `whole [M, N, ...]`: then no views are needed, which count at small sizes."""
    return all(part.stop - part.start == length for part, length in zip(at, whole.shape, strict=False))


def hot_rows(resistance: Tensor, total: Tensor, friction: Tensor, size: Tensor) -> Tensor | None:
    """Rows with large logits and a resistance or a friction that is nearly 1, `[m, n, 1]`; None where there is none.

    Args:
        resistance: r up to a factor `[m, n, K]`, 0 at keys that are not allowed.
        total: its sum `[m, n, 1]`.
        friction: F `[m, n, K]`.
        size: bound on the logits `[m, n, 1]`.
    """
    hot = size > _HOT
    if not bool(hot.any()):
        return None
    return hot & (torch.maximum(resistance.amax(-1, keepdim=True) / total, friction.amax(-1, keepdim=True)) > _NEAR_ONE)


def _saturated(cost: Tensor, level: Tensor, unit: Tensor, volume: Tensor, gap: Tensor, flow: Tensor) -> bool | Tensor:
    """Rows a part of whose flow meets a resistance near 1, the largest, or in which all keys are active, `[m, n, 1]`.

    There the derivative by the logit of the largest resistance or friction, whose softmax may be 1 to within rounding,
    can be a difference of equal numbers. With few keys this is the rule. `flow` holds the flow up to its gain, `volume`
    its sum, and `gap` is lost.
    """
    if cost.shape[-1] <= _FEW:
        return True
    torch.sub(level, cost, out=gap)
    all_active = gap.amin(-1, keepdim=True) > 0
    return all_active | (where_positive(flow, gap, out=gap).sum(-1, keepdim=True) * unit > 0.01 * volume)


def steepest(dtype: torch.dtype) -> float:
    """Condition times largest logit that a row of this dtype may have."""
    return TOLERANCE[dtype] / torch.finfo(dtype).eps


def solve_rows(
    weight: Tensor,
    cost: Tensor,
    unit: Tensor,
    alpha: Tensor | None,
    guess: Tensor,
    size: Tensor,
    hot: Tensor | None,
    closed: Tensor | None,
    gap: Tensor,
    flow: Tensor,
) -> tuple[RowState, Tensor]:
    """Solve a block of rows, but for the steep ones.

    Args:
        weight: S `[m, n, K]`, rows sum to one.
        cost: g `[m, n, K]`, non-negative; that of rows which are steep by their resistances is lost.
        unit: parallel resistance `[m, n, 1]`.
        alpha: `[m, 1, 1]`; None for the hard constraint.
        guess: a level to start from `[m, n, 1]`, positive.
        size: bound on the logits `[m, n, 1]`.
        hot: from `hot_rows`.
        closed: rows without any key `[m, n, 1]` or `[m, 1, 1]`; None where there are none.
        gap: buffer `[m, n, K]`; its content is lost.
        flow: buffer `[m, n, K]`; receives S max(t - g, 0), the flow up to the gain of its row.

    Returns:
        State of the rows, and numbers of the steep ones, counted over m and n, int64 `[R]`.
    """
    limits, steep_from = torch.finfo(unit.dtype), steepest(unit.dtype)
    out_of_range = ~(unit >= limits.tiny**0.7)
    if bool(out_of_range.any()):  # they would keep the passes going for all
        cost.masked_fill_(out_of_range, 0.0)
        guess, unit = guess.masked_fill(out_of_range, 1.0), unit.masked_fill(out_of_range, 1.0)
    slack = None if alpha is None else unit / alpha
    vessels = Vessels(weight, cost, slack)
    level, slope, volume, settled = water_level(vessels, guess, gap, flow, 100 * steep_from)
    # The gain makes the row sum right to rounding even where `level` itself is too coarse a number for that.
    one = volume.new_ones(())
    inside = one if slack is None else torch.addcmul(one, slack, level, value=-1)
    gain = inside / volume.clamp_min_(limits.tiny)  # finite where nothing flows
    steep = out_of_range | ~settled | ~(slope * level * (1 + size) <= steep_from)
    if hot is not None and bool(hot.any()):
        steep |= hot & _saturated(cost, level, unit, volume, gap, flow)
    if closed is not None:
        steep &= ~closed
        gain.masked_fill_(closed, 0.0)
        level.masked_fill_(closed, -1.0)  # below every cost: the backward pass finds no active key
    rows = steep.view(-1).nonzero().view(-1)
    if rows.numel():
        unit = unit.masked_fill(steep, 1.0)
        level, slope, gain = level.masked_fill(steep, -1.0), slope.masked_fill(steep, 1.0), gain.masked_fill(steep, 1.0)
    return RowState(unit, level, slope, gain), rows
