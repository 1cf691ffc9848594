"""`graphbench fit`: the files of a run, and the messages of mistakes."""

import errno
import json
import os
import shutil

import pandas as pd
import pytest
import torch
import yaml
from command_line import SMALL_MODEL

import graphbench.report
from graphbench.cli import main
from graphbench.errors import CorruptData


def fails(capsys, *arguments):
    assert main(list(arguments)) == 1
    return capsys.readouterr().err


def test_a_run_folder_has_all_that_is_promised(finished_run):
    names = {path.name for path in finished_run.iterdir()}
    assert {"config.yaml", "metrics.csv", "checkpoints", "results.json", "environment.json"} <= names
    assert any(name.startswith("events.out.tfevents") for name in names)
    assert {path.name for path in (finished_run / "checkpoints").iterdir()} == {
        "best.ckpt",
        "last.ckpt",
        "previous.ckpt",
    }
    text = (finished_run / "config.yaml").read_text()
    assert text.startswith("# graphbench-lightning==")
    config = yaml.safe_load(text)
    assert config["model"]["architecture"]["init_args"]["hidden_dim"] == 16
    assert "spec" not in config["model"]


def test_checkpoints_hold_plain_values_only(finished_run):
    for name in ("best", "last"):
        content = torch.load(finished_run / "checkpoints" / f"{name}.ckpt", weights_only=True)
        assert content["epoch"] <= 2


def test_metrics_are_logged_once_an_epoch(finished_run):
    table = pd.read_csv(finished_run / "metrics.csv")
    for column in ("train/loss", "val/loss", "val/MAE", "time/graphs_per_s"):
        assert table[column].notna().sum() == 3
    assert table["val/MAE"].min() == pytest.approx(
        json.loads((finished_run / "results.json").read_text())["val"]["val/MAE"]
    )


@pytest.mark.usefixtures("with_report")
def test_a_fit_ends_with_a_report_and_the_next_command(data_options, tmp_path, capsys):
    run = tmp_path / "run"
    assert main(["fit", *data_options, *SMALL_MODEL, "--trainer.max_epochs", "1", "--run", str(run)]) == 0
    assert "Learning curves" in (run / "report.html").read_text()
    assert f"graphbench test --run {run}" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("error", "said"),
    [
        (OSError(errno.ENOSPC, os.strerror(errno.ENOSPC)), "report.html cannot be written: No space left on device."),
        (CorruptData("results.json is torn."), "report.html cannot be written: results.json is torn."),
        (ZeroDivisionError(), "cannot be drawn."),
    ],
)
@pytest.mark.parametrize("command", ["fit", "test"])
@pytest.mark.usefixtures("with_report")
def test_a_report_that_fails_leaves_what_was_trained_and_scored(
    command, error, said, finished_run, data_options, tmp_path, monkeypatch, capsys
):
    def fail(runs, output):
        raise error

    run = tmp_path / "run"
    monkeypatch.setattr(graphbench.report, "write_report", fail)
    if command == "test":
        shutil.copytree(finished_run, run)
        assert main(["test", "--run", str(run)]) == 0
    else:
        assert main(["fit", *data_options, *SMALL_MODEL, "--trainer.max_epochs", "1", "--run", str(run)]) == 0
    told = capsys.readouterr().err
    assert said in told
    assert f"graphbench report {run}" in told
    assert ("Traceback" in told) == isinstance(error, ZeroDivisionError)
    assert ("test" if command == "test" else "val") in json.loads((run / "results.json").read_text())


def test_a_recipe_can_score_its_last_epoch(data_options, tmp_path, capsys):
    """As recipes of "Benchmarking GNNs" do; at a rate of 3 an earlier epoch is better. `params` accepts it."""
    last = tmp_path / "last.yaml"
    own = {"class_path": "ModelCheckpoint", "init_args": {"filename": "best", "enable_version_counter": False}}
    last.write_text(yaml.safe_dump({"trainer": {"max_epochs": 3, "callbacks": [own]}}))
    words = [*data_options, *SMALL_MODEL, "--config", str(last)]
    run = tmp_path / "run"
    assert main(["fit", *words, "--model.optimizer.lr", "3", "--run", str(run)]) == 0
    assert json.loads((run / "results.json").read_text())["best_epoch"] == 3
    assert main(["test", "--run", str(run)]) == 0
    capsys.readouterr()
    assert main(["params", *words]) == 0
    assert "total" in capsys.readouterr().out


