"""A tree over the points of every cloud: occupied cells, each in a larger one, up to the box of the cloud.

Legend: T points of all clouds, B clouds, n nodes of a level of all clouds, k siblings, c coordinates.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor

from graphbench.nn import Pooling
from graphbench_point_clouds.clouds import Clouds, by_parts

#: Margin of the box of a cloud beyond its points, on each side.
MARGIN = 1e-6


@dataclass(frozen=True)
class Level:
    """Nodes of one level of all clouds: points, occupied cells of one size, or the boxes, which are the roots.

    Args:
        pos: points, or centres of cells and boxes `[n, c]`.
        cloud_of: cloud of each node `[n]`.
        parent: row of each node's parent on the next level `[n]`; of width 0 on the last.
        siblings: rows of the nearest nodes of the cloud on this level `[n, k]`, nearest first; none on the last level.
    """

    pos: Tensor
    cloud_of: Tensor
    parent: Tensor
    siblings: Tensor


@torch.no_grad()
def build_levels(pos: Tensor, clouds: Clouds, near: Tensor, depth: int, divide: int) -> list[Level]:
    """Build the tree of each cloud, from its points up to its root.

    The box around a cloud is divided into `divide^(depth - 1)` cells along each axis, then into fewer by a factor of
    `divide` per level, down to one cell. Cells without a point are omitted. Cells have integer coordinates, so each is
    in exactly one larger cell, and neither the order of the points nor other clouds matter.

    Args:
        pos: points `[T, c]`.
        clouds: their clouds.
        near: the nearest points of each point, nearest first `[T, k]`; see `replace_repeats`.
        depth: levels of cells, including the box.
        divide: cells along each axis of a cell of the next level.

    Returns:
        `depth + 1` levels.

    Examples:
        >>> from graphbench.testing import tiny_spec, tiny_table
        >>> clouds = Clouds.from_batch(tiny_table(tiny_spec(kind="coordinates"), sizes=[3]).batch([0]))
        >>> pos, near = torch.tensor([[0.0], [1.0], [4.0]]), torch.tensor([[0], [1], [2]])
        >>> points, cells, root = build_levels(pos, clouds, near, depth=2, divide=2)
        >>> points.parent, cells.pos[:, 0].round(decimals=3)
        (tensor([0, 0, 1]), tensor([1., 3.]))
    """
    exact = pos if pos.dtype.itemsize > 2 else pos.float()
    cloud_of, pool = clouds.cloud_of, Pooling("max")
    # The margin keeps the size positive if all points share a coordinate, and the farthest point in its cell.
    low = -MARGIN - pool(-exact, cloud_of, clouds.num_clouds)
    size = pool(exact, cloud_of, clouds.num_clouds) - low + MARGIN
    finest, corner, length = math.prod([divide] * (depth - 1)), low[cloud_of], size[cloud_of]
    place = ((exact - corner) / length * finest).long().clamp(0, finest - 1)
    # Compute larger cells by integer division: rounding could put a point into a cell but not into its parent. `wide`
    # counts the smallest cells along a cell, as a product, since programs of torch.compile fail at powers of sizes.
    wide = torch.full((depth - 1, 1, 1), divide, device=pos.device).cumprod(0) // divide
    along, places = finest // wide, place // wide
    middles = corner + (places.to(exact.dtype) + 0.5) / along * length  # of the cell of each point [depth - 1, T, c]
    levels, node_pos, siblings = [], exact, near
    nodes = torch.arange(len(pos), device=pos.device)  # one point of each node of the level
    for cells, middle, place, side in zip(
        _occupied_cells(clouds, places, along), middles, places, size / along, strict=True
    ):
        levels.append(Level(node_pos, cloud_of, cells.of_point[nodes], siblings))
        # Any point of a cell gives its cloud, centre and parent.
        nodes = cells.point[: cells.number]
        cloud_of, node_pos = clouds.cloud_of[nodes], middle[nodes]
        siblings = nearest_cells(place[nodes], side, cloud_of, cells.sizes, cells.widest, near.shape[1])
    levels.append(Level(node_pos, cloud_of, cloud_of, siblings))
    roots, none = torch.arange(clouds.num_clouds, device=pos.device), cloud_of[:0]
    return [*levels, Level(low + size / 2, roots, none, none[:, None])]


class _Cells(NamedTuple):
    """Occupied cells of one size, ordered by cloud and place.

    Args:
        of_point: cell of each point `[T]`.
        point: one point of each cell, and zeros after the last cell `[T]`.
        sizes: cells of each cloud `[B]`.
        number: number of cells of all clouds.
        widest: largest number of cells of a cloud.
    """

    of_point: Tensor
    point: Tensor
    sizes: Tensor
    number: int
    widest: int


def _occupied_cells(clouds: Clouds, places: Tensor, along: Tensor) -> list[_Cells]:
    """Find the occupied cells of S sizes.

    Counting them needs a host-device sync, one for all sizes: points are sampled, scaled and rotated on the device.

    Args:
        clouds: clouds of the points.
        places: place of the cell of each point along the axes `[S, T, c]`.
        along: cells of each size along an axis of a cloud `[S, 1, 1]`.
    """
    num_points, axes = places.shape[1:]
    strides = along ** torch.arange(axes, device=places.device)
    # The cloud is the highest digit, so sorted cells of a cloud are adjacent; `CELL_BITS` keeps numbers below 2^63.
    numbers = clouds.cloud_of * along[:, 0] ** axes + (places * strides).sum(2)
    ordered, order = numbers.sort(dim=1, stable=True)
    begins = F.pad(ordered.diff(dim=1) != 0, (1, 0), value=True)[:, :num_points].long()
    cell = begins.cumsum(1) - 1
    of_point = torch.empty_like(cell).scatter_(1, order, cell)
    point = torch.zeros_like(cell).scatter_reduce_(1, cell, order, "amax")
    sizes = places.new_zeros(len(places), clouds.num_clouds).scatter_add_(1, clouds.cloud_of[order], begins)
    totals = torch.stack([sizes.sum(1), sizes.amax(1)], dim=1).tolist()
    return [_Cells(*parts, *total) for *parts, total in zip(of_point, point, sizes, totals, strict=True)]


def replace_repeats(near: Tensor, sizes: Tensor) -> Tensor:
    """Replace repeated nearest nodes `[n, k]`, in sets of fewer than k nodes, with the nearest node.

    Args:
        near: nearest nodes, nearest first, repeated if a set has fewer than k.
        sizes: number of nodes in the set of each row `[n]`.

    Examples:
        >>> replace_repeats(torch.tensor([[0, 1, 0, 1]]), torch.tensor([2]))
        tensor([[0, 1, 0, 0]])
    """
    beyond = torch.arange(near.shape[1], device=near.device) >= sizes[:, None]
    return torch.where(beyond, near[:, :1], near)


def nearest_cells(place: Tensor, side: Tensor, cloud_of: Tensor, sizes: Tensor, widest: int, k: int) -> Tensor:
    """Find the nearest k cells of each cell in its cloud, nearest first, including itself.

    Cells have many equal distances. Ties go to the first cell, whatever else is in the batch, and wherever the cloud
    is: differences of integer places are exact, while rounding would separate equal distances of centres. A cloud of
    fewer than k cells repeats the nearest one, which is the cell itself.

    Args:
        place: integer places of the cells along the axes, grouped by cloud `[n, c]`.
        side: lengths of a cell of each cloud `[B, c]`.
        cloud_of: cloud of each cell, ascending `[n]`.
        sizes: cells of each cloud `[B]`.
        widest: the largest of these sizes.
        k: number of cells.

    Returns:
        `[n, k]`.

    Examples:
        >>> cells, cloud_of = torch.tensor([[0], [1], [2], [5]]), torch.tensor([0, 0, 0, 1])
        >>> nearest_cells(cells, torch.full((2, 1), 0.1), cloud_of, torch.tensor([3, 1]), widest=3, k=2)
        tensor([[0, 1],
                [1, 0],
                [2, 1],
                [3, 3]])
    """
    first = (sizes.cumsum(0) - sizes)[cloud_of]  # first cell of each cell's cloud
    number = torch.arange(len(place), device=place.device) - first
    padded = place.new_zeros(len(sizes), widest, place.shape[1])
    padded[cloud_of, number] = place
    empty = torch.arange(widest, device=place.device) >= sizes[:, None]
    ranks = torch.arange(k, device=place.device).clamp(max=widest - 1)

    def order(part: Tensor) -> Tensor:
        ends, others = part.permute(2, 0, 1), padded.permute(2, 0, 1)
        offsets = (ends[:, :, :, None] - others[:, :, None, :]) * side.t()[:, :, None, None]
        distance = offsets.square().sum(0)
        # A stable sort, since `topk` guarantees no order among equal distances.
        return distance.masked_fill_(empty[:, None, :], torch.inf).argsort(dim=2, stable=True)[:, :, ranks]

    near = by_parts(order, padded, padded[0].numel())[cloud_of, number] + first[:, None]
    return replace_repeats(near, sizes[cloud_of])
