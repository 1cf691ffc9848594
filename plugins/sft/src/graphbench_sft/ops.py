"""The operations of SFT's attention that an installed package of kernels may compute faster, in plain torch.

The plain `mixture` keeps all n K h comparisons in memory: `SampledAttention` calls it only if a kernel is installed.

Legend: M matrices (batch x heads), p and s rows of two operands, d channels; T tokens of all graphs, b graphs of a
block, n padded tokens, K sampled tokens, H heads of h channels each, P pairs.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor

from graphbench.contracts.kernels import operation
from graphbench.nn import DenseLayout, pad_blocks, split_heads, unpad_blocks
from graphbench_sft.relative import PairTerms, PlaceTerms

#: Numbers in a block. 0.5 MB of float32 is half of the second-level cache of today's server cores; on other devices a
#: block only has to be large enough to keep them busy.
_CPU_BLOCK = 1 << 17
_DEVICE_BLOCK = 1 << 24
#: torch compares along the last axis. The queries use it if there are fewer keys than this and than queries.
_SHORT_ROW = 128
#: Added to every denominator of leaky ReLU probabilities: a row without a positive score has weights 0, not 0 / 0.
EPSILON = 1e-6


@operation("graphbench_sft")
def maxima(a: Tensor, b: Tensor) -> Tensor:
    """Compute `sum_c max(a_ic, b_jc)`, `[M, p, s]`, of `a [M, p, d]` and `b [M, s, d]`, for `maxout_scores`.

    Computed in blocks that stay in the CPU's cache: one call compares all channels of a few rows with all others, the
    next ones sum the channels. On one core this takes less than half the time of `torch.cdist(p=1)`, which the identity
    `max(a, b) = (a + b + |a - b|) / 2` would allow.

    Examples:
        >>> maxima(torch.tensor([[[0.0, 5.0]]]), torch.tensor([[[1.0, 2.0]]]))
        tensor([[[6.]]])
    """
    if b.shape[1] < min(_SHORT_ROW, a.shape[1]):
        return _maxima(b, a).transpose(1, 2).contiguous()
    return _maxima(a, b)


def _maxima(a: Tensor, b: Tensor) -> Tensor:
    out = a.new_empty(*a.shape[:2], b.shape[1])
    if not a.shape[-1]:
        return out.zero_()
    group, rows = _block_shape(a, b)
    # Channels first: summing them then runs over long contiguous rows.
    by_channel = a.permute(2, 0, 1).contiguous().unsqueeze(-1)
    others = b.permute(2, 0, 1).contiguous().unsqueeze(-2)
    block = a.new_empty(0)
    # `split` creates all views in one call; indexing in the loop would cost as much as the arithmetic.
    for left, right, result in zip(by_channel.split(group, 1), others.split(group, 1), out.split(group), strict=True):
        for part, total in zip(left.split(rows, 2), result.split(rows, 1), strict=True):
            if block.shape[:3] != part.shape[:3]:
                block = a.new_empty(*part.shape[:3], b.shape[1])
            torch.maximum(part, right, out=block)
            torch.sum(block, 0, out=total)
    return out


@operation("graphbench_sft")
def maxima_gradients(a: Tensor, b: Tensor, grad: Tensor) -> tuple[Tensor, Tensor]:
    """Return gradients `[M, p, d]` and `[M, s, d]` of `maxima`: `grad_ij` goes to the larger of `a_ic` and `b_jc`.

    With `step = clamp(huge * (a_ic - b_jc), -1/2, 1/2)`, which is -1/2, 0 or 1/2, the share of `a` is `1/2 + step`.

    Examples:
        >>> maxima_gradients(torch.tensor([[[0.0, 5.0]]]), torch.tensor([[[1.0, 2.0]]]), torch.ones(1, 1, 1))
        (tensor([[[0., 1.]]]), tensor([[[1., 0.]]]))
    """
    if b.shape[1] < min(_SHORT_ROW, a.shape[1]):
        grad_b, grad_a = _maxima_gradients(b, a, grad.transpose(1, 2))
        return grad_a, grad_b
    return _maxima_gradients(a, b, grad)


def _maxima_gradients(a: Tensor, b: Tensor, grad: Tensor) -> tuple[Tensor, Tensor]:
    huge = _huge(a, b)
    group, rows = _block_shape(a, b)
    grad = grad.contiguous()
    grad_a = torch.empty_like(a)
    grad_b = b.new_zeros(b.shape[0], b.shape[2], b.shape[1])
    lefts, rights = (a * huge).unsqueeze(-1), (b * huge).transpose(1, 2).contiguous().unsqueeze(1)
    block = a.new_empty(0)
    groups = (tensor.split(group) for tensor in (lefts, rights, grad.unsqueeze(2), grad_a, grad_b))
    for left, right, weight, sums_a, sums_b in zip(*groups, strict=True):
        for part, share, total in zip(*(tensor.split(rows, 1) for tensor in (left, weight, sums_a)), strict=True):
            if block.shape[:3] != part.shape[:3]:
                block = a.new_empty(*part.shape[:3], b.shape[1])
            torch.sub(part, right, out=block).clamp_(-0.5, 0.5).mul_(share)
            torch.sum(block, -1, out=total)
            # The shares are 1/2 + step for a and 1/2 - step for b; the halves are added at the end.
            sums_b.sub_(block.sum(1))
    grad_a += 0.5 * grad.sum(2, keepdim=True)
    return grad_a, grad_b.transpose(1, 2) + 0.5 * grad.sum(1).unsqueeze(-1)


def _huge(a: Tensor, b: Tensor) -> Tensor:
    """Return a factor that makes every difference that matters larger than one half without overflow."""
    ordinary, most = (2.0**200, 2.0**1020) if a.dtype == torch.float64 else (2.0**64, 2.0**124)
    largest = torch.stack([t.abs().amax() if t.numel() else t.new_zeros(()) for t in (a, b)]).amax()
    return (most / largest).clamp_max(ordinary)


def _block_shape(a: Tensor, b: Tensor) -> tuple[int, int]:
    """Return the number of matrices in a block, and the number of rows that it compares in each."""
    matrices, rows = a.shape[:2]
    size = _CPU_BLOCK if a.device.type == "cpu" else _DEVICE_BLOCK
    room = size // max(b.shape[1] * b.shape[2], 1)
    if room >= rows:
        return min(max(1, room // max(rows, 1)), max(matrices, 1)), max(rows, 1)
    # At least 8 rows: with many keys a larger block costs less than many small calls.
    return 1, -(-rows // -(-rows // max(room, 8)))


class Operands(NamedTuple):
    """Operands of attention in one block of graphs, except the queries.

    Args:
        key: `[b, K, H h]`.
        value: `[b, K, H h]`.
        leak: after the softplus `[b, K, H]`, or None.
        mask: true at filled slots, bool `[b, K]`, or None when all are.
        pairs: relative terms of pairs, or None.
        places: operands of relative terms of all pairs, or None.
    """

    key: Tensor
    value: Tensor
    leak: Tensor | None
    mask: Tensor | None
    pairs: PairTerms | None = None
    places: PlaceTerms | None = None


def mix_by_maxout(
    query: Tensor,
    layout: DenseLayout,
    num_heads: int,
    blocks: Sequence[Operands],
    at_zero: tuple[Tensor, Tensor] | None,
) -> Tensor:
    """Mix values `[T, H h]` using maxout scores, for all blocks of a layout; see `SampledAttention`.

    Args:
        query: rows of all graphs `[T, H h]`.
        layout: layout of these rows.
        num_heads: H.
        blocks: keys and values of each of `layout.blocks`.
        at_zero: factors and summands of the scores of all pairs, `[H]` each; None for none.
    """
    packing = layout.packing
    mul, add = (None, None) if at_zero is None else (number.to(query.dtype) for number in at_zero)
    lists = zip(
        *(
            (
                block.key,
                block.value,
                block.leak,
                block.mask,
                *(block.pairs or [None] * 4),
                *(block.places or [None] * 5),
            )
            for block in blocks
        ),
        strict=True,
    )
    packed = (packing.ptr, packing.order, packing.slots, packing.shapes)
    return mixture(query, *packed, num_heads, mul, add, *(list(tensors) for tensors in lists))


@operation("graphbench_sft")
def mixture(
    query: Tensor,
    ptr: Tensor,
    order: Tensor | None,
    slots: Tensor | None,
    shapes: Sequence[int],
    num_heads: int,
    mul: Tensor | None,
    add: Tensor | None,
    key: Sequence[Tensor],
    value: Sequence[Tensor],
    leak: Sequence[Tensor | None],
    mask: Sequence[Tensor | None],
    row: Sequence[Tensor | None],
    slot: Sequence[Tensor | None],
    pair_mul: Sequence[Tensor | None],
    pair_add: Sequence[Tensor | None],
    places: Sequence[Tensor | None],
    chosen: Sequence[Tensor | None],
    partner: Sequence[Tensor | None],
    weight: Sequence[Tensor | None],
    maps: Sequence[Tensor | None],
) -> Tensor:
    """Mix values `[T, H h]` for queries `[T, H h]` using maxout scores `A * R_mul + R_add`, in all blocks.

    Args:
        query: see `mix_by_maxout`.
        ptr: part of the layout of the rows, with `order`, `slots` and `shapes`; see `DenseLayout.packing`.
        order: see `ptr`.
        slots: see `ptr`.
        shapes: see `ptr`.
        num_heads: H.
        mul: factor of all scores `[H]`; None: 1.
        add: summand of all scores `[H]`; None: 0.
        key: part of the `Operands` of each block, with the remaining arguments; pairs and places may be None.
        value: see `key`.
        leak: see `key`.
        mask: see `key`.
        row: see `PairTerms`.
        slot: see `PairTerms`.
        pair_mul: see `PairTerms`.
        pair_add: see `PairTerms`.
        places: see `PlaceTerms`; its terms replace `mul` and `add`.
        chosen: see `PlaceTerms`.
        partner: see `PlaceTerms`.
        weight: see `PlaceTerms`.
        maps: see `PlaceTerms`.
    """
    mixed = []
    for number, part in enumerate(pad_blocks(query, slots, shapes)):
        q, k, v = (split_heads(rows, 1, num_heads)[0] for rows in (part, key[number], value[number]))
        scores = torch.maximum(q.unsqueeze(-2), k.unsqueeze(-3)).sum(-1) * q.shape[-1] ** -0.5
        rows_at, at, mapped = places[number], (chosen[number], partner[number], weight[number]), maps[number]
        if rows_at is not None and mapped is not None:
            factor, summand = _place_terms(rows_at, *at, mapped)
            scores = scores * factor + summand
        else:
            scores = _with_terms(scores, mul, add, row[number], slot[number], pair_mul[number], pair_add[number])
        mixed.append(_weigh(scores, v, leak[number], mask[number]))
    return unpad_blocks(mixed, slots)


def _weigh(scores: Tensor, value: Tensor, leak: Tensor | None, mask: Tensor | None) -> Tensor:
    """Mix values `[b, H, K, h]` with leaky ReLU probabilities of scores `[b, H, n, K]` to `[b, n, H h]`."""
    positive = F.relu(scores)
    if mask is not None:
        positive = positive.masked_fill(~mask[:, None, None], 0.0)
        value = value.masked_fill(~mask[:, None, :, None], 0.0)
        leak = None if leak is None else leak.masked_fill(~mask.unsqueeze(-1), 0.0)
    total = positive.sum(-1, keepdim=True) + EPSILON
    total = total if leak is None else total + leak.sum(1)[:, :, None, None]
    return (positive @ value / total).transpose(1, 2).flatten(2)


def _with_terms(
    scores: Tensor,
    mul: Tensor | None,
    add: Tensor | None,
    row: Tensor | None,
    slot: Tensor | None,
    pair_mul: Tensor | None,
    pair_add: Tensor | None,
) -> Tensor:
    """Apply `A * R_mul + R_add` to scores `[b, H, n, K]`, with terms of all pairs and additional ones of some."""
    by_head = scores.permute(0, 2, 3, 1)
    moved = by_head if mul is None or add is None else by_head * mul + add
    if row is not None and pair_mul is not None and pair_add is not None:
        place = row // scores.shape[2], row % scores.shape[2], slot
        # Accumulate, since several edges may lead to one slot.
        moved = moved.index_put(place, by_head[place] * pair_mul + pair_add, accumulate=True)
    return moved.permute(0, 3, 1, 2)


def _place_terms(
    places: Tensor, chosen: Tensor | None, partner: Tensor | None, weight: Tensor | None, maps: Tensor
) -> tuple[Tensor, Tensor]:
    """Compute `R_mul` and `R_add` `[b, H, n, K]` of squared distances and products of normals; see `PlaceTerms`."""
    assert chosen is not None
    assert partner is not None
    assert weight is not None
    terms = []
    for index in (chosen, partner):
        at = places.gather(1, index.unsqueeze(-1).expand(-1, -1, places.shape[-1]))
        squares = (places[:, :, None, :3] - at[:, None, :, :3]).square().sum(-1)
        products = places[..., 3:] @ at[..., 3:].transpose(1, 2)
        features = torch.stack([squares, products, torch.ones_like(squares)], dim=-1)
        mapped = (features @ maps.view(-1, 3).t()).unflatten(-1, (-1, 2)).permute(4, 0, 3, 1, 2)
        terms.append((F.softplus(mapped[0]), mapped[1]))
    share = weight[:, None, None]
    (mul, add), (other_mul, other_add) = terms
    return torch.lerp(other_mul, mul, share), torch.lerp(other_add, add, share)
