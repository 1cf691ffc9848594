"""Messages along edges on a GPU if bitwise reproducibility is requested, computed by `messages_triton`.

Torch's scatters add with atomics on GPUs, in an order that differs between runs. With
`torch.use_deterministic_algorithms`, which `trainer.deterministic` sets, each node sums its edges in order. Otherwise,
for other inputs, and if autograd records the backward pass, the plain forms are used.

Legend: T nodes, E edges, C channels; `edge_index` contains sources and targets `[2, E]`.
"""

from __future__ import annotations

from functools import partial
from typing import Any

import torch
from torch import Tensor
from torch.utils.weak import WeakTensorKeyDictionary

from graphbench.contracts.kernels import plain_form
from graphbench_kernels.nn.again import gradients_by
from graphbench_kernels.running import runs_triton

#: As in the plain form.
_EPSILON = 1e-6
_TYPES = (torch.float64, torch.float32, torch.bfloat16, torch.float16)
#: Widths of heads that one warp keeps in registers.
_WIDEST = 256
#: Operation -> launches of its kernels, forward and backward, without grouping edges by node, which runs once for all
#: layers.
LAUNCHES = {
    "graphbench::sum_rectified": (1, 1),
    "graphbench::gated_messages": (1, 2),
    "graphbench::edge_attention": (2, 3),
}
#: `edge_index` -> its version and the number of nodes, and the edges of each node, which layers share.
_GROUPED = WeakTensorKeyDictionary()


def sum_rectified_on_cards(x: Tensor, edge_index: Tensor, edges: Tensor, own: float = 0.0) -> Tensor:
    """Compute `graphbench::sum_rectified` on a GPU."""
    if asks_for_equal_bits(x) and fits_kernels(x, edge_index, edges) and x.shape[1:] == edges.shape[1:]:
        sums: Tensor = _SumOfRectified.apply(x, edge_index, edges, own)
        return sums
    return plain_form("graphbench::sum_rectified")(x, edge_index, edges, own)


def gated_messages_on_cards(
    nodes: Tensor, edge_index: Tensor, edges: Tensor, extra_gates: Tensor | None = None
) -> tuple[Tensor, Tensor]:
    """Compute `graphbench::gated_messages` on a GPU."""
    fits = extra_gates is None and nodes.shape[-1] == 4 * edges.shape[-1]
    if fits and asks_for_equal_bits(nodes) and fits_kernels(nodes, edge_index, edges):
        messages: tuple[Tensor, Tensor] = _GatedMessages.apply(nodes, edge_index, edges)
        return messages
    return plain_form("graphbench::gated_messages")(nodes, edge_index, edges, extra_gates)


def edge_attention_on_cards(
    qkv: Tensor, edge_index: Tensor, steer: Tensor | None, num_heads: int, largest: float, with_scores: bool
) -> tuple[Tensor, Tensor, Tensor]:
    """Compute `graphbench::edge_attention` on a GPU; autocast, with softmax in float32, is left to torch."""
    options = num_heads, largest, with_scores
    rows = qkv.new_empty(edge_index.shape[1], 1) if steer is None else steer
    fits = steer is None or 3 * steer.shape[-1] == qkv.shape[-1]
    fits = fits and qkv.shape[-1] <= 3 * num_heads * _WIDEST and not torch.is_autocast_enabled(qkv.device.type)
    if fits and asks_for_equal_bits(qkv) and fits_kernels(qkv, edge_index, rows):
        attended: tuple[Tensor, Tensor, Tensor] = _EdgeAttention.apply(qkv, edge_index, steer, *options)
        return attended
    return plain_form("graphbench::edge_attention")(qkv, edge_index, steer, *options)


def asks_for_equal_bits(x: Tensor) -> bool:
    """Return whether deterministic algorithms are requested and Triton kernels run on the GPU of `x`."""
    return torch.are_deterministic_algorithms_enabled() and type(x) is Tensor and runs_triton(x.device)


def fits_kernels(x: Tensor, edge_index: Tensor, edges: Tensor) -> bool:
    """Return whether kernels support these: rows of one dtype for all nodes and edges, outside of `torch.func`.

    Examples:
        >>> fits_kernels(torch.zeros(3, 2), torch.zeros(2, 4, dtype=torch.int64), torch.zeros(1, 2))  # one row for all
        False
    """
    if torch._C._functorch.peek_interpreter_stack() is not None or not x.numel() or not edges.numel():
        return False
    given = all(type(tensor) is Tensor for tensor in (x, edge_index, edges))
    rows = x.dim() == edges.dim() == 2 and edges.shape[:1] == edge_index.shape[1:]
    return given and rows and x.dtype == edges.dtype and x.dtype in _TYPES and edge_index.dtype == torch.int64


