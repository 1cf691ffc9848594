"""Attention along edges on a GPU: a program handles one node and head, and its edges in order.

As in `messages_triton`, with the same legend. Rows `qkv [T, 3 C]` are the concatenated queries, keys and values of all
heads.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import torch
import triton
import triton.language as tl
from torch import Tensor

from graphbench_kernels.nn.messages_triton import Edges, load_row, make_sums


class Options(NamedTuple):
    """Heads H, and the absolute value to which logits are clamped."""

    num_heads: int
    largest: float


def attend(
    qkv: Tensor, edges: Edges, steer: Tensor | None, options: Options, with_scores: bool
) -> tuple[Tensor, Tensor, Tensor]:
    """Return mixed values `[T, C]`, scores `[E, C]` or no rows, and weights `[E, H]` in the dtype of sums."""
    rows, number = qkv.shape[0], len(edges.source)
    mixed = qkv.new_empty(rows, qkv.shape[1] // 3)
    scores = qkv.new_empty(number if with_scores else 0, mixed.shape[1])
    weights = make_sums(qkv, number, options.num_heads)
    grid, constants = _launch(qkv, options)
    stored = scores if with_scores else None
    with torch.cuda.device_of(qkv):
        _attend[grid](qkv, steer, edges.source, *edges.arriving, mixed, stored, weights, **constants)
    return mixed, scores, weights


def gradients(
    qkv: Tensor,
    edges: Edges,
    steer: Tensor | None,
    options: Options,
    mixed: Tensor,
    weights: Tensor,
    grad_mixed: Tensor,
    grad_scores: Tensor | None,
) -> tuple[Tensor, Tensor | None]:
    """Differentiate with respect to qkv and `steer`, from results of `attend` and their gradients."""
    grad_qkv, grad_logits = torch.empty_like(qkv), torch.empty_like(weights)
    grad_steer = None if steer is None else torch.empty_like(steer)
    grid, constants = _launch(qkv, options)
    arrived = (qkv, steer, edges.source, *edges.arriving, mixed, weights, grad_mixed, grad_scores)
    sent = (qkv, steer, edges.target, *edges.sent, weights, grad_mixed, grad_scores)
    with torch.cuda.device_of(qkv):
        # In this order: sources read the logit gradients written by targets.
        _target_gradients[grid](*arrived, grad_qkv, grad_steer, grad_logits, **constants)
        _source_gradients[grid](*sent, grad_qkv, grad_logits, **constants)
    return grad_qkv, grad_steer


def _launch(qkv: Tensor, options: Options) -> tuple[tuple[int, int], dict[str, Any]]:
    """Return the grid and the constants of a launch."""
    width = qkv.shape[1] // (3 * options.num_heads)
    constants = {
        "HEADS": options.num_heads,
        "LARGEST": options.largest,
        "WIDTH": width,
        "BLOCK": triton.next_power_of_2(width),
        "NUMBER": tl.float64 if qkv.dtype == torch.float64 else tl.float32,
        "num_warps": 1,
    }
    return (qkv.shape[0], options.num_heads), constants


@triton.jit
def _attend(
    qkv: tl.tensor,
    steer: tl.tensor,
    source: tl.tensor,
    ptr: tl.tensor,
    order: tl.tensor,
    mixed: tl.tensor,
    scores: tl.tensor,
    weights: tl.tensor,
    HEADS: tl.constexpr,
    LARGEST: tl.constexpr,
    WIDTH: tl.constexpr,
    BLOCK: tl.constexpr,
    NUMBER: tl.constexpr,
) -> None:
    """Mix the incoming values of a node; logits are computed twice, since their exponentials are summed first."""
    node, head = tl.program_id(0).to(tl.int64), tl.program_id(1)
    channels = tl.arange(0, BLOCK)
    q = load_row(qkv, 3 * node * HEADS + head, channels, WIDTH, NUMBER) * WIDTH**-0.5
    first, end = tl.load(ptr + node), tl.load(ptr + node + 1)
    # A scalar 0 with the dtype of sums.
    total = tl.sum(tl.zeros((BLOCK,), NUMBER))
    place = first
    while place < end:
        e = tl.load(order + place)
        key = (3 * tl.load(source + e) + 1) * HEADS + head
        score = _steered(
            q * load_row(qkv, key, channels, WIDTH, NUMBER), steer, e * HEADS + head, channels, WIDTH, NUMBER
        )
        if scores is not None:
            tl.store(scores + (e * HEADS + head) * WIDTH + channels, score, mask=channels < WIDTH)
        # Clamped logits need no subtraction of the largest one: their exponentials are finite.
        total += tl.exp(_clamped(tl.sum(score), LARGEST))
        place += 1
    values = tl.zeros((BLOCK,), NUMBER)
    place = first
    while place < end:
        e = tl.load(order + place)
        key = (3 * tl.load(source + e) + 1) * HEADS + head
        score = _steered(
            q * load_row(qkv, key, channels, WIDTH, NUMBER), steer, e * HEADS + head, channels, WIDTH, NUMBER
        )
        weight = tl.exp(_clamped(tl.sum(score), LARGEST)) / total
        tl.store(weights + e * HEADS + head, weight)
        values += weight * load_row(qkv, key + HEADS, channels, WIDTH, NUMBER)
        place += 1
    tl.store(mixed + (node * HEADS + head) * WIDTH + channels, values, mask=channels < WIDTH)


@triton.jit
def _target_gradients(
    qkv: tl.tensor,
    steer: tl.tensor,
    source: tl.tensor,
    ptr: tl.tensor,
    order: tl.tensor,
    mixed: tl.tensor,
    weights: tl.tensor,
    grad_mixed: tl.tensor,
    grad_scores: tl.tensor,
    grad_qkv: tl.tensor,
    grad_steer: tl.tensor,
    grad_logits: tl.tensor,
    HEADS: tl.constexpr,
    LARGEST: tl.constexpr,
    WIDTH: tl.constexpr,
    BLOCK: tl.constexpr,
    NUMBER: tl.constexpr,
) -> None:
    """Differentiate with respect to the query of a node, and logits and `steer` of its incoming edges."""
    node, head = tl.program_id(0).to(tl.int64), tl.program_id(1)
    channels = tl.arange(0, BLOCK)
    q = load_row(qkv, 3 * node * HEADS + head, channels, WIDTH, NUMBER) * WIDTH**-0.5
    above = load_row(grad_mixed, node * HEADS + head, channels, WIDTH, NUMBER)
    # sum_j w_j (g . v_j) = g . out, without a second pass over the edges.
    share = tl.sum(above * load_row(mixed, node * HEADS + head, channels, WIDTH, NUMBER))
    grad_q = tl.zeros((BLOCK,), NUMBER)
    place, end = tl.load(ptr + node), tl.load(ptr + node + 1)
    while place < end:
        e = tl.load(order + place)
        row, key = e * HEADS + head, (3 * tl.load(source + e) + 1) * HEADS + head
        k = load_row(qkv, key, channels, WIDTH, NUMBER)
        logit = tl.sum(_steered(q * k, steer, row, channels, WIDTH, NUMBER))
        through = tl.sum(above * load_row(qkv, key + HEADS, channels, WIDTH, NUMBER)) - share
        # Clamped logits get no gradient; those at either bound do, as in torch up to 2.13.
        grad_logit = tl.where(tl.abs(logit) <= LARGEST, tl.load(weights + row) * through, 0.0)
        tl.store(grad_logits + row, grad_logit)
        grad_score = _with_scores(grad_logit, grad_scores, row, channels, WIDTH, NUMBER)
        grad_q += _steered(grad_score * k, steer, row, channels, WIDTH, NUMBER)
        if steer is not None:
            tl.store(grad_steer + row * WIDTH + channels, grad_score * q * k, mask=channels < WIDTH)
        place += 1
    at = grad_qkv + (3 * node * HEADS + head) * WIDTH + channels
    tl.store(at, grad_q * WIDTH**-0.5, mask=channels < WIDTH)


@triton.jit
def _source_gradients(
    qkv: tl.tensor,
    steer: tl.tensor,
    target: tl.tensor,
    ptr: tl.tensor,
    order: tl.tensor,
    weights: tl.tensor,
    grad_mixed: tl.tensor,
    grad_scores: tl.tensor,
    grad_qkv: tl.tensor,
    grad_logits: tl.tensor,
    HEADS: tl.constexpr,
    LARGEST: tl.constexpr,
    WIDTH: tl.constexpr,
    BLOCK: tl.constexpr,
    NUMBER: tl.constexpr,
) -> None:
    """Differentiate with respect to key and value of a node."""
    node, head = tl.program_id(0).to(tl.int64), tl.program_id(1)
    channels = tl.arange(0, BLOCK)
    grad_k, grad_v = tl.zeros((BLOCK,), NUMBER), tl.zeros((BLOCK,), NUMBER)
    place, end = tl.load(ptr + node), tl.load(ptr + node + 1)
    while place < end:
        e = tl.load(order + place)
        row, to = e * HEADS + head, tl.load(target + e)
        grad_score = _with_scores(tl.load(grad_logits + row), grad_scores, row, channels, WIDTH, NUMBER)
        q = load_row(qkv, 3 * to * HEADS + head, channels, WIDTH, NUMBER)
        grad_k += _steered(grad_score * q, steer, row, channels, WIDTH, NUMBER)
        grad_v += tl.load(weights + row) * load_row(grad_mixed, to * HEADS + head, channels, WIDTH, NUMBER)
        place += 1
    at = grad_qkv + ((3 * node + 1) * HEADS + head) * WIDTH + channels
    tl.store(at, grad_k * WIDTH**-0.5, mask=channels < WIDTH)
    tl.store(at + HEADS * WIDTH, grad_v, mask=channels < WIDTH)


@triton.jit
def _steered(
    x: tl.tensor, steer: tl.tensor, row: tl.tensor, channels: tl.tensor, WIDTH: tl.constexpr, NUMBER: tl.constexpr
) -> tl.tensor:
    """Multiply by the factor of an edge and head, if there is one."""
    if steer is not None:
        x *= load_row(steer, row, channels, WIDTH, NUMBER)
    return x


@triton.jit
def _with_scores(
    x: tl.tensor, grad_scores: tl.tensor, row: tl.tensor, channels: tl.tensor, WIDTH: tl.constexpr, NUMBER: tl.constexpr
) -> tl.tensor:
    """Add the gradient of the scores of an edge and head, if they have one, to that of its logit."""
    total = tl.where(channels < WIDTH, x, 0.0)
    if grad_scores is not None:
        total += load_row(grad_scores, row, channels, WIDTH, NUMBER)
    return total


@triton.jit
def _clamped(logit: tl.tensor, LARGEST: tl.constexpr) -> tl.tensor:
    """Clamp a logit; NaN stays NaN."""
    return tl.where(logit > LARGEST, LARGEST, tl.where(logit < -LARGEST, -LARGEST, logit))
