"""A misspelt monitor ends a fit before its first step; right ones, those of training too, do not."""

import sys
import types

import pandas as pd
import pytest
import pytorch_lightning as pl
from command_line import SMALL_MODEL
from quick import slow

from graphbench.cli import main

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


def test_a_score_of_training_may_be_watched(data_options, tmp_path):
    stop = [*STOP, "train/loss", "--trainer.callbacks.patience", "0", "--trainer.callbacks.min_delta", "1000"]
    folder = tmp_path / "run"
    assert main(["fit", *data_options, *SMALL_MODEL, *stop, "--trainer.max_epochs", "5", "--run", str(folder)]) == 0
    assert pd.read_csv(folder / "metrics.csv")["train/loss"].notna().sum() == 2


class Telling(pl.Callback):
    """A user's own, which logs a score that graphbench does not know."""

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
