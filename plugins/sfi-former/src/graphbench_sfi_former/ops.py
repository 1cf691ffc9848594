"""Operands of a whole sparse-flow attention and of blocks of it, which its operations share.

| operation | plain form | kernels of `graphbench-kernels` |
|---|---|---|
| `graphbench_sfi_former::water_level` | `sparse_flow` | cards, in Triton |
| `graphbench_sfi_former::attend_rows` | `blocks` | processors, in Numba |
"""

from __future__ import annotations

from typing import NamedTuple

from torch import Tensor

#: Slices of the matrices and of the rows of `[M, N, K]`.
Block = tuple[slice, slice]


class Operands(NamedTuple):
    """Operands of attention, or gradients by them; None for a gradient that is not needed.

    Args:
        query: Q `[M, N, d]`.
        key: K `[M, K, d]`.
        friction_query: Q~ `[M, N, d~]`.
        friction_key: K~ `[M, K, d~]`.
        value: V `[M, K, d_v]`.
        penalty: weight of the friction `[M, 1, 1]`, float64.
        alpha: weight of the unit inflow `[M, 1, 1]`, float64; None for rows that sum to one.
    """

    query: Tensor
    key: Tensor
    friction_query: Tensor
    friction_key: Tensor
    value: Tensor
    penalty: Tensor
    alpha: Tensor | None

    def cut(self, at: Block) -> Operands:
        """Return the part in a block, as views."""
        with_rows = (True, False, True, False, False, False, False)
        parts = zip(self, with_rows, strict=True)
        return Operands(*(None if x is None else x[at] if rows else x[at[0]] for x, rows in parts))  # type: ignore[arg-type]
