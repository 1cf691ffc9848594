"""The contract of benchmarks, for `Graphs` from every kind of source and for every kind of target."""

from __future__ import annotations

import json
from typing import ClassVar

import networkx as nx
import pandas as pd
import pytest
import torch
from own_graphs import make_graphs, write_tu

from graphbench.benchmarks.graphs.benchmark import Graphs
from graphbench.testing.benchmarks import BenchmarkContract


class _Contract(BenchmarkContract):
    complete: ClassVar[bool] = True
    options: ClassVar[dict] = {}

    @pytest.fixture(autouse=True)
    def _place(self, tmp_path):
        self.folder = tmp_path
        self.name = self.source()

    def make_benchmark(self):
        return Graphs(self.name, root=str(self.folder / "data"), **self.options)


class TestTUDatasetByName(_Contract):
    def source(self):
        write_tu(self.folder / "data" / "TUDataset" / "DS" / "raw", "DS")
        return "TUDataset:DS,use_node_attr=true"


class TestTUFolder(_Contract):
    options: ClassVar[dict] = {"split": "k-fold", "num_folds": 5, "fold": 2}

    def source(self):
        return str(write_tu(self.folder / "DS" / "raw", "DS", attributes=False).parent)


class TestSavedNodes(_Contract):
    options: ClassVar[dict] = {"target": "role", "node_features": ["x", "charge"], "loss": "weighted_cross_entropy"}

    def source(self):
        torch.save(make_graphs(), self.folder / "mine.pt")
        return str(self.folder / "mine.pt")


class TestMultilabel(TestSavedNodes):
    options: ClassVar[dict] = {"target": "flags"}


class TestRegression(TestSavedNodes):
    options: ClassVar[dict] = {"target": ["energy", "several:2"], "group_column": "batch_number"}


class TestLinksOfJsonLines(_Contract):
    def source(self):
        lines = []
        for number in range(20):
            size = 5 + number % 3
            edges = [[node, (node + 1) % size] for node in range(size)]
            nodes = {"kind": ["ab"[node % 2] for node in range(size)]}
            lines.append(json.dumps({"id": f"g{number}", "nodes": nodes, "edges": edges, "links": [[0, 2], [1, 3]]}))
        (self.folder / "mine.jsonl").write_text("\n".join(lines))
        return str(self.folder / "mine.jsonl")


class TestGraphML(_Contract):
    options: ClassVar[dict] = {"fractions": (0.5, 0.25, 0.25)}

    def source(self):
        folder = self.folder / "files"
        folder.mkdir()
        for number in range(12):
            graph = nx.gnp_random_graph(6, 0.5, seed=number)
            nx.set_node_attributes(graph, {node: float(node) for node in graph}, "weight")
            nx.write_graphml(graph, folder / f"g{number}.graphml")
        table = pd.DataFrame({"graph": [f"g{number}" for number in range(12)], "group": ["left", "right"] * 6})
        table.to_csv(folder / "targets.csv", index=False)
        return str(folder)
