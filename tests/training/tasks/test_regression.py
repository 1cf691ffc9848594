"""Regression of nodes and graphs, options of single targets, and a custom task from an entry point."""

import dataclasses
import math

import pandas as pd
import pytest
import torch
from command_line import SMALL_MODEL
from scipy.stats import norm
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
    """A task as a plug-in may register it."""

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


# -- weights, losses, bounds and logarithms of single targets ----------------------------------------------------------

GRAPHS = tiny_spec("graph-regression", "categorical")  # two targets


def _batch(y, **columns):
    """Build a batch with one graph per row of `y`."""
    batch = tiny_table(GRAPHS, len(y)).batch(range(len(y)))
    batch.y = torch.tensor(y)
    for name, values in columns.items():
        batch[name] = torch.tensor(values)
    return batch


@pytest.mark.parametrize("loss", ["L1", "torch.nn.L1Loss"])
def test_loss_of_a_constant_model_is_the_weighted_mean_of_the_known_cells(loss):
    spec = dataclasses.replace(GRAPHS, target_weights=(0.5, 1.5))
    task = build_task(spec, 8, HeadConfig(), loss=loss)
    y = [[1.0, 2.0], [float("nan"), 4.0], [3.0, float("nan")]]
    batch = _batch(y, weight=[1.0, 2.0, 0.5])
    expected = (0.5 * 1 + 1.5 * 2 + 1.5 * 2 * 4 + 0.5 * 0.5 * 3) / 4
    assert float(task.loss(torch.zeros(3, 2), batch)) == pytest.approx(expected)


def test_weights_of_labels_weigh_their_cross_entropies():
    spec = dataclasses.replace(tiny_spec("graph-multilabel", "categorical"), target_weights=(0.0, 0.5, 2.5))
    batch = tiny_table(spec, 2).batch(range(2))
    batch.y = torch.tensor([[1.0, 1.0, float("nan")], [0.0, 1.0, 0.0]])
    logits = torch.tensor([[0.3, -1.0, 2.0], [0.1, 0.0, -0.5]], dtype=torch.float64)
    losses = [0.5 * math.log1p(math.exp(1)), 0.5 * math.log(2), 2.5 * math.log1p(math.exp(-0.5))]
    task = build_task(spec, 8, HeadConfig())
    assert float(task.loss(logits, batch)) == pytest.approx(sum(losses) / 5)
    classes = dataclasses.replace(tiny_spec("graph-classification", "categorical"), target_weights=(1.0,))
    with pytest.raises(BadInput, match="target_weights"):
        build_task(classes, 8, HeadConfig())


def test_each_target_has_its_own_loss():
    spec = dataclasses.replace(GRAPHS, target_names=("logS", "pKa"))
    task = build_task(spec, 8, HeadConfig(), loss="pKa=mse")
    assert float(task.loss(torch.zeros(1, 2), _batch([[3.0, 4.0]]))) == pytest.approx((3 + 16) / 2)
    task = build_task(spec, 8, HeadConfig(), loss="logS=Huber,pKa=L1")
    assert float(task.loss(torch.zeros(1, 2), _batch([[3.0, 4.0]]))) == pytest.approx((2.5 + 4) / 2)
    for wrong in ("logP=L1", "logS=Gaussian", "logS=", "logS=L1,logS=MSE"):
        with pytest.raises(BadInput, match=r"--model\.loss"):
            build_task(spec, 8, HeadConfig(), loss=wrong)
    with pytest.raises(BadInput, match="for regressions"):
        build_task(tiny_spec("graph-multilabel"), 8, HeadConfig(), loss="a=L1")
    with pytest.raises(BadInput, match="trains on Quantile, which is for all targets together"):
        build_task(dataclasses.replace(spec, loss="Quantile"), 8, HeadConfig(), loss="logS=Huber")


@pytest.mark.parametrize("loss", ["L1", "MSE", "Huber", "Quantile", "torch.nn.SmoothL1Loss", "0=L1,1=MSE"])
def test_losses_of_bounds_are_one_sided(loss):
    task = build_task(dataclasses.replace(GRAPHS, target_names=("0", "1")), 8, HeadConfig(), loss=loss)
    task.standardize(torch.tensor([[0.0, 0.0], [4.0, 20.0]]))  # (y - 2) / 2 and (y - 10) / 10
    nan = float("nan")
    bounded = _batch([[nan, nan]], y_lower=[[10.0, nan]], y_upper=[[nan, 0.0]])  # 4 and -1 in scaled units
    known = _batch([[10.0, 0.0]])
    width = 3 if loss == "Quantile" else 1
    beyond = torch.tensor([[5.0, -2.0] + [-5.0] * 2 * (width - 1)], requires_grad=True)
    task.loss(beyond, bounded).backward()
    assert float(task.loss(beyond, bounded).detach()) == 0
    assert not beyond.grad.any()
    missed = torch.tensor([[1.0, 1.0] + [-5.0] * 2 * (width - 1)], requires_grad=True)
    missed_loss = float(task.loss(missed, bounded).detach())
    assert missed_loss == pytest.approx(float(task.loss(missed, known).detach()), abs=1e-2 * (width - 1))
    (gradient,) = torch.autograd.grad(task.loss(missed, bounded), missed)
    assert gradient[0, 0] < 0 < gradient[0, 1]


