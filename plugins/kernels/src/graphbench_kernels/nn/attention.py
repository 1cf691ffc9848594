"""Softmax attention within small graphs on a CPU, from rows of queries, keys and values to rows of mixed values.

Forward and backward are one call per block and one autograd step each, compared with about thirty torch operations;
`attention_numba` contains the computation. Second derivatives are those of the formula as written.

Legend: T rows of all graphs, b graphs of a block, n rows of its largest one, H heads, d head width.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import Any, NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from graphbench.contracts.kernels import plain_form
from graphbench.nn import attention_weights, pad_blocks, split_heads, unpad_blocks
from graphbench_kernels.nn.again import gradients_by
from graphbench_kernels.nn.dropping import DroppedBits, draw_bits, draws_bits
from graphbench_kernels.running import run_in_threads, runs_numba

#: Rows of a graph up to which torch has nothing faster; without dropout it has a fused attention for larger ones.
_SMALL = 512
#: Arithmetic operations per pair: for a softmax, with an exponential and four passes, and for the products, per
#: channel.
_SOFTMAX_STEPS, _PRODUCT_STEPS = 16, 1
_NO_BIAS, _NO_STEPS, _NO_BITS = np.empty(0, np.float32), np.zeros(3, np.int64), np.empty(0, np.int16)


def packed_attention(
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
    """Compute `graphbench::packed_attention` in float32; nothing is padded, whatever the value of `packed`."""
    packing = Packing(ptr, order, slots, shapes)
    if fit_loops(qkv, biases, max(shapes[1::2], default=0), dropout):
        mixed: Tensor = _Attention.apply(qkv, packing, list(padding), num_heads, dropout, *biases)
        return mixed
    return plain_form("graphbench::packed_attention")(qkv, *packing, padding, biases, num_heads, dropout, packed)


def fit_loops(qkv: Tensor, biases: Sequence[Tensor | None], length: int, dropout: float) -> bool:
    """Return whether loops support this: float32, and without dropout only graphs that are not large.

    Arguments as for the plain form; `length` is the size of the largest graph.
    """
    given = [qkv, *(bias for bias in biases if bias is not None)]
    fits = all(x.dtype is torch.float32 for x in given) and qkv.numel() > 0 and not torch.is_autocast_enabled("cpu")
    return fits and (draws_bits(dropout) if dropout else length <= _SMALL) and runs_numba(*given)


class Packing(NamedTuple):
    """As for the plain form."""

    ptr: Tensor
    order: Tensor | None
    slots: Tensor | None
    shapes: Sequence[int]


class Place(NamedTuple):
    """Positions of a block's graphs among the rows of a batch.

    Args:
        starts: first row of each graph `[b]`.
        sizes: rows of each graph `[b]`.
        pairs: first pair of rows of each graph `[b]`, in a concatenation of the pairs of all graphs of the batch.
        length: rows n that each graph is padded to.
    """

    starts: NDArray[np.int64]
    sizes: NDArray[np.int64]
    pairs: NDArray[np.int64]
    length: int


def place_graphs(ptr: Tensor) -> Place:
    """Return the positions of all graphs of a batch, from the first row of each `[B + 1]`.

    Examples:
        >>> place_graphs(torch.tensor([0, 2, 5]))
        Place(starts=array([0, 2]), sizes=array([2, 3]), pairs=array([0, 4]), length=3)
    """
    sizes = ptr.diff().numpy()
    return Place(ptr[:-1].numpy(), sizes, np.cumsum(sizes**2) - sizes**2, int(sizes.max(initial=0)))


def place_blocks(ptr: Tensor, order: Tensor | None, shapes: Sequence[int]) -> list[Place]:
    """Return the positions of each block's graphs; arguments as for the plain form."""
    whole = place_graphs(ptr)
    if order is None:
        return [whole._replace(length=shapes[1])]  # biases may have room for more than the largest graph
    parts = order.split(list(shapes[::2]))
    return [
        Place(whole.starts[graphs], whole.sizes[graphs], whole.pairs[graphs], length)
        for graphs, length in zip((part.numpy() for part in parts), shapes[1::2], strict=True)
    ]


