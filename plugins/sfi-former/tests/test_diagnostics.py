"""Sparsity, norms of gradients and single steps of the iteration against what can be computed by hand."""

from __future__ import annotations

import csv
from pathlib import Path

import pytest
import pytorch_lightning as pl
import torch
from pytorch_lightning.loggers import Logger
from torch import nn
from two_processes import on_two

from graphbench import BenchmarkModule, GraphBatch
from graphbench.benchmarks import GraphBenchmark
from graphbench.diagnostics import attention_row_sum, attention_zeros, record
from graphbench.errors import BadInput
from graphbench.nn import ESLapPEEncoder
from graphbench.testing import encode, tiny_spec, tiny_table
from graphbench_sfi_former import (
    DFiFormer,
    FlowSparsity,
    GradientNorm,
    ProximalOptions,
    SFiFormer,
    diagnostics,
    flow_statistics,
    flow_steps,
)


def test_zero_share_and_row_sums():
    flow = torch.tensor([[[0.5, 0.5], [0.0, 1.0]], [[0.0, 0.0], [0.0, 0.25]]])
    statistics = flow_statistics(flow)
    assert statistics.zero_share.tolist() == [0.25, 0.75]
    assert statistics.row_sum.tolist() == [[1.0, 1.0], [0.0, 0.25]]


def test_masked_keys_count_nowhere():
    flow = torch.tensor([[[0.5, 0.0, 7.0], [0.25, 0.75, 7.0]]])
    statistics = flow_statistics(flow, torch.tensor([True, True, False]))
    assert statistics.zero_share.tolist() == [0.25]
    assert statistics.row_sum.tolist() == [[0.5, 1.0]]
    double = torch.tensor([[[1.0, 0.0, 0.5]]], dtype=torch.float64)
    assert flow_statistics(double, torch.ones(3, dtype=torch.bool)).zero_share.tolist() == [1 / 3]


class Toy(GraphBenchmark):
    """8 training, 7 validation and 2 test graphs."""

    spec = tiny_spec()

    def source_key(self):
        return {}

    def read(self):
        return {name: tiny_table(self.spec, n, seed=n) for name, n in (("train", 8), ("val", 7), ("test", 2))}


class KeptLogger(Logger):
    """Keeps what is logged."""

    name = version = "kept"

    def __init__(self):
        super().__init__()
        self.values = {}

    def log_metrics(self, metrics, step=None):
        self.values |= metrics

    def log_hyperparams(self, *args, **kwargs):
        """Nothing."""


@pytest.fixture
def fit(tmp_path):
    """Train a model for an epoch with the callback."""

    def train(architecture, *callbacks, **options):
        pl.seed_everything(0, verbose=False)
        data = Toy(root=str(tmp_path / "data"), batch_size=4, eval_batch_size=2, seed=0)
        options = {"hidden_dim": 8, "num_layers": 2, "num_heads": 2} | options
        module = BenchmarkModule(data.spec, lambda spec: architecture(spec, **options))
        data.require(module.required_encodings())
        trainer = pl.Trainer(
            max_epochs=1, callbacks=list(callbacks), logger=KeptLogger(), enable_checkpointing=False, accelerator="cpu",
            enable_progress_bar=False, enable_model_summary=False, default_root_dir=str(tmp_path),
        )  # fmt: skip
        trainer.fit(module, data)
        return module, trainer

    return train


def flow_values(trainer):
    return {name: value for name, value in trainer.logger.values.items() if name.startswith("flow_sparsity/")}


def test_it_logs_zeros_row_sums_and_gamma_of_the_validated_model(fit):
    module, trainer = fit(SFiFormer, FlowSparsity(num_batches=4), penalty=20.0)
    table = trainer.datamodule.tables["val"]
    module.eval()
    with torch.no_grad(), record(module.architecture) as recording:
        module.represent(table.batch(range(len(table))))
    values = flow_values(trainer)
    assert len(values) == 2 * (2 + 2 + 1)
    for layer, trace in enumerate(recording):
        for name, measure in (("zeros", attention_zeros), ("row_sum", attention_row_sum)):
            for head, of_graphs in enumerate(measure(trace.attention).unbind(1)):
                expected = of_graphs.mean().item()
                assert values[f"flow_sparsity/{name}/layer_{layer}_head_{head}"] == pytest.approx(expected, abs=1e-6)
        gamma = module.architecture.layers[layer].attention.gamma.item()
        assert values[f"flow_sparsity/gamma/layer_{layer}"] == pytest.approx(gamma)
    assert max(v for name, v in values.items() if "zeros" in name) > 0.1
    with Path(trainer.default_root_dir, "diagnostics", "flow_sparsity.csv").open(newline="") as file:
        rows = list(csv.DictReader(file))
    assert [(row["epoch"], row["layer"], row["head"]) for row in rows] == [("1", a, b) for a in "01" for b in "01"]
    for row in rows:
        place = f"layer_{row['layer']}_head_{row['head']}"
        for name in ("zeros", "row_sum"):
            assert float(row[name]) == pytest.approx(values[f"flow_sparsity/{name}/{place}"])
        assert float(row["gamma"]) == pytest.approx(values[f"flow_sparsity/gamma/layer_{row['layer']}"])


