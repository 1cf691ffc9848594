"""The water level of every row: the one scalar equation behind an exact sparse flow.

Key i of a row is a vessel of width `weight_i >= 0` whose floor lies at height `cost_i >= 0`; water at level t stands
`max(t - cost_i, 0)` deep in it. Row by row we look for the level at which

    sum_i weight_i max(t - cost_i, 0) + slack t = 1.

The left side is convex, increasing and piecewise linear in t, so Newton's method (each step of it is one pass of the
active-set method) meets the exact level after finitely many passes: four or five for ordinary attention logits.

Every operation here writes into a buffer that the caller lends, so that a block of rows never leaves the cache. On a
graphics card the kernel of `waterfill_triton` makes all passes of a row at once.
"""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import Tensor

from graphbench.kernels import runs_triton

#: Passes before the first look at convergence: looking costs, and ordinary rows need at least as many.
_UNCHECKED = 2
#: Passes after which a row is given up.
_PASSES = 24
#: Numbers below which all rows go on together, because setting the settled ones apart costs more than it saves.
_FEW = 2**15


class Vessels(NamedTuple):
    """Rows of the equation, K keys each.

    Args:
        weight: widths `[..., K]`; each row has a positive one.
        cost: floors `[..., K]`.
        slack: slope of the overflow `[..., 1]`, positive; None where all water must stay in the vessels.
    """

    weight: Tensor
    cost: Tensor
    slack: Tensor | None

    def pick(self, rows: Tensor) -> Vessels:
        """Only the rows with these numbers (int64 `[n]`, counted over all leading dimensions)."""
        slack = None if self.slack is None else pick_rows(self.slack, rows)
        return Vessels(pick_rows(self.weight, rows), pick_rows(self.cost, rows), slack)


class Level(NamedTuple):
    """The solution, each `[..., 1]`.

    Args:
        level: t.
        slope: slope of the left side there; `slope * level` is one more than the costs that the flow pays, and so many
            times greater than the rounding of a number is that of the flow.
        volume: water in the vessels.
        settled: whether t is the level to within rounding.
    """

    level: Tensor
    slope: Tensor
    volume: Tensor
    settled: Tensor


def level_tolerance(dtype: torch.dtype) -> float:
    """Newton step, relative to the level, that is no more than rounding."""
    return 8 * torch.finfo(dtype).eps


def pick_rows(values: Tensor, rows: Tensor) -> Tensor:
    """Rows of `values [..., K]` with the given numbers, as `[n, K]`."""
    return values.view(-1, values.shape[-1]).index_select(0, rows)


def where_positive(condition: Tensor, values: Tensor, out: Tensor) -> Tensor:
    """`values` where `condition > 0`, else 0, in one pass: on a CPU ten times faster than with a boolean mask."""
    return torch.ops.aten.threshold_backward.grad_input(values, condition, 0.0, grad_input=out)


def water_level(
    vessels: Vessels, guess: Tensor, gap: Tensor, flow: Tensor, steepest: float, unchecked: int = _UNCHECKED
) -> Level:
    """Solve `sum_i weight_i max(t - cost_i, 0) + slack t = 1` for the level t of every row.

    Args:
        vessels: the rows.
        guess: first level `[..., 1]`, positive; any guess leads to the same answer, a near one sooner.
        gap: buffer `[..., K]`; its content is lost.
        flow: buffer `[..., K]`; receives `weight max(t - cost, 0)`.
        steepest: `slope * level` from which nobody waits for a row to settle.
        unchecked: Newton passes before convergence is looked at.

    Returns:
        Level, slope and volume of every row, and whether it settled.
    """
    level = guess
    tolerance = level_tolerance(guess.dtype)
    if runs_triton(guess.device):
        from graphbench_sfi_former import waterfill_triton

        if flow.shape[-1] <= waterfill_triton.MOST_KEYS:
            return Level(*waterfill_triton.fill(*vessels, guess, flow, tolerance, steepest, unchecked, _PASSES))
    one = guess.new_ones(())  # a tensor, because turning a Python number into one takes longer than the subtraction
    for number in range(_PASSES):
        slope, volume, step = _newton_step(vessels, level, gap, flow, one)
        if number >= unchecked:
            settled = step.abs() <= tolerance
            waiting = ~settled & (slope * level <= steepest)  # NaN compares False: nobody waits for it
            num_waiting = int(waiting.sum())
            if num_waiting == 0:
                break
        # Bounded above, because the step is infinite where nothing is under water yet, and below, because far above
        # the answer it is a difference of large numbers that may miss it by its own size.
        following = torch.addcmul(level, level, step.clamp_(-0.999, 999.0))
        if number >= unchecked and 4 * num_waiting <= waiting.numel() and gap.numel() > _FEW:
            rows = waiting.view(-1).nonzero().view(-1)
            solution = Level(level, slope, volume, settled)
            _settle(vessels, rows, pick_rows(following, rows), solution, flow, steepest)
            return solution
        if number < _PASSES - 1:
            level = following
    return Level(level, slope, volume, settled)


def _newton_step(
    vessels: Vessels, level: Tensor, gap: Tensor, flow: Tensor, one: Tensor
) -> tuple[Tensor, Tensor, Tensor]:
    """Slope and volume at `level [..., 1]` and the Newton step from there, relative to it; fills `flow`."""
    weight, cost, slack = vessels
    torch.sub(level, cost, out=gap)
    slope = where_positive(gap, weight, out=flow).sum(-1, keepdim=True)
    volume = flow.mul_(gap).sum(-1, keepdim=True)
    step = one - volume
    if slack is not None:
        slope.add_(slack)
        step.addcmul_(slack, level, value=-1)
    return slope, volume, step.div_(slope).div_(level)


def _settle(vessels: Vessels, rows: Tensor, guess: Tensor, solution: Level, flow: Tensor, steepest: float) -> None:
    """Solve the few rows that are left by themselves and write them into `solution` and `flow`."""
    part = vessels.pick(rows)
    part_flow = torch.empty_like(part.cost)
    part_solution = water_level(part, guess, torch.empty_like(part.cost), part_flow, steepest, unchecked=1)
    for whole, piece in zip((*solution, flow), (*part_solution, part_flow), strict=True):
        whole.view(-1, whole.shape[-1]).index_copy_(0, rows, piece)
