"""Attention of nodes along the edges that arrive at them, steered by vectors of the edges.

On a processor loops go through the edges, forward and backward (`edge_attention_numba`); elsewhere torch gathers a row
for each edge and scatters what it makes of them. The loops can be differentiated once.

Legend: T nodes, E edges, H heads of d channels each, C = H d; `edge_index` holds sources and targets `[2, E]`.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable
from torch_geometric.utils import scatter, softmax

from graphbench.errors import BadInput, check_range
from graphbench.kernels import run_in_threads
from graphbench.nn.messages import ends_of_edges, sums_in_loops


def attend_along_edges(
    qkv: Tensor,
    edge_index: Tensor,
    steer: Tensor | None,
    num_heads: int,
    largest: float = 5.0,
    with_scores: bool = False,
) -> tuple[Tensor, Tensor | None, Tensor]:
    """What every node gathers from its neighbours.

        s_ij = (Q x_i) * (K x_j) * (E e_ij) / sqrt(d)                         element-wise
        w_ij = softmax_j(clamp(sum_d s_ij, -largest, largest))                per head
        x'_i = sum_j w_ij V x_j

    (Dwivedi & Bresson 2020, arXiv 2012.09699, equations 8 to 11; the clamp is that of the authors' code.) A node that
    nothing arrives at gets zeros.

    Args:
        qkv: Q x, K x and V x side by side `[T, 3 C]`.
        edge_index: sources j and targets i `[2, E]`.
        steer: E e `[E, C]`; None: ones.
        num_heads: H; divides C.
        largest: absolute value to which logits are clamped; above 0 and at most 50, as their exponentials are taken as
            they are.
        with_scores: give s, for layers that make new edge vectors of it.

    Returns:
        x' `[T, C]`; s `[E, C]` or None; w `[E, H]`, which no gradient goes through.

    Raises:
        BadInput: `largest` is out of range, or the maps do not divide into heads.
        IndexError: an edge names a node that is not there.

    Examples:
        >>> qkv = torch.tensor([[0.0, 0.0, 2.0], [0.0, 0.0, 4.0], [0.0, 0.0, 9.0]])  # equal scores: the mean of values
        >>> attend_along_edges(qkv, torch.tensor([[0, 1], [2, 2]]), None, num_heads=1)[0]
        tensor([[0.],
                [0.],
                [3.]])
    """
    check_range("largest", largest, above=0, at_most=50)
    if num_heads < 1 or qkv.shape[-1] % (3 * num_heads):
        raise BadInput(f"Three maps of {num_heads} heads have as many channels each; qkv has {qkv.shape[-1]} in all.")
    fits = steer is None or steer.shape == (edge_index.shape[1], qkv.shape[-1] // 3)  # others are torch's to refuse
    if fits and sums_in_loops(qkv, edge_index, steer):
        mixed, scores, weights = _EdgeAttention.apply(qkv, edge_index, steer, num_heads, largest, with_scores)
        return mixed, scores if with_scores else None, weights
    source, target = edge_index[0], edge_index[1]
    q, k, v = (part.unflatten(-1, (num_heads, -1)) for part in qkv.chunk(3, dim=-1))
    scores = q.index_select(0, target) * k.index_select(0, source) * q.shape[-1] ** -0.5
    scores = scores if steer is None else scores * steer.unflatten(-1, (num_heads, -1))
    weights = softmax(scores.sum(-1).clamp(-largest, largest), target, num_nodes=qkv.shape[0])
    messages = (weights.unsqueeze(-1) * v.index_select(0, source)).flatten(1)
    mixed = scatter(messages, target, 0, qkv.shape[0], reduce="sum")
    return mixed, scores.flatten(1) if with_scores else None, weights.detach()


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
        from graphbench.nn.edge_attention_numba import add_up_scores, mix_values

        width, num_edges = qkv.shape[1] // 3, edge_index.shape[1]
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
        ctx.save_for_backward(*ends, qkv, steered, inside, weights, mixed)
        ctx.scale, ctx.has_steer, ctx.has_scores = scale, steer is not None, with_scores
        ctx.mark_non_differentiable(weights, *(() if with_scores else (scores,)))
        return mixed, scores, weights

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, of_mixed: Tensor, of_scores: Tensor, of_weights: Tensor) -> tuple[Tensor | None, ...]:
        from graphbench.nn.edge_attention_numba import edge_gradients

        source, target, qkv, steer, inside, weights, mixed = ctx.saved_tensors
        of_qkv, of_steer = torch.zeros_like(qkv), torch.empty_like(steer)
        own = of_scores.contiguous() if ctx.has_scores else mixed.new_empty(0, mixed.shape[1])
        upstream = (of_mixed.contiguous(), own, torch.empty(len(qkv), weights.shape[1], dtype=qkv.dtype))
        operands = (source, target, qkv, steer, ctx.scale, inside, weights, mixed, *upstream, of_qkv, of_steer)
        run_in_threads(edge_gradients, weights.shape[1], 4 * len(source) * mixed.shape[1], *operands)
        return of_qkv, None, of_steer if ctx.has_steer else None, None, None, None
