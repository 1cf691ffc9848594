"""The water level of every row on a GPU: all Newton steps of a row in one program, in registers.

Each row runs the iteration of `sparse_flow.water_level` and stops once it has converged, independently of the others
and without synchronising with the device.
"""

from __future__ import annotations

import torch
import triton
import triton.language as tl
from torch import Tensor

_STEPS = 16
_KEYS_PER_WARP = 256


def water_level(weight: Tensor, cost: Tensor, slack: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """Compute `graphbench_sfi_former::water_level`."""
    num_keys, shape = weight.shape[-1], (*weight.shape[:-1], 1)
    level, slope = weight.new_empty((2, *shape)).unbind(0)
    settled = torch.empty(shape, dtype=torch.uint8, device=level.device)
    if level.numel():
        block = triton.next_power_of_2(num_keys)
        with torch.cuda.device_of(weight):
            _fill[(level.numel(),)](
                weight.contiguous(),
                cost.contiguous(),
                slack.expand(shape).contiguous(),
                level,
                slope,
                settled,
                num_keys,
                8 * torch.finfo(weight.dtype).eps,
                _STEPS,
                BLOCK=block,
                num_warps=min(16, max(1, block // _KEYS_PER_WARP)),
            )
    return level, slope, settled.bool()


@triton.jit
def _fill(
    weight: tl.tensor,
    cost: tl.tensor,
    slack: tl.tensor,
    levels: tl.tensor,
    slopes: tl.tensor,
    settled: tl.tensor,
    num_keys: tl.tensor,
    tolerance: tl.tensor,
    steps: tl.tensor,
    BLOCK: tl.constexpr,
) -> None:
    """Solve one row; `weight` and `cost` are `[R, K]`, the others `[R]`."""
    row = tl.program_id(0).to(tl.int64)
    keys = tl.arange(0, BLOCK)
    place = row * num_keys + keys
    width = tl.load(weight + place, mask=keys < num_keys, other=0.0)
    floor = tl.load(cost + place, mask=keys < num_keys, other=0.0)
    overflow = tl.load(slack + row)

    # The lower of two levels above the solution, from which Newton's steps descend (see `sparse_flow.water_level`).
    together = (1.0 + tl.sum(width * floor)) / (tl.sum(width) + overflow)
    following = tl.minimum(together, tl.min(tl.where(width > 0.0, floor + 1.0 / width, float("inf"))))
    level, slope, step = following, following, following
    number, waiting = 0, True
    while waiting:
        number += 1
        level = following
        # Summed sequentially: with the depths computed before the slope, ptxas runs out of registers for long rows.
        slope = tl.sum(tl.where(level > floor, width, 0.0)) + overflow
        volume = tl.sum(width * tl.maximum(level - floor, 0.0))
        step = (1.0 - volume - overflow * level) / slope
        following = level + step
        # Except for rounding no step leads up, so the first one that is not clearly downwards is the last.
        waiting = number < steps and step < -tolerance * level

    tl.store(levels + row, level)
    tl.store(slopes + row, slope)
    tl.store(settled + row, tl.abs(step) <= tolerance * level)
