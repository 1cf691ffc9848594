"""PointCNN: convolutions over neighbours that a learned matrix weights and permutes.

Li, Bu, Sun, Wu, Di and Chen, "PointCNN: Convolution On X-Transformed Points", NeurIPS 2018, arXiv 1801.07791. Sizes are
those released by the authors in May 2018, which give the number of parameters in the paper.

Legend: T points of all clouds, Q queries, B clouds, k neighbours, c coordinates, m numbers per channel.
"""

from __future__ import annotations

from dataclasses import replace
from typing import NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from graphbench import BenchmarkSpec
from graphbench.errors import check_range
from graphbench.nn import BatchNorm, Pooling
from graphbench_point_clouds.clouds import Clouds, farthest_points, nearest
from graphbench_point_clouds.model import PointCloudModel, Points


class Stage(NamedTuple):
    """A convolution down to fewer points: neighbours, dilation, points and width.

    The number of its points is `num_points` divided by `share`; 0 keeps the points of the previous stage. `width` is in
    units of `hidden_dim`.
    """

    neighbours: int
    dilation: int
    share: int
    width: int


class Return(NamedTuple):
    """A convolution back up: neighbours, dilation, and the stage with the queries."""

    neighbours: int
    dilation: int
    stage: int


CLASSES = (Stage(8, 1, 0, 1), Stage(12, 2, 1, 2), Stage(16, 2, 3, 4), Stage(16, 3, 0, 8))
PARTS = (Stage(8, 1, 0, 1), Stage(12, 2, 1, 1), Stage(16, 2, 2, 2), Stage(16, 6, 6, 4))
BACK = (Return(16, 6, 2), Return(12, 6, 1), Return(8, 6, 0), Return(8, 4, 0))
#: m of the first convolution; others use the smallest m that gives their width.
FIRST_MULTIPLIER = 4


class EluMap(nn.Module):
    """`BatchNorm(ELU(W x))` on the last dimension: unlike in `PointMap` the norm comes last, so W has no bias.

    Args:
        in_dim: input width.
        dim: output width.

    Examples:
        >>> EluMap(3, 8)(torch.randn(5, 4, 3)).shape
        torch.Size([5, 4, 8])
    """

    def __init__(self, in_dim: int, dim: int) -> None:
        super().__init__()
        self.linear = nn.Linear(in_dim, dim, bias=False)
        self.norm = BatchNorm(dim)

    def forward(self, x: Tensor) -> Tensor:
        """Map `[..., in_dim]` to `[..., dim]`."""
        x = F.elu(self.linear(x))
        return self.norm(x.flatten(0, -2)).view(x.shape)


class DepthwiseConv(nn.Module):
    """`y_jn = sum_i w_ijn x_ij`: every channel j has its own weights, m for each of k neighbours i.

    Args:
        num_neighbors: k.
        dim: channels.
        multiplier: m.

    Examples:
        >>> DepthwiseConv(4, 6, 2)(torch.randn(5, 4, 6)).shape
        torch.Size([5, 12])
    """

    def __init__(self, num_neighbors: int, dim: int, multiplier: int) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.empty(num_neighbors, dim, multiplier))
        nn.init.uniform_(self.weight, -(num_neighbors**-0.5), num_neighbors**-0.5)  # as for a linear map of k numbers

    def forward(self, x: Tensor) -> Tensor:
        """Map `[Q, k, dim]` to `[Q, dim m]`; the numbers of a channel are adjacent."""
        return torch.einsum("qij,ijn->qjn", x, self.weight).flatten(1)


