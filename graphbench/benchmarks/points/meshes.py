"""Triangle meshes: parse OFF files and sample points on their surfaces."""

from __future__ import annotations

import warnings
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

import numpy as np
import numpy.typing as npt

from graphbench.benchmarks.points.files import Files, bytes_of_name
from graphbench.errors import CorruptData

Floats = npt.NDArray[np.floating[Any]]
#: Ratio of radius to largest coordinate below which all points of a cloud are equal up to rounding errors.
_ROUNDING = 1e-12


@dataclass(frozen=True)
class Clouds:
    """S clouds of P points: `points` and `normals` `[S, P, 3]`, `labels` `[S]`."""

    points: np.ndarray
    normals: np.ndarray
    labels: np.ndarray


@dataclass(frozen=True)
class MeshChunk:
    """A job: the meshes of some files, their classes `[S]`, and the seed of `num_points` points per mesh."""

    files: Files
    names: tuple[str, ...]
    labels: np.ndarray
    num_points: int
    seed: int


def clouds_of_meshes(chunk: MeshChunk) -> Clouds:
    """Sample points uniformly by area, with the normals of their triangles; centred, with radius 1, float16."""
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


def parse_off(content: bytes, name: str) -> Floats:
    """Parse the corners of all triangles of a mesh `[T, 3, 3]`; faces with more corners become fans of triangles.

    The file contains "OFF", the numbers of vertices, faces and edges, three numbers per vertex, and for each face the
    number of its corners and their vertices (from 0). In many of ModelNet's files the first two lines are joined
    ("OFF490 ..."). The line of a face may have a colour after its corners, which is skipped.
    """
    if content[:3] != b"OFF":
        raise CorruptData(f"{name} is not in OFF format: it begins with {content[:8]!r}.")
    numbers = parse_numbers(content[3:], name)
    counts = numbers[:2]
    if len(numbers) < 3:
        raise CorruptData(f"{name} ends before its vertices and faces do. Fetch it again.")
    if not (np.isfinite(counts).all() and (counts >= 1).all() and (counts % 1 == 0).all()):
        raise CorruptData(f"{name} has {counts[0]:g} vertices and {counts[1]:g} faces; a mesh has some of each.")
    # Compare as floats, before they become array sizes: a damaged file may announce 1e300 vertices.
    if 3 + 3 * counts[0] + counts[1] > len(numbers):
        raise CorruptData(f"{name} ends before its vertices and faces do. Fetch it again.")
    num_vertices, num_faces = int(counts[0]), int(counts[1])
    start = 3 + 3 * num_vertices
    vertices, faces = numbers[3:start].reshape(num_vertices, 3), numbers[start:]
    if len(faces) == 4 * num_faces and (faces[::4] == 3).all():
        triangles = faces.reshape(-1, 4)[:, 1:]
    else:
        triangles = _fans(_lines_after(content[3:].splitlines(), start, name), num_faces, name)
    inside = (triangles >= 0) & (triangles < num_vertices) & (triangles % 1 == 0)
    if not len(triangles) or not inside.all() or not np.isfinite(vertices).all():
        raise CorruptData(f"{name} has no faces, faces with vertices it does not have, or vertices at no finite place.")
    return vertices[triangles.astype(np.int64)]


def parse_numbers(content: bytes, name: str) -> Floats:
    """Parse all numbers of a text, separated by blanks or line ends."""
    with warnings.catch_warnings():
        warnings.simplefilter("error", DeprecationWarning)  # NumPy 1 and 2 warn if they stop early
        try:
            return np.fromstring(content, dtype=np.float64, sep=" ")
        except (ValueError, DeprecationWarning) as error:
            raise CorruptData(f"{name} holds text that is not a number. Fetch it again.") from error


def _lines_after(lines: list[bytes], count: int, name: str) -> Iterator[list[float]]:
    """Yield the numbers of each line after the one that ends with number `count` of the file."""
    left = count
    for line in lines:
        words = line.split()
        if left and len(words) > left:
            raise CorruptData(f"{name} has more than three numbers for a vertex, or a face on the line of a vertex.")
        if not left:
            try:
                yield [float(word) for word in words]
            except ValueError as error:
                raise CorruptData(f"{name} holds text that is not a number. Fetch it again.") from error
        left = max(0, left - len(words))


