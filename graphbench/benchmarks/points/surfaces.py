"""Points on surfaces made of triangles, and clouds of one size."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

Floats = npt.NDArray[np.floating[Any]]
#: Radius over the largest coordinate below which a cloud is one place, told apart by rounding errors alone.
_ROUNDING = 1e-12


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


def of_size_one(points: Floats) -> Floats:
    """Clouds `[..., count, 3]`, each over a power of two that brings its largest coordinate between 1/2 and 1.

    Their squares neither overflow nor vanish, and no digit changes.

    Examples:
        >>> of_size_one(np.array([[3e200, 0.0, -6e200]])).round(4).tolist()
        [[0.4899, 0.0, -0.9798]]
    """
    _, exponent = np.frexp(np.abs(points).max((-2, -1), keepdims=True))
    return np.ldexp(points, -exponent)


def to_unit_sphere(points: Floats) -> Floats:
    """Clouds `[..., count, 3]` with their centroid at 0 and their farthest point at distance 1 (SFT, appendix D.3).

    A cloud of one place, up to a part in 1e12 of its largest coordinate, is put to 0.
    """
    sized = of_size_one(points)
    centred = sized - sized.mean(-2, keepdims=True)
    radius = np.linalg.norm(centred, axis=-1).max(-1)[..., None, None]
    return np.where(radius > _ROUNDING, centred / np.maximum(radius, _ROUNDING), 0.0)