class XTransform(nn.Module):
    """The matrix that weights and permutes k neighbours, learned from their places.

        X = N(D_2(N(ELU(D_1(N(ELU(W vec([p_1, ..., p_k])))))))

    W gives k^2 numbers; D_1 and D_2 are depthwise convolutions that read them as k rows and k channels, with k numbers
    for each channel, so the channels of one are the rows of the next; N is batch norm.

    Args:
        coordinates: c.
        num_neighbors: k.

    Examples:
        >>> XTransform(3, 4)(torch.randn(5, 4, 3)).shape
        torch.Size([5, 4, 4])
    """

    def __init__(self, coordinates: int, num_neighbors: int) -> None:
        super().__init__()
        k = num_neighbors
        self.first = EluMap(k * coordinates, k * k)
        self.second, self.second_norm = DepthwiseConv(k, k, k), BatchNorm(k * k)
        self.third, self.third_norm = DepthwiseConv(k, k, k), BatchNorm(k * k)

    def forward(self, offsets: Tensor) -> Tensor:
        """Return `[Q, k, k]` for `p_j - p_i` `[Q, k, c]`, nearest first."""
        k = offsets.shape[1]
        # W and D depend on the position of neighbours in the list: the order by distance is part of the input.
        x = self.first(offsets.flatten(1)).unflatten(1, (k, k))
        x = self.second_norm(F.elu(self.second(x))).unflatten(1, (k, k))
        return self.third_norm(self.third(x)).unflatten(1, (k, k))


