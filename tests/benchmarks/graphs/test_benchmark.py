"""`Graphs`: the contract, what is inferred, what may be overridden, and that models and encodings just work."""

from __future__ import annotations

import json
import logging
from typing import ClassVar

import networkx as nx
import pandas as pd
import pytest
import pytorch_lightning as pl
import torch
from own_graphs import make_graphs, ring, write_tu
from torch_geometric.data import Data
from torch_geometric.datasets import TUDataset

import graphbench
from graphbench import registry
from graphbench.benchmarks.graphs import saved as saved_files
from graphbench.benchmarks.graphs.benchmark import Graphs
from graphbench.contracts import Encoding, Features
from graphbench.errors import BadInput, MissingData, UnknownName
from graphbench.testing.benchmarks import BenchmarkContract, check_batch

SPLITS = ("train", "val", "test")


@pytest.fixture
def opened(tmp_path):
    """Open a benchmark whose files and store are temporary."""

    def opened(source, **options):
        benchmark = Graphs(source, root=str(tmp_path / "data"), **options)
        benchmark.prepare_data()
        benchmark.setup()
        return benchmark

    return opened


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


# -- truth -------------------------------------------------------------------------------------------------------------


def test_tu_files_hold_what_pyg_reads(opened, tmp_path):
    for root in ("data/TUDataset", "other"):
        write_tu(tmp_path / root / "DS" / "raw", "DS")
    benchmark = opened("TUDataset:DS,use_node_attr=true,use_edge_attr=true")
    published = TUDataset(str(tmp_path / "other"), "DS", use_node_attr=True, use_edge_attr=True)
    seen = 0
    for split in SPLITS:
        for number, row in enumerate(benchmark.ids(split)):
            mine, theirs = benchmark.tables[split].batch([number]), published[row]
            assert torch.equal(mine.x_dense, theirs.x)
            assert torch.equal(mine.edge_dense, theirs.edge_attr)
            assert torch.equal(mine.edge_index, theirs.edge_index)
            assert torch.equal(mine.y[:, 0], theirs.y)
            seen += 1
    assert seen == len(published) == 30
    assert benchmark.spec.node == Features(dense=5, names=tuple(f"x_{number}" for number in range(5)))


def test_every_column_of_saved_graphs_arrives(opened, graphs, saved):
    benchmark = opened(str(saved), target="energy", node_features=["x", "charge"])
    for split in SPLITS:
        batch = benchmark.tables[split].batch(range(len(benchmark.tables[split])))
        check_batch(benchmark.spec, batch)
        mine = [graphs[row] for row in benchmark.ids(split)]
        assert torch.equal(batch.x, torch.cat([graph.x for graph in mine]))
        assert torch.equal(batch.x_dense[:, 0], torch.cat([graph.charge for graph in mine]))
        assert torch.equal(batch.edge_dense, torch.cat([graph.edge_attr for graph in mine]))
        assert torch.equal(batch.y[:, 0], torch.cat([graph.energy for graph in mine]))
    assert benchmark.spec.node == Features((5, 5), 1, ("x_0", "x_1", "charge"))


# -- inference ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("options", "task", "targets", "classes", "metric"),
    [
        ({}, "graph-classification", 1, 3, "accuracy"),
        ({"target": "energy"}, "graph-regression", 1, None, "MAE"),
        ({"target": "several"}, "graph-regression", 4, None, "MAE"),
        ({"target": "several:1"}, "graph-regression", 1, None, "MAE"),
        ({"target": ["energy", "several"]}, "graph-regression", 5, None, "MAE"),
        ({"target": "flags"}, "graph-multilabel", 3, None, "AP"),
        ({"target": "role"}, "node-classification", 1, 3, "accuracy"),
        ({"task": "graph-regression"}, "graph-regression", 1, None, "MAE"),
        ({"num_classes": 5}, "graph-classification", 1, 5, "accuracy"),
        ({"metric": "macro_F1"}, "graph-classification", 1, 3, "macro_F1"),
    ],
)
def test_the_task_is_inferred_and_can_be_overridden(graphs, tmp_path, options, task, targets, classes, metric):
    spec = Graphs(graphs, store=str(tmp_path), **options).spec
    assert (spec.task, spec.num_targets, spec.num_classes, spec.metric) == (task, targets, classes, metric)
    assert spec.higher_is_better == (task != "graph-regression")


def test_the_table_says_what_was_inferred_once(saved, opened, caplog, monkeypatch):
    monkeypatch.setattr(logging.getLogger("graphbench"), "propagate", True)
    with caplog.at_level(logging.INFO, logger="graphbench"):
        benchmark = opened(str(saved))
        benchmark.prepare_data()
    rows = {what: (value, why) for what, value, why in benchmark.summary()}
    assert rows["graphs"][0] == "40"
    assert rows["node features"] == ("2 categorical (5, 5 values)", "x_0, x_1")
    assert rows["  left out"] == ("charge, role", "not asked for")
    assert rows["task"] == ("graph-classification", "integers; --data.task")
    assert rows["classes"] == ("3", "0 to 2")
    assert rows["split"][0] == "32 / 4 / 4 (train, val, test)"
    # A logger that did not propagate when the test began hands its records to pytest's handler twice.
    shown = {id(record) for record in caplog.records if "2 categorical (5, 5 values)" in record.getMessage()}
    assert len(shown) == 1


