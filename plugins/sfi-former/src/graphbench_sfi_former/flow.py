"""The sparse flow of SFi-Former, exactly: forward by a water level, backward by the active set.

SFi-Former (Li et al., 2025, section 3.3). Each row is a small network: flow z_i comes in over link i, which has a
resistance r_i and a friction f_i, and in total about one unit has to arrive.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable

from graphbench.errors import BadInput
from graphbench_sfi_former.arguments import check_rows, per_matrix, solving_dtype
from graphbench_sfi_former.masking import KeyMask, Wall
from graphbench_sfi_former.rows import blocks, solve_rows
from graphbench_sfi_former.waterfill import where_positive
from graphbench_sfi_former.workspace import block_size, borrow


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

    whose scalar mu is found exactly by a few active-set passes over all rows at once (see `waterfill`). Keys with
    friction above mu / penalty get exactly 0; a row is zero as a whole where every penalty f_i >= alpha.

    Gradients, from the active set A alone, with u = dL/dz, D = 1 / alpha + sum_A 1 / r, c = sum_A (u / r) / D:

        dL/df_i = penalty (c - u_i) / r_i,   dL/dr_i = z_i (c - u_i) / r_i,
        dL/dpenalty = sum_A f_i (c - u_i) / r_i,   dL/dalpha = c mu / alpha^2.

    Equal frictions or penalty 0, without alpha, give z_i = (1 / r_i) / sum_j (1 / r_j): softmax attention where
    r = softmax(-q k / sqrt d). Rows are solved in blocks, so that beside the result no tensor of its size is made.

    Args:
        resistance: r `[..., N, K]`, positive; values under the smallest normal number of its dtype count as that.
        friction: f `[..., N, K]`, non-negative.
        penalty: weight of the friction, non-negative: a number or a tensor that broadcasts to `[..., 1, 1]`, such as
            1 / (number of nodes) of each graph.
        alpha: weight of the unit-inflow term, positive, of the same kinds; None for the hard constraint.
        mask: boolean, broadcastable to `[..., N, K]`; True where a key is allowed. Other keys get exactly 0 whatever
            their resistance and friction, and rows without an allowed key are 0 as a whole.

    Returns:
        Flow `[..., N, K]` in the dtype of `resistance`. Half precision is solved in float32.

    Raises:
        BadInput: shapes or dtypes that do not fit, a negative resistance, friction or penalty, alpha <= 0.
    """
    check_rows(resistance, friction)
    lead = tuple(resistance.shape[:-2])
    num_rows, num_keys = resistance.shape[-2:]
    dtype = solving_dtype(resistance, friction)
    flat_resistance = resistance.to(dtype).reshape(-1, num_rows, num_keys)
    flow = _SparseFlow.apply(
        flat_resistance,
        friction.to(dtype).reshape(-1, num_rows, num_keys),
        per_matrix("penalty", penalty, lead, flat_resistance, positive=False),
        None if alpha is None else per_matrix("alpha", alpha, lead, flat_resistance, positive=True),
        None if mask is None else KeyMask(mask, lead, num_rows, num_keys),
    )
    return flow.reshape(resistance.shape).to(resistance.dtype)


