"""Sparse-flow attention over blocks of rows: no `[N, K]` tensor outlives its block.

The backward pass computes the softmaxes S and F again, unless the whole problem is one block: then both are kept.
"""

from __future__ import annotations

from contextlib import AbstractContextManager, nullcontext
from typing import Any

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable

from graphbench.kernels import runs_numba
from graphbench_sfi_former.fused import backward_block, fill_costs, fill_softmaxes, solve_block
from graphbench_sfi_former.masking import KeyMask
from graphbench_sfi_former.operands import Buffers, Energy, EnergyGradients, Projections
from graphbench_sfi_former.rows import Block, RowState, blocks
from graphbench_sfi_former.workspace import block_size, borrow


class Dropout:
    """Factors of dropout on attention weights: the same for the same seed, so that none need be stored."""

    def __init__(self, rate_and_seed: tuple[float, int], device: torch.device) -> None:
        self.rate, seed = rate_and_seed
        self._generator = torch.Generator(device).manual_seed(seed)

    def fill(self, factors: Tensor) -> Tensor:
        """0 or 1 / (1 - rate), drawn into `factors`."""
        return factors.uniform_(generator=self._generator).ge_(self.rate).mul_(1 / (1 - self.rate))


class BlockwiseAttention(torch.autograd.Function):
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
        # Flattened in here, where autograd does not record it: at small sizes that counts.
        parts = Projections.flat(query, key, friction_query, friction_key, value)
        energy = Energy(penalty, alpha)
        (num_matrices, num_rows, _), num_keys = parts.query.shape, parts.key.shape[1]
        plan = blocks(num_matrices, num_rows, num_keys, block_size(query.device))
        output = query.new_empty(num_matrices, num_rows, value.shape[-1])
        state = RowState.empty(num_matrices, num_rows, query)
        softmaxes: tuple[Tensor, ...] = ()
        if training and len(plan) == 1:
            softmaxes = query.new_empty(2, num_matrices, num_rows, num_keys).unbind(0)
        factors = None if dropout is None else Dropout(dropout, query.device)
        ctx.steep = []
        for at in plan:
            part, buffers = parts.cut(at), _buffers(parts, at, softmaxes, dropout is not None)
            wall = None if mask is None else mask.wall(at, query)
            fill_softmaxes(part, wall, buffers)
            solved, steep = solve_block(part, energy.cut(at), wall, buffers)
            ctx.steep.append(steep)
            if factors is not None and buffers.keep is not None:
                buffers.flow.mul_(factors.fill(buffers.keep))
            torch.bmm(buffers.flow, part.value, out=output[at]).mul_(solved.gain)
            if len(plan) == 1:
                state = solved
            else:
                state.fill(at, solved)
        ctx.save_for_backward(*parts, penalty, alpha, output, *state, *softmaxes)
        ctx.plan, ctx.mask, ctx.dropout, ctx.lead = plan, mask, dropout, query.shape[:-2]
        return output.view(*query.shape[:-1], value.shape[-1])

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, upstream: Tensor) -> tuple[Tensor | None, ...]:
        """Gradients of the seven tensors."""
        saved = ctx.saved_tensors
        parts, energy = Projections(*saved[:5]), Energy(*saved[5:7])
        output, state = saved[7], RowState(*saved[8:12])
        softmaxes, upstream = saved[12:], upstream.reshape(output.shape)
        grads = Projections(*(x.new_empty(x.shape) for x in parts))
        energy_grads = EnergyGradients.zeros(energy, *ctx.needs_input_grad[5:7])
        factors = None if ctx.dropout is None else Dropout(ctx.dropout, upstream.device)
        with torch.autocast(upstream.device.type, enabled=False):  # a backward pass may run inside of one
            for at, steep in zip(ctx.plan, ctx.steep, strict=True):
                part, part_energy, rows = parts.cut(at), energy.cut(at), state.cut(at)
                buffers = _buffers(parts, at, softmaxes, factors is not None)
                wall = None if ctx.mask is None else ctx.mask.wall(at, upstream)
                if not softmaxes:
                    fill_softmaxes(part, wall, buffers)
                    fill_costs(part_energy, rows.unit, buffers)
                if factors is not None and buffers.keep is not None:
                    factors.fill(buffers.keep)
                block = (part, part_energy, wall, rows, steep, output[at], upstream[at], buffers)
                backward_block(*block, grads.cut(at), energy_grads.cut(at), at[1].start == 0)
        finish_energy_gradients(energy_grads, energy, output.dtype)
        return (*(x.view(*ctx.lead, *x.shape[1:]) for x in grads), *energy_grads, None, None, None)


def finish_energy_gradients(grads: EnergyGradients, energy: Energy, dtype: torch.dtype) -> None:
    """Make the sums over rows the gradients of `energy`: finite in the attention's dtype, and by alpha, not its log."""
    for grad in grads:
        if grad is not None:
            grad.clamp_(torch.finfo(dtype).min, torch.finfo(dtype).max)
    if grads.alpha is not None and energy.alpha is not None:
        grads.alpha.div_(energy.alpha)


def _buffers(parts: Projections, at: Block, softmaxes: tuple[Tensor, ...], with_keep: bool) -> Buffers:
    """Buffers of a block; S and F are those of the whole problem where they are kept."""
    shape = (at[0].stop - at[0].start, at[1].stop - at[1].start, parts.key.shape[1])
    buffers = (*softmaxes, *borrow(5 + with_keep - len(softmaxes), shape, parts.query))
    return Buffers(*buffers)


def blockwise_attention(*arguments: Any) -> Tensor:
    """`BlockwiseAttention`, or the same by kernels; neither can be traced, because values decide when it is done.

    So `sparse_flow_attention` is hidden from torch.compile.
    """
    attention: type[torch.autograd.Function] = BlockwiseAttention
    if runs_numba(*arguments[:5]):
        from graphbench_sfi_former.native import NativeAttention

        attention = NativeAttention
    with without_autocast(arguments[0].device):
        return attention.apply(*arguments)


def without_autocast(device: torch.device) -> AbstractContextManager[Any]:
    """A context without autocast; where there is none, one that takes no time."""
    if torch.is_autocast_enabled(device.type):
        return torch.autocast(device.type, enabled=False)
    return nullcontext()
