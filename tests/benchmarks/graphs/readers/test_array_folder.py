"""A graph in a folder of arrays against the same graph as a `Data` object."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from own_graphs import NODES, large_graph

from graphbench.benchmarks import Graphs
from graphbench.errors import BadInput, CorruptData


def write_arrays(folder, graph):
    folder.mkdir()
    for name, values in graph.to_dict().items():
        np.save(folder / f"{name}.npy", values.numpy())
    return folder


def test_arrays_are_the_graph_that_they_were(tmp_path):
    graph = large_graph()
    graph.train_mask = torch.arange(NODES) < 50
    graph.test_mask = torch.arange(NODES) >= 70
    tables = []
    for source in (graph, str(write_arrays(tmp_path / "arrays", graph))):
        data = Graphs(source, store=str(tmp_path / "store"))
        data.setup()
        tables.append(data.tables)
    for split, table in tables[0].items():
        assert table.columns.keys() == tables[1][split].columns.keys()
        for name, values in table.columns.items():
            torch.testing.assert_close(tables[1][split].columns[name], values, rtol=0, atol=0, equal_nan=True)


def test_arrays_that_do_not_fit_or_are_none_are_refused(tmp_path):
    folder = write_arrays(tmp_path / "arrays", large_graph())
    np.save(folder / "x.npy", np.zeros((NODES - 1, 2), dtype=np.float32))
    with pytest.raises(BadInput, match="its graph has 89 nodes"):
        Graphs(str(folder), store=str(tmp_path / "store"))
    np.save(folder / "x.npy", np.array([{}], dtype=object), allow_pickle=True)
    with pytest.raises(CorruptData, match=r"x\.npy cannot be read as an array"):
        Graphs(str(folder), store=str(tmp_path / "store"))