class _SparseFlow(torch.autograd.Function):
    """Solves `[M, N, K]` block by block; keeps r, z, three numbers a row, and f where penalty asks for it."""

    @staticmethod
    def forward(
        ctx: Any, resistance: Tensor, friction: Tensor, penalty: Tensor, alpha: Tensor | None, mask: KeyMask | None
    ) -> Tensor:
        """Flow `[M, N, K]`."""
        flow = torch.empty_like(resistance)
        num_matrices, num_rows, num_keys = resistance.shape
        rows = resistance.new_empty(3, num_matrices, num_rows, 1)
        ctx.plan = blocks(num_matrices, num_rows, num_keys, block_size(resistance.device))
        ctx.mask = mask
        for at in ctx.plan:
            matrices = at[0]
            wall = None if mask is None else mask.wall(at, resistance)
            links, costs = _allowed_links(resistance[at], wall), _allowed(friction[at], wall, 0.0)
            weight, cost, gap, depth = borrow(4, tuple(links.shape), links)
            unit = _fill_weight(links, weight)
            torch.mul(costs, _friction_scale(penalty[matrices], unit, costs), out=cost)
            guess = torch.mul(weight, cost, out=gap).sum(-1, keepdim=True).add_(1)
            closed = None if wall is None else wall.closed
            part_alpha = None if alpha is None else alpha[matrices]
            solved = solve_rows(weight, cost, unit, part_alpha, guess, closed, gap, depth)
            torch.mul(depth, solved.gain, out=flow[at])
            for whole, part in zip(rows, (unit, solved.slope, unit * solved.level), strict=True):
                whole[at] = part
        ctx.save_for_backward(resistance, flow, friction if ctx.needs_input_grad[2] else None, penalty, alpha, rows)
        return flow

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, upstream: Tensor) -> tuple[Tensor | None, ...]:
        """Gradients of resistance, friction, penalty and alpha, by the formulas of `sparse_flow`."""
        resistance, flow, friction, penalty, alpha, (unit, slope, mu) = ctx.saved_tensors
        grad_resistance, grad_friction = torch.empty_like(resistance), torch.empty_like(resistance)
        grad_penalty = None if friction is None else torch.zeros_like(penalty)
        grad_alpha = None if alpha is None else torch.zeros_like(alpha)
        for at in ctx.plan:
            matrices = at[0]
            wall = None if ctx.mask is None else ctx.mask.wall(at, resistance)
            links = _allowed_links(resistance[at], wall)
            pushes, work = borrow(2, tuple(links.shape), links)
            charge = _backward_block(links, flow[at], upstream[at], unit[at], slope[at], pushes, work)
            torch.mul(pushes, penalty[matrices], out=grad_friction[at])
            torch.mul(pushes, flow[at], out=grad_resistance[at])
            if grad_penalty is not None:
                costs = _allowed(friction[at], wall, 0.0)
                grad_penalty[matrices] += pushes.mul_(costs).sum((1, 2), keepdim=True)
            if grad_alpha is not None:
                grad_alpha[matrices] += (charge * mu[at]).sum(1, keepdim=True) / alpha[matrices] ** 2
        return grad_resistance, grad_friction, grad_penalty, grad_alpha, None


def _backward_block(
    links: Tensor, flow: Tensor, upstream: Tensor, unit: Tensor, slope: Tensor, pushes: Tensor, work: Tensor
) -> Tensor:
    """Fill `pushes` with (c - u_i) / r_i on the active keys, else 0, and return c `[m, n, 1]`; `work` is lost."""
    weight = torch.div(unit, torch.clamp_min(links, torch.finfo(links.dtype).tiny, out=work), out=work)
    where_positive(flow, weight, out=pushes)  # S on the active keys
    torch.mul(pushes, upstream, out=work)
    charge = work.sum(-1, keepdim=True).div_(slope)
    pushes.mul_(charge).sub_(work).div_(unit)
    return charge


def _allowed(values: Tensor, wall: Wall | None, otherwise: float) -> Tensor:
    """`values`, with `otherwise` at keys that are not allowed, which may carry anything, NaN included."""
    return values if wall is None else torch.where(wall.height == 0, values, otherwise)


def _allowed_links(resistance: Tensor, wall: Wall | None) -> Tensor:
    """Resistances, infinite at keys that are not allowed; 1 in rows without a key, to keep them free of NaN."""
    links = _allowed(resistance, wall, torch.inf)
    if wall is not None and wall.closed is not None:
        links = links.masked_fill(wall.closed, 1.0)
    return links


def _fill_weight(links: Tensor, weight: Tensor) -> Tensor:
    """Fill `weight` with S = unit / r and return unit, the parallel resistance `[m, n, 1]`."""
    least = links.amin(-1, keepdim=True)
    if bool((least < 0).any()):
        raise BadInput(f"resistance must be positive, but its least value is {float(least.min())}.")
    torch.clamp_min(links, torch.finfo(links.dtype).tiny, out=weight)
    least.clamp_min_(torch.finfo(links.dtype).tiny)
    torch.div(least, weight, out=weight)  # at most 1: the sum cannot overflow
    total = weight.sum(-1, keepdim=True)
    weight.div_(total)
    return least.div_(total)


def _friction_scale(penalty: Tensor, unit: Tensor, costs: Tensor) -> Tensor:
    """Scale of the frictions, penalty / unit `[m, n, 1]`, so small that its product with the frictions stays finite."""
    least, largest = costs.aminmax(dim=-1, keepdim=True)
    if bool((least < 0).any()) or bool((largest == torch.inf).any()):
        raise BadInput(
            f"friction must be non-negative and finite, but lies in [{float(least.min())}, {float(largest.max())}]. "
            "Use mask to forbid a key."
        )
    limit = torch.finfo(unit.dtype).max ** 0.8 / largest.clamp_min_(1.0)
    return torch.minimum(penalty / unit, limit)
