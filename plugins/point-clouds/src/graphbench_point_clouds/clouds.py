"""Rows of all clouds of a batch, gathered into blocks of clouds of one size: geometry needs no padding and no loop.

Legend: T points of all clouds, B clouds, b clouds of a block, n points of each of them, c coordinates.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

import torch
from torch import Tensor

from graphbench import GraphBatch


@dataclass(frozen=True)
class Block:
    """Clouds of one size.

    Args:
        clouds: their numbers in the batch `[b]`.
        rows: rows of their points `[b, n]`.
    """

    clouds: Tensor
    rows: Tensor


@dataclass(frozen=True)
class Clouds:
    """Which rows belong to which cloud.

    Args:
        blocks: all clouds, those of one size together.
        cloud_of: cloud of each row `[T]`.
        num_clouds: clouds B.

    Examples:
        >>> from graphbench.testing import tiny_spec, tiny_table
        >>> batch = tiny_table(tiny_spec(kind="coordinates"), sizes=[2, 3, 2]).batch([0, 1, 2])
        >>> clouds = Clouds.from_batch(batch)
        >>> [tuple(block.rows.shape) for block in clouds.blocks]
        [(2, 2), (1, 3)]
    """

    blocks: tuple[Block, ...]
    cloud_of: Tensor
    num_clouds: int

    @classmethod
    def from_batch(cls, batch: GraphBatch, keys: Sequence[Tensor] = ()) -> Clouds:
        """The clouds of a batch.

        Args:
            batch: clouds of any sizes. Where all have one size nothing waits for the device, else their sizes are read.
            keys: columns `[T]` that order the points of a cloud, the first one first; without any they keep their
                order. What chooses among equals takes the first of them, so that it does not depend on the numbering
                where points that agree in all keys are interchangeable.
        """
        device, num_clouds = batch.batch.device, batch.num_graphs
        if batch.num_nodes == num_clouds * batch.max_nodes:
            rows = torch.arange(batch.num_nodes, device=device).view(num_clouds, batch.max_nodes)
            blocks = [Block(torch.arange(num_clouds, device=device), rows)]
        else:
            sizes, blocks = batch.ptr.diff(), []
            for size in sizes.unique().tolist():
                clouds = (sizes == size).nonzero().squeeze(1)
                rows = batch.ptr[clouds][:, None] + torch.arange(size, device=device)
                blocks.append(Block(clouds, rows))
        ordered = tuple(Block(block.clouds, _ordered(block.rows, keys)) for block in blocks)
        return cls(ordered, batch.batch, num_clouds)

    def gathered(self, x: Tensor) -> list[Tensor]:
        """Rows `[T, d]` as `[b, n, d]` for each block."""
        return [x[block.rows] for block in self.blocks]

    def to_rows(self, parts: Sequence[Tensor]) -> Tensor:
        """Rows `[T, d]` of `[b, n, d]` for each block; inverts `gathered`."""
        joined = torch.cat([part.flatten(0, 1) for part in parts])
        return joined.index_select(0, self._places)

    @cached_property
    def _places(self) -> Tensor:
        """Where each row stands when the blocks follow each other `[T]`."""
        return torch.cat([block.rows.flatten() for block in self.blocks]).argsort()

    def transformed(self, x: Tensor, matrices: Tensor) -> Tensor:
        """`x_i M` with the matrix of each row's cloud.

        Args:
            x: rows `[T, d]`.
            matrices: `[B, d, e]`.

        Returns:
            `[T, e]`.
        """
        parts = zip(self.gathered(x), self.blocks, strict=True)
        return self.to_rows([part @ matrices[block.clouds] for part, block in parts])

    def sampled(self, picked: Sequence[Tensor]) -> tuple[Clouds, Tensor]:
        """The clouds of chosen points, in the blocks of these clouds, and the row each point came from.

        Args:
            picked: rows `[b, m]` for each block; m may differ from block to block.

        Returns:
            The clouds, cloud after cloud, and rows `[S]` of all S points.
        """
        counts = self.cloud_of.new_empty(self.num_clouds)
        for block, rows in zip(self.blocks, picked, strict=True):
            counts[block.clouds] = rows.shape[1]
        first = counts.cumsum(0) - counts
        blocks = tuple(
            Block(block.clouds, first[block.clouds][:, None] + torch.arange(rows.shape[1], device=rows.device))
            for block, rows in zip(self.blocks, picked, strict=True)
        )
        total = sum(rows.numel() for rows in picked)
        numbers = torch.arange(self.num_clouds, device=counts.device)
        sample = Clouds(blocks, numbers.repeat_interleave(counts, output_size=total), self.num_clouds)
        return sample, sample.to_rows([rows[:, :, None] for rows in picked]).squeeze(1)


def _ordered(rows: Tensor, keys: Sequence[Tensor]) -> Tensor:
    """Rows `[b, n]` of each cloud by ascending keys."""
    for key in reversed(keys):  # the last sort decides, and those before it among its equals
        rows = rows.gather(1, key[rows].argsort(dim=1, stable=True))
    return rows