def _grouped(edge_index: Tensor, num_nodes: int) -> Any:
    """Return the edges grouped by their ends, which all layers of a step share."""
    from graphbench_kernels.nn.messages_triton import Edges, group

    source, target = edge_index.contiguous().unbind(0)
    if edge_index.is_inference():  # has no version
        return Edges(source, target, *group(edge_index, num_nodes))
    version = edge_index._version, num_nodes
    cached_version, ends = _GROUPED.get(edge_index, (None, ()))
    if cached_version != version:
        ends = group(edge_index, num_nodes)
        _GROUPED[edge_index] = (version, ends)  # without its rows, which would keep it alive
    return Edges(source, target, *ends)


class _SumOfRectified(torch.autograd.Function):
    """Map nodes `[T, C]` and edges `[E, C]` to sums `[T, C]`."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, edge_index: Tensor, edges: Tensor, own: float) -> Tensor:
        from graphbench_kernels.nn import messages_triton

        ctx.save_for_backward(x, edge_index, edges)
        ctx.own = own
        return messages_triton.sum_rectified(x.contiguous(), _grouped(edge_index, len(x)), edges.contiguous(), own)

    @staticmethod
    def backward(ctx: Any, upstream: Tensor) -> tuple[Tensor | None, ...]:
        from graphbench_kernels.nn import messages_triton

        x, edge_index, edges = ctx.saved_tensors
        if torch.is_grad_enabled():
            plain = partial(plain_form("graphbench::sum_rectified"), own=ctx.own)
            return *gradients_by(plain, (x, edge_index, edges), ctx.needs_input_grad[:3], (upstream,)), None
        given = x.contiguous(), _grouped(edge_index, len(x)), edges.contiguous(), upstream.contiguous(), ctx.own
        grads = messages_triton.sum_rectified_gradients(*given)
        return grads[0], None, grads[1], None


class _GatedMessages(torch.autograd.Function):
    """Map nodes `[T, 4 C]` and edges `[E, C]` to nodes `[T, C]` and edges `[E, C]`."""

    @staticmethod
    def forward(ctx: Any, nodes: Tensor, edge_index: Tensor, edges: Tensor) -> tuple[Tensor, Tensor]:
        from graphbench_kernels.nn import messages_triton

        ends = _grouped(edge_index, len(nodes))
        out, raw, *sums = messages_triton.gated_messages(nodes.contiguous(), ends, edges.contiguous(), _EPSILON)
        ctx.save_for_backward(nodes, edge_index, edges, raw, *sums)
        return out, raw

    @staticmethod
    def backward(ctx: Any, grad_out: Tensor, grad_raw: Tensor) -> tuple[Tensor | None, ...]:
        from graphbench_kernels.nn import messages_triton

        nodes, edge_index, edges, raw, means, shares = ctx.saved_tensors
        if torch.is_grad_enabled():
            plain = plain_form("graphbench::gated_messages")
            return gradients_by(plain, (nodes, edge_index, edges), ctx.needs_input_grad, (grad_out, grad_raw))
        ends = _grouped(edge_index, len(nodes))
        upstream = grad_out.contiguous(), grad_raw.contiguous()
        grads = messages_triton.gated_gradients(nodes.contiguous(), ends, raw, means, shares, *upstream)
        return grads[0], None, grads[1]


class _EdgeAttention(torch.autograd.Function):
    """Map rows `[T, 3 C]` and edge factors `[E, C]` or None to the results of `edge_attention`."""

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
        from graphbench_kernels.nn import edge_attention_triton

        rows = None if steer is None else steer.contiguous()
        ctx.options, ctx.with_scores = edge_attention_triton.Options(num_heads, largest), with_scores
        given = qkv.contiguous(), _grouped(edge_index, len(qkv)), rows
        mixed, scores, weights = edge_attention_triton.attend(*given, ctx.options, with_scores)
        ctx.save_for_backward(qkv, edge_index, steer, mixed, weights)
        returned = weights.to(qkv.dtype, copy=True)
        ctx.mark_non_differentiable(returned)
        return mixed, scores, returned

    @staticmethod
    def backward(ctx: Any, grad_mixed: Tensor, grad_scores: Tensor, _: Tensor) -> tuple[Tensor | None, ...]:
        from graphbench_kernels.nn import edge_attention_triton

        qkv, edge_index, steer, mixed, weights = ctx.saved_tensors
        needed = ctx.needs_input_grad[0], ctx.needs_input_grad[2]
        if torch.is_grad_enabled():
            plain = plain_form("graphbench::edge_attention")
            again = lambda qkv, steer: plain(qkv, edge_index, steer, *ctx.options, ctx.with_scores)[:2]  # noqa: E731
            grad_qkv, grad_steer = gradients_by(again, (qkv, steer), needed, (grad_mixed, grad_scores))
            return grad_qkv, None, grad_steer, None, None, None
        rows = None if steer is None else steer.contiguous()
        given = qkv.contiguous(), _grouped(edge_index, len(qkv)), rows, ctx.options, mixed, weights
        above = grad_mixed.contiguous(), grad_scores.contiguous() if ctx.with_scores else None
        grad_qkv, grad_steer = edge_attention_triton.gradients(*given, *above)
        return grad_qkv, None, grad_steer, None, None, None