def test_a_fit_says_how_long_it_will_take(data_options, tmp_path, capsys):
    options = ["--data.batch_size", "1", "--trainer.max_epochs", "2", "--run", str(tmp_path / "run")]
    assert main(["fit", *data_options, *SMALL_MODEL, *options]) == 0
    assert "\nAn epoch of 96 batches takes about " in capsys.readouterr().err


def test_a_taken_folder_is_refused(finished_run, data_options, capsys):
    message = fails(capsys, "fit", *data_options, *SMALL_MODEL, "--run", str(finished_run))
    assert "--resume" in message
    assert str(finished_run) in message


@pytest.mark.parametrize(
    ("arguments", "expected"),
    [
        (["--data", "Zink", "--model.architecture", "GPS"], "Did you mean ZINC?"),
        (["--data", "NCI", "--model.architecture", "Gps"], "Did you mean GPS"),
        (["--data", "NCI"], "--model.architecture must be given"),
        (["--data", "NCI", *SMALL_MODEL, "--data.batchsize", "3"], "Did you mean --data.batch_size?"),
        (["--data", "NCI", *SMALL_MODEL, "--data.batch_size", "many"], "--data.batch_size is 'many'; expected int"),
        (["--data", "NCI", *SMALL_MODEL, "--model.architecture.hiden_dim", "8"], "--model.architecture.hidden_dim?"),
        (["--data", "NCI", *SMALL_MODEL, "--model.architecture.num_layers", "two"], "layers is 'two'; expected int"),
        (["--data", "NCI", *SMALL_MODEL, "--model.schedule.name", "cosin"], "expected one of 'constant', 'cosine'"),
        (["--data", "NCI", *SMALL_MODEL, "--trainer.max_epoch", "3"], "Did you mean --trainer.max_epochs"),
        (["--config", "nowhere.yaml"], "nowhere.yaml: there is no such file"),
        (["--resume", "nowhere"], "nowhere is not the folder of a run"),
        ([], "needs a configuration"),
    ],
)  # fmt: skip
def test_mistakes_are_explained(arguments, expected, capsys):
    assert expected in fails(capsys, "fit", *arguments)


def test_several_configurations_are_merged_from_left_to_right(tmp_path, capsys):
    first, second = tmp_path / "a.yaml", tmp_path / "b.yaml"
    first.write_text("data: {class_path: NCI}\nmodel: {architecture: {class_path: GPS, init_args: {hidden_dim: 32}}}\n")
    second.write_text("model: {architecture: {class_path: GPS, init_args: {hidden_dim: 64, num_layers: 1}}}\n")
    assert main(["params", "--config", str(first), "--config", str(second), "--json"]) == 0
    wide = json.loads(capsys.readouterr().out.splitlines()[-1])["parameters"]
    assert main(["params", "--config", str(first), "--json"]) == 0
    assert json.loads(capsys.readouterr().out.splitlines()[-1])["parameters"] != wide


def test_print_config_is_a_configuration(capsys):
    with pytest.raises(SystemExit):
        main(["fit", "--data", "NCI", *SMALL_MODEL, "--print_config"])
    printed = yaml.safe_load(capsys.readouterr().out)
    assert printed["model"]["architecture"]["init_args"]["hidden_dim"] == 16


def test_help_documents_options(capsys):
    assert main(["fit", "--help"]) == 0
    text = " ".join(capsys.readouterr().out.split())
    assert "folder of a run to continue" in text
    assert "start of a parameter's name -> factor of the learning rate" in text
