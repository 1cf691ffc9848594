"""Graphs and options that `Graphs` refuses: the message names the graph, the row and what would be right."""

from __future__ import annotations

import pytest
import torch
from own_graphs import ring
from torch_geometric.data import Data

from graphbench.benchmarks.graphs.benchmark import Graphs
from graphbench.errors import BadInput, MissingData, UnknownName


def changed(graph, values):
    graph = graph.clone()
    for name, value in values.items():
        graph[name] = value
    return graph


NOWHERE = {"edge_index": torch.tensor([[0], [9]]), "edge_attr": torch.zeros(1, 3)}


@pytest.mark.parametrize(
    ("number", "values", "options", "message"),
    [
        (3, {"charge": torch.full((7,), torch.nan)}, {"node_features": ["charge"]}, "graph 3, node 0: charge is nan"),
        (2, NOWHERE, {}, "graph 2, edge 0: joins the nodes 0 and 9, but its graph has 6"),
        (1, {"x": torch.zeros(5, 3, dtype=torch.int64)}, {}, "graph 1: x has 3 columns, but 2 in .*graph 0"),
        (5, {"energy": torch.tensor([torch.inf])}, {"target": "energy"}, "graph 5: the target energy .*infinite"),
        (6, {"energy": torch.tensor([torch.nan])}, {"target": "energy"}, "graph 6: the target energy is missing"),
        (7, {"energy": None}, {"target": "energy"}, "target energy: .*graph 7 has no energy, but .*graph 0 has"),
        (0, {"x": torch.tensor([[-1, 0]] * 4)}, {}, "graph 0, node 0: x, column 0 is -1, which is negative"),
        (4, {"edge_attr": torch.zeros(3, 3)}, {}, "graph 4: edge_attr has 3 rows, but there are 16 edges"),
    ],
)
def test_errors_name_the_graph_and_the_row(graphs, tmp_path, number, values, options, message):
    spoilt = [changed(graph, values) if row == number else graph for row, graph in enumerate(graphs)]
    with pytest.raises(BadInput, match=message):
        Graphs(spoilt, store=str(tmp_path), **options)


@pytest.mark.parametrize(
    ("options", "error", "message"),
    [
        ({"target": "enrgy"}, UnknownName, "'enrgy'. Did you mean energy"),
        ({"node_features": ["chrge"]}, UnknownName, "'chrge'. Did you mean charge"),
        ({"continuous": ["chrge"]}, UnknownName, "'chrge'. Did you mean charge"),
        ({"continuous": ["charge"]}, BadInput, "but charge is none here"),  # of Data, only x is read by default
        ({"group_column": "batch_numbr"}, UnknownName, "Did you mean batch_number"),
        ({"target": "edge_attr", "task": "node-regression"}, BadInput, "does not fit edge_attr"),
        ({"target": ["energy", "role"]}, BadInput, "different levels"),
        ({"target": "several:4"}, BadInput, "has 4 columns, numbered from 0"),
        ({"target": "energy", "task": "node-classification"}, BadInput, "does not fit energy"),
        ({"task": "map-recovery"}, BadInput, "task must be one of graph-regression"),
        ({"task": "node-regression"}, BadInput, "task=node-regression does not fit y, which belongs to each graph"),
        ({"target": "energy", "num_classes": 3}, BadInput, "num_classes belongs to a classification"),
        ({"num_classes": 2}, BadInput, "has 3 classes"),
        ({"metric": "AUROC"}, BadInput, "graph-classification knows accuracy, class_accuracy, macro_F1"),
        ({"loss": "L1"}, BadInput, "loss=L1: graph-classification knows cross_entropy"),
        ({"task": "link-ranking"}, BadInput, "holds no pairs to rank"),
        ({"target": "role", "node_features": ["role"]}, BadInput, "role is the target"),
        ({"positions": True}, BadInput, "no column pos"),
        ({"fractions": (0.9, 0.2, 0.1)}, BadInput, "add up to 1"),
        ({"split": "groups"}, BadInput, "needs group_column"),
        ({"split": "given"}, BadInput, "the source gives none"),
        ({"split": "stratified", "target": "energy"}, BadInput, "one class per graph"),
        ({"fold": 10}, BadInput, "fold must be"),
    ],
)
def test_options_that_do_not_fit_are_refused(graphs, tmp_path, options, error, message):
    with pytest.raises(error, match=message):
        Graphs(graphs, store=str(tmp_path), **options)


def test_nothing_and_wrong_things_are_refused(tmp_path):
    for source, message in (([], "holds no graph"), ([1], "graph 0 is a int"), ({"a": []}, "train, val and test")):
        with pytest.raises(BadInput, match=message):
            Graphs(source, store=str(tmp_path))
    with pytest.raises(BadInput, match="graph 0 has no node"):
        Graphs([Data(x=torch.zeros(0, 1), edge_index=torch.empty(2, 0, dtype=torch.int64), y=1)], store=str(tmp_path))
    with pytest.raises(MissingData, match=r"absent\.pt: there is no such file"):
        Graphs("absent.pt", store=str(tmp_path))


def test_amounts_are_not_taken_for_classes(tmp_path):
    graphs = [Data(num_nodes=2, edge_index=ring(2), y=torch.tensor([number])) for number in range(30)]
    with pytest.raises(BadInput, match=r"30 different integers in 30 rows.*--data\.task graph-regression"):
        Graphs(graphs, store=str(tmp_path))
    assert Graphs(graphs, task="graph-regression", store=str(tmp_path)).spec.num_classes is None
