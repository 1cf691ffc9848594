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
    ],
)
def test_damaged_file_is_told(content, complaint):
    with pytest.raises(CorruptData, match=complaint):
        parse_off(content, "mesh.off")
