"""Monitors, limits and other options that cannot work are refused in one line; right ones work."""

from __future__ import annotations

import platform
import subprocess
import sys
import types
from collections.abc import Iterable
from typing import Optional, Union, get_args

import pandas as pd
import pytest
import pytorch_lightning as pl
import torch
import yaml
from command_line import SMALL_MODEL
from jsonargparse import ArgumentParser
from lightning_fabric.accelerators import mps
from pytorch_lightning.accelerators import CPUAccelerator, MPSAccelerator
from quick import slow

import graphbench
from graphbench.cli import main
from graphbench.cli.lightning import build, resolve
from graphbench.cli.trainer_checks import whole_numbers_first

STOP = ["--trainer.callbacks+=EarlyStopping", "--trainer.callbacks.monitor"]
KEEP = ["--trainer.callbacks+=ModelCheckpoint", "--trainer.callbacks.monitor"]


@pytest.mark.parametrize(
    ("callback", "monitor", "told"),
    [
        (
            STOP,
            "val/mae",
            "EarlyStopping: monitor is 'val/mae', which no epoch reports; did you mean val/MAE? There is ",
        ),
        (STOP, "val/accuracy", "EarlyStopping: monitor is 'val/accuracy', which no epoch reports; there is "),
        (KEEP, "val_loss", "monitor is 'val_loss', which no epoch reports; did you mean val/loss? "),
    ],
)
def test_a_score_that_is_not_there_is_one_line_before_the_first_step(
    data_options, tmp_path, capsys, callback, monitor, told
):
    assert main(["fit", *data_options, *SMALL_MODEL, *callback, monitor, "--run", str(tmp_path / "run")]) == 1
    last = capsys.readouterr().err.strip().splitlines()[-1]
    assert told in last
    assert "val/MAE" in last
    assert "val/loss" in last
    assert not (tmp_path / "run" / "metrics.csv").exists()
    assert not list((tmp_path / "run").rglob("*.ckpt"))


@pytest.mark.parametrize("name", ["BinaryConfusionMatrix", "BinaryROC", "BinaryF1Score"])
def test_a_metric_that_does_not_fit_the_targets_ends_a_fit_before_its_first_epoch(data_options, tmp_path, capsys, name):
    """Targets are lengths of texts; a matrix, a curve and a score of 0 and 1 do not fit them."""
    options = [f"--model.metrics+=torchmetrics.classification.{name}", "--run", str(tmp_path / "run")]
    assert main(["fit", *data_options, *SMALL_MODEL, *options]) == 1
    assert name in capsys.readouterr().err.strip().splitlines()[-1]
    assert not (tmp_path / "run" / "metrics.csv").exists()


def test_a_score_of_training_may_be_watched(data_options, tmp_path):
    stop = [*STOP, "train/loss", "--trainer.callbacks.patience", "0", "--trainer.callbacks.min_delta", "1000"]
    folder = tmp_path / "run"
    assert main(["fit", *data_options, *SMALL_MODEL, *stop, "--trainer.max_epochs", "5", "--run", str(folder)]) == 0
    assert pd.read_csv(folder / "metrics.csv")["train/loss"].notna().sum() == 2


class Telling(pl.Callback):
    """A user's callback, which logs a score that graphbench does not know."""

    def on_validation_epoch_end(self, trainer, pl_module):
        pl_module.log("mine", 1.0)


@pytest.mark.parametrize("package", ["my_package", slow("graphbench_third_party")])
def test_beside_a_callback_of_the_users_own_any_score_may_be_watched(
    data_options, tmp_path, monkeypatch, capsys, package
):
    module = types.ModuleType(package)
    module.Telling = type("Telling", (Telling,), {"__module__": package})
    monkeypatch.setitem(sys.modules, package, module)
    own = ["--trainer.callbacks+=" + package + ".Telling", *STOP, "mine", "--trainer.max_epochs", "1"]
    assert main(["fit", *data_options, *SMALL_MODEL, *own, "--run", str(tmp_path / "run")]) == 0, (
        capsys.readouterr().err
    )


SEARCH = ["--trainer.callbacks+=LearningRateFinder", "--trainer.callbacks.num_training_steps"]


def _fit(data_options, folder, *options):
    return main(["fit", *data_options, *SMALL_MODEL, *options, "--run", str(folder)])


@pytest.mark.parametrize(
    ("options", "told"),
    [
        ([*SEARCH, "12"], "LearningRateFinder: num_training_steps must be at least 13, but got 12"),
        ([*SEARCH, "500", "--trainer.max_epochs", "1"], "steps, too few to try 500 rates. Give it more steps"),
        (
            [*SEARCH, "40", "--trainer.callbacks.early_stop_threshold", "0", "--trainer.max_epochs", "40"],
            "of 40 rates, too few to choose from. Lower its max_lr, or set its early_stop_threshold higher",
        ),
    ],
)
def test_no_rate_found_is_one_line_and_no_training(data_options, tmp_path, capsys, options, told):
    assert _fit(data_options, tmp_path / "run", *options) == 1
    last = capsys.readouterr().err.strip().splitlines()[-1]
    assert last.startswith("graphbench: ")
    assert told in last
    assert not list((tmp_path / "run").rglob("*.ckpt"))


