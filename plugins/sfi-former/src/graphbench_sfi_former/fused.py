"""One block of sparse-flow attention, forward and backward, in buffers that stay in the cache.

The resistances of an attention row are R = softmax(-Q K^T / sqrt d), so that the ordinary attention weights
S = softmax(Q K^T / sqrt d) are the flow without friction, which is all that `rows` wants to know: two softmaxes and a
few passes make the forward pass, and the backward pass needs S, F and four numbers per row. Steep rows are computed by
`steep` and put in their places.

Legend: M matrices (graphs times heads), N queries, K keys, d head width; m and n: those of a block.
"""

from __future__ import annotations

import torch
from torch import Tensor

from graphbench_sfi_former.masking import Wall
from graphbench_sfi_former.operands import Buffers, Energy, EnergyGradients, Projections, put_rows
from graphbench_sfi_former.rows import RowState, hot_rows, solve_rows
from graphbench_sfi_former.steep import (
    SteepGradients,
    SteepState,
    gradient_of_queries,
    solve_steep,
    steep_gradients,
)
from graphbench_sfi_former.waterfill import where_positive


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
    scale = _friction_scale(energy.penalty.to(unit.dtype), unit)
    buffers.cost.mul_(scale)
    return scale


def solve_block(
    part: Projections, energy: Energy, wall: Wall | None, buffers: Buffers
) -> tuple[RowState, SteepState | None]:
    """Solve one block whose softmaxes are filled.

    In the buffers, `cost` turns from F into g, `flow` receives the flow up to the gain of its row, `gap` is lost.
    """
    weight, cost, gap, flow = buffers[:4]
    resistance = _bounded(weight, wall, flow).reciprocal_()
    unit, size = resistance.sum(-1, keepdim=True), logit_bound(part)
    hot = hot_rows(resistance, unit, cost, size)
    closed = None if wall is None else wall.closed
    if closed is not None:
        unit.masked_fill_(closed, 1.0)
    unit.reciprocal_()  # as the resistances sum to one, unit sum_i (1 / S_i) = 1
    fill_costs(energy, unit, buffers)
    # Where all logits are equal, unit = 1 / K^2 and the level is 1 + penalty K. The power was chosen by counting passes
    # for normal logits of standard deviation 0.3 to 3 and penalties of 0.2 / K to 5 / K; any guess would do.
    num_keys = weight.shape[-1] if wall is None else wall.num_keys
    rounded = energy.to(unit.dtype)
    guess = (unit * num_keys**2).pow_(-1 / 3).mul_(rounded.penalty * num_keys + 1)
    state, rows = solve_rows(weight, cost, unit, rounded.alpha, guess, size, hot, closed, gap, flow)
    if not rows.numel():
        return state, None
    return state, put_steep_flows(part, energy, wall, rows, flow)


def put_steep_flows(part: Projections, energy: Energy, wall: Wall | None, rows: Tensor, flow: Tensor) -> SteepState:
    """Solve the rows of a block with these numbers in logarithms, and put their flows into `flow [m, n, K]`."""
    steep, steep_flow = solve_steep(part, energy, wall, rows)
    put_rows(flow, rows, steep_flow)
    return steep


