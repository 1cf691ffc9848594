"""Sampling of surfaces against areas, and the unit sphere."""

import numpy as np
import pytest
from scipy import stats

from graphbench.benchmarks.points.surfaces import sample_surfaces, to_unit_sphere


@pytest.fixture
def corners():
    """A triangle of area 1/2, one of area 3/2, one of none; then another surface, a square in another plane."""
    flat = [[[0, 0, 0], [1, 0, 0], [0, 1, 0]], [[0, 0, 1], [3, 0, 1], [0, 1, 1]], [[0, 0, 0]] * 3]
    square = [[[0, 0, 0], [0, 2, 0], [0, 2, 2]], [[0, 0, 0], [0, 2, 2], [0, 0, 2]]]
    return np.array(flat + square, dtype=float)


OWNER = np.array([0, 0, 0, 1, 1])


def test_triangles_are_chosen_by_area(corners):
    _, _, chosen = sample_surfaces(corners, OWNER, 20_000, np.random.RandomState(0))
    shares = np.bincount(chosen[0], minlength=5) / 20_000
    assert np.allclose(shares, [0.25, 0.75, 0, 0, 0], atol=0.015)
    assert np.allclose(np.bincount(chosen[1], minlength=5) / 20_000, [0, 0, 0, 0.5, 0.5], atol=0.015)


def test_points_are_uniform_on_a_square(corners):
    points, normals, _ = sample_surfaces(corners, OWNER, 5_000, np.random.RandomState(1))
    assert (points[1, :, 0] == 0).all()
    for axis in (1, 2):
        assert stats.kstest(points[1, :, axis], stats.uniform(0, 2).cdf).pvalue > 0.001
    assert abs(np.corrcoef(points[1, :, 1], points[1, :, 2])[0, 1]) < 0.06
    assert np.allclose(normals[1], [1, 0, 0])
    assert np.allclose(normals[0], [0, 0, 1])


def test_points_lie_in_their_triangles(corners):
    points, _, chosen = sample_surfaces(corners, OWNER, 500, np.random.RandomState(2))
    a, b, c = np.moveaxis(corners[chosen[0]], -2, 0)
    edges = np.stack([b - a, c - a], axis=-1)
    weights = np.stack([np.linalg.lstsq(e, p, rcond=None)[0] for e, p in zip(edges, points[0] - a, strict=True)])
    assert weights.min() > -1e-9
    assert weights.sum(1).max() < 1 + 1e-9
    assert np.allclose((edges @ weights[..., None])[..., 0] + a, points[0])


def test_unit_sphere_centres_and_scales_each_cloud():
    clouds = np.random.RandomState(0).standard_normal((4, 100, 3)) * [[[1.0]], [[5.0]], [[0.1]], [[3.0]]] + 7
    scaled = to_unit_sphere(clouds)
    assert np.allclose(scaled.mean(1), 0, atol=1e-12)
    assert np.allclose(np.linalg.norm(scaled, axis=2).max(1), 1)
    assert np.allclose(
        scaled[1] * np.linalg.norm(clouds[1] - clouds[1].mean(0), axis=1).max(), clouds[1] - clouds[1].mean(0)
    )
    assert (to_unit_sphere(np.full((5, 3), 2.0)) == 0).all()
    assert (to_unit_sphere(np.full((7, 3), 0.1)) == 0).all()  # whose mean is another number
    assert (to_unit_sphere(np.zeros((2, 3))) == 0).all()


@pytest.mark.parametrize("factor", [1e300, 1e200, 1e-14, 1e-200, 1e-300])
def test_clouds_of_any_scale_get_the_same_place(factor):
    cloud = np.random.RandomState(1).standard_normal((100, 3)) + 2
    with np.errstate(all="raise"):
        assert np.allclose(to_unit_sphere(cloud * factor), to_unit_sphere(cloud), rtol=1e-9, atol=1e-12)
    both = to_unit_sphere(np.stack([cloud * factor, cloud]))
    assert np.allclose(both[0], both[1], rtol=1e-9, atol=1e-12)
