"""Cut a batch into blocks of graphs that are padded together, round sizes up, and pad and unpad rows.

Legend: B graphs, T nodes.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache
from itertools import groupby, pairwise

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

#: Overhead of a block, mostly function calls, in units of node pairs. `speed/blocks.py` prints step times of several
#: models on one CPU core with this and other numbers: from 2,000 to 8,000 they differ by less than a tenth.
BLOCK_COST = 5_000
#: Devices on which sizes are not rounded up; others plan and compile kernels for each shape.
EXACT_ON = {"cpu"}


@dataclass(frozen=True)
class SizeCut:
    """The graphs of a batch in several blocks of similar size."""

    order: NDArray[np.int64]  # graphs, the largest first `[B]`
    starts: tuple[int, ...]  # where each block begins in `order`, and B

    @property
    def parts(self) -> list[NDArray[np.int64]]:
        """The graphs of each block `[b]`, the largest first."""
        return [self.order[start:stop] for start, stop in pairwise(self.starts)]


def cut_by_size(sizes: NDArray[np.int64]) -> SizeCut | None:
    """Return the cut with the lowest cost, for graphs of `sizes [B]`; None if that is a single block.

    Examples:
        >>> cut_by_size(np.array([20, 300, 21])).parts
        [array([1]), array([2, 0])]
    """
    # Stable, so that graphs of one size stay in the order of the batch.
    order = np.argsort(-sizes, kind="stable")
    starts = block_starts(sizes[order].tolist())
    return SizeCut(order, tuple(starts)) if len(starts) > 2 else None


def block_starts(sizes: list[int]) -> list[int]:
    """Return the first position of each block in descending `sizes`, and the end.

    The cut minimises the number of node pairs in all blocks, padding included, plus `BLOCK_COST` per block. Graphs
    of one size stay together. With a last block from `first`, the graphs before `end` cost
    `least(first) + (end - first) size(first)^2 + BLOCK_COST`, which is a line over `end`. Lines are added in order of
    decreasing slope and queried from left to right, so that each enters and leaves the lower envelope once.

    Examples:
        >>> block_starts([300, 21, 20])
        [0, 1, 3]
    """
    lines: deque[tuple[int, int, int]] = deque()  # slope, value at 0, first graph of the block
    before: dict[int, int] = {}  # end of a block -> its first graph
    # `least` is the cost of the best cut of all graphs before `first`.
    least, first = 0, 0
    for size, equal in groupby(sizes):
        slope = size * size
        new = (slope, least - first * slope + BLOCK_COST, first)
        while len(lines) > 1 and not _is_needed(lines[-2], lines[-1], new):  # convex hull trick
            lines.pop()
        lines.append(new)
        end = first + sum(1 for _ in equal)
        while len(lines) > 1 and lines[1][0] * end + lines[1][1] < lines[0][0] * end + lines[0][1]:
            lines.popleft()
        best = lines[0]
        least, before[end], first = best[0] * end + best[1], best[2], end
    starts = [first]
    while starts[-1]:
        starts.append(before[starts[-1]])
    return starts[::-1]


def _is_needed(left: tuple[int, int, int], middle: tuple[int, int, int], right: tuple[int, int, int]) -> bool:
    """Tell whether the middle of three lines with decreasing slopes is below both others anywhere."""
    return (right[1] - left[1]) * (left[0] - middle[0]) > (middle[1] - left[1]) * (left[0] - right[0])


def rounded_size(rows: int) -> int:
    """Round a number of rows up to one of 8, 16, ..., 64, 72, 88, 104, 120, 136, 160, 184, 208, 240, ...

    All are multiples of 8, which suits fused kernels, and from 64 on each is at least an eighth larger than the one
    before. From 48 to 444 rows, the size of the largest peptide, these are 17 numbers instead of 51 multiples of 8.
    The cost is padding: `speed/shapes.py` prints shapes and padding for the sizes of several data sets.

    Compiled code handles all sizes in one program, in which `rows` is a symbol, and rounds to the next multiple of 8.

    Examples:
        >>> [rounded_size(rows) for rows in (1, 8, 9, 65, 73, 444)]
        [8, 8, 16, 72, 88, 456]
    """
    return -(-rows // 8) * 8 if torch.compiler.is_compiling() else _next_size(rows)


@cache
def _next_size(rows: int) -> int:
    size = 8
    while size < rows:
        size += -(-size // 64) * 8
    return size


def pad_blocks(x: Tensor, slots: Tensor | None, shapes: Sequence[int]) -> list[Tensor]:
    """Return rows `[T, d]` as padded blocks `[b, n, d]`; padding is zero.

    Args:
        x: rows.
        slots: place of each row in the blocks, one after the other `[T]`; None if nothing is padded.
        shapes: graphs b and rows n of each block, `b_1, n_1, b_2, n_2, ...`.

    Examples:
        >>> [part.tolist() for part in pad_blocks(torch.ones(3, 1), torch.tensor([0, 1, 2]), [1, 2, 1, 2])]
        [[[[1.0], [1.0]]], [[[1.0], [0.0]]]]
    """
    pairs = list(zip(shapes[::2], shapes[1::2], strict=True))
    lengths = [graphs * rows for graphs, rows in pairs]
    if slots is not None:
        # No two rows share a slot, so a copy is enough, and its gradient is one gather.
        x = x.new_zeros(sum(lengths), x.shape[-1]).index_copy_(0, slots, x)
    parts = [x] if len(pairs) == 1 else x.split(lengths)
    return [part.view(graphs, rows, x.shape[-1]) for part, (graphs, rows) in zip(parts, pairs, strict=True)]


def unpad_blocks(parts: Sequence[Tensor], slots: Tensor | None) -> Tensor:
    """Return the rows `[T, d]` of padded blocks `[b, n, d]`; the inverse of `pad_blocks`.

    Examples:
        >>> unpad_blocks([torch.tensor([[[1.0], [2.0]]]), torch.tensor([[[3.0], [0.0]]])], torch.tensor([0, 1, 2])).T
        tensor([[1., 2., 3.]])
    """
    rows = [part.flatten(0, 1) for part in parts]
    x = rows[0] if len(rows) == 1 else torch.cat(rows)
    return x if slots is None else x.index_select(0, slots)
