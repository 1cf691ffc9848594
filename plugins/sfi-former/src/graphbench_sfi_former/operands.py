"""What the fused attention is made from, block by block.

Legend: M matrices (graphs times heads), N queries, K keys, d head width; m and n: those of a block.
"""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import Tensor

from graphbench_sfi_former.rows import Block, covers


class Projections(NamedTuple):
    """What attention is made from, or the gradients of it; leading dimensions flattened.

    Args:
        query, friction_query: `[M, N, d]`.
        key, friction_key: `[M, K, d]`.
        value: `[M, K, d_v]`.
    """

    query: Tensor
    key: Tensor
    friction_query: Tensor
    friction_key: Tensor
    value: Tensor

    @classmethod
    def flat(cls, *parts: Tensor) -> Projections:
        """From tensors with any leading dimensions, in the order of the fields."""
        return cls(*(x.reshape(-1, *x.shape[-2:]) for x in parts))

    def cut(self, at: Block) -> Projections:
        """The part in this block, as views."""
        if covers(at, self.query):
            return self
        query, key, friction_query, friction_key, value = self
        return Projections(query[at], key[at[0]], friction_query[at], friction_key[at[0]], value[at[0]])


class Energy(NamedTuple):
    """Weights of the energy's terms, float64: alpha may be smaller than any positive float32.

    Args:
        penalty: `[M, 1, 1]`, not negative.
        alpha: `[M, 1, 1]`, positive; None for the hard constraint.
    """

    penalty: Tensor
    alpha: Tensor | None

    def cut(self, at: Block) -> Energy:
        """The part in this block, as views."""
        if covers(at[:1], self.penalty):
            return self
        return self._replace(penalty=self.penalty[at[0]], alpha=None if self.alpha is None else self.alpha[at[0]])

    def to(self, dtype: torch.dtype) -> Energy:
        """The same in another dtype."""
        return self._replace(penalty=self.penalty.to(dtype), alpha=None if self.alpha is None else self.alpha.to(dtype))


class EnergyGradients(NamedTuple):
    """Gradients of an `Energy`, `[M, 1, 1]`; None where nobody asks for them."""

    penalty: Tensor | None
    alpha: Tensor | None

    @classmethod
    def zeros(cls, energy: Energy, of_penalty: bool, of_alpha: bool) -> EnergyGradients:
        """Zeros for what is asked for."""
        alpha = torch.zeros_like(energy.alpha) if of_alpha and energy.alpha is not None else None
        return cls(torch.zeros_like(energy.penalty) if of_penalty else None, alpha)

    def cut(self, at: Block) -> EnergyGradients:
        """The part in this block, as views."""
        return EnergyGradients(*(None if x is None else x[at[0]] for x in self))


class Buffers(NamedTuple):
    """Memory of one block, `[m, n, K]` each.

    Args:
        weight: S.
        cost: F, then g.
        gap, flow, spare: for what comes and goes.
        keep: dropout's factors; None without dropout.
    """

    weight: Tensor
    cost: Tensor
    gap: Tensor
    flow: Tensor
    spare: Tensor
    keep: Tensor | None = None


def put_rows(whole: Tensor, rows: Tensor, values: Tensor) -> None:
    """Write `values [R, K]` over the rows of `whole [m, n, K]` with these numbers (counted over m and n)."""
    whole.view(-1, whole.shape[-1]).index_copy_(0, rows, values.to(whole.dtype))
