"""Nearest neighbours, balls and farthest points of all clouds of a block at once, in plain torch.

Legend: T points of all clouds, S of a sample, Q of those that ask, B clouds, b clouds of a block, n points of each, c
coordinates.
"""

from __future__ import annotations

import torch
from torch import Tensor

from graphbench_point_clouds.clouds import Clouds

#: Up to as many coordinates distances are sums of squared differences, without cancellation.
_FEW = 4


def squared_distances(x: Tensor, y: Tensor) -> Tensor:
    """`|x_i - y_j|^2` in at least single precision, whatever the features are computed in.

    Args:
        x: `[b, m, d]`.
        y: `[b, n, d]`.

    Returns:
        `[b, m, n]`.
    """
    if not x.dtype.itemsize > 2:
        x, y = x.float(), y.float()
    if x.shape[-1] <= _FEW:
        columns = zip(x.unbind(-1), y.unbind(-1), strict=True)
        return torch.stack([(a[:, :, None] - b[:, None, :]).square() for a, b in columns]).sum(0)
    with torch.autocast(x.device.type, enabled=False):
        x, y = x - (middle := y.mean(1, keepdim=True)), y - middle  # a shift leaves less to cancel
        products = x @ y.transpose(1, 2)
        return (x.square().sum(-1)[:, :, None] + y.square().sum(-1)[:, None, :] - 2 * products).clamp(min=0)


@torch.no_grad()
def nearest(
    asked: Tensor,
    askers: Clouds,
    x: Tensor,
    clouds: Clouds,
    k: int,
    radius: float | None = None,
    dilation: int = 1,
) -> Tensor:
    """The nearest k points of each asking point, nearest first, within its cloud.

    A cloud of fewer than k points gives all of them, again from the nearest one. With a radius, points beyond it are
    replaced by the nearest one: the ball query of PointNet++, which takes those in the ball that are numbered first,
    where this takes the nearest.

    Args:
        asked: where neighbours are looked for `[Q, d]`.
        askers: the clouds of these rows.
        x: points or features `[T, d]`.
        clouds: their clouds, in the blocks of `askers`.
        k: neighbours.
        radius: of the ball; None for any distance.
        dilation: d for every d-th of the nearest dk points, from the nearest one on; in a cloud of fewer points the
            largest d below that it has points for.

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
    for query, points, block in zip(askers.gathered(asked), clouds.gathered(x), clouds.blocks, strict=True):
        size = points.shape[1]
        step = max(1, min(dilation, size // k))
        found = squared_distances(query, points).topk(min(k * step, size), dim=-1, largest=False)
        distance, index = found.values[..., ::step], found.indices[..., ::step]
        if radius is not None:
            index = torch.where(distance > radius**2, index[..., :1], index)
        index = index[..., torch.arange(k, device=index.device) % min(k, size)]
        parts.append(block.rows.gather(1, index.flatten(1)).view(index.shape))
    return askers.to_rows(parts)


@torch.no_grad()
def farthest_points(x: Tensor, clouds: Clouds, count: int | None = None, share: int = 1) -> tuple[Clouds, Tensor]:
    """Points that are far from each other: each is the one farthest from those before it.

    The first is the point farthest from the mean of its cloud, where published code starts with the point numbered
    first or a random one: so the sample depends neither on the numbering nor on anything that is not the cloud. A cloud
    of fewer than `count` points gives all of them.

    Args:
        x: points `[T, c]`.
        clouds: their clouds.
        count: points of each cloud; None for as many as `share` says.
        share: how many points of a cloud there are for each that is kept, rounded up.

    Returns:
        The clouds of the sample, and the rows of its points `[S]`.

    Examples:
        >>> from graphbench.testing import tiny_spec, tiny_table
        >>> batch = tiny_table(tiny_spec(kind="coordinates"), sizes=[4]).batch([0])
        >>> farthest_points(torch.tensor([[0.0], [1.0], [2.0], [9.0]]), Clouds.from_batch(batch), 3)[1]
        tensor([3, 0, 2])
    """
    picked = []
    for points, block in zip(clouds.gathered(x), clouds.blocks, strict=True):
        size = points.shape[1]
        steps = -(-size // share) if count is None else min(count, size)
        chosen = torch.empty(points.shape[0], steps, dtype=torch.int64, device=x.device)
        last = squared_distances(points, points.mean(1, keepdim=True)).squeeze(2).argmax(1)
        distance = torch.full_like(points[..., 0], torch.inf)
        for step in range(steps):
            chosen[:, step] = last
            here = points.gather(1, last[:, None, None].expand(-1, 1, points.shape[2]))
            distance = torch.minimum(distance, (points - here).square().sum(-1))
            last = distance.argmax(1)
        picked.append(block.rows.gather(1, chosen))
    return clouds.sampled(picked)


def interpolated(x: Tensor, pos: Tensor, clouds: Clouds, onto: Tensor, targets: Clouds, k: int = 3) -> Tensor:
    """Features of the nearest k points, weighted by inverse squared distances (PointNet++, equation 2).

    Args:
        x: features `[T, d]`.
        pos: their points `[T, c]`.
        clouds: their clouds.
        onto: points that get features `[Q, c]`.
        targets: their clouds, in the same blocks.
        k: points to weight.

    Returns:
        `[Q, d]`.
    """
    index = nearest(onto, targets, pos, clouds, k)
    weight = 1 / (pos[index] - onto[:, None]).square().sum(-1).clamp(min=1e-10)
    weight = (weight / weight.sum(1, keepdim=True)).to(x.dtype)
    return (weight[:, :, None] * x[index]).sum(1)
