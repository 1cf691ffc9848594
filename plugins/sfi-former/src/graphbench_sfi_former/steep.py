"""Steep rows of sparse-flow attention: those that float32 (or plain float64) cannot state, solved in logarithms.

Which rows these are is decided by `RowState.hard`. Their logits are computed again in float64, in whatever precision
the attention runs, and go through `logarithmic`; so do their gradients.

A derivative by a friction's logit can exceed any number: w_i g_i (c - u_i) is exp(500) where two frictions are tied and
their resistances vanish beside them. Where the largest of a row exceeds what can still be multiplied and summed in the
dtype of the attention, all derivatives of the row by its frictions' logits are divided by one number.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import NamedTuple

import torch
from torch import Tensor

from graphbench_sfi_former.logarithmic import LogLevel, LogRows, flow, slopes, solve
from graphbench_sfi_former.masking import Wall
from graphbench_sfi_former.operands import Energy, Projections

#: Numbers in a buffer of differences of keys, and in one of a chunk of rows on a CPU.
_CHUNK, _CACHED = 2**22, 2**17
#: A sum over keys is of differences where less than this share of its terms is left.
_CANCELS = 1e-6
_EPS = torch.finfo(torch.float64).eps
#: What an infinite derivative of a row counts, so that sums over rows stay numbers.
_MOST = 1e300


class SteepState(NamedTuple):
    """The steep rows of a block and their solution.

    Args:
        rows: their numbers, counted over matrices and queries of the block, int64 `[R]`.
        level: their levels.
    """

    rows: Tensor
    level: LogLevel


class SteepGradients(NamedTuple):
    """What the backward pass needs of the steep rows; float64 `[R, K]` or `[R, 1]`.

    Args:
        rows: as in `SteepState`.
        flow: z with dropout's factors.
        scores: dL/d(Q K^T / sqrt d).
        friction_scores: dL/d(Q~ K~^T / sqrt d).
        penalty: dL/dpenalty of each row.
        leak: dL/d(log alpha) of each row.
    """

    rows: Tensor
    flow: Tensor
    scores: Tensor
    friction_scores: Tensor
    penalty: Tensor
    leak: Tensor


def solve_steep(part: Projections, energy: Energy, wall: Wall | None, rows: Tensor) -> tuple[SteepState, Tensor]:
    """Levels and flows z `[R, K]` (float64) of these rows of a block."""
    least, levels, flows = _least(part), [], []
    for some in _chunks(part, rows):
        made = _rows_of(part, energy, wall, some)
        z, level = torch.zeros_like(made.log_weight), LogLevel(*(torch.empty_like(made.log_penalty) for _ in range(4)))
        for few in _with_few_keys(made, _candidates(made, least)):
            solved = solve(few.rows)
            z[few.numbers[:, None], few.keys] = flow(few.rows, solved)
            for whole, own in zip(level, solved, strict=True):
                whole[few.numbers] = own
        levels.append(level)
        flows.append(z)
    return SteepState(rows, LogLevel(*map(torch.cat, zip(*levels, strict=True)))), torch.cat(flows)


def steep_gradients(
    part: Projections, energy: Energy, wall: Wall | None, state: SteepState, upstream: Tensor, keep: Tensor | None
) -> SteepGradients:
    """Gradients of the steep rows of a block.

    Args:
        part: inputs of the block.
        energy: weights of its energy.
        wall: its mask.
        state: its steep rows.
        upstream: gradient of the output of the block `[m, n, d_v]`.
        keep: dropout's factors of the block `[m, n, K]`; None without dropout.
    """
    least, largest, start, parts = _least(part), _largest_exponent(part), 0, []
    for some in _chunks(part, state.rows):
        level = LogLevel(*(numbers[start : start + len(some)] for numbers in state.level))
        made = _rows_of(part, energy, wall, some)
        products = _scores(upstream, part.value, some)
        factors = None if keep is None else keep.view(-1, keep.shape[-1])[some]
        parts.append(SteepGradients(some, *_gradients(made, level, *products, factors, least, largest)))
        start += len(some)
    return SteepGradients(*map(torch.cat, zip(*parts, strict=True)))


def _gradients(
    made: LogRows, level: LogLevel, u: Tensor, size: Tensor, factors: Tensor | None, least: float, largest: float
) -> tuple[Tensor, ...]:
    """The tensors of `SteepGradients` after the first, for `u` without dropout's factors and terms of it of `size`."""
    kept, by_score, by_friction = (torch.zeros_like(made.log_weight) for _ in range(3))
    total, common, penalty, leak = (torch.empty_like(made.log_penalty) for _ in range(4))
    for few in _with_few_keys(made, _active(made, level, least)):
        at, own = few.numbers, (few.numbers[:, None], few.keys)
        own_level = LogLevel(*(numbers[at] for numbers in level))
        z, upstream, resolution = flow(few.rows, own_level), u[own], size[at] * _EPS
        kept[own] = z
        if factors is not None:
            own_factors = factors[own].double()
            upstream, resolution = upstream * own_factors, resolution * own_factors.amax(-1, keepdim=True)
            kept[own] *= own_factors
        steep = slopes(few.rows, own_level, z, upstream, resolution)
        exponent = steep.log_push + few.rows.log_friction + few.rows.log_penalty
        excess = (exponent.amax(-1, keepdim=True) - largest).clamp_min(0)
        by_score[own], by_friction[own] = -steep.resistance, steep.sign * (exponent - excess).exp()
        total[at], common[at] = -steep.resistances, steep.costs * (-excess).exp()
        penalty[at], leak[at] = steep.penalty.clamp(-_MOST, _MOST), steep.leak
    allowed = made.log_weight > -torch.inf
    through = _through_softmax(by_score, total, -made.log_weight, allowed)
    return kept, through, _through_softmax(by_friction, common, made.log_friction, allowed), penalty, leak


