"""Edge targets of users' graphs: detection, splits, training, scores, and predictions with a row for each edge."""

from __future__ import annotations

import json
from typing import ClassVar

import networkx as nx
import numpy as np
import pandas as pd
import pytest
import torch
from command_line import SMALL_MODEL
from own_graphs import ring
from sklearn.metrics import f1_score, mean_absolute_error
from torch_geometric.data import Data

import graphbench
from graphbench.benchmarks.graphs.benchmark import Graphs
from graphbench.cli import main
from graphbench.errors import BadInput
from graphbench.inference.answers import Answers, answer_table
from graphbench.testing.benchmarks import BenchmarkContract

SPLITS = ("train", "val", "test")


def edge_graphs(num_graphs=12, seed=0):
    """Return cycles of 4 to 8 nodes, with edge targets that are equal in both directions and some that are not."""
    random = torch.Generator().manual_seed(seed)
    graphs = []
    for number in range(num_graphs):
        size = 4 + number % 5
        once = torch.randn(size, generator=random)
        graph = Data(x=torch.randn(size, 2, generator=random), edge_index=ring(size))
        graph.edge_attr = torch.randn(2 * size, 3, generator=random)
        graph.edge_y = torch.cat([once, once])  # the two directions are `size` rows apart
        graph.kind = (graph.edge_y > 0.3).long()
        graph.toward = torch.randn(2 * size, generator=random)
        graph.third = torch.arange(2 * size) % 3
        graph.gaps = torch.where(torch.arange(2 * size) % 5 == 4, torch.nan, graph.edge_y)
        graphs.append(graph)
    return graphs


class TestClassesOfSeveralGraphs(BenchmarkContract):
    complete: ClassVar[bool] = True
    options: ClassVar[dict] = {"target": "kind"}
    graphs: ClassVar[int] = 12

    def make_benchmark(self):
        found = edge_graphs(self.graphs)
        return Graphs(found if self.graphs > 1 else found[0], store=str(self.folder), **self.options)

    @pytest.fixture(autouse=True)
    def _place(self, tmp_path):
        self.folder = tmp_path


class TestNumbersOfSeveralGraphs(TestClassesOfSeveralGraphs):
    options: ClassVar[dict] = {}


class TestGapsOfOneGraph(TestClassesOfSeveralGraphs):
    options: ClassVar[dict] = {"target": "gaps", "fractions": (0.4, 0.3, 0.3)}
    graphs: ClassVar[int] = 1


@pytest.mark.parametrize(
    ("options", "task", "classes", "symmetric"),
    [
        ({}, "edge-regression", None, True),  # edge_y by default
        ({"target": "kind"}, "edge-classification", 2, True),
        ({"target": "third"}, "edge-classification", 3, False),
        ({"target": "toward"}, "edge-regression", None, False),
        ({"target": "gaps"}, "edge-regression", None, False),
        ({"target": ["edge_y", "toward"]}, "edge-regression", None, False),
        ({"target": "kind", "task": "edge-regression"}, "edge-regression", None, True),
    ],
)
def test_targets_of_edges_are_found_and_are_no_features(options, task, classes, symmetric, tmp_path):
    data = Graphs(edge_graphs(), store=str(tmp_path), **options)
    assert (data.spec.task, data.spec.num_classes) == (task, classes)
    assert ("edges" in data.spec.extra) == symmetric
    assert data.spec.edge.dense == 3
    data.setup()
    names = [options.get("target", "edge_y")] if not isinstance(options.get("target"), list) else options["target"]
    for split in SPLITS:
        for graph, number in zip(range(len(data.tables[split])), data.ids(split), strict=True):
            truth = torch.stack([edge_graphs()[number][name].double() for name in names], 1)
            got = data.tables[split].batch([graph]).y.double()
            torch.testing.assert_close(got, truth, equal_nan=True, atol=1e-6, rtol=1e-6)


