"""Gather clouds of equal size into blocks, and find neighbours, balls and farthest points in them without padding.

Legend: T points of all clouds, B clouds, b clouds of a block, n points of each of them, c coordinates, S points
of a sample, Q queries.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cached_property, partial, reduce
from typing import Any

import numpy as np
import torch
from scipy.spatial import cKDTree
from torch import Tensor

from graphbench import GraphBatch
from graphbench.contracts.kernels import in_program

#: Maximum number of coordinates for distances as sums of squared differences, without cancellation.
_FEW = 4
#: Maximum number of pairs of points whose distances are in memory, unless one row has more: 128 MB in float32.
_PAIRS = 1 << 25


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
    """Rows of each cloud.

    Args:
        blocks: all clouds, grouped by size.
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
        """Find the clouds of a batch.

        Args:
            batch: clouds of one size, or of any sizes with the fields `cloud_sizes` and `cloud_order` of `cloud_order`;
                without them different sizes cost a host-device sync.
            keys: columns `[T]` by which to sort the points of a cloud, in order of precedence; without keys they keep
                their order. Ties go to the first point, so results do not depend on the numbering if points with equal
                keys are interchangeable.
        """
        device, num_clouds = batch.batch.device, batch.num_graphs
        if of_one_size(batch):
            rows = torch.arange(batch.num_nodes, device=device).view(num_clouds, batch.max_nodes)
            blocks = [Block(torch.arange(num_clouds, device=device), rows)]
        else:
            sorted_clouds = batch if "cloud_order" in batch else cloud_order(batch)
            parts = sorted_clouds["cloud_order"].split([count for _, count in sorted_clouds["cloud_sizes"]])
            blocks = [
                Block(clouds, batch.ptr[clouds][:, None] + torch.arange(size, device=device))
                for clouds, (size, _) in zip(parts, sorted_clouds["cloud_sizes"], strict=True)
            ]
        ordered = tuple(Block(block.clouds, _sort_rows(block.rows, keys)) for block in blocks)
        return cls(ordered, batch.batch, num_clouds)

    def to_blocks(self, x: Tensor) -> list[Tensor]:
        """Gather rows `[T, d]` into `[b, n, d]` of each block."""
        return [x[block.rows] for block in self.blocks]

    def to_rows(self, parts: Sequence[Tensor]) -> Tensor:
        """Join `[b, n, d]` of each block to rows `[T, d]`; inverts `to_blocks`."""
        joined = torch.cat([part.flatten(0, 1) for part in parts])
        # Before Python 3.12 a cached property acquires a lock, which would break a compiled program.
        places = self._find_places() if torch.compiler.is_compiling() else self._places
        return joined.index_select(0, places)

    @cached_property
    def _places(self) -> Tensor:
        return self._find_places()

    def _find_places(self) -> Tensor:
        """Find the position of each row in the joined blocks `[T]`."""
        return torch.cat([block.rows.flatten() for block in self.blocks]).argsort()

    def transform(self, x: Tensor, matrices: Tensor) -> Tensor:
        """Compute `x_i M` with the matrix of each row's cloud.

        Args:
            x: rows `[T, d]`.
            matrices: `[B, d, e]`.

        Returns:
            `[T, e]`.
        """
        parts = zip(self.to_blocks(x), self.blocks, strict=True)
        return self.to_rows([part @ matrices[block.clouds] for part, block in parts])

    def take(self, picked: Sequence[Tensor]) -> tuple[Clouds, Tensor]:
        """Create the clouds of chosen points, in the same blocks.

        Args:
            picked: rows `[b, m]` for each block; m may differ between blocks.

        Returns:
            The clouds, in order, and the original rows `[S]` of all S points.
        """
        # Each cloud is in one block, so every count is set.
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


def of_one_size(batch: GraphBatch) -> bool:
    """Return whether all clouds of a batch have equal sizes, from shapes only, without a host-device sync."""
    return batch.num_nodes == batch.num_graphs * batch.max_nodes


def cloud_order(batch: GraphBatch) -> dict[str, Any]:
    """Group the clouds of a batch by size.

    Returns:
        `cloud_sizes`, pairs of integers: each distinct size, ascending, and the number of clouds that have it; and
        `cloud_order`, the clouds in the order of their sizes `[B]`.
    """
    sizes = batch.ptr.diff()
    different, counts = sizes.unique(return_counts=True)
    pairs = list(zip(different.tolist(), counts.tolist(), strict=True))
    return {"cloud_sizes": pairs, "cloud_order": sizes.argsort(stable=True)}


def _sort_rows(rows: Tensor, keys: Sequence[Tensor]) -> Tensor:
    """Sort the rows `[b, n]` of each cloud by ascending keys."""
    for key in reversed(keys):  # the last sort takes precedence, earlier ones break its ties
        rows = rows.gather(1, key[rows].argsort(dim=1, stable=True))
    return rows


