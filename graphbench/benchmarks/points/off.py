"""OFF, the format of ModelNet's meshes."""

from __future__ import annotations

import warnings
from collections.abc import Iterator
from itertools import pairwise

import numpy as np

from graphbench.benchmarks.points.surfaces import Floats
from graphbench.errors import CorruptData


def parse_off(content: bytes, name: str) -> Floats:
    """Corners of all triangles of a mesh `[T, 3, 3]`; faces with more corners become fans of triangles.

    The file holds "OFF", the numbers of vertices, faces and edges, three numbers per vertex, and for each face the
    number of its corners and their vertices (from 0). In many of ModelNet's files the first two lines are one
    ("OFF490 ..."). What follows the corners of a face on its line is its colour, and left out.

    Args:
        content: the file.
        name: of the file, for messages.

    Raises:
        CorruptData: the file is cut short, altered, or in another format.
    """
    if content[:3] != b"OFF":
        raise CorruptData(f"{name} is not in OFF format: it begins with {content[:8]!r}.")
    numbers = parse_numbers(content[3:], name)
    counts = numbers[:2]
    if len(numbers) < 3:
        raise CorruptData(f"{name} ends before its vertices and faces do. Fetch it again.")
    if not (np.isfinite(counts).all() and (counts >= 1).all() and (counts % 1 == 0).all()):
        raise CorruptData(f"{name} has {counts[0]:g} vertices and {counts[1]:g} faces; a mesh has some of each.")
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


def _lines_after(lines: list[bytes], count: int, name: str) -> Iterator[list[float]]:
    """Numbers of each line behind the one that ends with the number `count` of the file."""
    left = count
    for line in lines:
        words = line.split()
        if left and len(words) > left:
            raise CorruptData(f"{name} has more than three numbers for a vertex, or a face on the line of a vertex.")
        if not left:
            try:
                yield [float(word) for word in words]
            except ValueError as error:
                raise CorruptData(f"{name} holds something that is no number. Fetch it again.") from error
        left = max(0, left - len(words))


def _fans(lines: Iterator[list[float]], num_faces: int, name: str) -> Floats:
    """Vertices of all triangles `[T, 3]` out of the lines of the faces, one or several for each."""
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
    return np.array(triangles, dtype=np.float64).reshape(-1, 3)
