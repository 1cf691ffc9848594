"""Regression of nodes, and a task of one's own by its entry point."""

import dataclasses

import pandas as pd
import pytest
import torch
from command_line import SMALL_MODEL
from torch_geometric.data import Data

from graphbench import registry
from graphbench.cli import main
from graphbench.contracts import Architecture, Representation
from graphbench.data.checks import check_table
from graphbench.errors import BadInput
from graphbench.nn import NodeEncoder
from graphbench.nn.heads import HeadConfig
from graphbench.testing import tiny_spec, tiny_table
from graphbench.training.module import BenchmarkModule
from graphbench.training.tasks import GraphRegression, NodeRegression, build_task

SPEC = tiny_spec("node-regression", "categorical")


class Small(Architecture):
    def __init__(self, spec):
        super().__init__(spec, 8)
        self.encoder = NodeEncoder(spec, 8)

    def forward(self, batch):
        return Representation(self.encoder(batch))


class Doubled(GraphRegression):
    """A task that a plug-in might register."""

    def terms(self, output, batch):
        sums, counts = super().terms(output, batch)
        return 2 * sums, counts


def test_nodes_are_predicted_in_real_units():
    table = tiny_table(SPEC, 6)
    check_table(table, SPEC, "train")
    batch = table.batch(range(6))
    module = BenchmarkModule(SPEC, Small, standardize_targets=True, metrics=["R2"])
    module.task.standardize(batch.y * 10 + 3)
    assert module(batch).shape == (batch.num_nodes, 2) == batch.y.shape
    expected = module(batch) * module.task.scale + module.task.offset
    torch.testing.assert_close(module.predict(batch), expected.detach().float())
    assert module.training
    assert not module.predict(batch).requires_grad


def test_unknown_nodes_do_not_count():
    batch = tiny_table(SPEC, 6).batch(range(6))
    task = build_task(SPEC, 8, HeadConfig())
    output = torch.zeros_like(batch.y)
    batch.y[::3, 0] = torch.nan
    assert isinstance(task, NodeRegression)
    assert float(task.loss(output, batch)) == pytest.approx(float(batch.y[~batch.y.isnan()].abs().mean()))


def test_targets_of_nodes_must_lie_on_nodes():
    with pytest.raises(BadInput, match="y must have one row of 2 numbers per node"):
        check_table(tiny_table(tiny_spec("graph-regression", "categorical"), 3), SPEC, "train")


def test_a_task_of_ones_own_is_found_by_its_name(monkeypatch):
    record = registry.Record("Doubled", "tasks", "my-package", "1.0", f"{__name__}:Doubled")
    monkeypatch.setattr(registry, "records", lambda group: {"Doubled": record} if group == "tasks" else {})
    monkeypatch.setattr(registry, "load", lambda group, name: {"Doubled": Doubled}[name])
    spec = dataclasses.replace(tiny_spec("graph-regression", "categorical"), task="Doubled")
    batch = tiny_table(tiny_spec("graph-regression", "categorical"), 4).batch(range(4))
    own, plain = build_task(spec, 8, HeadConfig()), GraphRegression(spec, 8, HeadConfig())
    output = torch.zeros_like(batch.y)
    torch.testing.assert_close(own.loss(output, batch), 2 * plain.loss(output, batch))
    with pytest.raises(BadInput, match=r"known: graph-regression, .*Doubled.*graphbench\.tasks"):
        build_task(dataclasses.replace(spec, task="Halved"), 8, HeadConfig())


@pytest.mark.slow
def test_numbers_of_nodes_are_learned_and_predicted_by_command(tmp_path):
    torch.manual_seed(0)
    graphs = []
    for _ in range(24):
        x = torch.randint(4, (6, 1))
        graphs.append(Data(x=x, edge_index=torch.randint(6, (2, 14)), y=x[:, 0] * 1.5 + torch.rand(6)))
    torch.save(graphs, tmp_path / "graphs.pt")
    run, source = str(tmp_path / "run"), str(tmp_path / "graphs.pt")
    data = ["--data", "Graphs", "--data.source", source, "--data.root", str(tmp_path), "--model.metrics+=Spearman"]
    assert main(["fit", *data, *SMALL_MODEL, "--trainer.max_epochs", "1", "--run", run]) == 0
    assert main(["test", "--run", run]) == 0
    output = tmp_path / "new.csv"
    assert main(["predict", "--run", run, "--input", source, "--output", str(output)]) == 0
    found = pd.read_csv(output)
    assert list(found)[:2] == ["id", "node"]
    assert len(found) == 24 * 6
    (prediction,) = (name for name in found if name.startswith("prediction_"))
    assert found[prediction].notna().all()
