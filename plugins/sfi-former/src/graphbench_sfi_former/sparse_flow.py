"""The exact sparse flow of given resistances and frictions, in plain torch.

SFi-Former (Li et al., 2025, section 3.3). Each row is a small network: flow z_i enters through link i, which has a
resistance r_i and a friction f_i, and the total flow must be about one unit. The flow of least energy is

    z_i = max(mu - penalty f_i, 0) / r_i,    sum_i z_i + mu / alpha = 1.

For any number `unit`, with weights S_i = unit / r_i, costs g_i = penalty f_i / unit and a slack unit / alpha it is

    z_i = S_i max(t - g_i, 0),    sum_i S_i max(t - g_i, 0) + slack t = 1,    mu = unit t:

link i is a vessel of width S_i whose floor is at g_i, filled up to the water level t. The flow does not depend on the
unit, so gradients treat it as a constant. We use the resistance of all links in parallel, unit = 1 / sum_i (1 / r_i),
so widths sum to one.

Gradients need only the active set A. With u = dL/dz, D = 1 / alpha + sum_A 1 / r, c = sum_A (u / r) / D they are

    dL/df_i = penalty (c - u_i) / r_i,   dL/dr_i = z_i (c - u_i) / r_i,
    dL/dpenalty = sum_A f_i (c - u_i) / r_i,   dL/dalpha = c mu / alpha^2.

Rounding errors are multiplied by the condition of a row, `t (slack + sum of the active S) = 1 + sum of their S g`. Rows
too ill-conditioned for a dtype are solved in float64, and those beyond that in logarithms (`logarithms`).
"""

from __future__ import annotations

import math
from typing import Any, NamedTuple

import torch
from torch import Tensor
from torch.autograd.function import FunctionCtx

from graphbench.contracts.devices import as_double, widest_dtype
from graphbench.contracts.kernels import in_program, one_operation, operation
from graphbench.errors import BadInput
from graphbench_sfi_former.logarithms import flow_in_logarithms

#: Newton steps after which a row is abandoned. Attention rows need five with logits of standard deviation 1 or 3.
_STEPS = 16
#: The same on devices where checking whether all rows are done forces a host-device sync.
_STEPS_UNSEEN = 10
#: Allowed rounding error in a flow of `sparse_flow`, relative to its largest possible value 1.
_TOLERANCE = {torch.float32: 1e-5, torch.float64: 1e-12}
#: Elements of the tensors processed at a time: on a CPU they should fit its cache.
_CHUNK = {"cpu": 2**18}
_CHUNK_ELSEWHERE = 2**24


def sparse_flow(
    resistance: Tensor,
    friction: Tensor,
    penalty: float | Tensor,
    alpha: float | Tensor | None = None,
    mask: Tensor | None = None,
) -> Tensor:
    """Compute the flow of least energy into every row, exactly.

    Minimises over z, for every row (equation 11 of the paper; equation 7 without alpha)

        1/2 sum_i r_i z_i^2 + penalty sum_i f_i |z_i| + alpha/2 (sum_i z_i - 1)^2,

    or, with `alpha=None`, the first two terms under the constraint sum_i z_i = 1. The solution is

        z_i = max(mu - penalty f_i, 0) / r_i,    sum_i z_i + mu / alpha = 1.

    Keys with friction above mu / penalty get exactly 0; a whole row is zero if every penalty f_i >= alpha. Equal
    frictions or penalty 0, without alpha, give z_i = (1 / r_i) / sum_j (1 / r_j): softmax attention if
    r = softmax(-q k / sqrt d).

    Rows are solved in float32, or in float64 for float64 inputs. Rows too ill-conditioned for that (finding them takes
    one host-device sync) are solved in float64 and if necessary in logarithms, where frictions with a relative
    difference below 1e-13 count as equal. Second derivatives exist except for rows solved in logarithms.

    Args:
        resistance: r `[..., N, K]`, positive; subnormal values count as the smallest normal number, and an infinite
            resistance closes its link.
        friction: f `[..., N, K]`, non-negative.
        penalty: weight of the friction, non-negative: a number or a tensor that broadcasts to `[..., 1, 1]`, such as
            1 / (number of nodes) of each graph.
        alpha: weight of the unit-inflow term, positive, same types as `penalty`; None for the hard constraint.
        mask: boolean, broadcastable to `[..., N, K]`; True where a key is allowed. Other keys get exactly 0 whatever
            their resistance and friction, and rows without an allowed key are 0.

    Returns:
        Flow `[..., N, K]` in the dtype of `resistance`; gradients are clamped to the range of that dtype.

    Raises:
        BadInput: shapes or dtypes do not match, resistance, friction or penalty is negative, or alpha <= 0.

    Examples:
        >>> import torch
        >>> from graphbench_sfi_former import sparse_flow
        >>> resistance, friction = torch.tensor([[1.0, 1.0, 1.0]]), torch.tensor([[0.0, 0.5, 2.0]])
        >>> sparse_flow(resistance, friction, penalty=1.0)
        tensor([[0.7500, 0.2500, 0.0000]])
    """
    if in_program():
        return _flow_in_program(resistance, friction, *weights_in_program(resistance.device, penalty, alpha), mask)
    check_rows(resistance, friction)
    if mask is not None:
        check_mask(mask, tuple(resistance.shape))
    rows = _flatten(resistance, friction, penalty, alpha, mask)
    if resistance.numel() == 0:
        return resistance * friction
    flow = _solve(rows, torch.finfo(rows.resistance.dtype))
    return flow.reshape(resistance.shape).to(resistance.dtype)


