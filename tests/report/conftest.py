"""Run folders as fit and test write them, with numbers chosen by each test."""

from __future__ import annotations

import json
from functools import partial

import numpy as np
import pandas as pd
import pytest
import yaml

from graphbench.runs import RunFolder

BASELINES = {"training mean": {"val": {"val/MAE": 1.9}, "test": {"test/MAE": 1.92}}}
LOSSES = ((1.0, 1.1), (0.5, 0.7), (0.3, 0.8))
ENVIRONMENT = {
    "started": "2026-03-01T10:00:00+00:00", "python": "3.11.7", "processor": "Abacus", "cores": 2, "torch_threads": 1,
    "gpus": [], "packages": {"torch": "2.13.0"},
}  # fmt: skip


def configuration(seed, architecture, options):
    model = {"architecture": {"class_path": f"zoo.{architecture}", "init_args": {"hidden_dim": 8, **options}}}
    data = {"class_path": "graphbench.benchmarks.NCI", "init_args": {"batch_size": 32}}
    return {"seed_everything": seed, "trainer": {"max_epochs": 3}, "model": model, "data": data}


def logged_rows(losses, steps_per_epoch=10):
    """Return rows as the loggers write them: learning rate by step, then scores of an epoch."""
    rows = []
    for epoch, (train, val) in enumerate(losses):
        end = (epoch + 1) * steps_per_epoch - 1
        rows.append({"step": end - steps_per_epoch // 2, "lr-AdamW/rest": 0.001 / (epoch + 1)})
        rows.append({"step": end, "epoch": epoch, "val/loss": val, "val/MAE": val, "val/RMSE": 2 * val})
        rows.append(
            {"step": end, "epoch": epoch, "train/loss": train, "train/MAE": train, "time/graphs_per_s": 100 + epoch}
        )
    return pd.DataFrame(rows)


@pytest.fixture(scope="session")
def runs_in():
    """Return a function that returns a `make_run` for any folder."""
    return lambda root: partial(write_run, root)


@pytest.fixture
def make_run(tmp_path):
    """Return a function that writes a run folder and returns it.

    `scores` are val/MAE and test/MAE (None: not tested), `losses` the training and validation loss of every epoch,
    `results` further entries of results.json; other options go into the configuration of the model.
    """
    return partial(write_run, tmp_path)


def write_run(root, name, seed=0, architecture="GPS", scores=(0.7, 0.9), losses=LOSSES, results=None, **options):
    folder = RunFolder(root / name)
    folder.diagnostics.mkdir(parents=True)
    folder.config.write_text(yaml.safe_dump(configuration(seed, architecture, options)))
    val, test = scores
    found = {
        "benchmark": "NCI", "architecture": architecture, "metric": "MAE", "higher_is_better": False,
        "parameters": 1234, "epochs": len(losses), "seed": seed, "fit_seconds": 10.0 + seed,
        "peak_memory_mb": 500 + seed, "best_epoch": 1, "val": {"val/loss": val, "val/MAE": val, "val/RMSE": 2 * val},
    }  # fmt: skip
    if test is not None:
        found |= {"test": {"test/loss": test, "test/MAE": test, "test/RMSE": 2 * test}, "baselines": BASELINES}
    folder.results.write_text(json.dumps(found | (results or {})))
    folder.environment.write_text(json.dumps(ENVIRONMENT))
    logged_rows(losses).to_csv(folder.metrics, index=False)
    return folder


@pytest.fixture(scope="session")
def add_layers():
    """Return a function that writes a diagnostic table by layer: value = base + layer + epoch / 10."""

    def add(folder, stem="attention_capacity", measures=("capacity", "entropy"), base=0.0, layers=3, epochs=(0, 1, 2)):
        rows = [
            {"epoch": epoch, "step": 10 * epoch, "layer": layer, "module": f"layers.{layer}", "measure": measure,
             "value": base + layer + epoch / 10, "graphs": 32}
            for epoch in epochs for layer in range(layers) for measure in measures
        ]  # fmt: skip
        pd.DataFrame(rows).to_csv(folder.diagnostics / f"{stem}.csv", index=False)

    return add


@pytest.fixture(scope="session")
def add_predictions():
    """Return a function that writes predictions of 200 graphs whose mean absolute error is `mae`."""

    def add(folder, mae):
        target = np.random.default_rng(0).normal(size=200)
        error = mae * np.where(np.arange(200) % 2, 1.0, -1.0)
        pd.DataFrame({"id": range(200), "prediction": target + error, "target": target}).to_csv(
            folder.path / "predictions-test.csv", index=False
        )

    return add
