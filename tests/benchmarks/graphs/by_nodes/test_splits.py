"""Graphs with split nodes: the targets of every split, loss and scores, and the command line."""

from __future__ import annotations

import json
import pickle
import sys
from collections import defaultdict
from typing import ClassVar

import networkx as nx
import numpy as np
import pandas as pd
import pytest
import torch
from command_line import SMALL_MODEL
from own_graphs import make_graphs
from scipy.sparse import csr_matrix
from sklearn.metrics import accuracy_score, average_precision_score, f1_score, mean_absolute_error
from torch_geometric.data import Data
from torch_geometric.datasets import Planetoid

import graphbench
from graphbench import registry
from graphbench.benchmarks.graphs.benchmark import Graphs
from graphbench.cli import main
from graphbench.errors import BadInput
from graphbench.runs import RunFolder
from graphbench.testing.benchmarks import BenchmarkContract

SPLITS = ("train", "val", "test")
THIRDS = (0.4, 0.3, 0.3)


def write_planetoid(raw, name="Cora", train=9, other=12, test=30, features=6, classes=3, seed=0):
    """Write the eight raw files of Planetoid; its reader uses the 500 nodes after the training nodes for validation."""
    raw.mkdir(parents=True)
    rng = np.random.RandomState(seed)
    known = train + 500 + other
    total = known + test
    x = csr_matrix((rng.rand(total, features) < 0.4).astype(np.float32))
    labels = np.eye(classes, dtype=np.int32)[rng.randint(classes, size=total)]
    graph = defaultdict(list)
    for head, tail in rng.randint(total, size=(2 * total, 2)).tolist():
        graph[head].append(tail)
        graph[tail].append(head)
    for node in range(total):
        graph[node].append((node + 1) % total)
        graph[(node + 1) % total].append(node)
    parts = {
        "x": x[:train], "y": labels[:train], "allx": x[:known], "ally": labels[:known], "tx": x[known:],
        "ty": labels[known:], "graph": graph,
    }  # fmt: skip
    for key, content in parts.items():
        text = pickle.dumps(content, 2).replace(b"scipy.sparse._csr", b"scipy.sparse.csr")
        (raw / f"ind.{name.lower()}.{key}").write_bytes(text)
    order = rng.permutation(np.arange(known, total))
    (raw / f"ind.{name.lower()}.test.index").write_text("".join(f"{node}\n" for node in order))


def masked_graphs(num_graphs=4):
    """Return cycles whose nodes are in the three splits in turn; one node in six has no label."""
    graphs = make_graphs(num_graphs)
    for graph in graphs:
        place = torch.arange(graph.num_nodes)
        graph.y = torch.where(place % 6 == 5, -1, (place + graph.num_nodes) % 3)
        for number, split in enumerate(SPLITS):
            graph[f"{split}_mask"] = place % 3 == number
    return graphs


class TestSeveralGraphs(BenchmarkContract):
    complete: ClassVar[bool] = True

    def make_benchmark(self):
        return Graphs(masked_graphs(), store=str(self.folder))

    @pytest.fixture(autouse=True)
    def _place(self, tmp_path):
        self.folder = tmp_path


class TestNumbersOfOneGraph(TestSeveralGraphs):
    def make_benchmark(self):
        return Graphs(make_graphs()[4], store=str(self.folder), target="charge", fractions=THIRDS)


@pytest.fixture(scope="module")
def cora(tmp_path_factory):
    """Return a folder with Planetoid's files, and the graph that PyG reads from them."""
    folder = tmp_path_factory.mktemp("cora")
    write_planetoid(folder / "data" / "Planetoid" / "Cora" / "raw")
    write_planetoid(folder / "other" / "Cora" / "raw")
    return folder, Planetoid(str(folder / "other"), "Cora")[0]


def kept_encodings(store):
    """Return the number of encodings in the store."""
    return sum(json.loads(path.read_text())["key"]["kind"] == "encoding" for path in store.rglob("manifest.json"))


def test_every_split_is_what_pyg_says_and_encodings_are_kept_once(cora, tmp_path):
    folder, published = cora
    data = Graphs("Planetoid:Cora", root=str(folder / "data"), store=str(tmp_path))
    module, data = graphbench.build("GPS", data, model_options={"hidden_dim": 8, "num_layers": 1})
    encoding = registry.load("encodings", "RWSE")()
    data.require([encoding])
    data.prepare_data()
    data.setup()
    assert (data.spec.task, data.spec.num_classes, data.spec.num_graphs) == ("node-classification", 3, 1)
    for split in SPLITS:
        batch = data.tables[split].batch([0])
        mask = published[f"{split}_mask"]
        assert int(mask.sum()) == {"train": 9, "val": 500, "test": 30}[split]
        assert torch.equal(batch.edge_index, published.edge_index)
        assert torch.equal(batch.x_dense, published.x)
        assert torch.equal(batch.y[:, 0], torch.where(mask, published.y, -1))
        output = module.eval()(batch).detach()
        logits = output.double().numpy()
        own = logits - np.log(np.exp(logits).sum(1, keepdims=True))
        by_hand = -own[np.arange(len(own)), published.y.numpy()][mask.numpy()].mean()
        assert module.task.loss(output, batch).item() == pytest.approx(by_hand, rel=1e-5)
    for name in ("x_dense", "edge_index", *encoding.layout):
        pointers = {data.tables[split].columns[name].data_ptr() for split in SPLITS}
        assert len(pointers) == 1, name
    assert kept_encodings(tmp_path) == 1
    other = Graphs("Planetoid:Cora", root=str(folder / "data"), store=str(tmp_path), split="random")
    other.require([encoding])
    other.setup()
    assert kept_encodings(tmp_path) == 1, "another split of the same graphs needs no new encodings"
    assert other.fingerprint()["splits"] != data.fingerprint()["splits"]


