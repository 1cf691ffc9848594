"""OFF, the format of ModelNet's meshes."""

from __future__ import annotations

import warnings

import numpy as np

from graphbench.benchmarks.points.surfaces import Floats
from graphbench.errors import CorruptData


def parse_off(content: bytes, name: str) -> Floats:
    """Corners of all triangles of a mesh `[T, 3, 3]`; faces with more corners become fans of triangles.

    The file holds "OFF", the numbers of vertices, faces and edges, three numbers per vertex, and for each face the
    number of its corners and their vertices (from 0). In many of ModelNet's files the first two lines are one
    ("OFF490 ...").

    Args:
        content: the file.
        name: of the file, for messages.

    Raises:
        CorruptData: the file is cut short, altered, or in another format.
    """
    if content[:3] != b"OFF":
        raise CorruptData(f"{name} is not in OFF format: it begins with {content[:8]!r}.")
    numbers = parse_numbers(content[3:], name)
    if len(numbers) < 3 or not 3 + 3 * numbers[0] + numbers[1] <= len(numbers):
        raise CorruptData(f"{name} ends before its vertices and faces do. Fetch it again.")
    num_vertices, num_faces = int(numbers[0]), int(numbers[1])
    vertices = numbers[3 : 3 + 3 * num_vertices].reshape(num_vertices, 3)
    faces = numbers[3 + 3 * num_vertices :].astype(np.int64)
    triangles = _triangles(faces, num_faces, name)
    if not len(triangles) or triangles.min() < 0 or triangles.max() >= num_vertices or not np.isfinite(vertices).all():
        raise CorruptData(f"{name} has no faces, faces with vertices it does not have, or vertices at no finite place.")
    return vertices[triangles]


def parse_numbers(content: bytes, name: str) -> Floats:
    """All numbers of a text, separated by blanks or line ends.

    Raises:
        CorruptData: something in it is no number.
    """
    with warnings.catch_warnings():
        warnings.simplefilter("error", DeprecationWarning)  # how NumPy 1 and 2 tell that they stopped early
        try:
            return np.fromstring(content, dtype=np.float64, sep=" ")
        except (ValueError, DeprecationWarning) as error:
            raise CorruptData(f"{name} holds something that is no number. Fetch it again.") from error


def _triangles(faces: np.ndarray, num_faces: int, name: str) -> np.ndarray:
    """Vertices of all triangles `[T, 3]` out of the numbers of the faces."""
    if len(faces) == 4 * num_faces and (faces[::4] == 3).all():
        return faces.reshape(-1, 4)[:, 1:]
    triangles, place = [], 0
    for _ in range(num_faces):
        size = int(faces[place]) if place < len(faces) else 0
        corners = faces[place + 1 : place + 1 + size]
        if size < 1 or len(corners) < size:
            raise CorruptData(f"{name} ends before its {num_faces:,} faces do. Fetch it again.")
        place += 1 + size
        triangles.append(np.stack([np.full(max(size - 2, 0), corners[0]), corners[1:-1], corners[2:]], axis=1))
    return np.concatenate(triangles)
