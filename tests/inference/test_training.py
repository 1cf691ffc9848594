"""Facts of the training data by brute force over single graphs, and remarks on other graphs."""

from __future__ import annotations

import dataclasses
import json
from types import SimpleNamespace

import numpy as np
import pytest
import torch

from graphbench.benchmarks import ZINC, Molecules
from graphbench.contracts import BenchmarkSpec, Column, Features, GraphTable
from graphbench.errors import CorruptData
from graphbench.inference import training
from graphbench.inference.training import RecordTraining, TrainingFacts
from graphbench.runs import RunFolder


class Described:
    """Only a benchmark's description."""

    spec = BenchmarkSpec(
        name="Toy",
        task="graph-classification",
        node=Features((5, 3), 2, ("kind", "ring", "height", "width")),
        edge=Features((4,)),
        metric="accuracy",
        higher_is_better=True,
        loss="cross_entropy",
        num_classes=2,
    )

    def class_labels(self):
        return ("no", "yes")

    def value_words(self, feature, value):
        return f"{feature}={value}"


def table(sizes, seed=0, high=(5, 3), edges=4):
    generator = torch.Generator().manual_seed(seed)
    graphs = []
    for size in sizes:
        x = torch.stack([torch.randint(limit, (size,), generator=generator) for limit in high], 1)
        dense = torch.rand(size, 2, generator=generator)
        index = torch.randint(size, (2, 2 * size), generator=generator)
        attr = torch.randint(edges, (2 * size, 1), generator=generator)
        graphs.append({"num_nodes": size, "edge_index": index, "x": x, "x_dense": dense, "edge_attr": attr})
    return GraphTable.from_graphs(graphs)


def test_facts_are_those_of_every_graph(monkeypatch, tmp_path):
    monkeypatch.setattr(training, "_ROWS", 4)
    seen = table([3, 8, 5], high=(3, 2), edges=3)
    seen.columns["x_dense"][0] = torch.tensor([-1.0, 2.0])  # no other row has a smaller, or a larger one
    facts = TrainingFacts.of(seen, Described())
    assert facts.nodes == (3, 8)
    assert facts.categories["x"] == [np.unique(seen.columns["x"][:, k]).tolist() for k in range(2)]
    assert facts.categories["edge_attr"] == [np.unique(seen.columns["edge_attr"]).tolist()]
    low, high = seen.columns["x_dense"].amin(0), seen.columns["x_dense"].amax(0)
    assert facts.ranges["x_dense"] == list(zip(low.tolist(), high.tolist(), strict=True))
    assert facts.classes == ("no", "yes")
    for name, sizes in (("x", (5, 3)), ("edge_attr", (4,))):
        for number, size in enumerate(sizes):
            one_hot = torch.nn.functional.one_hot(seen.columns[name][:, number], size).double()
            assert facts.shares[name][number] == pytest.approx(one_hot.mean(0).tolist())
    assert facts.means == {"x_dense": pytest.approx(seen.columns["x_dense"].double().mean(0).tolist())}
    run = RunFolder(tmp_path)
    assert TrainingFacts.read(run) is None
    facts.write(run)
    assert TrainingFacts.read(run) == facts
    assert facts.outside(seen, Described()) == ["", "", ""]


def test_what_is_outside_is_told_of_each_graph():
    facts = TrainingFacts((4, 6), {"x": [[0, 1], [0, 1, 2]], "edge_attr": [[1]]}, {"x_dense": [(0.0, 0.5), (0.2, 1.0)]})
    other = table([4, 7, 2], seed=5)
    told = facts.outside(other, Described())
    for graph in range(3):
        part = other.slice(graph, graph + 1).columns
        words = {f"kind={v}" for v in part["x"][:, 0].tolist() if v > 1}
        words |= {f"feature 0={v}" for v in part["edge_attr"][:, 0].tolist() if v != 1}
        words |= {"height outside 0 to 0.5"} if bool((part["x_dense"][:, 0] > 0.5).any()) else set()
        words |= {"width outside 0.2 to 1"} if bool((part["x_dense"][:, 1] < 0.2).any()) else set()
        words |= {("", "7 nodes, training had at most 6", "2 nodes, training had at least 4")[graph]} - {""}
        assert set(told[graph].split("; ")) - {""} == words


def test_at_most_ten_features_are_named():
    """Every node of a large graph repeats them."""
    features = Features(dense=500, names=tuple(f"w{k}" for k in range(500)))
    spec = dataclasses.replace(Described.spec, node=features, edge=Features())
    graph = {"num_nodes": 3, "edge_index": torch.zeros(2, 0, dtype=torch.int64), "x_dense": torch.ones(3, 500)}
    facts = TrainingFacts((1, 2), {}, {"x_dense": [(0.0, 0.5)] * 500})
    (told,) = facts.outside(GraphTable.from_graphs([graph]), SimpleNamespace(spec=spec))
    named = [f"w{k} outside 0 to 0.5" for k in range(10)]
    assert told.split("; ") == [*named, "490 more features", "3 nodes, training had at most 2"]