@one_operation("graphbench_sfi_former", lambda resistance, *_: resistance.new_empty(resistance.shape))
def _flow_in_program(
    resistance: Tensor, friction: Tensor, penalty: Tensor, alpha: Tensor | None, mask: Tensor | None
) -> Tensor:
    """`sparse_flow`."""
    return sparse_flow(resistance, friction, penalty, alpha, mask)


def _flatten(
    resistance: Tensor,
    friction: Tensor,
    penalty: float | Tensor,
    alpha: float | Tensor | None,
    mask: Tensor | None,
) -> _Rows:
    """Flatten the rows of all matrices, in the dtype that they are solved in; arguments as in `sparse_flow`."""
    lead, (num_rows, num_keys) = tuple(resistance.shape[:-2]), resistance.shape[-2:]
    device, dtype = resistance.device, solving_dtype(resistance, friction)
    penalties = per_matrix("penalty", penalty, lead, device, positive=False)
    alphas = None if alpha is None else per_matrix("alpha", alpha, lead, device, positive=True)
    return _Rows(
        _widened(resistance, dtype).reshape(-1, num_keys),
        _widened(friction, dtype).reshape(-1, num_keys),
        penalties.expand(-1, num_rows, 1).reshape(-1, 1),
        None if alphas is None else alphas.expand(-1, num_rows, 1).reshape(-1, 1),
        None if mask is None else mask.expand(resistance.shape).reshape(-1, num_keys),
    )


def _widened(values: Tensor, dtype: torch.dtype) -> Tensor:
    """Convert to another dtype; gradients outside the range of the first are clamped to it."""
    wide, limits = values.to(dtype), torch.finfo(values.dtype)
    if wide is not values and wide.requires_grad:
        wide.register_hook(lambda gradient: gradient.clamp(limits.min, limits.max))
    return wide


class _Rows(NamedTuple):
    """R rows with K keys each: r and f `[R, K]`, penalty and alpha `[R, 1]` in float64, allowed keys `[R, K]`."""

    resistance: Tensor
    friction: Tensor
    penalty: Tensor
    alpha: Tensor | None
    allowed: Tensor | None

    def split(self, size: int) -> list[_Rows]:
        """Split into parts of `size` rows."""
        pieces = [[None] if x is None else x.split(size) for x in self]
        number = max(map(len, pieces))
        return [_Rows(*part) for part in zip(*(p if len(p) == number else p * number for p in pieces), strict=True)]

    def take(self, numbers: Tensor) -> _Rows:
        """Return the rows with these numbers `[n]`, in float64."""
        r, f, penalty = (as_double(x.index_select(0, numbers)) for x in self[:3])
        alpha, allowed = (None if x is None else x.index_select(0, numbers).to(r.device) for x in self[3:])
        return _Rows(r, f, penalty, None if alpha is None else alpha.double(), allowed)


