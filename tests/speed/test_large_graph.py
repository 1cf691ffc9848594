"""The generated graph, and that both contenders of speed/large_graph.py compute the same."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
from scipy.sparse.csgraph import connected_components
from scripts import load_script
from torch_geometric.nn import GCNConv, SAGEConv
from torch_geometric.utils import is_undirected, to_scipy_sparse_matrix

SPEED = Path(__file__).parents[2] / "speed"


@pytest.fixture(scope="module")
def script():
    return load_script(SPEED / "large_graph.py")


def test_the_graph_is_connected_simple_and_has_heavy_degrees(script):
    graph = script.power_law_graph(4000, 28_000)
    assert graph.edge_index.shape == (2, 56_000)
    assert is_undirected(graph.edge_index, num_nodes=4000)
    assert not graph.has_self_loops()
    assert len(graph.edge_index.unique(dim=1)[0]) == 56_000
    assert connected_components(to_scipy_sparse_matrix(graph.edge_index, num_nodes=4000))[0] == 1
    degree = graph.edge_index[0].bincount().sort(descending=True).values.double()
    assert degree[0] > 20 * degree.mean(), "a few nodes have most of the edges"
    tail = degree[:400]
    exponent = 1 + len(tail) / (tail / tail[-1]).log().sum()  # Hill's estimate
    assert 2 < exponent < 3.2
    masks = torch.stack([graph.train_mask, graph.val_mask, graph.test_mask])
    assert (masks.sum(0) == 1).all()
    assert masks.sum(1).tolist() == [2160, 720, 1120]


@pytest.mark.parametrize(("mode", "conv"), [("full", GCNConv), ("neighbors", SAGEConv)])
def test_both_networks_are_one(script, tmp_path, mode, conv, monkeypatch):
    graph = script.power_law_graph(3000, 9000)
    torch.save(graph, tmp_path / "graph.pt")
    module, data = script.our_parts(mode, str(tmp_path / "graph.pt"), str(tmp_path / "store"), 8)
    plain = script.PlainNetwork(conv, 8)
    own = [module.architecture.node_encoder, *module.architecture.layers, module.task.head]
    theirs = [
        plain.first,
        *(torch.nn.ModuleList(pair) for pair in zip(plain.convs, plain.norms, strict=True)),
        plain.last,
    ]
    with torch.no_grad():
        for mine, other in zip(own, theirs, strict=True):
            for parameter, value in zip(other.parameters(), mine.parameters(), strict=True):
                parameter.copy_(value)
    data.setup()
    batch = data.tables["train"].batch([0])
    for mode_of in ("train", "eval"):
        getattr(module, mode_of)()
        getattr(plain, mode_of)()
        torch.manual_seed(1)
        output = module(batch)
        torch.manual_seed(1)
        assert torch.allclose(output, plain(graph.x, graph.edge_index), atol=1e-5)
