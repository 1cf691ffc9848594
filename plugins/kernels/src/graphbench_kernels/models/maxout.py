"""Sums of maxima, and their gradients: loops on CPUs (`maxout_numba`), Triton on GPUs (`maxout_triton`).

Neither defines a backward pass: `graphbench_sft.maxout_scores` calls both.
"""

from __future__ import annotations

from torch import Tensor

from graphbench.contracts.kernels import plain_form
from graphbench_kernels.running import runs_numba, runs_triton


def maxima(a: Tensor, b: Tensor) -> Tensor:
    """Compute `graphbench_sft::maxima`."""
    if runs_numba(a, b):
        from graphbench_kernels.models import maxout_numba

        return maxout_numba.scores(a, b)
    sums: Tensor = plain_form("graphbench_sft::maxima")(a, b)
    return sums


def maxima_gradients(a: Tensor, b: Tensor, grad: Tensor) -> tuple[Tensor, Tensor]:
    """Compute `graphbench_sft::maxima_gradients`."""
    if runs_numba(a, b, grad):
        from graphbench_kernels.models import maxout_numba

        return maxout_numba.gradients(a, b, grad)
    gradients: tuple[Tensor, Tensor] = plain_form("graphbench_sft::maxima_gradients")(a, b, grad)
    return gradients


def maxima_on_cards(a: Tensor, b: Tensor) -> Tensor:
    """Compute `graphbench_sft::maxima` on a GPU."""
    if type(a) is Tensor and type(b) is Tensor and runs_triton(a.device):
        from graphbench_kernels.models import maxout_triton

        return maxout_triton.scores(a, b)
    sums: Tensor = plain_form("graphbench_sft::maxima")(a, b)
    return sums


def maxima_gradients_on_cards(a: Tensor, b: Tensor, grad: Tensor) -> tuple[Tensor, Tensor]:
    """Compute `graphbench_sft::maxima_gradients` on a GPU."""
    if type(a) is Tensor and type(b) is Tensor and runs_triton(a.device):
        from graphbench_kernels.models import maxout_triton

        return maxout_triton.gradients(a, b, grad)
    gradients: tuple[Tensor, Tensor] = plain_form("graphbench_sft::maxima_gradients")(a, b, grad)
    return gradients
