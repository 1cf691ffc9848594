"""Loaders of other projects return the graphs that they were given, and missing packages are reported."""

from __future__ import annotations

import importlib
import importlib.util
from pathlib import Path

import numpy as np
import pytest
import torch
from torch_geometric.data import Batch, Data

SPEED = Path(__file__).parents[2] / "speed"


@pytest.fixture
def peers(monkeypatch):
    monkeypatch.syspath_prepend(str(SPEED))
    return importlib.import_module("data_peers")


@pytest.fixture
def graphs(peers):
    data = importlib.import_module("data_path")
    rng = np.random.default_rng(0)
    drawn = [data._graph(n, [(i - 1, i) for i in range(1, n)], rng) for n in rng.integers(3, 9, 40)]
    return [graph | {"pe": torch.randn(graph["num_nodes"], 28)} for graph in drawn]


def test_rows_of_a_table_become_the_batch_that_pyg_makes(peers, graphs):
    rows = [{name: graph[name].flatten().numpy() for name in peers.SHAPES} for graph in graphs]
    found, expected = peers.batch_of_rows(rows), Batch.from_data_list([Data(**graph) for graph in graphs])
    assert sorted(found.keys()) == sorted(expected.keys())
    for name in (*peers.SHAPES, "batch", "ptr"):
        assert found[name].equal(expected[name]), name
    assert found.num_nodes == expected.num_nodes


def test_a_peer_that_is_missing_costs_a_line_and_no_more(peers, graphs, tmp_path, monkeypatch, capsys):
    written = {"there": ("json", lambda graphs, folder: len), "missing": ("no_such_module", None)}
    monkeypatch.setattr(peers, "PEERS", written)
    assert peers.written_by_peers(graphs, tmp_path) == {"there": len}
    said = "missing is not installed, its rows are left out; `make speed` installs it.\n"
    assert capsys.readouterr().out == said


@pytest.mark.parametrize("name", ["datasets"])
def test_a_peer_hands_out_every_graph_in_another_order(peers, graphs, tmp_path, name):
    module, write = peers.PEERS[name]
    if importlib.util.find_spec(module) is None:
        pytest.skip(f"`make speed` installs {name}")
    contents_of = importlib.import_module("data_path").contents_of
    batches = list(write(graphs, tmp_path)(0))
    assert [batch.num_graphs for batch in batches] == [32, 8]
    expected = Batch.from_data_list([Data(**graph) for graph in graphs])
    assert contents_of(batches) == contents_of([expected])
    assert not torch.cat([batch.y for batch in batches]).equal(expected.y)
    assert torch.cat([batch.y for batch in batches]).sort().values.equal(expected.y.sort().values)


def test_loaders_of_different_graphs_are_not_timed(peers, graphs):
    data = importlib.import_module("data_path")
    whole = [Batch.from_data_list([Data(**graph) for graph in graphs])]
    less = [Batch.from_data_list([Data(**graph) for graph in graphs[1:]])]
    with pytest.raises(AssertionError, match="less"):
        data.epochs_in_turns({"whole": whole, "less": less}, None, rounds=1)
