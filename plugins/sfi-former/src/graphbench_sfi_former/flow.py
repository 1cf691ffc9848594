"""The sparse flow of given resistances and frictions, row by row in logarithms: the reference of the fused attention.

SFi-Former (Li et al., 2025, section 3.3). Each row is a small network: flow z_i comes in over link i, which has a
resistance r_i and a friction f_i, and in total about one unit has to arrive.
"""

from __future__ import annotations

import math
from typing import Any

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable

from graphbench.errors import BadInput
from graphbench_sfi_former.arguments import check_rows, per_matrix, solving_dtype
from graphbench_sfi_former.logarithmic import LogLevel, LogRows, flow, slopes, solve
from graphbench_sfi_former.masking import check_mask

#: What stands for the logarithm of 0 in frictions, far below that of any other number: differences stay finite.
_LOG_ZERO = -1e5


@torch.compiler.disable
def sparse_flow(
    resistance: Tensor,
    friction: Tensor,
    penalty: float | Tensor,
    alpha: float | Tensor | None = None,
    mask: Tensor | None = None,
) -> Tensor:
    """The flow of least energy into every row, exactly.

    Minimises over z, for every row (equation 11 of the paper; equation 7 without alpha)

        1/2 sum_i r_i z_i^2 + penalty sum_i f_i |z_i| + alpha/2 (sum_i z_i - 1)^2,

    or, with `alpha=None`, the first two terms under the constraint sum_i z_i = 1. The solution is

        z_i = max(mu - penalty f_i, 0) / r_i,    sum_i z_i + mu / alpha = 1,

    found by sorting the frictions (see `logarithmic`). Keys with friction above mu / penalty get exactly 0; a row is
    zero as a whole where every penalty f_i >= alpha.

    Gradients, from the active set A alone, with u = dL/dz, D = 1 / alpha + sum_A 1 / r, c = sum_A (u / r) / D:

        dL/df_i = penalty (c - u_i) / r_i,   dL/dr_i = z_i (c - u_i) / r_i,
        dL/dpenalty = sum_A f_i (c - u_i) / r_i,   dL/dalpha = c mu / alpha^2.

    Equal frictions or penalty 0, without alpha, give z_i = (1 / r_i) / sum_j (1 / r_j): softmax attention where
    r = softmax(-q k / sqrt d).

    All is computed in float64; frictions that differ by less than 1e-13 of themselves count as equal. This is the plain
    form, which sorts rows and keeps tensors of the size of `resistance`; from queries on, use `sparse_flow_attention`.

    Args:
        resistance: r `[..., N, K]`, positive; values under the smallest normal number of its dtype count as that, and
            no flow takes a link of infinite resistance.
        friction: f `[..., N, K]`, non-negative.
        penalty: weight of the friction, non-negative: a number or a tensor that broadcasts to `[..., 1, 1]`, such as
            1 / (number of nodes) of each graph.
        alpha: weight of the unit-inflow term, positive, of the same kinds; None for the hard constraint.
        mask: boolean, broadcastable to `[..., N, K]`; True where a key is allowed. Other keys get exactly 0 whatever
            their resistance and friction, and rows without an allowed key are 0 as a whole.

    Returns:
        Flow `[..., N, K]` in the dtype of `resistance`. Gradients that it cannot hold are cut at its largest number.

    Raises:
        BadInput: shapes or dtypes that do not fit, a negative resistance, friction or penalty, alpha <= 0.

    Examples:
        >>> import torch
        >>> from graphbench_sfi_former import sparse_flow
        >>> resistance, friction = torch.tensor([[1.0, 1.0, 1.0]]), torch.tensor([[0.0, 0.5, 2.0]])
        >>> sparse_flow(resistance, friction, penalty=1.0)
        tensor([[0.7500, 0.2500, 0.0000]])
    """
    check_rows(resistance, friction)
    return _of_rows(resistance, friction, penalty, alpha, mask)


