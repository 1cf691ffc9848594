"""Sums over the edges that arrive at nodes, as message passing needs them.

On a processor loops go through the edges and add up what each sends, forward and backward (`messages_numba`); elsewhere
torch gathers a row for each edge and scatters them. The loops can be differentiated once.

Legend: T nodes, E edges, C channels; `edge_index` holds sources and targets `[2, E]`.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor
from torch.autograd.function import once_differentiable
from torch_geometric.utils import scatter

from graphbench.kernels import run_in_threads, runs_numba

#: Added to a sum of gates before it divides.
_EPSILON = 1e-6
_ONES = np.empty(0, np.float32), np.empty(0, np.float64)


def sum_neighbours(x: Tensor, edge_index: Tensor, weight: Tensor | None = None, own: float = 0.0) -> Tensor:
    """`s x_i + sum_(j -> i) w_ij x_j` for every node i.

    Args:
        x: nodes `[T, C]`.
        edge_index: sources and targets `[2, E]`.
        weight: w of each edge `[E]`; None: ones.
        own: s.

    Raises:
        IndexError: an edge names a node that is not there.

    Examples:
        >>> sum_neighbours(torch.tensor([[1.0], [2.0], [4.0]]), torch.tensor([[0, 2, 1], [1, 1, 2]]))
        tensor([[0.],
                [5.],
                [2.]])
    """
    if sums_in_loops(x, edge_index, weight) and (weight is None or weight.shape == edge_index.shape[1:]):
        out: Tensor = _SumOfNeighbours.apply(x, edge_index, weight, own)
        return out
    sent = x.index_select(0, edge_index[0])
    sent = sent if weight is None else weight.unsqueeze(-1) * sent
    return _with_own(scatter(sent, edge_index[1], 0, x.shape[0], reduce="sum"), x, own)


def sum_rectified(x: Tensor, edge_index: Tensor, edges: Tensor, own: float = 0.0) -> Tensor:
    """`s x_i + sum_(j -> i) relu(x_j + e_ij)` for every node i, the messages of GINE (Hu et al. 2020).

    Args:
        x: nodes `[T, C]`.
        edge_index: sources and targets `[2, E]`.
        edges: e `[E, C]`.
        own: s.

    Raises:
        IndexError: an edge names a node that is not there.

    Examples:
        >>> x, index = torch.tensor([[1.0], [2.0]]), torch.tensor([[0, 1], [1, 0]])
        >>> sum_rectified(x, index, torch.tensor([[0.5], [-3.0]]))
        tensor([[0.0000],
                [1.5000]])
    """
    if sums_in_loops(x, edge_index, edges) and edges.shape == (edge_index.shape[1], x.shape[1]):
        out: Tensor = _SumOfRectified.apply(x, edge_index, edges, own)
        return out
    messages = (x.index_select(0, edge_index[0]) + edges).relu()
    return _with_own(scatter(messages, edge_index[1], 0, x.shape[0], reduce="sum"), x, own)


def _with_own(sums: Tensor, x: Tensor, own: float) -> Tensor:
    return sums + own * x if own else sums


def sum_rows(rows: Tensor, table: Tensor) -> Tensor:
    """`sum_k table[rows_ik]` for every i: `embedding_bag`, whose gradient needs no sorting here.

    Args:
        rows: numbers of rows, int64 `[n, k]`.
        table: `[R, C]`.

    Returns:
        `[n, C]`.

    Raises:
        RuntimeError: a row is not there.

    Examples:
        >>> sum_rows(torch.tensor([[0, 1], [1, 1]]), torch.tensor([[1.0], [10.0]]))
        tensor([[11.],
                [20.]])
    """
    if rows.dim() == 2 and sums_in_loops(table.detach(), rows):  # the table itself is never handed to a loop
        out: Tensor = _SumOfRows.apply(rows, table)
        return out
    if torch.compiler.is_exporting():  # ONNX has no embedding bags, and loops over rows in their place
        return table[rows].sum(1)
    return F.embedding_bag(rows, table, mode="sum")


def gated_messages(
    nodes: Tensor, edge_index: Tensor, edges: Tensor, extra_gates: Tensor | None = None
) -> tuple[Tensor, Tensor]:
    """The messages of GatedGCN, see `GatedGCNLayer`.

        e^_ij = D x_i + E x_j + C e_ij,               s_ij = sigmoid(e^_ij) r_ij,
        x^_i  = A x_i + (sum_j s_ij * B x_j) / (sum_j s_ij + 1e-6)

    Args:
        nodes: A x, B x, D x and E x side by side `[T, 4 C]`.
        edge_index: sources j and targets i `[2, E]`.
        edges: C e `[E, C]`.
        extra_gates: r `[E, 1]`; None: ones.

    Returns:
        x^ `[T, C]` and e^ `[E, C]`.

    Raises:
        IndexError: an edge names a node that is not there.

    Examples:
        >>> nodes, index = torch.tensor([[1.0, 2.0, 0.0, 0.0], [3.0, 4.0, 0.0, 0.0]]), torch.tensor([[0], [1]])
        >>> gated_messages(nodes, index, torch.zeros(1, 1))  # node 1 has one neighbour, whatever its gate
        (tensor([[1.0000],
                [5.0000]]), tensor([[0.]]))
    """
    fits = 4 * edges.shape[-1] == nodes.shape[-1] and edges.shape[:-1] == edge_index.shape[1:]
    if extra_gates is None and fits and sums_in_loops(nodes, edge_index, edges):
        found: tuple[Tensor, Tensor] = _GatedMessages.apply(nodes, edge_index, edges)
        return found
    source, target = edge_index[0], edge_index[1]
    own, sent, at_target, at_source = nodes.chunk(4, dim=-1)
    raw = at_target.index_select(0, target) + at_source.index_select(0, source) + edges
    gates = torch.sigmoid(raw)
    if extra_gates is not None:
        gates = gates * extra_gates
    messages = torch.cat([gates * sent.index_select(0, source), gates], dim=-1)
    total, weight = scatter(messages, target, 0, nodes.shape[0], reduce="sum").chunk(2, dim=-1)
    return own + total / (weight + _EPSILON), raw


def sums_in_loops(x: Any, edge_index: Any, *others: Tensor | None) -> bool:
    """Whether loops sum these: rows of real numbers of one type on a processor, and edges as `[2, E]`.

    Examples:
        >>> sums_in_loops(torch.zeros(3, 2, dtype=torch.float16), torch.zeros(2, 0, dtype=torch.int64))
        False
    """
    if not isinstance(x, Tensor) or x.dim() != 2 or type(edge_index) is not Tensor or edge_index.dtype != torch.int64:
        return False
    given = [other for other in others if other is not None]
    same = all(other.dtype == x.dtype for other in given)
    return same and runs_numba(x, *given) and not torch.is_autocast_enabled("cpu")


def ends_of_edges(edge_index: Tensor, num_nodes: int) -> tuple[Tensor, Tensor]:
    """Sources and targets `[E]`, all of which are nodes.

    Raises:
        IndexError: one of them is not.

    Examples:
        >>> ends_of_edges(torch.tensor([[0, 1], [1, 1]]), 2)
        (tensor([0, 1]), tensor([1, 1]))
    """
    from graphbench.nn.messages_numba import are_below

    source, target = edge_index.contiguous().unbind(0)
    if not are_below(num_nodes, source.numpy()) or not are_below(num_nodes, target.numpy()):
        raise IndexError(f"edge_index names a node that is not there: not all of it is in [0, {num_nodes})")
    return source, target


class _SumOfNeighbours(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: Tensor, edge_index: Tensor, weight: Tensor | None, own: float) -> Tensor:
        source, target = ends_of_edges(edge_index, x.shape[0])
        x = x.contiguous()
        ctx.save_for_backward(source, target, weight, x if weight is not None and weight.requires_grad else None)
        ctx.own = own
        return _added(source, target, weight, x, _share_of(x, own))

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, upstream: Tensor) -> tuple[Tensor | None, ...]:
        source, target, weight, x = ctx.saved_tensors
        upstream = upstream.contiguous()
        of_weight = None
        if x is not None:
            of_weight = (upstream.index_select(0, target) * x.index_select(0, source)).sum(-1)
        of_x = None
        if ctx.needs_input_grad[0]:
            of_x = _added(target, source, weight, upstream, _share_of(upstream, ctx.own))
        return of_x, None, of_weight, None


class _SumOfRows(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, rows: Tensor, table: Tensor) -> Tensor:
        # torch's operation, which checks the numbers, because a storage whose memory an array has shared cannot be
        # freed and filled again, as FSDP does with parameters.
        out = F.embedding_bag(rows, table, mode="sum")
        target = torch.arange(rows.shape[0]).repeat_interleave(rows.shape[1])
        ctx.save_for_backward(rows.flatten(), target)
        ctx.size = table.shape[0]
        return out

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, upstream: Tensor) -> tuple[None, Tensor]:
        source, target = ctx.saved_tensors
        upstream = upstream.contiguous()
        return None, _added(target, source, None, upstream, upstream.new_zeros(ctx.size, upstream.shape[1]))


def _share_of(x: Tensor, own: float) -> Tensor:
    """`own * x`, what sums begin with."""
    return x * own if own else torch.zeros_like(x)


def _added(source: Tensor, target: Tensor, weight: Tensor | None, x: Tensor, sums: Tensor) -> Tensor:
    """Sums `[T, C]`, to which rows of x are added."""
    from graphbench.nn.messages_numba import add_neighbours

    factors = _ONES[x.dtype == torch.float64] if weight is None else weight.contiguous()
    run_in_threads(add_neighbours, x.shape[1], len(source) * x.shape[1], source, target, factors, x, sums)
    return sums


class _SumOfRectified(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: Tensor, edge_index: Tensor, edges: Tensor, own: float) -> Tensor:
        from graphbench.nn.messages_numba import add_rectified

        x, edges = x.contiguous(), edges.contiguous()
        sums = _share_of(x, own)
        ends = ends_of_edges(edge_index, x.shape[0])
        run_in_threads(add_rectified, x.shape[1], edges.numel(), *ends, x, edges, sums)
        ctx.save_for_backward(*ends, x, edges)
        ctx.own = own
        return sums

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, upstream: Tensor) -> tuple[Tensor | None, ...]:
        from graphbench.nn.messages_numba import rectified_gradients

        source, target, x, edges = ctx.saved_tensors
        upstream, of_edges = upstream.contiguous(), torch.empty_like(edges)
        of_x = _share_of(upstream, ctx.own)
        operands = (source, target, x, edges, upstream, of_x, of_edges)
        run_in_threads(rectified_gradients, x.shape[1], edges.numel(), *operands)
        return of_x, None, of_edges, None


class _GatedMessages(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, nodes: Tensor, edge_index: Tensor, edges: Tensor) -> tuple[Tensor, Tensor]:
        from graphbench.nn.messages_numba import gated_mean, raw_gates

        nodes, edges, raw = nodes.contiguous(), edges.contiguous(), torch.empty_like(edges)
        ends, width = ends_of_edges(edge_index, nodes.shape[0]), edges.shape[1]
        run_in_threads(raw_gates, width, edges.numel(), *ends, nodes, edges, raw)
        gates = torch.sigmoid(raw)
        means, shares = nodes.new_zeros(2, nodes.shape[0], width)
        out = torch.empty_like(means)
        epsilon = gates.numpy().dtype.type(_EPSILON)
        run_in_threads(gated_mean, width, 2 * edges.numel(), *ends, nodes, gates, epsilon, means, shares, out)
        ctx.save_for_backward(*ends, nodes, gates, means, shares)
        return out, raw

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, of_out: Tensor, of_raw: Tensor) -> tuple[Tensor | None, ...]:
        from graphbench.nn.messages_numba import gated_gradients

        saved = ctx.saved_tensors  # which may be asked for once
        nodes, gates = saved[2:4]
        of_nodes, of_edges = torch.zeros_like(nodes), torch.empty_like(gates)
        operands = (*saved, of_out.contiguous(), of_raw.contiguous(), of_nodes, of_edges)
        run_in_threads(gated_gradients, gates.shape[1], 4 * gates.numel(), *operands)
        return of_nodes, None, of_edges
