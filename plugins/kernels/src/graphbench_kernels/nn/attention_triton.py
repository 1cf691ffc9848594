"""Softmax attention within graphs on a GPU: rows are read in place, and nothing is padded in memory.

A program handles a tile of queries (for the gradients of keys and values, a tile of keys) of one graph and head, and
iterates over the other axis with an online softmax (Milakov & Gimelshein 2018; Dao 2023, arXiv 2307.08691). One number
per row and head is stored for the backward pass. One program writes each result, so equal inputs give equal bits.

Dropout is drawn by Philox from the seed and four counters: graph, head, query and key. The backward pass redraws the
same numbers.

Legend: T rows of all graphs, B graphs, N rows of the largest one, H heads, d head width. Rows `qkv [T, 3 H d]` are the
concatenated queries, keys and values of all heads. Exponentials have base 2, as in hardware.
"""

from __future__ import annotations

from typing import NamedTuple

import torch
import triton
import triton.language as tl
from torch import Tensor

from graphbench_kernels.nn.attention_tiles import is_kept, load_rows, make_logits, multiply_rows, store_rows

#: Maximum rows of a tile, bytes of one of its operands, and of these per warp: above these, registers spill.
_TILE, _MAX_BYTES, _BYTES_PER_WARP = 32, 8192, 512
#: Bytes of a row that are multiplied at a time.
_PART_BYTES = 64
#: Smallest side of a tile that matrix units support.
_FEWEST = 16


class Dropout(NamedTuple):
    """Probability of dropping a weight, and the seed that decides which ones, in [0, 2^31)."""

    p: float = 0.0
    seed: int = 0


def attend(
    qkv: Tensor, ptr: Tensor, bias: Tensor | None, length: int, num_heads: int, dropout: Dropout
) -> tuple[Tensor, Tensor]:
    """Compute attention.

    Args:
        qkv: rows `[T, 3 H d]`, contiguous.
        ptr: first row of each graph `[B + 1]`.
        bias: added to the logits, `[B or 1, H or 1, N or 1, N]`; None for no bias.
        length: rows of the largest graph N, or more.
        num_heads: heads H.
        dropout: dropout of the weights.

    Returns:
        Mixed values `[T, H d]`; base-2 logarithms of the sums of exponentials `[T, H]`.
    """
    rows, width = qkv.shape[0], qkv.shape[1] // (3 * num_heads)
    mixed = qkv.new_empty(rows, num_heads * width)
    sums = torch.empty(rows, num_heads, dtype=torch.float32, device=qkv.device)
    grid, options = _launch(qkv, ptr, length, num_heads)
    with torch.cuda.device_of(qkv):
        _attend[grid](qkv, ptr, *_steps(bias), *_numbers(dropout), mixed, sums, **options)
    return mixed, sums


def gradients(
    qkv: Tensor,
    ptr: Tensor,
    bias: Tensor | None,
    length: int,
    num_heads: int,
    dropout: Dropout,
    mixed: Tensor,
    sums: Tensor,
    upstream: Tensor,
    grad_bias: bool,
) -> tuple[Tensor, Tensor | None]:
    """Differentiate attention; arguments are those of `attend`, its results, and their gradient.

    Returns:
        Gradients of the rows `[T, 3 H d]`, and if `grad_bias` those of the logits `[B, H, N, N]`.
    """
    grad_rows, shares = torch.empty_like(qkv), torch.empty_like(sums)
    grad_logits = qkv.new_zeros(len(ptr) - 1, num_heads, length, length) if grad_bias else None
    grid, options = _launch(qkv, ptr, length, num_heads)
    given = (qkv, ptr, *_steps(bias), *_numbers(dropout), sums, shares, upstream, grad_rows)
    with torch.cuda.device_of(qkv):
        _query_gradients[grid](*given, mixed, grad_logits, length, **options)  # fills `shares`
        _key_gradients[grid](*given, **options)
    return grad_rows, grad_logits


def kept_factors(ptr: Tensor, length: int, num_heads: int, dropout: Dropout) -> Tensor:
    """Return dropout's factors of the weights, float32 `[B, H, N, N]`; graphs are padded."""
    factors = torch.empty(len(ptr) - 1, num_heads, length, length, dtype=torch.float32, device=ptr.device)
    grid = (len(ptr) - 1, num_heads, triton.cdiv(length, _TILE))
    with torch.cuda.device_of(ptr):
        _draw_factors[grid](*_numbers(dropout), factors, length, HEADS=num_heads, TILE=_TILE)
    return factors


