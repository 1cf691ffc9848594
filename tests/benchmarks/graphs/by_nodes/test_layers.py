"""Layers over blocks of nodes against the forward pass of the whole graph, in validation, tests and predictions."""

from __future__ import annotations

import numpy as np
import pytest
import pytorch_lightning as pl
import torch
from own_graphs import NODES, large_graph
from two_processes import on_two

import graphbench
from graphbench.benchmarks.graphs.benchmark import Graphs
from graphbench.benchmarks.graphs.by_nodes import layers
from graphbench.benchmarks.graphs.by_nodes.incoming import IncomingEdges
from graphbench.errors import BadInput

MODELS = {
    "GCN": {"hidden_dim": 8, "num_layers": 3},
    "GraphSAGE": {"hidden_dim": 8, "num_layers": 3},
    "GAT": {"hidden_dim": 8, "num_layers": 2, "num_heads": 2},
    "GIN": {"hidden_dim": 8, "num_layers": 2, "all_layers": True},
    "GINE": {"hidden_dim": 8, "num_layers": 2},
    "PNA": {"hidden_dim": 10, "num_layers": 2, "out_dim": 10},
    "TunedGNN": {"hidden_dim": 8, "num_layers": 3, "jumping": True},
    "GCNII": {"hidden_dim": 8, "num_layers": 4},
}


def trainer_of(folder, **options):
    return pl.Trainer(
        accelerator="cpu", devices=options.pop("devices", 1), logger=False, enable_checkpointing=False,
        enable_progress_bar=False, enable_model_summary=False, default_root_dir=folder, **options,
    )  # fmt: skip


def built(name, folder, options=None, **data_options):
    torch.manual_seed(0)
    data = Graphs(large_graph(), store=str(folder), seed=1, fractions=(0.4, 0.3, 0.3), **data_options)
    return graphbench.build(name, data, model_options=MODELS.get(name, {}), **options or {})


@pytest.fixture
def small_blocks(monkeypatch):
    """Use few nodes in a block and in a batch of predictions."""
    monkeypatch.setattr(layers, "BLOCK", 300)
    monkeypatch.setattr("graphbench.benchmarks.graphs.by_nodes.level.ROWS", 7)


@pytest.mark.parametrize("name", MODELS)
def test_scores_and_predictions_are_those_of_the_whole_graph(tmp_path, small_blocks, name):
    answers = []
    for sampler in ("full", "layers"):
        module, data = built(name, tmp_path, node_features=["x", "kind"], eval_sampler=sampler)
        trainer = trainer_of(tmp_path, max_epochs=2)  # training sees the whole graph, validation follows each epoch
        trainer.fit(module, data)
        seen = dict(trainer.callback_metrics)
        batches = trainer.predict(module, data)
        rows = {column: torch.cat([batch[column] for batch in batches]) for column in batches[0]}
        answers.append((seen, trainer.test(module, data, verbose=False)[0], rows))
    (seen, scores, whole), (seen_by_layers, scores_by_layers, by_layers) = answers
    assert by_layers["node"].tolist() == list(range(NODES)) == whole["node"].tolist()
    torch.testing.assert_close(by_layers["prediction"], whole["prediction"], rtol=1e-5, atol=1e-6)
    assert scores_by_layers == pytest.approx(scores, abs=1e-6)
    assert float(seen_by_layers["val/loss"]) == pytest.approx(float(seen["val/loss"]), rel=1e-5)


def test_a_positional_encoding_in_front_of_the_model_is_read(tmp_path, small_blocks):
    from graphbench.nn import LapPEEncoder

    answers = []
    for sampler in ("full", "layers"):
        torch.manual_seed(0)
        encoder = LapPEEncoder(num_eigenvectors=8, dim=4)  # more eigenvectors than the last block has nodes
        module, data = built("GCN", tmp_path, {"positional_encoding": encoder}, eval_sampler=sampler)
        batches = trainer_of(tmp_path).predict(module.eval(), data)
        answers.append(torch.cat([batch["prediction"] for batch in batches]))
    torch.testing.assert_close(answers[1], answers[0], rtol=1e-5, atol=1e-6)


def test_two_processes_score_every_node_once(tmp_path, small_blocks):
    def scores(rank, devices):
        module, data = built("GraphSAGE", tmp_path, eval_sampler="layers")
        trainer = trainer_of(tmp_path, devices=devices, strategy="ddp" if devices > 1 else "auto")
        return trainer.test(module, data, verbose=False)[0]

    alone = scores(0, 1)
    for found in on_two(tmp_path, lambda rank: scores(rank, 2)):
        assert found == pytest.approx(alone, abs=1e-5)


@pytest.mark.parametrize("name", ["GPS", "GatedGCN"])
def test_models_without_steps_are_refused_before_they_run(tmp_path, name):
    module, data = built(name, tmp_path, eval_sampler="layers")
    with pytest.raises(BadInput, match=f"eval_sampler layers: {name} has no steps"):
        trainer_of(tmp_path).test(module, data)


def test_encoders_that_read_edges_are_refused(tmp_path):
    from graphbench.nn import SignNetEncoder

    module, data = built("GCN", tmp_path, {"positional_encoding": SignNetEncoder()}, eval_sampler="layers")
    with pytest.raises(BadInput, match="SignNetEncoder has no steps"):
        trainer_of(tmp_path).test(module, data)


def test_blocks_hold_every_node_once_and_as_many_edges_as_asked():
    degrees = np.random.default_rng(0).integers(0, 9, 50)
    degrees[7] = 1000
    ptr = np.concatenate([[0], np.cumsum(degrees)])
    blocks = list(layers._blocks(ptr, 20))
    assert [node for first, end in blocks for node in range(first, end)] == list(range(50))
    assert all(end == first + 1 or ptr[end] - ptr[first] + end - first <= 20 for first, end in blocks)


def test_a_block_has_all_edges_to_its_nodes_each_once():
    """The graph has loops, multiple edges, and nodes without edges."""
    rng = np.random.default_rng(0)
    source, target = rng.integers(0, 20, (2, 150))
    source[:30] = target[:30]
    target[target == 7] = 8
    order = np.argsort(target, kind="stable")
    edges = IncomingEdges(np.searchsorted(target[order], np.arange(21)), source[order], order)
    for first, end in [(0, 5), (5, 12), (7, 8), (12, 20)]:
        piece = layers._with_sources(edges)(torch.arange(first, end))
        assert piece.nodes[: piece.num_predicted].tolist() == list(range(first, end))
        expected = np.flatnonzero((target >= first) & (target < end))
        assert sorted(piece.edges.tolist()) == expected.tolist()
        heads, tails = piece.nodes[piece.edge_index]
        assert heads.tolist() == source[piece.edges].tolist()
        assert tails.tolist() == target[piece.edges].tolist()
        assert ((piece.edge_index[0] == piece.edge_index[1]) == (heads == tails)).all(), "loops stay loops"
