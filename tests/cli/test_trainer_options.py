"""What users change about training by configuration: precision, callbacks, loggers, compilation."""

import math

import pandas as pd
import pytest
from command_line import SMALL_MODEL

from graphbench.cli import main


def fit(data_options, folder, *options):
    assert main(["fit", *data_options, *SMALL_MODEL, "--trainer.max_epochs", "3", "--run", str(folder), *options]) == 0
    return pd.read_csv(folder / "metrics.csv")


def test_bfloat16_trains_to_a_finite_loss(data_options, tmp_path):
    table = fit(data_options, tmp_path / "run", "--trainer.precision", "bf16-mixed")
    assert all(math.isfinite(loss) for loss in table["train/loss"].dropna())


def test_early_stopping_by_its_short_name(data_options, tmp_path):
    stop = ["--trainer.callbacks+=EarlyStopping", "--trainer.callbacks.monitor", "val/MAE"]
    patience = ["--trainer.callbacks.patience", "0", "--trainer.callbacks.min_delta", "1000"]
    table = fit(data_options, tmp_path / "run", *stop, *patience)
    assert table["val/MAE"].notna().sum() == 2


def test_another_logger_takes_the_place_of_tensorboard(data_options, tmp_path):
    folder = tmp_path / "run"
    logger = ["--trainer.logger", "TensorBoardLogger", "--trainer.logger.save_dir", str(tmp_path / "elsewhere")]
    table = fit(data_options, folder, *logger)
    assert table["val/MAE"].notna().sum() == 3
    assert list((tmp_path / "elsewhere").rglob("events.out.tfevents*"))
    assert not list(folder.glob("events.out.tfevents*"))


def test_checkpoints_within_an_epoch(data_options, tmp_path):
    every = ["--trainer.callbacks+=LastCheckpoint", "--trainer.callbacks.every_n_steps", "2"]
    fit(data_options, tmp_path / "run", *every)
    assert (tmp_path / "run" / "checkpoints" / "last.ckpt").is_file()


@pytest.mark.slow
def test_compiled_and_eager_runs_agree(data_options, tmp_path):
    options = ["--model.architecture.dropout", "0", "--model.architecture.attention_dropout", "0"]
    eager = fit(data_options, tmp_path / "eager", *options)
    compiled = fit(data_options, tmp_path / "compiled", *options, "--model.compile", "true")
    for column in ("train/loss", "val/MAE"):
        assert compiled[column].dropna().to_numpy() == pytest.approx(eager[column].dropna().to_numpy(), rel=1e-3)
