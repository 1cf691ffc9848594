"""PointNet: maps of single points, a maximum over all of them, and learned alignments.

Qi, Su, Mo and Guibas, "PointNet: Deep Learning on Point Sets for 3D Classification and Segmentation", CVPR 2017,
arXiv 1612.00593.

Legend: T points of all clouds, B clouds, d width.
"""

from __future__ import annotations

import math

import torch
from torch import Tensor, nn

from graphbench import BenchmarkSpec
from graphbench.errors import check_range
from graphbench.nn import Pooling
from graphbench_point_clouds.model import LastMaps, PointCloudModel, Points, point_maps


class TNet(nn.Module):
    """Compute a matrix for each cloud from maps of points, their maximum, and maps of clouds; initially the identity.

    Args:
        dim: rows and columns d of the matrix.
        width: width of the first map; the others are 2, 16, 8 and 4 times as wide, as published for 64.

    Examples:
        >>> alignment = TNet(3, 8).eval()
        >>> torch.equal(alignment(torch.randn(7, 3), torch.tensor([0, 0, 0, 1, 1, 1, 1]), 2)[1], torch.eye(3))
        True
    """

    def __init__(self, dim: int, width: int) -> None:
        super().__init__()
        self.dim = dim
        self.point_maps = point_maps((dim, width, 2 * width, 16 * width))
        self.cloud_maps = point_maps((16 * width, 8 * width, 4 * width))
        self.out = nn.Linear(4 * width, dim * dim)
        nn.init.zeros_(self.out.weight)
        nn.init.zeros_(self.out.bias)

    def forward(self, x: Tensor, cloud_of: Tensor, num_clouds: int) -> Tensor:
        """Return matrices `[B, d, d]` for rows `[T, d]`."""
        pooled = Pooling("max")(self.point_maps(x), cloud_of, num_clouds)
        # `out` is initialised with zeros, so clouds are unchanged at first.
        change = self.out(self.cloud_maps(pooled)).view(-1, self.dim, self.dim)
        return change + torch.eye(self.dim, dtype=change.dtype, device=change.device)


def orthogonality(matrices: Tensor) -> Tensor:
    """Compute `|I - A A^T|_F^2`, the mean over matrices A `[B, d, d]` (PointNet, equation 2).

    Examples:
        >>> orthogonality(2 * torch.eye(3)[None])  # |I - 4 I|^2
        tensor(27.)
    """
    identity = torch.eye(matrices.shape[-1], dtype=matrices.dtype, device=matrices.device)
    return (identity - matrices @ matrices.transpose(1, 2)).square().sum((1, 2)).mean()


class PointNet(PointCloudModel):
    """PointNet (Qi et al., CVPR 2017) for cloud classification, and its part-segmentation network for point tasks.

    With a width of 64, clouds: T-net of 3, maps of 64 and 64, T-net of 64, maps of 64, 128 and 1,024, the maximum, maps
    of 512 and 256. Points: T-net of 3, maps of 64, 128 and 128, T-net of 128, maps of 512 and 2,048; the maximum, each
    point's features after every map and the category; maps of 256, 256 and 128. The head is one linear map.

    Time and memory: `B (N d^2 + d^3)`, `B (N d + d^2)`.

    Args:
        spec: the benchmark's description.
        hidden_dim: width of the first maps; all others are multiples of it, as published for 64.
        dropout: probability after the last maps; 0.3 for clouds, 0.2 for points in the released code.
        input_transform: align positions with a T-net.
        feature_transform: align features with a T-net.
        orthogonality: factor of the penalty that keeps the feature alignment close to a rotation; 0 for none.
        use_features: read normals and other features in addition to positions.

    Raises:
        BadInput: nodes have no position, or an option is out of range.

    Examples:
        >>> from graphbench.testing import tiny_batch, tiny_spec
        >>> model = PointNet(tiny_spec(kind="coordinates"), hidden_dim=4)
        >>> model(tiny_batch(model)).graph.shape  # 4 clouds of a few points
        torch.Size([4, 16])
    """

    def __init__(
        self,
        spec: BenchmarkSpec,
        hidden_dim: int = 64,
        dropout: float = 0.3,
        input_transform: bool = True,
        feature_transform: bool = True,
        orthogonality: float = 0.001,
        use_features: bool = False,
    ) -> None:
        check_range("orthogonality", orthogonality, at_least=0, below=math.inf)
        super().__init__(spec, 4 * hidden_dim, 2 * hidden_dim, use_features)
        h, aligned = hidden_dim, (1 if self.of_clouds else 2) * hidden_dim
        self.orthogonality = orthogonality
        self.align_input = TNet(self.coordinates, h) if input_transform else None
        self.align_features = TNet(aligned, h) if feature_transform else None
        before = (h, h) if self.of_clouds else (h, 2 * h, 2 * h)
        after = (h, 2 * h, 16 * h) if self.of_clouds else (8 * h, 32 * h)
        self.before = point_maps((self.coordinates + self.feature_dim, *before))
        self.after = point_maps((aligned, *after))
        if self.of_clouds:
            self.last = LastMaps((16 * h, 8 * h, 4 * h), (dropout, dropout))
        else:
            width = sum(before) + sum(after) + after[-1]
            self.last = LastMaps((width + self.category_dim, 4 * h, 4 * h, 2 * h), (dropout, dropout, 0.0))

    def represent_clouds(self, points: Points) -> Tensor:
        """Represent clouds `[B, 4 hidden_dim]`."""
        pooled, _ = self._features(points)
        return self.last(pooled)

    def represent_points(self, points: Points, categories: Tensor) -> Tensor:
        """Represent points `[T, 2 hidden_dim]`."""
        pooled, states = self._features(points)
        shared = pooled.index_select(0, points.clouds.cloud_of)
        return self.last(torch.cat([shared, categories, *states], dim=1))

    def _features(self, points: Points) -> tuple[Tensor, list[Tensor]]:
        """Return the maximum over each cloud `[B, w]`, and the points after each map."""
        clouds, x = points.clouds, self._align(points)
        states = [x := layer(x) for layer in self.before]
        if self.align_features is not None:
            matrices = self.align_features(x, clouds.cloud_of, clouds.num_clouds)
            x = clouds.transform(x, matrices)
            if self.orthogonality:
                # Only for the feature alignment, as in the paper: 64 x 64 numbers have far more freedom than 3 x 3.
                points.penalties.append(self.orthogonality * orthogonality(matrices))
        states += [x := layer(x) for layer in self.after]
        return Pooling("max")(x, clouds.cloud_of, clouds.num_clouds), states

    def _align(self, points: Points) -> Tensor:
        """Transform positions `[T, c]` with their T-net, and append the features."""
        x = points.features
        if self.align_input is None:
            return x
        pos, features = x.split([self.coordinates, self.feature_dim], dim=1)
        matrices = self.align_input(pos, points.clouds.cloud_of, points.clouds.num_clouds)
        return torch.cat([points.clouds.transform(pos, matrices), features], dim=1)