def test_edge_label_alone_is_a_target_and_with_pairs_it_is_not(tmp_path):
    graphs = edge_graphs()
    for graph in graphs:
        graph.edge_label = graph.kind
        del graph.edge_y
    assert Graphs(graphs, store=str(tmp_path)).spec.task == "edge-classification"
    for graph in graphs:
        graph.edge_label_index = graph.edge_index[:, :2]
        graph.edge_label = torch.tensor([1, 0])
    assert Graphs(graphs, store=str(tmp_path)).spec.task == "link-ranking"


def test_masks_of_one_graph_are_used_as_they_are(tmp_path):
    graph = edge_graphs()[4]  # 8 nodes, 16 edges
    place = torch.arange(16)
    for number, split in enumerate(SPLITS):
        graph[f"{split}_mask"] = place % 4 == number
    data = Graphs(graph, store=str(tmp_path))
    data.setup()
    assert dict(data.spec.extra) == {"split": "edges", "edges": "undirected"}
    assert data.spec.num_graphs == 1
    for number, split in enumerate(SPLITS):
        [batch] = list(getattr(data, f"{split}_dataloader")())
        known = ~batch.y[:, 0].isnan()
        assert torch.equal(known, place % 4 == number)
        torch.testing.assert_close(batch.y[known, 0].float(), graph.edge_y[known])
        assert batch.edge_index.shape[1] == 16


@pytest.mark.parametrize("options", [{}, {"split": "k-fold", "num_folds": 4, "fold": 1}, {"target": "kind"}])
def test_both_directions_of_an_edge_are_in_one_split(options, tmp_path):
    data = Graphs(edge_graphs()[4], store=str(tmp_path), fractions=(0.4, 0.3, 0.3), **options)
    data.setup()
    seen = torch.zeros(16, dtype=torch.long)
    for split in SPLITS:
        y = data.tables[split].columns["y"][:, 0]
        known = ~y.isnan() if y.is_floating_point() else y >= 0
        assert torch.equal(known[:8], known[8:])
        assert known.any()
        seen += known
    assert (seen == 1).all()


def test_a_column_of_the_table_of_edges_is_a_target(tmp_path):
    folder = tmp_path / "tables"
    folder.mkdir()
    rows = [
        {"graph": f"g{g}", "source": f"n{i}", "target": f"n{(i + 1) % 5}", "length": g + i / 10, "kind": "ab"[i % 2]}
        for g in range(10)
        for i in range(5)
    ]
    pd.DataFrame(rows).to_csv(folder / "edges.csv", index=False)
    nodes = [{"graph": f"g{g}", "node": f"n{i}", "size": i * 0.5} for g in range(10) for i in range(5)]
    pd.DataFrame(nodes).to_csv(folder / "nodes.csv", index=False)
    data = Graphs(str(folder), target="kind", store=str(tmp_path / "store"))
    assert (data.spec.task, data.spec.target_names, data.spec.extra) == (
        "edge-classification", ("a", "b"), {"edges": "undirected"},
    )  # fmt: skip
    assert data.spec.edge.names == ("length",)
    data.setup()
    assert all(table.columns["y"].shape[0] == 10 * len(table) for table in data.tables.values())


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"split_level": "node"}, "split_level=node belongs to targets of nodes; here the edges have the target"),
        ({"target": "kind", "task": "node-classification"}, "does not fit kind, which belongs to each edge"),
        ({"target": "third", "metric": "F1"}, "metric=F1: edge-classification knows accuracy"),
        ({"sampler": "random", "num_parts": 2, "fractions": (0.4, 0.3, 0.3)}, "the edges are split"),
    ],
)
def test_what_does_not_fit_is_refused(options, message, tmp_path):
    with pytest.raises(BadInput, match=message):
        Graphs(edge_graphs()[4], store=str(tmp_path), **options)


def test_several_labels_of_an_edge_are_refused(tmp_path):
    graphs = edge_graphs()
    for graph in graphs:
        graph.edge_y = torch.ones(graph.num_edges, 2)
    with pytest.raises(BadInput, match="several columns of 0 and 1 of each edge"):
        Graphs(graphs, store=str(tmp_path))


