"""Point Transformer: attention to nearest neighbours with a weight per channel, on fewer and fewer points.

Zhao, Jiang, Jia, Torr and Koltun, "Point Transformer", ICCV 2021, arXiv 2012.09164.

Legend: T points of all clouds, B clouds, k neighbours, c coordinates.
"""

from __future__ import annotations

from dataclasses import replace
from itertools import pairwise

import torch
from torch import Tensor, nn

from graphbench import BenchmarkSpec
from graphbench.errors import check_range
from graphbench.nn import BatchNorm, Pooling
from graphbench_point_clouds.clouds import farthest_points, interpolate, nearest
from graphbench_point_clouds.model import LastMaps, PointCloudModel, PointMap, Points

#: Ratio of the points of one stage to those of the next, and number of stages.
SHARE, STAGES = 4, 5


class VectorAttention(nn.Module):
    """Attention to neighbours j of i, with a softmax over them for each channel (equation 3).

        y_i = sum_j softmax_j(gamma(phi(x_i) - psi(x_j) + delta_ij)) * (alpha(x_j) + delta_ij)
        delta_ij = theta(p_i - p_j)

    phi, psi and alpha are linear; gamma and theta are two linear maps with ReLU between them.

    Args:
        coordinates: c.
        dim: width.
    """

    def __init__(self, coordinates: int, dim: int) -> None:
        super().__init__()
        self.query, self.key, self.value = nn.Linear(dim, dim), nn.Linear(dim, dim), nn.Linear(dim, dim)
        self.place = nn.Sequential(nn.Linear(coordinates, dim), nn.ReLU(), nn.Linear(dim, dim))
        self.weigh = nn.Sequential(nn.Linear(dim, dim), nn.ReLU(), nn.Linear(dim, dim))

    def forward(self, x: Tensor, offsets: Tensor, neighbours: Tensor) -> Tensor:
        """Return attention outputs `[T, dim]`.

        Args:
            x: `[T, dim]`.
            offsets: `p_i - p_j` of the neighbours `[T, k, c]`.
            neighbours: `[T, k]`.
        """
        # delta is added to scores and values ("position encoding", section 3.3).
        delta = self.place(offsets)
        scores = self.weigh(self.query(x)[:, None] - self.key(x)[neighbours] + delta)
        # A softmax over the neighbours in each channel, unscaled since there are no dot products.
        return (scores.softmax(1) * (self.value(x)[neighbours] + delta)).sum(1)


class TransformerBlock(nn.Module):
    """A map, attention and a map, with batch norms, and a residual around them (figure 4a).

    Args:
        coordinates: c.
        dim: width.
        num_neighbors: neighbours k, including the point itself.
    """

    def __init__(self, coordinates: int, dim: int, num_neighbors: int) -> None:
        super().__init__()
        self.before = PointMap(dim, dim, bias=False)
        self.attention, self.norm = VectorAttention(coordinates, dim), BatchNorm(dim)
        self.after, self.after_norm = nn.Linear(dim, dim, bias=False), BatchNorm(dim)
        self.num_neighbors = num_neighbors

    def forward(self, points: Points) -> Points:
        """Return the points with new features."""
        near = nearest(points.pos, points.clouds, points.pos, points.clouds, self.num_neighbors)
        offsets = (points.pos[:, None] - points.pos[near]).to(points.x.dtype)
        x = self.norm(self.attention(self.before(points.x), offsets, near)).relu()
        return replace(points, x=(points.x + self.after_norm(self.after(x))).relu())


class TransitionDown(nn.Module):
    """Sample a quarter of the points, far apart, with the maximum of a map of their neighbours (figure 4b).

    Args:
        in_dim: input width.
        dim: output width.
        num_neighbors: neighbours k.
    """

    def __init__(self, in_dim: int, dim: int, num_neighbors: int) -> None:
        super().__init__()
        self.map = PointMap(in_dim, dim, bias=False)
        self.num_neighbors = num_neighbors

    def forward(self, points: Points) -> Points:
        """Return the sample with new features."""
        sample, rows = farthest_points(points.pos, points.clouds, share=SHARE)
        pos = points.pos[rows]
        near = nearest(pos, sample, points.pos, points.clouds, self.num_neighbors)
        # Map, then gather: T products instead of S k, and the norm counts each point once.
        return replace(points, pos=pos, x=self.map(points.x)[near].amax(1), clouds=sample)


