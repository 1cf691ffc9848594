"""DGCNN: convolutions over edges to the nearest neighbours, which every layer recomputes from its features.

Wang, Sun, Liu, Sarma, Bronstein and Solomon, "Dynamic Graph CNN for Learning on Point Clouds", ACM Transactions on
Graphics 2019, arXiv 1801.07829.

Legend: T points of all clouds, B clouds, k neighbours.
"""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from graphbench import BenchmarkSpec
from graphbench.errors import check_range
from graphbench.nn import Pooling
from graphbench_point_clouds.clouds import Clouds, nearest
from graphbench_point_clouds.model import LastMaps, PointCloudModel, PointMap, Points, point_maps

SLOPE = 0.2


class EdgeConv(nn.Module):
    """`x_i' = max_j h(W [x_j - x_i, x_i])` over the neighbours j of i; h: batch norm, LeakyReLU, further maps.

    W is applied to points instead of edges, `W_1 x_j + (W_2 - W_1) x_i`, the same with k times fewer products.

    Args:
        in_dim: input width.
        dims: width after W, and after each further map.

    Examples:
        >>> EdgeConv(3, (8, 16))(torch.randn(4, 3), torch.tensor([[0, 1], [1, 0], [2, 3], [3, 2]])).shape
        torch.Size([4, 16])
    """

    def __init__(self, in_dim: int, dims: tuple[int, ...]) -> None:
        super().__init__()
        self.first = PointMap(2 * in_dim, dims[0], SLOPE, bias=False)
        self.further = point_maps(dims, SLOPE, bias=False)

    def forward(self, x: Tensor, neighbours: Tensor) -> Tensor:
        """Return points `[T, dims[-1]]` of points `[T, in_dim]` and their neighbours `[T, k]`."""
        ahead, centre = self.first.linear.weight.chunk(2, dim=1)
        edges = F.linear(x, ahead)[neighbours] + F.linear(x, centre - ahead)[:, None]
        # The maximum cannot come first: a norm with a negative scale reverses the order of neighbours.
        return self.further(self.first.activate(edges)).amax(1)


class EdgeTNet(nn.Module):
    """DGCNN's T-net: as PointNet's, but over edges of the nearest neighbours; initially the identity.

    Args:
        dim: rows and columns of the matrix.
        width: width of the first map; the others are 2, 16, 8 and 4 times as wide.
    """

    def __init__(self, dim: int, width: int) -> None:
        super().__init__()
        self.dim = dim
        self.edges = EdgeConv(dim, (width, 2 * width))
        self.points = PointMap(2 * width, 16 * width, SLOPE, bias=False)
        self.cloud_maps = point_maps((16 * width, 8 * width, 4 * width), SLOPE, bias=False)
        self.out = nn.Linear(4 * width, dim * dim)
        nn.init.zeros_(self.out.weight)
        nn.init.zeros_(self.out.bias)

    def forward(self, x: Tensor, neighbours: Tensor, clouds: Clouds) -> Tensor:
        """Return matrices `[B, dim, dim]` for rows `[T, dim]` and their neighbours `[T, k]`."""
        pooled = Pooling("max")(self.points(self.edges(x, neighbours)), clouds.cloud_of, clouds.num_clouds)
        change = self.out(self.cloud_maps(pooled)).view(-1, self.dim, self.dim)
        return change + torch.eye(self.dim, dtype=change.dtype, device=change.device)


