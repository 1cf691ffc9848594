"""Vector neurons: features that are lists of vectors in space, and rotation-equivariant maps of them.

Deng, Litany, Duan, Poulenard, Tagliasacchi and Guibas, "Vector Neurons: A General Framework for SO(3)-Equivariant
Networks", ICCV 2021, arXiv 2104.12229. Rotating the cloud rotates every vector: f(X R) = f(X) R.

Legend: T points of all clouds, B clouds, k neighbours; features are `[..., channels, 3]`.
"""

from __future__ import annotations

from typing import Literal, get_args

import torch
from torch import Tensor, nn

from graphbench import BenchmarkSpec
from graphbench.errors import BadInput, check_choice
from graphbench.nn import BatchNorm, Pooling

VectorPooling = Literal["mean", "max"]
_EPSILON = 1e-6


def check_space(model: str, spec: BenchmarkSpec) -> None:
    """Check that nodes have three coordinates.

    Raises:
        BadInput: nodes have a different number of coordinates.
    """
    if spec.coordinates != 3:
        raise BadInput(
            f"{model} rotates with clouds in space: it needs 3 coordinates, but {spec.name} has {spec.coordinates}."
        )


def to_single(x: Tensor) -> Tensor:
    """Convert to at least single precision: squares of short vectors, and quotients by them, exceed float16."""
    return x if x.dtype.itemsize > 2 else x.float()


class VectorMap(nn.Module):
    """Linear combinations of channels, without bias (vector neurons, equation 2).

    Args:
        in_dim: input channels.
        dim: output channels.
    """

    def __init__(self, in_dim: int, dim: int) -> None:
        super().__init__()
        self.linear = nn.Linear(in_dim, dim, bias=False)

    def forward(self, x: Tensor) -> Tensor:
        """Map `[..., in_dim, 3]` to `[..., dim, 3]`."""
        # Acts on channels only, without a bias, which would not rotate: so it commutes with rotations.
        return self.linear(x.transpose(-1, -2)).transpose(-1, -2)


class VectorNorm(nn.Module):
    """Batch norm of the lengths of vectors, which keep their directions (vector neurons, equations 9 to 11).

    Args:
        dim: channels.
    """

    def __init__(self, dim: int) -> None:
        super().__init__()
        self.norm = BatchNorm(dim)

    def forward(self, x: Tensor) -> Tensor:
        """Normalise `[..., dim, 3]`."""
        exact = to_single(x)
        length = (exact.square().sum(-1) + _EPSILON**2).sqrt() + _EPSILON  # also differentiable at zero
        scaled = self.norm(length.to(x.dtype).flatten(0, -2)).view(length.shape)
        return (exact * (scaled / length)[..., None]).to(x.dtype)


def rectify(x: Tensor, direction: Tensor, slope: float) -> Tensor:
    """Apply ReLU to vectors: remove the component against a direction (vector neurons, equations 5 and 6).

    Args:
        x: `[..., dim, 3]`.
        direction: direction of each channel, or one for all.
        slope: share of that component to keep.

    Examples:
        >>> rectify(torch.tensor([[1.0, -2.0, 0.0]]), torch.tensor([[0.0, 1.0, 0.0]]), 0.5).round(decimals=4)
        tensor([[ 1., -1.,  0.]])
    """
    exact, ahead = to_single(x), to_single(direction)
    # The direction does not have length 1, hence the division by its square below.
    along = (exact * ahead).sum(-1, keepdim=True).clamp(max=0)
    return (exact - (1 - slope) * along / (ahead.square().sum(-1, keepdim=True) + _EPSILON) * ahead).to(x.dtype)


class VectorReLU(nn.Module):
    """A map of vectors, its batch norm, and a rectifier whose directions come from another map.

    Args:
        in_dim: input channels.
        dim: output channels.
        slope: slope of the rectifier.
        shared: one direction for all channels.
    """

    def __init__(self, in_dim: int, dim: int, slope: float, shared: bool = False) -> None:
        super().__init__()
        self.feature, self.norm = VectorMap(in_dim, dim), VectorNorm(dim)
        self.direction = VectorMap(in_dim, 1 if shared else dim)
        self.slope = slope

    def forward(self, x: Tensor) -> Tensor:
        """Map `[..., in_dim, 3]` to `[..., dim, 3]`."""
        return rectify(self.norm(self.feature(x)), self.direction(x), self.slope)


