"""Augmentation of clouds in training, against the distributions that its options name."""

import numpy as np
import pytest
import torch
from scipy import stats
from scipy.spatial.transform import Rotation

from graphbench.benchmarks.points.augmentation import Augmentation, random_rotations, random_turns, rotate
from graphbench.benchmarks.points.solids import Solids
from graphbench.contracts import GraphTable

CLOUDS, POINTS = 60, 400
COLUMNS = ("pos", "x_dense", "y")


@pytest.fixture
def before():
    generator = torch.Generator().manual_seed(0)
    graphs = [
        {
            "num_nodes": POINTS,
            "edge_index": torch.zeros(2, 0).long(),
            "pos": torch.randn(POINTS, 3, generator=generator),
            "x_dense": torch.nn.functional.normalize(torch.randn(POINTS, 3, generator=generator)),
            "y": torch.arange(POINTS)[:, None],
        }
        for _ in range(CLOUDS)
    ]
    return GraphTable.from_graphs(graphs).batch(range(CLOUDS))


def changed(before, seed=1, **options):
    """Return an augmented copy of the batch."""
    after = before.clone()
    Augmentation(**options).apply(after, COLUMNS, torch.Generator().manual_seed(seed))
    return after


def test_nothing_is_asked_for_and_nothing_changes(before):
    after = changed(before)
    assert all(torch.equal(before[name], after[name]) for name in COLUMNS)


def test_dropped_points_become_the_first_of_their_cloud_with_all_that_they_have(before):
    after = changed(before, point_dropout=0.875)
    kept = (after.y == before.y)[:, 0]
    first = before.ptr[before.batch]
    for name in COLUMNS:
        assert torch.equal(after[name], torch.where(kept[:, None], before[name], before[name][first]))
    shares = 1 - kept.reshape(CLOUDS, POINTS)[:, 1:].double().mean(1)
    assert stats.kstest(shares.numpy(), stats.uniform(0, 0.875).cdf).pvalue > 0.001
    assert torch.equal(after.ptr, before.ptr)


def test_clouds_tilt_about_all_axes_by_normal_angles(before):
    after = changed(before, tilt=4.0)
    angles = []
    for cloud in range(CLOUDS):
        rows = before.batch == cloud
        matrix = torch.linalg.lstsq(before.pos[rows].double(), after.pos[rows].double()).solution.mT
        assert torch.allclose(matrix @ matrix.mT, torch.eye(3).double(), atol=1e-5)
        assert torch.allclose(after.x_dense[rows].double(), before.x_dense[rows].double() @ matrix.mT, atol=1e-5)
        angles.append(Rotation.from_matrix(matrix.numpy()).as_euler("xyz", degrees=True))
    found = np.concatenate(angles)
    assert stats.kstest(found, stats.norm(0, 4).cdf).pvalue > 0.001
    assert changed(before, tilt=60.0).pos.isfinite().all()
    assert np.abs(found).max() <= 12.001


def test_clouds_move_as_a_whole_after_they_are_scaled(before):
    after = changed(before, max_shift=0.2)
    moved = (after.pos - before.pos).reshape(CLOUDS, POINTS, 3)
    shift = moved.mean(1)
    assert torch.allclose(moved, shift[:, None].expand_as(moved), atol=1e-6)
    assert stats.kstest(shift.flatten().numpy(), stats.uniform(-0.2, 0.4).cdf).pvalue > 0.001
    assert torch.equal(after.x_dense, before.x_dense)
    both = changed(before, max_shift=0.2, scaling=(3.0, 3.0))
    assert torch.allclose(both.pos - 3 * before.pos, shift[before.batch], atol=1e-5)


def test_every_coordinate_gets_noise_of_its_own(before):
    after = changed(before, jitter=0.01)
    noise = (after.pos - before.pos).double().flatten()
    assert stats.kstest(noise[::7].numpy(), stats.norm(0, 0.01).cdf).pvalue > 0.001
    assert changed(before, jitter=100.0).pos.sub(before.pos).abs().max() <= 500.1
    assert torch.equal(after.x_dense, before.x_dense)


def test_evaluation_leaves_clouds_alone(tmp_path):
    options = {"max_shift": 0.2, "jitter": 0.01, "point_dropout": 0.875, "tilt": 3.4, "scaling": [0.8, 1.25]}
    benchmark = Solids(sizes=(36, 36, 36), num_points=32, store=str(tmp_path), **options)
    benchmark.setup()
    plain, seen = (benchmark.tables["val"].batch([0, 5]) for _ in range(2))
    assert torch.equal(benchmark.transform(seen).pos, plain.pos)
    generator = torch.Generator().manual_seed(0)
    assert not torch.equal(benchmark.transform(seen.clone(), generator).pos, plain.pos)
    assert options.items() <= benchmark.batch_options().items()


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


def test_the_default_dtype_changes_no_cloud(before):
    options = {"scaling": (0.8, 1.2), "scale_axes": True, "max_turn": 90.0, "tilt": 4.0}
    options |= {"max_shift": 0.1, "jitter": 0.01, "point_dropout": 0.5}
    expected = [changed(before, **options)[name] for name in COLUMNS]
    turns = [draw(4, torch.Generator().manual_seed(0)) for draw in (random_rotations, random_turns)]
    torch.set_default_dtype(torch.float64)
    try:
        found = [changed(before, **options)[name] for name in COLUMNS]
        others = [draw(4, torch.Generator().manual_seed(0)) for draw in (random_rotations, random_turns)]
    finally:
        torch.set_default_dtype(torch.float32)
    for one, other in zip(expected + turns, found + others, strict=True):
        assert one.dtype == other.dtype
        assert torch.equal(one, other)