def _launch(qkv: Tensor, ptr: Tensor, length: int, num_heads: int) -> tuple[tuple[int, int, int], dict[str, object]]:
    """Return the grid and the constants of a launch."""
    width = qkv.shape[1] // (3 * num_heads)
    channels = max(_FEWEST, triton.next_power_of_2(width))
    tile = min(_TILE, _MAX_BYTES // (channels * qkv.dtype.itemsize), triton.next_power_of_2(length))
    tile = max(_FEWEST, tile)
    exact = torch.get_float32_matmul_precision() == "highest"
    constants = {
        "HEADS": num_heads,
        "WIDTH": width,
        "CHANNELS": channels,
        "PART": min(channels, _PART_BYTES // qkv.dtype.itemsize),
        "TILE": tile,
        "PRECISION": "tf32x3" if exact else "tf32",
        "num_warps": max(1, min(8, tile // 4, tile * max(tile, channels) * qkv.dtype.itemsize // _BYTES_PER_WARP)),
    }
    if torch.version.hip is None:
        constants["maxnreg"] = 255  # otherwise ptxas spills a few registers to run more programs at a time
    return (len(ptr) - 1, num_heads, triton.cdiv(length, tile)), constants


def _steps(bias: Tensor | None) -> tuple[Tensor | None, int, int, int]:
    """Return a bias, and the strides of its graphs, heads and queries."""
    if bias is None:
        return None, 0, 0, 0
    bias = bias if bias.stride(-1) == 1 else bias.contiguous()
    graph, head, row = (step if size > 1 else 0 for size, step in zip(bias.shape, bias.stride()[:3], strict=False))
    return bias, graph, head, row


def _numbers(dropout: Dropout) -> tuple[int, float, float]:
    return dropout.seed, dropout.p, 1 / (1 - dropout.p)


@triton.jit(do_not_specialize=["seed"])
def _attend(
    qkv: tl.tensor,
    ptr: tl.tensor,
    bias: tl.tensor,
    bias_graph: tl.tensor,
    bias_head: tl.tensor,
    bias_row: tl.tensor,
    seed: tl.tensor,
    dropout: tl.tensor,
    factor: tl.tensor,
    mixed: tl.tensor,
    sums: tl.tensor,
    HEADS: tl.constexpr,
    WIDTH: tl.constexpr,
    CHANNELS: tl.constexpr,
    PART: tl.constexpr,
    TILE: tl.constexpr,
    PRECISION: tl.constexpr,
) -> None:
    """Compute mixed values of one tile of queries."""
    graph, head = tl.program_id(0), tl.program_id(1)
    rows = tl.program_id(2) * TILE + tl.arange(0, TILE)
    start = tl.load(ptr + graph)
    size = (tl.load(ptr + graph + 1) - start).to(tl.int32)
    if tl.program_id(2) * TILE >= size:
        return
    ROW: tl.constexpr = 3 * HEADS * WIDTH
    at = qkv + start * ROW + head * WIDTH
    most = tl.full((TILE,), float("-inf"), tl.float32)
    total = tl.zeros((TILE,), tl.float32)
    values = tl.zeros((TILE, CHANNELS), tl.float32)
    first = 0
    while first < size:
        keys = first + tl.arange(0, TILE)
        products = multiply_rows(at, at + HEADS * WIDTH, rows, keys, size, ROW, ROW, WIDTH, PART, PRECISION)
        logits = make_logits(
            products, bias, bias_graph, bias_head, bias_row, graph, head, rows[:, None], keys[None, :], size, WIDTH
        )
        larger = tl.maximum(most, tl.max(logits, 1))
        level = tl.where(larger == float("-inf"), 0.0, larger)  # a row without any key so far
        weights = tl.exp2(logits - level[:, None])
        shrunk = tl.exp2(most - level)
        # Rescale earlier sums from the previous largest logit to the new one.
        total = total * shrunk + tl.sum(weights, 1)
        if dropout > 0.0:
            # After the sum: dropout applies to normalised weights, whose denominator includes dropped ones.
            weights = tl.where(is_kept(seed, dropout, graph, head, rows[:, None], keys[None, :]), weights, 0.0)
        v = load_rows(at + 2 * HEADS * WIDTH, keys, size, ROW, WIDTH, CHANNELS)
        values = values * shrunk[:, None] + tl.dot(weights.to(v.dtype), v, input_precision=PRECISION)
        most = larger
        first += TILE
    total = tl.where(total == 0.0, 1.0, total)  # a row without keys gets zeros
    values *= (factor / total)[:, None]
    level = tl.where(most == float("-inf"), 0.0, most)
    # With this, a weight is one exponential, exp2(logit - sum), and neither level nor total is stored.
    tl.store(sums + (start + rows) * HEADS + head, level + tl.log2(total), mask=rows < size)
    store_rows(mixed + start * (HEADS * WIDTH) + head * WIDTH, values, rows, size, HEADS * WIDTH, WIDTH)


@triton.jit(do_not_specialize=["seed"])
def _query_gradients(
    qkv: tl.tensor,
    ptr: tl.tensor,
    bias: tl.tensor,
    bias_graph: tl.tensor,
    bias_head: tl.tensor,
    bias_row: tl.tensor,
    seed: tl.tensor,
    dropout: tl.tensor,
    factor: tl.tensor,
    sums: tl.tensor,
    shares: tl.tensor,
    upstream: tl.tensor,
    grad_rows: tl.tensor,
    mixed: tl.tensor,
    grad_logits: tl.tensor,
    length: tl.tensor,
    HEADS: tl.constexpr,
    WIDTH: tl.constexpr,
    CHANNELS: tl.constexpr,
    PART: tl.constexpr,
    TILE: tl.constexpr,
    PRECISION: tl.constexpr,
) -> None:
    """Compute gradients of one tile of queries, and of their logits.

    With g the gradient of the output, `s_i = sum_j w_ij (g_i . v_j) = g_i . out_i` is stored in `shares`, and the
    gradient of a logit is `w_ij (g_i . v_j - s_i)`.
    """
    graph, head = tl.program_id(0), tl.program_id(1)
    rows = tl.program_id(2) * TILE + tl.arange(0, TILE)
    start = tl.load(ptr + graph)
    size = (tl.load(ptr + graph + 1) - start).to(tl.int32)
    if tl.program_id(2) * TILE >= size:
        return
    ROW: tl.constexpr = 3 * HEADS * WIDTH
    at, at_mixed = qkv + start * ROW + head * WIDTH, start * (HEADS * WIDTH) + head * WIDTH
    above = load_rows(upstream + at_mixed, rows, size, HEADS * WIDTH, WIDTH, CHANNELS)
    out = load_rows(mixed + at_mixed, rows, size, HEADS * WIDTH, WIDTH, CHANNELS)
    # Also with dropout: `mixed` is computed after it.
    share = tl.sum(above.to(tl.float32) * out.to(tl.float32), 1)
    place = (start + rows) * HEADS + head
    tl.store(shares + place, share, mask=rows < size)
    level = tl.load(sums + place, mask=rows < size, other=0.0)
    grad_q = tl.zeros((TILE, CHANNELS), tl.float32)
    first = 0
    while first < size:
        keys = first + tl.arange(0, TILE)
        products = multiply_rows(at, at + HEADS * WIDTH, rows, keys, size, ROW, ROW, WIDTH, PART, PRECISION)
        logits = make_logits(
            products, bias, bias_graph, bias_head, bias_row, graph, head, rows[:, None], keys[None, :], size, WIDTH
        )
        grad_weights = multiply_rows(
            upstream + at_mixed, at + 2 * HEADS * WIDTH, rows, keys, size, HEADS * WIDTH, ROW, WIDTH, PART, PRECISION
        )
        if dropout > 0.0:
            mask = is_kept(seed, dropout, graph, head, rows[:, None], keys[None, :])
            grad_weights = tl.where(mask, grad_weights * factor, 0.0)
        grad_logit = tl.exp2(logits - level[:, None]) * (grad_weights - share[:, None])
        k = load_rows(at + HEADS * WIDTH, keys, size, ROW, WIDTH, CHANNELS)
        grad_q += tl.dot(grad_logit.to(k.dtype), k, input_precision=PRECISION)
        if grad_logits is not None:
            # In 64 bits: B H N^2 exceeds 2^31 for large graphs.
            matrix = grad_logits + (graph.to(tl.int64) * HEADS + head) * length * length
            inside = (rows < size)[:, None] & (keys < size)[None, :]
            tl.store(matrix + rows.to(tl.int64)[:, None] * length + keys[None, :], grad_logit, mask=inside)
        first += TILE
    store_rows(grad_rows + start * ROW + head * WIDTH, grad_q * WIDTH**-0.5, rows, size, ROW, WIDTH)


@triton.jit(do_not_specialize=["seed"])
def _key_gradients(
    qkv: tl.tensor,
    ptr: tl.tensor,
    bias: tl.tensor,
    bias_graph: tl.tensor,
    bias_head: tl.tensor,
    bias_row: tl.tensor,
    seed: tl.tensor,
    dropout: tl.tensor,
    factor: tl.tensor,
    sums: tl.tensor,
    shares: tl.tensor,
    upstream: tl.tensor,
    grad_rows: tl.tensor,
    HEADS: tl.constexpr,
    WIDTH: tl.constexpr,
    CHANNELS: tl.constexpr,
    PART: tl.constexpr,
    TILE: tl.constexpr,
    PRECISION: tl.constexpr,
) -> None:
    """Compute gradients of one tile of keys and values; matrices are transposed, with keys as rows."""
    graph, head = tl.program_id(0), tl.program_id(1)
    keys = tl.program_id(2) * TILE + tl.arange(0, TILE)
    start = tl.load(ptr + graph)
    size = (tl.load(ptr + graph + 1) - start).to(tl.int32)
    if tl.program_id(2) * TILE >= size:
        return
    ROW: tl.constexpr = 3 * HEADS * WIDTH
    at, at_mixed = qkv + start * ROW + head * WIDTH, start * (HEADS * WIDTH) + head * WIDTH
    grad_k = tl.zeros((TILE, CHANNELS), tl.float32)
    grad_v = tl.zeros((TILE, CHANNELS), tl.float32)
    first = 0
    while first < size:
        rows = first + tl.arange(0, TILE)
        place = (start + rows) * HEADS + head
        level = tl.load(sums + place, mask=rows < size, other=0.0)
        share = tl.load(shares + place, mask=rows < size, other=0.0)
        products = multiply_rows(at + HEADS * WIDTH, at, keys, rows, size, ROW, ROW, WIDTH, PART, PRECISION)
        logits = make_logits(
            products, bias, bias_graph, bias_head, bias_row, graph, head, rows[None, :], keys[:, None], size, WIDTH
        )
        weights = tl.exp2(logits - level[None, :])
        grad_weights = multiply_rows(
            at + 2 * HEADS * WIDTH, upstream + at_mixed, keys, rows, size, ROW, HEADS * WIDTH, WIDTH, PART, PRECISION
        )
        dropped = weights
        if dropout > 0.0:
            # Counters are query and key, whichever is the row, so these are the draws of the forward pass.
            mask = is_kept(seed, dropout, graph, head, rows[None, :], keys[:, None])
            dropped = tl.where(mask, weights * factor, 0.0)
            grad_weights = tl.where(mask, grad_weights * factor, 0.0)
        above = load_rows(upstream + at_mixed, rows, size, HEADS * WIDTH, WIDTH, CHANNELS)
        grad_v += tl.dot(dropped.to(above.dtype), above, input_precision=PRECISION)
        grad_logit = weights * (grad_weights - share[None, :])
        q = load_rows(at, rows, size, ROW, WIDTH, CHANNELS)
        grad_k += tl.dot(grad_logit.to(q.dtype), q, input_precision=PRECISION)
        first += TILE
    at_result = grad_rows + start * ROW + head * WIDTH
    store_rows(at_result + HEADS * WIDTH, grad_k * WIDTH**-0.5, keys, size, ROW, WIDTH)
    store_rows(at_result + 2 * HEADS * WIDTH, grad_v, keys, size, ROW, WIDTH)


@triton.jit(do_not_specialize=["seed"])
def _draw_factors(
    seed: tl.tensor,
    dropout: tl.tensor,
    factor: tl.tensor,
    factors: tl.tensor,
    length: tl.tensor,
    HEADS: tl.constexpr,
    TILE: tl.constexpr,
) -> None:
    """Store dropout's factors of the weights of one tile of queries."""
    graph, head = tl.program_id(0), tl.program_id(1)
    rows = tl.program_id(2) * TILE + tl.arange(0, TILE)
    matrix = factors + (graph.to(tl.int64) * HEADS + head) * length * length
    first = 0
    while first < length:
        keys = first + tl.arange(0, TILE)
        mask = is_kept(seed, dropout, graph, head, rows[:, None], keys[None, :])
        inside = (rows < length)[:, None] & (keys < length)[None, :]
        place = rows.to(tl.int64)[:, None] * length + keys[None, :]
        tl.store(matrix + place, tl.where(mask, factor, 0.0), mask=inside)
        first += TILE
