"""Every callback, plug-in and strategy of Lightning: a run with it is tested and continued, or refused at once."""

from __future__ import annotations

import sys
import types

import pytest
import pytorch_lightning as pl
import pytorch_lightning.callbacks as lightning
import yaml
from command_line import SMALL_MODEL

from graphbench.cli import main

#: Options that a user must give besides the name.
OPTIONS = {
    "BatchSizeFinder": {"max_trials": "1"},
    "EarlyStopping": {"monitor": "val/loss"},
    "GradientAccumulationScheduler": {"scheduling": "{0: 1, 1: 2}"},
    "LearningRateFinder": {"num_training_steps": "13"},
    "ModelCheckpoint": {"monitor": "val/loss"},
    "ModelPruning": {"pruning_fn": "l1_unstructured", "amount": "0.5"},
    "OnExceptionCheckpoint": {"dirpath": "elsewhere"},
    "StochasticWeightAveraging": {"swa_lrs": "0.01", "swa_epoch_start": "1"},
}
#: Base classes, and callbacks that take functions.
BASES = {"BaseFinetuning", "BasePredictionWriter", "Callback", "Checkpoint", "ProgressBar", "ThroughputMonitor"}
REFUSED = {"BackboneFinetuning", "SpikeDetection"}
QUICK = {"ModelPruning", "OnExceptionCheckpoint"}
POSSIBLE = sorted(set(lightning.__all__) - BASES - REFUSED)
#: Plug-ins that need packages that are not installed, and base classes.
UNUSABLE = ("BitsandbytesPrecision", "LayerSync", "MPIEnvironment", "XLACheckpointIO", "XLAPrecision")
PLUGINS = {
    name: ["--trainer.plugins", name, *(word for pair in options.items() for word in pair)]
    for name, options in {
        "AsyncCheckpointIO": {},
        "DeepSpeedPrecision": {"--trainer.plugins.precision": "32-true"},
        "DoublePrecision": {},
        "HalfPrecision": {"--trainer.plugins.precision": "bf16-true"},
        "KubeflowEnvironment": {},
        "LightningEnvironment": {},
        "MixedPrecision": {"--trainer.plugins.precision": "bf16-mixed", "--trainer.plugins.device": "cpu"},
        "SLURMEnvironment": {},
        "TorchCheckpointIO": {},
        "TorchSyncBatchNorm": {},
    }.items()
}


def options_of(name):
    given = [(f"--trainer.callbacks.{key}", value) for key, value in OPTIONS.get(name, {}).items()]
    return [f"--trainer.callbacks+={name}", *(word for pair in given for word in pair)]


