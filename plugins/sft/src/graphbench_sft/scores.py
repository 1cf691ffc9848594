"""Maxout attention scores, and the leaky ReLU probabilities that replace their softmax.

"Sampling Foundational Transformer" (SFT), section 4.3: `A_ij = sum_c max(Q_ic, K_jc) / sqrt(d)`, without a tensor over
queries, keys and channels. Each score needs d comparisons, so the work is that of a matrix product without its fused
instruction. It is done in blocks that stay in the CPU's cache (see `ops.maxima`), or by an installed kernel.

Legend: M matrices (batch x heads), n queries, k keys, d channels; p and s are n and k in either order.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from functools import cache
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor
from torch.autograd.function import FunctionCtx

from graphbench.contracts.kernels import kernels_run, runs_triton
from graphbench.errors import BadInput
from graphbench_sft.ops import EPSILON, maxima, maxima_gradients


def maxout_scores(query: Tensor, key: Tensor, compiled: bool = False) -> Tensor:
    """Compute maxout scores `A_ij = sum_c max(Q_ic, K_jc) / sqrt(d)` (SFT, section 4.3).

    If `Q_ic = K_jc`, each gets half of the gradient, as with `torch.maximum`. In addition to the result this needs the
    memory of one block of a fixed size, unless a second derivative is taken; a kernel on a GPU copies the operands.
    Half precision is computed and returned in float32, because d positive terms add up.

    Args:
        query: `[..., n, d]`.
        key: `[..., k, d]`; leading axes broadcast against those of `query`.
        compiled: let torch.compile fuse the arithmetic, which needs a compiler and about ten seconds at the first call.
            It has no effect on GPUs with kernels. Inside a model that is compiled as a whole, fusion happens
            automatically if there are no kernels.

    Returns:
        `[..., n, k]`.

    Raises:
        BadInput: a tensor is not a matrix or not real, or the two do not match.

    Examples:
        >>> query, key = torch.tensor([[1.0, 0.0, 2.0, 1.0]]), torch.tensor([[0.0, 3.0, 2.0, -1.0]])
        >>> maxout_scores(query, key)  # (1 + 3 + 2 + 1) / sqrt(4)
        tensor([[3.5000]])
    """
    _check_operands(query, key)
    dtype = torch.promote_types(query.dtype, key.dtype)
    dtype = torch.float32 if dtype in (torch.float16, torch.bfloat16) else dtype
    scale = max(query.shape[-1], 1) ** -0.5
    query, key = (tensor.to(dtype) * scale for tensor in (query, key))  # a positive factor passes through a maximum
    leading = torch.broadcast_shapes(query.shape[:-2], key.shape[:-2])
    first, second = (
        tensor.expand(*leading, *tensor.shape[-2:]).reshape(math.prod(leading), *tensor.shape[-2:])
        for tensor in (query, key)
    )
    fused = compiled or torch.compiler.is_compiling()
    scores = _fused_sum_of_maxima(first, second, compiled) if fused else _SumOfMaxima.apply(first, second)
    return scores.view(*leading, *scores.shape[1:])


def _check_operands(query: Tensor, key: Tensor) -> None:
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
    def forward(a: Tensor, b: Tensor) -> Tensor:  # type: ignore[override]
        return maxima(a, b)

    @staticmethod
    def setup_context(ctx: FunctionCtx, inputs: tuple[Tensor, Tensor], output: Tensor) -> None:  # type: ignore[override]
        ctx.save_for_backward(*inputs)

    @staticmethod
    def backward(ctx: FunctionCtx, grad: Tensor) -> tuple[Tensor, Tensor]:  # type: ignore[override]
        a, b = ctx.saved_tensors  # type: ignore[attr-defined]
        if torch.is_grad_enabled():  # a second derivative is wanted
            return _written_out(a, b, grad)
        return maxima_gradients(a, b, grad)


def _written_out(a: Tensor, b: Tensor, grad: Tensor) -> tuple[Tensor, Tensor]:
    """Compute gradients that can themselves be differentiated, with all comparisons in memory."""
    grad_a, grad_b = _fused_backward(a, b.transpose(1, 2), grad)
    return grad_a, grad_b.transpose(1, 2)


# The same for torch.compile: it turns each of these formulas, too large to be computed as written, into one loop. They
# are separate operators because a compiler that also sees the surrounding operations merges these into the loops and
# makes them ten times slower.


@torch.library.custom_op("graphbench_sft::sum_of_maxima", mutates_args=())
def _fused_sum_of_maxima(a: Tensor, b: Tensor, asked: bool) -> Tensor:
    """Compute `sum_c max(a_ic, b_jc)`, `[M, p, s]`, of `a [M, p, d]` and `b [M, s, d]`, compiled at the first call.

    With `asked` also on CPUs with kernels.
    """
    if _keeps_kernels(a, b, asked):
        return maxima(a.contiguous(), b.contiguous())
    return _compiled(_fused_forward)(a.contiguous(), b.transpose(1, 2).contiguous())


@torch.library.custom_op("graphbench_sft::sum_of_maxima_backward", mutates_args=())
def _fused_gradients(a: Tensor, b: Tensor, grad: Tensor, asked: bool) -> tuple[Tensor, Tensor]:
    if _keeps_kernels(a, b, asked):
        grad_a, grad_b = maxima_gradients(a.contiguous(), b.contiguous(), grad)
        return grad_a.contiguous(), grad_b.contiguous()
    run = _compiled(_fused_backward)
    grad_a, grad_b = run(a.contiguous(), b.transpose(1, 2).contiguous(), grad.contiguous())
    return grad_a, grad_b.transpose(1, 2).contiguous()


def _fused_forward(a: Tensor, b: Tensor) -> Tensor:
    """Sum maxima over channels: `[M, p, s]` of `a [M, p, d]` and `b [M, d, s]`."""
    return torch.maximum(a.unsqueeze(3), b.unsqueeze(1)).sum(2)


def _fused_backward(a: Tensor, b: Tensor, grad: Tensor) -> tuple[Tensor, Tensor]:
    """Compute the gradients of `a` and `b` from `grad [M, p, s]`."""
    share = ((a.unsqueeze(3) - b.unsqueeze(1)).sign() * 0.5 + 0.5) * grad.unsqueeze(2)
    return share.sum(3), grad.sum(1).unsqueeze(1) - share.sum(1)


def _keeps_kernels(a: Tensor, b: Tensor, asked: bool) -> bool:
    """Return whether not to compile: the device has kernels (on a CPU unless asked), or an axis has length 0 or 1.

    For such axes the compiler would create further versions until it refuses.
    """
    has_kernels = kernels_run() and not asked if a.device.type == "cpu" else runs_triton(a.device)
    return has_kernels or min(*a.shape, *b.shape) < 2


@cache
def _compiled(function: Callable[..., Any]) -> Callable[..., Any]:
    return torch.compile(function, dynamic=True)


@_fused_sum_of_maxima.register_fake
def _(a: Tensor, b: Tensor, asked: bool) -> Tensor:
    return a.new_empty(a.shape[0], a.shape[1], b.shape[1])


@_fused_gradients.register_fake
def _(a: Tensor, b: Tensor, grad: Tensor, asked: bool) -> tuple[Tensor, Tensor]:
    return a.new_empty(a.shape), b.new_empty(b.shape)


def _keep(ctx: Any, inputs: tuple[Tensor, Tensor, bool], output: Tensor) -> None:
    *tensors, ctx.asked = inputs
    ctx.save_for_backward(*tensors)


def _gradients(ctx: Any, grad: Tensor) -> tuple[Tensor, Tensor, None]:
    return (*_fused_gradients(*ctx.saved_tensors, grad, ctx.asked), None)


_fused_sum_of_maxima.register_autograd(_gradients, setup_context=_keep)


def leaky_relu_attention(scores: Tensor, leak: Tensor | None, mask: Tensor | None = None) -> Tensor:
    """Normalise scores of any sign to attention weights by leaky ReLU (SFT, section 4.3).

    `P_ij = relu(A_ij) / (sum_r (relu(A_ir) + softplus(C_r)) + epsilon)`, r over the keys that `mask` allows. The share
    of the leak makes a row sum to less than one, so tokens with equal values can still become different.

    Args:
        scores: A, `[..., n, k]`.
        leak: C before the softplus, `[..., k]`, broadcast over the leading axes of `scores`; None for no leak.
        mask: true at real keys, bool `[..., k]`, broadcast in the same way; the others get weight 0. None: all of them.

    Returns:
        `[..., n, k]`.

    Raises:
        BadInput: `leak` or `mask` has another number of keys than `scores`.

    Examples:
        >>> leaky_relu_attention(torch.tensor([[3.0, 1.0, -2.0]]), None)  # negative scores weigh nothing
        tensor([[0.7500, 0.2500, 0.0000]])
        >>> bool(leaky_relu_attention(torch.ones(1, 3), torch.zeros(3)).sum() < 1)  # the leak takes its part
        True
    """
    _check_keys(scores, leak, mask)
    positive = _positive(scores, mask)
    return positive / (positive.sum(-1, keepdim=True) + _constant(leak, mask))


def leaky_relu_mixture(scores: Tensor, value: Tensor, leak: Tensor | None, mask: Tensor | None = None) -> Tensor:
    """Compute `leaky_relu_attention(scores, leak, mask) @ value`, dividing after the product to avoid storing weights.

    A column of ones appended to the values gives the sum of each row in the same product. In half precision that sum
    would lose digits, so there the weights are computed, in the precision of the scores.

    Args:
        scores: A, `[..., n, k]`.
        value: V, `[..., k, h]`.
        leak: see `leaky_relu_attention`.
        mask: see `leaky_relu_attention`.

    Returns:
        `[..., n, h]`, in the precision of `value`.

    Raises:
        BadInput: `leak` or `mask` has another number of keys than `scores`.
    """
    _check_keys(scores, leak, mask)
    if value.dtype != scores.dtype:
        return leaky_relu_attention(scores, leak, mask).to(value.dtype) @ value
    positive = _positive(scores, mask)
    sums = positive @ torch.cat([value, value.new_ones(*value.shape[:-1], 1)], dim=-1)
    return sums[..., :-1] / (sums[..., -1:] + _constant(leak, mask))


def _check_keys(scores: Tensor, leak: Tensor | None, mask: Tensor | None) -> None:
    for name, tensor in (("leak", leak), ("mask", mask)):
        if tensor is not None and tensor.shape[-1:] != scores.shape[-1:]:
            raise BadInput(f"{name} must have {scores.shape[-1]} keys, as scores do, but is {list(tensor.shape)}.")


def _positive(scores: Tensor, mask: Tensor | None) -> Tensor:
    positive = F.relu(scores)
    return positive if mask is None else positive.masked_fill(~mask.unsqueeze(-2), 0.0)


def _constant(leak: Tensor | None, mask: Tensor | None) -> Tensor | float:
    """Return the summand of the denominator besides the scores, `[..., 1, 1]`."""
    if leak is None:
        return EPSILON
    # Summed over the keys, since C is inside the sum of the paper's denominator.
    leaks = F.softplus(leak)
    leaks = leaks if mask is None else leaks.masked_fill(~mask, 0.0)
    return leaks.sum(-1).unsqueeze(-1).unsqueeze(-1) + EPSILON
