"""Baselines are scored by the metrics of the model that they are compared with."""

import dataclasses
from types import SimpleNamespace

import numpy as np
import pytest
import torch
from sklearn.metrics import mean_absolute_error

from graphbench.contracts import Architecture, Baseline, Representation
from graphbench.testing import tiny_spec, tiny_table
from graphbench.training.baselines import baselines_of
from graphbench.training.module import BenchmarkModule

BALANCED, NEGATIVE = np.array([[0], [1], [0], [1]], dtype=np.uint8), np.zeros((4, 1), dtype=np.uint8)


class Rows(Architecture):
    def __init__(self, spec):
        super().__init__(spec, 4)
        self.map = torch.nn.Linear(spec.node.dense, 4)

    def forward(self, batch):
        return Representation(node=self.map(batch.x_dense))


def data_of(spec, y, predictions):
    table = tiny_table(spec, 4)
    tables = {
        split: table.with_columns({"y": torch.from_numpy(values)}, {"y": table.layout["y"]})
        for split, values in y.items()
    }
    baselines = {name: Baseline(values, 2.5, "half of it") for name, values in predictions.items()}
    return SimpleNamespace(tables=tables, baselines=dict, baseline_predictions=lambda: baselines)


def test_classes():
    spec = dataclasses.replace(tiny_spec("graph-classification", "dense"), num_classes=2)
    answer = {split: np.tile([0.6, 0.4], (4, 1)) for split in ("val", "test")}
    data = data_of(spec, {"train": BALANCED, "val": BALANCED, "test": NEGATIVE}, {"majority class": answer})
    scores = baselines_of(BenchmarkModule(spec, Rows), data, ("val", "test"))["majority class"]
    assert scores["val"]["val/accuracy"] == 0.5
    assert scores["val"]["val/AUROC"] == 0.5
    assert scores["test"] == {"test/accuracy": 1.0}  # the others are undefined on one class
    assert (scores["seconds"], scores["note"]) == (2.5, "half of it")


def test_rows_without_a_prediction_are_not_scored():
    spec = tiny_spec("graph-regression", "dense")
    y = np.arange(4.0)[:, None]
    answer = {split: np.array([[1.0], [np.nan], [1.0], [np.nan]]) for split in ("val", "test")}
    data = data_of(spec, {"train": y, "val": y, "test": y}, {"some": answer})
    scores = baselines_of(BenchmarkModule(spec, Rows), data, ("test",))["some"]
    assert scores["test"]["test/MAE"] == mean_absolute_error(y[[0, 2]], np.ones(2))


def test_every_metric_of_a_regression_and_every_target():
    spec = dataclasses.replace(
        tiny_spec("graph-regression", "dense"), num_targets=2, target_names=("a", "b"), target_units=()
    )
    y = np.random.default_rng(0).normal(size=(4, 2))
    answer = {split: np.zeros((4, 2)) for split in ("val", "test")}
    data = data_of(spec, {"train": y, "val": y, "test": 2 * y}, {"zero": answer})
    module = BenchmarkModule(spec, Rows)
    scores = baselines_of(module, data, ("val", "test"))["zero"]
    assert scores["test"]["test/MAE/b"] == pytest.approx(mean_absolute_error(2 * y[:, 1], np.zeros(4)), rel=1e-6)
    assert scores["test"].keys() == {name.replace("val/", "test/") for name in scores["val"]}
    assert {"val/MAE", "val/RMSE", "val/scaled_MAE", "val/MAE/a", "val/RMSE/b"} <= scores["val"].keys()


def test_scores_of_a_benchmark_s_own_stay_beside_them():
    spec = tiny_spec("link-ranking", "dense")
    data = SimpleNamespace(baselines=lambda: {"degree": {"val": {"val/MRR": 0.1}, "test": {"test/MRR": 0.2}}})
    module = BenchmarkModule(spec, Rows)
    assert baselines_of(module, data, ("test",)) == {"degree": {"test": {"test/MRR": 0.2}}}
