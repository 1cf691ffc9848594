"""What training learns from targets, and the splits that are refused or reported before the first step."""

import dataclasses
import logging
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest
import torch
import yaml
from pytorch_lightning.callbacks import EarlyStopping, ModelCheckpoint
from torch import nn

from graphbench import registry
from graphbench.contracts import Architecture, Representation
from graphbench.errors import BadInput
from graphbench.testing import tiny_spec, tiny_table
from graphbench.training import targets
from graphbench.training.module import BenchmarkModule

ROOT = Path(__file__).parents[2]


class Rows(Architecture):
    def __init__(self, spec):
        super().__init__(spec, 4)
        self.map = nn.Linear(spec.node.dense, 4)

    def forward(self, batch):
        return Representation(node=self.map(batch.x_dense))


def module_on(spec, y, callbacks=(), **options):
    """Return a module whose trainer has splits with the targets `y`."""
    module = BenchmarkModule(spec, Rows, **options)
    tables = {}
    for split, values in y.items():
        table = tiny_table(spec, len(values))
        tables[split] = table.with_columns({"y": torch.as_tensor(values)}, {"y": table.layout["y"]})
    module.trainer = SimpleNamespace(
        datamodule=SimpleNamespace(tables=tables), callbacks=list(callbacks), limit_val_batches=1.0, is_global_zero=True
    )
    return module


def binary(**options):
    return dataclasses.replace(tiny_spec("graph-classification", "dense"), num_classes=2, **options)


def real(num_targets=1, **options):
    spec = tiny_spec("graph-regression", "dense")
    return dataclasses.replace(
        spec, num_targets=num_targets, target_names=("logS", "K", "nM")[:num_targets], target_units=(), **options
    )


BALANCED, NEGATIVE = np.array([[0], [1], [0], [1]]), np.zeros((4, 1), dtype=np.int64)


@pytest.mark.parametrize("metric", ["AUROC", "class_accuracy", "macro_F1", "MCC", "AP", "kappa"])
def test_a_validation_split_without_a_positive_is_refused(metric):
    named = [metric] if metric in ("MCC", "AP", "kappa") else None
    y = {"train": BALANCED, "val": NEGATIVE, "test": BALANCED}
    module = module_on(binary(), y, metrics=named, select_by=metric)
    with pytest.raises(BadInput, match=rf"val/{metric} .*all 4 known targets are of class 0.*--model\.select_by"):
        targets.check_selection(module)


def test_what_a_callback_watches_is_refused_too():
    y = {"train": BALANCED, "val": NEGATIVE, "test": BALANCED}
    for callback in (EarlyStopping("val/AUROC"), ModelCheckpoint(monitor="val/AUROC")):
        module = module_on(binary(), y, [callback], select_by="accuracy")
        with pytest.raises(BadInput, match=f"val/AUROC is what {type(callback).__name__} watches"):
            targets.check_selection(module)


def test_other_scores_without_a_number_are_named(caplog):
    y = {"train": BALANCED, "val": NEGATIVE, "test": BALANCED}
    with caplog.at_level(logging.WARNING):
        targets.check_selection(module_on(binary(), y, select_by="accuracy"))
    assert "no number for val/class_accuracy, val/macro_F1, val/AUROC: all 4" in caplog.text
    assert "val/accuracy" not in caplog.text


def test_a_correlation_with_a_constant_target_is_refused():
    y = {"train": torch.randn(4, 1), "val": torch.full((4, 1), 2.5), "test": torch.randn(4, 1)}
    module = module_on(real(), y, metrics=["R2"], select_by="R2")
    with pytest.raises(BadInput, match=r"val/R2 .*known targets are 2\.5"):
        targets.check_selection(module)


def test_one_class_alone_is_refused_and_a_class_without_a_row_named(caplog):
    with pytest.raises(BadInput, match="all 4 training rows are of class 0"):
        targets.learn(module_on(binary(), {"train": NEGATIVE, "val": BALANCED, "test": BALANCED}))
    three = dataclasses.replace(binary(), num_classes=3)
    with caplog.at_level(logging.WARNING):
        targets.learn(module_on(three, {"train": BALANCED, "val": BALANCED, "test": BALANCED}))
    assert "no training row is of class 2" in caplog.text


