"""Softmax attention within small graphs on a processor, from rows of queries, keys and values to rows of mixed values.

The graphs of a block are packed, multiplied and unpacked: products by torch, all else by the loops of
`block_attention_numba`. Forward and backward are one step of autograd each, where operations of torch are some thirty.

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

from graphbench.kernels import run_in_threads, runs_numba
from graphbench.nn.dense import BlockPlace, DenseLayout
from graphbench.nn.dropout import DroppedBits, draw_bits, draws_bits

#: Rows of a graph up to which weights are kept where torch's fused attention would keep none: without dropout.
_SMALL = 192
#: Steps of arithmetic of a softmax, for each logit: an exponential and four passes.
_SOFTMAX_STEPS = 16
_NO_BIAS, _NO_BITS = np.empty((0, 1, 1, 1), np.float32), np.empty(0, np.int16)


def runs_in_loops(qkv: Tensor, layout: DenseLayout, biases: Sequence[Tensor | None], dropout: float) -> bool:
    """Whether `BlockAttention` computes this: in float32 on a processor, where Numba is.

    Without dropout it does so for graphs of different sizes that are not large; torch's fused attention is quicker at
    others.

    Arguments as in `attend_within_graphs`, without the biases that only hide padding.
    """
    given = [bias for bias in biases if bias is not None]
    if any(x.dtype is not torch.float32 for x in (qkv, *given)) or torch.is_autocast_enabled("cpu"):
        return False
    if not qkv.numel() or not runs_numba(qkv, *given):
        return False
    return draws_bits(dropout) if dropout else layout.max_nodes <= _SMALL and not layout.is_full


class BlockAttention(torch.autograd.Function):
    """Rows `[T, 3 H d]` and a bias for each block, or None, to rows `[T, H d]`."""

    @staticmethod
    def forward(
        ctx: Any, qkv: Tensor, layout: DenseLayout, num_heads: int, dropout: float, *biases: Tensor | None
    ) -> Tensor:
        """Mixed values; `dropout` is 0 outside of training."""
        from graphbench.nn.block_attention_numba import softmax

        rows = qkv.contiguous().view(qkv.shape[0], 3, num_heads, -1)
        mixed = rows.new_empty(qkv.shape[0], 1, num_heads, rows.shape[-1])
        kept: list[Tensor] = []
        drawn: list[DroppedBits | None] = []
        for place, bias in zip(layout.places, biases, strict=True):
            packed = _packed(rows, place, rows.shape[-1] ** -0.5)
            weights = torch.bmm(packed[0], packed[1].mT)
            drawn.append(draw_bits(weights.numel(), dropout) if dropout else None)
            left = torch.empty_like(weights) if dropout else weights
            by_head = weights.view(-1, num_heads, *weights.shape[1:])
            operands = (_NO_BIAS if bias is None else bias, *_numbers(drawn[-1]), left.view_as(by_head))
            steps = _SOFTMAX_STEPS * weights.numel()
            run_in_threads(softmax, len(weights), steps, by_head, place.sizes, *operands)
            _unpack(torch.bmm(left, packed[2]).unsqueeze(0), place, 1.0, mixed)
            kept += [packed, by_head]
        ctx.save_for_backward(*kept)
        ctx.places, ctx.drawn = layout.places, drawn
        ctx.bias_shapes = [None if bias is None else bias.shape for bias in biases]
        return mixed.view(qkv.shape[0], -1)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, upstream: Tensor) -> tuple[Tensor | None, ...]:
        """Gradients of the rows and of biases that ask for theirs."""
        from graphbench.nn.block_attention_numba import softmax_gradient

        kept, of_biases = ctx.saved_tensors, []
        num_heads, width = kept[1].shape[1], kept[0].shape[-1]
        upstream = upstream.contiguous().view(upstream.shape[0], 1, num_heads, width)
        grad = upstream.new_empty(upstream.shape[0], 3, num_heads, width)
        for number, (place, drawn) in enumerate(zip(ctx.places, ctx.drawn, strict=True)):
            packed, weights = kept[2 * number : 2 * number + 2]
            mixed = _packed(upstream, place, 1.0)[0]
            slopes = torch.bmm(mixed, packed[2].mT)
            by_head = slopes.view_as(weights)
            left = torch.empty_like(weights) if drawn is not None else weights
            operands = (weights, by_head, place.sizes, *_numbers(drawn), left)
            run_in_threads(softmax_gradient, len(slopes), _SOFTMAX_STEPS * slopes.numel() // 2, *operands)
            of_packed = torch.empty_like(packed)
            torch.bmm(slopes, packed[1], out=of_packed[0])
            torch.bmm(slopes.mT, packed[0], out=of_packed[1])
            torch.bmm(left.view_as(slopes).mT, mixed, out=of_packed[2])
            _unpack(of_packed, place, width**-0.5, grad)
            shape = ctx.bias_shapes[number]
            asked = shape is not None and ctx.needs_input_grad[4 + number]
            of_biases.append(by_head.sum_to_size(shape) if asked else None)
        return grad.view(grad.shape[0], -1), None, None, None, *of_biases


def _packed(rows: Tensor, place: BlockPlace, scale: float) -> Tensor:
    """The block's graphs of rows `[T, m, H, d]`, as padded heads `[m, b * H, n, d]`; the first map times `scale`."""
    from graphbench.nn.block_attention_numba import pack

    _, maps, num_heads, width = rows.shape
    blocks = rows.new_empty(maps, len(place.sizes) * num_heads, place.length, width)
    run_in_threads(pack, len(place.sizes), blocks.numel(), rows, place.starts, place.sizes, np.float32(scale), blocks)
    return blocks


def _unpack(blocks: Tensor, place: BlockPlace, scale: float, rows: Tensor) -> None:
    """Write padded heads into the block's rows, see `_packed`."""
    from graphbench.nn.block_attention_numba import unpack

    run_in_threads(unpack, len(place.sizes), blocks.numel(), blocks, place.starts, place.sizes, np.float32(scale), rows)


def _numbers(drawn: DroppedBits | None) -> tuple[Tensor | NDArray[np.int16], np.int16, np.float32]:
    """What kernels take, in the types of the numbers that they compare and multiply."""
    if drawn is None:
        return _NO_BITS, np.int16(0), np.float32(1)
    return drawn.bits, np.int16(drawn.least), np.float32(drawn.factor)