def _solve(rows: _Rows, given: torch.finfo) -> Tensor:
    """Return the flow `[R, K]` of resistances and frictions given in a format with these limits."""
    size = _CHUNK.get(rows.resistance.device.type, _CHUNK_ELSEWHERE)
    solved = [_solve_chunk(part) for part in rows.split(max(1, size // rows.resistance.shape[1]))]
    flow, beyond = (torch.cat(x) if len(solved) > 1 else x[0] for x in zip(*solved, strict=True))
    numbers = beyond.nonzero().view(-1)
    if not len(numbers):
        return flow
    rest = rows.take(numbers)
    # Check only unsolved rows, to avoid a sync for the others: a row with a wrong sign is never `good` below.
    _check_sign("resistance must be positive", rest.resistance, rest.allowed, math.inf)
    _check_sign("friction must be non-negative and finite", rest.friction, rest.allowed, given.max)
    # `take` converts to float64, so this recurses at most once.
    if flow.dtype == torch.float64:
        exact = flow_in_logarithms(*rest, given)
    else:
        exact = _solve(rest, given)
    return flow.index_copy(0, numbers, exact.to(flow))


def _solve_chunk(rows: _Rows) -> tuple[Tensor, Tensor]:
    """Return the flow `[R, K]`, and the rows `[R]` not solved because this dtype cannot represent their numbers."""
    r, f, penalty, alpha, allowed = rows
    limits, may = torch.finfo(r.dtype), None
    if allowed is not None:
        # Forbidden keys get r = 1 and f = 0 by selection: multiplying by the mask would keep their NaN and infinities.
        may = allowed.to(r.dtype)
        r, f = where_positive(r, may) + (1 - may), where_positive(f, may)
    with torch.no_grad():
        unit = 1 / _masked(r.reciprocal(), may).sum(-1, keepdim=True)
        good = (unit > limits.tiny**0.7) & (unit < limits.tiny**-0.7) & (penalty / unit < limits.tiny**-0.7)
        good &= (
            (r.amin(-1, keepdim=True) > 0) & (f.amin(-1, keepdim=True) >= 0) & (f.amax(-1, keepdim=True) < torch.inf)
        )
        closed = torch.zeros_like(good) if may is None else may.sum(-1, keepdim=True) == 0
        unit = unit.masked_fill(~good, 1.0)
    # Select r = 1 for the others: the derivative of `unit / r` may be infinite, and 0 times that is NaN.
    r = r.masked_fill(~good, 1.0)
    slack = torch.zeros_like(unit) if alpha is None else (unit / alpha).to(unit.dtype)
    weight, cost = _masked(unit / r, may), f * (penalty / unit).to(unit.dtype)
    steepest = _TOLERANCE[r.dtype] / limits.eps
    with torch.no_grad():
        level, slope, settled = water_level(weight.detach(), cost.detach(), slack.detach())
        # slope * level is the condition of the row (see the module's docstring).
        solved = good & settled & (slope * level <= steepest) & ~closed
        # A level below every floor gives zero flow and gradient; a slack of 1 then avoids dividing by a slope of 0.
        level = level.masked_fill(~solved, -1.0)
    flow = flow_at(weight, cost, slack.masked_fill(~solved, 1.0), level)
    return flow, ~(solved | closed).view(-1)


def where_positive(values: Tensor, condition: Tensor) -> Tensor:
    """Return `values` where `condition > 0`, else 0 even for NaN: on a CPU ten times as fast as a boolean mask.

    Examples:
        >>> where_positive(torch.tensor([5.0, torch.nan]), torch.tensor([1.0, 0.0]))
        tensor([5., 0.])
    """
    return torch.ops.aten.threshold_backward(values, condition, 0.0)


def _masked(values: Tensor, may: Tensor | None) -> Tensor:
    return values if may is None else where_positive(values, may)


def _check_sign(rule: str, values: Tensor, allowed: Tensor | None, most: float) -> None:
    counted = values.detach() if allowed is None else torch.where(allowed, values.detach(), 0.0)
    least, largest = (float(x) for x in counted.aminmax())
    if least < 0 or largest > most:
        raise BadInput(f"{rule}, but is in [{least}, {largest}]. Use mask to forbid a key.")


@operation("graphbench_sfi_former")
def water_level(weight: Tensor, cost: Tensor, slack: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """Solve `sum_i weight_i max(t - cost_i, 0) + slack t = 1` for the level t of every row.

    The left side is convex, increasing and piecewise linear in t. From any level above the solution, Newton's method
    descends to it in a few steps, each of which drops the keys above the level. It starts from the lower of two such
    levels: that of all keys if all were active, and the lowest that a single key would give.

    Args:
        weight: widths `[..., K]`, non-negative.
        cost: floors `[..., K]`, non-negative.
        slack: slope of the overflow `[..., 1]`; 0 if all water must stay in the vessels.

    Returns:
        Level, slope of the left side there, and whether it is the level to within rounding, `[..., 1]` each.

    Examples:
        >>> weight, cost = torch.tensor([[0.25, 0.25, 0.5]]), torch.tensor([[0.0, 2.0, 10.0]])
        >>> water_level(weight, cost, torch.zeros(1, 1))  # 0.25 * 3 + 0.25 * 1 = 1
        (tensor([[3.]]), tensor([[0.5000]]), tensor([[True]]))
    """
    tolerance, seen = 8 * torch.finfo(weight.dtype).eps, weight.device.type == "cpu"
    gap, filled = torch.mul(weight, cost), weight.reciprocal().add_(cost)
    together = (1 + gap.sum(-1, keepdim=True)) / (weight.sum(-1, keepdim=True) + slack)
    following = torch.minimum(together, filled.amin(-1, keepdim=True))
    # The residual is 1 - volume - slack * level; `gap` and `filled` are reused as buffers.
    for _ in range(_STEPS if seen else _STEPS_UNSEEN):
        level = following
        torch.sub(level, cost, out=gap)
        torch.ops.aten.threshold_backward.grad_input(weight, gap, 0.0, grad_input=filled)
        slope = filled.sum(-1, keepdim=True).add_(slack)
        volume = filled.mul_(gap).sum(-1, keepdim=True)
        step = (1 - volume).addcmul_(slack, level, value=-1).div_(slope)
        settled = step.abs() <= tolerance * level
        following = level + step
        if seen and not bool((step < -tolerance * level).any()):  # no step leads up, except by rounding
            break
    return level, slope, settled


def flow_at(weight: Tensor, cost: Tensor, slack: Tensor, level: Tensor) -> Tensor:
    """Return the flow `weight max(level - cost, 0)` `[..., K]`; gradients include the effect on the level.

    Args:
        weight: `[..., K]`.
        cost: `[..., K]`.
        slack: `[..., 1]`, positive in rows without an active key.
        level: from `water_level`; negative for rows that must be 0 `[..., 1]`.
    """
    flow: Tensor = _Flow.apply(weight, cost, slack, level)[0]
    return flow


class _Flow(torch.autograd.Function):
    """Flow and level, both differentiable, so the backward pass, built from them with torch's operations, is too."""

    @staticmethod
    def forward(ctx: FunctionCtx, weight: Tensor, cost: Tensor, slack: Tensor, level: Tensor) -> tuple[Tensor, Tensor]:
        """`[..., K]` and `[..., 1]`."""
        flow = torch.sub(level, cost).relu_().mul_(weight)
        volume = flow.sum(-1, keepdim=True)
        # Correct a sum of 1 to rounding accuracy even if `level` itself is too coarse for that.
        flow.mul_(torch.where(volume > 0.5, (1 - slack * level) / volume, 1.0))
        # Saved as an output, so that a second derivative reaches the level through this function again.
        level = level.clone()
        ctx.save_for_backward(weight, cost, slack, level)
        return flow, level

    @staticmethod
    def backward(ctx: Any, *upstream: Tensor) -> tuple[Tensor | None, ...]:
        """Return dL/dS = gap (u - c), dL/dg = S (c - u) on the active keys, with c = sum of S u over them / D."""
        (of_flow, of_level), (weight, cost, slack, level) = upstream, ctx.saved_tensors
        gap = level - cost
        active = where_positive(weight, gap)
        slope = active.sum(-1, keepdim=True) + slack
        mean = (active * of_flow).sum(-1, keepdim=True) / slope
        ahead = of_flow - mean  # c - u would lose its digits unless a number near c is subtracted first
        rest = ((active * ahead).sum(-1, keepdim=True) - slack * mean + of_level) / slope
        lead = rest - ahead
        # No gradient for the argument `level`: the other three determine it, and their gradients include its effect.
        return -gap.relu() * lead, active * lead, -(mean + rest) * level, None


def weights_in_program(device: torch.device, *weights: float | Tensor | None) -> list[Tensor | None]:
    """Return the weights of the energy as tensors, the only type that an operation accepts."""
    kind: dict[str, Any] = {"dtype": widest_dtype(device), "device": device}
    return [x if x is None or isinstance(x, Tensor) else torch.full((), x, **kind) for x in weights]


# -- arguments shared by all solvers ----------------------------------------------------------------------------------


def solving_dtype(*tensors: Tensor) -> torch.dtype:
    """Return float64 if any tensor has it, else float32: half precision is too coarse for a water level."""
    return torch.float64 if any(x.dtype == torch.float64 for x in tensors) else torch.float32


def check_rows(resistance: Tensor, friction: Tensor) -> None:
    """Raise `BadInput` unless both are floating-point tensors of one shape `[..., N, K]` with at least one key."""
    for name, tensor in (("resistance", resistance), ("friction", friction)):
        if not tensor.is_floating_point():
            raise BadInput(f"{name} must be a floating-point tensor, but has dtype {tensor.dtype}.")
    if resistance.shape != friction.shape or resistance.dim() < 2 or resistance.shape[-1] == 0:
        raise BadInput(
            "resistance and friction must have one shape [..., N, K] with K >= 1, but have "
            f"{tuple(resistance.shape)} and {tuple(friction.shape)}."
        )


def per_matrix(name: str, value: float | Tensor, lead: tuple[int, ...], device: torch.device, positive: bool) -> Tensor:
    """Return a weight of the energy in `widest_dtype`, one number per matrix `[M, 1, 1]`, M the product of `lead`.

    Args:
        name: name in messages.
        value: number, 0-dim tensor, or tensor that broadcasts to `[*lead, 1, 1]`; gradients flow back to it.
        lead: leading dimensions of the rows.
        device: device of the result.
        positive: whether 0 is excluded.

    Raises:
        BadInput: the shape is wrong, or a value is negative, zero although excluded, or not finite.
    """
    if not isinstance(value, Tensor):
        number = float(value)
        if not math.isfinite(number) or number < 0 or (positive and number == 0):
            raise _wrong_value(name, number, positive)
        return torch.full((math.prod(lead), 1, 1), number, dtype=widest_dtype(device), device=device)
    if value.device.type == "cpu":
        smallest, largest = (float(x) for x in value.detach().aminmax()) if value.numel() else (1.0, 1.0)
        if not (smallest >= 0 and math.isfinite(largest)) or (positive and smallest == 0):
            raise _wrong_value(name, smallest if smallest < 0 or math.isfinite(largest) else largest, positive)
    else:  # the program does not wait for a GPU; an error comes later, from the GPU
        least, most = value.detach().aminmax()
        within = (least > 0 if positive else least >= 0) & (most < math.inf)
        torch._assert_async(within, f"{name} must be {'positive' if positive else 'non-negative'} and finite")
    shape = (*lead, 1, 1)
    fits = value.dim() <= len(shape) and all(v in (1, s) for v, s in zip(value.shape[::-1], shape[::-1], strict=False))
    if not fits:
        raise BadInput(
            f"{name} must be a number, a 0-dim tensor or one number per matrix, broadcastable to {shape}, "
            f"but has shape {tuple(value.shape)}."
        )
    return value.to(device, widest_dtype(device)).expand(shape).reshape(-1, 1, 1)


def _wrong_value(name: str, value: float, positive: bool) -> BadInput:
    wanted = "positive" if positive else "non-negative"
    hint = " Use alpha=None for the hard constraint (rows that sum to one)." if name == "alpha" else ""
    return BadInput(f"{name} must be {wanted} and finite, but is {value}.{hint}")


def check_mask(mask: Tensor, shape: tuple[int, ...]) -> None:
    """Raise `BadInput` unless `mask` is boolean and broadcasts to `shape`."""
    if mask.dtype != torch.bool:
        raise BadInput(
            f"mask must be boolean (True: the key is allowed), but has dtype {mask.dtype}. Use mask.bool() for 0/1."
        )
    fits = mask.dim() <= len(shape) and all(m in (1, s) for m, s in zip(mask.shape[::-1], shape[::-1], strict=False))
    if not fits:
        raise BadInput(f"mask has shape {tuple(mask.shape)}, which does not broadcast to {shape}.")
