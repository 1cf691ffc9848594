"""What the callback logs against the measures of a recording made by hand."""

from __future__ import annotations

import pytest
import pytorch_lightning as pl
import torch
from pytorch_lightning.loggers import Logger

from graphbench import BenchmarkModule
from graphbench.benchmarks import GraphBenchmark
from graphbench.diagnostics import attention_row_sum, attention_zeros, record
from graphbench.errors import BadInput
from graphbench.testing import tiny_spec, tiny_table
from graphbench_sfi_former import DFiFormer, FlowSparsity, SFiFormer, sparsity


class Toy(GraphBenchmark):
    """8 training, 6 validation and 2 test graphs."""

    spec = tiny_spec()

    def source_key(self):
        return {}

    def read(self):
        return {name: tiny_table(self.spec, n, seed=n) for name, n in (("train", 8), ("val", 6), ("test", 2))}


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
    module, trainer = fit(SFiFormer, FlowSparsity(num_batches=3), penalty=20.0)
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
    batches = []
    monkeypatch.setattr(sparsity, "record", lambda model: batches.append(model) or record(model))
    fit(SFiFormer, FlowSparsity(num_batches=1))
    assert len(batches) == 1


def test_layers_without_matrices_have_gamma_at_most(fit):
    _, trainer = fit(SFiFormer, FlowSparsity(), terms="adjacency")
    assert not flow_values(trainer)


@pytest.mark.parametrize("option", ["num_batches", "every_n_epochs"])
def test_numbers_must_be_positive(option):
    with pytest.raises(BadInput, match=option):
        FlowSparsity(**{option: 0})
