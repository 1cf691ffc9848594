"""OFF files as ModelNet has them: whole, with glued first lines, with polygons, and torn."""

import numpy as np
import pytest
import torch
from torch_geometric.io import read_off

from graphbench.benchmarks.points.off import parse_off
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
    """Of 40 triangles around a ring, each with three numbers that could be a face of their own."""
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
        (SQUARE.replace("1e-1", "high").encode(), "no number"),
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
        (SQUARE.replace("0.5 0.5 1e-1", "0.5 0.5 1e-1 9").encode(), "more than three numbers for a vertex"),
    ],
)
def test_damaged_file_is_told(content, complaint):
    with pytest.raises(CorruptData, match=complaint):
        parse_off(content, "mesh.off")
