"""Kernels of sparse-flow attention: whole attention on CPUs (`attention`), water levels on GPUs.

Numba and Triton are imported when they first compute an operation.
"""

from __future__ import annotations

from torch import Tensor

from graphbench.contracts.kernels import plain_form
from graphbench_kernels.running import runs_numba, runs_triton

#: Bytes of widths per row that the Triton kernel keeps in registers, and as many of floors: 64 of the 128 registers of
#: each of 512 threads.
MOST_BYTES = 2**16


def attend_rows(
    query: Tensor,
    key: Tensor,
    friction_query: Tensor,
    friction_key: Tensor,
    value: Tensor,
    penalty: Tensor,
    alpha: Tensor | None,
    masks: Tensor | None,
    mask_of: Tensor | None,
    dropout: float,
    seed: int,
) -> tuple[Tensor, Tensor]:
    """Compute `graphbench_sfi_former::attend_rows`."""
    tensors = (query, key, friction_query, friction_key, value, penalty, alpha)
    options = (masks, mask_of, dropout, seed)
    if runs_numba(*tensors[:5]):
        from graphbench_kernels.sfi_former.attention import Attention

        rows: tuple[Tensor, Tensor] = Attention.apply(options, *tensors)
        return rows
    plain: tuple[Tensor, Tensor] = plain_form("graphbench_sfi_former::attend_rows")(*tensors, *options)
    return plain


def water_level(weight: Tensor, cost: Tensor, slack: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """Compute `graphbench_sfi_former::water_level` on a GPU."""
    size = weight.shape[-1] * weight.element_size()
    if type(weight) is Tensor and size <= MOST_BYTES and runs_triton(weight.device):
        from graphbench_kernels.sfi_former import water_level_triton

        return water_level_triton.water_level(weight, cost, slack)
    levels: tuple[Tensor, Tensor, Tensor] = plain_form("graphbench_sfi_former::water_level")(weight, cost, slack)
    return levels
