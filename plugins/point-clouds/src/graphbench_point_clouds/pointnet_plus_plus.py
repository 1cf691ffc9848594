"""PointNet++: PointNet on balls around fewer and fewer points, and interpolation back to all points.

Qi, Yi, Su and Guibas, "PointNet++: Deep Hierarchical Feature Learning on Point Sets in a Metric Space", NeurIPS 2017,
arXiv 1706.02413.

Legend: T points of all clouds, S points of a sample of all clouds, B clouds, k points of a ball, c coordinates.
"""

from __future__ import annotations

import math
from dataclasses import replace

import torch
from torch import Tensor, nn

from graphbench import BenchmarkSpec
from graphbench.errors import check_range
from graphbench.nn import Pooling
from graphbench_point_clouds.clouds import farthest_points, interpolate, nearest
from graphbench_point_clouds.model import LastMaps, PointCloudModel, Points, point_maps


class SetAbstraction(nn.Module):
    """Sample farthest points and compute, for each, the maximum of maps over the ball around it, using offsets.

        x_i' = max_j MLP([p_j - p_i, x_j])  over points j in the ball around p_i

    Args:
        coordinates: c.
        in_dim: input width.
        dims: width after each map.
        num_points: points of the sample; all points of a smaller cloud.
        radius: radius of the balls.
        num_neighbors: points k of each ball.
    """

    def __init__(
        self, coordinates: int, in_dim: int, dims: tuple[int, ...], num_points: int, radius: float, num_neighbors: int
    ) -> None:
        super().__init__()
        self.maps = point_maps((coordinates + in_dim, *dims))
        self.num_points, self.radius, self.num_neighbors = num_points, radius, num_neighbors

    def forward(self, points: Points) -> Points:
        """Return the sample, with features `[S, dims[-1]]`."""
        sample, rows = farthest_points(points.pos, points.clouds, self.num_points)
        pos = points.pos[rows]
        ball = nearest(pos, sample, points.pos, points.clouds, self.num_neighbors, self.radius)
        # In the precision of the data: bfloat16 would lose the difference of close points.
        offsets = (points.pos[ball] - pos[:, None]).to(points.x.dtype)
        x = self.maps(torch.cat([offsets, points.x[ball]], dim=-1)).amax(1)
        return replace(points, pos=pos, x=x, clouds=sample)


class WholeCloud(nn.Module):
    """The maximum of maps over all points of a cloud `[B, dims[-1]]`: the last set abstraction.

    Args:
        in_dim: width of positions and features.
        dims: width after each map.
    """

    def __init__(self, in_dim: int, dims: tuple[int, ...]) -> None:
        super().__init__()
        self.maps = point_maps((in_dim, *dims))

    def forward(self, points: Points) -> Tensor:
        """Represent clouds `[B, dims[-1]]`."""
        return Pooling("max")(self.maps(points.features), points.clouds.cloud_of, points.clouds.num_clouds)


class PointNetPlusPlus(PointCloudModel):
    """PointNet++ with balls of one size (SSG; Qi et al., NeurIPS 2017), for clouds and for points.

    With a width of 64, maps of 64, 64 and 128 in balls around 512 points, of 128, 128 and 256 around 128 points, of
    256, 512 and 1,024 over the whole cloud. Clouds: maps of 512 and 256. Points: interpolation back from the nearest
    three points, each time concatenated with the earlier features, with maps of 256 and 256, 256 and 128, three of 128,
    and a last one of 128. The head is one linear map.

    Time and memory: `B (N m + N d^2 + m k d^2)`, `B (N m + N d + m k d)`.

    Args:
        spec: the benchmark's description.
        hidden_dim: width of the first maps; all others are multiples of it, as published for 64.
        radius: radius of the first balls, for clouds of radius 1; the second balls are twice as large.
        num_points: points of the first sample; the second has a quarter of them.
        num_neighbors: points of the first balls.
        dropout: probability after the last maps.
        use_features: read normals and other features in addition to positions.
        num_far_neighbors: points of the second balls.

    Raises:
        BadInput: nodes have no position, or an option is out of range.

    Examples:
        >>> from graphbench.testing import tiny_batch, tiny_spec
        >>> model = PointNetPlusPlus(tiny_spec(kind="coordinates"), hidden_dim=4, num_points=8)
        >>> model(tiny_batch(model)).graph.shape  # 4 clouds of a few points
        torch.Size([4, 16])
    """

    def __init__(
        self,
        spec: BenchmarkSpec,
        hidden_dim: int = 64,
        radius: float = 0.2,
        num_points: int = 512,
        num_neighbors: int = 32,
        dropout: float = 0.5,
        use_features: bool = False,
        num_far_neighbors: int = 64,
    ) -> None:
        check_range("radius", radius, at_least=1e-12, below=math.inf)
        check_range("num_points", num_points, at_least=1, whole=True)
        check_range("num_neighbors", num_neighbors, at_least=1, whole=True)
        check_range("num_far_neighbors", num_far_neighbors, at_least=1, whole=True)
        super().__init__(spec, 4 * hidden_dim, 2 * hidden_dim, use_features)
        h, c, start = hidden_dim, self.coordinates, self.feature_dim
        fewer, wider = max(1, num_points // 4), 2 * radius
        self.near = SetAbstraction(c, start, (h, h, 2 * h), num_points, radius, num_neighbors)
        self.far = SetAbstraction(c, 2 * h, (2 * h, 2 * h, 4 * h), fewer, wider, num_far_neighbors)
        self.whole = WholeCloud(c + 4 * h, (4 * h, 8 * h, 16 * h))
        if self.of_clouds:
            self.last = LastMaps((16 * h, 8 * h, 4 * h), (dropout, dropout))
            return
        self.onto_far = point_maps((20 * h, 4 * h, 4 * h))
        self.onto_near = point_maps((6 * h, 4 * h, 2 * h))
        self.onto_all = point_maps((2 * h + c + start + self.category_dim, 2 * h, 2 * h, 2 * h))
        self.last = LastMaps((2 * h, 2 * h), (dropout,))

    def represent_clouds(self, points: Points) -> Tensor:
        """Represent clouds `[B, 4 hidden_dim]`."""
        return self.last(self.whole(self.far(self.near(points))))

    def represent_points(self, points: Points, categories: Tensor) -> Tensor:
        """Represent points `[T, 2 hidden_dim]`."""
        near = self.near(points)
        far = self.far(near)
        # From one point (the whole cloud) to 128: interpolation is a copy.
        shared = self.whole(far).index_select(0, far.clouds.cloud_of)
        far = replace(far, x=self.onto_far(torch.cat([shared, far.x], dim=1)))
        near = replace(near, x=self.onto_near(torch.cat([_interpolate(far, near), near.x], dim=1)))
        x = torch.cat([_interpolate(near, points), categories, points.features], dim=1)
        return self.last(self.onto_all(x))


def _interpolate(source: Points, target: Points) -> Tensor:
    """Interpolate features of the source at the points of the target."""
    return interpolate(source.x, source.pos, source.clouds, target.pos, target.clouds)
