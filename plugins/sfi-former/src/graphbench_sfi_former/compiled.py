"""Sparse-flow attention through `torch.compile`, for GPUs.

The same formulas as in `fused`, written without buffers and with a fixed number of passes, so that a compiler can keep
a row in registers from its scores to its flow. A row that the passes do not settle is rare (logits of standard
deviation over three); then the whole call is done again by `blockwise`, so that the result is exact in any case.

On a CPU this is no gain: with torch 2.13 it took 1 to 4 times as long as `blockwise`, and half a minute to compile.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from typing import Any

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable

from graphbench_sfi_former.blockwise import BlockwiseAttention, Dropout
from graphbench_sfi_former.masking import KeyMask

#: Newton passes of every row; logits of unit variance need four to six.
NUM_PASSES = 12


def forward(
    query: Tensor,
    key: Tensor,
    friction_query: Tensor,
    friction_key: Tensor,
    value: Tensor,
    penalty: Tensor,
    alpha: Tensor | None,
    allowed: Tensor | None,
    keep: Tensor | None,
) -> tuple[Tensor, ...]:
    """Output `[M, N, d_v]`, then unit, level, slope, gain and relative last step of each row `[M, N, 1]`."""
    weight, friction, resistance = _softmaxes(query, key, friction_query, friction_key, allowed)
    total = resistance.sum(-1, keepdim=True)
    num_keys: Tensor | int = weight.shape[-1]
    if allowed is not None:
        num_keys = allowed.sum(-1, keepdim=True).clamp_min(1)
        total = torch.where(total == 0, 1.0, total)
    unit = 1 / total
    cost = friction * _scale(penalty, unit)
    slack: Tensor | float = 0.0 if alpha is None else unit / alpha
    level = (unit * num_keys**2) ** (-1 / 3) * (penalty * num_keys + 1)
    for _ in range(NUM_PASSES):
        slope, volume, step = _newton_step(weight, cost, slack, level)
        level = level * (1 + step.clamp(-0.999, 999.0))
    slope, volume, step = _newton_step(weight, cost, slack, level)
    gain = (1 - slack * level) / volume.clamp_min(torch.finfo(volume.dtype).tiny)
    if allowed is not None:
        closed = ~allowed.any(-1, keepdim=True)
        gain, level = torch.where(closed, 0.0, gain), torch.where(closed, -1.0, level)
    flow = weight * (level - cost).clamp_min(0)
    if keep is not None:
        flow = flow * keep
    return (flow @ value) * gain, unit, level, slope, gain, step


def backward(
    query: Tensor,
    key: Tensor,
    friction_query: Tensor,
    friction_key: Tensor,
    value: Tensor,
    penalty: Tensor,
    alpha: Tensor | None,
    allowed: Tensor | None,
    keep: Tensor | None,
    state: tuple[Tensor, ...],
    output: Tensor,
    upstream: Tensor,
) -> tuple[Tensor | None, ...]:
    """Gradients of the first seven arguments; see `fused.backward_block`."""
    unit, level, slope, gain = state
    weight, friction, resistance = _softmaxes(query, key, friction_query, friction_key, allowed)
    scale = _scale(penalty, unit)
    cost = friction * scale
    gap = level - cost
    active = torch.where(gap > 0, weight, 0.0)
    flow, push_back = active * gap, upstream @ value.mT
    if keep is not None:
        flow, push_back = flow * keep, push_back * keep
    charge = (active * push_back).sum(-1, keepdim=True) / slope
    of_cost = active * (charge - push_back)
    pull = charge - (upstream * output).sum(-1, keepdim=True)
    leak: Tensor | float = 0.0 if alpha is None else charge * level * unit / alpha
    of_scores = (pull - leak) * unit * resistance - gap * of_cost
    of_frictions = (of_cost + pull / scale) * cost
    root, friction_root = query.shape[-1] ** -0.5, friction_query.shape[-1] ** -0.5
    of_penalty = ((of_cost * cost).sum(-1, keepdim=True) / (scale * unit)).sum(-2, keepdim=True)
    return (
        of_scores @ key * root,
        of_scores.mT @ query * root,
        of_frictions @ friction_key * friction_root,
        of_frictions.mT @ friction_query * friction_root,
        flow.mT @ (upstream * gain),
        of_penalty,
        None if alpha is None else torch.as_tensor(leak).sum(-2, keepdim=True) / alpha,
    )


def _softmaxes(
    query: Tensor, key: Tensor, friction_query: Tensor, friction_key: Tensor, allowed: Tensor | None
) -> tuple[Tensor, Tensor, Tensor]:
    """S, F and 1 / S, which is 0 at keys that are not allowed: `[M, N, K]` each."""
    scores = query @ key.mT * query.shape[-1] ** -0.5
    frictions = friction_query @ friction_key.mT * friction_query.shape[-1] ** -0.5
    limits = torch.finfo(scores.dtype)
    if allowed is not None:
        lowest = -(limits.max**0.8)  # finite, so that rows without a key do not become NaN
        scores, frictions = torch.where(allowed, scores, lowest), torch.where(allowed, frictions, lowest)
    weight = scores.softmax(-1)
    resistance = 1 / weight.clamp_min(limits.tiny**0.8)
    if allowed is not None:
        resistance = torch.where(allowed, resistance, 0.0)
    return weight, frictions.softmax(-1), resistance


def _newton_step(weight: Tensor, cost: Tensor, slack: Tensor | float, level: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """Slope, volume and relative Newton step at `level`, as in `waterfill`."""
    gap = level - cost
    active = torch.where(gap > 0, weight, 0.0)
    slope = active.sum(-1, keepdim=True) + slack
    volume = (active * gap).sum(-1, keepdim=True)
    return slope, volume, (1 - volume - slack * level) / slope / level


def _scale(penalty: Tensor, unit: Tensor) -> Tensor:
    """G / F, as in `fused`."""
    limits = torch.finfo(unit.dtype)
    return (penalty / unit).clamp(limits.eps**2, limits.max**0.8)


@cache
def _compile(function: Callable[..., tuple[Any, ...]]) -> Callable[..., tuple[Any, ...]]:
    """The function compiled once for all shapes."""
    return torch.compile(function, dynamic=True)


class CompiledAttention(torch.autograd.Function):
    """`forward` and `backward` of this module, or all of `BlockwiseAttention` where passes were too few."""

    @staticmethod
    def forward(
        ctx: Any,
        query: Tensor,
        key: Tensor,
        friction_query: Tensor,
        friction_key: Tensor,
        value: Tensor,
        penalty: Tensor,
        alpha: Tensor | None,
        mask: KeyMask | None,
        dropout: tuple[float, int] | None,
        training: bool,
    ) -> Tensor:
        """As `BlockwiseAttention.forward`."""
        inputs = (query, key, friction_query, friction_key, value, penalty, alpha)
        flat = [x.reshape(-1, *x.shape[-2:]) for x in inputs[:5]]
        allowed = None if mask is None else mask.whole()
        keep = _keep(flat, dropout)
        output, *state, step = _compile(forward)(*flat, penalty, alpha, allowed, keep)
        ctx.settled = bool(step.abs().max() <= 64 * torch.finfo(step.dtype).eps)
        if not ctx.settled:
            return BlockwiseAttention.forward(ctx, *inputs, mask, dropout, training)
        ctx.save_for_backward(*flat, penalty, alpha, allowed, *state, output)
        ctx.dropout, ctx.lead = dropout, query.shape[:-2]
        return output.view(*query.shape[:-1], value.shape[-1])

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, upstream: Tensor) -> tuple[Tensor | None, ...]:
        """As `BlockwiseAttention.backward`."""
        if not ctx.settled:
            return BlockwiseAttention.backward(ctx, upstream)
        *inputs, unit, level, slope, gain, output = ctx.saved_tensors
        keep, upstream = _keep(inputs, ctx.dropout), upstream.reshape(output.shape)
        grads = _compile(backward)(*inputs, keep, (unit, level, slope, gain), output, upstream)
        shaped = (x.view(*ctx.lead, *x.shape[1:]) for x in grads[:5])
        return (*shaped, *grads[5:], None, None, None)


def _keep(flat: list[Tensor], dropout: tuple[float, int] | None) -> Tensor | None:
    """Dropout's factors `[M, N, K]`."""
    if dropout is None:
        return None
    query, key = flat[:2]
    return Dropout(dropout, query.device).fill(query.new_empty(*query.shape[:2], key.shape[1]))


@torch.compiler.disable
def compiled_attention(*arguments: Any) -> Tensor:
    """`CompiledAttention`, which looks at values once between two compiled parts."""
    return CompiledAttention.apply(*arguments)
