"""Rotation matrices: uniform over all rotations, or about one axis."""

from __future__ import annotations

import torch
from torch import Tensor


def random_rotations(count: int, generator: torch.Generator) -> Tensor:
    """Rotations sampled uniformly (by Haar measure) from SO(3): `[count, 3, 3]`, float32, on the generator's device.

    A normalised vector of four independent normal numbers is uniform on the sphere of unit quaternions (w, x, y, z),
    and the map from quaternions to rotations keeps uniformity (Shoemake, "Uniform Random Rotations", 1992).
    """
    quaternion = torch.randn(count, 4, generator=generator, device=generator.device)
    w, x, y, z = torch.nn.functional.normalize(quaternion, dim=1).unbind(1)
    rows = (
        (1 - 2 * (y * y + z * z), 2 * (x * y - w * z), 2 * (x * z + w * y)),
        (2 * (x * y + w * z), 1 - 2 * (x * x + z * z), 2 * (y * z - w * x)),
        (2 * (x * z - w * y), 2 * (y * z + w * x), 1 - 2 * (x * x + y * y)),
    )
    return torch.stack([torch.stack(row, dim=-1) for row in rows], dim=1)


def random_turns(count: int, generator: torch.Generator, axis: int = 2) -> Tensor:
    """Rotations about one coordinate axis by uniform angles: `[count, 3, 3]`, float32, on the generator's device."""
    return turns_by(2 * torch.pi * torch.rand(count, generator=generator, device=generator.device), axis)


def turns_by(angle: Tensor, axis: int = 2) -> Tensor:
    """Rotations about one coordinate axis by angles `[count]` in radians: `[count, 3, 3]`.

    Examples:
        >>> turns_by(torch.tensor([torch.pi / 2]))[0].round() @ torch.tensor([1.0, 0.0, 0.0])
        tensor([0., 1., 0.])
    """
    turns = torch.eye(3, dtype=angle.dtype, device=angle.device).repeat(len(angle), 1, 1)
    first, second = (axis + 1) % 3, (axis + 2) % 3
    turns[:, first, first] = turns[:, second, second] = angle.cos()
    turns[:, second, first] = angle.sin()
    turns[:, first, second] = -angle.sin()
    return turns


def rotate(vectors: Tensor, rotations: Tensor, owner: Tensor) -> Tensor:
    """Each vector turned by the rotation of its cloud: `v' = R v`.

    Args:
        vectors: `[num_points, 3]`.
        rotations: `[num_clouds, 3, 3]`.
        owner: cloud of each point `[num_points]`.
    """
    return torch.einsum("nij,nj->ni", rotations[owner], vectors)