def _fans(lines: Iterator[list[float]], num_faces: int, name: str) -> Floats:
    """Return the vertices of all triangles `[T, 3]`, given the lines of the faces, one or several per face."""
    triangles: list[tuple[float, float, float]] = []
    for _ in range(num_faces):
        face: list[float] = []
        while not face or len(face) < 1 + face[0]:
            if (line := next(lines, None)) is None:
                raise CorruptData(f"{name} ends before its {num_faces:,} faces do. Fetch it again.")
            face += line
        if not face[0] >= 1 or face[0] % 1:
            raise CorruptData(f"{name} has a face with {face[0]:g} corners.")
        corners = face[1 : 1 + int(face[0])]
        triangles += [(corners[0], b, c) for b, c in pairwise(corners[1:])]
    if any(lines):
        raise CorruptData(f"{name} continues after its {num_faces:,} faces. Fetch it again.")
    return np.array(triangles, dtype=np.float64).reshape(-1, 3)


def sample_surfaces(
    corners: Floats, owner: npt.NDArray[np.int64], count: int, generator: np.random.RandomState
) -> tuple[Floats, Floats, npt.NDArray[np.int64]]:
    """Sample points uniformly by area from several surfaces at once, with the normals of their triangles.

    A triangle is chosen in proportion to its area; a point in it is `a + (1 - sqrt(r1)) (b - a) + sqrt(r1) r2 (c - a)`
    with r1 and r2 uniform on 0 to 1 (Osada et al., "Shape Distributions", 2002). `corners` of all triangles `[T, 3, 3]`
    are counter-clockwise as seen from outside; `owner` has the surface of each `[T]`, ascending, and every number from
    0 must own a triangle with nonzero area.

    Returns:
        Points `[S, count, 3]`, unit normals `[S, count, 3]`, and the triangle of each `[S, count]`.
    """
    a, b, c = corners[:, 0], corners[:, 1], corners[:, 2]
    normal = np.cross(b - a, c - a)
    double_area = np.linalg.norm(normal, axis=1)
    first = np.flatnonzero(np.diff(owner, prepend=-1))
    below = np.concatenate([[0.0], double_area.cumsum()])  # total area of the triangles before each one
    start, stop = below[first], below[np.append(first[1:], len(owner))]
    target = start[:, None] + (stop - start)[:, None] * generator.random_sample((len(first), count))
    last = np.append(first[1:], len(owner)) - 1
    # Clip, since rounding of the running sum may put a target into a triangle of a neighbouring surface.
    chosen = np.clip(np.searchsorted(below, target, side="right") - 1, first[:, None], last[:, None])
    root = np.sqrt(generator.random_sample((len(first), count, 1)))
    other = generator.random_sample((len(first), count, 1))
    points = (1 - root) * a[chosen] + root * (1 - other) * b[chosen] + root * other * c[chosen]
    return points, normal[chosen] / np.maximum(double_area[chosen], 1e-30)[..., None], chosen


def of_size_one(points: Floats) -> Floats:
    """Divide each cloud `[..., count, 3]` by a power of two, so that the largest coordinate is between 1/2 and 1.

    Squares then neither overflow nor underflow, and no digit changes.

    Examples:
        >>> of_size_one(np.array([[3e200, 0.0, -6e200]])).round(4).tolist()
        [[0.4899, 0.0, -0.9798]]
    """
    _, exponent = np.frexp(np.abs(points).max((-2, -1), keepdims=True))
    return np.ldexp(points, -exponent)


def to_unit_sphere(points: Floats) -> Floats:
    """Centre clouds `[..., count, 3]` and scale them to radius 1 (SFT, appendix D.3).

    A cloud whose points are equal, up to 1e-12 of its largest coordinate, becomes 0.
    """
    sized = of_size_one(points)
    centred = sized - sized.mean(-2, keepdims=True)
    radius = np.linalg.norm(centred, axis=-1).max(-1)[..., None, None]
    return np.where(radius > _ROUNDING, centred / np.maximum(radius, _ROUNDING), 0.0)