def test_regressions_are_standardised_unless_told_otherwise():
    y = torch.tensor([[10.0], [14.0], [10.0], [14.0]])
    splits = {"train": y, "val": y, "test": y}
    module = module_on(real(), splits)
    targets.learn(module)
    assert (module.task.offset.tolist(), module.task.scale.tolist()) == ([12.0], [2.0])
    module = module_on(real(), splits, standardize_targets=False)
    targets.learn(module)
    assert (module.task.offset.tolist(), module.task.scale.tolist()) == ([0.0], [1.0])
    assert not BenchmarkModule(binary(), Rows).standardize_targets


def test_a_constant_training_target_is_named(caplog):
    y = torch.tensor([[1.0, 5.0], [2.0, 5.0]])
    with caplog.at_level(logging.WARNING):
        targets.learn(module_on(real(2), {"train": y, "val": y, "test": y}))
    assert "the target K has one value" in caplog.text
    assert "logS" not in caplog.text


def test_a_target_that_no_training_row_has_is_named_as_such(caplog):
    rows = np.array([[1.0, np.nan], [2.0, np.nan], [4.0, np.nan], [3.0, np.nan]], dtype=np.float32)
    targets.learn(module_on(real(2), dict.fromkeys(("train", "val", "test"), rows)))
    assert "the target K has an exact value in no training row" in caplog.text
    assert "logS" not in caplog.text


@pytest.mark.parametrize("standardize", [None, False])
def test_several_targets_have_scores_of_their_own_and_one_of_scaled_errors(standardize):
    y = torch.tensor([[0.0, 300.0, 1e8], [2.0, 310.0, 3e8], [0.0, 300.0, 1e8], [2.0, 310.0, 3e8]])
    spec = real(3, metric="scaled_MAE", higher_is_better=False)
    module = module_on(spec, {"train": y, "val": y, "test": y}, standardize_targets=standardize)
    targets.learn(module)
    scores = module.scores.of("val")
    errors = torch.tensor([0.5, 10.0, -2e8])
    scores.add(module.task, y + errors, y)
    values = {name: float(value) for name, value in scores.finish().items()}
    assert values["val/MAE/logS"] == pytest.approx(0.5)
    assert values["val/MAE/K"] == pytest.approx(10.0)
    assert values["val/RMSE/nM"] == pytest.approx(2e8)
    assert values["val/scaled_MAE"] == pytest.approx((0.5 / 1 + 10 / 5 + 2e8 / 1e8) / 3)
    assert "val/MAE" not in values
    assert module.monitor == "val/scaled_MAE"


def test_energies_keep_their_spread():
    """1e6 + noise of 1e-3, where float32 has steps of 0.06."""
    noise = torch.tensor([[-1.0], [1.0], [-1.0], [1.0]], dtype=torch.float64) * 1e-3
    y = 1e6 + noise
    module = module_on(real(), {"train": y, "val": y, "test": y})
    targets.learn(module)
    assert module.task.offset.item() == pytest.approx(1e6, abs=1e-9)
    assert module.task.scale.item() == pytest.approx(1e-3, rel=1e-6)
    batch = module.trainer.datamodule.tables["train"].batch([0, 1, 2, 3])
    output = torch.tensor([[-1.0], [1.0], [-1.0], [1.0]], requires_grad=True)
    loss = module.task.loss(output, batch)
    assert loss.dtype == torch.float32
    assert loss.item() == pytest.approx(0.0, abs=1e-6)
    predictions, truth = module.task.predict(output, batch)
    assert (predictions - truth).abs().max().item() < 1e-9
    module.to(torch.bfloat16)
    assert module.task.offset.dtype == torch.float64
    assert module.task.offset.item() == pytest.approx(1e6, abs=1e-9)
    again = BenchmarkModule(real(), Rows)
    again.load_state_dict(module.state_dict())
    assert again.task.wide


