"""A killed fit that is continued ends with the weights of one that was never killed, bit for bit."""

import json
import signal

import pandas as pd
import pytest
import torch
from command_line import SMALL_MODEL, graphbench

KILL = """
import os, signal, sys
from graphbench.callbacks.{module} import {callback} as Callback
original = Callback.{hook}
def hook(self, trainer, *rest):
    original(self, trainer, *rest)
    if trainer.global_step == {step}:
        os.kill(os.getpid(), signal.{signal})
Callback.{hook} = hook
from graphbench.cli import main
sys.exit(main())
"""
OPTIONS = ["--trainer.max_epochs", "4", "--model.schedule.name", "cosine", "--model.schedule.warmup", "3"]


def weights(folder):
    return torch.load(folder / "checkpoints" / "last.ckpt", weights_only=True)["state_dict"]


@pytest.fixture(scope="module")
def uninterrupted(data_options, tmp_path_factory):
    folder = tmp_path_factory.mktemp("resume") / "whole"
    graphbench("fit", *data_options, *SMALL_MODEL, *OPTIONS, "--run", folder)
    return folder


@pytest.mark.parametrize(
    ("event", "step", "module", "callback", "hook"),
    [
        ("SIGKILL", 15, "throughput", "Throughput", "on_train_batch_end"),  # in the third epoch
        ("SIGTERM", 9, "throughput", "Throughput", "on_train_batch_end"),  # in the second, with a checkpoint there
    ],
)
def test_continued_weights_are_equal(uninterrupted, data_options, tmp_path, event, step, module, callback, hook):
    script = tmp_path / "killed.py"
    script.write_text(KILL.format(module=module, callback=callback, hook=hook, step=step, signal=event))
    folder = tmp_path / "cut"
    done = graphbench("fit", *data_options, *SMALL_MODEL, *OPTIONS, "--run", folder, script=script, check=False)
    assert done.returncode == {"SIGKILL": -signal.SIGKILL, "SIGTERM": 128 + signal.SIGTERM}[event], done.stderr[-2000:]
    stopped = torch.load(folder / "checkpoints" / "last.ckpt", weights_only=True)
    stopped_at, first_part = stopped["global_step"], stopped["callbacks"]["Timer"]["time_elapsed"]["train"]
    assert stopped_at == {"SIGKILL": 12, "SIGTERM": 9}[event]
    tested_too_early = {"test": {"test/MAE": 9.0}}
    (folder / "results.json").write_text(json.dumps(tested_too_early))
    graphbench("fit", "--resume", folder)
    assert "test" not in json.loads((folder / "results.json").read_text())
    whole, continued = weights(uninterrupted), weights(folder)
    assert whole.keys() == continued.keys()
    for name, value in whole.items():
        assert torch.equal(value, continued[name]), name
    assert json.loads((folder / "results.json").read_text())["fit_seconds"] >= round(first_part, 1) > 0
    scores = [json.loads((f / "results.json").read_text())["val"] for f in (uninterrupted, folder)]
    assert scores[0] == scores[1]
    curves = [pd.read_csv(f / "metrics.csv")["val/MAE"].dropna().tolist() for f in (uninterrupted, folder)]
    assert curves[0] == curves[1]
