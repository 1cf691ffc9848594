"""A loss that is not finite: the message, the files that stay, and the policies."""

from __future__ import annotations

import json
import math

import pytest
import torch
from command_line import SMALL_MODEL
from equal_runs import OPTIONS, assert_equal_runs, content

from graphbench.cli import main
from graphbench.contracts import Representation
from graphbench.training.module import BenchmarkModule
from graphbench_baselines import GPS


@pytest.fixture(params=["here", "on a device that runs ahead"])
def looked_at(request, monkeypatch):
    """Let the program skip a step, or the optimizer's kernel, which the program learns of later."""
    if request.param != "here":
        monkeypatch.setattr("graphbench.callbacks.non_finite._RUNS_AHEAD", {"cpu", "cuda"})
    return request.param


NON_FINITE = "--trainer.callbacks+=graphbench.callbacks.non_finite.NonFinite"


def test_a_loss_that_is_no_number_ends_the_fit_by_name(looked_at, data_options, tmp_path, capsys, monkeypatch):
    represent, forward = BenchmarkModule.represent, GPS.forward

    def count(self, batch):
        self.architecture.breaks = self.training and self.trainer.global_step >= 4
        return represent(self, batch)

    def break_down(self, batch):
        representation = forward(self, batch)
        return Representation(representation.node * math.nan) if self.breaks else representation

    monkeypatch.setattr(BenchmarkModule, "represent", count)
    monkeypatch.setattr(GPS, "forward", break_down)
    run = tmp_path / "run"
    assert main(["fit", *data_options, *OPTIONS, "--run", str(run)]) == 1
    said = capsys.readouterr().err
    assert "Step 5 (epoch 2): the loss is nan" in said
    assert "the first layer whose output is not finite is architecture (GPS)" in said
    assert "Graphs: " in said
    assert "24 more" in said
    assert "Traceback" not in said
    assert "Step 5 (epoch 2): the loss is nan" in json.loads((run / "results.json").read_text())["diverged"]
    assert content(run)["global_step"] == 3
    assert all(bool(v.isfinite().all()) for v in content(run)["state_dict"].values() if v.is_floating_point())
    monkeypatch.undo()
    assert main(["fit", "--resume", str(run)]) == 0, "the checkpoint before is a good one"
    assert "diverged" not in json.loads((run / "results.json").read_text())


def test_skipped_steps_leave_weights_and_optimizer_as_they_were(looked_at, data_options, tmp_path, capsys, monkeypatch):
    seen = []
    original = BenchmarkModule.training_step

    def step(self, batch, batch_idx):
        loss = original(self, batch, batch_idx)
        seen.append([p.detach().clone() for p in self.parameters()])
        return loss * math.nan if self.trainer.global_step == 4 else loss

    monkeypatch.setattr(BenchmarkModule, "training_step", step)
    run = tmp_path / "run"
    options = [NON_FINITE, "--trainer.callbacks.policy", "skip"]
    assert main(["fit", *data_options, *OPTIONS, *options, "--run", str(run)]) == 0
    assert "The step is skipped (1 so far)" in capsys.readouterr().err
    assert all(torch.equal(before, after) for before, after in zip(seen[4], seen[5], strict=True))
    assert not all(torch.equal(before, after) for before, after in zip(seen[5], seen[6], strict=True))
    assert content(run)["callbacks"]["NonFinite"] == {"skipped": 1, "in_a_row": 0, "lowered": False}


def test_the_rate_is_lowered_once(looked_at, data_options, tmp_path, capsys, monkeypatch):
    original = BenchmarkModule.training_step

    def step(self, batch, batch_idx):
        loss = original(self, batch, batch_idx)
        return loss * math.nan if self.trainer.global_step in (4, 7) else loss

    monkeypatch.setattr(BenchmarkModule, "training_step", step)
    run = tmp_path / "run"
    options = [*SMALL_MODEL, "--data.batch_size", "32", NON_FINITE, "--trainer.callbacks.policy", "lower_rate"]
    assert main(["fit", *data_options, *options, "--run", str(run)]) == 1
    said = capsys.readouterr().err
    assert "Step 5 (epoch 2)" in said
    assert "multiplied by 0.1" in said
    assert "Step 8 (epoch 3)" in said
    assert "was already lowered once" in said
    assert content(run)["optimizer_states"][0]["param_groups"][0]["lr"] == pytest.approx(1e-4)


@pytest.mark.parametrize("step", [4, 5])  # the second of an epoch, and the last
def test_a_gradient_that_is_no_number_is_named_and_left_out(
    looked_at, data_options, tmp_path, capsys, monkeypatch, step
):
    def spoil(self, trainer, module):
        if trainer.global_step == step:
            for name, parameter in module.named_parameters():
                if name.startswith("task."):
                    parameter.grad.fill_(math.inf)

    monkeypatch.setattr("graphbench.callbacks.throughput.Throughput.on_after_backward", spoil, raising=False)
    run = tmp_path / "run"
    assert main(["fit", *data_options, *OPTIONS, "--run", str(run)]) == 1
    said = capsys.readouterr().err
    assert f"Step {step + 1} (epoch 2): the gradient of task." in said
    assert "is not finite, though the loss here is (" in said
    assert content(run)["global_step"] == 3


def test_steps_without_a_fault_are_the_same_whoever_looks(data_options, tmp_path, monkeypatch):
    options = ["fit", *data_options, *OPTIONS, "--trainer.max_epochs", "2", "--run"]
    assert main([*options, str(tmp_path / "here")]) == 0
    monkeypatch.setattr("graphbench.callbacks.non_finite._RUNS_AHEAD", {"cpu", "cuda"})
    assert main([*options, str(tmp_path / "ahead")]) == 0
    assert_equal_runs(tmp_path / "here", tmp_path / "ahead")


@pytest.mark.slow
def test_a_best_score_that_is_no_number_is_an_error_and_null(data_options, tmp_path, capsys, monkeypatch):
    original = BenchmarkModule.forward
    monkeypatch.setattr(
        BenchmarkModule, "forward", lambda self, batch: original(self, batch) * (1 if self.training else math.nan)
    )
    run = tmp_path / "run"
    assert main(["fit", *data_options, *OPTIONS, "--run", str(run)]) == 1
    assert "No epoch is the best one: val/MAE has no number" in capsys.readouterr().err
    assert not (run / "checkpoints" / "best.ckpt").exists()

    def refuse(word):
        pytest.fail(f"results.json holds {word}, which is no JSON")

    results = json.loads((run / "results.json").read_text(), parse_constant=refuse)
    assert results["val"]["val/MAE"] is None
    assert main(["test", "--run", str(run)]) == 0
