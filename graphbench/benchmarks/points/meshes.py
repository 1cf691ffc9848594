"""Clouds out of the meshes of files."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from graphbench.benchmarks.points.files import Files, bytes_of_name
from graphbench.benchmarks.points.off import parse_off
from graphbench.benchmarks.points.parametric import Clouds
from graphbench.benchmarks.points.surfaces import of_size_one, sample_surfaces, to_unit_sphere
from graphbench.errors import CorruptData


@dataclass(frozen=True)
class MeshChunk:
    """A job: the meshes of some files.

    Args:
        files: where they lie.
        names: of the files S.
        labels: class of each `[S]`.
        num_points: points each gets.
        seed: decides about the points, with the name of the file.
    """

    files: Files
    names: tuple[str, ...]
    labels: np.ndarray
    num_points: int
    seed: int


def clouds_of_meshes(chunk: MeshChunk) -> Clouds:
    """Points sampled uniformly by area, with the normals of their triangles; centred and of radius 1, float16.

    Raises:
        MissingData, CorruptData: a file is absent or damaged.
    """
    points, normals = [], []
    for name, content in zip(chunk.names, chunk.files.read(chunk.names), strict=True):
        corners = of_size_one(parse_off(content, name).reshape(-1, 3)).reshape(-1, 3, 3)
        generator = np.random.RandomState([chunk.seed % (1 << 32), *bytes_of_name(name)])
        if not np.linalg.norm(np.cross(corners[:, 1] - corners[:, 0], corners[:, 2] - corners[:, 0]), axis=1).sum() > 0:
            raise CorruptData(f"{name} has no face with an area.")
        owner = np.zeros(len(corners), dtype=np.int64)
        cloud, normal, _ = sample_surfaces(corners, owner, chunk.num_points, generator)
        points.append(to_unit_sphere(cloud[0]).astype(np.float16))
        normals.append(normal[0].astype(np.float16))
    return Clouds(np.stack(points), np.stack(normals), chunk.labels)
