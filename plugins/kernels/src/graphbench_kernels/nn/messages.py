"""Sums over the incoming edges of nodes on a CPU: loops over the edges (`messages_numba`).

Plain forms are used if the loops do not apply (see `runs_numba`), and if autograd records the backward pass.

Legend: T nodes, E edges, C channels; `edge_index` contains sources and targets `[2, E]`.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from torch import Tensor

from graphbench import nn
from graphbench.contracts.kernels import plain_form
from graphbench_kernels.nn.again import gradients_by
from graphbench_kernels.running import run_in_threads, runs_numba

#: As in the plain form.
_EPSILON = 1e-6
_ONES = np.empty(0, np.float32), np.empty(0, np.float64)


def sum_neighbours(x: Tensor, edge_index: Tensor, weight: Tensor | None = None, own: float = 0.0) -> Tensor:
    """Compute `graphbench::sum_neighbours`."""
    if fit_loops(x, edge_index, weight) and (weight is None or weight.shape == edge_index.shape[1:]):
        out: Tensor = _SumOfNeighbours.apply(x, edge_index, weight, own)
        return out
    return plain_form("graphbench::sum_neighbours")(x, edge_index, weight, own)


def sum_rectified(x: Tensor, edge_index: Tensor, edges: Tensor, own: float = 0.0) -> Tensor:
    """Compute `graphbench::sum_rectified`."""
    if fit_loops(x, edge_index, edges) and edges.shape == (edge_index.shape[1], x.shape[1]):
        out: Tensor = _SumOfRectified.apply(x, edge_index, edges, own)
        return out
    return plain_form("graphbench::sum_rectified")(x, edge_index, edges, own)


def gated_messages(
    nodes: Tensor, edge_index: Tensor, edges: Tensor, extra_gates: Tensor | None = None
) -> tuple[Tensor, Tensor]:
    """Compute `graphbench::gated_messages`."""
    fits = 4 * edges.shape[-1] == nodes.shape[-1] and edges.shape[:-1] == edge_index.shape[1:]
    if extra_gates is None and fits and fit_loops(nodes, edge_index, edges):
        messages: tuple[Tensor, Tensor] = _GatedMessages.apply(nodes, edge_index, edges)
        return messages
    return plain_form("graphbench::gated_messages")(nodes, edge_index, edges, extra_gates)


def fit_loops(x: Tensor, edge_index: Tensor, *others: Tensor | None) -> bool:
    """Return whether loops support these: rows of real numbers of one dtype on a CPU, and edges `[2, E]`.

    Examples:
        >>> fit_loops(torch.zeros(3, 2, dtype=torch.float16), torch.zeros(2, 0, dtype=torch.int64))
        False
    """
    if torch.is_autocast_enabled("cpu"):
        return False
    if x.dim() != 2 or type(edge_index) is not Tensor or edge_index.dtype != torch.int64:
        return False
    given = [other for other in others if other is not None]
    return all(other.dtype == x.dtype for other in given) and runs_numba(x, *given)


def ends_of_edges(edge_index: Tensor, num_nodes: int) -> tuple[Tensor, Tensor]:
    """Return sources and targets `[E]`, all of which are nodes.

    Raises:
        IndexError: one of them is not a node.

    Examples:
        >>> ends_of_edges(torch.tensor([[0, 1], [1, 1]]), 2)
        (tensor([0, 1]), tensor([1, 1]))
    """
    from graphbench_kernels.nn.messages_numba import are_below

    source, target = edge_index.contiguous().unbind(0)
    if not are_below(num_nodes, source.numpy()) or not are_below(num_nodes, target.numpy()):
        raise IndexError(f"edge_index contains a node that does not exist: it must be in [0, {num_nodes})")
    return source, target


class _SumOfNeighbours(torch.autograd.Function):
    """Its backward pass is a sum over the reversed edges, which can itself be differentiated."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, edge_index: Tensor, weight: Tensor | None, own: float) -> Tensor:
        source, target = ends_of_edges(edge_index, x.shape[0])
        # Only the gradient of the weights reads x.
        ctx.save_for_backward(edge_index, weight, x if weight is not None and weight.requires_grad else None)
        ctx.own = own
        return _added(source, target, weight, x.contiguous(), _share_of(x, own))

    @staticmethod
    def backward(ctx: Any, upstream: Tensor) -> tuple[Tensor | None, ...]:
        edge_index, weight, x = ctx.saved_tensors
        grad_x = grad_weight = None
        if ctx.needs_input_grad[0]:
            grad_x = nn.sum_neighbours(upstream, edge_index.flip(0), weight, ctx.own)
        if ctx.needs_input_grad[2]:
            source, target = edge_index
            grad_weight = (upstream.index_select(0, target) * x.index_select(0, source)).sum(-1)
        return grad_x, None, grad_weight, None


