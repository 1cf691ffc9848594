"""Map recovery: losses compared with loops over graphs, invariance to scale and sign, and when a head is built."""

import dataclasses
import math

import pytest
import torch

from graphbench.contracts import BenchmarkSpec, Column, Features, GraphTable, Representation
from graphbench.nn.heads import HeadConfig
from graphbench.testing import tiny_spec
from graphbench.training.tasks import build_task

MAPS = BenchmarkSpec(
    name="Maps", task="map-recovery", node=Features(), edge=Features(), metric="log_loss", higher_is_better=False,
    loss="normalised_MSE", num_targets=6,
)  # fmt: skip
COLUMNS = dataclasses.replace(MAPS, loss="column_MSE")
VECTORS = dataclasses.replace(MAPS, loss="eigenvector")
SIZES = (7, 9, 8)


def batch_and_output(seed=0):
    generator = torch.Generator().manual_seed(seed)
    graphs = [
        {
            "num_nodes": n,
            "edge_index": torch.zeros(2, 0, dtype=torch.int64),
            "y": torch.randn(n, 6, generator=generator),
        }
        for n in SIZES
    ]
    table = GraphTable.from_graphs(graphs, {"y": Column("node")})
    return table.batch(range(3)), torch.randn(sum(SIZES), 6, generator=generator, requires_grad=True)


def by_graph(batch, output):
    return zip(output.split(SIZES), batch.y.split(SIZES), strict=True)


def scores(task, batch, output):
    metrics = task.build_metrics()
    for _ in range(2):
        task.update(metrics, output.detach(), batch)
    return {name: metric.compute().item() for name, metric in metrics.items()}


def test_loss_of_maps():
    task, (batch, output) = build_task(MAPS, 6, HeadConfig()), batch_and_output()
    expected = torch.stack(
        [
            (o / torch.linalg.matrix_norm(o) - t / torch.linalg.matrix_norm(t)).square().sum()
            for o, t in by_graph(batch, output)
        ]
    )
    loss = task.loss(output, batch)
    torch.testing.assert_close(loss, expected.mean())
    torch.testing.assert_close(task.loss(output * 7, batch), loss)
    found = scores(task, batch, output)
    assert found["MSE"] == pytest.approx(loss.item(), rel=1e-5)
    assert found["log_loss"] == pytest.approx(math.log(loss.item()), rel=1e-5)
    assert task.loss(3 * batch.y, batch) < 1e-12


def test_loss_of_columns():
    """Section 3.5 as printed: each column up to its own positive scale, averaged over columns."""
    task, (batch, output) = build_task(COLUMNS, 6, HeadConfig()), batch_and_output()
    expected = []
    for o, t in by_graph(batch, output):
        errors = [(o[:, i] / o[:, i].norm() - t[:, i] / t[:, i].norm()).square().sum() for i in range(6)]
        expected.append(torch.stack(errors).mean())
    loss = task.loss(output, batch)
    torch.testing.assert_close(loss, torch.stack(expected).mean())
    torch.testing.assert_close(task.loss(output * torch.tensor([1.0, 2, 3, 4, 5, 6]), batch), loss)
    assert task.loss(-batch.y, batch).item() == pytest.approx(4)  # the sign matters
    found = scores(task, batch, output)
    assert (found["MSE"], found["log_loss"]) == pytest.approx((loss.item(), math.log(loss.item())), rel=1e-5)
    assert set(found) == {"MSE", "log_loss"}


def test_loss_of_eigenvectors():
    task, (batch, output) = build_task(VECTORS, 6, HeadConfig()), batch_and_output()
    unit = torch.nn.functional.normalize
    expected = torch.stack(
        [
            torch.minimum(*[(sign * unit(o, dim=0) - unit(t, dim=0)).square().sum(0) for sign in (1, -1)])
            for o, t in by_graph(batch, output)
        ]
    )
    torch.testing.assert_close(task.loss(output, batch), expected.mean())
    signs = torch.tensor([1.0, -2, 3, -1, 1, -0.5])
    torch.testing.assert_close(task.loss(output * signs, batch), expected.mean())
    found = scores(task, batch, output)
    assert found["loss_3"] == pytest.approx(expected[:, 2].mean().item(), rel=1e-5)
    assert found["loss_1-5"] == pytest.approx(expected[:, :5].mean().item(), rel=1e-5)
    assert "loss_1-10" not in found
    assert "loss_7" not in found


@pytest.mark.parametrize("spec", [MAPS, COLUMNS, VECTORS])
def test_predictions_are_normalised_as_in_the_loss(spec):
    task, (batch, output) = build_task(spec, 6, HeadConfig()), batch_and_output()
    predicted, truth = task.predict(output, batch)
    if spec is MAPS:
        errors = torch.stack(
            [(p - t).square().sum() for p, t in zip(predicted.split(SIZES), truth.split(SIZES), strict=True)]
        )
        torch.testing.assert_close(errors.mean(), task.loss(output, batch))
    else:
        lengths = torch.stack([part.norm(dim=0) for part in predicted.split(SIZES)])
        torch.testing.assert_close(lengths, torch.ones(3, 6))


def test_a_head_only_where_widths_differ():
    batch, output = batch_and_output()
    same = build_task(MAPS, 6, HeadConfig())
    assert same(Representation(output), batch) is output
    assert not list(same.parameters())
    other = build_task(MAPS, 4, HeadConfig(num_layers=1))
    assert other(Representation(torch.randn(sum(SIZES), 4)), batch).shape == (sum(SIZES), 6)
    assert sum(p.numel() for p in other.parameters()) == 4 * 6 + 6


def test_zeros_have_finite_gradients():
    for spec in (MAPS, COLUMNS, VECTORS):
        task, (batch, output) = build_task(spec, 6, HeadConfig()), batch_and_output()
        zero = torch.zeros_like(output).requires_grad_()
        task.loss(zero, batch).backward()
        assert zero.grad.isfinite().all()


def test_only_the_asked_metrics_are_updated_and_double_stays_double():
    task, (batch, output) = build_task(VECTORS, 6, HeadConfig()), batch_and_output()
    metrics = {"log_loss": task.build_metrics()["log_loss"]}
    task.update(metrics, output.detach(), batch)
    assert metrics["log_loss"].compute().item() == pytest.approx(task.loss(output, batch).log().item(), rel=1e-5)
    assert task.errors(output.double(), batch).dtype == torch.float64
    assert task.errors(output.bfloat16(), batch).dtype == torch.float32


def test_tiny_specification_has_its_metric():
    assert "MSE" in build_task(tiny_spec("map-recovery"), 4, HeadConfig()).build_metrics()
