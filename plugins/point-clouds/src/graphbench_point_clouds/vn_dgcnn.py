"""VN-DGCNN: DGCNN of vector neurons; its answer does not change when the cloud is turned.

Deng et al., "Vector Neurons: A General Framework for SO(3)-Equivariant Networks", ICCV 2021, arXiv 2104.12229.

Legend: T points of all clouds, B clouds, k neighbours.
"""

from __future__ import annotations

import torch
from torch import Tensor, nn

from graphbench import BenchmarkSpec
from graphbench.errors import check_range
from graphbench.nn import Pooling
from graphbench_point_clouds.dgcnn import SLOPE
from graphbench_point_clouds.layers import LastMaps, PointMap
from graphbench_point_clouds.model import PointCloudModel, Points
from graphbench_point_clouds.neighbours import nearest
from graphbench_point_clouds.vector_neurons import (
    Frames,
    VectorPool,
    VectorPooling,
    VectorReLU,
    check_space,
    edge_vectors,
    seen_from,
    with_mean,
)
from graphbench_point_clouds.vn_pointnet import channels


class VectorEdgeConv(nn.Module):
    """`x_i' = pool_j h([x_j - x_i, x_i])` over the neighbours j of i; h: one map or two, see `VectorReLU`.

    Args:
        in_dim: channels that come.
        dims: channels after each map.
        pooling: mean or max.
    """

    def __init__(self, in_dim: int, dims: tuple[int, ...], pooling: VectorPooling) -> None:
        super().__init__()
        ins = (2 * in_dim, *dims)
        self.maps = nn.Sequential(*(VectorReLU(a, b, SLOPE) for a, b in zip(ins, dims, strict=False)))
        self.pool = VectorPool(dims[-1], pooling)

    def forward(self, x: Tensor, neighbours: Tensor) -> Tensor:
        """`[T, dims[-1], 3]` of `[T, in_dim, 3]` and `[T, k]`."""
        return self.pool(self.maps(edge_vectors(x, neighbours)))


class VNDGCNN(PointCloudModel):
    """VN-DGCNN (Deng et al., ICCV 2021) for classes of clouds, and its network for parts in tasks of points.

    Only positions are read. Everything up to the invariants turns with the cloud, so that no rotation about the origin
    changes what is returned; clouds are centred. Channels are a third of DGCNN's widths, as in the released code. The
    head is one linear map.

    Time and memory: `B (N^2 d + k N d^2)`, `B (N^2 + k N d)`.

    Args:
        spec: the benchmark's description.
        hidden_dim: width of DGCNN's first convolutions; all others are multiples of it, as published at 64.
        num_neighbors: neighbours k, each point among its own; 20 for 1,024 points, 40 for parts of 2,048.
        pooling: mean, or max along learned directions.
        dropout: probability behind the last maps.

    Raises:
        BadInput: nodes have no position in space, or an option is out of its range.

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
        kept, wide = sum(ins[1:]), channels(16 * h)
        self.embed = VectorReLU(kept, wide, SLOPE, shared=True)
        self.frames = Frames(2 * wide, SLOPE)
        self.category_map: PointMap | None = None
        if self.of_clouds:
            self.last = LastMaps((12 * wide, 8 * h, 4 * h), (dropout, dropout), SLOPE)
            return
        if self.category_dim:
            self.category_map = PointMap(self.category_dim, h, SLOPE, bias=False)
        width = 6 * wide + 3 * kept + (h if self.category_dim else 0)
        self.last = LastMaps((width, 4 * h, 4 * h, 2 * h), (dropout, dropout, 0.0), SLOPE, (False,) * 3)

    def represent_clouds(self, points: Points) -> Tensor:
        """`[B, 4 hidden_dim]`."""
        invariants, _ = self._invariants(points)
        pooled = [
            Pooling(name)(invariants, points.clouds.cloud_of, points.clouds.num_clouds) for name in ("max", "mean")
        ]
        return self.last(torch.cat(pooled, dim=1))

    def represent_points(self, points: Points, categories: Tensor) -> Tensor:
        """`[T, 2 hidden_dim]`."""
        clouds = points.clouds
        invariants, states = self._invariants(points)
        pooled = Pooling("max")(invariants, clouds.cloud_of, clouds.num_clouds)
        parts = [pooled.index_select(0, clouds.cloud_of), states]
        if self.category_map is not None:
            parts.append(self.category_map(categories))
        return self.last(torch.cat(parts, dim=1))

    def _invariants(self, points: Points) -> tuple[Tensor, Tensor]:
        """Of each point what the last map and what all convolutions made of it, as its frame sees it."""
        clouds, x, states = points.clouds, points.pos.to(points.x.dtype)[:, None], []
        for number, layer in enumerate(self.layers):
            places = x.detach().flatten(1) if number else points.pos
            states.append(x := layer(x, nearest(places, clouds, places, clouds, self.num_neighbors)))
        kept = torch.cat(states, dim=1)
        x = with_mean(self.embed(kept), clouds.cloud_of, clouds.num_clouds)
        frames = self.frames(x)
        return seen_from(x, frames), seen_from(kept, frames)