@pytest.mark.slow
def test_a_run_without_an_end_has_steps_enough(data_options, tmp_path):
    end = ["--trainer.max_epochs", "-1", "--trainer.max_time", "00:00:00:02"]
    assert _fit(data_options, tmp_path / "run", *SEARCH, "13", *end) == 0


@pytest.mark.parametrize("optimizer", [slow([]), ["--model.optimizer", "SGD", "--model.optimizer.momentum", "0.5"]])
def test_a_found_rate_stands_in_the_configuration_and_trains(data_options, tmp_path, capsys, optimizer):
    folder = tmp_path / "run"
    assert _fit(data_options, folder, *SEARCH, "15", "--trainer.max_epochs", "15", *optimizer) == 0
    stated = yaml.safe_load((folder / "config.yaml").read_text())["model"]["optimizer"]
    found = stated["init_args"]["lr"]
    assert f"Learning rate found: {found:.3g}" in capsys.readouterr().err
    assert 1e-8 < found < 1
    groups = torch.load(folder / "checkpoints" / "last.ckpt", weights_only=True)["optimizer_states"][0]["param_groups"]
    assert {group["lr"] for group in groups} == {found}
    assert all(group.get("momentum", 0.5) == 0.5 for group in groups)


@pytest.mark.slow
def test_an_optimizer_that_is_a_function_stays_what_it_is(data_options, tmp_path, monkeypatch, capsys):
    module = types.ModuleType("my_optimizers")

    def slow_sgd(parameters: Iterable) -> torch.optim.Optimizer:
        return torch.optim.SGD(parameters, lr=1e-4)

    slow_sgd.__module__, slow_sgd.__qualname__ = "my_optimizers", "slow_sgd"
    module.slow_sgd = slow_sgd
    monkeypatch.setitem(sys.modules, "my_optimizers", module)
    folder = tmp_path / "run"
    own = ["--model.optimizer", "my_optimizers.slow_sgd"]
    assert _fit(data_options, folder, *SEARCH, "13", "--trainer.max_epochs", "13", *own) == 0, capsys.readouterr().err
    assert "the rate is in the checkpoints, not in config.yaml" in capsys.readouterr().err
    assert yaml.safe_load((folder / "config.yaml").read_text())["model"]["optimizer"] == own[1]
    (group,) = torch.load(folder / "checkpoints" / "last.ckpt", weights_only=True)["optimizer_states"][0][
        "param_groups"
    ]
    assert "momentum" in group, "still SGD"
    assert group["lr"] != 1e-4


@pytest.mark.parametrize(
    "options",
    [
        ["max_epochs", "0"],
        ["max_steps", "0"],
        ["limit_train_batches", "0"],
        ["limit_train_batches", "0.001"],
        ["limit_val_batches", "0.001"],
        ["val_check_interval", "1000"],
        ["min_epochs", "9", "--trainer.max_epochs", "3"],
        ["min_steps", "9", "--trainer.max_steps", "3"],
        ["default_root_dir", "elsewhere"],
        ["precision", "16-true"],
        ["accumulate_grad_batches", "2", "--model.optimizer", "LBFGS"],
    ],
)
def test_an_option_that_cannot_be_obeyed_is_one_line(data_options, tmp_path, capsys, options):
    assert _fit(data_options, tmp_path / "run", f"--trainer.{options[0]}", *options[1:]) == 1
    last = capsys.readouterr().err.strip().splitlines()[-1]
    assert last.startswith("graphbench: ")
    assert options[0] in last
    assert not list((tmp_path / "run").rglob("*.ckpt"))


def test_a_run_without_checkpoints_trains(data_options, tmp_path):
    alone = ["--trainer.enable_checkpointing", "false", "--trainer.max_epochs", "1"]
    assert _fit(data_options, tmp_path / "run", *alone) == 0
    assert not list((tmp_path / "run").rglob("*.ckpt"))


