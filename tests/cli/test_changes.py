"""Options given with `fit --resume` take effect for the rest of the run, or are refused before it is trained."""

from __future__ import annotations

import contextlib
import math
import shutil

import pytest
import pytorch_lightning as pl
import torch
import yaml
from quick import slow
from resumed_runs import OPTIONS, STEPS, Looked, go_on, rates

from graphbench.cli import main
from graphbench.cli.commands.fit import fit
from graphbench.data.files.foreign import load_yaml
from graphbench.errors import BadInput
from graphbench.runs import RunFolder, trust
from graphbench.runs.checkpoints import load_checkpoint


def test_another_rate_and_decay_are_those_of_the_steps_to_come(begin, tmp_path):
    run, look = go_on(begin(), tmp_path, "--model.optimizer.lr", "1e-6", "--model.optimizer.weight_decay", "0.5",
                      "--model.optimizer.betas", "[0.8, 0.9]", "--trainer.max_epochs", "2")  # fmt: skip
    assert len(look.groups) == STEPS
    for (group,) in look.groups:
        assert (group["lr"], group["weight_decay"], tuple(group["betas"])) == (1e-6, 0.5, (0.8, 0.9))
    written = load_yaml((run / "config.yaml").read_text())["model"]["optimizer"]["init_args"]
    assert (written["lr"], written["weight_decay"]) == (1e-6, 0.5)
    stored = load_checkpoint(run / "checkpoints" / "last.ckpt")["optimizer_states"][0]["param_groups"][0]
    assert (stored["lr"], stored["weight_decay"]) == (1e-6, 0.5)


def test_a_step_with_another_rate_is_one_of_adam_with_the_state_of_before(begin, tmp_path):
    """The first step after the checkpoint by AdamW's formula, from the stored moments and the step's gradients."""
    before = load_checkpoint(begin() / "checkpoints" / "last.ckpt")
    seen = {}

    class Gradients(pl.Callback):
        def on_before_optimizer_step(self, trainer, pl_module, optimizer):
            seen["g"] = [p.grad.double().clone() for p in optimizer.param_groups[0]["params"]]
            seen["p"] = [p.detach().double().clone() for p in optimizer.param_groups[0]["params"]]

        def on_train_batch_end(self, trainer, pl_module, outputs, batch, batch_idx):
            seen["after"] = [p.detach().double().clone() for p in trainer.optimizers[0].param_groups[0]["params"]]
            raise Looked

    run = shutil.copytree(begin(), tmp_path / "run")
    with trust.admitting_all(), contextlib.suppress(Looked):
        fit(["--resume", str(run), "--trainer.max_epochs", "2", "--model.optimizer.lr", "0.01",
             "--model.optimizer.weight_decay", "0.25"], callbacks=[Gradients()])  # fmt: skip
    state = before["optimizer_states"][0]["state"]
    for number, (g, p, after) in enumerate(zip(seen["g"], seen["p"], seen["after"], strict=True)):
        t = float(state[number]["step"]) + 1
        m = 0.9 * state[number]["exp_avg"].double() + 0.1 * g
        v = 0.999 * state[number]["exp_avg_sq"].double() + 0.001 * g * g
        step = 0.01 * (m / (1 - 0.9**t)) / ((v / (1 - 0.999**t)).sqrt() + 1e-8)
        torch.testing.assert_close(after, p * (1 - 0.01 * 0.25) - step, rtol=1e-4, atol=2e-6)


COSINE = ("--model.schedule.name", "cosine")
PLATEAU = ("--model.schedule.name", "plateau", "--model.schedule.watch", "loss")


def cosine(t, total):
    return (1 + math.cos(math.pi * t / total)) / 2