class _FewKeys(NamedTuple):
    """Rows with some of their keys alone.

    Args:
        numbers: of the rows `[r]`.
        keys: numbers of the keys `[r, C]`.
        rows: the rows with C keys; where a row has fewer, the others are not allowed.
    """

    numbers: Tensor
    keys: Tensor
    rows: LogRows


def _with_few_keys(rows: LogRows, chosen: Tensor) -> Iterator[_FewKeys]:
    """The rows with their chosen keys (bool `[R, K]`) alone, those with similar numbers of them together."""
    count = chosen.sum(-1)
    order = torch.where(chosen, rows.log_friction, torch.inf)
    lower = -1
    for upper in (4, 16, 48, chosen.shape[-1]):
        numbers = ((count > lower) & (count <= upper)).nonzero().view(-1)
        lower = upper
        if not len(numbers):
            continue
        keys = order[numbers].topk(min(upper, chosen.shape[-1]), -1, largest=False).indices
        at = (numbers[:, None], keys)
        weight = torch.where(chosen[at], rows.log_weight[at], -torch.inf)
        friction = torch.where(chosen[at], rows.log_friction[at], 0.0)
        yield _FewKeys(numbers, keys, LogRows(weight, friction, *(x[numbers] for x in rows[2:])))


def _chunks(part: Projections, rows: Tensor) -> tuple[Tensor, ...]:
    """The rows in pieces whose intermediate tensors stay in the cache."""
    return rows.split(max(1, _CACHED // part.key.shape[1])) if rows.device.type == "cpu" else (rows,)


def _least(part: Projections) -> float:
    """Logarithm of a flow that is none in the dtype of the attention."""
    return 1.1 * math.log(torch.finfo(part.query.dtype).tiny)


def _candidates(rows: LogRows, least: float) -> Tensor:
    """Keys that may carry a flow, or change it by the penalty, by more than exp(least), bool `[R, K]`.

    The level is at most g_i + r_i, to which key i alone would raise it, and a flow at most that over its resistance.
    """
    cost = rows.log_friction + rows.log_penalty
    reach = torch.maximum(cost, -rows.log_weight).amin(-1, keepdim=True) + math.log(2)
    hopeless = (cost > reach + rows.resolution) | (rows.log_weight < least - torch.maximum(reach, rows.log_friction))
    return (rows.log_weight > -torch.inf) & ~hopeless  # NaN stays in


def _active(rows: LogRows, level: LogLevel, least: float) -> Tensor:
    """Keys that carry a flow, or change it by the penalty, by more than exp(least), bool `[R, K]`."""
    reach = torch.logaddexp(level.log_rise, level.floor + rows.log_penalty)
    counts = rows.log_weight >= least - torch.maximum(reach, rows.log_friction)
    return counts & (rows.log_friction <= level.top) & (rows.log_weight > -torch.inf)


def gradient_of_queries(scores: Tensor, keys: Tensor, rows: Tensor, num_rows: int) -> Tensor:
    """Sum_i s_i k_i of rows `[R, K]` with sum_i s_i = 0.

    Where most of it cancels, it is taken as sum_i s_i (k_i - k_m), to which equal keys contribute exactly nothing.

    Args:
        scores: s, float64.
        keys: of the block `[m, K, d]`.
        rows: numbers of the rows in the block `[R]`.
        num_rows: rows of a matrix.

    Returns:
        `[R, d]`, float64.
    """
    matrices, position = (rows // num_rows).unique(return_inverse=True)
    keys = keys[matrices].double()
    spread = scores.new_zeros(len(matrices), num_rows, scores.shape[-1])
    at = position * num_rows + rows % num_rows
    spread.flatten(0, 1)[at] = scores
    gradient = (spread @ keys).flatten(0, 1)[at]
    bound = scores.abs().sum(-1) * torch.linalg.vector_norm(keys, dim=-1).amax(-1)[position]
    cancels = (torch.linalg.vector_norm(gradient, dim=-1) < _CANCELS * bound).nonzero().view(-1)
    for some in cancels.split(max(1, _CHUNK // keys[0].numel())):
        s, k = scores[some], keys[position[some]]
        most = k.gather(1, s.abs().argmax(-1)[:, None, None].expand(-1, 1, k.shape[-1]))
        gradient[some] = torch.einsum("rk,rkd->rd", s, k - most)
    return gradient


def _largest_exponent(part: Projections) -> float:
    """Logarithm of the largest derivative by a logit whose products with keys and queries can still be summed."""
    most = max(1.0, *(float(x.abs().amax()) for x in (part.friction_query, part.friction_key)))
    return math.log(torch.finfo(part.query.dtype).max) - math.log(most * max(part.query.shape[1], part.key.shape[1]))


def _rows_of(part: Projections, energy: Energy, wall: Wall | None, rows: Tensor) -> LogRows:
    """These rows of the block in logarithms."""
    scores, _ = _scores(part.query, part.key, rows)
    frictions, size = _scores(part.friction_query, part.friction_key, rows)
    scale = part.query.shape[-1] ** -0.5
    friction_scale = part.friction_query.shape[-1] ** -0.5
    scores, frictions = scores * scale, frictions * friction_scale
    if wall is not None:
        allowed = (wall.height == 0).expand(-1, part.query.shape[1], -1).reshape(-1, scores.shape[-1])[rows]
    else:
        allowed = torch.ones_like(scores, dtype=torch.bool)
    weight = torch.where(allowed, scores + torch.where(allowed, -scores, -torch.inf).logsumexp(-1, True), -torch.inf)
    frictions = frictions - torch.where(allowed, frictions, -torch.inf).logsumexp(-1, True)
    matrices = rows // part.query.shape[1]
    penalty = energy.penalty[matrices, 0].log()
    slack = torch.full_like(penalty, -torch.inf) if energy.alpha is None else -energy.alpha[matrices, 0].log()
    resolution = size * (2 * _EPS * friction_scale)
    return LogRows(weight, torch.where(allowed, frictions, 0.0), penalty, slack, resolution)


def _scores(queries: Tensor, keys: Tensor, rows: Tensor) -> tuple[Tensor, Tensor]:
    """Products of these rows of queries with the keys of their matrix `[R, K]`, and a bound on their terms `[R, 1]`."""
    num_rows = queries.shape[1]
    matrices, position = (rows // num_rows).unique(return_inverse=True)
    chosen, keys = queries[matrices].double(), keys[matrices].double()
    at = position * num_rows + rows % num_rows
    products = (chosen @ keys.transpose(1, 2)).flatten(0, 1)[at]
    bound = torch.linalg.vector_norm(chosen, dim=-1) * torch.linalg.vector_norm(keys, dim=-1).amax(-1, keepdim=True)
    return products, bound.flatten()[at, None] * keys.shape[-1]


def _through_softmax(derivatives: Tensor, total: Tensor, log_shares: Tensor, allowed: Tensor) -> Tensor:
    """Derivatives by logits, G_i - f_i total, of those by the logarithms of their softmax f, G, whose sum is `total`.

    They sum to zero. Where a share is nearly 1 and its own difference cancels, it is set by the others'.
    """
    log_shares = torch.where(allowed, log_shares, -torch.inf)
    through = derivatives - log_shares.exp() * total
    log_share, largest = log_shares.max(-1, keepdim=True)
    others = through.scatter(-1, largest, 0.0)
    terms = derivatives.gather(-1, largest).abs() + (log_share.exp() * total).abs()
    cancels = others.abs().sum(-1, keepdim=True) < terms
    own = torch.where(cancels, -others.sum(-1, keepdim=True), through.gather(-1, largest))
    return through.scatter_(-1, largest, own)