def _share_of(x: Tensor, own: float) -> Tensor:
    """Return `own * x`, the initial value of sums; contiguous."""
    return (x * own if own else torch.zeros_like(x)).contiguous()


def _added(source: Tensor, target: Tensor, weight: Tensor | None, x: Tensor, sums: Tensor) -> Tensor:
    """Return sums `[T, C]`, to which rows of x are added."""
    from graphbench_kernels.nn.messages_numba import add_neighbours

    factors = _ONES[x.dtype == torch.float64] if weight is None else weight.contiguous()
    run_in_threads(add_neighbours, x.shape[1], len(source) * x.shape[1], source, target, factors, x, sums)
    return sums


class _SumOfRectified(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: Tensor, edge_index: Tensor, edges: Tensor, own: float) -> Tensor:
        from graphbench_kernels.nn.messages_numba import add_rectified

        sums = _share_of(x, own)
        ends = ends_of_edges(edge_index, x.shape[0])
        run_in_threads(add_rectified, x.shape[1], edges.numel(), *ends, x.contiguous(), edges.contiguous(), sums)
        ctx.save_for_backward(x, edge_index, edges)
        ctx.own = own
        return sums

    @staticmethod
    def backward(ctx: Any, upstream: Tensor) -> tuple[Tensor | None, ...]:
        from graphbench_kernels.nn.messages_numba import rectified_gradients

        x, edge_index, edges = ctx.saved_tensors
        if torch.is_grad_enabled():
            inputs = (x, edge_index, edges, ctx.own)
            return gradients_by(plain_form("graphbench::sum_rectified"), inputs, ctx.needs_input_grad, (upstream,))
        x, edges, upstream = x.contiguous(), edges.contiguous(), upstream.contiguous()
        grad_x, grad_edges = _share_of(upstream, ctx.own), torch.empty_like(edges)
        operands = (*edge_index.contiguous().unbind(0), x, edges, upstream, grad_x, grad_edges)
        run_in_threads(rectified_gradients, x.shape[1], edges.numel(), *operands)
        return grad_x, None, grad_edges, None


class _GatedMessages(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, nodes: Tensor, edge_index: Tensor, edges: Tensor) -> tuple[Tensor, Tensor]:
        from graphbench_kernels.nn.messages_numba import gated_mean, raw_gates

        rows, width = nodes.contiguous(), edges.shape[1]
        raw = torch.empty_like(edges, memory_format=torch.contiguous_format)
        ends = ends_of_edges(edge_index, nodes.shape[0])
        run_in_threads(raw_gates, width, edges.numel(), *ends, rows, edges.contiguous(), raw)
        gates = torch.sigmoid(raw)
        means, shares = nodes.new_zeros(2, nodes.shape[0], width)
        out = torch.empty_like(means)
        epsilon = gates.numpy().dtype.type(_EPSILON)
        run_in_threads(gated_mean, width, 2 * edges.numel(), *ends, rows, gates, epsilon, means, shares, out)
        ctx.save_for_backward(nodes, edge_index, edges, gates, means, shares)
        return out, raw

    @staticmethod
    def backward(ctx: Any, grad_out: Tensor, grad_raw: Tensor) -> tuple[Tensor | None, ...]:
        from graphbench_kernels.nn.messages_numba import gated_gradients

        nodes, edge_index, edges, gates, means, shares = ctx.saved_tensors
        if torch.is_grad_enabled():
            inputs = (nodes, edge_index, edges)
            return gradients_by(
                plain_form("graphbench::gated_messages"), inputs, ctx.needs_input_grad, (grad_out, grad_raw)
            )
        nodes = nodes.contiguous()
        grad_nodes, grad_edges = torch.zeros_like(nodes), torch.empty_like(gates)
        saved = (*edge_index.contiguous().unbind(0), nodes, gates, means, shares)
        operands = (*saved, grad_out.contiguous(), grad_raw.contiguous(), grad_nodes, grad_edges)
        run_in_threads(gated_gradients, gates.shape[1], 4 * gates.numel(), *operands)
        return grad_nodes, None, grad_edges