def test_other_features_are_other_data(tmp_path):
    graphs = masked_graphs()
    first = Graphs(graphs, store=str(tmp_path))
    first.setup()
    graphs[0].x = 4 - graphs[0].x
    second = Graphs(graphs, store=str(tmp_path))
    second.setup()
    for split in SPLITS:
        assert torch.equal(first.tables[split].columns["y"], second.tables[split].columns["y"])
        assert first.fingerprint()["splits"][split] != second.fingerprint()["splits"][split]


def test_a_label_that_is_missing(tmp_path):
    def labels(values, **options):
        graph = Data(x=torch.zeros(len(values), 1), edge_index=torch.tensor([[0], [1]]), y=torch.tensor(values))
        data = Graphs(graph, store=str(tmp_path), fractions=THIRDS, **options)
        data.setup()
        known = torch.cat([data.tables[split].columns["y"].long() for split in SPLITS], 1)
        known = known[known >= 0].tolist() if data.spec.num_classes else known
        return data, sorted(known)

    data, known = labels([0, 1, -1, 2, 0, 1, 2, -1, 0, 1, 2])
    assert (data.spec.num_classes, known) == (3, [0] * 3 + [1] * 3 + [2] * 3)
    assert ("no target", "2 nodes") in [row[:2] for row in data.summary()]
    nan = float("nan")
    data, known = labels([3.0, 1.0, nan, 1.0, 3.0, 1.0, 3.0, 1.0])
    assert (data.spec.target_names, known) == (("1", "3"), [0] * 4 + [1] * 3)
    data, known = labels([-1, 1] * 5)
    assert (data.spec.target_names, known) == (("-1", "1"), [0] * 5 + [1] * 5), "here -1 is a class"
    with pytest.raises(BadInput, match=r"node 1: the target y 0.5 is not a class"):
        labels([0.0, 0.5, 1.0, nan], task="node-classification")
    with pytest.raises(BadInput, match="y is missing everywhere"):
        labels([nan] * 5, task="node-regression")


def test_all_of_one_graph_trains(tmp_path):
    with pytest.raises(BadInput, match=r"train_fraction is 0.5, but it chooses graphs, and here the nodes are split"):
        Graphs(make_graphs()[4], store=str(tmp_path), target="role", fractions=THIRDS, train_fraction=0.5)


# -- the command line --------------------------------------------------------------------------------------------------


def trained(folder, data, capsys):
    """Fit, test, predict and report; return the log of `fit`, the test scores and the predictions."""
    run = RunFolder(folder / "run")
    options = ["--data", "Graphs", *data, *SMALL_MODEL, "--trainer.max_epochs", "2", "--run", str(run.path)]
    assert main(["fit", *options]) == 0, capsys.readouterr().err
    told = capsys.readouterr().err
    assert main(["test", "--run", str(run.path)]) == 0
    assert main(["predict", "--run", str(run.path)]) == 0
    assert main(["report", str(run.path), "--output", str(folder / "report")]) == 0
    return told, run.read_results()["test"], pd.read_csv(run.path / "predictions-test.csv")


def check_classes(scores, frame, names):
    known = frame[frame["target_class"].notna()]
    chosen = known[[f"probability_{name}" for name in names]].to_numpy().argmax(1)
    assert known["prediction_class"].astype(str).tolist() == [names[number] for number in chosen]
    scored = known["target_class"].to_numpy(), known["prediction_class"].to_numpy()
    assert scores["test/accuracy"] == pytest.approx(accuracy_score(*scored))
    macro = f1_score(*scored, average="macro")
    assert scores["test/macro_F1"] == pytest.approx(macro)


def test_planetoid(cora, tmp_path, monkeypatch, capsys):
    folder, published = cora
    monkeypatch.chdir(folder)
    told, scores, frame = trained(tmp_path, ["--data.source", "Planetoid:Cora"], capsys)
    assert "9 / 500 / 30 (nodes, train, val, test)" in told
    assert frame["node"].tolist() == list(range(published.num_nodes))
    mask = published.test_mask.numpy()
    assert frame["target_class"].notna().tolist() == mask.tolist()
    assert frame["target_class"][mask].tolist() == published.y.numpy()[mask].tolist()
    check_classes(scores, frame, "012")


