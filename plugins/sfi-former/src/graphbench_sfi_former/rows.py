"""From resistances and frictions of a block of rows to its flow: what `sparse_flow` and the fused attention share.

Let unit = 1 / sum_j (1 / r_j), the resistance of all links of a row in parallel, and S_i = unit / r_i, which sum to
one: the flow without friction, that is ordinary attention. Then z_i = max(mu - penalty f_i, 0) / r_i becomes

    z_i = S_i max(t - g_i, 0),    g_i = (penalty / unit) f_i,    sum_i S_i max(t - g_i, 0) + (unit / alpha) t = 1

with mu = unit t and a water level t (see `waterfill`), whose terms are all of order one whatever the resistances are.

Greatest error of a flow, against rational arithmetic on the same r and f (softmaxes of normal logits, 64 keys, penalty
1 / 64): 5e-8 in float32 and 6e-17 in float64 for logits of standard deviation 1; 7e-7 and 1e-15 for 3; 7e-3 and 3e-11
for 10, where keys far apart in resistance are nearly tied. Row sums are right to rounding in all cases.
"""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import Tensor

from graphbench_sfi_former.waterfill import Vessels, water_level

#: Slices of the matrices and of the rows of `[M, N, K]`.
Block = tuple[slice, slice]


class RowState(NamedTuple):
    """What the backward pass needs to know of the rows, `[M, N, 1]` each.

    Args:
        unit: parallel resistance.
        level: the water level t.
        slope: unit / alpha + sum of S over the active keys.
        gain: the flow divided by S max(t - g, 0): 1 up to rounding.
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


def solve_rows(
    weight: Tensor,
    cost: Tensor,
    unit: Tensor,
    alpha: Tensor | None,
    guess: Tensor,
    closed: Tensor | None,
    gap: Tensor,
    flow: Tensor,
) -> RowState:
    """Solve a block of rows.

    Args:
        weight: S `[m, n, K]`, rows sum to one.
        cost: g `[m, n, K]`, non-negative.
        unit: parallel resistance `[m, n, 1]`.
        alpha: `[m, 1, 1]`; None for the hard constraint.
        guess: a level to start from `[m, n, 1]`, positive.
        closed: rows without any key `[m, n, 1]` or `[m, 1, 1]`; None where there are none.
        gap: buffer `[m, n, K]`; its content is lost.
        flow: buffer `[m, n, K]`; receives S max(t - g, 0), the flow up to the gain of its row.

    Returns:
        State of the rows.
    """
    slack = None if alpha is None else unit / alpha
    level, slope, volume = water_level(Vessels(weight, cost, slack), guess, gap, flow)
    # The gain makes the row sum right to rounding even where `level` itself is too coarse a number for that.
    one = volume.new_ones(())
    inside = one if slack is None else torch.addcmul(one, slack, level, value=-1)
    gain = inside / volume.clamp_min_(torch.finfo(volume.dtype).tiny)  # finite where nothing flows
    if closed is not None:
        gain.masked_fill_(closed, 0.0)
        level.masked_fill_(closed, -1.0)  # below every cost: the backward pass finds no active key
    return RowState(unit, level, slope, gain)
