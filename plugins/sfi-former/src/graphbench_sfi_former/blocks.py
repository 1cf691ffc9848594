"""Ordinary rows of sparse-flow attention in plain torch, computed by blocks and recomputed in the backward pass.

Autograd differentiates everything except the choice of the level, which needs no separate derivative (see
`sparse_flow`). A block is as large as the cache of a CPU, so its dozens of operations cost little more than their
arithmetic, and no `[N, K]` tensor outlives it. Only the projections and one level per row are kept.

A row is steep, and left to `steep`, if its condition times (1 + largest logit) is too large for the dtype, if a
resistance is outside the range of the dtype, or if the derivative of a saturated softmax matters.

| operation | plain form | kernels of `graphbench-kernels` |
|---|---|---|
| `graphbench_sfi_former::water_level` | in `sparse_flow` | GPUs, in Triton |
| `graphbench_sfi_former::attend_rows` | here | CPUs, in Numba |

Legend: M matrices (graphs times heads), N queries, K keys, d head width; m and n: those of a block.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import Any, NamedTuple

import torch
from torch import Tensor

from graphbench.contracts.kernels import operation
from graphbench_sfi_former.sparse_flow import flow_at, water_level, where_positive

#: Slices of the matrices and of the rows of `[M, N, K]`.
Block = tuple[slice, slice]
#: A block, its allowed keys `[m, n or 1, K]` and factors of dropout `[m, n, K]`.
Piece = tuple[Block, Tensor | None, Tensor | None]
#: Numbers of an `[m, n, K]` tensor on a CPU, and on other devices.
BLOCK, BLOCK_ELSEWHERE = 2**18, 2**24
#: Allowed rounding error in ordinary rows, relative to the flow's largest possible value 1.
TOLERANCE = {torch.float32: 1e-3, torch.float64: 1e-9}
#: Size of logits from which a softmax may be 1 to within the rounding of a float32.
_HOT = 8.0
#: Above this a softmax is nearly 1: its derivative, a multiple of its difference from 1, loses a digit or more.
_NEAR_ONE = 0.9
#: Number of keys up to which all hot rows are steep.
_FEW = 8


class Operands(NamedTuple):
    """Operands of attention, or their gradients; None for a gradient that is not needed.

    Args:
        query: Q `[M, N, d]`.
        key: K `[M, K, d]`.
        friction_query: Q~ `[M, N, d~]`.
        friction_key: K~ `[M, K, d~]`.
        value: V `[M, K, d_v]`.
        penalty: weight of the friction `[M, 1, 1]`, float64.
        alpha: weight of the unit inflow `[M, 1, 1]`, float64; None for rows that sum to one.
    """

    query: Tensor
    key: Tensor
    friction_query: Tensor
    friction_key: Tensor
    value: Tensor
    penalty: Tensor
    alpha: Tensor | None

    def cut(self, at: Block) -> Operands:
        """Return the part in a block, as views."""
        with_rows = (True, False, True, False, False, False, False)
        parts = zip(self, with_rows, strict=True)
        return Operands(*(None if x is None else x[at] if rows else x[at[0]] for x, rows in parts))  # type: ignore[arg-type]


@operation("graphbench_sfi_former")
def attend_rows(
    query: Tensor,
    key: Tensor,
    friction_query: Tensor,
    friction_key: Tensor,
    value: Tensor,
    penalty: Tensor,
    alpha: Tensor | None,
    masks: Tensor | None,
    mask_of: Tensor | None,
    dropout: float,
    seed: int,
) -> tuple[Tensor, Tensor]:
    """Compute sparse-flow attention in all rows except the steep ones, and return which rows are steep.

    Args:
        query: Q `[M, N, d]`, float32 or float64.
        key: K `[M, K, d]`.
        friction_query: Q~ `[M, N, d~]`.
        friction_key: K~ `[M, K, d~]`.
        value: V `[M, K, d_v]`.
        penalty: `[M, 1, 1]`, float64.
        alpha: `[M, 1, 1]`, float64; None for rows that sum to one.
        masks: allowed keys `[L, N or 1, K]`; None for all.
        mask_of: number of the mask of each matrix `[M]`.
        dropout: probability of dropping an attention weight.
        seed: seed of dropout.

    Returns:
        Output `[M, N, d_v]`, undefined in steep rows, and which rows are steep, bool `[M, N]`.
    """
    tensors = (query, key, friction_query, friction_key, value, penalty, alpha)
    output_and_steep: tuple[Tensor, Tensor] = _Blocks.apply((masks, mask_of, dropout, seed), *tensors)
    return output_and_steep


class _Blocks(torch.autograd.Function):
    """`attend_block` for all blocks; the backward pass reruns it with the levels of the forward pass."""

    @staticmethod
    def forward(ctx: Any, options: tuple[Any, ...], *tensors: Tensor) -> tuple[Tensor, Tensor]:
        """Return output `[M, N, d_v]` and steep rows `[M, N]`; options: masks, their numbers, dropout and its seed."""
        operands = Operands(*tensors)
        query, value = operands.query, operands.value
        output = query.new_empty(*query.shape[:2], value.shape[-1])
        levels = query.new_empty(*query.shape[:2], 1)
        steep = torch.empty(query.shape[:2], dtype=torch.bool, device=query.device)
        for at, allowed, keep in blocks(operands, *options):
            output[at], levels[at], steep_here = attend_block(operands.cut(at), allowed, keep)
            steep[at] = torch.zeros_like(steep[at]) if steep_here is None else steep_here
        ctx.save_for_backward(levels, *tensors)
        ctx.options = options
        ctx.mark_non_differentiable(steep)
        return output, steep

    @staticmethod
    def backward(ctx: Any, upstream: Tensor, _: Tensor) -> tuple[Tensor | None, ...]:
        """Return gradients of the seven tensors; differentiable if autograd records this."""
        levels, *tensors = ctx.saved_tensors
        operands = Operands(*tensors)
        pieces = blocks(operands, *ctx.options)
        return (None, *block_gradients(pieces, operands, levels, upstream, ctx.needs_input_grad[1:]))


def block_gradients(
    pieces: Iterable[Piece], operands: Operands, levels: Tensor | None, upstream: Tensor, wanted: Sequence[bool]
) -> Operands:
    """Compute gradients of the operands by rerunning all blocks.

    Args:
        pieces: the blocks, with their masks and factors of dropout.
        operands: operands of all blocks.
        levels: levels `[M, N, 1]`; None to recompute them.
        upstream: gradient of the output `[M, N, d_v]`.
        wanted: which of the seven gradients to compute.

    Returns:
        Gradients, None for those that are not wanted; differentiable if autograd records this.
    """
    twice = torch.is_grad_enabled()
    zeros = (x.new_zeros(x.shape) if x is not None and want else None for x, want in zip(operands, wanted, strict=True))
    grads = Operands(*zeros)  # type: ignore[arg-type]
    with torch.enable_grad(), torch.autocast(upstream.device.type, enabled=False):  # may run inside autocast
        for at, allowed, keep in pieces:
            part = operands.cut(at)
            # Detached blocks free their graph at once; otherwise all graphs live until the second backward pass.
            if not twice:
                part = Operands(*(x if x is None else x.detach().requires_grad_() for x in part))  # type: ignore[arg-type]
            output = attend_block(part, allowed, keep, None if levels is None else levels[at])[0]
            leaves = [x for x, want in zip(part, wanted, strict=True) if want and x is not None]
            gradients = torch.autograd.grad(output, leaves, upstream[at], create_graph=twice)
            for total, gradient in zip((x for x in grads.cut(at) if x is not None), gradients, strict=True):
                total += gradient
    return grads


def attend_block(
    part: Operands, allowed: Tensor | None, keep: Tensor | None, level: Tensor | None = None
) -> tuple[Tensor, Tensor, Tensor | None]:
    """Attend in one block.

    Args:
        part: operands of the block.
        allowed: allowed keys `[m, n or 1, K]`; None for all.
        keep: factors of dropout `[m, n, K]`; None without dropout.
        level: water levels `[m, n, 1]`, negative in rows that are not solved here; None to compute them.

    Returns:
        Output `[m, n, d_v]`, levels, and steep rows `[m, n]` (None if levels are given).
    """
    query, key, friction_query, friction_key, value, penalty, alpha = part
    wall = None if allowed is None else query.new_zeros(allowed.shape).masked_fill_(~allowed, torch.inf)
    # Equation (11) in the notation of `sparse_flow`: S = unit / r, F, g = penalty F / unit and the slack.
    weight, unit = _Conductances.apply(_scores(query, key, wall), wall)
    share = _scores(friction_query, friction_key, wall).softmax(-1)
    # Clamped, since an infinite factor times a friction of 0 would be NaN.
    most = torch.finfo(query.dtype).max ** 0.8
    cost = share * (penalty / unit).clamp_max(most).to(unit.dtype)
    slack = torch.zeros_like(unit) if alpha is None else (unit / alpha).to(unit.dtype)
    steep = None
    if level is None:
        size = torch.maximum(logit_bound(query, key), logit_bound(friction_query, friction_key))
        level, steep = _find_level(weight, unit, share, cost, slack, size, wall)
    flow = flow_at(weight, cost, slack.masked_fill(level < 0, 1.0), level)
    return (flow if keep is None else flow * keep) @ value, level, steep


class _Conductances(torch.autograd.Function):
    """Map scores s to weights unit / r with r = softmax(-s), and to the unit, a constant for autograd."""

    @staticmethod
    def forward(ctx: Any, scores: Tensor, wall: Tensor | None) -> tuple[Tensor, Tensor]:
        """Return S `[m, n, K]`, which is softmax(s), and unit `[m, n, 1]`, 1 in rows without a key."""
        weight = scores.softmax(-1)
        # sum_i r_i = 1 and r_i = unit / S_i give the unit without a second softmax, of -s.
        unit = 1 / _resistances(weight, wall).reciprocal_().sum(-1, keepdim=True)
        if wall is not None:
            unit.clamp_max_(1.0)
        ctx.save_for_backward(weight, unit, wall)
        ctx.mark_non_differentiable(unit)
        return weight, unit

    @staticmethod
    def backward(ctx: Any, upstream: Tensor, _: Tensor) -> tuple[Tensor, None]:
        """Use d(log r_i) = -ds_i + sum_j r_j ds_j."""
        weight, unit, wall = ctx.saved_tensors
        of_log = upstream * weight
        # S equals softmax(s), but this is not softmax's gradient: the unit is held constant (see `sparse_flow`).
        resistance = unit / _resistances(weight, wall)
        return of_log - resistance * of_log.sum(-1, keepdim=True), None


def _resistances(weight: Tensor, wall: Tensor | None) -> Tensor:
    """Raise S to the smallest value that can be inverted, and to infinity at keys that are not allowed."""
    bounded = weight.clamp_min(torch.finfo(weight.dtype).tiny ** 0.8)
    return bounded if wall is None else bounded + wall


def _scores(query: Tensor, key: Tensor, wall: Tensor | None) -> Tensor:
    """Compute `Q K^T / sqrt d`, very negative but finite at keys that are not allowed."""
    lowest = query.new_zeros(()) if wall is None else -wall.clamp_max(torch.finfo(wall.dtype).max ** 0.8)
    return torch.baddbmm(lowest, query, key.transpose(1, 2), alpha=query.shape[-1] ** -0.5)


@torch.no_grad()
def _find_level(
    weight: Tensor, unit: Tensor, share: Tensor, cost: Tensor, slack: Tensor, size: Tensor, wall: Tensor | None
) -> tuple[Tensor, Tensor]:
    """Find the water levels `[m, n, 1]`, negative in steep rows and those without a key, and the steep rows `[m, n]`.

    Args:
        weight: S `[m, n, K]`.
        unit: parallel resistance `[m, n, 1]`.
        share: F `[m, n, K]`.
        cost: g `[m, n, K]`.
        slack: `[m, n, 1]`.
        size: bound on the logits `[m, n, 1]`.
        wall: infinity at keys that are not allowed, else 0.
    """
    limits = torch.finfo(unit.dtype)
    steepest = TOLERANCE[unit.dtype] / limits.eps
    level, slope, settled = water_level(weight, cost, slack)
    # A logit of size L and, relatively, its weight have an error of up to eps L. NaN fails all tests, hence `~`.
    steep = ~settled | ~(slope * level * (1 + size) <= steepest) | ~(unit >= limits.tiny**0.7)
    steep |= _hot(weight, unit, share, size, wall) & _saturated(weight, unit, cost, level, slack)
    if wall is not None:
        closed = wall.amin(-1, keepdim=True) > 0
        return level.masked_fill(steep | closed, -1.0), (steep & ~closed)[..., 0]
    return level.masked_fill(steep, -1.0), steep[..., 0]


def _hot(weight: Tensor, unit: Tensor, share: Tensor, size: Tensor, wall: Tensor | None) -> Tensor:
    """Mark the rows `[m, n, 1]` with large logits and a resistance or a friction that is nearly 1."""
    # r_i = unit / S_i, so the largest resistance belongs to the smallest S.
    lowest = (weight if wall is None else weight + wall).amin(-1, keepdim=True)
    return (size > _HOT) & (torch.maximum(unit / lowest, share.amax(-1, keepdim=True)) > _NEAR_ONE)


def _saturated(weight: Tensor, unit: Tensor, cost: Tensor, level: Tensor, slack: Tensor) -> bool | Tensor:
    """Mark the rows `[m, n, 1]` with a mean resistance of the flow above 0.01, or with all keys active.

    In these rows the derivative with respect to the logit of the largest resistance or friction, whose softmax may be 1
    to within rounding, can be a difference of equal numbers. With few keys this is usual.
    """
    if cost.shape[-1] <= _FEW:
        return True
    depth = where_positive((level - cost).relu_(), weight)
    all_active = cost.amax(-1, keepdim=True) < level
    return all_active | (depth.sum(-1, keepdim=True) * unit > 0.01 * (1 - slack * level))


def logit_bound(query: Tensor, key: Tensor) -> Tensor:
    """Bound the logits of each row `[m, n, 1]` using the norms of queries and keys."""
    longest = torch.linalg.vector_norm(key, dim=-1).amax(-1)[:, None, None]
    return torch.linalg.vector_norm(query, dim=-1, keepdim=True) * longest * query.shape[-1] ** -0.5


def blocks(
    operands: Operands, masks: Tensor | None, mask_of: Tensor | None, dropout: float, seed: int
) -> Iterator[Piece]:
    """Yield the blocks of a problem, with the same dropout mask every time, so that none is stored.

    Args:
        operands: operands of all blocks.
        masks: as in `attend_rows`.
        mask_of: as in `attend_rows`.
        dropout: as in `attend_rows`.
        seed: as in `attend_rows`.
    """
    query, key = operands.query, operands.key
    generator = torch.Generator(query.device).manual_seed(seed) if dropout else None
    for at in block_slices(query.shape[0], query.shape[1], key.shape[1], block_size(query.device)):
        keep = None
        if generator is not None:
            shape = (at[0].stop - at[0].start, at[1].stop - at[1].start, key.shape[1])
            keep = query.new_empty(shape).bernoulli_(1 - dropout, generator=generator).div_(1 - dropout)
        yield at, allowed_keys(at, masks, mask_of), keep


def allowed_keys(at: Block, masks: Tensor | None, mask_of: Tensor | None) -> Tensor | None:
    """Return the masks of a block `[m, n or 1, K]`."""
    if masks is None or mask_of is None:
        return None
    allowed = masks[mask_of[at[0]]]
    return allowed[:, at[1]] if allowed.shape[1] > 1 else allowed


def block_size(device: torch.device) -> int:
    """Return the largest number of elements that an `[m, n, K]` tensor of a block should have on this device."""
    return BLOCK if device.type == "cpu" else BLOCK_ELSEWHERE


def block_slices(num_matrices: int, num_rows: int, num_keys: int, limit: int) -> list[Block]:
    """Split into blocks whose `[m, n, K]` part has at most `limit` numbers, but at least one row."""
    rows = max(1, min(num_rows, limit // max(1, num_keys)))
    matrices = max(1, limit // max(1, num_rows * num_keys))
    return [
        (slice(first, min(first + matrices, num_matrices)), slice(start, min(start + rows, num_rows)))
        for first in range(0, num_matrices, matrices)
        for start in range(0, num_rows, rows)
    ]
