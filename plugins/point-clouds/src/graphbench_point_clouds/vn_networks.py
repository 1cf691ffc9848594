"""VN-PointNet and VN-DGCNN: networks of vector neurons, invariant to rotations of the cloud.

Deng et al., "Vector Neurons: A General Framework for SO(3)-Equivariant Networks", ICCV 2021, arXiv 2104.12229.

Legend: T points of all clouds, B clouds, k neighbours.
"""

from __future__ import annotations

from itertools import pairwise

import torch
from torch import Tensor, nn

from graphbench import BenchmarkSpec
from graphbench.errors import check_range
from graphbench.nn import Pooling
from graphbench_point_clouds.clouds import Clouds, nearest
from graphbench_point_clouds.dgcnn import SLOPE
from graphbench_point_clouds.model import LastMaps, PointCloudModel, PointMap, Points
from graphbench_point_clouds.vector_neurons import (
    Frames,
    VectorMap,
    VectorNorm,
    VectorPool,
    VectorPooling,
    VectorReLU,
    add_mean,
    check_space,
    edge_vectors,
    project,
)

#: VN-PointNet has ReLUs, VN-DGCNN the leaky ones of DGCNN.
_RELU = 0.0


def channels(width: int) -> int:
    """Return the number of vectors that replace `width` numbers: a third, at least one."""
    return max(1, width // 3)


class VectorTNet(nn.Module):
    """Vectors of a whole cloud `[B, dim, 3]`, concatenated to each point in place of PointNet's alignment.

    Args:
        dim: channels of points and of the result.
        width: width of PointNet's first map; the channels here are a third of 1, 2, 16, 8 and 4 times this width.
        pooling: mean or max.
    """

    def __init__(self, dim: int, width: int, pooling: VectorPooling) -> None:
        super().__init__()
        dims = [dim, channels(width), channels(2 * width), channels(16 * width)]
        self.point_maps = nn.Sequential(*(VectorReLU(a, b, _RELU) for a, b in pairwise(dims)))
        self.pool = VectorPool(dims[-1], pooling)
        self.cloud_maps = nn.Sequential(
            VectorReLU(dims[-1], channels(8 * width), _RELU),
            VectorReLU(channels(8 * width), channels(4 * width), _RELU),
            VectorMap(channels(4 * width), dim),
        )

    def forward(self, x: Tensor, clouds: Clouds) -> Tensor:
        """Return vectors `[B, dim, 3]` of points `[T, dim, 3]`."""
        return self.cloud_maps(self.pool.of_clouds(self.point_maps(x), clouds.cloud_of, clouds.num_clouds))


class VNPointNet(PointCloudModel):
    """VN-PointNet (Deng et al., ICCV 2021) for cloud classification, and its part-segmentation network for point tasks.

    Only positions are read, first as differences, places and cross products of nearest neighbours. Everything up to the
    invariants rotates with the cloud, so the result is invariant to rotations about the origin; clouds are centred.
    Channels are a third of PointNet's widths, as in the released code. The head is one linear map.

    Time and memory: `B (N^2 + k N d^2)`, `B (N^2 + k N d)`.

    Args:
        spec: the benchmark's description.
        hidden_dim: width of PointNet's first maps; all others are multiples of it, as published for 64.
        num_neighbors: neighbours k of the first map.
        pooling: mean, or max along learned directions.
        dropout: probability in the last maps: for clouds between the second one and its norm (0.4 in the released
            code), for points after each except the last (0 there).
        feature_transform: concatenate vectors of the whole cloud to each point, instead of PointNet's T-net.

    Raises:
        BadInput: nodes have no position in space, or an option is out of range.

    Examples:
        >>> from graphbench.testing import tiny_batch, tiny_spec
        >>> model = VNPointNet(tiny_spec(kind="coordinates"), hidden_dim=12)
        >>> model(tiny_batch(model)).graph.shape  # 4 clouds of a few points
        torch.Size([4, 48])
    """

    def __init__(
        self,
        spec: BenchmarkSpec,
        hidden_dim: int = 64,
        num_neighbors: int = 20,
        pooling: VectorPooling = "mean",
        dropout: float = 0.4,
        feature_transform: bool = True,
    ) -> None:
        check_range("num_neighbors", num_neighbors, at_least=1, whole=True)
        super().__init__(spec, 4 * hidden_dim, 2 * hidden_dim, use_features=False)
        check_space(type(self).__name__, spec)
        self.num_neighbors = num_neighbors
        h = hidden_dim
        small, medium = channels(h), channels(2 * h)
        before = (small,) if self.of_clouds else (small, medium, medium)
        middle, wide = (medium, channels(16 * h)) if self.of_clouds else (channels(8 * h), channels(32 * h))
        self.edges = VectorReLU(3, small, _RELU)
        self.pool = VectorPool(small, pooling)
        ins = (small, *before)
        self.before = nn.ModuleList(VectorReLU(a, b, _RELU) for a, b in zip(ins, before, strict=False))
        self.align = VectorTNet(before[-1], h, pooling) if feature_transform else None
        self.middle = VectorReLU(before[-1] * (2 if feature_transform else 1), middle, _RELU)
        # A norm without a rectifier after the last map, as in the released code.
        self.wide, self.wide_norm = VectorMap(middle, wide), VectorNorm(wide)
        self.frames = Frames(2 * wide, _RELU)
        if self.of_clouds:
            self.last = LastMaps((6 * wide, 8 * h, 4 * h), (0.0, dropout), before_norm=True)
        else:
            width = 3 * (sum(before) + middle) + 2 * 6 * wide
            self.last = LastMaps((width + self.category_dim, 4 * h, 4 * h, 2 * h), (dropout, dropout, 0.0))

    def represent_clouds(self, points: Points) -> Tensor:
        """Represent clouds `[B, 4 hidden_dim]`."""
        pooled, _ = self._invariants(points)
        return self.last(pooled)

    def represent_points(self, points: Points, categories: Tensor) -> Tensor:
        """Represent points `[T, 2 hidden_dim]`."""
        pooled, states = self._invariants(points)
        return self.last(torch.cat([*states, pooled.index_select(0, points.clouds.cloud_of), categories], dim=1))

    def _invariants(self, points: Points) -> tuple[Tensor, list[Tensor]]:
        """Return the maximum over each cloud, and each point after every map, in its frame."""
        clouds, pos = points.clouds, points.pos
        neighbours = nearest(pos, clouds, pos, clouds, self.num_neighbors)
        x = self.pool(self.edges(edge_vectors(pos.to(points.x.dtype)[:, None], neighbours, cross=True)))
        states = [x := layer(x) for layer in self.before]
        if self.align is not None:
            x = torch.cat([x, self.align(x, clouds)[clouds.cloud_of]], dim=1)
        states.append(x := self.middle(x))
        x = add_mean(self.wide_norm(self.wide(x)), clouds.cloud_of, clouds.num_clouds)
        frames = self.frames(x)
        # From here on numbers are invariant, and plain maxima and maps are safe.
        invariants = [project(state, frames) for state in (*states, x)]
        return Pooling("max")(invariants[-1], clouds.cloud_of, clouds.num_clouds), invariants


class VectorEdgeConv(nn.Module):
    """`x_i' = pool_j h([x_j - x_i, x_i])` over the neighbours j of i; h: one map or two, see `VectorReLU`.

    Args:
        in_dim: input channels.
        dims: channels after each map.
        pooling: mean or max.
    """

    def __init__(self, in_dim: int, dims: tuple[int, ...], pooling: VectorPooling) -> None:
        super().__init__()
        ins = (2 * in_dim, *dims)
        self.maps = nn.Sequential(*(VectorReLU(a, b, SLOPE) for a, b in zip(ins, dims, strict=False)))
        self.pool = VectorPool(dims[-1], pooling)

    def forward(self, x: Tensor, neighbours: Tensor) -> Tensor:
        """Map `[T, in_dim, 3]` and neighbours `[T, k]` to `[T, dims[-1], 3]`."""
        return self.pool(self.maps(edge_vectors(x, neighbours)))


class VNDGCNN(PointCloudModel):
    """VN-DGCNN (Deng et al., ICCV 2021) for cloud classification, and its part-segmentation network for point tasks.

    Only positions are read. Everything up to the invariants rotates with the cloud, so the result is invariant to
    rotations about the origin; clouds are centred. Channels are a third of DGCNN's widths, as in the released code. The
    head is one linear map.

    Time and memory: `B (N^2 d + k N d^2)`, `B (N^2 + k N d)`.

    Args:
        spec: the benchmark's description.
        hidden_dim: width of DGCNN's first convolutions; all others are multiples of it, as published for 64.
        num_neighbors: neighbours k, including the point itself; 20 for 1,024 points, 40 for parts of 2,048.
        pooling: mean, or max along learned directions.
        dropout: probability after the last maps.

    Raises:
        BadInput: nodes have no position in space, or an option is out of range.

    Examples:
        >>> from graphbench.testing import tiny_batch, tiny_spec
        >>> model = VNDGCNN(tiny_spec(kind="coordinates"), hidden_dim=12)
        >>> model(tiny_batch(model)).graph.shape  # 4 clouds of a few points
        torch.Size([4, 48])
    """

    def __init__(
        self,
        spec: BenchmarkSpec,
        hidden_dim: int = 64,
        num_neighbors: int = 20,
        pooling: VectorPooling = "mean",
        dropout: float = 0.5,
    ) -> None:
        check_range("num_neighbors", num_neighbors, at_least=1, whole=True)
        super().__init__(spec, 4 * hidden_dim, 2 * hidden_dim, use_features=False)
        check_space(type(self).__name__, spec)
        self.num_neighbors = num_neighbors
        h, a = hidden_dim, channels(hidden_dim)
        layers = ((a,), (a,), (channels(2 * h),), (channels(4 * h),)) if self.of_clouds else ((a, a), (a, a), (a,))
        ins = (1, *(dims[-1] for dims in layers))
        self.layers = nn.ModuleList(VectorEdgeConv(i, dims, pooling) for i, dims in zip(ins, layers, strict=False))
        joined, wide = sum(ins[1:]), channels(16 * h)
        # One direction for all channels, as in the released code.
        self.embed = VectorReLU(joined, wide, SLOPE, shared=True)
        self.frames = Frames(2 * wide, SLOPE)
        self.category_map: PointMap | None = None
        if self.of_clouds:
            self.last = LastMaps((12 * wide, 8 * h, 4 * h), (dropout, dropout), SLOPE)
            return
        if self.category_dim:
            self.category_map = PointMap(self.category_dim, h, SLOPE, bias=False)
        width = 6 * wide + 3 * joined + (h if self.category_dim else 0)
        self.last = LastMaps((width, 4 * h, 4 * h, 2 * h), (dropout, dropout, 0.0), SLOPE, (False,) * 3)

    def represent_clouds(self, points: Points) -> Tensor:
        """Represent clouds `[B, 4 hidden_dim]`."""
        invariants, _ = self._invariants(points)
        pooled = [
            Pooling(name)(invariants, points.clouds.cloud_of, points.clouds.num_clouds) for name in ("max", "mean")
        ]
        return self.last(torch.cat(pooled, dim=1))

    def represent_points(self, points: Points, categories: Tensor) -> Tensor:
        """Represent points `[T, 2 hidden_dim]`."""
        clouds = points.clouds
        invariants, states = self._invariants(points)
        pooled = Pooling("max")(invariants, clouds.cloud_of, clouds.num_clouds)
        parts = [pooled.index_select(0, clouds.cloud_of), states]
        if self.category_map is not None:
            parts.append(self.category_map(categories))
        return self.last(torch.cat(parts, dim=1))

    def _invariants(self, points: Points) -> tuple[Tensor, Tensor]:
        """Return each point after the last map, and after all convolutions, in its frame."""
        clouds, x, states = points.clouds, points.pos.to(points.x.dtype)[:, None], []
        for number, layer in enumerate(self.layers):
            # Distances of lists of vectors are the same in a rotated cloud, and so are neighbours.
            places = x.flatten(1) if number else points.pos
            states.append(x := layer(x, nearest(places, clouds, places, clouds, self.num_neighbors)))
        joined = torch.cat(states, dim=1)
        x = add_mean(self.embed(joined), clouds.cloud_of, clouds.num_clouds)
        frames = self.frames(x)
        return project(x, frames), project(joined, frames)
