"""Sources by name: functions, sets of PyG, of OGB in its files' layout, and of graphbench-lib."""

from __future__ import annotations

import gzip
import random
import sys

import numpy as np
import pytest
import torch
from own_graphs import write_tu
from torch_geometric.datasets import MalNetTiny

from graphbench.benchmarks.graphs.benchmark import Graphs
from graphbench.benchmarks.graphs.named import LIBRARY
from graphbench.errors import BadInput, MissingData, UnknownName

SPLITS = ("train", "val", "test")
MODULE = """
import torch
from torch_geometric.data import Data

def load(count=12):
    edges = torch.tensor([[0, 1, 1, 2], [1, 0, 2, 1]])
    return [Data(x=torch.full((3, 1), n % 3), edge_index=edges, y=float(n) / 2) for n in range(count)]

def fail():
    raise ValueError("no such drive")

number = 3
"""


def benchmark(source, tmp_path, **options):
    return Graphs(source, root=str(tmp_path / "data"), **options)


def test_a_function_is_called_with_its_arguments(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", [*sys.path])
    (tmp_path / "my_own_graphs.py").write_text(MODULE)
    made = benchmark("my_own_graphs:load", tmp_path, arguments={"count": 20})
    made.setup()
    assert made.spec.split_sizes == (16, 2, 2)
    assert made.spec.task == "graph-regression"
    for source, message in (
        ("my_own_graphs:fail", "it failed with ValueError: no such drive"),
        ("my_own_graphs:lod", "has no attribute 'lod'"),
        ("my_own_graphs:number", "this is a int"),
        ("my_other_graphs:load", "No module named 'my_other_graphs'"),
    ):
        with pytest.raises(BadInput, match=message):
            benchmark(source, tmp_path)
    with pytest.raises(BadInput, match="unexpected keyword argument 'size'"):
        benchmark("my_own_graphs:load", tmp_path, arguments={"size": 2})


def test_published_splits_of_a_set_of_pyg(tmp_path):
    def write(root):
        raw = root / "raw"
        for split, count in (("train", 6), ("val", 2), ("test", 3)):
            (raw / "split_info_tiny" / "type").mkdir(parents=True, exist_ok=True)
            names = [f"{('addisplay', 'benign')[n % 2]}/{split}{n}" for n in range(count)]
            (raw / "split_info_tiny" / "type" / f"{split}.txt").write_text("".join(f"{name}\n" for name in names))
            for size, name in enumerate(names, start=2):
                path = raw / "malnet-graphs-tiny" / f"{name}.edgelist"
                path.parent.mkdir(parents=True, exist_ok=True)
                edges = "".join(f"{node} {node + 1}\n" for node in range(size))
                path.write_text("# 1\n# 2\n# 3\n# 4\n# 5\n" + edges)

    write(tmp_path / "data" / "MalNetTiny")
    write(tmp_path / "other")
    made = benchmark("MalNetTiny", tmp_path)
    made.setup()
    assert made.spec.split_sizes == (6, 2, 3)
    for split in SPLITS:
        batch = made.tables[split].batch(range(len(made.tables[split])))
        published = MalNetTiny(str(tmp_path / "other"), split=split)
        assert torch.equal(batch.y[:, 0], torch.cat([graph.y for graph in published]))
        assert batch.ptr.diff().tolist() == [graph.num_nodes for graph in published]
    assert sum(benchmark("MalNetTiny:split=train", tmp_path, fractions=(0.5, 0.25, 0.25)).spec.split_sizes) == 6


def test_other_files_are_other_data(tmp_path):
    raw = tmp_path / "data" / "TUDataset" / "DS" / "raw"
    write_tu(raw, "DS")
    first = benchmark("TUDataset:DS", tmp_path).source_key()
    assert benchmark("TUDataset:DS", tmp_path).source_key() == first
    assert benchmark("TUDataset:DS,use_node_attr=true", tmp_path).source_key() != first
    write_tu(raw, "DS", seed=1)
    assert benchmark("TUDataset:DS", tmp_path).source_key() != first


def test_generated_sets_repeat_and_leave_random_numbers_alone(tmp_path):
    torch.manual_seed(5)
    random.seed(5)
    states = (torch.get_rng_state(), random.getstate(), np.random.get_state()[1].copy())
    name = "FakeDataset:num_graphs=12,avg_num_nodes=8,avg_degree=3,num_channels=4"
    first, again = benchmark(name, tmp_path / "a"), benchmark(name, tmp_path / "b")
    assert first.source_key() == again.source_key()
    assert torch.equal(torch.get_rng_state(), states[0])
    assert random.getstate() == states[1]
    assert np.array_equal(np.random.get_state()[1], states[2])


def test_names_that_nothing_has(tmp_path):
    for source, message in (
        ("TUDatset:MUTAG", "'TUDatset'. Did you mean TUDataset"),
        ("TUDataset:DS,use_node=1", "No argument of TUDataset is called 'use_node'. Did you mean use_node_attr"),
        ("ogbg-molbase", "Did you mean ogbg-molbace"),
    ):
        with pytest.raises(UnknownName, match=message):
            benchmark(source, tmp_path)
    with pytest.raises(BadInput, match="no task does subtoken prediction"):
        benchmark("ogbg-code2", tmp_path)
    with pytest.raises(MissingData, match="there is no such file or folder, and no data set or function"):
        benchmark("neither", tmp_path)


def write_ogb(folder, graphs, tasks):
    """OGB's raw files: compressed tables of all graphs, and the published split."""
    rng = np.random.RandomState(0)
    nodes = rng.randint(3, 7, graphs)
    edges = nodes - 1
    tables = {
        "raw/num-node-list": nodes[:, None],
        "raw/num-edge-list": edges[:, None],
        "raw/edge": np.concatenate([np.stack([np.arange(n - 1), np.arange(1, n)], 1) for n in nodes]),
        "raw/node-feat": rng.randint(0, 2, (nodes.sum(), 9)),
        "raw/edge-feat": rng.randint(0, 2, (edges.sum(), 3)),
        "raw/graph-label": rng.randint(0, 2, (graphs, tasks)),
        "split/scaffold/train": np.arange(graphs - 4)[:, None],
        "split/scaffold/valid": np.arange(graphs - 4, graphs - 2)[:, None],
        "split/scaffold/test": np.arange(graphs - 2, graphs)[:, None],
    }
    for name, rows in tables.items():
        path = folder / f"{name}.csv.gz"
        path.parent.mkdir(parents=True, exist_ok=True)
        with gzip.open(path, "wt") as file:
            file.writelines(",".join(map(str, row)) + "\n" for row in rows)
    (folder / "RELEASE_v1.txt").touch()
    return tables


def test_sets_of_ogb_with_their_split_and_metric(tmp_path, capsys):
    tables = write_ogb(tmp_path / "data" / "ogbg_molbace", 12, 1)
    made = benchmark("ogbg-molbace", tmp_path)
    made.setup()
    assert (made.spec.task, made.spec.metric, made.spec.split_sizes) == ("graph-multilabel", "AUROC", (8, 2, 2))
    assert made.ids("val") == [8, 9]
    y = torch.cat([made.tables[split].columns["y"] for split in SPLITS])
    assert y[:, 0].tolist() == tables["raw/graph-label"][:, 0].tolist()
    x = torch.cat([made.tables[split].columns["x"] for split in SPLITS])
    assert x.tolist() == tables["raw/node-feat"].tolist()
    assert capsys.readouterr().out == "", "commands print results there"


LOADER = """
class Loader:
    def __init__(self, root, dataset_names):
        self.name = dataset_names

    def load(self):
        if self.name != "tiny_set":
            raise ValueError(f"Dataset {self.name} is not supported.")
        import torch
        from torch_geometric.data import Data

        edges = torch.tensor([[0, 1], [1, 0]])
        make = lambda n: Data(x=torch.ones(2, 1), edge_index=edges, y=torch.tensor([n % 2]), note=object())
        return [{split: [make(n) for n in range(size)] for split, size in (("train", 6), ("val", 2), ("test", 4))}]
"""


def test_graphbench_lib_in_a_folder_of_its_own(tmp_path, monkeypatch):
    monkeypatch.delenv(LIBRARY, raising=False)
    with pytest.raises(BadInput, match=r"graphbench-lib:tiny_set needs graphbench-lib .* set GRAPHBENCH_LIB=FOLDER"):
        benchmark("graphbench-lib:tiny_set", tmp_path)
    (tmp_path / "library" / "graphbench").mkdir(parents=True)
    (tmp_path / "library" / "graphbench" / "__init__.py").write_text(LOADER)
    monkeypatch.setenv(LIBRARY, str(tmp_path / "library"))
    made = benchmark("graphbench-lib:tiny_set", tmp_path)
    made.setup()
    assert made.spec.split_sizes == (6, 2, 4)
    with pytest.raises(BadInput, match=r"could not load it: ValueError: Dataset other is not supported"):
        benchmark("graphbench-lib:other", tmp_path)