class DGCNN(PointCloudModel):
    """DGCNN (Wang et al., 2019) for cloud classification, and its part-segmentation network for point tasks.

    With a width of 64, clouds: edge convolutions of 64, 64, 128 and 256, concatenated and mapped to 1,024, maximum and
    mean, maps of 512 and 256. Points: a T-net, edge convolutions of 64 and 64, 64 and 64, and 64, mapped to 1,024; the
    maximum and the category (mapped to 64) with the three convolutions, maps of 256, 256 and 128. The first neighbours
    are those of the positions, later ones those of the features. The head is one linear map.

    Time and memory: `B (N^2 d + k N d^2)`, `B (N^2 + k N d)`.

    Args:
        spec: the benchmark's description.
        hidden_dim: width of the first convolutions; all others are multiples of it, as published for 64.
        num_neighbors: neighbours k, including the point itself; 20 for 1,024 points, 40 for parts of 2,048.
        dropout: probability after the last maps.
        input_transform: align positions with a T-net, in point tasks only.
        use_features: read normals and other features in addition to positions.

    Raises:
        BadInput: nodes have no position, or an option is out of range.

    Examples:
        >>> from graphbench.testing import tiny_batch, tiny_spec
        >>> model = DGCNN(tiny_spec(kind="coordinates"), hidden_dim=4)
        >>> model(tiny_batch(model)).graph.shape  # 4 clouds of a few points
        torch.Size([4, 16])
    """

    def __init__(
        self,
        spec: BenchmarkSpec,
        hidden_dim: int = 64,
        num_neighbors: int = 20,
        dropout: float = 0.5,
        input_transform: bool = True,
        use_features: bool = False,
    ) -> None:
        check_range("num_neighbors", num_neighbors, at_least=1, whole=True)
        super().__init__(spec, 4 * hidden_dim, 2 * hidden_dim, use_features)
        self.num_neighbors = num_neighbors
        h, start = hidden_dim, self.coordinates + self.feature_dim
        layers = ((h,), (h,), (2 * h,), (4 * h,)) if self.of_clouds else ((h, h), (h, h), (h,))
        ins = (start, *(dims[-1] for dims in layers))
        self.layers = nn.ModuleList(EdgeConv(width, dims) for width, dims in zip(ins, layers, strict=False))
        self.embed = PointMap(sum(ins[1:]), 16 * h, SLOPE, bias=False)
        self.align_input: EdgeTNet | None = None
        self.category_map: PointMap | None = None
        if self.of_clouds:
            # In the released classifier only the second of the two maps has a bias.
            self.last = LastMaps((32 * h, 8 * h, 4 * h), (dropout, dropout), SLOPE, (False, True))
            return
        if input_transform:
            self.align_input = EdgeTNet(self.coordinates, h)
        if self.category_dim:
            self.category_map = PointMap(self.category_dim, h, SLOPE, bias=False)
        width = 16 * h + sum(ins[1:]) + (h if self.category_dim else 0)
        self.last = LastMaps((width, 4 * h, 4 * h, 2 * h), (dropout, dropout, 0.0), SLOPE, (False,) * 3)

    def represent_clouds(self, points: Points) -> Tensor:
        """Represent clouds `[B, 4 hidden_dim]`."""
        x = self.embed(self._convolve(points))
        pooled = [Pooling(name)(x, points.clouds.cloud_of, points.clouds.num_clouds) for name in ("max", "mean")]
        return self.last(torch.cat(pooled, dim=1))

    def represent_points(self, points: Points, categories: Tensor) -> Tensor:
        """Represent points `[T, 2 hidden_dim]`."""
        clouds, x = points.clouds, self._convolve(points)
        pooled = Pooling("max")(self.embed(x), clouds.cloud_of, clouds.num_clouds)
        parts = [pooled.index_select(0, clouds.cloud_of), x]
        if self.category_map is not None:
            parts.append(self.category_map(categories))
        return self.last(torch.cat(parts, dim=1))

    def _convolve(self, points: Points) -> Tensor:
        """Run all edge convolutions and join their outputs `[T, w]`."""
        clouds, pos, x = points.clouds, points.pos, points.features
        neighbours = nearest(pos, clouds, pos, clouds, self.num_neighbors)
        if self.align_input is not None:
            # Align only positions: the matrix is not a rotation, and would distort normals.
            places, features = x.split([self.coordinates, self.feature_dim], dim=1)
            places = clouds.transform(places, self.align_input(places, neighbours, clouds))
            neighbours = nearest(places, clouds, places, clouds, self.num_neighbors)
            x = torch.cat([places, features], dim=1)
        # The dynamic graph: neighbours in space for the first layer, in the previous layer's features for others.
        states: list[Tensor] = []
        for layer in self.layers:
            if states:
                neighbours = nearest(x, clouds, x, clouds, self.num_neighbors)
            states.append(x := layer(x, neighbours))
        return torch.cat(states, dim=1)
