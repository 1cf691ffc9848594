"""Softmax attention within graphs on a GPU, without padding, computed by `attention_triton`.

Legend: T rows of all graphs, B graphs, N rows of the largest one, H heads, d head width.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import Any

import torch
from torch import Tensor

from graphbench.contracts.kernels import plain_form
from graphbench_kernels.nn.again import gradients_by
from graphbench_kernels.nn.attention import Packing, formula
from graphbench_kernels.running import runs_triton

_TYPES = (torch.float32, torch.bfloat16, torch.float16)
#: Head widths that fit into registers.
_WIDEST = 128

#: Operation -> launches of its kernels, forward and backward; a learned bias needs two more, to fill and sum.
LAUNCHES = {"graphbench::packed_attention": (1, 2)}


def packed_attention_on_cards(
    qkv: Tensor,
    ptr: Tensor,
    order: Tensor | None,
    slots: Tensor | None,
    shapes: Sequence[int],
    padding: Sequence[Tensor | None],
    biases: Sequence[Tensor | None],
    num_heads: int,
    dropout: float,
    packed: bool = False,
) -> Tensor:
    """Compute `graphbench::packed_attention` on a GPU, if `packed` requests it."""
    packing = Packing(ptr, order, slots, shapes)
    if packed and fits_kernel(qkv, packing, biases, num_heads) and runs_triton(qkv.device):
        return attend_packed(qkv, packing, padding, biases[0], num_heads, dropout)
    return plain_form("graphbench::packed_attention")(qkv, *packing, padding, biases, num_heads, dropout, packed)


def fits_kernel(qkv: Tensor, packing: Packing, biases: Sequence[Tensor | None], num_heads: int) -> bool:
    """Return whether the kernel supports these: real tensors, one block, heads that are not too wide.

    Float64, subclasses such as fake tensors, and transforms of `torch.func` are left to the plain form.
    """
    if torch._C._functorch.peek_interpreter_stack() is not None or packing.order is not None:
        return False
    given = [qkv, *(bias for bias in biases if bias is not None)]
    fits = all(type(x) is Tensor and x.dtype in _TYPES for x in given)
    return fits and qkv.numel() > 0 and qkv.shape[1] <= 3 * num_heads * _WIDEST


def attend_packed(
    qkv: Tensor,
    packing: Packing,
    padding: Sequence[Tensor | None],
    bias: Tensor | None,
    num_heads: int,
    dropout: float,
) -> Tensor:
    """Attend with the kernel; arguments as for the plain form, with the bias of the only block."""
    device = qkv.device.type
    if torch.is_autocast_enabled(device):
        qkv = qkv.to(torch.get_autocast_dtype(device))
    # Drawn on the CPU, so that nothing waits for the GPU.
    seed = int(torch.randint(1 << 31, ())) if dropout else 0
    mixed: Tensor = _Attention.apply(qkv, packing, list(padding), num_heads, dropout, seed, bias)
    return mixed


class _Attention(torch.autograd.Function):
    """Map rows `[T, 3 H d]` and a bias, or None, to rows `[T, H d]`."""

    @staticmethod
    def forward(
        ctx: Any,
        qkv: Tensor,
        packing: Packing,
        padding: list[Tensor | None],
        num_heads: int,
        dropout: float,
        seed: int,
        bias: Tensor | None,
    ) -> Tensor:
        from graphbench_kernels.nn import attention_triton

        options = packing.ptr, bias, packing.shapes[1], num_heads, attention_triton.Dropout(dropout, seed)
        mixed, sums = attention_triton.attend(qkv.contiguous(), *options)
        ctx.save_for_backward(qkv, bias, mixed, sums)
        ctx.packing, ctx.padding, ctx.num_heads, ctx.dropout = packing, padding, num_heads, options[-1]
        return mixed

    @staticmethod
    def backward(ctx: Any, upstream: Tensor) -> tuple[Tensor | None, ...]:
        from graphbench_kernels.nn import attention_triton

        qkv, bias, mixed, sums = ctx.saved_tensors
        ptr, length = ctx.packing.ptr, ctx.packing.shapes[1]
        needed = ctx.needs_input_grad[0], ctx.needs_input_grad[6]
        if torch.is_grad_enabled():
            factors = attention_triton.kept_factors(ptr, length, ctx.num_heads, ctx.dropout) if ctx.dropout.p else None
            defined = partial(formula, ctx.packing, ctx.padding, ctx.num_heads, [factors])
            grad_qkv, grad_bias = gradients_by(defined, (qkv, bias), needed, (upstream,))
            return grad_qkv, None, None, None, None, None, grad_bias
        options = ptr, bias, length, ctx.num_heads, ctx.dropout
        results = mixed, sums, upstream.contiguous()
        grad_qkv, grad_logits = attention_triton.gradients(qkv.contiguous(), *options, *results, needed[1])
        grad_bias = None if bias is None or grad_logits is None else grad_logits.sum_to_size(bias.shape).to(bias.dtype)
        return grad_qkv, None, None, None, None, None, grad_bias