def test_shares_of_two_processes_are_weighted_by_their_graphs(tmp_path):
    """One process has four of seven graphs; a single node has a value like any other."""

    def measured(devices):
        torch.manual_seed(0)
        data = Toy(root=str(tmp_path / "data"), eval_batch_size=2, seed=0)
        module = BenchmarkModule(data.spec, lambda spec: SFiFormer(spec, hidden_dim=8, num_layers=2, num_heads=2))
        trainer = pl.Trainer(
            callbacks=[FlowSparsity()], logger=False, accelerator="cpu", enable_progress_bar=False, devices=devices,
            strategy="ddp" if devices > 1 else "auto", default_root_dir=str(tmp_path),
        )  # fmt: skip
        trainer.validate(module, data, verbose=False)
        return {name: float(value) for name, value in trainer.callback_metrics.items()}

    one = measured(1)
    assert sum(name.startswith("flow_sparsity/") for name in one) == 2 * (2 + 2 + 1)
    for found in on_two(tmp_path / "two", lambda rank: measured(2)):
        assert found == pytest.approx(one, rel=1e-5, abs=1e-7)


def test_softmax_attention_has_no_zeros(fit):
    _, trainer = fit(DFiFormer, FlowSparsity())
    zeros = [value for name, value in flow_values(trainer).items() if "zeros" in name]
    assert len(zeros) == 4
    assert set(zeros) == {0}


def test_watching_changes_nothing(fit):
    states = [fit(SFiFormer, *callbacks)[0].state_dict() for callbacks in ([], [FlowSparsity()])]
    assert all(torch.equal(a, b) for a, b in zip(*(s.values() for s in states), strict=True) if torch.is_tensor(a))


def test_other_epochs_and_later_batches_are_left_alone(fit, monkeypatch):
    _, trainer = fit(SFiFormer, FlowSparsity(every_n_epochs=2))
    assert not flow_values(trainer)
    trainer.validate(trainer.lightning_module, trainer.datamodule, verbose=False)
    assert flow_values(trainer)
    batches = []
    monkeypatch.setattr(diagnostics, "record", lambda model: batches.append(model) or record(model))
    fit(SFiFormer, FlowSparsity(num_batches=1))
    assert len(batches) == 1


def test_layers_without_matrices_have_gamma_at_most(fit):
    _, trainer = fit(SFiFormer, FlowSparsity(), terms="adjacency")
    assert not flow_values(trainer)


@pytest.mark.parametrize("option", ["num_batches", "every_n_epochs"])
def test_numbers_must_be_positive(option):
    with pytest.raises(BadInput, match=option):
        FlowSparsity(**{option: 0})


class Line(pl.LightningModule):
    """w x with loss w x, whose gradient is x."""

    def __init__(self) -> None:
        super().__init__()
        self.w = nn.Parameter(torch.zeros(2))

    def training_step(self, batch, batch_idx):
        return (self.w * batch[0]).sum()

    def configure_optimizers(self):
        return torch.optim.SGD(self.parameters(), lr=0.1)


def test_every_step_has_its_norm_before_clipping(tmp_path):
    data = torch.utils.data.DataLoader([torch.tensor([3.0, 4.0]) * k for k in (1, 2, 3)], batch_size=1)
    trainer = pl.Trainer(
        default_root_dir=tmp_path,
        max_epochs=2,
        gradient_clip_val=1.0,
        callbacks=[GradientNorm()],
        logger=False,
        enable_checkpointing=False,
        enable_progress_bar=False,
        enable_model_summary=False,
        accelerator="cpu",
    )
    trainer.fit(Line(), data)
    with (tmp_path / "diagnostics" / "gradient_norm.csv").open() as file:
        rows = list(csv.DictReader(file))
    assert [(int(r["epoch"]), int(r["step"]), float(r["norm"])) for r in rows] == [
        (0, 1, 5.0), (0, 2, 10.0), (0, 3, 15.0), (1, 4, 5.0), (1, 5, 10.0), (1, 6, 15.0),
    ]  # fmt: skip


SPEC = tiny_spec("node-classification", "dense")
HEADS, DIM, ALPHA = 2, 8, 0.1


def made(architecture=SFiFormer, **options):
    torch.manual_seed(0)
    encoder = ESLapPEEncoder(3, DIM)
    return architecture(SPEC, hidden_dim=DIM, num_layers=2, num_heads=HEADS, gate_encoder=encoder, **options).eval()


def graphs(model, sizes) -> GraphBatch:
    return encode(tiny_table(SPEC, sizes=sizes), model.required_encodings()).batch(range(len(sizes)))