def test_no_time_is_no_step_and_said(data_options, tmp_path, capsys):
    assert _fit(data_options, tmp_path / "run", "--trainer.max_time", "00:00:00:00") == 0
    assert "No step was trained" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("command", "limits"),
    [
        ("test", ["limit_test_batches", "0"]),
        ("test", ["limit_test_batches", "1"]),
        ("test", ["limit_test_batches", "0.5"]),
        ("test", ["fast_dev_run", "true"]),
        ("validate", ["limit_val_batches", "1"]),
        ("validate", ["overfit_batches", "1"]),
        ("validate", ["fast_dev_run", "true"]),
        ("predict", ["limit_predict_batches", "1"]),
        ("predict", ["fast_dev_run", "true"]),
    ],
)
def test_a_part_of_a_split_never_counts_as_the_whole(finished_run, capsys, command, limits):
    before = {path: path.read_bytes() for path in finished_run.rglob("*") if path.is_file()}
    assert main([command, "--run", str(finished_run), f"--trainer.{limits[0]}", limits[1]]) == 1
    last = capsys.readouterr().err.strip().splitlines()[-1]
    assert last.startswith(f"graphbench: --trainer.{limits[0]}")
    assert {path: path.read_bytes() for path in finished_run.rglob("*") if path.is_file()} == before


def test_a_run_without_validation_is_tested_without_a_word_on_it(data_options, tmp_path, capsys):
    run = tmp_path / "run"
    assert _fit(data_options, run, "--trainer.max_epochs", "1", "--trainer.limit_val_batches", "0") == 0
    capsys.readouterr()
    assert main(["test", "--run", str(run)]) == 0
    assert "Validation scores" not in capsys.readouterr().err


def test_a_run_that_validated_a_part_is_validated_alike(data_options, tmp_path, capsys):
    """The limit of the fit is used again, with equal scores; another limit is refused."""
    run = tmp_path / "run"
    words = ["--trainer.max_epochs", "1", "--trainer.limit_val_batches", "1", "--data.eval_batch_size", "4"]
    assert _fit(data_options, run, *words) == 0
    for command in ("validate", "test"):
        capsys.readouterr()
        assert main([command, "--run", str(run)]) == 0
        told = capsys.readouterr().err
        assert "a part of the split, as in the fit" in told
        assert "Validation scores equal those stored" in told
        assert main([command, "--run", str(run), "--trainer.limit_val_batches", "2"]) == 1
        assert "--trainer.limit_val_batches 1.0" in capsys.readouterr().err
    assert main(["validate", "--run", str(run), "--trainer.limit_val_batches", "1.0"]) == 0
    assert "a part of the split" not in capsys.readouterr().err


def test_whole_numbers_stay_whole_whatever_other_libraries_import():
    def trainer(limit=None, name=""):
        pass

    trainer.__annotations__ = {"limit": Optional[Union[float, int]], "name": str}  # noqa: UP007, UP045
    whole_numbers_first(trainer)
    parser = ArgumentParser(exit_on_error=False)
    parser.add_function_arguments(trainer)
    for text, value in (("1", 1), ("1.0", 1.0), ("0.5", 0.5), ("null", None)):
        limit = parser.parse_args(["--limit", text]).limit
        assert (limit, type(limit)) == (value, type(value))


@pytest.mark.slow
def test_a_limit_is_a_number_of_batches_behind_scikit_learn(tmp_path):
    script = "import sys, sklearn.metrics; from graphbench.cli import main; sys.exit(main(sys.argv[1:]))"
    words = ["fit", "--config", "quickstart", "--trainer.limit_val_batches", "1", "--print_config"]
    done = subprocess.run(
        [sys.executable, "-c", script, *words], capture_output=True, text=True, cwd=tmp_path, check=True
    )
    assert type(yaml.safe_load(done.stdout)["trainer"]["limit_val_batches"]) is int


def test_numbers_are_read_as_they_are_written(data_options):
    """`1` is a batch and `1.0` all of them, also if an option accepts text as well, such as a time."""
    hints = pl.Trainer.__init__.__annotations__
    names = [name for name, hint in hints.items() if {int, float} <= set(get_args(hint))]
    assert {"limit_val_batches", "val_check_interval", "overfit_batches"} <= set(names)
    for text in ("1", "1.0", "0.5"):
        words = [word for name in names for word in (f"--trainer.{name}", text)]
        read = resolve([*data_options, *SMALL_MODEL, *words])["trainer"]
        assert {name: repr(read[name]) for name in names} == dict.fromkeys(names, text)


@pytest.fixture
def on_a_mac(monkeypatch):
    """Make Lightning detect an Apple GPU."""
    monkeypatch.setattr(torch.backends.mps, "is_available", lambda: True)
    monkeypatch.setattr(platform, "processor", lambda: "arm")
    mps.MPSAccelerator.is_available.cache_clear()
    yield
    mps.MPSAccelerator.is_available.cache_clear()


@pytest.mark.usefixtures("on_a_mac")
def test_a_mac_trains_and_predicts_on_its_processor(finished_run, data_options, caplog):
    assert MPSAccelerator.is_available(), "Lightning would choose it"
    caplog.set_level("INFO")
    cli = build("fit", [*data_options, *SMALL_MODEL, "--trainer.accelerator", "auto"])
    assert isinstance(cli.trainer.accelerator, CPUAccelerator)
    assert "--trainer.accelerator mps" in caplog.text
    assert graphbench.load(finished_run).device == torch.device("cpu")
