"""`Graphs`: reading, inference, overrides, and use with every model and encoding."""

from __future__ import annotations

import logging

import pytest
import pytorch_lightning as pl
import torch
from own_graphs import make_graphs, ring, write_tu
from torch_geometric.data import Data
from torch_geometric.datasets import TUDataset

import graphbench
from graphbench import registry
from graphbench.benchmarks.graphs.benchmark import Graphs
from graphbench.benchmarks.graphs.readers import saved as saved_files
from graphbench.contracts import Encoding, Features
from graphbench.errors import BadInput
from graphbench.testing.benchmarks import check_batch

SPLITS = ("train", "val", "test")


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
        ({"target": "several"}, "graph-regression", 4, None, "scaled_MAE"),
        ({"target": "several:1"}, "graph-regression", 1, None, "MAE"),
        ({"target": ["energy", "several"]}, "graph-regression", 5, None, "scaled_MAE"),
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
    left_out = [value for what, value, _ in benchmark.summary() if what == "  left out"]
    assert rows["graphs"][0] == "40"
    assert rows["node features"] == ("2 categorical (5, 5 values)", "x_0, x_1")
    assert left_out[0] == "charge, role"
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
    errors = [module.predict(batch) - batch.y for batch in data.test_dataloader()]
    assert scores[0]["test/MAE"] == pytest.approx(torch.cat(errors).abs().mean().item(), rel=1e-5)


@pytest.fixture(scope="module")
def tu_files(tmp_path_factory):
    folder = tmp_path_factory.mktemp("tu")
    return str(write_tu(folder / "DS", "DS", num_graphs=12)), str(folder / "store")


#: Models of sequences, which refuse nodes without an order.
SEQUENCES = {"Luna", "MEGA", "S4D", "SequenceSequoia", "SequenceTransformer"}
#: Models of point clouds, which refuse nodes without a position.
CLOUDS = {name for name, found in registry.architectures().items() if found.distribution == "graphbench-point-clouds"}
#: `Positions` shows the encoding that the model is given, and predicts nothing.
ARCHITECTURES = sorted(registry.architectures().keys() - {"Positions"} - SEQUENCES - CLOUDS)


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
    assert part.problems == {1: "input 1, graph 0, node 0: x, column 0 is 9, which is none of the known categories."}
    (part,) = benchmark.read_objects([Data(x=graphs[0].x, edge_index=graphs[0].edge_index), new[1]])
    assert part.rows == [1]
    assert "No column of edges in input 0 is called 'edge_attr'" in part.problems[0]
    torch.save([Data(x=graphs[0].x, edge_index=graphs[0].edge_index), new[1]], tmp_path / "new.pt")
    with pytest.raises(BadInput, match=r"new\.pt, graph 0 has no edge_attr"):
        benchmark.read_input(str(tmp_path / "new.pt"))
