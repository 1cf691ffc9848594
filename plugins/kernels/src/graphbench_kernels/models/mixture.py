"""Maxout attention to sampled tokens on a CPU, from rows of queries to rows of mixed values in one step.

Scores, relative terms on edges, leaky weights and values of `SampledAttention` are one loop of `mixture_numba` forward
and one backward, compared with about forty torch operations over tensors of all scores.

Legend: T tokens of all graphs, b graphs of a block, K sampled tokens, H heads, h head width, P pairs.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import torch
from torch import Tensor

from graphbench.contracts.kernels import plain_form
from graphbench_kernels.nn.again import gradients_by
from graphbench_kernels.nn.attention import place_blocks
from graphbench_kernels.running import run_in_threads, runs_numba

#: Tensors of a block: key, value, leak, mask, row, slot, pair_mul, pair_add, places, chosen, partner, weight, maps.
_TENSORS = 13


def mixture(
    query: Tensor,
    ptr: Tensor,
    order: Tensor | None,
    slots: Tensor | None,
    shapes: Sequence[int],
    num_heads: int,
    mul: Tensor | None,
    add: Tensor | None,
    *lists: Sequence[Tensor | None],
) -> Tensor:
    """Compute `graphbench_sft::mixture`, all in the same precision."""
    packing = (ptr, order, slots, shapes)
    given = [x for tensors in lists for x in tensors if x is not None and x.is_floating_point()]
    keys = [key for key in lists[0] if key is not None]
    if all(x.dtype is query.dtype and x.numel() for x in (query, *keys)) and runs_numba(query, *given):
        mixed: Tensor = _Mixture.apply(query, packing, num_heads, mul, add, *_by_block(lists))
        return mixed
    plain_mixture: Tensor = plain_form("graphbench_sft::mixture")(query, *packing, num_heads, mul, add, *lists)
    return plain_mixture


def _by_block(lists: Sequence[Sequence[Tensor | None]]) -> list[Tensor | None]:
    return [x for block_tensors in zip(*lists, strict=True) for x in block_tensors]


class _Mixture(torch.autograd.Function):
    """See `mixture`; the tensors of all blocks are passed block by block."""

    @staticmethod
    def forward(
        ctx: Any,
        query: Tensor,
        packing: tuple[Any, ...],
        num_heads: int,
        mul: Tensor | None,
        add: Tensor | None,
        *tensors: Tensor | None,
    ) -> Tensor:
        from graphbench_kernels.models.mixture_numba import mix

        ctx.packing, ctx.num_heads = packing, num_heads
        mixed = torch.empty_like(query, memory_format=torch.contiguous_format)
        inverse = query.new_empty(len(query), num_heads)
        ctx.save_for_backward(query, mul, add, mixed, inverse, *tensors)
        for block, count, steps in _calls(ctx, query, mul, add, tensors):
            run_in_threads(mix, count, steps, *block, mixed.view(-1), inverse.view(-1))
        return mixed

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> tuple[Any, ...]:
        from graphbench_kernels.models.mixture_numba import mix_gradient

        query, mul, add, mixed, inverse, *tensors = ctx.saved_tensors
        if torch.is_grad_enabled():
            inputs = (query, ctx.packing, ctx.num_heads, mul, add, *tensors)
            return gradients_by(_defined, inputs, ctx.needs_input_grad, (grad,))
        of_query, of_all = torch.empty_like(mixed), query.new_zeros(2, ctx.num_heads)
        of_tensors: list[Tensor | None] = []
        rest = [_flat(tensor) for tensor in (mixed, inverse, grad.contiguous(), of_query)]
        for number, (block, count, steps) in enumerate(_calls(ctx, query, mul, add, tensors)):
            block_tensors = tensors[_TENSORS * number : _TENSORS * (number + 1)]
            key, value, leak, _, _, _, pair_mul, pair_add, _, _, _, weight, maps = block_tensors
            of_own = [None if x is None else x.new_empty(x.shape) for x in (key, value, leak, pair_mul, pair_add)]
            graphs = count // ctx.num_heads
            by_head = query.new_empty(2, graphs, ctx.num_heads)
            of_weight, of_maps = (
                None if x is None else query.new_empty(graphs, ctx.num_heads, x.shape[-1]) for x in (weight, maps)
            )
            floats = [_flat(x, query) for x in of_own]
            out = (*floats[:3], *by_head.view(2, -1), *floats[3:], _flat(of_weight, query), _flat(of_maps, query))
            run_in_threads(mix_gradient, count, 4 * steps, *block, *rest, *out)
            if maps is None:  # else places determine all terms
                of_all += by_head.sum(1)
            of_weight = None if of_weight is None else of_weight.sum(1)
            of_maps = None if of_maps is None else of_maps.sum(0)
            of_tensors += [*of_own[:3], None, None, None, *of_own[3:], None, None, None, of_weight, of_maps]
        of_mul, of_add = of_all if mul is not None else (None, None)
        return of_query, None, None, of_mul, of_add, *of_tensors


def _defined(
    query: Tensor, packing: tuple[Any, ...], num_heads: int, mul: Tensor | None, add: Tensor | None, *tensors: Any
) -> Tensor:
    lists = [list(tensors[first::_TENSORS]) for first in range(_TENSORS)]
    mixed: Tensor = plain_form("graphbench_sft::mixture")(query, *packing, num_heads, mul, add, *lists)
    return mixed


def _calls(
    ctx: Any, query: Tensor, mul: Tensor | None, add: Tensor | None, tensors: Sequence[Tensor | None]
) -> Iterator[tuple[tuple[Any, ...], int, int]]:
    """Yield for each block the first arguments of the kernels, the number of its graphs' heads, and of operations."""
    num_heads, width = ctx.num_heads, query.shape[1] // ctx.num_heads
    ptr, order, _, shapes = ctx.packing
    factors = query.new_ones(num_heads) if mul is None else mul.clone()  # views of parameters must not reach kernels
    summands = query.new_zeros(num_heads) if add is None else add.clone()
    none = torch.empty(0, dtype=torch.int64)
    for number, place in enumerate(place_blocks(ptr, order, shapes)):
        block_tensors = tensors[_TENSORS * number : _TENSORS * (number + 1)]
        key, value, leak, mask, row, slot, pair_mul, pair_add, places, chosen, partner, weight, maps = block_tensors
        assert key is not None
        sizes = (place.starts, place.sizes, key.shape[1], num_heads, width)
        floats = [_flat(x, query) for x in (query, key, value, leak)]
        integers = [_flat(x, none) for x in (row, slot)]
        pairs = (*integers, *(_flat(x, query) for x in (pair_mul, pair_add)))
        terms = (_flat(factors), _flat(summands), place.length, *pairs)
        by_place = (_flat(places, query), *(_flat(x, none) for x in (chosen, partner)))
        by_place = (*by_place, *(_flat(x, query) for x in (weight, maps)))
        steps = int(place.sizes.sum()) * key.shape[1] * query.shape[1]
        yield (*sizes, *floats, _flat(mask, none.bool()), *terms, *by_place), len(place.sizes) * num_heads, steps


def _flat(x: Tensor | None, like: Tensor | None = None) -> Tensor:
    """Flatten to a view or a copy; empty if there is no array."""
    if x is None:
        assert like is not None
        return like.new_empty(0)
    return x.detach().contiguous().view(-1)