@pytest.mark.slow
def test_numbers_of_own_tables(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "tables").mkdir()
    rng = np.random.RandomState(0)
    words = np.array(["train", "valid", "test", None] * 6, dtype=object)
    level = np.where(np.arange(24) % 9 == 8, np.nan, rng.randn(24))
    nodes = {
        "graph": "one",
        "node": range(24),
        "kind": ["ab"[n % 2] for n in range(24)],
        "level": level,
        "split": words,
    }
    pd.DataFrame(nodes).to_csv("tables/nodes.csv", index=False)
    edges = {"graph": "one", "source": range(24), "target": [(n + 1) % 24 for n in range(24)]}
    pd.DataFrame(edges).to_csv("tables/edges.csv", index=False)
    data = ["--data.source", "tables", "--data.target", "level", "--model.standardize_targets", "true"]
    told, scores, frame = trained(tmp_path, data, capsys)
    assert "node-regression" in told
    assert "split, " not in told, "the split is not a feature"
    known = frame["target_level"].notna().to_numpy()
    assert known.tolist() == ((words == "test") & ~np.isnan(level)).tolist()
    assert np.allclose(frame["target_level"][known], level[known])
    expected = mean_absolute_error(level[known], frame["prediction_level"][known])
    assert scores["test/MAE"] == pytest.approx(expected, rel=1e-5)


def test_karate_club(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    data = ["--data.source", "networkx:karate_club_graph", "--data.target", "club", "--data.fractions", "[0.5,0.2,0.3]"]
    told, scores, frame = trained(tmp_path, data, capsys)
    clubs = [club for _, club in nx.karate_club_graph().nodes(data="club")]
    assert "17 / 7 / 10 (nodes, train, val, test)" in told
    assert "random, equal shares of each class" in told
    known = frame["target_class"].notna()
    assert known.sum() == 10
    names = ("Mr. Hi", "Officer")
    assert frame["target_class"][known].tolist() == [clubs[node] for node in frame["node"][known]]
    check_classes(scores, frame, names)


@pytest.mark.slow
def test_the_bipartite_graph_of_women_and_events(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    source = ["--data.source", "networkx:davis_southern_women_graph", "--data.target", "bipartite"]
    parts = ["--data.sampler", "random", "--data.num_parts", "2", "--data.fractions", "[0.4,0.3,0.3]"]
    _, _, frame = trained(tmp_path, [*source, *parts], capsys)
    sides = list(nx.get_node_attributes(nx.davis_southern_women_graph(), "bipartite").values())
    known = frame["target_class"].notna()
    assert len(frame) == len(sides) == 32
    assert frame["target_class"][known].tolist() == np.array(sides)[known].tolist()


NOVEL = """
import networkx as nx

def load():
    graph = nx.les_miserables_graph()
    appearances = graph.degree(weight="weight")
    for name in graph:
        graph.nodes[name]["appearances"] = float(appearances[name])
    return graph
"""


@pytest.mark.slow
def test_numbers_of_the_people_of_a_novel(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", [*sys.path])
    (tmp_path / "a_novel.py").write_text(NOVEL)
    told, scores, frame = trained(tmp_path, ["--data.source", "a_novel:load", "--data.target", "appearances"], capsys)
    assert "61 / 7 / 9 (nodes, train, val, test)" in told
    known = frame["target_appearances"].notna()
    expected = np.array([float(sum(d["weight"] for *_, d in nx.les_miserables_graph().edges(name, data=True)))
                         for name in nx.les_miserables_graph()])  # fmt: skip
    assert np.allclose(frame["target_appearances"][known], expected[known])
    error = mean_absolute_error(frame["target_appearances"][known], frame["prediction_appearances"][known])
    assert scores["test/MAE"] == pytest.approx(error, rel=1e-5)


@pytest.mark.slow
def test_several_labels_of_each_node(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    rng = np.random.RandomState(2)
    labels = torch.from_numpy(rng.randint(0, 2, (60, 3))).float()
    labels[rng.rand(60, 3) < 0.1] = torch.nan
    labels[7] = torch.nan
    edges = torch.from_numpy(rng.randint(0, 60, (2, 200)))
    torch.save([Data(x=torch.randn(60, 4), edge_index=edges, y=labels)], "one.pt")
    told, scores, frame = trained(tmp_path, ["--data.source", "one.pt", "--data.fractions", "[0.4,0.2,0.4]"], capsys)
    assert "node-multilabel" in told
    targets = frame[[f"target_{number}" for number in range(3)]].to_numpy()
    asked = ~np.isnan(targets).all(1)
    assert not asked[7]
    assert np.array_equal(targets[asked], labels.numpy()[asked], equal_nan=True)
    expected = []
    for number in range(3):
        known = ~np.isnan(targets[:, number])
        expected.append(average_precision_score(targets[known, number], frame[f"probability_{number}"][known]))
    assert scores["test/AP"] == pytest.approx(np.mean(expected), rel=1e-5)
