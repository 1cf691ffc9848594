"""Attention along edges on a processor: loops that go through the edges (`edge_attention_numba`).

Where the loops do not apply (see `runs_numba`), and where autograd records the backward pass, the plain form computes.

Legend: T nodes, E edges, H heads of d channels each, C = H d; `edge_index` holds sources and targets `[2, E]`.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from graphbench.kernels import plain_form
from graphbench_kernels.nn.again import gradients_by
from graphbench_kernels.nn.messages import ends_of_edges, fit_loops
from graphbench_kernels.running import run_in_threads


def edge_attention(
    qkv: Tensor, edge_index: Tensor, steer: Tensor | None, num_heads: int, largest: float, with_scores: bool
) -> tuple[Tensor, Tensor, Tensor]:
    """`graphbench::edge_attention`."""
    fits = steer is None or steer.shape == (edge_index.shape[1], qkv.shape[-1] // 3)
    if fits and fit_loops(qkv, edge_index, steer):
        found: tuple[Tensor, Tensor, Tensor] = _EdgeAttention.apply(
            qkv, edge_index, steer, num_heads, largest, with_scores
        )
        return found
    return plain_form("graphbench::edge_attention")(qkv, edge_index, steer, num_heads, largest, with_scores)


class _EdgeAttention(torch.autograd.Function):
    @staticmethod
    def forward(
        ctx: Any,
        qkv: Tensor,
        edge_index: Tensor,
        steer: Tensor | None,
        num_heads: int,
        largest: float,
        with_scores: bool,
    ) -> tuple[Tensor, Tensor, Tensor]:
        from graphbench_kernels.nn.edge_attention_numba import add_up_scores, mix_values

        width, num_edges = qkv.shape[1] // 3, edge_index.shape[1]
        inputs = (qkv, edge_index, steer)
        ends, qkv = ends_of_edges(edge_index, len(qkv)), qkv.contiguous()
        steered = qkv.new_ones(1, width) if steer is None else steer.contiguous()
        number = qkv.detach().numpy().dtype.type
        scale = number((width // num_heads) ** -0.5)
        scores = qkv.new_empty(num_edges if with_scores else 0, width)
        weights = qkv.new_empty(num_edges, num_heads)
        inside = torch.empty(num_edges, num_heads, dtype=torch.bool)
        operands = (*ends, qkv, steered, scale, number(largest), scores, weights, inside)
        run_in_threads(add_up_scores, num_heads, 2 * num_edges * width, *operands)
        weights.exp_()
        mixed, sums = qkv.new_zeros(len(qkv), width), qkv.new_zeros(len(qkv), num_heads)
        run_in_threads(mix_values, num_heads, num_edges * width, *ends, qkv, weights, sums, mixed)
        ctx.save_for_backward(*inputs, inside, weights, mixed)
        ctx.scale, ctx.options = scale, (num_heads, largest, with_scores)
        ctx.mark_non_differentiable(weights, *(() if with_scores else (scores,)))
        return mixed, scores, weights

    @staticmethod
    def backward(ctx: Any, of_mixed: Tensor, of_scores: Tensor, of_weights: Tensor) -> tuple[Tensor | None, ...]:
        from graphbench_kernels.nn.edge_attention_numba import edge_gradients

        qkv, edge_index, steer, inside, weights, mixed = ctx.saved_tensors
        if torch.is_grad_enabled():
            inputs = (qkv, edge_index, steer, *ctx.options)
            upstream = (of_mixed, of_scores, None)
            return gradients_by(plain_form("graphbench::edge_attention"), inputs, ctx.needs_input_grad, upstream)
        rows, steered = qkv.contiguous(), qkv.new_ones(1, mixed.shape[1]) if steer is None else steer.contiguous()
        of_qkv, of_steer = torch.zeros_like(rows), torch.empty_like(steered)
        own = of_scores.contiguous() if ctx.options[2] else mixed.new_empty(0, mixed.shape[1])
        above = (of_mixed.contiguous(), own, torch.empty(len(qkv), weights.shape[1], dtype=qkv.dtype))
        ends = edge_index.contiguous().unbind(0)
        operands = (*ends, rows, steered, ctx.scale, inside, weights, mixed, *above, of_qkv, of_steer)
        run_in_threads(edge_gradients, weights.shape[1], 4 * edge_index.shape[1] * mixed.shape[1], *operands)
        return of_qkv, None, None if steer is None else of_steer, None, None, None
