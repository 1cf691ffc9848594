from __future__ import annotations

import dataclasses

import pytest
import torch

from graphbench.contracts import BenchmarkSpec, Column, Features, GraphTable
from graphbench.data.checks import check_table, check_targets
from graphbench.errors import BadInput

SPEC = BenchmarkSpec(
    name="Toy",
    task="graph-regression",
    node=Features(vocabularies=(5,), dense=3, names=("atom", "a", "b", "c")),
    edge=Features(vocabularies=(4,)),
    metric="MAE",
    higher_is_better=False,
    loss="L1",
    max_nodes=30,
)


def altered(table, name, row, value):
    columns = {key: values.clone() for key, values in table.columns.items()}
    columns[name][row] = value
    return GraphTable(columns, dict(table.layout), dict(table.ptr))


def with_y(table, y, axis="graph"):
    return GraphTable(table.columns | {"y": y}, table.layout | {"y": Column(axis)}, table.ptr)


def test_good_table_passes(make_table):
    check_table(make_table(), SPEC, "train")


@pytest.mark.parametrize(
    ("name", "value", "message"),
    [
        ("x", 5, r"Toy, train split: graph 117 has a value outside 0 .. 4 in x \(atom\): 5"),
        ("x", -1, r"graph 117 has a value outside 0 .. 4"),
        ("x_dense", float("nan"), r"graph 117 has a value in x_dense that is not finite"),
        ("x_dense", float("inf"), r"graph 117 has a value in x_dense that is not finite"),
        ("x_dense", -float("inf"), r"graph 117 has a value in x_dense that is not finite"),
        ("edge_attr", 4, r"graph 117 has a value outside 0 .. 3 in edge_attr \(column 0\): 4"),
        ("edge_index", 30, r"graph 117 has an edge to a node that it does not have"),
        ("edge_index", -1, r"graph 117 has an edge"),
        ("y", float("inf"), r"graph 117 has a value in y that is infinite"),
    ],
)
def test_a_wrong_value_is_named_with_its_graph(make_table, name, value, message):
    table = make_table()
    axis = table.layout[name].axis
    row = 17 if axis == "graph" else int(table.ptr[axis][18]) - 1
    with pytest.raises(BadInput, match=message):
        check_table(altered(table, name, row, value), SPEC, "train", first_graph=100)


def test_of_a_split_that_shares_its_graphs_only_targets_are_checked(make_table):
    table = make_table()
    check_targets(altered(table, "x", 0, 5), SPEC, "val")
    with pytest.raises(BadInput, match=r"Toy, val split: graph 17 has a value in y that is infinite"):
        check_targets(altered(table, "y", 17, float("inf")), SPEC, "val")


@pytest.mark.parametrize("end", [-1, 6])
def test_an_edge_that_leaves_a_single_graph_is_seen(end):
    path = {"num_nodes": 6, "edge_index": torch.tensor([[0, 1, 5], [1, 2, 4]]), "y": torch.zeros(1)}
    table = GraphTable.from_graphs([path])
    spec = dataclasses.replace(SPEC, node=Features(), edge=Features())
    check_table(table, spec, "train")
    with pytest.raises(BadInput, match="graph 0 has an edge to a node that it does not have"):
        check_table(altered(table, "edge_index", 2, torch.tensor([5, end])), spec, "train")


MAPS = dataclasses.replace(SPEC, task="map-recovery", loss="normalised_MSE", num_targets=2)
CONTACTS = dataclasses.replace(SPEC, task="link-ranking", loss="contrastive_BCE", metric="MRR", higher_is_better=True)


@pytest.mark.parametrize("value", [float("nan"), float("inf")])
def test_maps_to_recover_have_no_gaps(make_table, value):
    table = make_table()
    good = with_y(table, torch.zeros(int(table.num_nodes.sum()), 2), "node")
    check_table(good, MAPS, "train")
    bad = altered(good, "y", int(table.ptr["node"][18]) - 1, value)
    with pytest.raises(BadInput, match=r"graph 117 has a value in y that is not finite"):
        check_table(bad, MAPS, "train", first_graph=100)
    with pytest.raises(BadInput, match=r"y must have one row of 2 numbers per node, got shape \[1\] per graph"):
        check_table(table, MAPS, "train")


