"""Trainings on a pretended Apple GPU, which lacks float64; its scores equal those of the CPU."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import get_args

import pandas as pd
import pytest
import torch
from quick import slow
from tiny_fits import TinyData

from graphbench import BenchmarkModule, registry
from graphbench.benchmarks.electric_flow import ElectricFlow
from graphbench.callbacks import exact_resume
from graphbench.contracts import GraphBatch, devices
from graphbench.contracts.devices import choose_accelerator
from graphbench.contracts.spec import TaskName
from graphbench.errors import BadInput
from graphbench.testing import tiny_spec
from graphbench.training.tasks.metrics import ValueMean

HELPERS = Path(__file__).parents[1] / "helpers"


@pytest.mark.parametrize("task", [task if task == "graph-regression" else slow(task) for task in get_args(TaskName)])
def test_every_task_scores_as_on_the_processor(tmp_path, task):
    environment = os.environ | {"OMP_NUM_THREADS": "1"}
    done = subprocess.run(
        [sys.executable, HELPERS / "on_apple.py", tmp_path, task],
        capture_output=True, text=True, timeout=600, env=environment,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr[-2000:]
    here, there = (tmp_path / task / device for device in ("cpu", "apple"))
    wanted, found = (json.loads((folder / "scores.json").read_text()) for folder in (here, there))
    assert len(wanted) > 5
    assert found == pytest.approx(wanted, rel=1e-4, abs=1e-6, nan_ok=True)
    tables = sorted(path.name for path in (here / "diagnostics").glob("*.csv"))
    assert len(tables) == 5, "one of each callback"
    for name in tables:
        theirs, ours = (pd.read_csv(folder / "diagnostics" / name) for folder in (here, there))
        pd.testing.assert_frame_equal(ours, theirs, rtol=1e-3, atol=1e-5)


@pytest.mark.parametrize(("asked", "chosen"), [("auto", "cpu"), ("mps", "mps"), ("gpu", "gpu")])
def test_a_mac_computes_on_its_processor_unless_asked(monkeypatch, asked, chosen):
    monkeypatch.setattr(torch.backends.mps, "is_available", lambda: True)
    assert choose_accelerator(asked) == chosen


def test_targets_beyond_float32_are_refused_with_what_to_do(monkeypatch):
    module = BenchmarkModule(tiny_spec(), registry.load("architectures", "GPS"))
    module.task.standardize(torch.tensor([[1e6, 0.0], [1e6 + 1, 1.0]], dtype=torch.float64))
    monkeypatch.setattr(devices, "_APPLE", {"meta"})
    with pytest.raises(BadInput, match="accelerator cpu"):
        module.to("meta")
    data = TinyData(module.spec)
    batch = GraphBatch(y=torch.zeros(3, 2, dtype=torch.float64))
    with pytest.raises(BadInput, match="accelerator cpu"):
        data.transfer_batch_to_device(batch, torch.device("meta"), 0)


def test_a_run_on_the_gpu_of_a_mac_goes_on_with_its_random_numbers(monkeypatch):
    states = [torch.tensor([1], dtype=torch.uint8)]
    monkeypatch.setattr(torch.backends.mps, "is_available", lambda: True)
    monkeypatch.setattr(torch.mps, "get_rng_state", lambda: states[-1])
    monkeypatch.setattr(torch.mps, "set_rng_state", states.append)
    state = exact_resume.capture()
    states.append(torch.tensor([2], dtype=torch.uint8))
    exact_resume.restore(state)
    assert states[-1].tolist() == [1]


def test_sums_of_scores_are_float32_where_nothing_is_wider(monkeypatch):
    sums = []
    for kinds in (set(), {"cpu"}):
        monkeypatch.setattr(devices, "_APPLE", kinds)
        metric = ValueMean().to("cpu")
        metric.update(torch.tensor([1.0, 2.0]))
        metric.reset()
        metric.update(torch.tensor([1.0, 4.0]))
        assert float(metric.compute()) == 2.5
        sums.append(metric.total.dtype)
    assert sums == [torch.float64, torch.float32]


def test_electric_networks_are_sampled_where_float64_is(monkeypatch, tmp_path):
    monkeypatch.setattr(devices, "_APPLE", {"meta"})
    data = ElectricFlow(root=tmp_path, sizes=(8, 8, 8))
    strategy = SimpleNamespace(root_device=torch.device("meta"))
    data.trainer = SimpleNamespace(strategy=strategy, world_size=1, global_rank=0, overfit_batches=0)
    assert data.train_dataloader().device == torch.device("cpu")
    monkeypatch.setattr(devices, "_APPLE", set())
    assert data.train_dataloader().device == torch.device("meta")
