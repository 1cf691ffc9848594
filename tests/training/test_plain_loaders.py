"""A module accepts what users of PyG have: their loaders, a list of graphs, a single graph."""

from __future__ import annotations

import multiprocessing
from pathlib import Path
from typing import Any

import pytest
import pytorch_lightning as pl
import torch
from torch_geometric.data import Batch, Data
from torch_geometric.loader import DataLoader
from torch_geometric.transforms import ToUndirected

import graphbench
from graphbench.benchmarks import CSL
from graphbench.contracts.encoding import add_encodings
from graphbench.contracts.pyg import GraphDataset
from graphbench.errors import BadInput
from graphbench.nn import RWSEEncoder
from graphbench.testing import tiny_spec, tiny_table


def model(spec: graphbench.BenchmarkSpec, **parts: Any) -> graphbench.BenchmarkModule:
    pl.seed_everything(0, verbose=False)
    gps = graphbench.registry.load("architectures", "GPS")
    options = {"hidden_dim": 8, "num_layers": 1, "num_heads": 2, "attention_dropout": 0.0, "dropout": 0.0}
    return graphbench.BenchmarkModule(spec, lambda spec: gps(spec, **options), standardize_targets=False, **parts)


@pytest.mark.parametrize("kind", ["categorical", "dense", "both", "none"])
def test_predictions_are_those_of_a_benchmark_batch(kind: str) -> None:
    spec = tiny_spec(kind=kind)
    table, module = tiny_table(spec, sizes=[4, 7, 1, 5]), model(spec)
    graphs = [*GraphDataset(table, spec)]
    expected = module.predict(graphbench.testing.encode(table, module.required_encodings()).batch(range(4)))
    batch = add_encodings(Batch.from_data_list(graphs), module)
    for given in (batch, graphs):
        torch.testing.assert_close(module.predict(given), expected)
    torch.testing.assert_close(module.predict(add_encodings(graphs[1], module)), expected[1:2])
    torch.testing.assert_close(module.eval()(batch), expected)


def test_a_trainer_takes_loaders_of_pyg() -> None:
    spec = tiny_spec()
    module = model(spec)
    graphs = [add_encodings(graph, module) for graph in GraphDataset(tiny_table(spec, num_graphs=12), spec)]
    loader = DataLoader(graphs, batch_size=4)
    trainer = pl.Trainer(max_epochs=2, logger=False, enable_checkpointing=False, enable_progress_bar=False,
                         enable_model_summary=False, accelerator="cpu")  # fmt: skip
    trainer.fit(module, loader, loader)
    with torch.no_grad():
        errors = (module.eval()(Batch.from_data_list(graphs)) - torch.cat([graph.y for graph in graphs])).abs()
    torch.testing.assert_close(trainer.callback_metrics["val/MAE"], errors.mean())


def test_what_a_model_needs_is_named() -> None:
    spec = tiny_spec()
    module = model(spec, positional_encoding=RWSEEncoder(num_steps=4, dim=2))
    (graph,) = GraphDataset(tiny_table(spec, sizes=[4]), spec)
    with pytest.raises(BadInput, match="add_encodings"):
        module(graph)
    with pytest.raises(BadInput, match="'x'"):
        module(add_encodings(Data(edge_index=graph.edge_index, num_nodes=4), module))


@pytest.mark.parametrize("given", [[], None, "CCO", ["CCO"], torch.zeros(3), [Data(num_nodes=1), 4]])
def test_what_is_no_graph_is_one_line(given: object) -> None:
    module = model(tiny_spec())
    for call in (module, module.architecture, lambda what: add_encodings(what, module), module.predict):
        with pytest.raises(BadInput, match="Data of PyG, but got"):
            call(given)
    with pytest.raises(BadInput, match="from_data_list"):
        module([Data(num_nodes=1)])


def test_lists_of_batches_are_the_graphs_of_all() -> None:
    spec = tiny_spec()
    module, graphs = model(spec), [*GraphDataset(tiny_table(spec, sizes=[4, 7, 1, 5]), spec)]
    halves = [Batch.from_data_list(graphs[:2]), Batch.from_data_list(graphs[2:])]
    torch.testing.assert_close(module.predict(halves), module.predict(graphs))


def test_a_loader_without_what_the_model_reads_names_it(tmp_path: Path) -> None:
    data = CSL(root=str(tmp_path))
    data.prepare_data()
    data.setup()
    architecture = graphbench.registry.load("architectures", "Graphormer")(data.spec, hidden_dim=8, num_layers=1)
    batch = next(iter(data.val_dataloader()))
    with pytest.raises(BadInput, match=r"in_degree.*data.require\(model.required_encodings\(\)\)"):
        architecture(batch)
    data.require(architecture.required_encodings())
    data.setup()
    assert architecture(next(iter(data.val_dataloader()))).node.shape == (batch.num_nodes, 8)


def test_a_loop_of_ones_own_shuffles_each_epoch_and_leaves_no_workers(tmp_path: Path) -> None:
    data = CSL(root=str(tmp_path), num_workers=1, batch_size=16)
    data.prepare_data()
    data.setup()
    orders, workers = [], []
    for _ in range(3):
        orders.append([number for batch in data.train_dataloader() for number in batch.graph_id.tolist()])
        assert sum(batch.num_graphs for batch in data.val_dataloader()) == len(data.tables["val"])
        workers.append(len(multiprocessing.active_children()))
    assert len({*map(tuple, orders)}) == 3
    assert {*map(len, orders)} == {len(data.tables["train"])} == {len({*orders[0]})}
    assert workers[1:] == workers[:1] * 2
    data.teardown("fit")


def test_a_benchmark_is_a_data_set_of_pyg(tmp_path: Path) -> None:
    data = CSL(root=str(tmp_path))
    data.require([graphbench.encodings.RWSE(4)])
    graphs = data.dataset("train", transform=ToUndirected())
    assert len(graphs) == len(data.tables["train"])
    assert isinstance(graphs[0], Data)
    assert graphs[2].rwse.shape == (graphs[2].num_nodes, 4)
    assert torch.equal(graphs[2].y, data.tables["train"].batch([2]).y)
    assert [graph.num_nodes for graph in graphs[:3]] == data.tables["train"].num_nodes[:3].tolist()
    with pytest.raises(BadInput, match="training"):
        data.dataset("training")  # type: ignore[arg-type]
