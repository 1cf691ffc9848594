"""Sources by name: functions, data sets of PyG, and those of graphbench-lib."""

from __future__ import annotations

import random
import sys

import numpy as np
import pytest
import torch
from own_graphs import write_tu
from scipy.sparse import csr_matrix
from torch_geometric.datasets import KarateClub, MalNetTiny

from graphbench.benchmarks.graphs.benchmark import Graphs
from graphbench.benchmarks.graphs.readers.named import LIBRARY
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
    ):
        with pytest.raises(UnknownName, match=message):
            benchmark(source, tmp_path)
    with pytest.raises(MissingData, match="there is no such file or folder, and no data set or function"):
        benchmark("neither", tmp_path)


@pytest.mark.parametrize(
    ("source", "arguments", "option"),
    [
        ("TUDataset:MUTAG,name=PROTEINS", {}, "name"),
        ("TUDataset:MUTAG", {"name": "PROTEINS"}, "name"),
        ("TUDataset:name=MUTAG", {"name": "PROTEINS"}, "name"),
        ("TUDataset:name=MUTAG,name=PROTEINS", {}, "name"),
    ],
)
def test_an_argument_that_is_given_twice_is_refused(tmp_path, source, arguments, option):
    """Otherwise one of the two values would be ignored."""
    with pytest.raises(BadInput, match=option):
        benchmark(source, tmp_path, arguments=arguments)


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


@pytest.mark.slow
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


# -- published sets of one graph ------------------------------------------------------------------------------------


def write_npz(path, features, classes, nodes=24, seed=0):
    """Write a graph with loops in the layout of the Amazon and Coauthor sets: sparse matrices as their CSR arrays."""
    rng = np.random.RandomState(seed)
    attributes = csr_matrix((rng.rand(nodes, features) < 0.3).astype(np.float32) * 2)
    adjacency = csr_matrix((rng.rand(nodes, nodes) < 0.1).astype(np.float32))
    adjacency.setdiag(1.0)
    parts = {"labels": np.arange(nodes) % classes}
    for name, matrix in (("attr", attributes), ("adj", adjacency)):
        parts |= {f"{name}_{part}": getattr(matrix, part) for part in ("data", "indices", "indptr", "shape")}
    path.parent.mkdir(parents=True)
    np.savez(path, **parts)
    return attributes.toarray() > 0, adjacency.toarray() > 0, parts["labels"]


@pytest.mark.parametrize(
    ("source", "file"),
    [
        ("Amazon:Computers", "Amazon/Computers/raw/amazon_electronics_computers.npz"),
        ("Amazon:Photo", "Amazon/Photo/raw/amazon_electronics_photo.npz"),
        ("Coauthor:CS", "Coauthor/CS/raw/ms_academic_cs.npz"),
        ("Coauthor:Physics", "Coauthor/Physics/raw/ms_academic_phy.npz"),
    ],
)
def test_sets_without_a_split(tmp_path, source, file):
    x, adjacency, labels = write_npz(tmp_path / "data" / file, 5, 3)
    made = benchmark(source, tmp_path, fractions=(0.5, 0.25, 0.25))
    made.setup()
    assert (made.spec.task, made.spec.num_classes, made.spec.num_graphs) == ("node-classification", 3, 1)
    batch = made.tables["train"].batch([0])
    assert np.array_equal(batch.x_dense.numpy(), x)
    both = (adjacency | adjacency.T) & ~np.eye(len(x), dtype=bool)
    found = np.zeros_like(both)
    found[tuple(batch.edge_index.numpy())] = True
    assert np.array_equal(found, both)
    known = torch.cat([made.tables[split].columns["y"] for split in SPLITS], 1)
    assert (known >= 0).sum(1).tolist() == [1] * len(x), "each node is in one split"
    assert known.max(1).values.tolist() == labels.tolist()


def test_heterophilous_sets_have_ten_published_splits(tmp_path):
    rng = np.random.RandomState(0)
    nodes, edges = 20, rng.randint(20, size=(40, 2))
    part = np.stack([rng.permutation(np.arange(nodes) % 3) for _ in range(10)])
    masks = {f"{split}_masks": part == number for number, split in enumerate(SPLITS)}
    features = rng.rand(nodes, 4).astype(np.float32)
    path = tmp_path / "data" / "HeterophilousGraphDataset" / "roman_empire" / "raw" / "roman_empire.npz"
    path.parent.mkdir(parents=True)
    np.savez(path, node_features=features, node_labels=np.arange(nodes) % 5, edges=edges, **masks)
    for fold in (0, 7):
        made = benchmark("HeterophilousGraphDataset:Roman-empire", tmp_path, fold=fold)
        made.setup()
        for number, split in enumerate(SPLITS):
            known = made.tables[split].columns["y"][:, 0]
            assert known.tolist() == np.where(part[fold] == number, np.arange(nodes) % 5, -1).tolist()
        assert np.allclose(made.tables["test"].batch([0]).x_dense.numpy(), features)


def test_a_set_that_pyg_ships(tmp_path):
    published = KarateClub()[0]
    made = benchmark("KarateClub", tmp_path, fractions=(0.5, 0.2, 0.3))
    made.setup()
    assert (made.spec.task, made.spec.num_classes, made.spec.node.dense) == ("node-classification", 4, 34)
    batch = made.tables["train"].batch([0])
    assert torch.equal(batch.edge_index, published.edge_index)
    known = torch.cat([made.tables[split].columns["y"] for split in SPLITS], 1).max(1).values
    assert torch.equal(known.long(), published.y)
