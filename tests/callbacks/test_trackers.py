"""Images, histograms and tables in the trackers, read back with each tracker's own package."""

from __future__ import annotations

import importlib.util
import json
from types import SimpleNamespace

import pytest
from jsonargparse import Namespace
from pytorch_lightning.loggers import CSVLogger, MLFlowLogger, TensorBoardLogger, WandbLogger

from graphbench.callbacks import AttentionMaps, RankProgression, TrainTestGap
from graphbench.callbacks.trackers import go_on, log_table
from graphbench.cli import main
from graphbench.runs import RunFolder


def absent(package):
    return importlib.util.find_spec(package) is None


def watched(fit, logger):
    callbacks = [AttentionMaps(num_graphs=1), RankProgression(num_graphs=4), TrainTestGap()]
    return fit(*callbacks, logger=logger, max_epochs=1)


def test_a_tracker_goes_on_wherever_it_stands_among_the_loggers(tmp_path):
    run = RunFolder(tmp_path)
    run.trackers.write_text(json.dumps([{"logger": "WandbLogger", "run": name} for name in ("first", "second")]))
    names = ("CSVLogger", "WandbLogger", "WandbLogger", "WandbLogger")
    settings = [Namespace(class_path=f"pytorch_lightning.loggers.{name}", init_args=Namespace()) for name in names]
    go_on(settings, run)
    assert [one.get("init_args.id") for one in settings] == [None, "first", "second", None]


@pytest.mark.parametrize("count", [1000, 30_000])
def test_tensorboard_gets_the_last_rows_of_a_long_table(tmp_path, count):
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

    logger = TensorBoardLogger(tmp_path, name="", version="")
    trainer = SimpleNamespace(is_global_zero=True, loggers=[logger], global_step=9)
    log_table(trainer, "range", [{"epoch": str(row), "value": "0.5"} for row in range(1, count + 1)])
    logger.save()
    (event,) = EventAccumulator(str(tmp_path)).Reload().Tensors("range/text_summary")
    text = event.tensor_proto.string_val[0].decode()
    lines = [line for line in text.splitlines() if line.startswith("| ")]
    assert lines[0] == "| epoch | value |"
    assert [lines[2], lines[-1]] == [f"| {count - 999} | 0.5 |", f"| {count} | 0.5 |"]
    assert len(lines) == 1002
    assert ("The last 1,000 of 30,000 rows." in text) == (count > 1000)


@pytest.mark.slow
def test_tensorboard(fit, tmp_path):
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

    watched(fit, TensorBoardLogger(tmp_path / "board", name="", version=""))
    events = EventAccumulator(str(tmp_path / "board")).Reload()
    tags = events.Tags()
    assert sum(tag.startswith("attention_maps/") for tag in tags["images"]) == 2
    assert "rank_progression/effective_rank" in tags["images"]
    assert any(tag.startswith("rank_progression/effective_rank/layer_") for tag in tags["histograms"])
    assert {"rank_progression/text_summary", "train_test_gap/text_summary"} <= set(tags["tensors"])
    assert "train_test_gap/MAE" in tags["scalars"]
    assert {event.value for event in events.Scalars("epoch")} == {1.0}


@pytest.mark.skipif(absent("wandb"), reason="wandb is not installed")
def test_wandb_offline(fit, tmp_path, monkeypatch):
    monkeypatch.setenv("WANDB_SILENT", "true")
    logger = WandbLogger(project="test", offline=True, save_dir=str(tmp_path))
    watched(fit, logger)
    summary = dict(logger.experiment.summary)
    logger.experiment.finish()
    pictures = [name for name in summary if name.startswith("attention_maps/")]
    assert len(pictures) == 2
    assert all(summary[name]["_type"] == "image-file" for name in pictures)
    assert any(name.startswith("rank_progression/effective_rank/layer_") for name in summary)
    assert summary["rank_progression"]["_type"] == "table-file"
    assert summary["train_test_gap"]["nrows"] == 2
    assert summary["epoch"] == 1


@pytest.mark.skipif(absent("mlflow"), reason="mlflow is not installed")
def test_mlflow_in_a_local_sqlite(fit, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    logger = MLFlowLogger("test", tracking_uri=f"sqlite:///{tmp_path / 'mlflow.db'}")
    module, _ = watched(fit, logger)
    client, run = logger.experiment, logger.run_id
    assert client.get_run(run).data.params["spec"] == module.spec.name
    assert client.get_metric_history(run, "epoch")[0].value == 1

    def files(path=""):
        for item in client.list_artifacts(run, path):
            yield from files(item.path) if item.is_dir else [item.path]

    found = list(files())
    assert sum(name.startswith("attention_maps/") and name.endswith(".png") for name in found) == 2
    assert any(name.startswith("rank_progression/effective_rank/layer_") for name in found)
    assert {"rank_progression.json", "train_test_gap.json"} <= set(found)


def test_other_loggers_get_the_numbers_and_the_files_lie_in_the_run(fit, tmp_path):
    watched(fit, CSVLogger(tmp_path / "csv"))
    assert len(list((tmp_path / "run" / "diagnostics" / "attention_maps").glob("*.png"))) == 2
    assert "train_test_gap/MAE" in next((tmp_path / "csv").rglob("metrics.csv")).read_text()


LOGGERS = [("MLFlowLogger", "mlflow"), ("CometLogger", "comet_ml"), ("WandbLogger", "wandb")]


@pytest.mark.parametrize(("logger", "package"), LOGGERS)
def test_an_absent_tracker_is_one_line(logger, package, tmp_path, capsys):
    if not absent(package):
        pytest.skip(f"{package} is installed")
    arguments = ["fit", "--data", "NCI", "--model.architecture", "GCN", "--trainer.logger", logger]
    assert main([*arguments, "--run", str(tmp_path / "run")]) == 1
    said = capsys.readouterr().err.strip()
    assert len(said.splitlines()) == 1
    assert package.replace("_", "-") in said
