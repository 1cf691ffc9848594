"""Steep rows of sparse-flow attention: those that `blocks` skips, solved in logarithms.

Their logits are recomputed in float64 and solved by `logarithms` with the few keys that matter. The results are added
to the output and the gradients of their block.

Legend: m matrices and n queries of a block, R of its rows that are steep, K keys, d head width.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from contextlib import AbstractContextManager, nullcontext
from typing import Any, NamedTuple

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable

from graphbench_sfi_former.blocks import Block, Operands, blocks
from graphbench_sfi_former.logarithms import LogLevel, LogRows, flow, slopes, solve

#: Numbers in a buffer of differences of keys, and in one of a chunk of rows on a CPU.
_CHUNK, _CACHED = 2**22, 2**17
#: Sum differences of keys if less than this share of the terms remains after cancellation.
_CANCELS = 1e-6
_EPS = torch.finfo(torch.float64).eps
#: Replaces an infinite derivative of a row, so that sums over rows stay finite.
_MAX_DERIVATIVE = 1e300


class SteepRows(torch.autograd.Function):
    """Output `[M, N, d_v]` of the steep rows, 0 in all others."""

    @staticmethod
    def forward(ctx: Any, steep: Tensor, options: tuple[Any, ...], *tensors: Tensor) -> Tensor:
        """Compute the output; `options` are masks, numbers of masks, dropout and its seed, as in `attend_rows`."""
        operands = Operands(*tensors)
        output = operands.query.new_zeros(*steep.shape, operands.value.shape[-1])
        # Keep levels, not flows: four numbers per row suffice to recompute the rest; a flow has one per key.
        ctx.levels = []
        for at, part, allowed, rows, keep in _steep_blocks(steep, options, operands):
            level, flow = solve_steep(part, allowed, rows)
            ctx.levels.append(level)
            # Steep rows come from several matrices with different V, so use one batched product for the block.
            spread = _spread(part, rows, flow if keep is None else flow * keep)
            output[at].view(-1, output.shape[-1])[rows] = (spread @ part.value).flatten(0, 1)[rows]
        ctx.save_for_backward(steep, *tensors)
        ctx.options = options
        return output

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, upstream: Tensor) -> tuple[Tensor | None, ...]:
        """Return gradients of the seven tensors."""
        steep, *tensors = ctx.saved_tensors
        operands = Operands(*tensors)
        grads = Operands(*(None if x is None else x.new_zeros(x.shape) for x in tensors))  # type: ignore[arg-type]
        with without_autocast(upstream.device):  # a backward pass may run inside autocast
            solved = zip(_steep_blocks(steep, ctx.options, operands), ctx.levels, strict=True)
            for (at, part, allowed, rows, keep), level in solved:
                terms = steep_gradients(part, allowed, rows, level, upstream[at], keep)
                _add_gradients(grads.cut(at), part, rows, terms, upstream[at])
        for grad in grads[5:]:
            # Gradients of penalty and alpha are float64; a larger one would become infinite if an option is float32.
            if grad is not None:
                grad.clamp_(torch.finfo(upstream.dtype).min, torch.finfo(upstream.dtype).max)
        return (None, None, *grads)


def _add_gradients(grads: Operands, part: Operands, rows: Tensor, terms: SteepGradients, upstream: Tensor) -> None:
    """Add the contributions of steep rows to the gradients of their block."""
    for queries, keys, by_score, of_query, of_key in (
        (part.query, part.key, terms.scores, grads.query, grads.key),
        (part.friction_query, part.friction_key, terms.friction_scores, grads.friction_query, grads.friction_key),
    ):
        root = keys.shape[-1] ** -0.5
        of_key.baddbmm_(_spread(part, rows, by_score).transpose(1, 2), queries, alpha=root)
        # Over the keys of a row these derivatives sum to 0, and they cancel if keys are tied, hence float64.
        exact = gradient_of_queries(by_score, keys, rows, queries.shape[1]) * root
        of_query.view(-1, keys.shape[-1])[rows] = exact.to(of_query.dtype)
    grads.value.baddbmm_(_spread(part, rows, terms.flow).transpose(1, 2), upstream)
    matrices = rows // part.query.shape[1]
    grads.penalty.view(-1).index_add_(0, matrices, terms.penalty.view(-1))
    if grads.alpha is not None and part.alpha is not None:
        grads.alpha.view(-1).index_add_(0, matrices, terms.leak.view(-1) / part.alpha.view(-1)[matrices])


def _steep_blocks(
    steep: Tensor, options: tuple[Any, ...], operands: Operands
) -> Iterator[tuple[Block, Operands, Tensor | None, Tensor, Tensor | None]]:
    """Yield blocks with steep rows: slices, operands, masks, numbers of the rows, and their dropout mask `[R, K]`."""
    masks, mask_of, dropout, seed = options
    # A separate stream from that of the ordinary rows, whose draws have the shape of a block.
    generator = torch.Generator(steep.device).manual_seed(seed + 1)
    for at, allowed, _ in blocks(operands, masks, mask_of, 0.0, 0):
        rows = steep[at].flatten().nonzero().view(-1)
        if len(rows):
            keep = None
            if dropout:
                keep = operands.query.new_empty(len(rows), operands.key.shape[1])
                keep.bernoulli_(1 - dropout, generator=generator).div_(1 - dropout)
            yield at, operands.cut(at), allowed, rows, keep


def _spread(part: Operands, rows: Tensor, values: Tensor) -> Tensor:
    """Scatter values of rows `[R, K]` to their places in `[m, n, K]`, 0 elsewhere, in the dtype of the attention."""
    (m, n, _), num_keys = part.query.shape, part.key.shape[1]
    return part.query.new_zeros(m * n, num_keys).index_copy_(0, rows, values.to(part.query.dtype)).view(m, n, num_keys)


def without_autocast(device: torch.device) -> AbstractContextManager[Any]:
    """Return a context without autocast; if autocast is off already, one without overhead."""
    if torch.is_autocast_enabled(device.type):
        return torch.autocast(device.type, enabled=False)
    return nullcontext()


class SteepGradients(NamedTuple):
    """Terms of the steep rows for the backward pass of attention; float64 `[R, K]` or `[R, 1]`.

    Args:
        flow: z with dropout's factors.
        scores: dL/d(Q K^T / sqrt d).
        friction_scores: dL/d(Q~ K~^T / sqrt d).
        penalty: dL/dpenalty of each row.
        leak: dL/d(log alpha) of each row.
    """

    flow: Tensor
    scores: Tensor
    friction_scores: Tensor
    penalty: Tensor
    leak: Tensor


def solve_steep(part: Operands, allowed: Tensor | None, rows: Tensor) -> tuple[LogLevel, Tensor]:
    """Solve for levels and flows z `[R, K]` (float64) of the rows with these numbers, counted over all matrices.

    Their logits are recomputed in float64, whatever the precision of the attention.

    Args:
        part: operands of a block, `[m, n or K, width]`.
        allowed: allowed keys `[m, n or 1, K]`; None for all.
        rows: int64 `[R]`.
    """
    log_tiny, levels, flows = _log_tiny(part), [], []
    for chunk in _chunks(part, rows):
        log_rows = _rows_of(part, allowed, chunk)
        z = torch.zeros_like(log_rows.log_weight)
        level = LogLevel(*(torch.empty_like(log_rows.log_penalty) for _ in range(4)))
        for few in _with_few_keys(log_rows, _candidates(log_rows, log_tiny)):
            solved = solve(few.rows)
            z[few.numbers[:, None], few.keys] = flow(few.rows, solved)
            for numbers, solution in zip(level, solved, strict=True):
                numbers[few.numbers] = solution
        # A key with a NaN weight is not a candidate, so its row would be solved as if the key were absent.
        broken = log_rows.log_weight.isnan().any(-1, keepdim=True) | log_rows.log_friction.isnan().any(-1, keepdim=True)
        levels.append(level)
        flows.append(z.masked_fill_(broken, torch.nan))
    return LogLevel(*map(torch.cat, zip(*levels, strict=True))), torch.cat(flows)


def steep_gradients(
    part: Operands, allowed: Tensor | None, rows: Tensor, level: LogLevel, upstream: Tensor, keep: Tensor | None
) -> SteepGradients:
    """Compute the gradients of steep rows.

    A derivative by a friction's logit can be arbitrarily large: w_i g_i (c - u_i) is exp(500) if two frictions are tied
    and their resistances are negligible. If the largest of a row is too large to be multiplied and summed in the dtype
    of the attention, all derivatives of the row by friction logits are divided by one number.

    Args:
        part: as in `solve_steep`.
        allowed: as in `solve_steep`.
        rows: as in `solve_steep`.
        level: their solution.
        upstream: gradient of the output of the block `[m, n, d_v]`.
        keep: dropout's factors of the rows `[R, K]`; None without dropout.
    """
    log_tiny, largest, start, parts = _log_tiny(part), _largest_exponent(part), 0, []
    for chunk in _chunks(part, rows):
        here = slice(start, start + len(chunk))
        log_rows, products = _rows_of(part, allowed, chunk), _scores(upstream, part.value, chunk)
        chunk_level, factors = LogLevel(*(numbers[here] for numbers in level)), None if keep is None else keep[here]
        parts.append(SteepGradients(*_gradients(log_rows, chunk_level, *products, factors, log_tiny, largest)))
        start += len(chunk)
    return SteepGradients(*map(torch.cat, zip(*parts, strict=True)))


def _gradients(
    log_rows: LogRows, level: LogLevel, u: Tensor, size: Tensor, factors: Tensor | None, log_tiny: float, largest: float
) -> tuple[Tensor, ...]:
    """Return the tensors of `SteepGradients`; u is without dropout, and `size` bounds the terms of its sums."""
    dropped, by_score, by_friction = (torch.zeros_like(log_rows.log_weight) for _ in range(3))
    total, common, penalty, leak = (torch.empty_like(log_rows.log_penalty) for _ in range(4))
    for few in _with_few_keys(log_rows, _active_keys(log_rows, level, log_tiny)):
        at, cells = few.numbers, (few.numbers[:, None], few.keys)
        few_level = LogLevel(*(numbers[at] for numbers in level))
        z, upstream, resolution = flow(few.rows, few_level), u[cells], size[at] * _EPS
        dropped[cells] = z
        if factors is not None:
            few_factors = factors[cells].double()
            upstream, resolution = upstream * few_factors, resolution * few_factors.amax(-1, keepdim=True)
            dropped[cells] *= few_factors
        steep = slopes(few.rows, few_level, z, upstream, resolution)
        exponent = steep.log_push + few.rows.log_friction + few.rows.log_penalty
        excess = (exponent.amax(-1, keepdim=True) - largest).clamp_min(0)
        by_score[cells], by_friction[cells] = -steep.resistance, steep.sign * (exponent - excess).exp()
        total[at], common[at] = -steep.resistances, steep.costs * (-excess).exp()
        penalty[at], leak[at] = steep.penalty.clamp(-_MAX_DERIVATIVE, _MAX_DERIVATIVE), steep.leak
    allowed = log_rows.log_weight > -torch.inf
    # R = softmax(-s), so derivatives with respect to log r change sign for the scores.
    through = _through_softmax(by_score, total, -log_rows.log_weight, allowed)
    return dropped, through, _through_softmax(by_friction, common, log_rows.log_friction, allowed), penalty, leak


class _FewKeys(NamedTuple):
    """Rows with a subset of their keys.

    Args:
        numbers: numbers of the rows `[r]`.
        keys: numbers of the keys `[r, C]`.
        rows: the rows with C keys; if a row has fewer, the others are not allowed.
    """

    numbers: Tensor
    keys: Tensor
    rows: LogRows


def _with_few_keys(rows: LogRows, chosen: Tensor) -> Iterator[_FewKeys]:
    """Yield the rows with only their chosen keys (bool `[R, K]`), grouped by similar numbers of keys."""
    count = chosen.sum(-1)
    order = torch.where(chosen, rows.log_friction, torch.inf)
    lower = -1
    # Pad to several widths, so that a row with two candidates is not padded to hundreds.
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


def _chunks(part: Operands, rows: Tensor) -> tuple[Tensor, ...]:
    """Split the rows into pieces whose intermediate tensors stay in the cache."""
    return rows.split(max(1, _CACHED // part.key.shape[1])) if rows.device.type == "cpu" else (rows,)


def _log_tiny(part: Operands) -> float:
    """Return the logarithm of a flow that is too small for the dtype of the attention."""
    return 1.1 * math.log(torch.finfo(part.query.dtype).tiny)


def _candidates(rows: LogRows, log_tiny: float) -> Tensor:
    """Mark the keys whose flow, or its derivative by the penalty, may exceed exp(log_tiny), bool `[R, K]`.

    The level is at most g_i + r_i, its value if only key i were active, and a flow is at most that over its resistance.
    """
    cost = rows.log_friction + rows.log_penalty
    # g + r <= 2 max(g, r)
    reach = torch.maximum(cost, -rows.log_weight).amin(-1, keepdim=True) + math.log(2)
    hopeless = (cost > reach + rows.resolution) | (rows.log_weight < log_tiny - torch.maximum(reach, rows.log_friction))
    return (rows.log_weight > -torch.inf) & ~hopeless  # keeps NaN


def _active_keys(rows: LogRows, level: LogLevel, log_tiny: float) -> Tensor:
    """Mark the active keys whose flow, or its derivative by the penalty, may exceed exp(log_tiny), bool `[R, K]`."""
    reach = torch.logaddexp(level.log_rise, level.floor + rows.log_penalty)
    counts = rows.log_weight >= log_tiny - torch.maximum(reach, rows.log_friction)
    return counts & (rows.log_friction <= level.top) & (rows.log_weight > -torch.inf)


def gradient_of_queries(scores: Tensor, keys: Tensor, rows: Tensor, num_rows: int) -> Tensor:
    """Compute sum_i s_i k_i of rows s `[R, K]` with sum_i s_i = 0.

    If most of it cancels, it is computed as sum_i s_i (k_i - k_m), in which equal keys contribute exactly zero.

    Args:
        scores: s, float64.
        keys: keys of the block `[m, K, d]`.
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
    for chunk in cancels.split(max(1, _CHUNK // keys[0].numel())):
        s, k = scores[chunk], keys[position[chunk]]
        most = k.gather(1, s.abs().argmax(-1)[:, None, None].expand(-1, 1, k.shape[-1]))
        gradient[chunk] = torch.einsum("rk,rkd->rd", s, k - most)
    return gradient


def _largest_exponent(part: Operands) -> float:
    """Return the logarithm of the largest logit derivative whose products with keys and queries can be summed."""
    most = max(1.0, *(float(x.abs().amax()) for x in (part.friction_query, part.friction_key)))
    return math.log(torch.finfo(part.query.dtype).max) - math.log(most * max(part.query.shape[1], part.key.shape[1]))


def _rows_of(part: Operands, allowed: Tensor | None, rows: Tensor) -> LogRows:
    """Return rows of the block in logarithms."""
    query, key, friction_query, friction_key, _, penalty, alpha = part
    friction_scale = friction_query.shape[-1] ** -0.5
    scores, (frictions, size) = _scores(query, key, rows)[0], _scores(friction_query, friction_key, rows)
    scores, frictions = scores * query.shape[-1] ** -0.5, frictions * friction_scale
    may = torch.ones_like(scores, dtype=torch.bool)
    if allowed is not None:
        may = allowed.expand(-1, query.shape[1], -1).reshape(-1, scores.shape[-1])[rows]
    # log(1 / r) for r = softmax(-s).
    weight = torch.where(may, scores + torch.where(may, -scores, -torch.inf).logsumexp(-1, True), -torch.inf)
    frictions = frictions - torch.where(may, frictions, -torch.inf).logsumexp(-1, True)
    matrices = rows // query.shape[1]
    log_penalty = penalty[matrices, 0].log()
    slack = torch.full_like(log_penalty, -torch.inf) if alpha is None else -alpha[matrices, 0].log()
    return LogRows(weight, torch.where(may, frictions, 0.0), log_penalty, slack, size * (2 * _EPS * friction_scale))


def _scores(queries: Tensor, keys: Tensor, rows: Tensor) -> tuple[Tensor, Tensor]:
    """Multiply these rows of queries by the keys of their matrix `[R, K]`, and bound the terms of the sums `[R, 1]`."""
    num_rows = queries.shape[1]
    # Multiply whole matrices and pick the rows: gathering the keys of each row would take [R, K, d].
    matrices, position = (rows // num_rows).unique(return_inverse=True)
    chosen, keys = queries[matrices].double(), keys[matrices].double()
    at = position * num_rows + rows % num_rows
    products = (chosen @ keys.transpose(1, 2)).flatten(0, 1)[at]
    bound = torch.linalg.vector_norm(chosen, dim=-1) * torch.linalg.vector_norm(keys, dim=-1).amax(-1, keepdim=True)
    return products, bound.flatten()[at, None] * keys.shape[-1]


def _through_softmax(derivatives: Tensor, total: Tensor, log_shares: Tensor, allowed: Tensor) -> Tensor:
    """Convert derivatives G by the logs of a softmax f, with sum `total`, to those by its logits: G_i - f_i total.

    They sum to zero. If a share is nearly 1 and its own difference cancels, it is computed from the others.
    """
    log_shares = torch.where(allowed, log_shares, -torch.inf)
    through = derivatives - log_shares.exp() * total
    log_share, largest = log_shares.max(-1, keepdim=True)
    others = through.scatter(-1, largest, 0.0)
    terms = derivatives.gather(-1, largest).abs() + (log_share.exp() * total).abs()
    cancels = others.abs().sum(-1, keepdim=True) < terms
    of_largest = torch.where(cancels, -others.sum(-1, keepdim=True), through.gather(-1, largest))
    return through.scatter_(-1, largest, of_largest)
