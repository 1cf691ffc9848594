"""Points on surfaces made of triangles, and clouds of one size."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

Floats = npt.NDArray[np.floating[Any]]


def sample_surfaces(
    corners: Floats, owner: npt.NDArray[np.int64], count: int, generator: np.random.RandomState
) -> tuple[Floats, Floats, npt.NDArray[np.int64]]:
    """Points sampled uniformly by area from several surfaces at once, with the normals of their triangles.

    A triangle is chosen with odds of its area; a point in it is `a + (1 - sqrt(r1)) (b - a) + sqrt(r1) r2 (c - a)` with
    r1 and r2 uniform on 0 to 1 (Osada et al., "Shape Distributions", 2002).

    Args:
        corners: of all triangles `[T, 3, 3]`, counter-clockwise as seen from outside.
        owner: surface of each triangle `[T]`, ascending; every number from 0 must own a triangle with an area.
        count: points a surface.
        generator: of the random numbers.

    Returns:
        Points `[S, count, 3]`, unit normals `[S, count, 3]`, and the triangle of each `[S, count]`.
    """
    a, b, c = corners[:, 0], corners[:, 1], corners[:, 2]
    normal = np.cross(b - a, c - a)
    double_area = np.linalg.norm(normal, axis=1)
    first = np.flatnonzero(np.diff(owner, prepend=-1))
    below = np.concatenate([[0.0], double_area.cumsum()])  # area of all triangles before one
    start, stop = below[first], below[np.append(first[1:], len(owner))]
    target = start[:, None] + (stop - start)[:, None] * generator.random_sample((len(first), count))
    last = np.append(first[1:], len(owner)) - 1
    chosen = np.clip(np.searchsorted(below, target, side="right") - 1, first[:, None], last[:, None])
    root = np.sqrt(generator.random_sample((len(first), count, 1)))
    other = generator.random_sample((len(first), count, 1))
    points = (1 - root) * a[chosen] + root * (1 - other) * b[chosen] + root * other * c[chosen]
    return points, normal[chosen] / np.maximum(double_area[chosen], 1e-30)[..., None], chosen


def to_unit_sphere(points: Floats) -> Floats:
    """Clouds `[..., count, 3]` with their centroid at 0 and their farthest point at distance 1 (SFT, appendix D.3).

    A cloud of one place stays at 0.
    """
    centred = points - points.mean(-2, keepdims=True)
    radius = np.linalg.norm(centred, axis=-1).max(-1)
    return centred / np.maximum(radius, 1e-12)[..., None, None]
