"""Random changes of point clouds in training, and rotation matrices."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, fields
from typing import Any

import torch
from torch import Tensor

from graphbench.contracts import GraphBatch
from graphbench.errors import BadInput, check_choice, check_range

#: Maximum tilt angle and maximum noise of a coordinate, in deviations, as in PointNet++ and PointNet.
_MAX_TILT, _MAX_NOISE = 3.0, 5.0


@dataclass(frozen=True)
class Augmentation:
    """Random changes of the clouds of a batch, in the order of `apply`, with options as in `PointCloudBenchmark`.

    Examples:
        >>> Augmentation(scaling=(0.8, 1.25), max_shift=0.1).options()["max_shift"]
        0.1
    """

    scaling: tuple[float, float] = (1.0, 1.0)
    scale_axes: bool = False
    max_turn: float = 0.0
    tilt: float = 0.0
    max_shift: float = 0.0
    jitter: float = 0.0
    point_dropout: float = 0.0
    upright: int = 2

    def __post_init__(self) -> None:
        pair = self.scaling if isinstance(self.scaling, tuple) else ()
        if (
            len(pair) != 2
            or not all(isinstance(bound, (int, float)) for bound in pair)
            or not 0 < pair[0] <= pair[1] < math.inf
        ):
            raise BadInput(
                "scaling must be a finite range above 0, such as (0.6, 1.4), or (1, 1) for none, but got "
                f"{self.scaling}."
            )
        check_choice("scale_axes", self.scale_axes, (True, False))
        check_range("max_turn", self.max_turn, at_least=0, at_most=180)
        check_range("tilt", self.tilt, at_least=0, at_most=60)
        check_range("max_shift", self.max_shift, at_least=0, below=math.inf)
        check_range("jitter", self.jitter, at_least=0, below=math.inf)
        check_range("point_dropout", self.point_dropout, at_least=0, below=1)

    def options(self) -> dict[str, Any]:
        """Return the user's options by name."""
        values = {field.name: getattr(self, field.name) for field in fields(self) if field.name != "upright"}
        return values | {"scaling": list(self.scaling)}

    def apply(self, batch: GraphBatch, columns: Sequence[str], generator: torch.Generator) -> None:
        """Change the clouds of a batch in place; `columns` have one row per point, `generator` is on their device."""
        if self.point_dropout:
            drop_points(batch, columns, self.point_dropout, generator)
        if self.max_turn:
            share = _signed(batch.num_graphs, 1, generator)[:, 0]
            rotate_clouds(batch, turns_by(math.radians(self.max_turn) * share, self.upright))
        if self.tilt:
            normal = _normal((batch.num_graphs, 3), _MAX_TILT, generator)
            x, y, z = (math.radians(self.tilt) * normal).unbind(1)
            rotate_clouds(batch, turns_by(z, 2) @ turns_by(y, 1) @ turns_by(x, 0))
        low, high = self.scaling
        share = _uniform((batch.num_graphs, 3 if self.scale_axes else 1), generator)
        scale = (low + (high - low) * share)[batch.batch]
        batch.pos = batch.pos * scale
        if self.scale_axes:
            batch.x_dense = stretched_normals(batch.x_dense, scale)
        if self.max_shift:
            batch.pos = batch.pos + (self.max_shift * _signed(batch.num_graphs, 3, generator))[batch.batch]
        if self.jitter:
            batch.pos = batch.pos + self.jitter * _normal(tuple(batch.pos.shape), _MAX_NOISE, generator)


def _uniform(shape: tuple[int, ...], generator: torch.Generator) -> Tensor:
    """Sample uniform numbers in [0, 1), in float32 whatever the default dtype, which would change them."""
    return torch.rand(shape, generator=generator, device=generator.device, dtype=torch.float32)


def _signed(rows: int, columns: int, generator: torch.Generator) -> Tensor:
    """Sample uniform numbers between -1 and 1 `[rows, columns]`."""
    return 2 * _uniform((rows, columns), generator) - 1


def _normal(shape: tuple[int, ...], most: float, generator: torch.Generator) -> Tensor:
    """Sample normal numbers with deviation 1, clamped at `most`."""
    return torch.randn(shape, generator=generator, device=generator.device, dtype=torch.float32).clamp(-most, most)


