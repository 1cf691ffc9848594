"""Training options that users configure: precision, callbacks, loggers, compilation."""

import shutil
import signal
from datetime import timedelta

import pandas as pd
import pytest
import yaml
from command_line import SMALL_MODEL
from equal_runs import OPTIONS, content
from forked import at, forked, signal_at_step

import graphbench
from graphbench.cli import main
from graphbench.cli.lightning import build
from graphbench.training.lightning_internals import ddp_options, group_timeout


def fit(data_options, folder, *options):
    assert main(["fit", *data_options, *SMALL_MODEL, "--trainer.max_epochs", "3", "--run", str(folder), *options]) == 0
    return pd.read_csv(folder / "metrics.csv")


@pytest.mark.slow
def test_bfloat16_trains_nearly_as_float32(data_options, tmp_path):
    """Its numbers have 8 bits, an error of 0.4 %, which a few steps do not amplify much."""
    exact = fit(data_options, tmp_path / "exact")["train/loss"].dropna().to_numpy()
    found = fit(data_options, tmp_path / "run", "--trainer.precision", "bf16-mixed")["train/loss"].dropna().to_numpy()
    assert found == pytest.approx(exact, rel=0.05)
    assert not (found == exact).all(), "the option takes effect"


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


def test_hyper_parameters_are_written_beside_the_table(finished_run):
    found = yaml.safe_load((finished_run / "hparams.yaml").read_text())
    assert found["spec"] == "Molecules"
    assert found["architecture"]["init_args"]["hidden_dim"] == 16
    assert found["data"]["init_args"]["target"] == "length"


def test_a_checkpoint_of_a_run_makes_its_module_alone(finished_run, molecule_file):
    module = graphbench.BenchmarkModule.load_from_checkpoint(finished_run / "checkpoints" / "best.ckpt").eval()
    loaded = graphbench.load(finished_run, accelerator="cpu").module
    assert module.spec == loaded.spec
    weights = loaded.state_dict()
    assert all(weights[name].equal(value) for name, value in module.state_dict().items())


def test_a_users_logger_and_checkpoint_are_kept_and_ours_not_doubled(data_options, tmp_path):
    folder, elsewhere = tmp_path / "run", tmp_path / "mine"
    logger = ["--trainer.logger", "CSVLogger", "--trainer.logger.save_dir", str(elsewhere)]
    checkpoint = ["--trainer.callbacks+=ModelCheckpoint", "--trainer.callbacks.monitor", "val/loss"]
    fit(data_options, folder, *logger, *checkpoint)
    (table,) = elsewhere.rglob("metrics.csv")
    assert pd.read_csv(table)["val/MAE"].dropna().tolist() == pytest.approx(
        pd.read_csv(folder / "metrics.csv")["val/MAE"].dropna().tolist()
    )
    names = sorted(path.name for path in (folder / "checkpoints").iterdir())
    assert names == ["best.ckpt", "epoch=3-step=18.ckpt", "last.ckpt", "previous.ckpt"]
    assert not list(elsewhere.rglob("*.ckpt"))


@pytest.mark.slow
def test_diagnostics_of_a_trained_run(finished_run, tmp_path):
    """`test` and `predict` draw the maps of the checkpoint that they score, once."""
    maps, rank = "--trainer.callbacks+=AttentionMaps", "--trainer.callbacks+=RankProgression"
    run = tmp_path / "run"
    shutil.copytree(finished_run, run)
    assert main(["test", "--run", str(run), maps, "--trainer.callbacks.split", "test", rank]) == 0
    drawn = {path.name for path in (run / "diagnostics" / "attention_maps").iterdir()}
    assert len(drawn) == 4  # two graphs, a drawing and the matrices of each
    assert all(name.startswith("test-") for name in drawn)
    table = pd.read_csv(run / "diagnostics" / "rank_progression.csv")
    assert len(table) == len(table.drop_duplicates())
    assert main(["predict", "--run", str(run), "--output", str(tmp_path / "p.csv"), maps]) == 0
    assert {path.name for path in (run / "diagnostics" / "attention_maps").iterdir()} > drawn


@pytest.mark.slow
def test_checkpoints_within_an_epoch(data_options, tmp_path):
    """With three steps an epoch, a kill in step 6 leaves step 5 and not step 3, the end of an epoch."""
    every = ["--trainer.callbacks+=LastCheckpoint", "--trainer.callbacks.every_n_steps", "1"]
    killed = at("on_train_batch_start", signal_at_step(5, signal.SIGKILL))
    ended = forked(tmp_path, "fit", *data_options, *OPTIONS, *every, "--run", tmp_path / "run", prepare=killed)
    assert ended.code == -signal.SIGKILL, ended.text
    assert content(tmp_path / "run")["global_step"] == 5


@pytest.mark.slow
def test_compiled_and_eager_runs_agree(data_options, tmp_path):
    options = ["--model.architecture.dropout", "0", "--model.architecture.attention_dropout", "0"]
    eager = fit(data_options, tmp_path / "eager", *options)
    compiled = fit(data_options, tmp_path / "compiled", *options, "--model.compile", "true")
    for column in ("train/loss", "val/MAE"):
        assert compiled[column].dropna().to_numpy() == pytest.approx(eager[column].dropna().to_numpy(), rel=1e-3)


@pytest.mark.filterwarnings("ignore:LightningCLI's args parameter")
@pytest.mark.parametrize("piece", ["ddp", "hosts"])
def test_a_lost_process_is_noticed_in_minutes(piece, data_options):
    strategy = build("fit", [*data_options, *SMALL_MODEL, "--config", f"trainer/{piece}"]).trainer.strategy
    assert timedelta(minutes=1) < group_timeout(strategy) < timedelta(minutes=30)
    assert ddp_options(strategy)["gradient_as_bucket_view"] is True


@pytest.mark.parametrize("value", ["tf32", "true"])
def test_another_precision_of_products_is_refused_with_those_there_are(value, data_options, capsys):
    assert main(["params", *data_options, *SMALL_MODEL, "--model.matmul_precision", value]) == 1
    error = capsys.readouterr().err
    assert "--model.matmul_precision" in error
    assert "high" in error
    assert error.count("\n") == 1