def test_gaussian_loss_of_a_bound_is_the_probability_beyond_it():
    nan = float("nan")
    task = build_task(GRAPHS, 8, HeadConfig(), loss="Gaussian")
    output = torch.tensor([[1.0, -30.0, 0.3, 0.3]], dtype=torch.float64, requires_grad=True)
    batch = _batch([[nan, nan]], y_lower=[[2.0, 5.0]], y_upper=[[nan, nan]])
    sigma = math.sqrt(math.log1p(math.exp(0.3)) + 1e-6)
    expected = -(norm.logsf(2, 1, sigma) + norm.logsf(5, -30, sigma)) / 2
    loss = task.loss(output, batch)
    assert float(loss.detach()) == pytest.approx(expected)
    loss.backward()
    assert torch.isfinite(output.grad).all()
    batch = _batch([[nan, 7.0]], y_lower=[[nan, nan]], y_upper=[[2.0, nan]])
    expected = -norm.logcdf(2, 1, sigma) - norm.logpdf(7, -30, sigma) - math.log(2 * math.pi) / 2
    assert float(task.loss(output, batch).detach()) == pytest.approx(expected / 2)


def test_targets_in_log10_are_told_in_their_unit():
    spec = dataclasses.replace(GRAPHS, log10_targets=(True, False))
    y = torch.tensor([[1.0, 5.0], [100.0, 7.0], [float("nan"), 9.0]])
    task = build_task(spec, 8, HeadConfig())
    assert task.measure(y) == []
    task.standardize(y)
    assert task.offset.tolist() == [1.0, 7.0]  # of log10: 0 and 2
    assert task.deviation.tolist() == pytest.approx([1.0, math.sqrt(8 / 3)])
    batch = _batch(y.tolist())
    output = torch.tensor([[0.5, 0.0], [-1.0, 1.0], [0.0, 0.0]])
    predictions, targets = task.predict(output, batch)
    assert predictions[:, 0].tolist() == pytest.approx([10**1.5, 1.0, 10.0])
    assert predictions[:, 1].tolist() == pytest.approx([7.0, 7 + math.sqrt(8 / 3), 7.0])
    assert targets is batch.y
    scaled = [(abs(0.5 + 1) + abs(-1 - 1)) / 2, (2 + math.sqrt(8 / 3) + 2) / 3 / math.sqrt(8 / 3)]
    metrics = task.build_metrics() | {f"{name} alone": one for name, one in task.target_metrics().items()}
    task.update(metrics, output, batch)
    assert float(metrics["scaled_MAE"].compute()) == pytest.approx(sum(scaled) / 2)
    assert metrics["MAE alone"].compute()[0] == pytest.approx((10**1.5 - 1 + 99) / 2)
    loss = (1.5 + 2 + abs(0 + 2 / math.sqrt(8 / 3)) + 1 + 2 / math.sqrt(8 / 3)) / 5
    assert float(task.loss(output, batch)) == pytest.approx(loss)


def test_quantiles_in_log10_are_powers_of_those_of_the_logarithm():
    spec = dataclasses.replace(GRAPHS, log10_targets=(False, True))
    task = build_task(spec, 8, HeadConfig(), loss="Quantile", quantiles=[0.1, 0.5, 0.9])
    output = torch.randn(4, 6)
    quantiles = task.spread.quantiles(output)[..., [0, 2]]
    expected = torch.cat([quantiles[:, 0], 10 ** quantiles[:, 1]], 1)
    torch.testing.assert_close(task.spreads(output), expected)
    with pytest.raises(BadInput, match=r"Gaussian.*log10"):
        build_task(spec, 8, HeadConfig(), loss="gaussian")


def test_a_single_target_in_log10_also_has_scaled_errors():
    spec = dataclasses.replace(GRAPHS, num_targets=1, target_names=(), log10_targets=(True,), metric="scaled_MAE")
    task = build_task(spec, 8, HeadConfig(), metrics=["R2"])
    assert set(task.all_metrics()) == {"MAE", "RMSE", "scaled_MAE", "scaled_RMSE", "R2"}
    assert "deviation" in task.state_dict()
