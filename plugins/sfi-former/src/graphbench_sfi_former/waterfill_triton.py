"""The water level of every row on a graphics card: all Newton passes of a row in one program, in registers.

Imported by `waterfill` when its tensors lie on a device that Triton compiles for, and never else. Row by row it is the
same iteration; a row stops when it has settled, whatever the others do, and nobody asks the device in between.
"""

from __future__ import annotations

import torch
import triton
import triton.language as tl
from torch import Tensor

#: Keys that the registers of one program hold: 32 numbers of each of three kinds for 512 threads.
MOST_KEYS = 16384
_KEYS_PER_WARP = 256


def fill(
    weight: Tensor,
    cost: Tensor,
    slack: Tensor | None,
    guess: Tensor,
    flow: Tensor,
    tolerance: float,
    steepest: float,
    unchecked: int,
    passes: int,
) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """Level, slope, volume and whether they settled, `[..., 1]` each; see `waterfill.water_level`.

    Args:
        weight: widths `[..., K]`, contiguous.
        cost: floors `[..., K]`, contiguous.
        slack: `[..., 1]` or what broadcasts to it; None for none.
        guess: `[..., 1]`.
        flow: receives the flow `[..., K]`, contiguous.
        tolerance: relative step at which a row has settled.
        steepest: `slope * level` from which nobody waits for a row to settle.
        unchecked: passes before the first look.
        passes: passes at most.
    """
    num_keys = weight.shape[-1]
    level, slope, volume = weight.new_empty((3, *weight.shape[:-1], 1)).unbind(0)
    settled = torch.empty(level.shape, dtype=torch.uint8, device=level.device)
    if level.numel():
        own = guess.expand(level.shape).contiguous()
        overflow = own if slack is None else slack.expand(level.shape).contiguous()
        block = triton.next_power_of_2(num_keys)
        with torch.cuda.device_of(weight):
            _fill[(level.numel(),)](
                weight,
                cost,
                overflow,
                own,
                flow,
                level,
                slope,
                volume,
                settled,
                num_keys,
                tolerance,
                steepest,
                unchecked,
                passes,
                HAS_SLACK=slack is not None,
                BLOCK=block,
                num_warps=min(16, max(1, block // _KEYS_PER_WARP)),
            )
    return level, slope, volume, settled.bool()


@triton.jit
def _fill(
    weight: tl.tensor,
    cost: tl.tensor,
    slack: tl.tensor,
    guess: tl.tensor,
    flow: tl.tensor,
    levels: tl.tensor,
    slopes: tl.tensor,
    volumes: tl.tensor,
    settled: tl.tensor,
    num_keys: tl.tensor,
    tolerance: tl.tensor,
    steepest: tl.tensor,
    unchecked: tl.tensor,
    passes: tl.tensor,
    HAS_SLACK: tl.constexpr,
    BLOCK: tl.constexpr,
) -> None:
    """One row; `weight`, `cost` and `flow` are `[R, K]`, the others `[R]`."""
    row = tl.program_id(0).to(tl.int64)
    keys = tl.arange(0, BLOCK)
    place = row * num_keys + keys
    width = tl.load(weight + place, mask=keys < num_keys, other=0.0)
    floor = tl.load(cost + place, mask=keys < num_keys, other=0.0)
    level = tl.load(guess + row)
    one = tl.full((), 1.0, level.dtype)
    overflow = one * 0.0
    if HAS_SLACK:
        overflow = tl.load(slack + row)

    slope, volume, depth, step = one, one, floor, one * 0.0
    number, waiting = -1, True
    while waiting:
        number += 1
        level += level * tl.minimum(tl.maximum(step, -0.999), 999.0)
        depth = tl.maximum(level - floor, 0.0)
        slope = tl.sum(tl.where(level > floor, width, 0.0)) + overflow
        volume = tl.sum(width * depth)
        step = (one - volume - overflow * level) / slope / level
        unsettled = tl.abs(step) > tolerance and slope * level <= steepest
        waiting = number + 1 < passes and (number < unchecked or unsettled)

    tl.store(flow + place, width * depth, mask=keys < num_keys)
    tl.store(levels + row, level)
    tl.store(slopes + row, slope)
    tl.store(volumes + row, volume)
    tl.store(settled + row, tl.abs(step) <= tolerance)
