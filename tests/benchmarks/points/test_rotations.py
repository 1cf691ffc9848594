"""Rotations: orthogonal, and uniform by the closed forms of Haar measure."""

import numpy as np
import pytest
import torch
from scipy import stats
from scipy.spatial.transform import Rotation

from graphbench.benchmarks.points.rotations import random_rotations, random_turns, rotate

COUNT = 20_000


@pytest.fixture(scope="module")
def rotations():
    return random_rotations(COUNT, torch.Generator().manual_seed(0)).double()


def test_rotations_are_proper(rotations):
    assert torch.allclose(rotations @ rotations.mT, torch.eye(3, dtype=torch.float64).expand(COUNT, 3, 3), atol=1e-5)
    assert torch.allclose(torch.linalg.det(rotations), torch.ones(COUNT, dtype=torch.float64), atol=1e-5)


def test_rotation_angles_have_the_density_of_haar_measure(rotations):
    """The angle has the distribution function (a - sin a) / pi; a uniform angle about a uniform axis fails this."""
    trace = rotations.diagonal(dim1=1, dim2=2).sum(1).numpy()
    angle = np.arccos(np.clip((trace - 1) / 2, -1, 1))
    assert stats.kstest(angle, lambda a: (a - np.sin(a)) / np.pi).pvalue > 0.001
    uniform = Rotation.from_rotvec(np.linspace(0, np.pi, COUNT)[:, None] * np.array([0.0, 0.0, 1.0])).magnitude()
    assert stats.kstest(uniform, lambda a: (a - np.sin(a)) / np.pi).pvalue < 1e-6


@pytest.mark.parametrize("column", range(3))
def test_turned_axes_are_uniform_on_the_sphere(rotations, column):
    """By Archimedes every coordinate of a uniform direction is uniform on -1..1."""
    for row in range(3):
        assert stats.kstest(rotations[:, row, column].numpy(), stats.uniform(-1, 2).cdf).pvalue > 0.001


def test_rotations_by_a_fixed_one_stay_uniform(rotations):
    """Haar measure is invariant: the mean of the outer products of all entries is the same after a turn."""
    fixed = torch.from_numpy(Rotation.from_euler("xyz", [0.3, 1.1, -0.7]).as_matrix())
    for sample in (rotations, fixed @ rotations):
        entries = sample.reshape(COUNT, 9)
        assert torch.allclose(entries.T @ entries / COUNT, torch.eye(9, dtype=torch.float64) / 3, atol=0.02)


@pytest.mark.parametrize("axis", range(3))
def test_turns_keep_their_axis(axis):
    turns = random_turns(COUNT, torch.Generator().manual_seed(1), axis)
    assert torch.equal(turns[:, :, axis], torch.eye(3)[axis].expand(COUNT, 3))
    assert torch.allclose(torch.linalg.det(turns.double()), torch.ones(COUNT, dtype=torch.float64), atol=1e-5)
    first, second = (axis + 1) % 3, (axis + 2) % 3
    angle = torch.atan2(turns[:, second, first], turns[:, first, first]).double().numpy()
    assert stats.kstest(angle, stats.uniform(-np.pi, 2 * np.pi).cdf).pvalue > 0.001


def test_every_point_gets_the_rotation_of_its_cloud(rotations):
    vectors, owner = torch.randn(50, 3, dtype=torch.float64), torch.arange(50) // 5
    expected = Rotation.from_matrix(rotations[owner].numpy()).apply(vectors.numpy())
    assert np.allclose(rotate(vectors, rotations[:10], owner).numpy(), expected, atol=1e-4)
