"""The operations that a kernel may compute faster. What is decorated here is complete, and plain torch.

| operation | plain form | kernel | runs |
|---|---|---|---|
| `water_level` | `sparse_flow` | `graphbench_kernels.sfi_former.water_level_triton` | on cards, where Triton launches |
| `attend_rows` | `attention` | `graphbench_kernels.sfi_former.attention` | on processors, where Numba compiles |

A kernel has the name and the arguments of the operation. Without its module, or with `GRAPHBENCH_KERNELS=torch`,
everything is computed by the plain forms.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import wraps
from importlib import import_module
from typing import Any, NamedTuple, ParamSpec, TypeVar

from torch import Tensor

from graphbench.contracts.kernels import runs_numba, runs_triton

P = ParamSpec("P")
T = TypeVar("T")
#: Slices of the matrices and of the rows of `[M, N, K]`.
Block = tuple[slice, slice]


class Operands(NamedTuple):
    """What attention is made of, or gradients by it, None where nobody wants them.

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
        """The part in a block, as views."""
        with_rows = (True, False, True, False, False, False, False)
        parts = zip(self, with_rows, strict=True)
        return Operands(*(None if x is None else x[at] if rows else x[at[0]] for x, rows in parts))  # type: ignore[arg-type]


#: Keys of a row that the Triton kernel holds in registers.
_MOST_KEYS = 16384


def _fits_triton(weight: Tensor, *others: Any) -> bool:
    return runs_triton(weight.device) and weight.shape[-1] <= _MOST_KEYS


def _fits_numba(*operands: Any) -> bool:
    return runs_numba(*operands[:5])


#: Operation -> module with its kernel, and whether that can compute with some operands.
_KERNELS: dict[str, tuple[str, Callable[..., bool]]] = {
    "water_level": ("graphbench_kernels.sfi_former.water_level_triton", _fits_triton),
    "attend_rows": ("graphbench_kernels.sfi_former.attention", _fits_numba),
}


def operation(plain: Callable[P, T]) -> Callable[P, T]:
    """Make a function one that a kernel replaces where it can run.

    Args:
        plain: the plain form, whose name is in the table of kernels.

    Returns:
        The function with the choice; its attribute `plain` is the plain form.

    Examples:
        >>> from graphbench_sfi_former.sparse_flow import water_level
        >>> water_level.plain.__name__
        'water_level'
    """

    @wraps(plain)
    def call(*args: P.args, **kwargs: P.kwargs) -> T:
        module, fits = _KERNELS[plain.__name__]
        if fits(*args):
            found: T = getattr(import_module(module), plain.__name__)(*args, **kwargs)
            return found
        return plain(*args, **kwargs)

    call.plain = plain  # type: ignore[attr-defined]
    return call
