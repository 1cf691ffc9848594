"""Sparse flow in logarithms: exact even if resistances and frictions span hundreds of orders of magnitude.

With conductances w_i = 1 / r_i and costs g_i = penalty f_i in ascending order, let water rise in a row. When it reaches
the floor g_k, the volume filled so far is

    V_1 = g_1 / alpha,    V_(k+1) = V_k + (w_1 + ... + w_k + 1 / alpha) (g_(k+1) - g_k),

a sum of positive terms. Key k carries flow if and only if V_k < 1. With K the last such key,

    rise = (1 - V_K) / (w_1 + ... + w_K + 1 / alpha),    z_i = w_i (rise + (g_K - g_i)),

which has no cancellation either; with b_i = log f_i a difference is g_K - g_i = g_K (1 - exp(b_i - b_K)). The level
mu = g_K + rise, which would lose the digits of the rise, is never computed. Every number is stored as its float64
logarithm, so none over- or underflows.

The gradient needs c - u_i with c = sum_A w u / D, D = sum_A w + 1 / alpha, u = dL/dz and A the active keys; it may be
multiplied by w_i g_i = 1e100 and so must be right to its last digit even if w_m is nearly all of D. With m the key of
the largest conductance in A,

    c - u_m = sum_(j in A, j != m) (w_j / D) (u_j - u_m) - u_m / (alpha D),    c - u_i = (c - u_m) + (u_m - u_i).

Two frictions that differ by less than the rounding of their logarithms are a tie and count as equal.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable

#: Represents the logarithm of 0 in frictions, far below that of any other number: differences stay finite.
_LOG_ZERO = -1e5


class LogRows(NamedTuple):
    """R rows with K keys each; float64.

    Args:
        log_weight: log(1 / r) `[R, K]`; minus infinity where a key is not allowed or has an infinite resistance.
        log_friction: log f `[R, K]`, finite; anything where a key is not allowed.
        log_penalty: log of the friction's weight `[R, 1]`; minus infinity for 0.
        log_slack: -log alpha `[R, 1]`; minus infinity for the hard constraint.
        resolution: differences of `log_friction` up to this are ties `[R, 1]`.
    """

    log_weight: Tensor
    log_friction: Tensor
    log_penalty: Tensor
    log_slack: Tensor
    resolution: Tensor


class LogLevel(NamedTuple):
    """The solution of rows, `[R, 1]` each; enough to recompute everything else without sorting.

    Args:
        floor: log f of the last active key K, whose ties all have this value; minus infinity in rows without flow.
        top: the largest log f that counts as active.
        log_rise: log(mu - g_K).
        log_total: log D, with D the sum of the active conductances and 1 / alpha.
    """

    floor: Tensor
    top: Tensor
    log_rise: Tensor
    log_total: Tensor


class Slopes(NamedTuple):
    """Derivatives of a loss L with respect to the inputs of a row's flow.

    Args:
        log_push, sign: logarithm of the size and sign of dL/dg_i = w_i (c - u_i) `[R, K]`; 0 where i is not active.
        resistance: dL/d(log r_i) = z_i (c - u_i) `[R, K]`.
        resistances: the sum of `resistance` `[R, 1]`.
        costs: the sum of dL/d(log f_i) = g_i w_i (c - u_i) `[R, 1]`.
        penalty: dL/d(penalty) `[R, 1]`, infinite outside the range of float64.
        leak: dL/d(log alpha) = c mu / alpha `[R, 1]`.
    """

    log_push: Tensor
    sign: Tensor
    resistance: Tensor
    resistances: Tensor
    costs: Tensor
    penalty: Tensor
    leak: Tensor

    def times(self, log_factor: Tensor) -> Tensor:
        """Return dL/dg_i exp(log_factor), without intermediate overflow."""
        return self.sign * (self.log_push + log_factor).exp()


def solve(rows: LogRows) -> LogLevel:
    """Find the level of every row by sorting."""
    allowed = rows.log_weight > -torch.inf
    count = allowed.sum(-1, keepdim=True)
    floor, order = torch.where(allowed, rows.log_friction, torch.inf).sort(-1)
    inside = torch.arange(floor.shape[-1], device=floor.device) < count
    raw = torch.where(inside, floor, 0.0)
    floor = _first_of_ties(raw, rows.resolution)
    # log(w_1 + ... + w_k + 1 / alpha), then log V_k as in the module's docstring.
    capacity = torch.logaddexp(rows.log_weight.gather(-1, order).logcumsumexp(-1), rows.log_slack)
    cost = floor + rows.log_penalty
    lift = cost[:, 1:] + _log_one_minus_exp(floor.diff(dim=-1).clamp_min(0))
    filled = torch.cat((cost[:, :1] + rows.log_slack, capacity[:, :-1] + lift), -1).logcumsumexp(-1)
    # V_k ascends, so the active keys come first; there are none if g_1 >= alpha.
    last = ((filled < 0) & inside).sum(-1, keepdim=True) - 1
    at = last.clamp_min(0)
    total = capacity.gather(-1, at)
    rise = (-torch.expm1(filled.gather(-1, at))).log() - total
    top = raw.gather(-1, at) + rows.resolution / 2
    dry = last < 0
    broken = (rows.log_weight.amax(-1, keepdim=True) + rows.log_friction.amax(-1, keepdim=True)).isnan()
    # `slopes` subtracts the logarithm of the total: -inf - (-inf) would be NaN in rows without any conductance.
    total = total.masked_fill(total == -torch.inf, 0.0).masked_fill(broken, torch.nan)
    return LogLevel(floor.gather(-1, at), top.masked_fill(dry, -torch.inf), rise.masked_fill(dry, -torch.inf), total)


def flow(rows: LogRows, level: LogLevel) -> Tensor:
    """Return the flow z `[R, K]`, float64; NaN in rows that contain a NaN."""
    below = _log_one_minus_exp((level.floor - rows.log_friction).clamp_min(0))
    log_gap = torch.logaddexp(level.log_rise, level.floor + rows.log_penalty + below)
    z = torch.where(_active(rows, level), (rows.log_weight + log_gap).exp(), 0.0)
    return z.masked_fill_(level.log_total.isnan(), torch.nan)


def slopes(rows: LogRows, level: LogLevel, z: Tensor, upstream: Tensor, resolution: float | Tensor = 0.0) -> Slopes:
    """Compute the derivatives of a loss from `upstream`, its derivatives by the flow `z`; `[R, K]` float64 each.

    Args:
        rows: the rows.
        level: their solution.
        z: their flow.
        upstream: u.
        resolution: differences of `upstream` up to this count as 0 `[R, 1]`.
    """
    share = torch.where(_active(rows, level), rows.log_weight - level.log_total, -torch.inf)
    active = share > -torch.inf
    most = share.argmax(-1, keepdim=True)
    of_most = upstream.gather(-1, most)
    ahead = upstream - of_most
    ahead = torch.where(ahead.abs() <= resolution, 0.0, ahead)
    others = share.scatter(-1, most, -torch.inf)
    slack = rows.log_slack - level.log_total
    # Factor out the largest share of D besides key m: it may be exp(-800), for which `lead` underflows.
    size = torch.maximum(others.amax(-1, keepdim=True), slack)
    size = size.masked_fill(size == -torch.inf, 0.0)
    reduced = ((others - size).exp() * ahead).sum(-1, keepdim=True) - (slack - size).exp() * of_most
    lead = reduced * size.exp()  # c - u_m
    gained, same = lead - ahead, ahead == 0
    # Where u_i = u_m, c - u_i is c - u_m, whose logarithm is known even where its value underflows.
    log_gained = torch.where(same, reduced.abs().log() + size, gained.abs().log())
    push = share + level.log_total + log_gained
    sign = torch.where(active, torch.where(same, reduced.sign(), gained.sign()), 0.0)
    resistance = torch.where(active, z * gained, 0.0)
    charge = torch.where(level.top > -torch.inf, of_most + lead, 0.0)
    return Slopes(push, sign, resistance, *_sums(rows, level, push, sign, resistance, charge, most))


def _sums(
    rows: LogRows, level: LogLevel, push: Tensor, sign: Tensor, resistance: Tensor, charge: Tensor, most: Tensor
) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """Return the last four of `Slopes`.

    sum_A w (c - u) = -c / alpha implies, with differences from key m of the largest conductance,

        sum_A w g (c - u) = T - c g_m / alpha,    sum_A z (c - u) = -T - c (mu - g_m) / alpha

    with T = sum_A w (g - g_m) (c - u), whose terms are at most of the size of u and 0 for tied frictions. The left
    sides are more accurate for small g.
    """
    here, at_most = rows.log_friction, rows.log_friction.gather(-1, most)
    apart = (here - at_most).abs()
    apart = torch.where(apart <= rows.resolution, 0.0, apart)
    log_apart = push + torch.maximum(here, at_most) + _log_one_minus_exp(apart)  # log |w (f - f_m) (c - u)|
    side, slack = sign * (here - at_most).sign(), rows.log_slack
    direct = _SignedSum.of(push + here, sign)
    offset = charge.abs().log() + at_most + slack
    by_most = _SignedSum.of(torch.cat((log_apart, offset), -1), torch.cat((side, -charge.sign()), -1))
    costs = direct.or_where_shorter(by_most)
    below = _log_one_minus_exp((level.floor - at_most).clamp_min(0))
    log_gap = torch.logaddexp(level.log_rise, level.floor + rows.log_penalty + below)  # of mu - g_m
    differences, offset = side * (log_apart + rows.log_penalty).exp(), charge * (log_gap + slack).exp()
    resistances = torch.where(
        resistance.abs().sum(-1, keepdim=True) <= differences.abs().sum(-1, keepdim=True) + offset.abs(),
        resistance.sum(-1, keepdim=True),
        -differences.sum(-1, keepdim=True) - offset,
    )
    log_mu = torch.logaddexp(level.log_rise, level.floor + rows.log_penalty)
    leak = charge * (log_mu + slack).exp()
    return resistances, costs.value(rows.log_penalty), costs.value(torch.zeros_like(slack)), leak


class _SignedSum(NamedTuple):
    """A sum over a row whose terms may be arbitrarily large, `[R, 1]` each.

    Args:
        scale: logarithm of the largest term.
        sum: sum of the terms divided by that.
        size: the same for their absolute values.
    """

    scale: Tensor
    sum: Tensor
    size: Tensor

    @classmethod
    def of(cls, log_terms: Tensor, signs: Tensor) -> _SignedSum:
        """Return the sum of `signs exp(log_terms)`, `[R, C]` each."""
        scale = log_terms.amax(-1, keepdim=True)
        scale = scale.masked_fill(scale == -torch.inf, 0.0)
        terms = (log_terms - scale).exp()
        return cls(scale, (signs * terms).sum(-1, keepdim=True), terms.sum(-1, keepdim=True))

    def or_where_shorter(self, other: _SignedSum) -> _SignedSum:
        """Use the other, equal sum in rows where the absolute values of its terms have a smaller sum."""
        shorter = other.scale + other.size.log() < self.scale + self.size.log()
        return _SignedSum(*(torch.where(shorter, b, a) for a, b in zip(self, other, strict=True)))

    def value(self, log_factor: Tensor) -> Tensor:
        """Return the sum times `exp(log_factor)`."""
        return torch.where(self.sum == 0, 0.0, self.sum * (self.scale + log_factor).exp())


def _active(rows: LogRows, level: LogLevel) -> Tensor:
    return (rows.log_weight > -torch.inf) & (rows.log_friction <= level.top)


def _first_of_ties(ascending: Tensor, resolution: Tensor) -> Tensor:
    """Replace each number by the first of its run, in which neighbours differ by `resolution` or less."""
    new = ascending.diff(dim=-1, prepend=ascending[:, :1] - 2 * resolution - 1) > resolution
    return torch.where(new, ascending, -torch.inf).cummax(-1).values


def _log_one_minus_exp(x: Tensor) -> Tensor:
    """Compute log(1 - exp(-x)) for x >= 0."""
    return (-torch.expm1(-x)).log()


def flow_in_logarithms(
    resistance: Tensor,
    friction: Tensor,
    penalty: Tensor,
    alpha: Tensor | None,
    allowed: Tensor | None,
    given: torch.finfo,
) -> Tensor:
    """Compute the flow of given resistances and frictions `[R, K]`, float64, once differentiable.

    Args:
        resistance: r `[R, K]`, float64.
        friction: f `[R, K]`, float64.
        penalty: `[R, 1]`.
        alpha: `[R, 1]`; None for the hard constraint.
        allowed: allowed keys `[R, K]`; None for all.
        given: limits of the format that r and f were given in, to which resistances and gradients are clamped.
    """
    if allowed is not None:
        resistance, friction = resistance.masked_fill(~allowed, torch.inf), friction.masked_fill(~allowed, 1.0)
    z: Tensor = _LogFlow.apply(resistance, friction, penalty, alpha, given.tiny, given.max)
    return z


class _LogFlow(torch.autograd.Function):
    """Solve for the flow `[R, K]`, float64."""

    @staticmethod
    def forward(
        ctx: Any,
        resistance: Tensor,
        friction: Tensor,
        penalty: Tensor,
        alpha: Tensor | None,
        tiny: float,
        most: float,
    ) -> Tensor:
        """Return the flow `[R, K]`."""
        tolls = friction.log().clamp_min(_LOG_ZERO)
        slack = torch.full_like(penalty, -torch.inf) if alpha is None else -alpha.log()
        largest = torch.where(tolls > _LOG_ZERO, tolls.abs(), 1.0).amax(-1, keepdim=True).clamp_min(1.0)
        # A logarithm of size x has an error of up to eps x, and a difference of two twice that.
        resolution = 2 * torch.finfo(tolls.dtype).eps * largest
        rows = LogRows(-resistance.clamp_min(tiny).log(), tolls, penalty.log(), slack, resolution)
        level = solve(rows)
        z = flow(rows, level)
        ctx.save_for_backward(z, alpha, *rows, *level)
        ctx.most = most
        return z

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, upstream: Tensor) -> tuple[Tensor | None, ...]:
        """Return gradients of resistance, friction, penalty and alpha, using the formulas of `sparse_flow`."""
        z, alpha, *saved = ctx.saved_tensors
        rows, level = LogRows(*saved[:5]), LogLevel(*saved[5:])
        steep = slopes(rows, level, z, upstream)
        # dL/dr_i = z_i dL/dg_i, as one exponential, since dL/dg_i by itself may overflow.
        of_resistance = steep.sign * (steep.log_push + z.log()).exp()
        of_friction = steep.times(rows.log_penalty)
        of_alpha = None if alpha is None else steep.leak / alpha
        gradients = (of_resistance, of_friction, steep.penalty, of_alpha)
        return (*(None if x is None else x.clamp_(-ctx.most, ctx.most) for x in gradients), None, None)