@pytest.mark.parametrize("value", [30, -1])
def test_true_pairs_name_nodes_of_their_graph(make_table, value):
    table = make_table()
    pairs = torch.zeros(2 * len(table), 2, dtype=torch.int64)
    ptr = table.ptr | {"contact": torch.arange(len(table) + 1) * 2}
    layout = table.layout | {"contact_index": Column("contact", index_of="node")}
    good = GraphTable(table.columns | {"contact_index": pairs}, layout, ptr)
    check_table(good, CONTACTS, "train")
    with pytest.raises(BadInput, match=r"graph 117 names a node that it does not have in contact_index"):
        check_table(altered(good, "contact_index", (35, 1), value), CONTACTS, "train", first_graph=100)
    with pytest.raises(BadInput, match=r"contact_index must hold integers, got torch.float32"):
        check_table(GraphTable(good.columns | {"contact_index": pairs.float()}, layout, ptr), CONTACTS, "train")
    with pytest.raises(BadInput, match=r"the specification promises contact_index"):
        check_table(table, CONTACTS, "train")


def test_missing_labels_may_be_nan(make_table):
    check_table(altered(make_table(), "y", 3, float("nan")), SPEC, "train")


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"max_nodes": 10}, "has more than 10 nodes"),
        ({"num_targets": 2}, "y must have one row of 2 numbers per graph"),
        ({"node": Features(vocabularies=(5, 3))}, "x must have one row of 2 numbers per node"),
        ({"coordinates": 2}, "promises pos, but the graphs have only"),
        ({"task": "graph-classification", "num_classes": 3}, "y must hold class numbers"),
        ({"task": "graph-multilabel"}, "graph 2 has a value in y other than 0, 1 and NaN"),
    ],
)
def test_a_broken_promise_is_named(make_table, change, message):
    with pytest.raises(BadInput, match=message):
        check_table(make_table(), dataclasses.replace(SPEC, **change), "train")


def test_class_numbers_of_graphs_and_nodes(make_table):
    table = make_table()
    graphs = dataclasses.replace(SPEC, task="graph-classification", num_classes=3)
    nodes = dataclasses.replace(SPEC, task="node-classification", num_classes=3)
    labels = torch.arange(40) % 3
    check_table(with_y(table, labels), graphs, "train")
    node_labels = torch.arange(int(table.num_nodes.sum())) % 3
    check_table(with_y(table, node_labels, "node"), nodes, "train")
    with pytest.raises(BadInput, match=r"graph 4 has a class outside 0 .. 2 in y: 3"):
        check_table(with_y(table, labels.index_fill(0, torch.tensor([4]), 3)), graphs, "train")
    with pytest.raises(BadInput, match="y must have one row of 1 numbers per node"):
        check_table(with_y(table, labels), nodes, "train")
    check_table(with_y(table, node_labels - 1, "node"), nodes, "train")  # -1: no label
    with pytest.raises(BadInput, match=r"graph 0 has a class outside 0 .. 2 in y: -2"):
        check_table(with_y(table, node_labels - 2, "node"), nodes, "train")
    with pytest.raises(BadInput, match=r"graph 0 has a class outside 0 .. 2 in y: -1"):
        check_table(with_y(table, labels - 1), graphs, "train")


def test_columns_must_have_the_rows_of_their_axis(make_table):
    table = make_table()
    table.columns["x"] = table.columns["x"][:-1]
    with pytest.raises(BadInput, match=r"x has .* rows, but its axis has"):
        check_table(table, SPEC, "train")


def test_a_graph_without_nodes_is_refused(make_table):
    empty = {"num_nodes": 0, "edge_index": torch.zeros(2, 0, dtype=torch.int64), "y": torch.tensor([1.0])}
    whole = {"num_nodes": 1, "edge_index": torch.zeros(2, 1, dtype=torch.int64), "y": torch.tensor([1.0])}
    spec = dataclasses.replace(SPEC, node=Features(), edge=Features())
    with pytest.raises(BadInput, match="graph 1 has no node"):
        check_table(GraphTable.from_graphs([whole, empty, whole]), spec, "train")
