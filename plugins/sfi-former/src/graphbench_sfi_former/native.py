"""Sparse-flow attention on a processor: matrix products by torch, and everything between them by kernels in Numba.

The same as `blockwise`, which computes it everywhere else, with another division of labour: a block of rows is as large
as stays in a core's own cache; its scores are multiplied into it, become flows or derivatives there, and are multiplied
with keys, queries and values at once. What the kernels do is told in `rows_numba`.

Legend: M matrices (graphs times heads), N queries, K keys; rows are counted over M and N; m and n: those of a block.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from functools import cache
from typing import Any, NamedTuple

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable

from graphbench.kernels import run_in_threads
from graphbench_sfi_former.blockwise import Dropout, finish_energy_gradients
from graphbench_sfi_former.fused import add_energy_gradients, put_queries, put_steep_flows
from graphbench_sfi_former.masking import KeyMask
from graphbench_sfi_former.operands import Energy, EnergyGradients, Projections, put_rows
from graphbench_sfi_former.rows import Block, blocks, steepest
from graphbench_sfi_former.steep import SteepGradients, steep_gradients
from graphbench_sfi_former.waterfill import level_tolerance
from graphbench_sfi_former.workspace import borrow, keeps_rows, row_block_size

#: Steps of arithmetic by number of a row, for sharing rows out among threads.
_STEPS = 32


class _Buffers(NamedTuple):
    """Memory of one block, `[m, n, K]` each.

    Args:
        scores, frictions: scores of both kinds, then the derivatives by them.
        flow: the flow, or the derivatives by it; in the forward pass it may be the memory of `scores`.
        keep: dropout's factors; empty `[0, 0, 0]` without dropout.
        rows: the same as arrays `[m n, K]`.
    """

    scores: Tensor
    frictions: Tensor
    flow: Tensor
    keep: Tensor
    rows: tuple[Any, ...]


class _Plan:
    """Blocks of rows: of whole matrices, or of some rows of one matrix.

    Args:
        parts: projections.
    """

    def __init__(self, parts: Projections) -> None:
        self.shape: tuple[int, int, int] = (parts.query.shape[0], parts.query.shape[1], parts.key.shape[1])
        self.blocks: list[Block] = blocks(*self.shape, row_block_size(parts.query))

    def starts(self) -> Iterator[int]:
        """Number of the first row of each block."""
        return (matrices.start * self.shape[1] + rows.start for matrices, rows in self.blocks)

    def by_rows(self, whole: Tensor) -> list[Tensor]:
        """`whole [M, N, ...]` cut into blocks."""
        if len(self.blocks) == 1:
            return [whole]
        matrices, rows = self.blocks[0]
        if rows.stop == self.shape[1]:
            return list(whole.split(matrices.stop))
        return [piece for matrix in whole.split(1) for piece in matrix.split(rows.stop, 1)]

    def by_matrices(self, whole: Tensor) -> list[Tensor]:
        """`whole [M, ...]` cut into the matrices of each block."""
        if len(self.blocks) == 1:
            return [whole]
        matrices, rows = self.blocks[0]
        return [part for part in whole.split(matrices.stop) for _ in range(0, self.shape[1], rows.stop)]

    def buffers(self, like: Tensor, own_flow: bool, drops: bool) -> list[_Buffers]:
        """Buffers of each block, all in the same memory."""
        sizes = [(at[0].stop - at[0].start, at[1].stop - at[1].start) for at in self.blocks]
        most = max(m * n for m, n in sizes)
        whole = borrow(2 + own_flow + drops, (most, self.shape[2]), like)
        made = {}
        for size in set(sizes):
            scores, frictions, *others = (x[: math.prod(size)].view(*size, -1) for x in whole)
            flow, keep = others[0] if own_flow else scores, others[-1] if drops else like.new_empty(0, 0, 0)
            pieces = (scores, frictions, flow, keep)
            made[size] = _Buffers(*pieces, tuple(x.flatten(0, 1).numpy() for x in pieces))
        return [made[size] for size in sizes]


class NativeAttention(torch.autograd.Function):
    """Forward and backward, block after block."""

    @staticmethod
    def forward(
        ctx: Any,
        query: Tensor,
        key: Tensor,
        friction_query: Tensor,
        friction_key: Tensor,
        value: Tensor,
        penalty: Tensor,
        alpha: Tensor | None,
        mask: KeyMask | None,
        dropout: tuple[float, int] | None,
        training: bool,
    ) -> Tensor:
        """Output `[..., N, d_v]` of projections `[..., N or K, width]`, penalty and alpha `[M, 1, 1]`."""
        from graphbench_sfi_former import powers_numba, rows_numba

        flat = Projections.flat(query, key, friction_query, friction_key, value)
        parts, energy = Projections(*(x.contiguous() for x in flat)), Energy(penalty, alpha)
        plan = _Plan(parts)
        num_matrices, num_rows, num_keys = plan.shape
        output = query.new_empty(num_matrices, num_rows, value.shape[-1])
        state = query.new_empty(num_matrices * num_rows, rows_numba.STATE)
        steps = parts.query.numel() + parts.key.numel()
        run_in_threads(powers_numba.bound_logits, num_matrices, steps, *parts[:4], state)
        marks = torch.empty(len(state), dtype=torch.uint8)
        keeps = training and keeps_rows(len(state) * num_keys, query)
        kept = query.new_empty(2, *((len(state), num_keys) if keeps else (0, 0))).unbind(0)
        factors = None if dropout is None else Dropout(dropout, query.device)
        ctx.arrays = _arrays(mask, energy, query.dtype)
        arrays = (*ctx.arrays, *(x.numpy() for x in (state, marks, *kept)))
        pieces = (plan.buffers(query, keeps, dropout is not None), _score_operands(plan, parts))
        others = (plan.by_matrices(parts.value), plan.by_rows(output))
        ctx.steep = []
        for at, start, buffers, scored, own_value, own_output in zip(
            plan.blocks, plan.starts(), *pieces, *others, strict=True
        ):
            flow, count = buffers.flow, len(buffers.rows[0])
            _multiply_scores(buffers, scored)
            operands = (start, *buffers.rows[:2], *arrays, buffers.rows[2])
            run_in_threads(rows_numba.solve_rows, count, flow.numel() * _STEPS, *operands)
            (rows,), steep = (arrays[5][start : start + count] == rows_numba.STEEP).nonzero(), None
            if len(rows):
                wall = None if mask is None else mask.wall(at, query)
                steep = put_steep_flows(parts.cut(at), energy.cut(at), wall, torch.from_numpy(rows), flow)
            ctx.steep.append(steep)
            if factors is not None:
                flow.mul_(factors.fill(buffers.keep))
            torch.bmm(flow, own_value, out=own_output)
        ctx.save_for_backward(*parts, penalty, alpha, output, state, marks, *kept)
        ctx.plan, ctx.mask, ctx.dropout, ctx.lead = plan, mask, dropout, query.shape[:-2]
        return output.view(*query.shape[:-1], value.shape[-1])

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, upstream: Tensor) -> tuple[Tensor | None, ...]:
        """Gradients of the seven tensors."""
        from graphbench_sfi_former import rows_numba

        saved, plan = ctx.saved_tensors, ctx.plan
        parts, energy = Projections(*saved[:5]), Energy(*saved[5:7])
        output, state, marks, *kept = saved[7:]
        upstream = upstream.reshape(output.shape).contiguous()
        grads = _empty_gradients(parts)
        energy_grads = EnergyGradients.zeros(energy, *ctx.needs_input_grad[5:7])
        factors = None if ctx.dropout is None else Dropout(ctx.dropout, upstream.device)
        sums = output.new_empty(*output.shape[:2], rows_numba.SUMS)
        with torch.autocast(upstream.device.type, enabled=False):  # a backward pass may run inside of one
            by_row = (x.view(len(state), -1) for x in (output, upstream, sums))
            arrays = (*ctx.arrays, *(x.numpy() for x in (state, marks, *kept, *by_row)))
            pieces = (plan.buffers(output, True, factors is not None), _score_operands(plan, parts))
            others = (plan.by_matrices(parts.value.transpose(1, 2)), plan.by_rows(upstream))
            blocks_of_grads = zip(*_gradient_operands(plan, parts, grads), strict=True)
            for at, start, steep_state, buffers, scored, own_value, own_upstream, multiplied in zip(
                plan.blocks, plan.starts(), ctx.steep, *pieces, *others, blocks_of_grads, strict=True
            ):
                if not kept[0].numel():
                    _multiply_scores(buffers, scored)
                keep = None if factors is None else factors.fill(buffers.keep)
                torch.bmm(own_upstream, own_value, out=buffers.flow)
                steps = buffers.flow.numel() * _STEPS
                run_in_threads(rows_numba.derive_rows, len(buffers.rows[0]), steps, start, *buffers.rows, *arrays)
                steep = None
                if steep_state is not None:
                    wall = None if ctx.mask is None else ctx.mask.wall(at, output)
                    part = parts.cut(at)
                    steep = steep_gradients(part, energy.cut(at), wall, steep_state, own_upstream, keep)
                    _put_steep(steep, buffers)
                _multiply_back(buffers, own_upstream, multiplied, at[1].start == 0)
                if steep is not None:
                    put_queries(part.friction_key, steep.rows, steep.friction_scores, multiplied[6])
                    put_queries(part.key, steep.rows, steep.scores, multiplied[2])
                own_sums = sums[at]
                add_energy_gradients(energy_grads.cut(at), own_sums[..., :1], own_sums[..., 1:], steep)
        finish_energy_gradients(energy_grads, energy, output.dtype)
        return (*(x.view(*ctx.lead, *x.shape[1:]) for x in grads), *energy_grads, None, None, None)


@cache
def _limits(dtype: torch.dtype) -> Tensor:
    """Numbers that depend on the dtype: tolerance of a level, `steepest`, least parallel resistance, tiny, eps, the
    least and the greatest scale of frictions, and the least exponent of two.
    """
    limit = torch.finfo(dtype)
    numbers = (limit.tiny**0.7, limit.tiny, limit.eps, limit.eps**2, limit.max**0.8, math.log2(limit.tiny))
    return torch.tensor([level_tolerance(dtype), steepest(dtype), *numbers], dtype=dtype)


def _arrays(mask: KeyMask | None, energy: Energy, dtype: torch.dtype) -> tuple[Any, ...]:
    """Masks, the mask of each matrix, energies and limits as `rows_numba.solve_rows` wants them."""
    if mask is None:
        allowed, mask_of = torch.empty(0, 0, 0, dtype=torch.bool), torch.empty(0, dtype=torch.int64)
    else:
        allowed, mask_of = mask.own()
    alpha = torch.full_like(energy.penalty, torch.inf) if energy.alpha is None else energy.alpha
    weights = torch.cat((energy.penalty, alpha), 1).view(-1, 2).to(dtype)
    return tuple(x.numpy() for x in (allowed, mask_of, weights, _limits(dtype)))


def _score_operands(plan: _Plan, parts: Projections) -> list[tuple[Tensor, ...]]:
    """Q, K^T, Q~ and K~^T of each block."""
    queries = (plan.by_rows(x) for x in (parts.query, parts.friction_query))
    keys = (plan.by_matrices(x.transpose(1, 2)) for x in (parts.key, parts.friction_key))
    return list(zip(*(x for pair in zip(queries, keys, strict=True) for x in pair), strict=True))


def _multiply_scores(buffers: _Buffers, operands: tuple[Tensor, ...]) -> None:
    """Q K^T and Q~ K~^T over sqrt d and log 2."""
    query, key, friction_query, friction_key = operands
    unit = 1 / math.log(2)
    buffers.scores.baddbmm_(query, key, beta=0, alpha=query.shape[-1] ** -0.5 * unit)
    buffers.frictions.baddbmm_(friction_query, friction_key, beta=0, alpha=friction_query.shape[-1] ** -0.5 * unit)


def _empty_gradients(parts: Projections) -> Projections:
    """Memory for gradients; those of keys and values lie transposed in it, which makes the faster product."""
    return Projections(
        *(
            torch.empty_like(x)
            if name.endswith("query")
            else x.new_empty(x.shape[0], x.shape[2], x.shape[1]).transpose(1, 2)
            for name, x in parts._asdict().items()
        )
    )


def _gradient_operands(plan: _Plan, parts: Projections, grads: Projections) -> Iterator[list[Tensor]]:
    """Of each block: dV^T; Q^T, dQ, K, dK^T; and the same of the frictions."""
    yield plan.by_matrices(grads.value.transpose(1, 2))
    for query, key, of_query, of_key in (
        (parts.query, parts.key, grads.query, grads.key),
        (parts.friction_query, parts.friction_key, grads.friction_query, grads.friction_key),
    ):
        yield plan.by_rows(query)
        yield plan.by_rows(of_query)
        yield plan.by_matrices(key)
        yield plan.by_matrices(of_key.transpose(1, 2))


def _multiply_back(buffers: _Buffers, upstream: Tensor, operands: tuple[Tensor, ...], first: bool) -> None:
    """From the flow and the derivatives by the scores to the gradients; those of a matrix's first block are set."""
    beta = 0 if first else 1
    of_value, *rest = operands
    of_value.baddbmm_(upstream.transpose(1, 2), buffers.flow, beta=beta)
    for derivative, (query, of_query, key, of_key) in ((buffers.scores, rest[:4]), (buffers.frictions, rest[4:])):
        root = query.shape[-1] ** -0.5
        of_query.baddbmm_(derivative, key, beta=0, alpha=root)
        of_key.baddbmm_(query.transpose(1, 2), derivative, beta=beta, alpha=root)


def _put_steep(steep: SteepGradients, buffers: _Buffers) -> None:
    """Put the flows of steep rows and the derivatives by their scores in their places."""
    put_rows(buffers.flow, steep.rows, steep.flow)
    put_rows(buffers.scores, steep.rows, steep.scores)
    put_rows(buffers.frictions, steep.rows, steep.friction_scores)
