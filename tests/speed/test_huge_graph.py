"""The graph that speed/huge_graph.py writes, and the batches that both contenders load from it."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from scripts import load_script

SPEED = Path(__file__).parents[2] / "speed"


@pytest.fixture(scope="module")
def script():
    return load_script(SPEED / "huge_graph.py")


def test_both_contenders_load_the_graph_that_is_written(script, tmp_path):
    graph, store = tmp_path / "graph", tmp_path / "store"
    graph.mkdir()
    largest = script.write_graph(graph, 4000, 40_000)
    edges = np.load(graph / "edge_index.npy")
    degree = np.sort(np.bincount(edges[1], minlength=4000))[::-1]
    assert largest == degree[0] > 5 * degree.mean()
    assert (edges[:, :40_000] == edges[::-1, 40_000:]).all()
    assert (edges[0] != edges[1]).all()
    exponent = 1 + 400 / np.log(degree[:400] / degree[400]).sum()  # Hill's estimate
    assert 2 < exponent < 3.5
    masks = np.stack([np.load(graph / f"{split}_mask.npy") for split in ("train", "val", "test")])
    assert (masks.sum(0) == 1).all()
    ours, plain = (script.measure(who, "random", str(graph), str(store), 40) for who in ("ours", "PyG"))
    assert ours["count"] == plain["count"] == 100
    assert ours["edges"] == pytest.approx(80_000 / 100**2, rel=0.5)
    assert plain["edges"] == pytest.approx(80_000 / 100**2, rel=0.5)


def test_both_contenders_evaluate_every_edge(script, tmp_path):
    graph, store = tmp_path / "graph", tmp_path / "store"
    graph.mkdir()
    script.write_graph(graph, 500, 4000)
    for who in ("ours", "PyG"):
        found = script.measure(who, "layers", str(graph), str(store), 1)
        assert found["edges"] == 8000
        assert found["peak"] > 0