def test_what_all_nodes_share_is_told_once():
    class Counting(Described):
        def value_words(self, feature, value):
            asked.append((feature, value))
            return super().value_words(feature, value)

    asked: list[tuple[str, int]] = []
    facts = TrainingFacts((1, 2000), {"x": [[0], [0, 1, 2]], "edge_attr": [[0]]})
    facts.outside(table([1000, 1000], high=(3, 3), edges=2), Counting())
    assert sorted(asked) == sorted([("kind", 1), ("kind", 2), ("feature 0", 1)] * 2)


def test_missing_values_are_outside_no_range(tmp_path):
    seen, other = table([3, 4]), table([4])
    seen.columns["x_dense"][0, 0] = torch.nan
    seen.columns["x_dense"][:, 1] = torch.nan
    other.columns["x_dense"][:] = torch.tensor([-1.0, 0.5])
    facts = TrainingFacts.of(seen, Described())
    facts.write(RunFolder(tmp_path))
    assert TrainingFacts.read(RunFolder(tmp_path)) == facts
    low, high = np.nanmin(seen.columns["x_dense"][:, 0]), np.nanmax(seen.columns["x_dense"][:, 0])
    (told,) = facts.outside(other, Described())
    assert {f"height outside {low:.4g} to {high:.4g}", "width had no values in training"} <= set(told.split("; "))


def test_a_run_that_goes_on_with_other_data_knows_both():
    one, two = (TrainingFacts.of(table(sizes, seed, (high, 2)), Described()) for sizes, seed, high in (
        ([3, 4], 1, 2), ([9], 2, 5),
    ))  # fmt: skip
    both = one.joined(two)
    assert both.nodes == (3, 9)
    for k in range(2):
        assert both.categories["x"][k] == sorted({*one.categories["x"][k], *two.categories["x"][k]})
    (a, b), (c, d) = one.ranges["x_dense"][0], two.ranges["x_dense"][0]
    assert both.ranges["x_dense"][0] == (min(a, c), max(b, d))


def test_the_folder_of_a_run_knows_what_it_was_trained_on(tmp_path):
    run, data = RunFolder(tmp_path), Described()
    trainer = SimpleNamespace(datamodule=data, is_global_zero=True)
    for sizes, fresh, expected in (([9], True, (9, 9)), ([3, 4], False, (3, 9)), ([5], True, (5, 5))):
        data.tables = {"train": table(sizes)}
        RecordTraining(run, fresh).on_fit_start(trainer, None)
        assert TrainingFacts.read(run).nodes == expected
    trainer.is_global_zero = False
    data.tables = {"train": table([7])}
    RecordTraining(run, fresh=True).on_fit_start(trainer, None)
    data.tables, trainer.is_global_zero = {}, True
    RecordTraining(run, fresh=True).on_fit_start(trainer, None)
    assert TrainingFacts.read(run).nodes == (5, 5)


def test_columns_that_are_made_while_a_batch_is_cut_are_left_out():
    seen = table([3, 4])
    thin = GraphTable({"x": seen.columns["x"][:, :1]} | {"edge_index": seen.columns["edge_index"]},
                      {"x": Column("node"), "edge_index": seen.layout["edge_index"]}, seen.ptr)  # fmt: skip
    facts = TrainingFacts.of(thin, Described())
    assert (facts.categories, facts.ranges) == ({}, {})
    assert facts.outside(table([3]), Described()) == [""]


def test_chemists_words():
    zinc, own = ZINC(), Molecules("none.csv", "y")
    facts = TrainingFacts((1, 38), {"x": [[0]], "edge_attr": [[1]]})
    part = next(zinc.read_objects(["CC=O", "[O-]CC"]))
    assert facts.outside(part.table, zinc) == ["atom type O; bond type double", "atom type O -"]
    part = next(own.read_objects(["C", "[Na+].[Cl-]"]))
    facts = TrainingFacts.of(next(own.read_objects(["C", "CCCC"])).table, own)
    told = facts.outside(part.table, own)
    assert told[0] == ""
    assert {"atom type Na", "atom type Cl", "formal charge 1", "formal charge -1"} <= set(told[1].split("; "))
    assert "2 atoms" not in told[1]


def test_a_damaged_record_is_named(tmp_path):
    run = RunFolder(tmp_path)
    for text in ("{", "[]", json.dumps({"nodes": [1]})):
        run.training.write_text(text)
        with pytest.raises(CorruptData, match=r"training\.json cannot be read"):
            TrainingFacts.read(run)