def test_the_source_is_read_once_and_its_description_kept(saved, tmp_path, monkeypatch):
    reads = []
    original = saved_files.load_saved
    monkeypatch.setattr(saved_files, "load_saved", lambda path: reads.append(path) or original(path))
    first, again = (Graphs(str(saved), root=str(tmp_path / "data")) for _ in range(2))
    assert len(reads) == 1
    assert again.spec == first.spec
    first.setup()
    again.setup()
    assert len(reads) == 1
    torch.save(make_graphs(20), saved)
    assert sum(Graphs(str(saved), root=str(tmp_path / "data")).spec.split_sizes) == 20
    assert len(reads) == 2


def test_equal_graphs_are_equal_data_wherever_they_are(graphs, saved, tmp_path):
    def content(source, store):
        benchmark = Graphs(source, store=str(tmp_path / store))
        benchmark.setup()
        return benchmark.fingerprint()["splits"]

    assert content(graphs, "a") == content(str(saved), "b")


# -- models, encodings, training ---------------------------------------------------------------------------------------


def test_build_and_any_trainer(graphs, tmp_path):
    data = graphbench.benchmarks.Graphs(graphs, target="energy", store=str(tmp_path))
    module, data = graphbench.build("GPS", data, model_options={"hidden_dim": 16, "num_layers": 1})
    trainer = pl.Trainer(
        max_epochs=1, accelerator="cpu", logger=False, enable_checkpointing=False, enable_progress_bar=False
    )
    trainer.fit(module, datamodule=data)
    scores = trainer.test(module, datamodule=data, verbose=False)
    assert scores[0]["test/MAE"] >= 0


@pytest.fixture(scope="module")
def tu_files(tmp_path_factory):
    folder = tmp_path_factory.mktemp("tu")
    return str(write_tu(folder / "DS", "DS", num_graphs=12)), str(folder / "store")


#: `Positions` shows the encoding that the model is given, and has no answer of its own.
ARCHITECTURES = sorted(registry.architectures().keys() - {"Positions"})


@pytest.mark.parametrize("name", ARCHITECTURES)
def test_every_architecture_takes_it_unchanged(tu_files, name):
    source, store = tu_files
    benchmark = Graphs(source, store=store, fractions=(0.5, 0.25, 0.25))
    torch.manual_seed(0)
    module, data = graphbench.build(name, benchmark)
    data.setup()
    batch = next(iter(data.val_dataloader()))
    with torch.no_grad():
        output = module.eval()(batch)
    assert tuple(output.shape) == (batch.num_graphs, 1)
    assert output.isfinite().all()


@pytest.mark.parametrize("name", sorted(registry.encodings()))
def test_every_encoding_takes_it_unchanged(tu_files, name):
    cls = registry.load("encodings", name)
    if not issubclass(cls, Encoding):
        pytest.skip("the learned half of an encoding")
    source, store = tu_files
    encoding = cls()
    benchmark = Graphs(source, store=store, fractions=(0.5, 0.25, 0.25))
    benchmark.require([encoding])
    benchmark.setup()
    batch = next(iter(benchmark.test_dataloader()))
    assert all(field in batch for field in encoding.layout)


# -- new inputs --------------------------------------------------------------------------------------------------------


def test_new_inputs_have_the_same_features(graphs, saved, tmp_path):
    benchmark = Graphs(str(saved), target="energy", root=str(tmp_path / "data"))
    new = [Data(x=graph.x, edge_index=graph.edge_index, edge_attr=graph.edge_attr) for graph in graphs[:6]]
    torch.save(new, tmp_path / "new.pt")
    parts = list(benchmark.read_input(str(tmp_path / "new.pt"), size=4))
    assert [len(part.table) for part in parts] == [4, 2]
    assert parts[1].frame["id"].tolist() == ["4", "5"]
    assert torch.equal(parts[0].table.columns["x"], torch.cat([graph.x for graph in graphs[:4]]))
    wrong = Data(x=torch.full((4, 2), 9), edge_index=ring(4), edge_attr=torch.zeros(8, 3))
    (part,) = benchmark.read_objects([new[0], wrong, new[1]])
    assert part.rows == [0, 2]
    assert part.problems == {
        1: "input 1, graph 0, node 0: x, column 0 is 9, which is none of the categories that are known."
    }
    (part,) = benchmark.read_objects([Data(x=graphs[0].x, edge_index=graphs[0].edge_index), new[1]])
    assert part.rows == [1]
    assert "No column of edges in input 0 is called 'edge_attr'" in part.problems[0]
    torch.save([Data(x=graphs[0].x, edge_index=graphs[0].edge_index), new[1]], tmp_path / "new.pt")
    with pytest.raises(BadInput, match=r"new\.pt, graph 0 has no edge_attr"):
        benchmark.read_input(str(tmp_path / "new.pt"))


# -- errors ------------------------------------------------------------------------------------------------------------


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
        ({"group_column": "batch_numbr"}, UnknownName, "Did you mean batch_number"),
        ({"target": "edge_attr"}, BadInput, "belongs to the edges"),
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
