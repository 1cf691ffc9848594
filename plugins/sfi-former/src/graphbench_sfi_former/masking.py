"""Key masks in the form the solvers need, cut out block by block."""

from __future__ import annotations

import math
from typing import NamedTuple

import torch
from torch import Tensor

from graphbench.errors import BadInput
from graphbench_sfi_former.rows import Block


class Wall(NamedTuple):
    """The mask of one block of m matrices and n rows (a row axis of length 1 where all rows share their keys).

    Args:
        height: infinite at keys that are not allowed, else 0, `[m, n, K]`.
        finite: the same with a large finite number, so that rows without any key stay free of NaN, `[m, n, K]`.
        closed: rows without any key `[m, n, 1]`; None where every row has one.
        num_keys: number of allowed keys, at least 1, `[m, n, 1]`.
    """

    height: Tensor
    finite: Tensor
    closed: Tensor | None
    num_keys: Tensor


class KeyMask:
    """A boolean mask (True: key allowed) over `[*lead, N, K]`, never expanded as a whole.

    Args:
        mask: boolean, broadcastable to `[*lead, N, K]`.
        lead: leading dimensions of the attention, as `(graphs, heads)`; may be empty.
        num_rows: N.
        num_keys: K.

    Raises:
        BadInput: not boolean, or of a shape that does not fit.
    """

    def __init__(self, mask: Tensor, lead: tuple[int, ...], num_rows: int, num_keys: int) -> None:
        check_mask(mask, (*lead, num_rows, num_keys))
        lead = lead or (1,)
        mask = mask[(None,) * (len(lead) + 2 - mask.dim())]
        self._mask = mask.expand(*lead, mask.shape[-2], num_keys)
        self._given = mask
        self._lead = lead

    def whole(self) -> Tensor:
        """All of it, with the leading dimensions flattened and a row axis of length 1 where rows share their keys."""
        return self._mask.reshape(-1, *self._mask.shape[-2:])

    def own(self) -> tuple[Tensor, Tensor]:
        """Its different matrices `[L, N or 1, K]`, and the number of the one that each of the M has, `[M]`."""
        own_lead = self._given.shape[:-2]
        numbers = torch.arange(math.prod(own_lead), device=self._given.device).view(own_lead)
        own = self._given.expand(*self._given.shape[:-1], self._mask.shape[-1]).flatten(0, -3)
        return own.contiguous(), numbers.expand(self._lead).reshape(-1)

    def wall(self, at: Block, like: Tensor) -> Wall:
        """The part in this block (matrices are numbered over all leading dimensions), in the dtype of `like`."""
        matrices, rows = at
        numbers = torch.arange(matrices.start, matrices.stop, device=self._mask.device)
        allowed = self._mask[torch.unravel_index(numbers, self._lead)]
        if allowed.shape[-2] > 1:
            allowed = allowed[:, rows]
        height = like.new_zeros(allowed.shape).masked_fill_(~allowed, torch.inf)
        num_keys = allowed.sum(-1, keepdim=True)
        closed = num_keys == 0
        finite = height.clamp_max(torch.finfo(like.dtype).max ** 0.8)
        return Wall(height, finite, closed if bool(closed.any()) else None, num_keys.clamp_min(1).to(like.dtype))


def check_mask(mask: Tensor, shape: tuple[int, ...]) -> None:
    """Raise `BadInput` unless `mask` is boolean and broadcasts to `shape`."""
    if mask.dtype != torch.bool:
        raise BadInput(
            f"mask must be boolean (True: the key is allowed), but has dtype {mask.dtype}. Use mask.bool() for 0/1."
        )
    fits = mask.dim() <= len(shape) and all(m in (1, s) for m, s in zip(mask.shape[::-1], shape[::-1], strict=False))
    if not fits:
        raise BadInput(f"mask has shape {tuple(mask.shape)}, which does not broadcast to {shape}.")
