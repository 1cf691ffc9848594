"""Messages along edges on a GPU: one program sums the messages that a node receives or sends.

A program handles one node (for attention, one node and head) and its edges in order, so there are no atomics and equal
inputs give identical bits. Sums are computed in float32, or in float64 for float64 inputs.

Legend: T nodes, E edges, C channels, H heads of d channels; edge e goes from node `source[e]` to node `target[e]`. The
edges of node i are `order[ptr[i]]` to `order[ptr[i + 1] - 1]`: incoming edges in the forward pass and in gradients of
targets, otherwise outgoing edges.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import torch
import triton
import triton.language as tl
from torch import Tensor

#: Maximum channels of a program, which one warp computes.
_MAX_CHANNELS = 128


class Edges(NamedTuple):
    """Ends of edges `[E]`, and the incoming and outgoing edges of each node."""

    source: Tensor
    target: Tensor
    arriving: tuple[Tensor, Tensor]
    sent: tuple[Tensor, Tensor]


def group(edge_index: Tensor, num_nodes: int) -> tuple[tuple[Tensor, Tensor], tuple[Tensor, Tensor]]:
    """Group edges by both ends without waiting for the GPU; an end that is not a node is a device-side error.

    Returns:
        `arriving` and `sent` of `Edges`, neither of which refers to `edge_index`.
    """
    # Kernels would read and write out of bounds; an assertion on the GPU needs no host-device sync.
    torch._assert_async(((edge_index >= 0) & (edge_index < num_nodes)).all())
    ends, order = edge_index.sort(dim=1, stable=True)
    nodes = torch.arange(num_nodes + 1, device=ends.device).expand(2, -1).contiguous()
    ptr = torch.searchsorted(ends, nodes)
    return (ptr[1], order[1]), (ptr[0], order[0])


def _launch(x: Tensor) -> tuple[tuple[int, int], dict[str, Any]]:
    """Return the grid and the constants of a launch for the rows of nodes `x [T, C]`."""
    nodes, channels = x.shape
    block = min(_MAX_CHANNELS, triton.next_power_of_2(channels))
    number = tl.float64 if x.dtype == torch.float64 else tl.float32
    return (nodes, triton.cdiv(channels, block)), {"WIDTH": channels, "BLOCK": block, "NUMBER": number, "num_warps": 1}


def make_sums(like: Tensor, *shape: int) -> Tensor:
    """Allocate a tensor for sums, in at least float32."""
    return like.new_empty(shape, dtype=torch.promote_types(like.dtype, torch.float32))


# -- sums of rectified messages ---------------------------------------------------------------------------------------


def sum_rectified(x: Tensor, edges: Edges, edge: Tensor, own: float = 0.0) -> Tensor:
    """`s x_i + sum_(j -> i) relu(x_j + e_ij)`, `[T, C]`; s = own, x `[T, C]` and edge `[E, C]` are contiguous."""
    out = torch.empty_like(x)
    grid, options = _launch(x)
    with torch.cuda.device_of(x):
        _sum_rectified[grid](x, edge, edges.source, *edges.arriving, out, OWN=own, **options)
    return out


def sum_rectified_gradients(
    x: Tensor, edges: Edges, edge: Tensor, upstream: Tensor, own: float = 0.0
) -> tuple[Tensor, Tensor]:
    """Differentiate `sum_rectified` with respect to x and the edges."""
    grad_x, grad_edge = torch.empty_like(x), torch.empty_like(edge)
    grid, options = _launch(x)
    with torch.cuda.device_of(x):
        _rectified_gradients[grid](x, edge, edges.target, *edges.sent, upstream, grad_x, grad_edge, OWN=own, **options)
    return grad_x, grad_edge


@triton.jit
def _sum_rectified(
    x: tl.tensor,
    edge: tl.tensor,
    source: tl.tensor,
    ptr: tl.tensor,
    order: tl.tensor,
    out: tl.tensor,
    WIDTH: tl.constexpr,
    BLOCK: tl.constexpr,
    NUMBER: tl.constexpr,
    OWN: tl.constexpr,
) -> None:
    """Add the messages that a node receives to its own share."""
    node = tl.program_id(0).to(tl.int64)
    channels = tl.program_id(1) * BLOCK + tl.arange(0, BLOCK)
    total = tl.zeros((BLOCK,), NUMBER)
    if OWN != 0.0:
        total += OWN * load_row(x, node, channels, WIDTH, NUMBER)
    place, end = tl.load(ptr + node), tl.load(ptr + node + 1)
    while place < end:
        e = tl.load(order + place)
        message = load_row(x, tl.load(source + e), channels, WIDTH, NUMBER) + load_row(edge, e, channels, WIDTH, NUMBER)
        # NaN is passed on, as in torch's ReLU.
        total += tl.maximum(message, 0.0, propagate_nan=tl.PropagateNan.ALL)
        place += 1
    tl.store(out + node * WIDTH + channels, total, mask=channels < WIDTH)


@triton.jit
def _rectified_gradients(
    x: tl.tensor,
    edge: tl.tensor,
    target: tl.tensor,
    ptr: tl.tensor,
    order: tl.tensor,
    upstream: tl.tensor,
    grad_x: tl.tensor,
    grad_edge: tl.tensor,
    WIDTH: tl.constexpr,
    BLOCK: tl.constexpr,
    NUMBER: tl.constexpr,
    OWN: tl.constexpr,
) -> None:
    """Differentiate with respect to a node and its outgoing edges."""
    node = tl.program_id(0).to(tl.int64)
    channels = tl.program_id(1) * BLOCK + tl.arange(0, BLOCK)
    mine = load_row(x, node, channels, WIDTH, NUMBER)
    total = tl.zeros((BLOCK,), NUMBER)
    if OWN != 0.0:
        total += OWN * load_row(upstream, node, channels, WIDTH, NUMBER)
    place, end = tl.load(ptr + node), tl.load(ptr + node + 1)
    while place < end:
        e = tl.load(order + place)
        message = mine + load_row(edge, e, channels, WIDTH, NUMBER)
        through = tl.where(message <= 0.0, 0.0, load_row(upstream, tl.load(target + e), channels, WIDTH, NUMBER))
        tl.store(grad_edge + e * WIDTH + channels, through, mask=channels < WIDTH)
        total += through
        place += 1
    tl.store(grad_x + node * WIDTH + channels, total, mask=channels < WIDTH)


# -- gated messages ---------------------------------------------------------------------------------------------------


def gated_messages(nodes: Tensor, edges: Edges, edge: Tensor, epsilon: float) -> tuple[Tensor, ...]:
    """Return x^ `[T, C]` and e^ `[E, C]`, means of incoming messages, and 1 / sums of gates `[T, C]`."""
    out, raw = edge.new_empty(nodes.shape[0], edge.shape[1]), torch.empty_like(edge)
    means, shares = make_sums(edge, 2, *out.shape).unbind(0)
    grid, options = _launch(means)
    with torch.cuda.device_of(nodes):
        _gated_messages[grid](nodes, edge, edges.source, *edges.arriving, out, raw, means, shares, epsilon, **options)
    return out, raw, means, shares


def gated_gradients(
    nodes: Tensor, edges: Edges, raw: Tensor, means: Tensor, shares: Tensor, grad_out: Tensor, grad_raw: Tensor
) -> tuple[Tensor, Tensor]:
    """Return gradients of nodes `[T, 4 C]` and edges `[E, C]`, from results of `gated_messages` and their gradients."""
    grad_nodes, grad_edge = torch.empty_like(nodes), torch.empty_like(raw)
    grid, options = _launch(means)
    with torch.cuda.device_of(nodes):
        arrived = (nodes, edges.source, *edges.arriving, raw, means, shares, grad_out, grad_raw)
        _gated_targets[grid](*arrived, grad_nodes, grad_edge, **options)
        _gated_sources[grid](edges.target, *edges.sent, raw, shares, grad_out, grad_nodes, grad_edge, **options)
    return grad_nodes, grad_edge


@triton.jit
def _gated_messages(
    nodes: tl.tensor,
    edge: tl.tensor,
    source: tl.tensor,
    ptr: tl.tensor,
    order: tl.tensor,
    out: tl.tensor,
    raw: tl.tensor,
    means: tl.tensor,
    shares: tl.tensor,
    epsilon: tl.tensor,
    WIDTH: tl.constexpr,
    BLOCK: tl.constexpr,
    NUMBER: tl.constexpr,
) -> None:
    """Mix the incoming messages of a node; rows of nodes are A x, B x, D x and E x."""
    node = tl.program_id(0).to(tl.int64)
    channels = tl.program_id(1) * BLOCK + tl.arange(0, BLOCK)
    received = load_row(nodes, 4 * node + 2, channels, WIDTH, NUMBER)
    # The sum of gates starts at epsilon, so it is the denominator.
    total, gates = tl.zeros((BLOCK,), NUMBER), tl.full((BLOCK,), epsilon, NUMBER)
    place, end = tl.load(ptr + node), tl.load(ptr + node + 1)
    while place < end:
        e = tl.load(order + place)
        start = 4 * tl.load(source + e)
        logit = (
            received + load_row(nodes, start + 3, channels, WIDTH, NUMBER) + load_row(edge, e, channels, WIDTH, NUMBER)
        )
        gate = 1.0 / (1.0 + tl.exp(-logit))
        total += gate * load_row(nodes, start + 1, channels, WIDTH, NUMBER)
        gates += gate
        tl.store(raw + e * WIDTH + channels, logit, mask=channels < WIDTH)
        place += 1
    mean, at = total / gates, node * WIDTH + channels
    tl.store(out + at, load_row(nodes, 4 * node, channels, WIDTH, NUMBER) + mean, mask=channels < WIDTH)
    tl.store(means + at, mean, mask=channels < WIDTH)
    tl.store(shares + at, 1.0 / gates, mask=channels < WIDTH)


@triton.jit
def _gated_targets(
    nodes: tl.tensor,
    source: tl.tensor,
    ptr: tl.tensor,
    order: tl.tensor,
    raw: tl.tensor,
    means: tl.tensor,
    shares: tl.tensor,
    grad_out: tl.tensor,
    grad_raw: tl.tensor,
    grad_nodes: tl.tensor,
    grad_edge: tl.tensor,
    WIDTH: tl.constexpr,
    BLOCK: tl.constexpr,
    NUMBER: tl.constexpr,
) -> None:
    """Differentiate with respect to A x and D x of a node, and its incoming edges."""
    node = tl.program_id(0).to(tl.int64)
    channels = tl.program_id(1) * BLOCK + tl.arange(0, BLOCK)
    above = load_row(grad_out, node, channels, WIDTH, NUMBER)
    mean, share = load_row(means, node, channels, WIDTH, NUMBER), load_row(shares, node, channels, WIDTH, NUMBER)
    total = tl.zeros((BLOCK,), NUMBER)
    place, end = tl.load(ptr + node), tl.load(ptr + node + 1)
    while place < end:
        e = tl.load(order + place)
        gate = 1.0 / (1.0 + tl.exp(-load_row(raw, e, channels, WIDTH, NUMBER)))
        # Derivative of a quotient: the mean changes with the gate of an edge by share (B x_j - mean).
        through = above * share * (load_row(nodes, 4 * tl.load(source + e) + 1, channels, WIDTH, NUMBER) - mean)
        grad_logit = load_row(grad_raw, e, channels, WIDTH, NUMBER) + gate * (1.0 - gate) * through
        tl.store(grad_edge + e * WIDTH + channels, grad_logit, mask=channels < WIDTH)
        total += grad_logit
        place += 1
    at = grad_nodes + 4 * node * WIDTH + channels
    tl.store(at, above, mask=channels < WIDTH)
    tl.store(at + 2 * WIDTH, total, mask=channels < WIDTH)


@triton.jit
def _gated_sources(
    target: tl.tensor,
    ptr: tl.tensor,
    order: tl.tensor,
    raw: tl.tensor,
    shares: tl.tensor,
    grad_out: tl.tensor,
    grad_nodes: tl.tensor,
    grad_edge: tl.tensor,
    WIDTH: tl.constexpr,
    BLOCK: tl.constexpr,
    NUMBER: tl.constexpr,
) -> None:
    """Differentiate with respect to B x and E x of a node."""
    node = tl.program_id(0).to(tl.int64)
    channels = tl.program_id(1) * BLOCK + tl.arange(0, BLOCK)
    grad_sent, grad_source = tl.zeros((BLOCK,), NUMBER), tl.zeros((BLOCK,), NUMBER)
    place, end = tl.load(ptr + node), tl.load(ptr + node + 1)
    while place < end:
        e = tl.load(order + place)
        to = tl.load(target + e)
        gate = 1.0 / (1.0 + tl.exp(-load_row(raw, e, channels, WIDTH, NUMBER)))
        grad_sent += (
            gate * load_row(grad_out, to, channels, WIDTH, NUMBER) * load_row(shares, to, channels, WIDTH, NUMBER)
        )
        grad_source += load_row(grad_edge, e, channels, WIDTH, NUMBER)
        place += 1
    at = grad_nodes + 4 * node * WIDTH + channels
    tl.store(at + WIDTH, grad_sent, mask=channels < WIDTH)
    tl.store(at + 3 * WIDTH, grad_source, mask=channels < WIDTH)


@triton.jit
def load_row(
    at: tl.tensor, row: tl.tensor, channels: tl.tensor, WIDTH: tl.constexpr, NUMBER: tl.constexpr
) -> tl.tensor:
    """Load some channels of a row, in the dtype of sums; 0 beyond them."""
    return tl.load(at + row * WIDTH + channels, mask=channels < WIDTH, other=0.0).to(NUMBER)
