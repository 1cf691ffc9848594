"""Sums and largest of messages on a processor: loops that go through the edges (`pna_numba`)."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from graphbench.kernels import plain_form
from graphbench_kernels.nn.again import gradients_by
from graphbench_kernels.running import run_in_threads, runs_numba


def reduced_messages(sent: Tensor, edges: Tensor | None, edge_index: Tensor, arriving: Tensor) -> tuple[Tensor, Tensor]:
    """`graphbench_baselines::reduced_messages`."""
    operands = (sent,) if edges is None else (sent, edges)
    fits = edges is None or (edges.dtype == sent.dtype and edges.shape == (edge_index.shape[1], sent.shape[1]))
    if fits and not torch.is_autocast_enabled("cpu") and runs_numba(*operands):
        total, largest = _Reduced.apply(sent, edges, edge_index, arriving)
        return total, largest
    found: tuple[Tensor, Tensor] = _plain()(sent, edges, edge_index, arriving)
    return found


def _plain() -> Any:
    return plain_form("graphbench_baselines::reduced_messages")


class _Reduced(torch.autograd.Function):
    """Both by loops."""

    @staticmethod
    def forward(
        ctx: Any, sent: Tensor, edges: Tensor | None, edge_index: Tensor, arriving: Tensor
    ) -> tuple[Tensor, Tensor]:
        from graphbench_kernels.models.pna_numba import fit_together, reduce_messages

        inputs = (sent, edges, edge_index, arriving)
        sent, source, width = sent.contiguous(), edge_index[0].contiguous(), sent.shape[1]
        if not fit_together(source.numpy(), arriving.numpy()):
            raise IndexError(f"edge_index names a node that is not in [0, {len(sent)}), or not all edges arrive")
        rows = sent.new_zeros(1, width) if edges is None else edges.contiguous()
        total, largest = torch.zeros_like(sent), torch.full_like(sent, -torch.inf)
        run_in_threads(reduce_messages, width, 2 * len(source) * width, source, arriving, sent, rows, total, largest)
        ctx.save_for_backward(*inputs, largest)
        return total, largest

    @staticmethod
    def backward(ctx: Any, of_total: Tensor, of_largest: Tensor) -> tuple[Tensor | None, ...]:
        from graphbench_kernels.models.pna_numba import message_gradients

        sent, edges, edge_index, arriving, largest = ctx.saved_tensors
        if torch.is_grad_enabled():
            inputs = (sent, edges, edge_index, arriving)
            return gradients_by(_plain(), inputs, ctx.needs_input_grad, (of_total, of_largest))
        sent, source = sent.contiguous(), edge_index[0].contiguous()
        rows = sent.new_zeros(1, sent.shape[1]) if edges is None else edges.contiguous()
        of_sent, of_rows, shares = torch.zeros_like(sent), torch.empty_like(rows), sent.new_empty(sent.shape[1])
        upstream = (of_total.contiguous(), of_largest.contiguous())
        operands = (source, arriving, sent, rows, largest, *upstream, shares, of_sent, of_rows)
        run_in_threads(message_gradients, sent.shape[1], 4 * len(source) * sent.shape[1], *operands)
        return of_sent, None if edges is None else of_rows, None, None
