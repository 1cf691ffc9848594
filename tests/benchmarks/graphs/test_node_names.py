"""Node names of a source are kept in the store and written with the predictions of a split."""

from itertools import pairwise

import networkx as nx
import pandas as pd
import pytest
import torch
from torch_geometric.data import Data

from graphbench.benchmarks.graphs.benchmark import Graphs
from graphbench.cli.split_predictions import table
from graphbench.contracts.spec import SPLITS
from graphbench.training.tasks.rows import rows_of


def tables(folder, sizes, target):
    """Write path graphs of named nodes as tables; return the benchmark and the names of each graph."""
    folder.mkdir()
    names = [[f"Knoten {g}/{size - k} ü" for k in range(size)] for g, size in enumerate(sizes)]
    rows = [(f"g{g}", name, g + k / 10, "ab"[k % 2]) for g, one in enumerate(names) for k, name in enumerate(one)]
    nodes = pd.DataFrame(rows, columns=["graph", "node", "size", "kind"])
    rows = [(f"g{g}", *pair, k % 2 * 1.5) for g, one in enumerate(names) for k, pair in enumerate(pairwise(one))]
    edges = pd.DataFrame(rows, columns=["graph", "source", "target", "length"])
    if len(sizes) == 1:
        nodes, edges = nodes.drop(columns="graph"), edges.drop(columns="graph")
    nodes.to_csv(folder / "nodes.csv", index=False)
    edges.to_csv(folder / "edges.csv", index=False)
    return Graphs(str(folder), target=target, store=str(folder / "store"), root=str(folder / "data")), names


def columns_of(data, split):
    """Return what `predict_step` returns for a split, with targets, repeated for each class, as predictions."""
    batch = data.tables[split].batch(range(len(data.tables[split])))
    values = batch.y.reshape(len(batch.y), -1)
    predictions = values.float().expand(-1, data.spec.num_classes or -1)
    return rows_of(data.spec.level, batch) | {"prediction": predictions, "target": values}


@pytest.mark.parametrize("target", ["size", "kind", "length"])
@pytest.mark.parametrize("sizes", [[5, 3, 4] * 5, [40]])
def test_predictions_of_a_split_name_the_nodes_of_tables(tmp_path, sizes, target):
    data, names = tables(tmp_path / "t", sizes, target)
    data.setup()
    told = 0
    for split in SPLITS:
        for row in table(data, columns_of(data, split), split).to_dict("records"):
            called = names[int(str(row["id"]).removeprefix("g"))]
            for number, name in (("node", "node_name"), ("source", "source_name"), ("destination", "destination_name")):
                if number in row:
                    assert row[name] == called[row[number]]
                    told += 1
    assert told >= sum(sizes)
    assert Graphs(data.source.origin, target=target, store=str(tmp_path / "t/store")).node_names("val") == (
        data.node_names("val")
    ), "read from the store"


def test_nodes_of_networkx_keep_their_names(tmp_path):
    folder = tmp_path / "g"
    folder.mkdir()
    for number in range(20):
        graph = nx.path_graph(["left", "middle", f"right {number}"])
        nx.set_node_attributes(graph, {name: float(k) for k, name in enumerate(graph)}, "weight")
        nx.write_graphml(graph, folder / f"{number}.graphml")
    data = Graphs(str(folder), target="weight", store=str(tmp_path / "store"))
    assert {names[2] for split in SPLITS for names in data.node_names(split)} == {f"right {n}" for n in range(20)}


def test_graphs_in_memory_that_differ_only_in_names_do_not_share_them(tmp_path):
    for names in (["a", "b", "c"], ["d", "e", "f"]):
        graphs = [nx.path_graph(names) for _ in range(20)]
        for number, graph in enumerate(graphs):
            graph.graph["y"] = number / 2
        assert Graphs(graphs, store=str(tmp_path)).node_names("val")[0] == names


def test_numbered_nodes_have_no_names(tmp_path):
    edges = torch.tensor([[0, 1], [1, 0]])
    graphs = [Data(x=torch.randn(2, 1), edge_index=edges, y=torch.randn(2)) for _ in range(10)]
    data = Graphs(graphs, store=str(tmp_path))
    data.setup()
    assert data.node_names("test") is None
    assert "node_name" not in table(data, columns_of(data, "test"), "test")
