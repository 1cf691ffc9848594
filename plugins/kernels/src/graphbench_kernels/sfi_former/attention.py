"""Run the kernels of `attention_numba` for the ordinary rows of sparse-flow attention on a CPU.

Legend: M matrices (graphs times heads), N queries, K keys; rows are counted over M and N; m and n: those of a block.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import cache
from typing import Any

import torch
from torch import Tensor

from graphbench_kernels import run_in_threads
from graphbench_kernels.sfi_former.attention_numba import attend, attend_back, num_chunks
from graphbench_kernels.sfi_former.attention_rows_numba import CHUNK, Given, Gradients, Part, Sizes
from graphbench_kernels.sfi_former.rows_numba import MARK, STATE, STEEP
from graphbench_sfi_former.blocks import (
    TOLERANCE,
    Block,
    Operands,
    Piece,
    allowed_keys,
    block_gradients,
    block_slices,
    blocks,
)

#: Bytes of dropout's factors of a block.
BLOCK_BYTES = 2**21
#: Arithmetic operations per score, used to distribute work over threads.
_STEPS = 64
#: Rows that the kernels compute at a time.
_LANES = 16


class Attention(torch.autograd.Function):
    """`attend_rows`, forward and backward; a backward pass that is differentiated again uses the plain form."""

    @staticmethod
    def forward(ctx: Any, options: tuple[Any, ...], *tensors: Tensor) -> tuple[Tensor, Tensor]:
        """Return output `[M, N, d_v]` and steep rows `[M, N]`; options: masks, their numbers, dropout and its seed."""
        operands, (masks, mask_of, dropout, seed) = Operands(*tensors), options
        query = operands.query
        output = query.new_empty(*query.shape[:2], operands.value.shape[-1])
        state = query.new_empty(STATE, len(output), -(-output.shape[1] // _LANES) * _LANES)
        arguments = _arguments(operands, masks, mask_of, state)
        for at, keep in _dropout_blocks(operands, dropout, seed):
            _run(attend, at, keep, *arguments, output)
        steep = state[MARK, :, : output.shape[1]] == STEEP
        ctx.save_for_backward(output, state, *tensors)
        ctx.options = options
        ctx.mark_non_differentiable(steep)
        return output, steep

    @staticmethod
    def backward(ctx: Any, upstream: Tensor, _: Tensor) -> tuple[Tensor | None, ...]:
        """Return gradients of the seven tensors."""
        output, state, *tensors = ctx.saved_tensors
        operands, (masks, mask_of, dropout, seed) = Operands(*tensors), ctx.options
        if torch.is_grad_enabled():
            pieces = _pieces(operands, masks, mask_of, dropout, seed)
            return (None, *block_gradients(pieces, operands, None, upstream, ctx.needs_input_grad[1:]))
        query, key, friction_query, friction_key, value = tensors[:5]
        num_rows = output.shape[1]
        chunks = -(-num_rows // CHUNK)  # of rows, each with its own sums for keys and values
        grads = (
            query.new_empty(query.shape),
            key.new_empty(chunks, *key.shape),
            friction_query.new_empty(friction_query.shape),
            friction_key.new_empty(chunks, *friction_key.shape),
            value.new_empty(chunks, *value.shape),
        )
        sums = output.new_empty(2, *state.shape[1:])
        arrays = Gradients(*(x.numpy() for x in (*grads, sums)))
        arguments = (*_arguments(operands, masks, mask_of, state), output, upstream.contiguous(), arrays)
        for at, keep in _dropout_blocks(operands, dropout, seed):
            _run(attend_back, at, keep, *arguments)
        steep = state[MARK, :, :num_rows] == STEEP  # the kernel does not compute their gradients
        of_energy = sums[:, :, :num_rows].double().masked_fill(steep, 0.0).sum(-1)[..., None, None]
        of_energy.clamp_(torch.finfo(output.dtype).min, torch.finfo(output.dtype).max)
        whole = [x.sum(0) if x.dim() == 4 else x for x in grads]
        of_alpha = None if operands.alpha is None else of_energy[1] / operands.alpha
        return (None, *whole, of_energy[0], of_alpha)


@cache
def _limits(dtype: torch.dtype) -> Any:
    """Return the numbers that depend on the dtype: tolerance of a level, and `steepest`."""
    return torch.tensor([8 * torch.finfo(dtype).eps, TOLERANCE[dtype] / torch.finfo(dtype).eps], dtype=dtype).numpy()


@cache
def _absent(dtype: torch.dtype, dimensions: int) -> Any:
    """Create an empty array, for an absent argument."""
    return torch.empty((0,) * dimensions, dtype=dtype).numpy()


def _arguments(operands: Operands, masks: Tensor | None, mask_of: Tensor | None, state: Tensor) -> tuple[Given, Sizes]:
    """Return the arguments of both kernels, and their sizes."""
    query = operands.query
    (num_matrices, num_rows, width), num_keys = query.shape, operands.key.shape[1]
    widths = width, operands.friction_query.shape[2], operands.value.shape[2]
    sizes = Sizes(num_matrices, num_rows, num_keys, *widths, 0 if masks is None else masks.shape[1])
    penalty, alpha = (_absent(torch.float64, 3) if x is None else x.detach().contiguous().numpy() for x in operands[5:])
    query_, key, friction_query, friction_key, value = (x.detach().numpy() for x in operands[:5])
    given = Given(
        query_,
        key,
        friction_query,
        friction_key,
        value,
        _absent(torch.bool, 3) if masks is None else masks.numpy(),
        _absent(torch.int64, 1) if mask_of is None else mask_of.contiguous().numpy(),
        penalty,
        alpha,
        _limits(query.dtype),
        state.numpy(),
    )
    return given, sizes


def _dropout_blocks(operands: Operands, dropout: float, seed: int) -> Iterator[tuple[Block, Tensor]]:
    """Yield blocks and their factors of dropout `[m, n, K]`; without dropout all in one, with factors `[0, 0, 0]`."""
    query = operands.query
    (num_matrices, num_rows, _), num_keys = query.shape, operands.key.shape[1]
    if not dropout:
        yield (slice(0, num_matrices), slice(0, num_rows)), query.new_empty(0, 0, 0)
        return
    generator = torch.Generator().manual_seed(seed)
    limit = BLOCK_BYTES // query.element_size()
    if num_rows * num_keys > limit:
        limit = max(1, limit // num_keys // _LANES) * _LANES * num_keys
    for at in block_slices(num_matrices, num_rows, num_keys, limit):
        factors = query.new_empty(at[0].stop - at[0].start, at[1].stop - at[1].start, num_keys)
        yield at, factors.bernoulli_(1 - dropout, generator=generator).div_(1 - dropout)


def _pieces(
    operands: Operands, masks: Tensor | None, mask_of: Tensor | None, dropout: float, seed: int
) -> Iterator[Piece]:
    """Yield the pieces of the plain form, with the kernels' factors of dropout."""
    if not dropout:
        yield from blocks(operands, masks, mask_of, dropout, seed)
        return
    for at, keep in _dropout_blocks(operands, dropout, seed):
        yield at, allowed_keys(at, masks, mask_of), keep


def _run(kernel: Any, at: Block, keep: Tensor, given: Any, sizes: Any, *operands: Any) -> None:
    """Call a kernel for a block."""
    part, m, n = Part(at[0].start, at[1].start, at[1].stop), at[0].stop - at[0].start, at[1].stop - at[1].start
    chunks = num_chunks(part)
    run_in_threads(kernel, m * chunks, m * n * sizes.keys * _STEPS, given, sizes, part, keep, *operands)