class TransitionUp(nn.Module):
    """Interpolate features of fewer points and add earlier features of all points, each mapped (figure 4c).

    Args:
        in_dim: width for the fewer points.
        dim: width for the larger set, and of the output.
    """

    def __init__(self, in_dim: int, dim: int) -> None:
        super().__init__()
        self.fewer, self.more = PointMap(in_dim, dim), PointMap(dim, dim)

    def forward(self, fewer: Points, more: Points) -> Points:
        """Return the larger set of points with new features."""
        carried = interpolate(self.fewer(fewer.x), fewer.pos, fewer.clouds, more.pos, more.clouds)
        return replace(more, x=self.more(more.x) + carried)


class PointTransformer(PointCloudModel):
    """Point Transformer (Zhao et al., ICCV 2021) for cloud classification, and its part segmentation for point tasks.

    Five stages with all points, a quarter of them, a sixteenth and so on, of widths 32, 64, 128, 256 and 512 and one
    block each. Clouds: the mean, maps of 256 and 128. Points: a map of the last stage, then back up with a block on
    each stage, and a last map of 32, with the category. The head is one linear map.

    Time and memory: `B (N^2 + k N d^2)`, `B (N^2 + k N d)`.

    Args:
        spec: the benchmark's description.
        hidden_dim: width of the first stage; all others are multiples of it, as published for 32.
        num_neighbors: neighbours k, including the point itself.
        dropout: probability after the last maps.
        use_features: read normals and other features in addition to positions.

    Raises:
        BadInput: nodes have no position, or an option is out of range.

    Examples:
        >>> from graphbench.testing import tiny_batch, tiny_spec
        >>> model = PointTransformer(tiny_spec(kind="coordinates"), hidden_dim=4)
        >>> model(tiny_batch(model)).graph.shape  # 4 clouds of a few points
        torch.Size([4, 16])
    """

    def __init__(
        self,
        spec: BenchmarkSpec,
        hidden_dim: int = 32,
        num_neighbors: int = 16,
        dropout: float = 0.5,
        use_features: bool = True,
    ) -> None:
        check_range("num_neighbors", num_neighbors, at_least=1, whole=True)
        super().__init__(spec, 4 * hidden_dim, hidden_dim, use_features)
        c, h, k = self.coordinates, hidden_dim, num_neighbors
        dims = [h * 2**stage for stage in range(STAGES)]
        self.first = PointMap(c + self.feature_dim, h)
        self.blocks = nn.ModuleList(TransformerBlock(c, dim, k) for dim in dims)
        self.down = nn.ModuleList(TransitionDown(a, b, k) for a, b in pairwise(dims))
        if self.of_clouds:
            self.last = LastMaps((dims[-1], 8 * h, 4 * h), (dropout, dropout))
            return
        self.top = PointMap(dims[-1], dims[-1])
        self.top_block = TransformerBlock(c, dims[-1], k)
        self.up = nn.ModuleList(TransitionUp(b, a) for a, b in pairwise(dims))
        self.up_blocks = nn.ModuleList(TransformerBlock(c, dim, k) for dim in dims[:-1])
        self.last = LastMaps((h + self.category_dim, h), (dropout,))

    def represent_clouds(self, points: Points) -> Tensor:
        """Represent clouds `[B, 4 hidden_dim]`."""
        top = self._stages(points)[-1]
        return self.last(Pooling("mean")(top.x, top.clouds.cloud_of, top.clouds.num_clouds))

    def represent_points(self, points: Points, categories: Tensor) -> Tensor:
        """Represent points `[T, hidden_dim]`."""
        *stages, top = self._stages(points)
        points = self.top_block(replace(top, x=self.top(top.x)))
        for up, block, stage in reversed(list(zip(self.up, self.up_blocks, stages, strict=True))):
            points = block(up(points, stage))
        return self.last(torch.cat([points.x, categories], dim=1))

    def _stages(self, points: Points) -> list[Points]:
        """Return the points after each stage."""
        stages = [self.blocks[0](replace(points, x=self.first(points.features)))]
        for down, block in zip(self.down, self.blocks[1:], strict=True):
            stages.append(block(down(stages[-1])))
        return stages
