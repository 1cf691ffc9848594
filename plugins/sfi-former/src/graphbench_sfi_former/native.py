"""Sparse-flow attention on a processor: all of it by kernels in Numba, but for the steep rows.

The same as `blockwise`, which computes it everywhere else, with another division of labour: what the kernels do is told
in `attention_numba`. Steep rows have a flow of 0 there; here they are solved, and their part is added to all results.

Legend: M matrices (graphs times heads), N queries, K keys; rows are counted over M and N; m and n: those of a block.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import cache
from typing import Any

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable

from graphbench_kernels import run_in_threads
from graphbench_sfi_former.blockwise import Dropout, finish_energy_gradients, without_autocast
from graphbench_sfi_former.fused import put_queries, put_steep_flows
from graphbench_sfi_former.masking import KeyMask
from graphbench_sfi_former.operands import Energy, EnergyGradients, Projections, put_rows
from graphbench_sfi_former.rows import Block, blocks, steepest
from graphbench_sfi_former.steep import SteepGradients, SteepState, steep_gradients
from graphbench_sfi_former.waterfill import level_tolerance
from graphbench_sfi_former.workspace import borrow, row_block_size

#: Steps of arithmetic by score, for sharing matrices out among threads.
_STEPS = 64
#: The kernels compute so many rows at a time.
_LANES = 16


class NativeAttention(torch.autograd.Function):
    """Forward and backward."""

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
        from graphbench_sfi_former import attention_numba, rows_numba

        flat = Projections.flat(query, key, friction_query, friction_key, value)
        parts, energy = Projections(*(x.contiguous() for x in flat)), Energy(penalty, alpha)
        output = query.new_empty(*parts.query.shape[:2], value.shape[-1])
        state = query.new_empty(rows_numba.STATE, len(output), -(-output.shape[1] // _LANES) * _LANES)
        ctx.arrays = _arrays(mask, query.dtype)
        operands = (*_given(parts, energy, ctx.arrays, state), output)
        marks, ctx.steep = state[rows_numba.MARK, :, : output.shape[1]], []
        for at, keep in _calls(parts, dropout):
            _run(attention_numba.attend, at, keep, *operands)
            for piece, rows in _steep_rows(parts, marks, at, keep):
                ctx.steep.append((piece, _solve(parts, energy, mask, piece, rows, keep, output)))
        ctx.save_for_backward(*parts, penalty, alpha, output, state)
        ctx.mask, ctx.dropout, ctx.lead = mask, dropout, query.shape[:-2]
        return output.view(*query.shape[:-1], value.shape[-1])

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, upstream: Tensor) -> tuple[Tensor | None, ...]:
        """Gradients of the seven tensors."""
        from graphbench_sfi_former import attention_numba

        saved = ctx.saved_tensors
        parts, energy, (output, state) = Projections(*saved[:5]), Energy(*saved[5:7]), saved[7:]
        upstream = upstream.reshape(output.shape).contiguous()
        grads, steep = _empty_gradients(parts), []
        sums = output.new_empty(2, *state.shape[1:])
        with without_autocast(upstream.device):  # a backward pass may run inside of one
            arrays = attention_numba.Gradients(*(x.numpy() for x in (*grads, sums)))
            operands = (*_given(parts, energy, ctx.arrays, state), output, upstream, arrays)
            for at, keep in _calls(parts, ctx.dropout):
                _run(attention_numba.attend_back, at, keep, *operands)
                for piece, solved in ctx.steep:
                    if piece == at or not keep.numel():
                        found = _derive(parts, energy, ctx.mask, piece, solved, keep, upstream, grads)
                        steep.append((piece, found))
        energy_grads = EnergyGradients.zeros(energy, *ctx.needs_input_grad[5:7])
        _sum_energy_gradients(energy_grads, sums[:, :, : output.shape[1]], steep)
        finish_energy_gradients(energy_grads, energy, output.dtype)
        whole = (x.sum(0) if x.dim() == 4 and len(x) > 1 else x for x in grads)
        return (*(x.view(*ctx.lead, *x.shape[-2:]) for x in whole), *energy_grads, None, None, None)


@cache
def _limits(dtype: torch.dtype) -> Any:
    """Numbers that depend on the dtype: tolerance of a level, and `steepest`."""
    return torch.tensor([level_tolerance(dtype), steepest(dtype)], dtype=dtype).numpy()


@cache
def _none(dtype: torch.dtype, dimensions: int) -> Any:
    """An array without numbers, for what is not there."""
    return torch.empty((0,) * dimensions, dtype=dtype).numpy()


def _arrays(mask: KeyMask | None, dtype: torch.dtype) -> tuple[Any, ...]:
    """How many rows masks have, masks, the mask of each matrix, and limits, as the kernels want them."""
    if mask is None:
        return 0, _none(torch.bool, 3), _none(torch.int64, 1), _limits(dtype)
    allowed, mask_of = (x.contiguous().numpy() for x in mask.own())
    return allowed.shape[1], allowed, mask_of, _limits(dtype)


def _given(parts: Projections, energy: Energy, arrays: tuple[Any, ...], state: Tensor) -> tuple[Any, ...]:
    """What both kernels are given, and the sizes of it."""
    from graphbench_sfi_former.attention_numba import Given, Sizes

    mask_rows, allowed, mask_of, limits = arrays
    penalty, alpha = (_none(torch.float64, 3) if x is None else x.contiguous().numpy() for x in energy)
    (num_matrices, num_rows, width), num_keys = parts.query.shape, parts.key.shape[1]
    widths = width, parts.friction_query.shape[2], parts.value.shape[2]
    sizes = Sizes(num_matrices, num_rows, num_keys, *widths, mask_rows)
    given = (*(x.numpy() for x in parts), allowed, mask_of, penalty, alpha, limits, state.numpy())
    return Given(*given), sizes


def _empty_gradients(parts: Projections) -> Projections:
    """Memory for gradients; for those of keys and values `[chunks, M, K, width]`."""
    from graphbench_sfi_former.attention_numba import CHUNK

    chunks = -(-parts.query.shape[1] // CHUNK)
    return Projections(
        *(
            torch.empty_like(x) if name.endswith("query") else x.new_empty(chunks, *x.shape)
            for name, x in parts._asdict().items()
        )
    )


def _calls(parts: Projections, dropout: tuple[float, int] | None) -> Iterator[tuple[Block, Tensor]]:
    """What a kernel computes in one call, all or with dropout a block, and its factors `[m, n, K]` or `[0, 0, 0]`."""
    num_matrices, num_rows, _ = parts.query.shape
    if dropout is None:
        yield (slice(0, num_matrices), slice(0, num_rows)), parts.query.new_empty(0, 0, 0)
        return
    factors = Dropout(dropout, parts.query.device)
    for at in _blocks(parts):
        yield at, factors.fill(parts.query.new_empty(*_shape(at), parts.key.shape[1]))


def _blocks(parts: Projections) -> list[Block]:
    """Blocks of rows whose scores stay near a core's cache; of whole matrices or of a multiple of _LANES rows."""
    num_matrices, num_rows, num_keys = *parts.query.shape[:2], parts.key.shape[1]
    limit = row_block_size(parts.query)
    if num_rows * num_keys > limit:
        limit = max(1, limit // num_keys // _LANES) * _LANES * num_keys
    return blocks(num_matrices, num_rows, num_keys, limit)


def _shape(at: Block) -> tuple[int, int]:
    """Numbers of matrices and rows of a block."""
    return at[0].stop - at[0].start, at[1].stop - at[1].start


def _run(kernel: Any, at: Block, keep: Tensor, given: Any, sizes: Any, *operands: Any) -> None:
    """Call a kernel for a block."""
    from graphbench_sfi_former.attention_numba import Part, num_chunks

    part, (m, n) = Part(at[0].start, at[1].start, at[1].stop), _shape(at)
    chunks = num_chunks(part)
    run_in_threads(kernel, m * chunks, m * n * sizes.keys * _STEPS, given, sizes, part, keep, *operands)


def _steep_rows(parts: Projections, marks: Tensor, at: Block, keep: Tensor) -> Iterator[tuple[Block, Tensor]]:
    """Blocks of those at `at` with steep rows, and numbers of these; `marks [M, N]`."""
    from graphbench_sfi_former.rows_numba import STEEP

    if marks[at].numpy().max() < STEEP:
        return
    for piece in [at] if keep.numel() else _blocks(parts):
        rows = (marks[piece] == STEEP).flatten().nonzero().flatten()
        if rows.numel():
            yield piece, rows


def _solve(
    parts: Projections, energy: Energy, mask: KeyMask | None, at: Block, rows: Tensor, keep: Tensor, output: Tensor
) -> SteepState:
    """Solve the rows of a block with these numbers, and put their output into the block's `output [M, N, d_v]`."""
    part, wall = parts.cut(at), None if mask is None else mask.wall(at, output)
    (flow,) = borrow(1, (*_shape(at), parts.key.shape[1]), output)
    state = put_steep_flows(part, energy.cut(at), wall, rows, flow.zero_())
    if keep.numel():
        flow.mul_(keep)
    put_rows(output[at], rows, torch.bmm(flow, part.value).flatten(0, 1)[rows])
    return state


def _derive(
    parts: Projections,
    energy: Energy,
    mask: KeyMask | None,
    at: Block,
    state: SteepState,
    keep: Tensor,
    upstream: Tensor,
    grads: Projections,
) -> SteepGradients:
    """Add what the steep rows of a block give to the gradients, and put theirs by queries in their places."""
    part, own, wall = parts.cut(at), upstream[at], None if mask is None else mask.wall(at, upstream)
    steep = steep_gradients(part, energy.cut(at), wall, state, own, keep if keep.numel() else None)
    buffers = borrow(3, (*_shape(at), parts.key.shape[1]), upstream)
    for buffer, values in zip(buffers, (steep.flow, steep.scores, steep.friction_scores), strict=True):
        put_rows(buffer.zero_(), steep.rows, values)
    flow, scores, frictions = (x.transpose(1, 2) for x in buffers)
    grads.value[0, at[0]].baddbmm_(flow, own)
    grads.key[0, at[0]].baddbmm_(scores, part.query, alpha=part.query.shape[-1] ** -0.5)
    root = part.friction_query.shape[-1] ** -0.5
    grads.friction_key[0, at[0]].baddbmm_(frictions, part.friction_query, alpha=root)
    put_queries(part.friction_key, steep.rows, steep.friction_scores, grads.friction_query[at])
    put_queries(part.key, steep.rows, steep.scores, grads.query[at])
    return steep


def _sum_energy_gradients(grads: EnergyGradients, sums: Tensor, steep: list[tuple[Block, SteepGradients]]) -> None:
    """Fill `grads` from those of each row, `sums [2, M, N]`, in which nothing is known of steep rows."""
    for grad, of_rows, name in zip(grads, sums, ("penalty", "leak"), strict=True):
        if grad is not None:
            whole = of_rows.double().contiguous()[..., None]
            for at, found in steep:
                put_rows(whole[at], found.rows, getattr(found, name))
            grad.copy_(whole.sum(1, keepdim=True))
