"""PointNet and DGCNN in a frame found by a small vector-neuron network: learned canonicalisation.

Kaba, Mondal, Zhang, Bengio and Ravanbakhsh, "Equivariance with Learned Canonicalization Functions", ICML 2023,
arXiv 2211.06489. The frame rotates with the cloud, so the cloud does not rotate relative to it.

Legend: T points of all clouds, B clouds, k neighbours.
"""

from __future__ import annotations

from dataclasses import replace

import torch
from torch import Tensor, nn

from graphbench import BenchmarkSpec
from graphbench.errors import check_range
from graphbench_point_clouds.clouds import nearest
from graphbench_point_clouds.dgcnn import DGCNN
from graphbench_point_clouds.model import Points
from graphbench_point_clouds.pointnet import PointNet
from graphbench_point_clouds.vector_neurons import (
    VectorNorm,
    VectorReLU,
    check_space,
    cloud_means,
    edge_vectors,
    to_single,
)
from graphbench_point_clouds.vn_networks import channels

_EPSILON = 1e-6


def orthonormal(vectors: Tensor) -> Tensor:
    """Orthonormalise three vectors by Gram-Schmidt, as rows `[B, 3, 3]`; a row is short if vectors are parallel.

    Examples:
        >>> orthonormal(torch.tensor([[[2.0, 0, 0], [1, 1, 0], [1, 1, 3]]])).round(decimals=4)[0]
        tensor([[1., 0., 0.],
                [0., 1., 0.],
                [0., 0., 1.]])
    """
    rows: list[Tensor] = []
    for vector in vectors.unbind(1):
        for row in rows:
            vector = vector - (vector * row).sum(-1, keepdim=True) * row
        length = (vector.square().sum(-1, keepdim=True) + _EPSILON**2).sqrt()  # also differentiable at zero
        rows.append(vector / length)
    return torch.stack(rows, dim=1)


class CanonicalFrame(nn.Module):
    """A basis for each cloud that rotates with it: three maps of vectors of edges and points, and their mean.

    Args:
        width: width of PointNet's first map; the number of channels is a third of it.
        num_neighbors: neighbours k.
        dropout: probability on the last vectors.

    Raises:
        BadInput: `dropout` is not a probability.
    """

    def __init__(self, width: int, num_neighbors: int, dropout: float) -> None:
        super().__init__()
        check_range("frame_dropout", dropout, at_least=0, below=1)
        small = channels(width)
        self.edges, self.points, self.norm = VectorReLU(3, small, 0.0), VectorReLU(small, small, 0.0), VectorNorm(small)
        self.out = VectorReLU(small, 3, 0.0)
        self.num_neighbors, self.dropout = num_neighbors, nn.Dropout(dropout)

    def forward(self, points: Points) -> Tensor:
        """Return bases `[B, 3, 3]`, whose rows are vectors."""
        clouds, pos = points.clouds, points.pos
        neighbours = nearest(pos, clouds, pos, clouds, self.num_neighbors)
        x = self.edges(edge_vectors(pos.to(points.x.dtype)[:, None], neighbours, cross=True)).mean(1)
        # Drops single coordinates, so frames rotate exactly with the cloud only in evaluation.
        x = self.dropout(self.out(self.norm(self.points(x))))
        # Gram-Schmidt subtracts vectors that may be nearly parallel: use at least single precision.
        return orthonormal(to_single(cloud_means(x, clouds.cloud_of, clouds.num_clouds)))

    def transform(self, points: Points) -> Points:
        """Return the points in the frames of their clouds."""
        # Coordinates in a frame are dot products with its rows: p F^T.
        frames = self(points)
        return replace(points, pos=points.clouds.transform(points.pos.to(frames.dtype), frames.transpose(1, 2)))


class CNPointNet(PointNet):
    """CN(NL)-PointNet (Kaba et al., ICML 2023): PointNet of the cloud in its learned frame.

    The result is invariant to rotations about the origin. Frame and network read positions only.

    Time and memory: `B (N^2 + k N d + N d^2 + d^3)`, `B (N^2 + k N d + d^2)`.

    Args:
        spec: the benchmark's description.
        hidden_dim: width of PointNet's first maps; all others are multiples of it, as published for 64.
        num_neighbors: neighbours of the network that finds the frame.
        frame_dropout: dropout of that network.
        dropout: probability in PointNet's last maps: for clouds between the second one and its norm (0.4 in the
            authors' code), for points after each except the last (0 there).
        input_transform: also align positions with a T-net.
        feature_transform: align features with a T-net.
        orthogonality: factor of the penalty that keeps the feature alignment close to a rotation; 0 for none, as in
            the authors' loss.

    Raises:
        BadInput: nodes have no position in space, or an option is out of range.

    Examples:
        >>> from graphbench.testing import tiny_batch, tiny_spec
        >>> model = CNPointNet(tiny_spec(kind="coordinates"), hidden_dim=6)
        >>> model(tiny_batch(model)).graph.shape  # 4 clouds of a few points
        torch.Size([4, 24])
    """

    def __init__(
        self,
        spec: BenchmarkSpec,
        hidden_dim: int = 64,
        num_neighbors: int = 20,
        frame_dropout: float = 0.5,
        dropout: float = 0.4,
        input_transform: bool = True,
        feature_transform: bool = True,
        orthogonality: float = 0.0,
    ) -> None:
        check_range("num_neighbors", num_neighbors, at_least=1, whole=True)
        super().__init__(spec, hidden_dim, dropout, input_transform, feature_transform, orthogonality)
        check_space(type(self).__name__, spec)
        if self.of_clouds:
            self.last.dropouts, self.last.before_norm = (0.0, dropout), True
        self.frame = CanonicalFrame(hidden_dim, num_neighbors, frame_dropout)

    def prepare(self, points: Points) -> Points:
        """Return the points in the frames of their clouds."""
        return self.frame.transform(points)


class CNDGCNN(DGCNN):
    """CN(NL)-DGCNN (Kaba et al., ICML 2023): DGCNN of the cloud in its learned frame.

    The result is invariant to rotations about the origin. Frame and network read positions only.

    Time and memory: `B (N^2 d + k N d^2)`, `B (N^2 + k N d)`.

    Args:
        spec: the benchmark's description.
        hidden_dim: width of DGCNN's first convolutions; all others are multiples of it, as published for 64.
        num_neighbors: neighbours of DGCNN and of the network that finds the frame.
        frame_dropout: dropout of the latter.
        dropout: probability after DGCNN's last maps.
        input_transform: also align positions with a T-net, in point tasks only.

    Raises:
        BadInput: nodes have no position in space, or an option is out of range.

    Examples:
        >>> from graphbench.testing import tiny_batch, tiny_spec
        >>> model = CNDGCNN(tiny_spec(kind="coordinates"), hidden_dim=6)
        >>> model(tiny_batch(model)).graph.shape  # 4 clouds of a few points
        torch.Size([4, 24])
    """

    def __init__(
        self,
        spec: BenchmarkSpec,
        hidden_dim: int = 64,
        num_neighbors: int = 20,
        frame_dropout: float = 0.5,
        dropout: float = 0.5,
        input_transform: bool = True,
    ) -> None:
        super().__init__(spec, hidden_dim, num_neighbors, dropout, input_transform)
        check_space(type(self).__name__, spec)
        self.frame = CanonicalFrame(hidden_dim, num_neighbors, frame_dropout)

    def prepare(self, points: Points) -> Points:
        """Return the points in the frames of their clouds."""
        return self.frame.transform(points)