class VectorPool(nn.Module):
    """Pool the vectors of k neighbours, or of all points of a cloud, into one vector per channel.

    Args:
        dim: channels.
        name: mean; or max: the vector that reaches farthest along a learned direction (vector neurons, equation 8).
    """

    def __init__(self, dim: int, name: VectorPooling) -> None:
        super().__init__()
        check_choice("pooling", name, get_args(VectorPooling))
        self.direction = VectorMap(dim, dim) if name == "max" else None

    def forward(self, x: Tensor) -> Tensor:
        """Pool `[T, k, dim, 3]` to `[T, dim, 3]`."""
        if self.direction is None:
            return x.mean(1)
        # A choice has no gradient: directions keep their initial values, as in the released code.
        chosen = (x * self.direction(x)).sum(-1).argmax(1)
        return x.gather(1, chosen[:, None, :, None].expand(-1, 1, -1, 3)).squeeze(1)

    def of_clouds(self, x: Tensor, cloud_of: Tensor, num_clouds: int) -> Tensor:
        """Pool `[T, dim, 3]` to `[B, dim, 3]`."""
        if self.direction is None:
            return cloud_means(x, cloud_of, num_clouds)
        reach = (x * self.direction(x)).sum(-1)
        highest = Pooling("max")(reach, cloud_of, num_clouds)[cloud_of]
        row = torch.arange(len(x), device=x.device)[:, None].expand_as(reach)
        # The first row among equals, as chosen by argmax.
        candidate = torch.where(reach == highest, row, len(x))
        none = torch.full((num_clouds, x.shape[1]), len(x), device=x.device)
        first = none.scatter_reduce(0, cloud_of[:, None].expand_as(row), candidate, "amin")
        return x.gather(0, first[:, :, None].expand(-1, -1, 3))


def cloud_means(x: Tensor, cloud_of: Tensor, num_clouds: int) -> Tensor:
    """Average vectors `[T, dim, 3]` over each cloud: `[B, dim, 3]`."""
    return Pooling("mean")(x.flatten(1), cloud_of, num_clouds).view(num_clouds, *x.shape[1:])


class Frames(nn.Module):
    """Three vectors of each point that rotate with the cloud; coordinates with respect to them do not (equation 12).

    Args:
        dim: channels.
        slope: slope of the rectifiers.
    """

    def __init__(self, dim: int, slope: float) -> None:
        super().__init__()
        half, quarter = max(1, dim // 2), max(1, dim // 4)
        self.maps = nn.Sequential(VectorReLU(dim, half, slope), VectorReLU(half, quarter, slope), VectorMap(quarter, 3))

    def forward(self, x: Tensor) -> Tensor:
        """Return frames `[T, 3, 3]` of vectors `[T, dim, 3]`."""
        return self.maps(x)


def project(x: Tensor, frames: Tensor) -> Tensor:
    """Compute dot products of vectors `[T, dim, 3]` and frames `[T, 3, 3]`: invariants `[T, 3 dim]`."""
    # (x R) (F R)^T = x F^T: rotations cancel, whether or not frames are orthonormal.
    return (x @ frames.transpose(1, 2)).flatten(1)


def edge_vectors(x: Tensor, neighbours: Tensor, cross: bool = False) -> Tensor:
    """Build vectors of edges: differences, the centre, and optionally cross products.

    Args:
        x: `[T, dim, 3]`.
        neighbours: `[T, k]`.
        cross: add `x_j x x_i`; a reflection changes its sign.

    Returns:
        `[T, k, 2 dim, 3]`, or 3 dim.
    """
    ahead = x[neighbours]
    centre = x[:, None].expand_as(ahead)
    parts = [ahead - centre, centre, *([torch.linalg.cross(ahead, centre)] if cross else [])]
    return torch.cat(parts, dim=2)


def add_mean(x: Tensor, cloud_of: Tensor, num_clouds: int) -> Tensor:
    """Concatenate vectors `[T, dim, 3]` with their mean over the cloud: `[T, 2 dim, 3]`."""
    return torch.cat([x, cloud_means(x, cloud_of, num_clouds)[cloud_of]], dim=1)
