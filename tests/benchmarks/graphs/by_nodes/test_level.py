"""One graph on one and two processes, its options, and the command line."""

from __future__ import annotations

import numpy as np
import pandas as pd
import pytest
import pytorch_lightning as pl
import torch
from command_line import SMALL_MODEL
from own_graphs import NODES, large_graph
from sklearn.metrics import accuracy_score
from two_processes import on_two

import graphbench
from graphbench.benchmarks.graphs.benchmark import Graphs
from graphbench.cli import main
from graphbench.errors import BadInput
from graphbench.runs import RunFolder


def trained(folder, devices, **options):
    """Train a model and return its weights, the scores of all test nodes, and the predictions."""
    torch.manual_seed(0)
    data = Graphs(large_graph(), store=str(folder), seed=1, **options)
    module, data = graphbench.build("GraphSAGE", data, model_options={"hidden_dim": 8, "num_layers": 2})
    trainer = pl.Trainer(
        max_epochs=3, accelerator="cpu", devices=devices, strategy="ddp" if devices > 1 else "auto", logger=False,
        enable_checkpointing=False, enable_progress_bar=False, enable_model_summary=False, default_root_dir=folder,
    )  # fmt: skip
    trainer.fit(module, data)
    scores = trainer.test(module, data, verbose=False)[0]
    predicted = trainer.predict(module, data)
    rows = {name: torch.cat([batch[name] for batch in predicted]) for name in ("node", "prediction", "target")}
    return {"weights": torch.nn.utils.parameters_to_vector(module.parameters()).detach(), "scores": scores} | rows


def test_two_processes_train_and_score_as_one(tmp_path):
    options = {"fractions": (0.4, 0.3, 0.3), "node_features": ["x", "kind"]}
    alone = trained(tmp_path / "one", 1, **options)
    both = on_two(tmp_path, lambda rank: trained(tmp_path / "two", 2, **options))
    for found in both:
        assert torch.allclose(found["weights"], alone["weights"], atol=2e-5)
        assert found["scores"] == pytest.approx(alone["scores"], abs=1e-4)
    order = torch.cat([found["node"] for found in both]).argsort()
    for name in ("node", "prediction", "target"):  # every node of the graph once, also those without a target
        joined = torch.cat([found[name] for found in both])[order]
        assert torch.allclose(joined.double(), alone[name].double(), atol=1e-4), name


def test_two_processes_share_out_random_parts(tmp_path):
    def work(rank):
        data = Graphs(large_graph(), store=str(tmp_path / "store"), sampler="random", num_parts=5, seed=1)
        data.setup()
        trainer = pl.Trainer(accelerator="cpu", devices=2, strategy="ddp", logger=False, enable_checkpointing=False)
        data.trainer = trainer
        return [batch.node_id for batch in data.train_dataloader()]

    first, second = on_two(tmp_path, work)
    assert len(first) == len(second)
    assert sorted(torch.cat([*first, *second]).tolist()) == list(range(NODES))


def test_options_that_do_not_fit(tmp_path):
    def refused(message, source=None, **options):
        with pytest.raises(BadInput, match=message):
            Graphs(source or large_graph(), store=str(tmp_path), **options)

    refused(
        r"sampler=neighbors needs num_neighbors, the number of neighbours in each hop: \[15, 10\]", sampler="neighbors"
    )
    refused("sampler=random needs num_parts", sampler="random")
    refused("num_parts belongs to sampler=clusters or random, not to sampler=full", num_parts=4)
    refused("num_neighbors belongs to sampler=neighbors, not to sampler=random", sampler="random", num_parts=4,
            num_neighbors=[3])  # fmt: skip
    refused("num_neighbors must be an integer of at least 1, but got 0", sampler="neighbors", num_neighbors=[3, 0])
    refused("num_parts is 1,000, but the graph has 90 nodes", sampler="random", num_parts=1000)
    refused("sampler must be one of", sampler="cluster")
    two = [large_graph(0), large_graph(1)]
    refused("these cut one graph whose nodes are split, but here are 2 graphs, and the nodes are split", two,
            sampler="random", num_parts=4, split_level="node")  # fmt: skip


def test_memory_is_stated_before_anything_is_read(tmp_path):
    data = Graphs(large_graph(), store=str(tmp_path), memory_limit=1e-5)
    data.require([graphbench.registry.load("encodings", "EffectiveResistance")()])
    message = r"EffectiveResistance\(.*\) of a graph of 90 nodes takes up to 0.00036 GiB, more than 1e-05 GiB"
    with pytest.raises(BadInput, match=message):
        data.prepare_data()
    assert not list(tmp_path.rglob("edge_index*")), "nothing was written"


def test_attention_among_all_pairs_is_refused_before_training(tmp_path, capsys):
    torch.save([large_graph()], tmp_path / "one.pt")
    options = ["--data", "Graphs", "--data.source", str(tmp_path / "one.pt"), *SMALL_MODEL, "--trainer.max_epochs", "1"]
    assert main(["fit", *options, "--data.memory_limit", "1e-4", "--run", str(tmp_path / "run")]) == 1
    told = capsys.readouterr().err
    assert "attention among all pairs of 90 nodes, in 2 layers, takes up to 0.00024 GiB, more than 0.0001 GiB" in told
    assert "data.memory_limit" in told


def test_random_parts_from_the_command_line(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    graph = large_graph()
    torch.save([graph], "one.pt")
    run = RunFolder(tmp_path / "run")
    options = ["--data.source", "one.pt", "--data.sampler", "random", "--data.num_parts", "3"]
    assert main(["fit", "--data", "Graphs", *options, *SMALL_MODEL, "--trainer.max_epochs", "2", "--run", "run"]) == 0
    assert main(["test", "--run", "run"]) == 0
    assert main(["predict", "--run", "run"]) == 0
    assert "one of 3 random parts" in capsys.readouterr().err
    frame = pd.read_csv("run/predictions-test.csv")
    assert frame["node"].tolist() == list(range(NODES))
    known = frame["target_class"].notna()
    assert np.array_equal(frame["target_class"][known], graph.y.numpy()[known])
    chosen = frame[[f"probability_{number}" for number in range(4)]].to_numpy().argmax(1)
    expected = accuracy_score(frame["target_class"][known], chosen[known])
    assert run.read_results()["test"]["test/accuracy"] == pytest.approx(expected)


def test_a_graph_that_is_changed_after_it_was_given_is_stored_as_it_was_given(tmp_path):
    graph = large_graph()
    expected = graph.x.clone()
    data = Graphs(graph, store=str(tmp_path))
    graph.x.zero_()
    graph.edge_index.zero_()
    data.prepare_data()
    data.setup()
    table = data.tables["train"]
    assert torch.equal(table.columns["x_dense"], expected)
    assert table.columns["edge_index"].to(torch.bool).any()