@pytest.mark.parametrize(("target", "score"), [("kind", "F1"), ("gaps", "MAE")])
def test_training_scores_and_predictions_by_command(target, score, tmp_path, monkeypatch):
    """Scores of `test` are scikit-learn's on the rows that `predict` writes; new graphs get a row for each edge."""
    monkeypatch.chdir(tmp_path)
    torch.save(edge_graphs(20), "own.pt")
    run = tmp_path / "run"
    data = ["--data", "Graphs", "--data.source", "own.pt", "--data.target", target, "--data.metric", score]
    assert main(["fit", *data, *SMALL_MODEL, "--trainer.max_epochs", "2", "--run", str(run)]) == 0
    assert main(["test", "--run", str(run)]) == 0
    assert main(["predict", "--run", str(run)]) == 0
    frame = pd.read_csv(run / "predictions-test.csv")
    assert list(frame.columns[:3]) == ["id", "source", "destination"]
    truth = f"target_{'class' if score == 'F1' else target}"
    rows = frame.dropna(subset=[truth])
    results = json.loads((run / "results.json").read_text())
    got = next(v for k, v in _flat(results) if k.endswith(f"test/{score}") and "baseline" not in k)
    if score == "F1":
        expected = f1_score(rows[truth], rows["prediction_class"], zero_division=0)
    else:
        expected = mean_absolute_error(rows[truth], rows[f"prediction_{target}"])
    assert got == pytest.approx(expected, abs=1e-4)
    for number, part in frame.groupby("id"):
        graph = edge_graphs(20)[number]
        assert list(zip(part["source"], part["destination"], strict=True)) == [*map(tuple, graph.edge_index.T.tolist())]
    new = edge_graphs(3, seed=9)
    table = graphbench.load(str(run)).predict(new)
    assert len(table) == sum(graph.num_edges for graph in new)
    ends = np.concatenate([graph.edge_index.T.numpy() for graph in new])
    assert (table[["source", "destination"]].to_numpy(dtype=int) == ends).all()
    if target == "kind":  # both directions have one target, so they get one prediction
        first = table.iloc[: new[0].num_edges]["probability_1"].to_numpy()
        np.testing.assert_allclose(first[: len(first) // 2], first[len(first) // 2 :], atol=1e-5)
    torch.save(new, "new.pt")
    assert main(["predict", "--run", str(run), "--input", "new.pt", "--output", "new.csv"]) == 0
    assert len(pd.read_csv("new.csv")) == len(table)
    assert main(["report", str(run)]) == 0


def _flat(value, path=""):
    if isinstance(value, dict):
        for key, inner in value.items():
            yield from _flat(inner, f"{path}/{key}")
    else:
        yield path, value


def test_edges_of_networkx_graphs_are_told_by_the_names_of_their_nodes(tmp_path):
    graphs = []
    for number in range(12):
        graph = nx.cycle_graph(4)
        nx.set_node_attributes(graph, 1.5, "size")
        for a, b in graph.edges:
            graph.edges[a, b]["strength"] = float(a + b + number)
        graphs.append(nx.relabel_nodes(graph, {n: f"n{n}" for n in range(4)}))
    data = Graphs(graphs, target="strength", store=str(tmp_path))
    assert data.spec.task == "edge-regression"
    part = next(data.read_objects(graphs[:2]))
    edges = int(part.table.num_edges[1])
    answers = Answers(np.arange(edges, dtype=float)[:, None], [1], np.array([edges]), {0: "left out"})
    table = answer_table(part, answers, lambda values, present: {"value": values[:, 0]}, level="edge")
    assert len(table) == 1 + edges
    assert table["source"].isna().tolist() == [True] + [False] * edges
    ends = part.table.columns["edge_index"][-edges:]
    assert table["source"][1:].tolist() == ends[:, 0].tolist()
    assert table["destination"][1:].tolist() == ends[:, 1].tolist()
    assert table["source_name"][1:].tolist() == [f"n{node}" for node in ends[:, 0].tolist()]
    assert table["value"][1:].tolist() == list(range(edges))