def projected(model, batch):
    """Return R and F `[H, n, n]` per layer, from the outputs of its maps."""
    heard = []
    layers = [module for module in model.modules() if hasattr(module, "friction_proj")]
    hooks = [
        part.register_forward_hook(lambda module, inputs, output: heard.append(output.detach().double()))
        for layer in layers
        for part in (layer.in_proj, layer.friction_proj)
    ]
    model(batch)
    for hook in hooks:
        hook.remove()
    for own, friction in zip(heard[::2], heard[1::2], strict=True):
        q, k, _ = own.unflatten(1, (3, HEADS, DIM)).permute(1, 2, 0, 3)
        fq, fk = friction.unflatten(1, (2, HEADS, DIM)).permute(1, 2, 0, 3)
        yield (-q @ k.mT / DIM**0.5).softmax(-1), (fq @ fk.mT / DIM**0.5).softmax(-1)


def test_flows_are_those_of_equation_12():
    """With the constant step 1 / (max r + alpha n), from zeros."""
    model, n = made(alpha=ALPHA), 7
    batch = graphs(model, [n])
    found = flow_steps(model, batch, [3, 0, 1], ProximalOptions(start="zeros", step="constant"))
    for layer, (r, f) in zip(found, projected(model, batch), strict=True):
        assert layer.steps == (0, 1, 3)
        t = 1 / (r.amax((1, 2), keepdim=True) + ALPHA * n)
        z, expected = torch.zeros_like(r), []
        for _ in range(4):
            expected.append(z)
            y = z - t * (r * z + ALPHA * (z.sum(-1, keepdim=True) - 1))
            z = y.sign() * (y.abs() - t * f / n).clamp(min=0)
        wanted = torch.stack([expected[0], expected[1], expected[3]])
        torch.testing.assert_close(layer.flows.double(), wanted, rtol=1e-4, atol=1e-6)


def test_the_last_picture_is_the_limit_of_the_steps_and_that_of_the_model():
    model = made(alpha=ALPHA)
    batch = graphs(model, [6])
    with torch.no_grad(), record(model) as recording:
        model(batch)
    found = flow_steps(model, batch, [0, 20, 300])
    for layer, trace in zip(found, recording, strict=True):
        assert layer.layer == trace.layer
        torch.testing.assert_close(layer.weights, trace.attention[0])
        assert (layer.errors[0] > 1).all()
        assert (layer.errors[2] < 1e-3).all()


def test_the_start_is_that_of_the_layers_with_the_iteration():
    """Uniform, a function of seed, head and nodes."""
    model = made(alpha=ALPHA)
    first, again, other = (
        flow_steps(model, graphs(model, [6]), [0], ProximalOptions(seed=seed))[0].flows[0] for seed in (0, 0, 1)
    )
    assert torch.equal(first, again)
    assert not torch.equal(first, other)
    assert ((first >= 0) & (first < 1)).all()


def test_a_dense_layer_has_softmax_attention_beside_the_adjacency_matrix():
    model = made(DFiFormer)
    batch = graphs(model, [6])
    with torch.no_grad(), record(model) as recording:
        model(batch)
    near = torch.eye(6)
    near[batch.edge_index[1], batch.edge_index[0]] = 1
    near = near.sum(1).rsqrt()[:, None] * near * near.sum(1).rsqrt()
    for layer, trace in zip(flow_steps(model, batch, [0, 1]), recording, strict=True):
        assert (layer.steps, tuple(layer.flows.shape)) == ((), (0, HEADS, 6, 6))
        torch.testing.assert_close(layer.weights, trace.attention[0])
        torch.testing.assert_close(layer.enhanced, (near + trace.attention[0]) / 2)  # gamma is 1 at first


def test_the_model_is_left_as_it_was():
    model = made(alpha=ALPHA)
    batch = graphs(model, [6])
    before = model(batch).node
    flow_steps(model, batch, [1])
    assert torch.equal(model(batch).node, before)
    assert all("mix" not in vars(module) for module in model.modules())


@pytest.mark.parametrize(
    ("options", "sizes", "steps", "message"),
    [
        ({}, [4, 5], [1], "needs one graph, but the batch has 2"),
        ({}, [4], [], "steps of flow_steps .* is empty"),
        ({}, [4], [-1], "at least 0"),
        ({"alpha": None}, [4], [1], "alpha: null"),
        ({"terms": "adjacency"}, [4], [1], "no attention"),
    ],
)
def test_what_cannot_be_looked_at_is_refused(options, sizes, steps, message):
    model = made(**options)
    with pytest.raises(BadInput, match=message):
        flow_steps(model, graphs(model, sizes), steps)


def test_dropout_and_batch_statistics_are_not_looked_at():
    model = made().train()
    with pytest.raises(BadInput, match=r"call model.eval\(\) first"):
        flow_steps(model, graphs(model, [4]), [1])