def _of_rows(
    resistance: Tensor, friction: Tensor, penalty: float | Tensor, alpha: float | Tensor | None, mask: Tensor | None
) -> Tensor:
    """The flow, with all rows of all matrices in one."""
    lead = tuple(resistance.shape[:-2])
    num_rows, num_keys = resistance.shape[-2:]
    allowed = torch.ones((), dtype=torch.bool, device=resistance.device) if mask is None else mask
    check_mask(allowed, tuple(resistance.shape))
    device = resistance.device
    weights = (
        per_matrix("penalty", penalty, lead, device, positive=False),
        None if alpha is None else per_matrix("alpha", alpha, lead, device, positive=True),
    )
    if resistance.numel() == 0:
        return resistance * friction
    of_rows = (None if w is None else w.expand(-1, num_rows, 1).reshape(-1, 1) for w in weights)
    z = _SparseFlow.apply(
        *(x.double().reshape(-1, num_keys) for x in (resistance, friction)),
        *of_rows,
        allowed.expand(resistance.shape).reshape(-1, num_keys),
        resistance.dtype,
    )
    return z.reshape(resistance.shape).to(resistance.dtype)


class _SparseFlow(torch.autograd.Function):
    """Solves `[R, K]`, float64."""

    @staticmethod
    def forward(
        ctx: Any,
        resistance: Tensor,
        friction: Tensor,
        penalty: Tensor,
        alpha: Tensor | None,
        allowed: Tensor,
        dtype: torch.dtype,
    ) -> Tensor:
        """Flow `[R, K]`, for resistances that were given in `dtype`."""
        tiny, ctx.most = torch.finfo(solving_dtype(torch.empty(0, dtype=dtype))).tiny, torch.finfo(dtype).max
        rows = _in_logarithms(resistance, friction, penalty, alpha, allowed, tiny)
        level = solve(rows)
        z = flow(rows, level)
        ctx.save_for_backward(z, alpha, *rows, *level)
        return z

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, upstream: Tensor) -> tuple[Tensor | None, ...]:
        """Gradients of resistance, friction, penalty and alpha, by the formulas of `sparse_flow`."""
        z, alpha, *saved = ctx.saved_tensors
        rows, level = LogRows(*saved[:5]), LogLevel(*saved[5:])
        steep = slopes(rows, level, z, upstream)
        of_resistance = steep.sign * (steep.log_push + z.log()).exp()
        of_friction = steep.times(rows.log_penalty)
        of_alpha = None if alpha is None else steep.leak / alpha
        found = (of_resistance, of_friction, steep.penalty, of_alpha)
        return (*(None if x is None else x.clamp_(-ctx.most, ctx.most) for x in found), None, None)


def _in_logarithms(
    resistance: Tensor, friction: Tensor, penalty: Tensor, alpha: Tensor | None, allowed: Tensor, tiny: float
) -> LogRows:
    _check_sign("resistance must be positive", resistance, allowed, math.inf)
    _check_sign("friction must be non-negative and finite", friction, allowed, torch.finfo(friction.dtype).max)
    links = torch.where(allowed, resistance.clamp_min(tiny), torch.inf)
    tolls = torch.where(allowed, friction, 1.0).log().clamp_min(_LOG_ZERO)
    slack = torch.full_like(penalty, -torch.inf) if alpha is None else -alpha.log()
    largest = torch.where(tolls > _LOG_ZERO, tolls.abs(), 1.0).amax(-1, keepdim=True).clamp_min(1.0)
    resolution = 2 * torch.finfo(tolls.dtype).eps * largest
    return LogRows(-links.log(), tolls, penalty.log(), slack, resolution)


def _check_sign(rule: str, values: Tensor, allowed: Tensor, most: float) -> None:
    kept = torch.where(allowed, values, 0.0)
    least, largest = (float(x) for x in kept.aminmax())
    if least < 0 or largest > most:
        raise BadInput(f"{rule}, but lies in [{least}, {largest}]. Use mask to forbid a key.")
