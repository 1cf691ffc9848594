"""PointConv: convolutions whose weights are a function of places, corrected for the density of the points.

Wu, Qi and Fuxin, "PointConv: Deep Convolutional Networks on 3D Point Clouds", CVPR 2019, arXiv 1811.07246.

Legend: T points of all clouds, S points of a sample, B clouds, k neighbours, m numbers of a weight, c coordinates.
"""

from __future__ import annotations

import math
from dataclasses import replace
from functools import partial

import torch
from torch import Tensor, nn

from graphbench import BenchmarkSpec
from graphbench.errors import BadInput, check_range
from graphbench.nn import Pooling
from graphbench_point_clouds.clouds import Clouds, by_parts, farthest_points, nearest, squared_distances
from graphbench_point_clouds.model import LastMaps, PointCloudModel, PointMap, Points, point_maps

#: Numbers m of a weight: the width of the last map of places.
WEIGHTS = 16


@torch.no_grad()
def inverse_density(pos: Tensor, clouds: Clouds, bandwidth: float) -> Tensor:
    """Compute the inverse mean of Gaussian kernels at all points of the cloud `[T]`, up to a factor that cancels.

    Args:
        pos: `[T, c]`.
        clouds: their clouds.
        bandwidth: standard deviation of the kernels.

    Examples:
        >>> from graphbench.testing import tiny_spec, tiny_table
        >>> batch = tiny_table(tiny_spec(kind="coordinates"), sizes=[3]).batch([0])
        >>> inverse_density(torch.tensor([[0.0], [0.0], [9.0]]), Clouds.from_batch(batch), 0.1)
        tensor([1.5000, 1.5000, 3.0000])
    """

    def density(points: Tensor, part: Tensor) -> Tensor:
        return (squared_distances(part, points) / (-2 * bandwidth**2)).exp().mean(-1, keepdim=True)

    parts = [by_parts(partial(density, points), points, points.shape[1]) for points in clouds.to_blocks(pos)]
    return 1 / clouds.to_rows(parts).squeeze(1)


class DensityConv(nn.Module):
    """Parts of a convolution (equation 4), in the memory-efficient form (section 3.2).

        x_i' = h(W vec(sum_j s_j u([p_j - p_i, x_j]) w(p_j - p_i)^T)),   s_j = sigmoid(t(d_j / max_j d_j))

    u, w and t are maps with batch norm, h is batch norm and ReLU, d_j the inverse density of j.

    Args:
        coordinates: c.
        in_dim: input width.
        dims: widths of u; the last one is the output width.
        bandwidth: bandwidth of the density.
    """

    def __init__(self, coordinates: int, in_dim: int, dims: tuple[int, ...], bandwidth: float) -> None:
        super().__init__()
        self.features = point_maps((coordinates + in_dim, *dims))
        self.places = point_maps((coordinates, 8, 8, WEIGHTS))
        # A slope of 1 means no activation, as the sigmoid follows.
        self.scale, self.scale_out = point_maps((1, 16, 8)), PointMap(8, 1, slope=1.0)
        # Apply W after the sum over neighbours: [m, width] numbers per point instead of a filter per neighbour.
        self.out = PointMap(WEIGHTS * dims[-1], dims[-1])
        self.bandwidth = bandwidth

    def factors(self, offsets: Tensor, x: Tensor, share: Tensor) -> tuple[Tensor, Tensor]:
        """Compute scaled features `[..., dims[-1]]` and weights `[..., m]` of neighbours.

        Args:
            offsets: `p_j - p_i` `[..., c]`.
            x: `[..., in_dim]`.
            share: inverse density over the largest one among the neighbours `[...]`.
        """
        scale = self.scale_out(self.scale(share[..., None])).sigmoid()
        return self.features(torch.cat([offsets, x], dim=-1)) * scale, self.places(offsets)

    def sum_neighbours(self, features: Tensor, weights: Tensor) -> Tensor:
        """Sum `[..., k, dims[-1]]` times `[..., k, m]` over neighbours: `[..., m dims[-1]]`."""
        return (features.transpose(-1, -2) @ weights).flatten(-2)


class SampledConv(DensityConv):
    """The convolution at farthest points over their nearest neighbours.

    Args:
        coordinates, in_dim, dims, bandwidth: see `DensityConv`.
        num_points: points of the sample; all points of a smaller cloud.
        num_neighbors: neighbours k.
    """

    def __init__(
        self,
        coordinates: int,
        in_dim: int,
        dims: tuple[int, ...],
        bandwidth: float,
        num_points: int,
        num_neighbors: int,
    ) -> None:
        super().__init__(coordinates, in_dim, dims, bandwidth)
        self.num_points, self.num_neighbors = num_points, num_neighbors

    def forward(self, points: Points) -> Points:
        """Return the sample, with features `[S, dims[-1]]`."""
        inverse = inverse_density(points.pos, points.clouds, self.bandwidth)
        sample, rows = farthest_points(points.pos, points.clouds, self.num_points)
        pos = points.pos[rows]
        near = nearest(pos, sample, points.pos, points.clouds, self.num_neighbors)
        share = (inverse[near] / inverse[near].amax(1, keepdim=True)).to(points.x.dtype)
        offsets = (points.pos[near] - pos[:, None]).to(points.x.dtype)
        return replace(
            points,
            pos=pos,
            clouds=sample,
            x=self.out(self.sum_neighbours(*self.factors(offsets, points.x[near], share))),
        )


