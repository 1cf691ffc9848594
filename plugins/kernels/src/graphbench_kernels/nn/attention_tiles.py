"""Parts of the kernels in `attention_triton`: operations on a tile of rows of one graph and head."""

from __future__ import annotations

import triton
import triton.language as tl


@triton.jit
def is_kept(
    seed: tl.tensor, dropout: tl.tensor, graph: tl.tensor, head: tl.tensor, rows: tl.tensor, keys: tl.tensor
) -> tl.tensor:
    """Return whether dropout keeps the weight of each pair of a tile."""
    # Zeros of the tile's shape, which all four counters must have.
    none = (rows + keys) * 0
    drawn, _, _, _ = tl.philox(seed, none + keys, none + rows, none + head, none + graph)
    return tl.uint_to_uniform_float(drawn) >= dropout


@triton.jit
def multiply_rows(
    left: tl.tensor,
    right: tl.tensor,
    rows: tl.tensor,
    columns: tl.tensor,
    size: tl.tensor,
    LEFT_ROW: tl.constexpr,
    RIGHT_ROW: tl.constexpr,
    WIDTH: tl.constexpr,
    PART: tl.constexpr,
    PRECISION: tl.constexpr,
) -> tl.tensor:
    """Compute scalar products of the rows of two tiles, some channels at a time: whole tiles fill the registers."""
    total = tl.zeros((rows.shape[0], columns.shape[0]), tl.float32)
    channel = 0
    while channel < WIDTH:
        one = load_rows(left + channel, rows, size, LEFT_ROW, WIDTH - channel, PART)
        other = load_rows(right + channel, columns, size, RIGHT_ROW, WIDTH - channel, PART)
        total += tl.dot(one, tl.trans(other), input_precision=PRECISION)
        channel += PART
    return total


@triton.jit
def make_logits(
    products: tl.tensor,
    bias: tl.tensor,
    bias_graph: tl.tensor,
    bias_head: tl.tensor,
    bias_row: tl.tensor,
    graph: tl.tensor,
    head: tl.tensor,
    rows: tl.tensor,
    keys: tl.tensor,
    size: tl.tensor,
    WIDTH: tl.constexpr,
) -> tl.tensor:
    """Compute logits of a tile times log2(e), from products of queries and keys; minus infinity outside the graph."""
    LOG2_E: tl.constexpr = 1.4426950408889634
    inside = (rows < size) & (keys < size)
    logits = products * (LOG2_E * WIDTH**-0.5)
    if bias is not None:
        at = bias + graph.to(tl.int64) * bias_graph + head.to(tl.int64) * bias_head
        added = tl.load(at + rows.to(tl.int64) * bias_row + keys, mask=inside, other=0.0)
        logits += LOG2_E * added.to(tl.float32)
    return tl.where(inside, logits, float("-inf"))


@triton.jit
def load_rows(
    at: tl.tensor, rows: tl.tensor, size: tl.tensor, ROW: tl.constexpr, width: tl.tensor, CHANNELS: tl.constexpr
) -> tl.tensor:
    """Load rows of one graph and head `[TILE, CHANNELS]`, starting at `at`; 0 beyond rows and width."""
    channels = tl.arange(0, CHANNELS)
    inside = (rows < size)[:, None] & (channels < width)[None, :]
    return tl.load(at + rows[:, None] * ROW + channels[None, :], mask=inside, other=0.0)


@triton.jit
def store_rows(
    at: tl.tensor, x: tl.tensor, rows: tl.tensor, size: tl.tensor, ROW: tl.constexpr, WIDTH: tl.constexpr
) -> None:
    """Store rows as `load_rows` reads them."""
    channels = tl.arange(0, x.shape[1])
    inside = (rows < size)[:, None] & (channels < WIDTH)[None, :]
    tl.store(at + rows[:, None] * ROW + channels[None, :], x, mask=inside)