def backward_block(
    part: Projections,
    energy: Energy,
    wall: Wall | None,
    state: RowState,
    steep_state: SteepState | None,
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

    followed by the derivatives of the two softmaxes.

    Args:
        part: inputs of the block.
        energy: weights of its energy.
        wall: its mask.
        state: its rows as the forward pass left them.
        steep_state: its steep rows; None where there are none.
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
    steep = None if steep_state is None else steep_gradients(part, energy, wall, steep_state, upstream, keep)
    torch.sub(level, cost, out=gap)
    active = where_positive(gap, weight, out=flow)
    torch.mul(active, gap, out=spare)  # z / gain
    if keep is not None:
        spare.mul_(keep)
    if steep is not None:
        put_rows(spare, steep.rows, steep.flow)  # their gain is 1
    grads.value.baddbmm_(spare.transpose(1, 2), upstream * gain, beta=beta)

    slack = 0.0 if energy.alpha is None else unit / energy.alpha.to(unit.dtype)
    mean = (upstream * output).sum(-1, keepdim=True) / (1 - slack * level).clamp_min(torch.finfo(unit.dtype).eps)
    _fill_upstream(upstream, part.value, mean, keep, spare)
    rest = (spare.mul_(active).sum(-1, keepdim=True) - slack * mean).div_(slope)
    active.mul_(rest).sub_(spare)  # dL/dg
    _add_energy_and_score_gradients(part, energy, wall, state, steep, rest + mean, buffers, grads, energy_grads, beta)


def _add_energy_and_score_gradients(
    part: Projections,
    energy: Energy,
    wall: Wall | None,
    state: RowState,
    steep: SteepGradients | None,
    mean: Tensor,
    buffers: Buffers,
    grads: Projections,
    energy_grads: EnergyGradients,
    beta: int,
) -> None:
    """The rest of `backward_block`: from dL/dg, in `flow`, to the energy's weights and through the two softmaxes.

    `mean` is c `[m, n, 1]`; what stands in gradients of keys counts by `beta`, 0 or 1.
    """
    weight, cost, gap, active, spare, _ = buffers
    unit, level, _, gain = state
    slack = 0.0 if energy.alpha is None else unit / energy.alpha.to(unit.dtype)
    torch.mul(active, cost, out=spare)
    total, leak = spare.sum(-1, keepdim=True), mean * slack * level
    scale = _friction_scale(energy.penalty.to(unit.dtype), unit)
    add_energy_gradients(energy_grads, total / (scale * unit), leak, steep)

    spare.addcmul_(cost, total / scale, value=-1)  # dL/d(Q~ K~^T / sqrt d)
    if steep is not None:
        put_rows(spare, steep.rows, steep.friction_scores)
    root = part.friction_query.shape[-1] ** -0.5
    grads.friction_query.baddbmm_(spare, part.friction_key, beta=0, alpha=root)
    grads.friction_key.baddbmm_(spare.transpose(1, 2), part.friction_query, beta=beta, alpha=root)

    through = gap.mul_(active).sum(-1, keepdim=True)
    gap.addcdiv_(through * unit, _bounded(weight, wall, spare), value=-1)  # -dL/d(Q K^T / sqrt d) / gain
    if steep is not None:
        put_rows(gap, steep.rows, -steep.scores)
    root = -(part.query.shape[-1] ** -0.5)
    grads.query.baddbmm_(gap, part.key, beta=0, alpha=root).mul_(gain)
    grads.key.baddbmm_(gap.transpose(1, 2), part.query * gain, beta=beta, alpha=root)
    if steep is not None:
        put_queries(part.friction_key, steep.rows, steep.friction_scores, grads.friction_query)
        put_queries(part.key, steep.rows, steep.scores, grads.query)


def _fill_upstream(upstream: Tensor, value: Tensor, mean: Tensor, keep: Tensor | None, out: Tensor) -> None:
    """Fill `out` with u, the derivatives by the flow, less `mean`, near which the differences of u cancel best."""
    if keep is None:
        one = torch.ones_like(value[..., :1])
        torch.bmm(torch.cat((upstream, -mean), -1), torch.cat((value, one), -1).transpose(1, 2), out=out)
    else:
        torch.bmm(upstream, value.transpose(1, 2), out=out)
        out.mul_(keep).sub_(mean)


def put_queries(key: Tensor, rows: Tensor, scores: Tensor, query_grad: Tensor) -> None:
    """Set the gradients of the queries of steep rows, which cancel more than the dtype of the attention bears."""
    exact = gradient_of_queries(scores, key, rows, query_grad.shape[1])
    put_rows(query_grad, rows, exact * key.shape[-1] ** -0.5)


def add_energy_gradients(grads: EnergyGradients, penalty: Tensor, leak: Tensor, steep: SteepGradients | None) -> None:
    """Add those of each row, `[m, n, 1]`, of which `leak` is by log alpha."""
    for grad, of_rows, of_steep in ((grads.penalty, penalty, "penalty"), (grads.alpha, leak, "leak")):
        if grad is not None:
            of_rows = of_rows.double()
            if steep is not None:
                put_rows(of_rows, steep.rows, getattr(steep, of_steep))
            grad.add_(of_rows.sum(1, keepdim=True))


def _bounded(weight: Tensor, wall: Wall | None, out: Tensor) -> Tensor:
    """S in `out`, raised to the least value that can be inverted, infinite at keys that are not allowed."""
    torch.clamp_min(weight, torch.finfo(weight.dtype).tiny ** 0.8, out=out)
    return out if wall is None else out.add_(wall.height)


def _friction_scale(penalty: Tensor, unit: Tensor) -> Tensor:
    """Scale g / F = penalty / unit `[m, n, 1]`, kept finite and above zero (by less than rounding): F is had from g."""
    limits = torch.finfo(unit.dtype)
    return (penalty / unit).clamp_(limits.eps**2, limits.max**0.8)


def logit_bound(part: Projections) -> Tensor:
    """A bound on the logits of each row `[m, n, 1]`, by the lengths of queries and keys."""
    bounds = [
        torch.linalg.vector_norm(query, dim=-1, keepdim=True)
        * torch.linalg.vector_norm(key, dim=-1).amax(-1)[:, None, None]
        * query.shape[-1] ** -0.5
        for query, key in ((part.query, part.key), (part.friction_query, part.friction_key))
    ]
    return torch.maximum(*bounds)
