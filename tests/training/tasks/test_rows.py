"""Which graph and node each row of predictions belongs to."""

from __future__ import annotations

import torch

from graphbench.contracts import Column, GraphTable
from graphbench.contracts.table import NODE
from graphbench.training.tasks.rows import rows_of


def test_pairs_are_told_by_their_nodes_within_their_graph():
    path = {"num_nodes": 3, "edge_index": torch.tensor([[0, 1], [1, 2]])}
    graphs = [
        path | {"contact_index": torch.tensor([[0, 2]])},
        path | {"contact_index": torch.tensor([[1, 0], [2, 1]])},
    ]
    table = GraphTable.from_graphs(graphs, {"contact_index": Column("contact", index_of=NODE)})
    found = rows_of("pair", table.batch([1, 0]))
    assert {name: values.tolist() for name, values in found.items()} == {
        "graph": [1, 1, 0],
        "head": [1, 2, 0],
        "tail": [0, 1, 2],
    }


def test_graphs_keep_their_numbers():
    point = {"num_nodes": 1, "edge_index": torch.empty(2, 0, dtype=torch.int64)}
    assert rows_of("graph", GraphTable.from_graphs([point] * 3).batch([2, 0]))["graph"].tolist() == [2, 0]