def squared_distances(x: Tensor, y: Tensor) -> Tensor:
    """Compute `|x_i - y_j|^2` in at least single precision.

    Args:
        x: `[b, m, d]`.
        y: `[b, n, d]`.

    Returns:
        `[b, m, n]`.
    """
    if x.dtype.itemsize <= 2:
        x, y = x.float(), y.float()
    if x.shape[-1] <= _FEW:
        columns = zip(x.unbind(-1), y.unbind(-1), strict=True)
        return reduce(torch.add, ((a[:, :, None] - b[:, None, :]).square() for a, b in columns))
    with torch.autocast(x.device.type, enabled=False):
        x, y = x - (middle := y.mean(1, keepdim=True)), y - middle  # a shift reduces cancellation
        products = x @ y.transpose(1, 2)
        return (x.square().sum(-1)[:, :, None] + y.square().sum(-1)[:, None, :] - 2 * products).clamp(min=0)


def by_parts(compute: Callable[[Tensor], Tensor], x: Tensor, others: int) -> Tensor:
    """Compute rows for points `[b, m, d]`, in parts whose pairs with `others` points of each cloud fit into memory.

    In a compiled program, whose sizes may be unknown, all points are one part.

    Examples:
        >>> by_parts(lambda part: part + len(part[0]), torch.zeros(1, 5, 1), others=1 << 24).flatten()
        tensor([2., 2., 2., 2., 1.])
    """
    if torch.compiler.is_compiling() or x.shape[0] * x.shape[1] * others <= _PAIRS:
        return compute(x)
    rows = max(1, _PAIRS // (x.shape[0] * others))
    return torch.cat([compute(part) for part in x.split(rows, dim=1)], dim=1)


@torch.no_grad()
def nearest(
    queries: Tensor,
    query_clouds: Clouds,
    x: Tensor,
    clouds: Clouds,
    k: int,
    radius: float | None = None,
    dilation: int = 1,
) -> Tensor:
    """Find the nearest k points of each query within its cloud, nearest first.

    For a cloud of fewer than k points all are returned, then again from the nearest one. With a radius, points beyond
    it are replaced by the nearest one, as in the ball query of PointNet++; that one uses the first points in the ball
    by number, this one the nearest.

    Args:
        queries: points `[Q, d]`.
        query_clouds: their clouds.
        x: points or features `[T, d]`.
        clouds: their clouds, in the blocks of `query_clouds`.
        k: neighbours.
        radius: radius of the ball; None for any distance.
        dilation: d for every d-th of the nearest dk points, from the nearest one on; a cloud of fewer points uses the
            largest d for which it has enough.

    Returns:
        Rows of x `[Q, k]`.

    Examples:
        >>> from graphbench.testing import tiny_spec, tiny_table
        >>> batch = tiny_table(tiny_spec(kind="coordinates"), sizes=[3]).batch([0])
        >>> clouds, x = Clouds.from_batch(batch), torch.tensor([[0.0], [1.0], [3.0]])
        >>> nearest(x, clouds, x, clouds, k=2)
        tensor([[0, 1],
                [1, 0],
                [2, 1]])
        >>> nearest(x, clouds, x, clouds, k=2, radius=1.5)[2]
        tensor([2, 2])
    """
    parts = []
    for query, points, block in zip(query_clouds.to_blocks(queries), clouds.to_blocks(x), clouds.blocks, strict=True):
        size = points.shape[1]
        step = max(1, min(dilation, size // k))
        few = min(k * step, size)
        if _is_for_tree(points, query):
            index = _nearest_in_tree(points, few, step, radius, query)
        else:
            index = by_parts(partial(_nearest_points, points, few, step, radius), query, size)
        # Fewer than k points: start again from the nearest one.
        index = index[..., torch.arange(k, device=index.device) % min(k, size)]
        parts.append(block.rows.gather(1, index.flatten(1)).view(index.shape))
    return query_clouds.to_rows(parts)


def _nearest_points(points: Tensor, k: int, step: int, radius: float | None, queries: Tensor) -> Tensor:
    near = squared_distances(queries, points).topk(k, dim=-1, largest=False)
    distance, index = near.values[..., ::step], near.indices[..., ::step]
    # In an empty ball keep the nearest point: not every query is a point.
    return index if radius is None else torch.where(distance > radius**2, index[..., :1], index)


def _is_for_tree(points: Tensor, queries: Tensor) -> bool:
    """Return whether a k-d tree finds the neighbours: of a large cloud with few coordinates, on a CPU."""
    if torch.compiler.is_compiling() or points.device.type != "cpu" or points.shape[2] > _FEW:
        return False
    is_large = points.shape[1] * queries.shape[1] > _PAIRS
    return is_large and bool(points.isfinite().all()) and bool(queries.isfinite().all())


def _nearest_in_tree(points: Tensor, k: int, step: int, radius: float | None, queries: Tensor) -> Tensor:
    """Find what `_nearest_points` finds, except for equal distances, in time that does not grow with all pairs."""
    wanted = range(1, k + 1, step)
    neighbours = [
        cKDTree(cloud.numpy()).query(query.numpy(), wanted)
        for cloud, query in zip(points.detach().double(), queries.detach().double(), strict=True)
    ]
    distance, index = (torch.from_numpy(np.stack(part)) for part in zip(*neighbours, strict=True))
    return index if radius is None else torch.where(distance > radius, index[..., :1], index)


@torch.no_grad()
def farthest_points(x: Tensor, clouds: Clouds, count: int | None = None, share: int = 1) -> tuple[Clouds, Tensor]:
    """Sample points that are far from each other: each is the farthest from the previous ones.

    The first is the point farthest from the mean of its cloud, so the sample depends on neither the numbering nor the
    batch; published code starts from the first point or a random one. For a cloud of fewer than `count` points all are
    returned. If there are fewer places than points to sample, the first point fills the sample.

    Args:
        x: points `[T, c]`.
        clouds: their clouds.
        count: points to sample from each cloud; None for one in `share`.
        share: points of a cloud per sampled point; the count is rounded up.

    Returns:
        The clouds of the sample, and the rows of its points `[S]`.

    Examples:
        >>> from graphbench.testing import tiny_spec, tiny_table
        >>> batch = tiny_table(tiny_spec(kind="coordinates"), sizes=[4]).batch([0])
        >>> farthest_points(torch.tensor([[0.0], [1.0], [2.0], [9.0]]), Clouds.from_batch(batch), 3)[1]
        tensor([3, 0, 2])
    """
    pick = _pick_as_operation if in_program() else _pick_farthest
    picked = []
    for points, block in zip(clouds.to_blocks(x), clouds.blocks, strict=True):
        size = points.shape[1]
        steps = -(-size // share) if count is None else min(count, size)
        picked.append(block.rows.gather(1, pick(points, steps)))
    return clouds.take(picked)


def _pick_farthest(points: Tensor, count: int) -> Tensor:
    """Pick points of each cloud `[b, count]`, as places in `points [b, n, c]`."""
    chosen = torch.empty(points.shape[0], count, dtype=torch.int64, device=points.device)
    # argmax returns the first of equals, and models sort rows by coordinates, so ties do not follow the numbering.
    last = squared_distances(points, points.mean(1, keepdim=True)).squeeze(2).argmax(1)
    distance = torch.full_like(points[..., 0], torch.inf)
    for step in range(count):
        chosen[:, step] = last
        here = points.gather(1, last[:, None, None].expand(-1, 1, points.shape[2]))
        # From each point to the current sample: one pass over the cloud per step, and no distance matrix.
        distance = torch.minimum(distance, (points - here).square().sum(-1))
        last = distance.argmax(1)
    return chosen


#: One operation in a compiled program, which would otherwise unroll the loop and be recompiled for each number of
#: points. Exported programs contain the loop, so they load without this package.
_pick_as_operation = torch.library.custom_op("graphbench_point_clouds::pick_farthest", _pick_farthest, mutates_args=())


@_pick_as_operation.register_fake
def _(points: Tensor, count: int) -> Tensor:
    return points.new_empty(points.shape[0], count, dtype=torch.int64)


def interpolate(x: Tensor, pos: Tensor, clouds: Clouds, onto: Tensor, targets: Clouds, k: int = 3) -> Tensor:
    """Interpolate features of the nearest k points, weighted by inverse squared distances (PointNet++, equation 2).

    Args:
        x: features `[T, d]`.
        pos: their points `[T, c]`.
        clouds: their clouds.
        onto: points that get features `[Q, c]`.
        targets: their clouds, in the same blocks.
        k: points to weight; all points of a smaller cloud.

    Returns:
        `[Q, d]`.

    Examples:
        >>> from graphbench.testing import tiny_spec, tiny_table
        >>> table = tiny_table(tiny_spec(kind="coordinates"), sizes=[2, 1])
        >>> few, one = (Clouds.from_batch(table.batch([row])) for row in (0, 1))
        >>> ends = torch.tensor([[0.0], [1.0]])
        >>> interpolate(ends, ends, few, torch.tensor([[0.5]]), one)
        tensor([[0.5000]])
    """
    index = nearest(onto, targets, pos, clouds, k)
    # The bound is from the authors' code: a query that equals a point gets almost only its features.
    weight = 1 / (pos[index] - onto[:, None]).square().sum(-1).clamp(min=1e-10)
    if any(block.rows.shape[1] < k for block in clouds.blocks):
        # `nearest` repeats the points of a smaller cloud, and each counts once.
        number = torch.arange(k, device=weight.device)
        counted = [
            (number < block.rows.shape[1]).expand(*queries.rows.shape, k)
            for queries, block in zip(targets.blocks, clouds.blocks, strict=True)
        ]
        weight = weight * targets.to_rows(counted)
    weight = (weight / weight.sum(1, keepdim=True)).to(x.dtype)
    return (weight[:, :, None] * x[index]).sum(1)
