"""Weights of graphs and nodes: mean one in training, none where there is no label, refused where they do not fit."""

from __future__ import annotations

import pytest
import torch
from own_graphs import make_graphs
from torch_geometric.data import Data

from graphbench.benchmarks.graphs.benchmark import Graphs
from graphbench.errors import BadInput, UnknownName

SPLITS = ("train", "val", "test")


def weighted_graphs():
    """Thirty graphs with a number, classes of nodes, weights of both; the last node has neither class nor weight."""
    graphs = []
    for number, graph in enumerate(make_graphs(30)):
        count = graph.num_nodes
        label = torch.arange(count) % 2
        label[-1] = -1
        of_nodes = torch.arange(count).float()
        of_nodes[-1] = torch.nan
        kept = Data(x=graph.x, edge_index=graph.edge_index, trust=torch.tensor([float(number % 3)]), of_nodes=of_nodes)
        kept.y, kept.label, kept.note = torch.tensor([number / 7]), label, "text"
        graphs.append(kept)
    return graphs


def test_graphs_have_weights_of_mean_one_in_training(opened):
    data = opened(weighted_graphs(), target="y", weight="trust", split="random")
    weights = torch.cat([data.tables[split].columns["weight"] for split in SPLITS])
    numbers = torch.tensor([int(name) % 3 for split in SPLITS for name in data.ids(split)])
    assert float(data.tables["train"].columns["weight"].mean()) == pytest.approx(1)
    assert torch.allclose(weights[numbers == 2], 2 * weights[numbers == 1][0])
    assert not weights[numbers == 0].any()
    plain = opened(weighted_graphs(), target="y", split="random")
    assert "weight" not in plain.tables["train"].columns
    assert plain.spec == data.spec


@pytest.mark.parametrize("level", ["graph", "node"])
def test_nodes_have_weights_where_they_have_labels(opened, level):
    data = opened(weighted_graphs(), target="label", weight="of_nodes", split="random", split_level=level)
    train = data.tables["train"].columns
    known = train["y"].reshape(-1) >= 0
    assert float(train["weight"][known].mean()) == pytest.approx(1)
    if level == "graph":
        assert not train["weight"][~known].any()
    batch = data.tables["train"].batch([0, 1])
    assert batch.weight.shape == (batch.num_nodes,)
    assert (
        data.source_key() != opened(weighted_graphs(), target="label", split="random", split_level=level).source_key()
    )


@pytest.mark.parametrize(
    ("options", "error", "said"),
    [
        ({"target": "y", "weight": "turst"}, UnknownName, "Did you mean trust?"),
        ({"target": "y", "weight": "note"}, BadInput, "weight: note is text; expected one number for each graph"),
        ({"target": "label", "weight": "x", "node_features": []}, BadInput, "weight"),
    ],
)
def test_weights_that_do_not_fit_are_told(tmp_path, options, error, said):
    with pytest.raises(error, match=said):
        Graphs(weighted_graphs(), root=str(tmp_path), **options)


def test_a_negative_weight_is_named_with_its_graph(tmp_path):
    graphs = weighted_graphs()
    graphs[4].trust = torch.tensor([-1.0])
    with pytest.raises(BadInput, match=r"4: the weight trust is -1\.0; expected a number of 0 or more"):
        Graphs(graphs, "y", weight="trust", root=str(tmp_path))
