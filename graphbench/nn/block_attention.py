"""Softmax attention within small graphs on a processor, from rows of queries, keys and values to rows of mixed values.

Forward and backward are a call for each block and a step of autograd each, where operations of torch are some thirty;
what is computed stands in `block_attention_numba`.

Legend: T rows of all graphs, b graphs of a block, n rows of its largest one, H heads, d head width.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor
from torch.autograd.function import once_differentiable

from graphbench.contracts.table import ranges
from graphbench.kernels import run_in_threads, runs_numba
from graphbench.nn.dense import BlockPlace, DenseLayout
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


def draws_pairs(x: Tensor, dropout: float) -> bool:
    """Whether `draw_pairs` draws what attention over x drops, with this probability above 0."""
    return x.device.type == "cpu" and not torch.compiler.is_compiling() and draws_bits(dropout)


def draw_pairs(layout: DenseLayout, num_heads: int, dropout: float, more: int = 0) -> DroppedBits | None:
    """Draw for the weights of all pairs, `[H, size, size]` for one graph after the other, and `more` behind them."""
    return draw_bits(layout.num_pairs * num_heads, dropout, more)


def factors_of_blocks(drawn: DroppedBits, layout: DenseLayout, num_heads: int, dtype: torch.dtype) -> list[Tensor]:
    """What weights are multiplied by, `[b, H, n, n]` for each block of the layout; 0 where there is no pair.

    A seed drops the same weights as with loops. `dtype` is that of queries; half precision would round the factor, so
    factors have at least float32.
    """
    dtype = torch.promote_types(dtype, torch.float32)
    factors = []
    for place, block in zip(layout.places, layout.blocks, strict=True):
        counts = torch.from_numpy(place.sizes**2 * num_heads)
        bits = drawn.bits[ranges(torch.from_numpy(place.pairs * num_heads), counts)]
        mask = block.layout.mask
        is_pair = (mask[:, None, :, None] & mask[:, None, None, :]).expand(-1, num_heads, -1, -1)
        kept = torch.zeros(is_pair.shape, dtype=dtype)
        kept[is_pair] = (bits >= drawn.least).to(dtype) * drawn.factor
        factors.append(kept)
    return factors


class BlockAttention(torch.autograd.Function):
    """Rows `[T, 3 H d]` and a bias for each block, or None, to rows `[T, H d]`."""

    @staticmethod
    def forward(
        ctx: Any, qkv: Tensor, layout: DenseLayout, num_heads: int, dropout: float, *biases: Tensor | None
    ) -> Tensor:
        """Mixed values; `dropout` is 0 outside of training."""
        from graphbench.nn.block_attention_numba import LANES, attend

        rows, width = qkv.contiguous(), qkv.shape[1] // (3 * num_heads)
        places = (layout.place,) if all(bias is None for bias in biases) else layout.places
        drawn = draw_pairs(layout, num_heads, dropout, LANES) if dropout else None
        numbers, mixed = rows.new_empty(2, rows.shape[0] * num_heads), rows.new_empty(rows.shape[0], num_heads * width)
        results = (*numbers, mixed.view(-1))
        for place, bias in zip(places, biases, strict=False):
            operands = (rows.view(-1), *place, num_heads, width, *_added(bias), *_numbers(drawn), *results)
            steps = _pairs(place, num_heads) * (_PRODUCT_STEPS * width + _SOFTMAX_STEPS)
            run_in_threads(attend, len(place.sizes) * num_heads, steps, *operands)
        ctx.save_for_backward(rows, numbers, *biases)
        ctx.places, ctx.drawn, ctx.num_heads = places, drawn, num_heads
        return mixed

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, upstream: Tensor) -> tuple[Tensor | None, ...]:
        """Gradients of the rows and of biases that ask for theirs."""
        from graphbench.nn.block_attention_numba import attend_gradient

        rows, numbers, *biases = ctx.saved_tensors
        num_heads, width = ctx.num_heads, rows.shape[1] // (3 * ctx.num_heads)
        upstream, of_rows = upstream.contiguous(), torch.empty_like(rows)
        of_biases: list[Tensor | None] = [None] * len(biases)
        for number, (place, bias) in enumerate(zip(ctx.places, biases, strict=False)):
            asked = ctx.needs_input_grad[4 + number]
            shape = (len(place.sizes), num_heads, place.length, place.length)
            of_scores = rows.new_zeros(shape if asked else 0)
            added = (*_added(bias), *_numbers(ctx.drawn), *numbers)
            results = (upstream.view(-1), of_rows.view(-1), of_scores.view(-1))
            steps = _pairs(place, num_heads) * (3 * _PRODUCT_STEPS * width + _SOFTMAX_STEPS)
            count = len(place.sizes) * num_heads
            run_in_threads(attend_gradient, count, steps, rows.view(-1), *place, num_heads, width, *added, *results)
            of_biases[number] = of_scores.sum_to_size(bias.shape) if asked else None
        return of_rows, None, None, None, *of_biases


def _pairs(place: BlockPlace, num_heads: int) -> int:
    return len(place.sizes) * num_heads * place.length**2


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
