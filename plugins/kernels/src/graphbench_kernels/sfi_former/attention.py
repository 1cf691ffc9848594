"""Ordinary rows of sparse-flow attention on a processor, by kernels in Numba: what they do stands in `attention_numba`.

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
#: Steps of arithmetic by score, for sharing matrices out among threads.
_STEPS = 64
#: The kernels compute so many rows at a time.
_LANES = 16


class Attention(torch.autograd.Function):
    """`attend_rows`, forward and backward; a backward pass that is differentiated again is the plain one."""

    @staticmethod
    def forward(ctx: Any, options: tuple[Any, ...], *tensors: Tensor) -> tuple[Tensor, Tensor]:
        """Output `[M, N, d_v]` and steep rows `[M, N]`."""
        given = Operands(*tensors)
        query = given.query
        output = query.new_empty(*query.shape[:2], given.value.shape[-1])
        state = query.new_empty(STATE, len(output), -(-output.shape[1] // _LANES) * _LANES)
        operands = (*_given(given, options, state), output)
        for at, keep in _calls(given, options):
            _run(attend, at, keep, *operands)
        steep = state[MARK, :, : output.shape[1]] == STEEP
        ctx.save_for_backward(output, state, *tensors)
        ctx.options = options
        ctx.mark_non_differentiable(steep)
        return output, steep

    @staticmethod
    def backward(ctx: Any, upstream: Tensor, _: Tensor) -> tuple[Tensor | None, ...]:
        """Gradients of the seven tensors."""
        output, state, *tensors = ctx.saved_tensors
        given, wanted = Operands(*tensors), ctx.needs_input_grad[1:]
        if torch.is_grad_enabled():
            return (None, *block_gradients(_pieces(given, ctx.options), given, None, upstream, wanted))
        upstream = upstream.contiguous()
        grads = [
            x.new_empty(x.shape) if kind % 2 == 0 and kind < 4 else x.new_empty(-(-output.shape[1] // CHUNK), *x.shape)
            for kind, x in enumerate(tensors[:5])
        ]
        sums = output.new_empty(2, *state.shape[1:])
        arrays = Gradients(*(x.numpy() for x in (*grads, sums)))
        operands = (*_given(given, ctx.options, state), output, upstream, arrays)
        for at, keep in _calls(given, ctx.options):
            _run(attend_back, at, keep, *operands)
        steep = state[MARK, :, : output.shape[1]] == STEEP  # of which the kernel knows nothing
        of_energy = sums[:, :, : output.shape[1]].double().masked_fill(steep, 0.0).sum(-1)[..., None, None]
        of_energy.clamp_(torch.finfo(output.dtype).min, torch.finfo(output.dtype).max)
        whole = [x.sum(0) if x.dim() == 4 else x for x in grads]
        of_alpha = None if given.alpha is None else of_energy[1] / given.alpha
        return (None, *whole, of_energy[0], of_alpha)


@cache
def _limits(dtype: torch.dtype) -> Any:
    """Numbers that depend on the dtype: tolerance of a level, and `steepest`."""
    return torch.tensor([8 * torch.finfo(dtype).eps, TOLERANCE[dtype] / torch.finfo(dtype).eps], dtype=dtype).numpy()


@cache
def _none(dtype: torch.dtype, dimensions: int) -> Any:
    """Make an empty array, for an absent argument."""
    return torch.empty((0,) * dimensions, dtype=dtype).numpy()


def _given(operands: Operands, options: tuple[Any, ...], state: Tensor) -> tuple[Given, Sizes]:
    """Return the arguments of both kernels, and their sizes."""
    query, masks, mask_of = operands.query, *options[:2]
    (num_matrices, num_rows, width), num_keys = query.shape, operands.key.shape[1]
    widths = width, operands.friction_query.shape[2], operands.value.shape[2]
    sizes = Sizes(num_matrices, num_rows, num_keys, *widths, 0 if masks is None else masks.shape[1])
    penalty, alpha = (_none(torch.float64, 3) if x is None else x.detach().contiguous().numpy() for x in operands[5:])
    query_, key, friction_query, friction_key, value = (x.detach().numpy() for x in operands[:5])
    given = Given(
        query_,
        key,
        friction_query,
        friction_key,
        value,
        _none(torch.bool, 3) if masks is None else masks.numpy(),
        _none(torch.int64, 1) if mask_of is None else mask_of.contiguous().numpy(),
        penalty,
        alpha,
        _limits(query.dtype),
        state.numpy(),
    )
    return given, sizes


def _calls(operands: Operands, options: tuple[Any, ...]) -> Iterator[tuple[Block, Tensor]]:
    """Yield the part of each call, all or with dropout a block, and its factors `[m, n, K]` or `[0, 0, 0]`."""
    query, (dropout, seed) = operands.query, options[2:]
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


def _pieces(operands: Operands, options: tuple[Any, ...]) -> Iterator[Piece]:
    """Yield the pieces of the plain form, with as many numbers to a block without dropout."""
    if not options[2]:
        yield from blocks(operands, *options)
    for at, keep in _calls(operands, options) if options[2] else ():
        yield at, allowed_keys(at, *options[:2]), keep


def _run(kernel: Any, at: Block, keep: Tensor, given: Any, sizes: Any, *operands: Any) -> None:
    """Call a kernel for a block."""
    part, m, n = Part(at[0].start, at[1].start, at[1].stop), at[0].stop - at[0].start, at[1].stop - at[1].start
    chunks = num_chunks(part)
    run_in_threads(kernel, m * chunks, m * n * sizes.keys * _STEPS, given, sizes, part, keep, *operands)
