"""One block of sparse-flow attention, forward and backward, in buffers that stay in the cache.

The resistances of an attention row are R = softmax(-Q K^T / sqrt d), so that the ordinary attention weights
S = softmax(Q K^T / sqrt d) are the flow without friction, which is all that `rows` wants to know: two softmaxes and a
few passes make the forward pass, and the backward pass needs S, F and four numbers a row.

Legend: M matrices (graphs times heads), N queries, K keys, d head width; m and n: those of a block.
"""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import Tensor

from graphbench_sfi_former.masking import Wall
from graphbench_sfi_former.rows import Block, RowState, covers, solve_rows
from graphbench_sfi_former.waterfill import where_positive


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
    """Weights of the energy's terms.

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
        return Energy(self.penalty[at[0]], None if self.alpha is None else self.alpha[at[0]])


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


def fill_softmaxes(part: Projections, wall: Wall | None, buffers: Buffers) -> None:
    """Fill `weight` with S = softmax(Q K^T / sqrt d) and `cost` with F = softmax(Q~ K~^T / sqrt d); `gap` is lost."""
    zero, scores = part.query.new_zeros(()), buffers.gap
    for query, key, softmax in (
        (part.query, part.key, buffers.weight),
        (part.friction_query, part.friction_key, buffers.cost),
    ):
        torch.baddbmm(zero, query, key.transpose(1, 2), beta=0, alpha=query.shape[-1] ** -0.5, out=scores)
        if wall is not None:
            scores.sub_(wall.finite)
        torch.softmax(scores, -1, out=softmax)


def fill_costs(energy: Energy, unit: Tensor, buffers: Buffers) -> Tensor:
    """Turn `cost` from F into g and return the scale g / F `[m, n, 1]`."""
    scale = _friction_scale(energy.penalty, unit)
    buffers.cost.mul_(scale)
    return scale


def solve_block(energy: Energy, wall: Wall | None, buffers: Buffers) -> RowState:
    """Solve one block whose softmaxes are filled.

    In the buffers, `cost` turns from F into g, `flow` receives the flow up to the gain of its row, `gap` is lost.
    """
    weight, cost, gap, flow = buffers[:4]
    unit = _bounded(weight, wall, flow).reciprocal_().sum(-1, keepdim=True)
    closed = None if wall is None else wall.closed
    if closed is not None:
        unit.masked_fill_(closed, 1.0)
    unit.reciprocal_()  # as the resistances sum to one, unit sum_i (1 / S_i) = 1
    fill_costs(energy, unit, buffers)
    # Where all logits are equal, unit = 1 / K^2 and the level is 1 + penalty K. The power was chosen by counting passes
    # for normal logits of standard deviation 0.3 to 3 and penalties of 0.2 / K to 5 / K; any guess would do.
    num_keys = weight.shape[-1] if wall is None else wall.num_keys
    guess = (unit * num_keys**2).pow_(-1 / 3).mul_(energy.penalty * num_keys + 1)
    return solve_rows(weight, cost, unit, energy.alpha, guess, closed, gap, flow)


def backward_block(
    part: Projections,
    energy: Energy,
    wall: Wall | None,
    state: RowState,
    output: Tensor,
    upstream: Tensor,
    buffers: Buffers,
    grads: Projections,
    energy_grads: EnergyGradients,
    first: bool,
) -> None:
    """Gradients of one block; `weight` and `cost` of the buffers hold S and g, and still do after.

    With u = dL/dz, A the active keys and c = sum_A S u / slope,

        dL/dg_i = S_i (c - u_i) and dL/d(log r_i) = z_i (c - u_i) on A, else 0,

    followed by the derivatives of the two softmaxes. Their row sums follow from numbers of the row alone, because
    sum_i z_i u_i = output . upstream and z is linear in g on A.

    Args:
        part: inputs of the block.
        energy: weights of its energy.
        wall: its mask.
        state: its rows as the forward pass left them.
        output: `[m, n, d_v]`.
        upstream: gradient of the output `[m, n, d_v]`.
        buffers: memory; `gap`, `flow` and `spare` are lost.
        grads: gradients of `part`: those of queries are set, the others set or added to.
        energy_grads: gradients of `energy`, which are added to.
        first: whether this is the first block of its matrices, which sets what later ones add to.
    """
    weight, cost, gap, flow, spare, keep = buffers
    unit, level, slope, gain = state
    beta = 0 if first else 1
    torch.sub(level, cost, out=gap)
    active = where_positive(gap, weight, out=flow)
    torch.mul(active, gap, out=spare)
    if keep is not None:
        spare.mul_(keep)
    grads.value.baddbmm_(spare.transpose(1, 2), upstream * gain, beta=beta)

    # From here on `spare` holds u, then S u on A; `active` becomes dL/dg.
    torch.bmm(upstream, part.value.transpose(1, 2), out=spare)
    if keep is not None:
        spare.mul_(keep)
    charge = spare.mul_(active).sum(-1, keepdim=True).div_(slope)
    active.mul_(charge).sub_(spare)
    pull = charge - (upstream * output).sum(-1, keepdim=True)  # -sum_i g_i dL/dg_i
    push = pull  # sum_i dL/d(log r_i)
    if energy.alpha is not None:
        leak = (charge * level).mul_(unit).div_(energy.alpha)
        push = pull - leak
        if energy_grads.alpha is not None:
            energy_grads.alpha.add_(leak.sum(1, keepdim=True) / energy.alpha)

    scores = gap.mul_(active).addcdiv_(push * unit, _bounded(weight, wall, spare), value=-1)  # -dL/d(Q K^T / sqrt d)
    root = part.query.shape[-1] ** -0.5
    grads.query.baddbmm_(scores, part.key, beta=0, alpha=-root)
    grads.key.baddbmm_(scores.transpose(1, 2), part.query, beta=beta, alpha=-root)
    scale = _friction_scale(energy.penalty, unit)
    if energy_grads.penalty is not None:
        # Summed anew: for small penalties `pull` is a difference of two nearly equal numbers.
        total = torch.mul(active, cost, out=spare).sum(-1, keepdim=True)
        energy_grads.penalty.add_((total / (scale * unit)).sum(1, keepdim=True))
    scores = active.add_(pull / scale).mul_(cost)  # dL/d(Q~ K~^T / sqrt d)
    root = part.friction_query.shape[-1] ** -0.5
    grads.friction_query.baddbmm_(scores, part.friction_key, beta=0, alpha=root)
    grads.friction_key.baddbmm_(scores.transpose(1, 2), part.friction_query, beta=beta, alpha=root)


def _bounded(weight: Tensor, wall: Wall | None, out: Tensor) -> Tensor:
    """S in `out`, raised to the least value that can be inverted, infinite at keys that are not allowed."""
    torch.clamp_min(weight, torch.finfo(weight.dtype).tiny ** 0.8, out=out)
    return out if wall is None else out.add_(wall.height)


def _friction_scale(penalty: Tensor, unit: Tensor) -> Tensor:
    """Scale g / F = penalty / unit `[m, n, 1]`, kept finite and above zero (by less than rounding): F is had from g."""
    limits = torch.finfo(unit.dtype)
    return (penalty / unit).clamp_(limits.eps**2, limits.max**0.8)
