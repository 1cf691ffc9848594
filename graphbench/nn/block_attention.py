"""Softmax attention within small graphs on a processor, from rows of queries, keys and values to rows of mixed values.

Forward and backward are a call for each block and a step of autograd each, where operations of torch are some thirty;
what is computed stands in `block_attention_numba`.

Legend: T rows of all graphs, b graphs of a block, n rows of its largest one, H heads, d head width.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor
from torch.autograd.function import once_differentiable

from graphbench.kernels import run_in_threads, runs_numba
from graphbench.nn.dense import DenseLayout
from graphbench.nn.dropout import DroppedBits, draw_bits, draws_bits

#: Rows of a graph up to which nothing in torch is quicker; without dropout it has a fused attention for larger ones.
_SMALL = 512
#: Steps of arithmetic for each pair: of a softmax, which has an exponential and four passes, and of the products, for
#: each channel.
_SOFTMAX_STEPS, _PRODUCT_STEPS = 16, 1
_NO_BIAS, _NO_STEPS, _NO_BITS = np.empty(0, np.float32), np.zeros(3, np.int64), np.empty(0, np.int16)


def runs_in_loops(qkv: Tensor, layout: DenseLayout, biases: Sequence[Tensor | None], dropout: float) -> bool:
    """Whether `BlockAttention` computes this: in float32 on a processor, where Numba is.

    Without dropout it does so for graphs that are not large; torch's fused attention is as quick at others.

    Arguments as in `attend_within_graphs`, without the biases that only hide padding.
    """
    given = [bias for bias in biases if bias is not None]
    if any(x.dtype is not torch.float32 for x in (qkv, *given)) or torch.is_autocast_enabled("cpu"):
        return False
    if not qkv.numel() or not runs_numba(qkv, *given):
        return False
    return draws_bits(dropout) if dropout else layout.max_nodes <= _SMALL


class BlockAttention(torch.autograd.Function):
    """Rows `[T, 3 H d]` and a bias for each block, or None, to rows `[T, H d]`."""

    @staticmethod
    def forward(
        ctx: Any, qkv: Tensor, layout: DenseLayout, num_heads: int, dropout: float, *biases: Tensor | None
    ) -> Tensor:
        """Mixed values; `dropout` is 0 outside of training."""
        from graphbench.nn.block_attention_numba import LANES, attend

        rows, width = qkv.contiguous(), qkv.shape[1] // (3 * num_heads)
        mixed = rows.new_empty(rows.shape[0], num_heads * width)
        found: list[Tensor] = []
        drawn: list[DroppedBits | None] = []
        for place, bias in zip(layout.places, biases, strict=True):
            queries = len(place.sizes) * num_heads * place.length
            drawn.append(draw_bits(queries * place.length, dropout, LANES) if dropout else None)
            found.append(rows.new_empty(2, queries))
            sizes = (place.starts, place.sizes, place.length, num_heads, width)
            operands = (rows.view(-1), *sizes, *_added(bias), *_numbers(drawn[-1]), *found[-1], mixed.view(-1))
            steps = queries * place.length * (_PRODUCT_STEPS * width + _SOFTMAX_STEPS)
            run_in_threads(attend, len(place.sizes) * num_heads, steps, *operands)
        ctx.save_for_backward(rows, *found, *biases)
        ctx.places, ctx.drawn, ctx.num_heads = layout.places, drawn, num_heads
        return mixed

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, upstream: Tensor) -> tuple[Tensor | None, ...]:
        """Gradients of the rows and of biases that ask for theirs."""
        from graphbench.nn.block_attention_numba import attend_gradient

        (rows, *kept), blocks = ctx.saved_tensors, len(ctx.places)
        num_heads, width = ctx.num_heads, rows.shape[1] // (3 * ctx.num_heads)
        upstream, of_rows = upstream.contiguous(), torch.empty_like(rows)
        of_biases: list[Tensor | None] = []
        parts = zip(ctx.places, kept[:blocks], kept[blocks:], ctx.drawn, ctx.needs_input_grad[4:], strict=True)
        for place, found, bias, drawn, asked in parts:
            shape = (len(place.sizes), num_heads, place.length, place.length)
            of_scores = rows.new_zeros(shape if asked else 0)
            sizes = (place.starts, place.sizes, place.length, num_heads, width)
            results = (upstream.view(-1), of_rows.view(-1), of_scores.view(-1))
            operands = (rows.view(-1), *sizes, *_added(bias), *_numbers(drawn), *found, *results)
            steps = math.prod(shape) * (3 * _PRODUCT_STEPS * width + _SOFTMAX_STEPS)
            run_in_threads(attend_gradient, len(place.sizes) * num_heads, steps, *operands)
            of_biases.append(of_scores.sum_to_size(bias.shape) if asked else None)
        return of_rows, None, None, None, *of_biases


def _added(bias: Tensor | None) -> tuple[Tensor | NDArray[np.float32], NDArray[np.int64]]:
    """The numbers of a bias `[b or 1, H or 1, n or 1, n]`, and how far its graphs, heads and queries lie apart."""
    if bias is None:
        return _NO_BIAS, _NO_STEPS
    bias = bias.detach().contiguous()
    steps = [step if size > 1 else 0 for size, step in zip(bias.shape[:3], bias.stride()[:3], strict=True)]
    return bias.view(-1), np.array(steps)


def _numbers(drawn: DroppedBits | None) -> tuple[Tensor | NDArray[np.int16], np.int16, np.float32]:
    """What kernels take, in the types of the numbers that they compare and multiply."""
    if drawn is None:
        return _NO_BITS, np.int16(0), np.float32(1)
    return drawn.bits, np.int16(drawn.least), np.float32(drawn.factor)