def recipes():
    """Yield every configuration that names data and a model, with the benchmark and the model."""
    for path in sorted([*(ROOT / "configs").rglob("*.yaml"), *ROOT.glob("plugins/*/configs/**/*.yaml")]):
        content = yaml.safe_load(path.read_text(encoding="utf-8"))
        data = content.get("data") if isinstance(content, dict) else None
        name = data.get("class_path") if isinstance(data, dict) else data
        if name and isinstance(content.get("model"), dict):
            yield path, name, content["model"]


def test_every_published_regression_says_whether_targets_are_standardised():
    specs = {}
    seen = 0
    for path, name, model in recipes():
        if name not in specs:
            specs[name] = registry.load("benchmarks", name).spec
        if specs[name].task.endswith("regression") and name not in ("Graphs", "Molecules"):
            assert isinstance(model.get("standardize_targets"), bool), path
            seen += 1
    assert seen > 40


def test_a_regression_of_labels_and_gaps_is_named(caplog):
    y = np.array([[0, 0, 0.5], [1, np.nan, 1], [0, 1, 0], [np.nan, 1, 1]])
    with caplog.at_level(logging.WARNING):
        targets.learn(module_on(real(3), {"train": y, "val": y}))
    (said,) = [text for text in caplog.messages if "multilabel" in text]
    assert "for logS, K," in said
    caplog.clear()
    targets.learn(module_on(real(), {"train": np.array([[1.0], [2.0], [0.0]]), "val": y[:, :1]}))
    assert not [text for text in caplog.messages if "multilabel" in text]


@pytest.mark.parametrize(("ones", "options", "told"), [(5, {}, 1), (50, {}, 0), (5, {"select_by": "AUROC"}, 0)])
def test_accuracy_that_hardly_depends_on_the_rare_class_is_named(ones, options, told, caplog):
    y = np.array([[1]] * ones + [[0]] * (100 - ones))
    with caplog.at_level(logging.WARNING):
        targets.learn(module_on(binary(metric="accuracy"), {"train": y, "val": y}, **options))
    assert len([text for text in caplog.messages if "--model.select_by AUROC" in text]) == told


@pytest.mark.parametrize("standardized", [False, True])
def test_scaled_errors_of_a_checkpoint_without_deviations_are_scaled(standardized):
    """Checkpoints from before 2026-11-24 have `scale` only, which is 1 unless targets were standardised."""
    y = np.array([[0.0, 10.0], [2.0, 30.0], [4.0, np.nan], [4.0, 80.0]])
    expected = np.nanstd(y, axis=0)
    earlier = module_on(real(2), dict.fromkeys(("train", "val", "test"), y))
    if standardized:
        earlier.task.standardize(torch.as_tensor(y))
    state = {name: value.clone() for name, value in earlier.state_dict().items() if name != "task.deviation"}
    module = module_on(real(2), dict.fromkeys(("train", "val", "test"), y))
    module.on_load_checkpoint({"state_dict": state})
    module.load_state_dict(state)
    assert module.task.deviation.numpy() == pytest.approx(expected)
    assert torch.equal(module.task.scale, earlier.task.scale)


def test_metrics_are_tried_without_a_collective(monkeypatch):
    """The targets are on the host at that point, and NCCL has no collectives for it."""
    import torchmetrics.metric

    called = []
    monkeypatch.setattr(torchmetrics.metric, "jit_distributed_available", lambda: True)
    monkeypatch.setattr(torchmetrics.metric, "gather_all_tensors", lambda *given, **_: called.append(given))
    y = np.array([[0.5], [1.5], [4.0], [2.0]])
    metrics = ["Spearman", "torchmetrics.regression.ExplainedVariance"]
    module = module_on(real(), {"train": y, "val": y}, metrics=metrics)
    targets.check_metrics(module)
    assert not called
