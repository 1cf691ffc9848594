"""Runs with trackers: only a fit builds loggers, and a resumed run continues the runs of its trackers."""

import json
import shutil

import pytest
import yaml
from command_line import SMALL_MODEL
from jsonargparse import Namespace
from pytorch_lightning.loggers import MLFlowLogger

import graphbench
from graphbench.callbacks.trackers import ContinuedMLFlowLogger, check_loggers, go_on
from graphbench.cli import main
from graphbench.errors import BadInput
from graphbench.runs import RunFolder
from graphbench.runs.trust import Policy

#: A tracker that is installed nowhere, and an option that only its package knows.
ABSENT = {"class_path": "pytorch_lightning.loggers.WandbLogger", "init_args": {"project": "p", "entity": None}}


@pytest.fixture
def tracked_run(finished_run, tmp_path):
    """Return a run whose tracker is missing here, as on a machine that it was sent to."""
    folder = tmp_path / "run"
    shutil.copytree(finished_run, folder)
    config = yaml.safe_load((folder / "config.yaml").read_text())
    config["trainer"]["logger"] = [ABSENT, {"class_path": "MLFlowLogger"}]
    (folder / "config.yaml").write_text(yaml.safe_dump(config))
    return folder


@pytest.mark.parametrize("command", ["params", "prepare", "validate", "test", "predict", "profile"])
def test_a_run_is_used_without_the_packages_of_its_trackers(command, tracked_run):
    further = {"profile": ["--steps", "6"]}.get(command, [])
    assert main([command, "--run", str(tracked_run), *further]) == 0


def test_a_trained_model_answers_without_them(tracked_run, tmp_path):
    (tmp_path / "in.csv").write_text("smiles\nCCO\n")
    table = tmp_path / "out.csv"
    options = ["--input", str(tmp_path / "in.csv"), "--output", str(table), "--run", str(tracked_run)]
    assert main(["predict", *options]) == 0
    assert len(table.read_text().splitlines()) == 2
    assert len(graphbench.load(tracked_run, accelerator="cpu").predict(["CCO"])) == 1


@pytest.mark.parametrize("command", [["test"], ["validate"], ["predict", "--split", "val"]])
def test_a_logger_for_a_command_that_logs_nothing_is_refused(command, finished_run, capsys):
    assert main([*command, "--run", str(finished_run), "--trainer.logger", "CSVLogger"]) == 1
    assert "--trainer.logger: only `graphbench fit` logs to a tracker" in capsys.readouterr().err


def test_a_continued_run_goes_on_in_the_same_folder_of_tensorboard(data_options, tmp_path):
    folder, board = tmp_path / "run", tmp_path / "board"
    logger = ["--trainer.logger", "TensorBoardLogger", "--trainer.logger.save_dir", str(board)]
    words = ["fit", *data_options, *SMALL_MODEL, "--trainer.max_epochs", "1", "--run", str(folder), *logger]
    assert main(words) == 0
    assert main(["fit", "--resume", str(folder), "--trainer.max_epochs", "2"]) == 0
    assert [path.name for path in (board / "lightning_logs").iterdir()] == ["version_0"]
    assert json.loads((folder / "trackers.json").read_text()) == [{"logger": "TensorBoardLogger", "run": 0}]
    stored = yaml.safe_load((folder / "config.yaml").read_text())["trainer"]["logger"]
    assert stored["init_args"]["version"] is None, "another run of this configuration is another run of the tracker"


def test_trackers_get_every_option_but_their_own(finished_run):
    """Options of loggers may be account keys."""
    config = yaml.safe_load((finished_run / "config.yaml").read_text())
    found = yaml.safe_load((finished_run / "hparams.yaml").read_text())
    config["trainer"].pop("logger")
    assert found["trainer"] == config["trainer"]
    assert found["seed_everything"] == config["seed_everything"]


def settings(logger, **options):
    return Namespace(class_path=f"pytorch_lightning.loggers.{logger}", init_args=Namespace(**options))


@pytest.fixture
def run(tmp_path):
    return RunFolder(tmp_path)


def recorded(run, *loggers):
    run.trackers.write_text(json.dumps([{"logger": name, "run": f"run-{name}"} for name in loggers]))


@pytest.mark.parametrize(
    ("name", "option"), [("MLFlowLogger", "run_id"), ("WandbLogger", "id"), ("TensorBoardLogger", "version")]
)
def test_a_logger_goes_on_with_the_run_of_its_tracker(name, option, run, monkeypatch):
    monkeypatch.delenv("WANDB_MODE", raising=False)
    recorded(run, "CSVLogger", name)
    loggers = [settings("CSVLogger", version=None), settings(name, **{option: None})]
    go_on(loggers, run)
    assert loggers[1].init_args[option] == f"run-{name}"
    Policy(run.config).check(loggers[1].class_path)  # also in a run from someone else
    assert loggers[0].init_args.version is None, "Lightning empties the table of an earlier version"
    chosen = [settings("CSVLogger"), settings(name, **{option: "chosen"})]
    go_on(chosen, run)
    assert chosen[1].init_args[option] == "chosen"


@pytest.mark.parametrize(("options", "mode"), [({"offline": True}, None), ({"mode": "offline"}, None), ({}, "offline")])
def test_an_offline_run_of_wandb_is_not_continued(options, mode, run, monkeypatch):
    monkeypatch.delenv("WANDB_MODE", raising=False)
    if mode is not None:
        monkeypatch.setenv("WANDB_MODE", mode)
    recorded(run, "WandbLogger")
    logger = settings("WandbLogger", id=None, **options)
    go_on([logger], run)
    assert logger.init_args.id is None


@pytest.mark.parametrize("content", ["", "{", "{}", "[1]", '[{"logger": "WandbLogger"}]', '[{"logger": 1, "run": 2}]'])
def test_a_record_of_something_else_continues_nothing(content, run):
    run.trackers.write_text(content)
    logger = settings("WandbLogger", id=None)
    go_on([logger], run)
    assert logger.init_args == Namespace(id=None)


def test_a_logger_that_would_keep_nothing_is_refused():
    check_loggers([settings("CometLogger", online=True), settings("CometLogger")])
    with pytest.raises(BadInput, match=r"--trainer\.logger\.online false"):
        check_loggers([settings("CSVLogger"), settings("CometLogger", online=False)])


def test_mlflow_goes_on_with_other_values_of_its_parameters(run):
    """Its server accepts no second value of a parameter."""
    mlflow = pytest.importorskip("mlflow")
    uri = f"sqlite:///{run.path / 'mlflow.db'}"
    first = MLFlowLogger("test", tracking_uri=uri)
    first.log_hyperparams({"lr": 0.1, "depth": {"layers": 2}})
    ContinuedMLFlowLogger("test", tracking_uri=uri, run_id=first.run_id).log_hyperparams(
        {"lr": 0.2, "depth": {"layers": 2}, "seed": 3}
    )
    found = mlflow.MlflowClient(uri).get_run(first.run_id).data
    assert found.params == {"lr": "0.1", "depth/layers": "2", "seed": "3"}
    assert found.tags["resumed/lr"] == "0.2"
    assert "resumed/depth/layers" not in found.tags
