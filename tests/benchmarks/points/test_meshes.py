"""OFF files as in ModelNet: whole, with joined first lines, with polygons, and damaged."""

import numpy as np
import pytest
import torch
from scipy import stats
from torch_geometric.io import read_off

from graphbench.benchmarks.points.meshes import parse_off, sample_surfaces, to_unit_sphere
from graphbench.errors import CorruptData

VERTICES = "0 0 0\n1 0 0\n1 1 0\n0 1 0\n0.5 0.5 1e-1\n"
SQUARE = f"OFF\n5 2 0\n{VERTICES}3 0 1 2\n4 0 1 2 3\n"


def test_polygons_become_fans():
    corners = parse_off(SQUARE.encode(), "square.off")
    assert corners.shape == (3, 3, 3)
    assert corners[2].tolist() == [[0, 0, 0], [1, 1, 0], [0, 1, 0]]


@pytest.mark.parametrize("header", ["OFF\n5 2 0\n", "OFF5 2 0\n", "OFF\r\n5 2 0\r\n"])
def test_triangles_are_as_pyg_reads_them(tmp_path, header):
    text = f"{header}{VERTICES}3 0 1 4\n3 1 2 4\n"
    corners = parse_off(text.encode(), "mesh.off")
    plain = tmp_path / "mesh.off"
    plain.write_text(text.replace("\r", ""))
    mesh = read_off(str(plain))
    assert np.allclose(corners, mesh.pos[mesh.face.T].to(torch.float64), atol=1e-7)


def test_colours_behind_the_corners_of_a_face_are_left_out():
    """Each of 40 triangles around a ring is followed by three numbers that could be another face."""
    ring = np.random.RandomState(0).standard_normal((50, 3))
    faces = np.array([[i, (i + 1) % 50, (i + 2) % 50] for i in range(5, 45)])
    lines = ["OFF", "50 40 0", *(" ".join(map(repr, map(float, row))) for row in ring)]
    lines += [f"3 {a} {b} {c} 1 1 1" for a, b, c in faces]
    assert parse_off("\n".join(lines).encode(), "ring.off").tolist() == ring[faces].tolist()


@pytest.mark.parametrize(
    "faces", ["4 0 1 2 3\n3 0 1 2 255 0 0\n", "4 0 1\n2 3\n\n3 0 1 2 7\n", "4 0 1 2 3 0.5\n3 0 1 2\n"]
)
def test_a_face_may_take_several_lines_and_none_shares_one(faces):
    corners = parse_off(f"OFF\n5 2 0\n{VERTICES}{faces}".encode(), "mesh.off")
    square = [[0, 0, 0], [1, 0, 0], [1, 1, 0], [0, 1, 0]]
    assert corners.tolist() == [[square[i] for i in face] for face in ((0, 1, 2), (0, 2, 3), (0, 1, 2))]


@pytest.mark.parametrize(
    ("content", "complaint"),
    [
        (b"PLY\n1 2 3", "not in OFF format"),
        (b"OFF\n", "ends before"),
        (SQUARE[:40].encode(), "ends before"),
        (SQUARE[:-6].encode(), "ends before its 2 faces"),
        (SQUARE.replace("3 0 1 2", "3 0 1 9").encode(), "vertices it does not have"),
        (SQUARE.replace("1e-1", "high").encode(), "not a number"),
        (SQUARE.replace("1e-1", "nan").encode(), "no finite place"),
        (SQUARE.replace("5 2 0", "5 0 0").encode(), "5 vertices and 0 faces"),
        (SQUARE.replace("5 2 0", "5 -1 0").encode(), "5 vertices and -1 faces"),
        (SQUARE.replace("5 2 0", "-1 2 0").encode(), "-1 vertices and 2 faces"),
        (SQUARE.replace("5 2 0", "5 2.5 0").encode(), "5 vertices and 2.5 faces"),
        (SQUARE.replace("5 2 0", "nan 2 0").encode(), "nan vertices"),
        (SQUARE.replace("5 2 0", "1e300 1e300 0").encode(), "ends before"),
        (SQUARE.replace("5 2 0", "5 3 0").encode(), "ends before its 3 faces"),
        (SQUARE.replace("3 0 1 2", "3 0 1 1.5").encode(), "vertices it does not have"),
        (SQUARE.replace("3 0 1 2", "0").encode(), "a face with 0 corners"),
        (SQUARE.replace("3 0 1 2", "2 0 1").replace("4 0 1 2 3", "2 0 1").encode(), "no faces"),
        (SQUARE.replace("5 2 0", "5 1 0").encode(), "continues after its 1 faces"),
        (SQUARE.replace("4 0 1 2 3", "3 0 2 3").replace("5 2 0", "5 1 0").encode(), "continues after its 1 faces"),
        (SQUARE.replace("0.5 0.5 1e-1", "2 0 1").replace("5 2 0", "4 2 0").encode(), "continues after its 2 faces"),
        (SQUARE.replace("0.5 0.5 1e-1", "0.5 0.5 1e-1 9").encode(), "more than three numbers for a vertex"),
    ],
)
def test_damaged_file_is_told(content, complaint):
    with pytest.raises(CorruptData, match=complaint):
        parse_off(content, "mesh.off")


@pytest.fixture
def corners():
    """Return two surfaces: triangles of area 1/2, 3/2 and 0, and a square in another plane."""
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
    assert (to_unit_sphere(np.full((7, 3), 0.1)) == 0).all()  # whose rounded mean is another number
    assert (to_unit_sphere(np.zeros((2, 3))) == 0).all()


@pytest.mark.parametrize("factor", [1e300, 1e200, 1e-14, 1e-200, 1e-300])
def test_clouds_of_any_scale_get_the_same_place(factor):
    cloud = np.random.RandomState(1).standard_normal((100, 3)) + 2
    with np.errstate(all="raise"):
        assert np.allclose(to_unit_sphere(cloud * factor), to_unit_sphere(cloud), rtol=1e-9, atol=1e-12)
    both = to_unit_sphere(np.stack([cloud * factor, cloud]))
    assert np.allclose(both[0], both[1], rtol=1e-9, atol=1e-12)