def rotate_clouds(batch: GraphBatch, rotations: Tensor) -> None:
    """Rotate points and normals of each cloud in place by `[num_clouds, 3, 3]`.

    Examples:
        >>> batch = GraphBatch(pos=torch.eye(3), x_dense=torch.eye(3), batch=torch.zeros(3, dtype=torch.int64))
        >>> rotate_clouds(batch, turns_by(torch.tensor([torch.pi / 2])))
        >>> batch.pos.round().long()
        tensor([[ 0,  1,  0],
                [-1,  0,  0],
                [ 0,  0,  1]])
    """
    batch.pos = rotate(batch.pos, rotations, batch.batch)
    batch.x_dense = rotate(batch.x_dense, rotations, batch.batch)


def drop_points(batch: GraphBatch, columns: Sequence[str], most: float, generator: torch.Generator) -> None:
    """Replace a share of the points of each cloud by its first point in place; sizes do not change.

    The share of a cloud is uniform between 0 and `most`, and each of its points is dropped with that probability (Qi et
    al., "PointNet++", NeurIPS 2017, section 3.3, as in its code).

    Examples:
        >>> batch = GraphBatch(pos=torch.arange(4), batch=torch.tensor([0, 0, 1, 1]), ptr=torch.tensor([0, 2, 4]))
        >>> batch.num_graphs, batch.num_nodes = 2, 4
        >>> drop_points(batch, ["pos"], 0.0, torch.Generator().manual_seed(0))
        >>> batch.pos
        tensor([0, 1, 2, 3])
    """
    device = generator.device
    share = most * _uniform((batch.num_graphs,), generator)
    dropped = _uniform((batch.num_nodes,), generator) < share[batch.batch]
    rows = torch.where(dropped, batch.ptr[batch.batch], torch.arange(batch.num_nodes, device=device))
    for name in columns:
        batch[name] = batch[name][rows]


def stretched_normals(normals: Tensor, scale: Tensor) -> Tensor:
    """Transform normals `[num_points, 3]` of a surface whose axes are scaled by factors `[num_points, 3]`.

    Examples:
        >>> stretched_normals(torch.tensor([[0.6, 0.8, 0.0]]), torch.tensor([[3.0, 4.0, 1.0]])).round(decimals=4)
        tensor([[0.7071, 0.7071, 0.0000]])
    """
    turned = normals / scale
    length = turned.norm(dim=1, keepdim=True).clamp(min=torch.finfo(turned.dtype).tiny)
    return turned * (normals.norm(dim=1, keepdim=True) / length)


def random_rotations(count: int, generator: torch.Generator) -> Tensor:
    """Sample rotations uniformly (by Haar measure) from SO(3): `[count, 3, 3]`, float32, on the generator's device.

    A normalised vector of four independent normal numbers is uniform on the sphere of unit quaternions (w, x, y, z),
    and the map from quaternions to rotations preserves uniformity (Shoemake, "Uniform Random Rotations", 1992).
    """
    quaternion = torch.randn(count, 4, generator=generator, device=generator.device, dtype=torch.float32)
    w, x, y, z = torch.nn.functional.normalize(quaternion, dim=1).unbind(1)
    rows = (
        (1 - 2 * (y * y + z * z), 2 * (x * y - w * z), 2 * (x * z + w * y)),
        (2 * (x * y + w * z), 1 - 2 * (x * x + z * z), 2 * (y * z - w * x)),
        (2 * (x * z - w * y), 2 * (y * z + w * x), 1 - 2 * (x * x + y * y)),
    )
    return torch.stack([torch.stack(row, dim=-1) for row in rows], dim=1)


def random_turns(count: int, generator: torch.Generator, axis: int = 2) -> Tensor:
    """Sample rotations about one axis with uniform angles: `[count, 3, 3]`, float32, on the generator's device."""
    return turns_by(2 * torch.pi * _uniform((count,), generator), axis)


def turns_by(angle: Tensor, axis: int = 2) -> Tensor:
    """Return rotations about one coordinate axis by angles `[count]` in radians: `[count, 3, 3]`.

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
    """Rotate each vector `[num_points, 3]` by the rotation of its cloud `owner [num_points]`: `v' = R v`."""
    return torch.einsum("nij,nj->ni", rotations[owner], vectors)
