"""Maxout attention to sampled tokens on a processor, from rows of queries to rows of mixed values in one step.

What `SampledAttention` computes of scores, relative terms on edges, leaky weights and values is one loop of
`mixture_numba` forward and one backward, where operations of torch are some forty over tensors of all scores.

Legend: T tokens of all graphs, b graphs of a block, K sampled tokens, H heads, h head width, P pairs.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable

from graphbench.kernels import run_in_threads, runs_numba
from graphbench.nn import DenseLayout
from graphbench_sft.relative import PairTerms, PlaceTerms


class Operands(NamedTuple):
    """What attention of one block of graphs works on beside the queries.

    Args:
        key: `[b, K, H h]`.
        value: `[b, K, H h]`.
        leak: after the softplus `[b, K, H]`, or None.
        mask: which slots are filled, bool `[b, K]`, or None when all are.
        pairs: relative terms of pairs, or None.
        places: what makes relative terms of all pairs, or None.
    """

    key: Tensor
    value: Tensor
    leak: Tensor | None
    mask: Tensor | None
    pairs: PairTerms | None = None
    places: PlaceTerms | None = None

    @property
    def numbers(self) -> tuple[Tensor | None, ...]:
        """All that has gradients."""
        mul, add = (None, None) if self.pairs is None else (self.pairs.mul, self.pairs.add)
        weight, maps = (None, None) if self.places is None else (self.places.weight, self.places.maps)
        return self.key, self.value, self.leak, mul, add, weight, maps

    @property
    def constants(self) -> _Constants:
        """All that has none."""
        none = torch.empty(0, dtype=torch.int64)
        mask = none.bool() if self.mask is None else self.mask
        row, slot = (none, none) if self.pairs is None else (self.pairs.row, self.pairs.slot)
        if self.places is None:
            return _Constants(mask, row, slot, self.key.new_empty(0), none, none)
        return _Constants(mask, row, slot, *(x.detach() for x in self.places[:3]))


#: How many tensors `Operands.numbers` has.
_NUMBERS = 7


def runs_in_one_step(numbers: Sequence[Tensor]) -> bool:
    """Whether `mixed_in_one_step` computes with these: on a processor with Numba, all in the same precision."""
    return all(x.dtype is numbers[0].dtype and x.numel() for x in numbers) and runs_numba(*numbers)


def mixed_in_one_step(
    query: Tensor,
    layout: DenseLayout,
    num_heads: int,
    blocks: Sequence[Operands],
    at_zero: tuple[Tensor, Tensor] | None,
) -> Tensor:
    """Mixed values `[T, H h]` by maxout scores; see `SampledAttention`.

    Args:
        query: rows of all graphs `[T, H h]`.
        layout: where they lie.
        num_heads: H.
        blocks: what they attend to, for each of `layout.blocks`.
        at_zero: factors and summands of the scores of all pairs, `[H]` each; None for none.
    """
    mul, add = (query.new_ones(num_heads), query.new_zeros(num_heads)) if at_zero is None else at_zero
    numbers = (number for block in blocks for number in block.numbers)
    constants = [block.constants for block in blocks]
    mixed: Tensor = _Mixture.apply(
        query, layout, num_heads, constants, mul.to(query.dtype), add.to(query.dtype), *numbers
    )
    return mixed


class _Constants(NamedTuple):
    """What has no gradients of a block, as in `Operands`; of length 0 where it has none."""

    mask: Tensor
    row: Tensor
    slot: Tensor
    places: Tensor
    chosen: Tensor
    partner: Tensor


class _Mixture(torch.autograd.Function):
    """See `mixed_in_one_step`; the numbers of all blocks come one after the other."""

    @staticmethod
    def forward(
        ctx: Any,
        query: Tensor,
        layout: DenseLayout,
        num_heads: int,
        constants: Sequence[_Constants],
        mul: Tensor,
        add: Tensor,
        *numbers: Tensor | None,
    ) -> Tensor:
        from graphbench_sft.mixture_numba import mix

        mul, add = mul.clone(), add.clone()  # views of parameters stay out of kernels, see `run_in_threads`
        query, kept = query.contiguous(), [None if number is None else number.contiguous() for number in numbers]
        mixed, inverse = torch.empty_like(query), query.new_empty(len(query), num_heads)
        ctx.layout, ctx.num_heads, ctx.constants = layout, num_heads, constants
        ctx.save_for_backward(query, mul, add, mixed, inverse, *kept)
        for block, count, steps in _calls(ctx, query, mul, add, kept):
            run_in_threads(mix, count, steps, *block, mixed.view(-1), inverse.view(-1))
        return mixed

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, grad: Tensor) -> tuple[Any, ...]:
        from graphbench_sft.mixture_numba import mix_gradient

        query, mul, add, mixed, inverse, *kept = ctx.saved_tensors
        of_query, of_all = torch.empty_like(query), query.new_zeros(2, len(mul))
        of_numbers: list[Tensor | None] = []
        rest = [_flat(tensor) for tensor in (mixed, inverse, grad.contiguous(), of_query)]
        for number, (block, count, steps) in enumerate(_calls(ctx, query, mul, add, kept)):
            own = kept[_NUMBERS * number : _NUMBERS * (number + 1)]
            *of_own, weight, maps = (None if x is None else torch.empty_like(x) for x in own)
            by_head = query.new_empty(2, count // len(mul), len(mul))
            of_weight, of_maps = (
                None if x is None else query.new_empty(count // len(mul), len(mul), x.shape[-1]) for x in (weight, maps)
            )
            key, value, leak, *pairs = (_flat(x, query) for x in of_own)
            out = (key, value, leak, *by_head.view(2, -1), *pairs, _flat(of_weight, query), _flat(of_maps, query))
            run_in_threads(mix_gradient, count, 4 * steps, *block, *rest, *out)
            if maps is None:  # else places have made all terms
                of_all += by_head.sum(1)
            of_numbers += of_own
            of_numbers += [
                None if of_weight is None else of_weight.sum(1),
                None if of_maps is None else of_maps.sum(0),
            ]
        return of_query, None, None, None, *of_all, *of_numbers


def _calls(
    ctx: Any, query: Tensor, mul: Tensor, add: Tensor, numbers: Sequence[Tensor | None]
) -> Iterator[tuple[tuple[Any, ...], int, int]]:
    """For each block the first arguments of the kernels, how many heads of graphs it has, and steps of arithmetic."""
    num_heads, width = ctx.num_heads, query.shape[1] // ctx.num_heads
    for number, (place, own) in enumerate(zip(ctx.layout.places, ctx.constants, strict=True)):
        key, value, leak, *pairs, weight, maps = numbers[_NUMBERS * number : _NUMBERS * (number + 1)]
        assert key is not None
        mask, row, slot, places, chosen, partner = (_flat(x.contiguous()) for x in own)
        shape = (place.starts, place.sizes, key.shape[1], num_heads, width)
        floats = [_flat(x, query) for x in (query, key, value, leak)]
        terms = (_flat(mul), _flat(add), place.length, row, slot, *(_flat(x, query) for x in pairs))
        by_place = (places, chosen, partner, _flat(weight, query), _flat(maps, query))
        steps = int(place.sizes.sum()) * key.shape[1] * query.shape[1]
        yield (*shape, *floats, mask, *terms, *by_place), len(place.sizes) * num_heads, steps


def _flat(x: Tensor | None, like: Tensor | None = None) -> Tensor:
    """A view with one axis; nothing where there is none."""
    if x is None:
        assert like is not None
        return like.new_empty(0)
    return x.view(-1)