class WholeConv(DensityConv):
    """The convolution over all points of a cloud, using offsets from their mean."""

    def forward(self, points: Points) -> Tensor:
        """Represent clouds `[B, dims[-1]]`."""
        clouds, pos = points.clouds, points.pos
        inverse = inverse_density(pos, clouds, self.bandwidth)
        largest = Pooling("max")(inverse[:, None], clouds.cloud_of, clouds.num_clouds).squeeze(1)
        share = (inverse / largest[clouds.cloud_of]).to(points.x.dtype)
        middle = Pooling("mean")(pos, clouds.cloud_of, clouds.num_clouds)
        offsets = (pos - middle[clouds.cloud_of]).to(points.x.dtype)
        parts = zip(*map(clouds.to_blocks, self.factors(offsets, points.x, share)), strict=True)
        # Blocks group clouds by size; argsort restores the order of the batch.
        sums = torch.cat([self.sum_neighbours(features, weights) for features, weights in parts])
        order = torch.cat([block.clouds for block in clouds.blocks]).argsort()
        return self.out(sums[order])


class PointConv(PointCloudModel):
    """PointConv (Wu et al., CVPR 2019) for cloud classification; its settings for parts were not found.

    With a width of 64: 512 points with maps of 64, 64 and 128 over 32 neighbours, 128 points with maps of 128, 128 and
    256 over 64 neighbours, the whole cloud with maps of 256, 512 and 1,024; then maps of 512 and 256. Bandwidths are
    0.1, 0.2 and 0.4. The head is one linear map.

    Time and memory: `B (N^2 + N m + m k d^2)`, `B (N^2 + N m + m k d)`.

    Args:
        spec: the benchmark's description.
        hidden_dim: width of the first maps; all others are multiples of it, as published for 64.
        num_points: points of the first sample; the second has a quarter of them.
        num_neighbors: neighbours of the first sample; the second has twice as many.
        bandwidth: bandwidth of the first density; the others are twice and four times as wide.
        dropout: probability after the last maps.
        use_features: read normals and other features in addition to positions.

    Raises:
        BadInput: nodes have no position, the task is not a cloud task, or an option is out of range.

    Examples:
        >>> from graphbench.testing import tiny_batch, tiny_spec
        >>> model = PointConv(tiny_spec(kind="coordinates"), hidden_dim=4)
        >>> model(tiny_batch(model)).graph.shape  # 4 clouds of a few points
        torch.Size([4, 16])
    """

    def __init__(
        self,
        spec: BenchmarkSpec,
        hidden_dim: int = 64,
        num_points: int = 512,
        num_neighbors: int = 32,
        bandwidth: float = 0.1,
        dropout: float = 0.7,
        use_features: bool = True,
    ) -> None:
        check_range("num_points", num_points, at_least=1, whole=True)
        check_range("num_neighbors", num_neighbors, at_least=1, whole=True)
        check_range("bandwidth", bandwidth, at_least=1e-12, below=math.inf)
        super().__init__(spec, 4 * hidden_dim, 4 * hidden_dim, use_features)
        if not self.of_clouds:
            raise BadInput(
                f"PointConv supports only tasks of whole clouds, but {spec.name} is {spec.task}. Use PointNetPlusPlus."
            )
        c, h, start = self.coordinates, hidden_dim, self.feature_dim
        fewer = max(1, num_points // 4)
        self.near = SampledConv(c, start, (h, h, 2 * h), bandwidth, num_points, num_neighbors)
        self.far = SampledConv(c, 2 * h, (2 * h, 2 * h, 4 * h), 2 * bandwidth, fewer, 2 * num_neighbors)
        self.whole = WholeConv(c, 4 * h, (4 * h, 8 * h, 16 * h), 4 * bandwidth)
        self.last = LastMaps((16 * h, 8 * h, 4 * h), (dropout, dropout))

    def represent_clouds(self, points: Points) -> Tensor:
        """Represent clouds `[B, 4 hidden_dim]`."""
        with torch.autocast(points.pos.device.type, enabled=False):  # gradients of the products overflow float16
            pooled = self.whole(self.far(self.near(points)))
        return self.last(pooled)
