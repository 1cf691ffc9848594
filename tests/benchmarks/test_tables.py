"""Tables built from columns, against graphs written by hand."""

import numpy as np
import torch

from graphbench.benchmarks.tables import make_table


def test_columns_of_every_axis_are_batched():
    columns = {
        "x": (np.array([[1], [2], [3]]), "node"),
        "edge_index": (np.array([[0, 0], [0, 1]]), "edge"),
        "y": (torch.tensor([[0.5], [1.5]]), "graph"),
    }
    batch = make_table(columns, np.array([1, 2]), torch.tensor([1, 1])).batch([0, 1])
    assert batch.x.flatten().tolist() == [1, 2, 3]
    assert batch.edge_index.tolist() == [[0, 1], [0, 2]]
    assert batch.y.flatten().tolist() == [0.5, 1.5]


def test_graphs_may_have_no_edges():
    batch = make_table({"pos": (np.ones((3, 3)), "node")}, np.array([1, 2])).batch([1])
    assert (batch.num_nodes, tuple(batch.edge_index.shape)) == (2, (2, 0))