@pytest.mark.parametrize(
    ("first", "options", "rate"),
    [
        ((), COSINE, lambda t: 1e-3 * cosine(t, 24)),
        ((), ("--model.schedule.name", "linear", "--model.optimizer.lr", "0.01"), lambda t: 0.01 * (1 - t / 24)),
        (COSINE, ("--model.optimizer.lr", "0.01"), lambda t: 0.01 * cosine(t, 24)),
        slow(COSINE, (), lambda t: 1e-3 * cosine(t, 24)),
        slow(COSINE, ("--data.batch_size", "32"), lambda t: 1e-3 * cosine(t, 12)),
        (COSINE, ("--model.schedule.name", "constant"), lambda t: 1e-3),
        slow(
            COSINE,
            ("--model.schedule.name", "exponential", "--model.schedule.interval", "epoch"),
            lambda t: 1e-3 * 0.5 ** (t // STEPS),
        ),
        (COSINE, ("--model.schedule.warmup", "12"), lambda t: 1e-3 * ((t + 1) / 12 if t < 12 else cosine(t - 12, 12))),
        slow(
            ("--model.schedule.name", "step", "--model.schedule.interval", "epoch"),
            ("--model.schedule.gamma", "0.1"),
            lambda t: 1e-3 * 0.1 ** (t // STEPS),
        ),
        slow(
            (),
            ("--model.schedule.name", "step", "--model.schedule.interval", "epoch"),
            lambda t: 1e-3 * 0.5 ** (t // STEPS),
        ),
        (COSINE, PLATEAU, lambda t: 1e-3),
        slow(PLATEAU, COSINE, lambda t: 1e-3 * cosine(t, 24)),
        slow(PLATEAU, ("--model.optimizer.lr", "0.002"), lambda t: 0.002),
        slow((*PLATEAU, "--model.optimizer.lr", "0"), ("--model.optimizer.lr", "0.002"), lambda t: 0.002),
        slow(PLATEAU, ("--model.schedule.watch", "metric"), lambda t: 1e-3),
        (
            COSINE,
            ("--model.lr_scales", "{head: 3}"),
            None,
        ),
    ],
)  # fmt: skip
def test_rates_follow_the_schedule_as_it_is_now(begin, tmp_path, first, options, rate):
    """Closed forms at every step of two epochs, with t counted from the start of the run."""
    if rate is None:
        with pytest.raises(BadInput, match=r"model\.lr_scales"):
            go_on(begin(*first), tmp_path, *options)
        return
    per_epoch = STEPS // 2 if "32" in options else STEPS
    _, look = go_on(begin(*first), tmp_path, *options, steps=2 * per_epoch)
    assert rates(look) == pytest.approx([rate(STEPS + t) for t in range(2 * per_epoch)], rel=1e-9)


def test_a_plateau_goes_on_counting_with_its_new_options(begin, tmp_path):
    def looked(trainer):
        scheduler = trainer.lr_scheduler_configs[0].scheduler
        assert (scheduler.factor, scheduler.patience, scheduler.min_lrs) == (0.25, 3, [1e-5])
        assert scheduler.last_epoch == 1
        assert math.isfinite(scheduler.best)

    go_on(begin(*PLATEAU), tmp_path, "--model.schedule.factor", "0.25", "--model.schedule.patience", "3",
          "--model.schedule.min_lr", "1e-5", steps=1, at_end=looked)  # fmt: skip


def test_rates_of_the_same_parts_change_and_of_others_are_refused(begin, tmp_path):
    begun = begin("--model.learning_rates", "head=1e-4")
    _, look = go_on(begun, tmp_path, "--model.learning_rates", "head=1e-2", steps=1)
    assert sorted(group["lr"] for group in look.groups[0]) == [1e-3, 1e-2]
    with pytest.raises(BadInput, match="learning_rates"):
        go_on(begun, tmp_path, "--model.learning_rates", "architecture=1e-2")


def test_another_patience_stops_in_time(begin, tmp_path):
    config = load_yaml((begin() / "config.yaml").read_text())
    for callback in config["trainer"]["callbacks"]:
        if callback["class_path"].endswith("EarlyStopping"):
            callback["init_args"] |= {"patience": 1, "min_delta": 1e6}
    (tmp_path / "es.yaml").write_text(yaml.safe_dump({"trainer": {"callbacks": config["trainer"]["callbacks"]}}))
    run, _ = go_on(begin(), tmp_path, "--config", str(tmp_path / "es.yaml"), "--trainer.max_epochs", "6")
    assert load_checkpoint(run / "checkpoints" / "last.ckpt")["epoch"] == 1  # the second epoch does not gain 1e6


@pytest.mark.parametrize(
    "options",
    [
        ["--model.optimizer", "SGD", "--model.optimizer.momentum", "0.9"],
        ["--model.optimizer.amsgrad", "true"],
        ["--model.optimizer.fused", "false"],
        ["--model.freeze", "architecture.layers.0"],
        ["--model.freeze", "architecture", "--model.freeze_epochs", "3"],
        ["--model.learning_rates", "head=1e-5"],
        ["--model.architecture.num_heads", "2"],
        ["--model.head.pooling", "add"],
        ["--model.loss", "Huber"],
        ["--model.select_by", "R2", "--model.metrics", "[R2]"],
        ["--model.init_from", "elsewhere"],
        ["--seed_everything", "7"],
        ["--trainer.fast_dev_run", "true"],
        ["--trainer.default_root_dir", "elsewhere"],
        ["--trainer.callbacks+=LearningRateFinder"],
        ["--data.metric", "RMSE"],
    ],
)
def test_what_cannot_change_is_refused_in_a_line_and_nothing_is_trained(begin, tmp_path, capsys, options):
    run = shutil.copytree(begin(), tmp_path / "run")
    before = {path: path.read_bytes() for path in run.rglob("*") if path.suffix in (".yaml", ".json", ".csv", ".ckpt")}
    assert main(["fit", "--resume", str(run), "--trainer.max_epochs", "2", *options]) == 1
    said = capsys.readouterr().err.strip().splitlines()[-1]
    name = options[0].removeprefix("--").partition("+=")
    assert f"--resume: {name[0]}" in said
    assert "instead of" in said
    assert {path: path.read_bytes() for path in before} == before


@pytest.mark.slow
def test_a_plateau_counts_the_epoch_at_whose_end_it_was_stopped(begin, data_options, tmp_path):
    """A rate that falls after every epoch without improvement falls equally in a resumed run."""
    options = [*OPTIONS, *PLATEAU, "--model.schedule.patience", "0", "--model.schedule.factor", "0.1"]
    options += ["--model.optimizer.lr", "1e-7"]
    whole = tmp_path / "whole"
    assert main(["fit", *data_options, *options, "--trainer.max_epochs", "3", "--run", str(whole)]) == 0
    parts = shutil.copytree(begin(*PLATEAU, *options[-6:]), tmp_path / "parts")
    for epochs in ("2", "3"):
        assert main(["fit", "--resume", str(parts), "--trainer.max_epochs", epochs]) == 0
    states = [load_checkpoint(run / "checkpoints" / "last.ckpt") for run in (whole, parts)]
    assert states[0]["lr_schedulers"] == states[1]["lr_schedulers"]
    assert states[0]["lr_schedulers"][0]["last_epoch"] == 3  # validations


def test_a_rate_below_the_limit_ends_the_run_also_where_it_was_killed_before(begin, data_options, tmp_path):
    """At 1e-7 no epoch improves by torch's threshold, so the rate falls after epoch 2."""
    options = [*OPTIONS, *PLATEAU, "--model.schedule.patience", "0", "--model.schedule.factor", "0.1"]
    options += ["--model.optimizer.lr", "1e-7", "--model.schedule.stop_below", "5e-8"]
    whole, parts = tmp_path / "whole", tmp_path / "parts"
    assert main(["fit", *data_options, *options, "--trainer.max_epochs", "9", "--run", str(whole)]) == 0
    ended = RunFolder(whole).read_results()
    assert (ended["ended_by_rate"], ended["epochs"]) == (True, 2)
    assert main(["fit", *data_options, *options, "--trainer.max_epochs", "2", "--run", str(parts)]) == 0
    assert main(["fit", "--resume", str(parts), "--trainer.max_epochs", "9"]) == 0
    assert {name: RunFolder(parts).read_results()[name] for name in ("ended_by_rate", "epochs")} == {
        "ended_by_rate": True,
        "epochs": 2,
    }