class XConv(nn.Module):
    """A convolution over neighbours j of queries i, nearest first (algorithm 1).

        x_i' = N(ELU(W D(X [d(p_j - p_i), x_j]_j)))

    d is two maps of places, X the matrix of `XTransform`, D a depthwise convolution; with W after it, it is separable.

    Args:
        coordinates: c.
        in_dim: input width.
        place_dim: width of the maps of places.
        dim: output width.
        num_neighbors: k.
        dilation: near points per neighbour; only the nearest is used.
        multiplier: m of the depthwise convolution; None for the smallest that gives `dim` channels.
    """

    def __init__(
        self,
        coordinates: int,
        in_dim: int,
        place_dim: int,
        dim: int,
        num_neighbors: int,
        dilation: int,
        multiplier: int | None = None,
    ) -> None:
        super().__init__()
        both = place_dim + in_dim
        # Rounded up, so that W never maps fewer channels to more.
        depth = -(-dim // both) if multiplier is None else multiplier
        self.places = nn.Sequential(EluMap(coordinates, place_dim), EluMap(place_dim, place_dim))
        self.transform = XTransform(coordinates, num_neighbors)
        self.depthwise = DepthwiseConv(num_neighbors, both, depth)
        self.out = EluMap(depth * both, dim)
        self.num_neighbors, self.dilation = num_neighbors, dilation

    def forward(self, points: Points, pos: Tensor, clouds: Clouds) -> Tensor:
        """Convolve at the queries `[Q, dim]`.

        Args:
            points: the points.
            pos: queries `[Q, c]`.
            clouds: their clouds, in the same blocks.
        """
        near = nearest(pos, clouds, points.pos, points.clouds, self.num_neighbors, dilation=self.dilation)
        offsets = (points.pos[near] - pos[:, None]).to(points.x.dtype)
        x = torch.cat([self.places(offsets), points.x[near]], dim=-1)
        return self.out(self.depthwise(self.transform(offsets) @ x))


class PointCNN(PointCloudModel):
    """PointCNN (Li et al., NeurIPS 2018) for cloud classification, and its part-segmentation network for point tasks.

    Classes, at a width of 48: convolutions of 48, 96, 192 and 384 over 8, 12, 16 and 16 neighbours of dilation 1, 2, 2
    and 3, at all points, 384, 128 and the same 128; maps of 384 and 192, and their mean. Parts, at a width of 256: 256,
    256, 512 and 1,024 of dilation 1, 2, 2 and 6, at all points, 768, 384 and 128; back to 384, 768 and all points, and
    again at all, each time concatenated with the earlier features; two maps of 256. Both append two maps of the
    position, a quarter as wide, to the last stage. The head is one linear map.

    Time and memory: `B (N^2 + N m + (N + m) d^2)`, `B (N^2 + N m + (N + m) d)`.

    Args:
        spec: the benchmark's description.
        hidden_dim: width of the first convolution; all others are multiples of it. 48 for classes, 256 for parts.
        num_points: points of the second convolution; later ones have a third of them, or for parts a half and a sixth.
            384 for classes, 768 for parts.
        dropout: probability after the last maps; 0.8 for classes, 0.5 for parts.
        use_features: read normals and other features in addition to positions.

    Raises:
        BadInput: nodes have no position, or an option is out of range.

    Examples:
        >>> from graphbench.testing import tiny_batch, tiny_spec
        >>> model = PointCNN(tiny_spec(kind="coordinates"), hidden_dim=4, num_points=6)
        >>> model(tiny_batch(model)).graph.shape  # 4 clouds of a few points
        torch.Size([4, 16])
    """

    def __init__(
        self,
        spec: BenchmarkSpec,
        hidden_dim: int = 48,
        num_points: int = 384,
        dropout: float = 0.8,
        use_features: bool = False,
    ) -> None:
        check_range("num_points", num_points, at_least=1, whole=True)
        super().__init__(spec, 4 * hidden_dim, hidden_dim, use_features)
        c, h, stages = self.coordinates, hidden_dim, CLASSES if self.of_clouds else PARTS
        dims = [h * stage.width for stage in stages]
        #: Points of each stage; 0 for those of the previous stage.
        self.sizes = [max(1, num_points // stage.share) if stage.share else 0 for stage in stages]
        self.features = EluMap(self.feature_dim, _part(h, 2)) if self.feature_dim else None
        start = _part(h, 2) if self.feature_dim else 0
        self.down = nn.ModuleList([XConv(c, start, _part(h, 4 if start else 2), h, *stages[0][:2], FIRST_MULTIPLIER)])
        for before, dim, stage in zip(dims[:-1], dims[1:], stages[1:], strict=True):
            self.down.append(XConv(c, before, _part(before, 4), dim, *stage[:2]))
        beside = _part(dims[-1], 4)
        self.places = nn.Sequential(EluMap(c, beside), EluMap(beside, beside))
        self.dropout = nn.Dropout(dropout)
        if self.of_clouds:
            self.last = nn.Sequential(EluMap(dims[-1] + beside, 8 * h), EluMap(8 * h, 4 * h))
            return
        self.back, self.fuse = nn.ModuleList(), nn.ModuleList()
        width, before = dims[-1] + beside, dims[-1]
        for step in BACK:
            dim = dims[step.stage]
            self.back.append(XConv(c, width, _part(before, 4), dim, *step[:2]))
            self.fuse.append(EluMap(2 * dim, dim))
            width = before = dim
        self.last = nn.Sequential(EluMap(h, h), EluMap(h, h))

    def represent_clouds(self, points: Points) -> Tensor:
        """Represent clouds `[B, 4 hidden_dim]`."""
        top = self._stages(points)[-1]
        pooled = Pooling("mean")(self.last(top.x), top.clouds.cloud_of, top.clouds.num_clouds)
        return self.dropout(pooled)

    def represent_points(self, points: Points, categories: Tensor) -> Tensor:
        """Represent points `[T, hidden_dim]`; categories are ignored, as published."""
        stages = self._stages(points)
        current = stages[-1]
        for conv, fuse, step in zip(self.back, self.fuse, BACK, strict=True):
            target = stages[step.stage]
            x = conv(current, target.pos, target.clouds)
            current = replace(target, x=fuse(torch.cat([x, target.x], dim=1)))
        return self.dropout(self.last(current.x))

    def _stages(self, points: Points) -> list[Points]:
        """Return the points after each stage; the last ones also have features of their positions."""
        if self.features is not None:
            points = replace(points, x=self.features(points.x))
        stages: list[Points] = []
        for conv, size in zip(self.down, self.sizes, strict=True):
            pos, clouds = points.pos, points.clouds
            if size:
                clouds, rows = farthest_points(pos, clouds, size)
                pos = pos[rows]
            points = replace(points, pos=pos, clouds=clouds, x=conv(points, pos, clouds))
            stages.append(points)
        places = self.places(points.pos.to(points.x.dtype))
        return [*stages[:-1], replace(points, x=torch.cat([places, points.x], dim=1))]


def _part(dim: int, share: int) -> int:
    """Divide a width by `share`; at least 1."""
    return max(1, dim // share)
