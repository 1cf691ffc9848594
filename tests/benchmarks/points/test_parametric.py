"""Parametric solids: closed surfaces with outward normals, fixed by their seed, and too hard for simple statistics."""

import numpy as np
import pytest
from sklearn.ensemble import RandomForestClassifier

from graphbench.benchmarks.points import parametric as solids
from graphbench.benchmarks.points.parametric import (
    NUM_FAMILIES,
    PROFILES,
    RING,
    SECTIONS,
    SolidChunk,
    SolidSettings,
    sample_solids,
)

FAMILIES = np.arange(NUM_FAMILIES)


@pytest.fixture(scope="module")
def triangles():
    """Return the corners of one solid per family `[36, T, 3, 3]`, without noise."""
    settings, generator = SolidSettings(), np.random.RandomState(0)
    return solids._triangles(solids._vertices(FAMILIES, settings, generator), FAMILIES % 6 == RING)


def test_surfaces_are_closed(triangles):
    """The area vectors of a closed surface add up to 0."""
    vectors = np.cross(triangles[:, :, 1] - triangles[:, :, 0], triangles[:, :, 2] - triangles[:, :, 0]) / 2
    assert np.allclose(vectors.sum(1), 0, atol=1e-9)


def test_normals_look_outwards(triangles):
    """By the divergence theorem the enclosed volume is positive; turned inside out it would be negative."""
    volume = (triangles[:, :, 0] * np.cross(triangles[:, :, 1], triangles[:, :, 2])).sum((1, 2)) / 6
    assert (volume > 0.05).all()


def test_points_are_centred_on_the_unit_sphere_with_unit_normals():
    clouds = sample_solids(SolidChunk(FAMILIES, SolidSettings(num_points=256)))
    points, normals = clouds.points.astype(float), clouds.normals.astype(float)
    assert points.shape == normals.shape == (36, 256, 3)
    assert np.allclose(points.mean(1), 0, atol=1e-3)
    assert np.allclose(np.linalg.norm(points, axis=2).max(1), 1, atol=2e-3)
    assert np.allclose(np.linalg.norm(normals, axis=2), 1, atol=2e-3)
    assert clouds.labels.tolist() == FAMILIES.tolist()


def test_sections_and_profiles_have_their_symmetry():
    angle, generator = 2 * np.pi * np.arange(60) / 60, np.random.RandomState(0)
    radius = solids._section(np.arange(6), angle, generator)
    for number, folds in enumerate((60, 3, 4, 6, 5, 4)):
        assert np.allclose(radius[number], np.roll(radius[number], 60 // folds)), SECTIONS[number]
    corners = solids._section(np.array([2]), angle, np.random.RandomState(1))[0]
    assert corners[0] == corners.max()  # a vertex is at the corner of the square
    height = np.linspace(-1, 1, 25)
    scale = solids._profile(np.arange(6), height, generator)
    assert (scale[[0, RING]] == 1).all()
    assert (np.diff(scale[1]) < 0).all()
    assert scale[2].argmax() == scale[4].argmax() == scale[3].argmin() == 12
    assert scale[4, 0] == scale[4, -1] == 0


def test_one_seed_draws_one_set_of_solids():
    chunk = SolidChunk(FAMILIES[:4], SolidSettings(num_points=32), (1, 2))
    first, again = sample_solids(chunk), sample_solids(chunk)
    other = sample_solids(SolidChunk(FAMILIES[:4], SolidSettings(num_points=32, seed=1), (1, 2)))
    assert np.array_equal(first.points, again.points)
    assert not np.array_equal(first.points, other.points)


@pytest.mark.slow
def test_boxes_and_moments_do_not_tell_the_families():
    """A forest on extents, second to fourth moments and radii stays far below a model that sees shapes."""
    settings = SolidSettings(num_points=256)
    clouds = [sample_solids(SolidChunk(FAMILIES, settings, (number,))) for number in range(40)]
    points = np.concatenate([c.points for c in clouds]).astype(float)
    labels = np.concatenate([c.labels for c in clouds])
    moments = np.einsum("spi,spj->sij", points, points).reshape(-1, 9) / 256
    radii = np.quantile(np.linalg.norm(points, axis=2), np.linspace(0, 1, 6), axis=1).T
    higher = [(points**power).mean(1) for power in (3, 4)]
    features = np.concatenate([points.min(1), points.max(1), moments, radii, *higher], axis=1)
    half = len(labels) // 2
    forest = RandomForestClassifier(50, random_state=0).fit(features[:half], labels[:half])
    score = forest.score(features[half:], labels[half:])
    assert 2 / len(PROFILES) / len(SECTIONS) < score < 0.5