class _Attention(torch.autograd.Function):
    """Map rows `[T, 3 H d]` and a bias for each block, or None, to rows `[T, H d]`."""

    @staticmethod
    def forward(
        ctx: Any,
        qkv: Tensor,
        packing: Packing,
        padding: list[Tensor | None],
        num_heads: int,
        dropout: float,
        *biases: Tensor | None,
    ) -> Tensor:
        from graphbench_kernels.nn.attention_numba import LANES, attend

        rows, width = qkv.contiguous(), qkv.shape[1] // (3 * num_heads)
        whole = place_graphs(packing.ptr)
        biased = any(bias is not None for bias in biases)
        places = place_blocks(packing.ptr, packing.order, packing.shapes) if biased else [whole]
        pairs = int((whole.sizes**2).sum())
        drawn = draw_bits(pairs * num_heads, dropout, LANES) if dropout else None
        numbers, mixed = rows.new_empty(2, rows.shape[0] * num_heads), rows.new_empty(rows.shape[0], num_heads * width)
        results = (*numbers, mixed.view(-1))
        # Without a bias one place covers the whole batch, and there are more biases (None) than places.
        for place, bias in zip(places, biases, strict=False):
            operands = (rows.view(-1), *place, num_heads, width, *_added(bias), *_numbers(drawn), *results)
            steps = _pairs(place, num_heads) * (_PRODUCT_STEPS * width + _SOFTMAX_STEPS)
            run_in_threads(attend, len(place.sizes) * num_heads, steps, *operands)
        ctx.save_for_backward(qkv, numbers, *biases)
        ctx.packing, ctx.padding, ctx.places, ctx.drawn, ctx.num_heads = packing, padding, places, drawn, num_heads
        return mixed

    @staticmethod
    def backward(ctx: Any, upstream: Tensor) -> tuple[Tensor | None, ...]:
        from graphbench_kernels.nn.attention_numba import attend_gradient

        qkv, numbers, *biases = ctx.saved_tensors
        if torch.is_grad_enabled():
            needed = (ctx.needs_input_grad[0], *ctx.needs_input_grad[5:])
            # The formula works by blocks, even if the loops processed the batch as a whole.
            places = place_blocks(ctx.packing.ptr, ctx.packing.order, ctx.packing.shapes)
            factors = [
                kept_factors(ctx.drawn, place, ctx.num_heads, qkv.dtype) if ctx.drawn else None for place in places
            ]
            defined = partial(formula, ctx.packing, ctx.padding, ctx.num_heads, factors)
            grad_qkv, *grad_given = gradients_by(defined, (qkv, *biases), needed, (upstream,))
            return grad_qkv, None, None, None, None, *grad_given
        rows = qkv.contiguous()
        num_heads, width = ctx.num_heads, rows.shape[1] // (3 * ctx.num_heads)
        upstream, grad_rows = upstream.contiguous(), torch.empty_like(rows)
        grad_biases: list[Tensor | None] = [None] * len(biases)
        for number, (place, bias) in enumerate(zip(ctx.places, biases, strict=False)):
            needed = ctx.needs_input_grad[5 + number]
            shape = (len(place.sizes), num_heads, place.length, place.length)
            grad_scores = rows.new_zeros(shape if needed else 0)
            added = (*_added(bias), *_numbers(ctx.drawn), *numbers)
            results = (upstream.view(-1), grad_rows.view(-1), grad_scores.view(-1))
            steps = _pairs(place, num_heads) * (3 * _PRODUCT_STEPS * width + _SOFTMAX_STEPS)
            count = len(place.sizes) * num_heads
            run_in_threads(attend_gradient, count, steps, rows.view(-1), *place, num_heads, width, *added, *results)
            grad_biases[number] = grad_scores.sum_to_size(bias.shape) if needed else None
        return grad_rows, None, None, None, None, *grad_biases


def formula(
    packing: Packing,
    padding: Sequence[Tensor | None],
    num_heads: int,
    factors: Sequence[Tensor | None],
    qkv: Tensor,
    *biases: Tensor | None,
) -> Tensor:
    """Compute the formula, with dropout's factors of the weights of each block; None for no dropout."""
    mixed = []
    blocks = zip(pad_blocks(qkv, packing.slots, packing.shapes), padding, biases, factors, strict=True)
    for part, hidden, bias, factor in blocks:
        q, k, v = split_heads(part, 3, num_heads)
        weights = attention_weights(q, k, hidden if bias is None else bias)
        if factor is not None:
            weights = weights * factor.to(weights.dtype)
        mixed.append((weights @ v).transpose(1, 2).flatten(2))
    return unpad_blocks(mixed, packing.slots)


def kept_factors(drawn: DroppedBits, place: Place, num_heads: int, dtype: torch.dtype) -> Tensor:
    """Return dropout's factors of a block's weights `[b, H, n, n]`; 0 where there is no pair."""
    factors = torch.zeros(len(place.sizes), num_heads, place.length, place.length, dtype=dtype)
    all_factors = (drawn.bits >= drawn.least).to(dtype) * drawn.factor
    for graph, (size, first) in enumerate(zip(place.sizes.tolist(), place.pairs.tolist(), strict=True)):
        graph_factors = all_factors[first * num_heads : (first + size**2) * num_heads]
        factors[graph, :, :size, :size] = graph_factors.view(num_heads, size, size)
    return factors


def _pairs(place: Place, num_heads: int) -> int:
    return len(place.sizes) * num_heads * place.length**2


def _added(bias: Tensor | None) -> tuple[Tensor | NDArray[np.float32], NDArray[np.int64]]:
    """Return the numbers of a bias `[b or 1, H or 1, n or 1, n]`, and the strides of graphs, heads and queries."""
    if bias is None:
        return _NO_BIAS, _NO_STEPS
    bias = bias.detach().contiguous()
    steps = [step if size > 1 else 0 for size, step in zip(bias.shape[:3], bias.stride()[:3], strict=True)]
    return bias.view(-1), np.array(steps)


def _numbers(drawn: DroppedBits | None) -> tuple[Tensor | NDArray[np.int16], np.int16, np.float32]:
    """Convert the arguments of kernels to the types of the numbers that they compare and multiply."""
    if drawn is None:
        return _NO_BITS, np.int16(0), np.float32(1)
    return drawn.bits, np.int16(drawn.least), np.float32(drawn.factor)