@pytest.mark.parametrize(
    "name", [name if name in QUICK else pytest.param(name, marks=pytest.mark.slow) for name in POSSIBLE]
)
def test_a_run_with_it_is_tested_and_continued(name, data_options, tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    fit = ["fit", *data_options, *SMALL_MODEL, *options_of(name), "--trainer.max_epochs", "3", "--run", "run"]
    assert main(fit) == 0
    (written,) = yaml.safe_load((tmp_path / "run" / "config.yaml").read_text())["trainer"]["callbacks"]
    for key, value in OPTIONS.get(name, {}).items():
        assert str(written["init_args"][key]).replace("'", "") == value  # keys of JSON are strings
    assert main(["test", "--run", "run"]) == 0
    assert main(["fit", "--resume", "run", "--trainer.max_epochs", "4"]) == 0
    assert "Unable to serialize" not in capsys.readouterr().err


@pytest.mark.slow
@pytest.mark.parametrize(
    "options",
    [
        *(PLUGINS[name] for name in PLUGINS if name != "DeepSpeedPrecision"),
        *(["--trainer.profiler", name] for name in ("simple", "advanced", "pytorch", "SimpleProfiler")),
        ["--trainer.logger", "false"],
        ["--trainer.logger", "CSVLogger", "--trainer.logger.save_dir", "a"],
        ["--trainer.logger+=CSVLogger", "--trainer.logger.save_dir=a", "--trainer.logger+=TensorBoardLogger",
         "--trainer.logger.save_dir=b"],
    ],
    ids=lambda options: "-".join(options[:2]),
)  # fmt: skip
def test_a_run_with_other_parts_is_tested_and_continued(options, data_options, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    assert main(["fit", *data_options, *SMALL_MODEL, *options, "--trainer.max_epochs", "2", "--run", "run"]) == 0
    assert main(["test", "--run", "run"]) == 0
    assert main(["fit", "--resume", "run", "--trainer.max_epochs", "3"]) == 0


@pytest.mark.parametrize(
    ("options", "told"),
    [
        *((options_of(name), name) for name in sorted(REFUSED)),
        *((["--trainer.strategy", name], name) for name in ("ddp_spawn", "ddp_fork", "ddp_notebook")),
        (["--trainer.barebones", "true"], "--trainer.barebones true"),
        (["--trainer.accelerator", "tpu"], "--trainer.accelerator tpu"),
        (["--trainer.strategy", "ddb"], "--trainer.strategy ddb"),
        (["--trainer.num_nodes", "0"], "--trainer.num_nodes 0"),
        (["--trainer.logger", "Logger"], "--trainer.logger"),
        *((["--trainer.profiler", name], "--trainer.profiler") for name in ("xla", "XLAProfiler", "simpel")),
        *((["--trainer.plugins", name], "--trainer.plugins") for name in UNUSABLE),
        (["--trainer.plugins", "[AsyncCheckpointIO,XLACheckpointIO]"], "--trainer.plugins XLACheckpointIO"),
        (["--trainer.plugins", "MixedPrecision"], "--trainer.plugins.precision and --trainer.plugins.device"),
        ([*PLUGINS["DeepSpeedPrecision"]], "DeepSpeedPrecision"),
        (["--trainer.plugins", "DoublePrecision", "--trainer.precision", "bf16-mixed"], "--trainer.plugins Double"),
    ],
)
def test_what_no_run_can_have_is_named_before_it_begins(options, told, data_options, tmp_path, capsys):
    assert main(["fit", *data_options, *SMALL_MODEL, *options, "--run", str(tmp_path / "run")]) == 1
    assert told in capsys.readouterr().err.splitlines()[-1]
    assert not (tmp_path / "run").exists()


class Marked(pl.Callback):
    """A callback with an object as a default."""

    def __init__(self, mark: object = object()) -> None:
        self.mark = mark


def test_a_value_without_a_text_ends_a_fit_before_its_first_step(data_options, tmp_path, capsys, monkeypatch):
    """The run could not be rebuilt from its `config.yaml`."""
    module = types.ModuleType("marking")
    module.Marked = type("Marked", (Marked,), {"__module__": "marking"})
    monkeypatch.setitem(sys.modules, "marking", module)
    options = ["--trainer.callbacks+=marking.Marked", "--run", str(tmp_path / "run")]
    assert main(["fit", *data_options, *SMALL_MODEL, *options]) == 1
    assert "--trainer.callbacks.init_args.mark is <object object" in capsys.readouterr().err.splitlines()[-1]
    assert not list((tmp_path / "run").rglob("*.ckpt"))


def test_an_optimizer_that_refuses_the_gradients_is_named(data_options, tmp_path, capsys):
    options = ["--model.optimizer", "SparseAdam", "--run", str(tmp_path / "run")]
    assert main(["fit", *data_options, *SMALL_MODEL, *options]) == 1
    told = capsys.readouterr().err.splitlines()[-1]
    assert "--model.optimizer" in told
    assert "SparseAdam" in told


def test_a_run_without_checkpoints_says_so(data_options, tmp_path, capsys):
    run = str(tmp_path / "run")
    options = ["--trainer.enable_checkpointing", "false", "--trainer.max_epochs", "1", "--run", run]
    assert main(["fit", *data_options, *SMALL_MODEL, *options]) == 0
    assert main(["test", "--run", run]) == 1
    assert "--trainer.enable_checkpointing false" in capsys.readouterr().err.splitlines()[-1]


def test_checkpoints_that_a_thread_writes_are_whole_as_well(data_options, tmp_path):
    """The same checkpoints exist as without the plug-in."""
    run = tmp_path / "run"
    options = ["--trainer.plugins", "AsyncCheckpointIO", "--trainer.max_epochs", "3", "--run", str(run)]
    assert main(["fit", *data_options, *SMALL_MODEL, *options]) == 0
    assert {path.name for path in (run / "checkpoints").iterdir()} == {"best.ckpt", "last.ckpt", "previous.ckpt"}
    assert main(["test", "--run", str(run)]) == 0
