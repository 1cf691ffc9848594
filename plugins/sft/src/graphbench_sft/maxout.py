"""Maxout attention scores without a tensor over queries, keys and channels.

"Sampling Foundational Transformer" (SFT), section 4.3: `A_ij = sum_c max(Q_ic, K_jc) / sqrt(d)`. Each score needs d
comparisons, so the work is that of a matrix product without its fused instruction. It is done in blocks that stay in
the processor's cache: one call compares all channels of a few queries with all keys, the next ones add the channels
up. On one CPU core this takes less than half the time of `torch.cdist(p=1)`, which the identity
`max(a, b) = (a + b + |a - b|) / 2` would allow. Where Numba is installed, the loops of `maxout_numba` take its place
and a fraction of its time, and on a graphics card the kernels of `maxout_triton`.

Legend: M matrices (batch x heads), n queries, k keys, d channels; p and s are n and k in either order.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from functools import cache
from typing import Any

import torch
from torch import Tensor
from torch.autograd.function import FunctionCtx, once_differentiable

from graphbench.errors import BadInput
from graphbench.kernels import runs_numba, runs_triton

#: Numbers in a block. 0.5 MB of float32 is half of the second-level cache of today's server cores; on other devices a
#: block only has to be large enough to keep them busy.
_CPU_BLOCK = 1 << 17
_DEVICE_BLOCK = 1 << 24
#: torch compares along the last axis; below this many keys the queries, when there are more of them, go there.
_SHORT_ROW = 128


def maxout_scores(query: Tensor, key: Tensor, compiled: bool = False) -> Tensor:
    """Maxout scores `A_ij = sum_c max(Q_ic, K_jc) / sqrt(d)` (SFT, section 4.3), differentiable once.

    Where `Q_ic = K_jc` each gets half of the gradient, as with `torch.maximum`. Memory beside the result is one block
    of a fixed size; on a graphics card for which torch brings Triton it is a copy of the operands. Half precision is
    computed and returned in float32, because d positive terms add up.

    Args:
        query: `[..., n, d]`.
        key: `[..., k, d]`; leading axes broadcast against those of `query`.
        compiled: let torch.compile fuse the arithmetic, which needs a compiler and about ten seconds at the first
            call, and changes nothing where there are kernels; inside a model that is compiled as a whole this
            happens by itself.

    Returns:
        `[..., n, k]`.

    Raises:
        BadInput: a tensor is no matrix, is not real, or the two do not fit each other.

    Examples:
        >>> query, key = torch.tensor([[1.0, 0.0, 2.0, 1.0]]), torch.tensor([[0.0, 3.0, 2.0, -1.0]])
        >>> maxout_scores(query, key)  # (1 + 3 + 2 + 1) / sqrt(4)
        tensor([[3.5000]])
    """
    _check(query, key)
    dtype = torch.promote_types(query.dtype, key.dtype)
    dtype = torch.float32 if dtype in (torch.float16, torch.bfloat16) else dtype
    scale = max(query.shape[-1], 1) ** -0.5
    query, key = (tensor.to(dtype) * scale for tensor in (query, key))  # a positive factor passes through a maximum
    leading = torch.broadcast_shapes(query.shape[:-2], key.shape[:-2])
    first, second = (
        tensor.expand(*leading, *tensor.shape[-2:]).reshape(math.prod(leading), *tensor.shape[-2:])
        for tensor in (query, key)
    )
    if compiled or torch.compiler.is_compiling():
        scores = _fused_sum_of_maxima(first, second)
    elif second.shape[1] < min(_SHORT_ROW, first.shape[1]) and not (runs_triton(first.device) or runs_numba(first)):
        scores = _SumOfMaxima.apply(second, first).transpose(1, 2).contiguous()
    else:
        scores = _SumOfMaxima.apply(first, second)
    return scores.view(*leading, *scores.shape[1:])


def _check(query: Tensor, key: Tensor) -> None:
    shapes = f"{list(query.shape)} and {list(key.shape)}"
    if query.dim() < 2 or key.dim() < 2 or query.shape[-1] != key.shape[-1]:
        raise BadInput(f"maxout_scores needs queries [..., n, d] and keys [..., k, d], but got {shapes}.")
    if not (query.is_floating_point() and key.is_floating_point()):
        raise BadInput(f"maxout_scores needs real numbers, but got {query.dtype} and {key.dtype}.")
    try:
        torch.broadcast_shapes(query.shape[:-2], key.shape[:-2])
    except RuntimeError:
        raise BadInput(f"maxout_scores: the leading axes of {shapes} do not broadcast.") from None


class _SumOfMaxima(torch.autograd.Function):
    """`sum_c max(a_ic, b_jc)`, `[M, p, s]`, of `a [M, p, d]` and `b [M, s, d]`."""

    @staticmethod
    def forward(ctx: FunctionCtx, a: Tensor, b: Tensor) -> Tensor:  # type: ignore[override]
        ctx.save_for_backward(a, b)
        return _forward(a, b)

    @staticmethod
    @once_differentiable
    def backward(ctx: FunctionCtx, grad: Tensor) -> tuple[Tensor, Tensor]:  # type: ignore[override]
        a, b = ctx.saved_tensors  # type: ignore[attr-defined]
        return _backward(a, b, grad)


def _forward(a: Tensor, b: Tensor) -> Tensor:
    if runs_triton(a.device):
        from graphbench_sft import maxout_triton

        return maxout_triton.scores(a, b)
    if runs_numba(a, b):
        from graphbench_sft import maxout_numba

        return maxout_numba.scores(a, b)
    out = a.new_empty(*a.shape[:2], b.shape[1])
    if not a.shape[-1]:
        return out.zero_()
    group, rows = _block_shape(a, b)
    # Channels first: adding them up then runs over long contiguous rows.
    by_channel = a.permute(2, 0, 1).contiguous().unsqueeze(-1)
    others = b.permute(2, 0, 1).contiguous().unsqueeze(-2)
    block = a.new_empty(0)
    # `split` makes all views in one call; indexing in the loop would cost as much as the arithmetic.
    for left, right, result in zip(by_channel.split(group, 1), others.split(group, 1), out.split(group), strict=True):
        for part, total in zip(left.split(rows, 2), result.split(rows, 1), strict=True):
            if block.shape[:3] != part.shape[:3]:
                block = a.new_empty(*part.shape[:3], b.shape[1])
            torch.maximum(part, right, out=block)
            torch.sum(block, 0, out=total)
    return out


def _backward(a: Tensor, b: Tensor, grad: Tensor) -> tuple[Tensor, Tensor]:
    """Gradients `[M, p, d]` and `[M, s, d]`: `grad_ij` goes to the larger of `a_ic` and `b_jc`.

    With `step = clamp(huge * (a_ic - b_jc), -1/2, 1/2)`, which is -1/2, 0 or 1/2, the share of `a` is `1/2 + step`.
    """
    if runs_triton(a.device):
        from graphbench_sft import maxout_triton

        return maxout_triton.gradients(a, b, grad)
    if runs_numba(a, b, grad):
        from graphbench_sft import maxout_numba

        return maxout_numba.gradients(a, b, grad)
    huge = _huge(a, b)
    group, rows = _block_shape(a, b)
    grad = grad.contiguous()
    grad_a = torch.empty_like(a)
    grad_b = b.new_zeros(b.shape[0], b.shape[2], b.shape[1])
    lefts, rights = (a * huge).unsqueeze(-1), (b * huge).transpose(1, 2).contiguous().unsqueeze(1)
    block = a.new_empty(0)
    groups = (tensor.split(group) for tensor in (lefts, rights, grad.unsqueeze(2), grad_a, grad_b))
    for left, right, weight, sums_a, sums_b in zip(*groups, strict=True):
        for part, own, total in zip(*(tensor.split(rows, 1) for tensor in (left, weight, sums_a)), strict=True):
            if block.shape[:3] != part.shape[:3]:
                block = a.new_empty(*part.shape[:3], b.shape[1])
            torch.sub(part, right, out=block).clamp_(-0.5, 0.5).mul_(own)
            torch.sum(block, -1, out=total)
            sums_b.sub_(block.sum(1))
    grad_a += 0.5 * grad.sum(2, keepdim=True)
    return grad_a, grad_b.transpose(1, 2) + 0.5 * grad.sum(1).unsqueeze(-1)


def _huge(a: Tensor, b: Tensor) -> Tensor:
    """A factor that turns every difference that matters into more than one half, and no number into infinity."""
    ordinary, most = (2.0**200, 2.0**1020) if a.dtype == torch.float64 else (2.0**64, 2.0**124)
    largest = torch.stack([t.abs().amax() if t.numel() else t.new_zeros(()) for t in (a, b)]).amax()
    return (most / largest).clamp_max(ordinary)


def _block_shape(a: Tensor, b: Tensor) -> tuple[int, int]:
    """How many matrices, and how many rows of each, are compared in one block."""
    matrices, rows = a.shape[:2]
    size = _CPU_BLOCK if a.device.type == "cpu" else _DEVICE_BLOCK
    room = size // max(b.shape[1] * b.shape[2], 1)
    if room >= rows:
        return min(max(1, room // max(rows, 1)), max(matrices, 1)), max(rows, 1)
    # At least 8 rows: with many keys a larger block costs less than many small calls.
    return 1, -(-rows // -(-rows // max(room, 8)))


# Below, the same for torch.compile: formulas of which it makes one loop each, too large to be computed as written. They
# are operators of their own, because a compiler that sees the operations around them as well merges these into the
# loops and makes them ten times slower.


@torch.library.custom_op("graphbench_sft::sum_of_maxima", mutates_args=())
def _fused_sum_of_maxima(a: Tensor, b: Tensor) -> Tensor:
    """`sum_c max(a_ic, b_jc)`, `[M, p, s]`, of `a [M, p, d]` and `b [M, s, d]`, compiled at the first call."""
    if _keeps_kernels(a, b):
        return _forward(a.contiguous(), b.contiguous())
    return _compiled(_fused_forward)(a.contiguous(), b.transpose(1, 2).contiguous())


@torch.library.custom_op("graphbench_sft::sum_of_maxima_backward", mutates_args=())
def _fused_gradients(a: Tensor, b: Tensor, grad: Tensor) -> tuple[Tensor, Tensor]:
    if _keeps_kernels(a, b):
        grad_a, grad_b = _backward(a.contiguous(), b.contiguous(), grad)
        return grad_a, grad_b.contiguous()
    run = _compiled(_fused_backward)
    grad_a, grad_b = run(a.contiguous(), b.transpose(1, 2).contiguous(), grad.contiguous())
    return grad_a, grad_b.transpose(1, 2).contiguous()


def _fused_forward(a: Tensor, b: Tensor) -> Tensor:
    """`[M, p, s]` of `a [M, p, d]` and `b [M, d, s]`."""
    return torch.maximum(a.unsqueeze(3), b.unsqueeze(1)).sum(2)


def _fused_backward(a: Tensor, b: Tensor, grad: Tensor) -> tuple[Tensor, Tensor]:
    """Gradients of `a` and `b`, shaped as these, from `grad [M, p, s]`."""
    share = ((a.unsqueeze(3) - b.unsqueeze(1)).sign() * 0.5 + 0.5) * grad.unsqueeze(2)
    return share.sum(3), grad.sum(1).unsqueeze(1) - share.sum(1)


def _keeps_kernels(a: Tensor, b: Tensor) -> bool:
    """Whether nothing is to be compiled: a device has kernels of its own, or an axis has length 0 or 1, for which the
    compiler would make (and at last refuse) further versions.
    """
    return runs_triton(a.device) or min(*a.shape, *b.shape) < 2


@cache
def _compiled(function: Callable[..., Any]) -> Callable[..., Any]:
    return torch.compile(function, dynamic=True)


@_fused_sum_of_maxima.register_fake
def _(a: Tensor, b: Tensor) -> Tensor:
    return a.new_empty(a.shape[0], a.shape[1], b.shape[1])


@_fused_gradients.register_fake
def _(a: Tensor, b: Tensor, grad: Tensor) -> tuple[Tensor, Tensor]:
    return a.new_empty(a.shape), b.new_empty(b.shape)


def _keep(ctx: FunctionCtx, inputs: tuple[Tensor, Tensor], output: Tensor) -> None:
    ctx.save_for_backward(*inputs)


def _gradients(ctx: FunctionCtx, grad: Tensor) -> tuple[Tensor, Tensor]:
    a, b = ctx.saved_tensors  # type: ignore[attr-defined]
    return _fused_gradients(a, b, grad)


_fused_sum_of_maxima.register_autograd(_gradients, setup_context=_keep)
