"""Values that a class refuses, and devices that this machine lacks: one line each, and no folder stays."""

from __future__ import annotations

import subprocess
import sys

import pytest
import torch
from command_line import SMALL_MODEL
from torch import nn

from graphbench import registry
from graphbench.cli import main
from graphbench.cli.complaints import with_whole_name
from graphbench.contracts import Architecture
from graphbench.errors import BadInput, check_range
from graphbench.registry.describe import options_of
from graphbench.testing import tiny_spec

NON_FINITE = "--trainer.callbacks+=graphbench.callbacks.non_finite.NonFinite"


@pytest.mark.parametrize(
    ("options", "expected"),
    [
        (["--data.batch_size", "0"], ["batch_size", "0"]),
        (["--trainer.callbacks+=AttentionCapacity", "--trainer.callbacks.num_graphs", "0"], ["num_graphs", "0"]),
        ([NON_FINITE, "--trainer.callbacks.limit", "0"], ["limit must be an integer of at least 1", "but got 0"]),
        ([NON_FINITE, "--trainer.callbacks.factor", "1.5"], ["factor must be above 0 and below 1", "but got 1.5"]),
        ([NON_FINITE, "--trainer.callbacks.policy", "hope"], ["policy is 'hope'", "'lower_rate'"]),
        (["--model.architecture.num_layers", "0"], ["num_layers", "0"]),
        (["--model.architecture.num_layers", "36275"], ["--model.architecture.num_layers is 36275", "at most 1,000"]),
        (["--model.architecture.hidden_dim", "32026"], ["--model.architecture.hidden_dim is 32026", "at most 4,096"]),
        (["--model.architecture.num_heads", "191676"], ["--model.architecture.num_heads is 191676", "at most 4,096"]),
        (["--model.head.dropout", "2"], ["dropout of a head must be at least 0 and below 1, but got 2.0"]),
        (["--model.lr_scales", "{architecture: -1}"], ["lr_scales: the factor of 'architecture' must be at least 0"]),
        (["--model.positional_encoding", "RWSEEncoder", "--model.positional_encoding.dim", "0"], ["dim must be an"]),
        (
            ["--model.optimizer", "Adam", "--model.optimizer.lr", "-1"],
            ["--model.optimizer", "Invalid learning rate: -1"],
        ),
        (["--seed_everything", "-1"], ["--seed_everything is -1", "from 0 to"]),
        (["--trainer.strategy", "fsdp"], ["fsdp", "GPU"]),
        (["--trainer.devices", "0"], ["devices", "0"]),
        (["--trainer.max_epochs", "-5"], ["max_epochs", "-5"]),
        (["--trainer.val_check_interval", "7.5"], ["val_check_interval", "7.5"]),
        (["--trainer.devices", "9999"], ["--trainer.devices is 9999", "expected at most"]),
        (["--trainer.devices", "x"], ["devices", "int"]),
        (["--trainer.accumulate_grad_batches", "0"], ["--trainer.accumulate_grad_batches must be at least 1"]),
        (["--trainer.check_val_every_n_epoch", "0"], ["--trainer.check_val_every_n_epoch must be at least 1"]),
        (["--trainer.num_sanity_val_steps", "-3"], ["--trainer.num_sanity_val_steps must be at least -1"]),
        (
            ["--trainer.callbacks+=LearningRateFinder", "--trainer.callbacks.max_lr", "1e-9"],
            ["LearningRateFinder: min_lr must be above 0 and below max_lr", "1e-09"],
        ),
        (["--trainer.gradient_clip_val", "-1"], ["--trainer.gradient_clip_val must be at least 0"]),
        (["--trainer.logger", "Nothing"], ["--trainer.logger is 'Nothing'", "expected one of"]),
        (["--trainer.logger", "WandbLoger"], ["--trainer.logger", "'WandbLoger'", "Did you mean WandbLogger"]),
        (["--trainer.callbacks+=EarlyStoping"], ["no class is called 'EarlyStoping'", "EarlyStopping"]),
        (["--model.optimizer", "AdmW"], ["--model.optimizer: no class is called 'AdmW'", "AdamW"]),
        (["--model.optimizer", "mine.csv"], ["--model.optimizer"]),
        (["--trainer.precision", "17"], ["--trainer.precision is '17'", "'16-mixed'"]),
        (["--run", ""], ["--run is empty"]),
        (["--data.batch_size"], ["--data.batch_size needs a value."]),
        (["--config"], ["--config needs a value."]),
        (["--trainer.max_epochs", "3", "stray"], ["Unexpected argument 'stray'."]),
        (["--data.class_path", ""], ["--data.class_path is ''; expected the name of a class"]),
        (["--trainer.callbacks+=EarlyStopping"], ["--trainer.callbacks.monitor must be given"]),
        (
            ["--model.architecture", "SFiFormer", "--model.architecture.proximal.num_steps", "2.5"],
            ["--model.architecture.proximal.num_steps is '2.5'; expected int."],
        ),
    ],
)
def test_wrong_values_are_one_line(data_options, tmp_path, monkeypatch, capsys, options, expected):
    monkeypatch.chdir(tmp_path)
    assert main(["fit", *data_options, *SMALL_MODEL, *options]) == 1
    said = capsys.readouterr().err.strip().splitlines()[-1]
    assert said.startswith("graphbench: ")
    for part in expected:
        assert part in said
    assert not (tmp_path / "runs").exists()


#: Options of models and a value outside of their range.
OUT_OF_RANGE = {"dropout": "2", "num_heads": "0", "hidden_dim": "-8", "num_layers": "0", "ffn_dim": "0"}


@pytest.mark.parametrize(
    "number",
    [number if number == 0 else pytest.param(number, marks=pytest.mark.slow) for number in range(len(OUT_OF_RANGE))],
)
def test_options_of_every_architecture_are_refused_by_name(capsys, number):
    """Each architecture is tried with one option, in turn over the whole test; the contract tries all of them."""
    tried = 0
    for place, (name, record) in enumerate(registry.architectures().items()):
        if place % len(OUT_OF_RANGE) != number:
            continue
        known = [option for option in OUT_OF_RANGE if option in (options_of(record.target) or {})]
        for option in known[place // len(OUT_OF_RANGE) % max(len(known), 1) :][:1]:
            words = [
                "--data",
                "NCI",
                "--model.architecture",
                name,
                f"--model.architecture.{option}",
                OUT_OF_RANGE[option],
            ]
            assert main(["params", *words]) == 1, words
            said = capsys.readouterr().err.strip().splitlines()[-1]
            assert said.startswith(f"graphbench: --model.architecture.{option} must be "), said
            tried += 1
    assert tried > 1


def test_a_dropout_that_is_no_probability_is_refused_before_anything_is_trained(data_options, tmp_path, capsys):
    run = tmp_path / "run"
    words = ["--model.architecture", "GPS", "--model.architecture.init_args.dropout", "2", "--run", str(run)]
    assert main(["fit", *data_options, *words]) == 1
    said = capsys.readouterr().err.splitlines()[-1]
    assert said == "graphbench: --model.architecture.dropout must be at least 0 and below 1, but got 2.0."
    assert not run.exists()


@pytest.mark.parametrize(
    ("options", "said"),
    [
        (["Solids", "--data.max_turn", "400"], "--data.max_turn must be at least 0 and at most 180, but got 400.0."),
        (["Solids", "--data.max_turn", ".nan"], "--data.max_turn must be at least 0 and at most 180, but got nan."),
        (["Solids", "--data.max_turn", "nan"], "--data.max_turn is 'nan'; expected a finite number."),
        (["Solids", "--data.max_shift", "-1"], "--data.max_shift must be at least 0 and below inf, but got -1.0."),
        (["Solids", "--data.point_dropout", "1"], "--data.point_dropout must be at least 0 and below 1, but got 1.0."),
        (["Solids", "--model.schedule.milestones", "[5, 3]"], "--model.schedule.milestones must grow from above 0"),
        (["Solids", "--data.scaling", "[1, .inf]"], "--data.scaling must be a finite range above 0, such as"),
        (["Solids", "--data.scaling", "[1, -inf]"], "--data.scaling is '-inf'; expected a finite number."),
        (["CSL", "--data.batch_size", "0"], "--data.batch_size must be an integer of at least 1, but got 0."),
        (["ListOps", "--data.sizes", "[1, 0, 1]"], "--data.sizes must be three numbers"),
        (["ElectricFlow", "--data.heat_time", ".inf"], "--data.heat_time must be above 0 and below inf, but got inf."),
        (
            ["CSL", "--model.schedule.warmup", "-1"],
            "--model.schedule.warmup must be an integer of at least 0, but got -1.",
        ),
        (["ElectricFlow", "--data.graphs", "CSL", "--data.graphs.batch_size", "0"], "batch_size must be an integer"),
    ],
)
def test_constructors_name_options_as_the_command_line_does(capsys, options, said):
    assert main(["params", "--data", *options, "--model.architecture", "SFT"]) == 1
    assert capsys.readouterr().err.splitlines()[-1].startswith(f"graphbench: {said}")


class Part(nn.Module):
    """A part with an option of the same name as its model's."""

    def __init__(self, width):
        super().__init__()
        check_range("width", width, at_least=1)


class Whole(Architecture):
    def __init__(self, spec, width, factor=1):
        super().__init__(spec, 4)
        self.part = Part(width * factor)


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"width": 0, "factor": 1}, "--model.architecture.width must be at least 1, but got 0."),
        ({"width": 2, "factor": -1}, None),  # the message's -2 was not given
    ],
)
def test_an_option_of_a_part_is_that_of_the_model_where_the_value_is_its_own(options, said):
    with pytest.raises(BadInput) as raised:
        Whole(tiny_spec("graph-regression"), **options)
    configured = {f"model.architecture.init_args.{name}": value for name, value in options.items()}
    configured["model.architecture.class_path"] = "somewhere.Whole"
    assert with_whole_name(raised.value, configured.get) == said
    configured["model.architecture.class_path"] = "somewhere.Other"
    assert with_whole_name(raised.value, configured.get) is None


@pytest.mark.skipif(torch.cuda.is_available(), reason="this machine has a GPU")
def test_a_gpu_that_is_not_there_is_one_line(data_options, tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    assert main(["fit", *data_options, *SMALL_MODEL, "--trainer.accelerator", "gpu"]) == 1
    assert "gpu" in capsys.readouterr().err


def test_a_folder_that_cannot_be_written_to_is_one_line(data_options, tmp_path, capsys):
    (tmp_path / "file").touch()
    for run in (tmp_path / "file", tmp_path / "file" / "run"):
        assert main(["fit", *data_options, *SMALL_MODEL, "--run", str(run)]) == 1
        said = capsys.readouterr().err
        assert str(run) in said
        assert "Traceback" not in said


@pytest.mark.parametrize(
    ("options", "expected"),
    [
        (["--if-exists", "hope", "--run", "x"], "--if-exists must be one of fail, resume"),
        (["--if-exists", "resume"], "needs --run"),
        (["--checkpoint", "x.ckpt"], "where --resume continues"),
    ],
)
def test_options_of_fit_that_make_no_sense_are_refused(data_options, capsys, options, expected):
    assert main(["fit", *data_options, *SMALL_MODEL, *options]) == 1
    assert expected in capsys.readouterr().err


def test_weights_out_of_a_file_that_holds_none_are_one_line(data_options, molecule_file, tmp_path, capsys):
    run = tmp_path / "run"
    assert main(["fit", *data_options, *SMALL_MODEL, "--model.init_from", str(molecule_file), "--run", str(run)]) == 1
    assert f"The checkpoint {molecule_file} cannot be read" in (said := capsys.readouterr().err)
    assert "Traceback" not in said
    assert not run.exists()


def test_a_fold_that_there_is_not_is_one_line(capsys):
    assert main(["params", "--data", "CSL", "--data.fold", "9", *SMALL_MODEL]) == 1
    assert "fold must be an integer of at least 0 and at most 4, but got 9" in capsys.readouterr().err


def test_a_logger_whose_server_refuses_is_one_line(data_options, tmp_path, monkeypatch, capsys):
    def refuse(*args, **kwargs):
        raise RuntimeError("No key for the server")

    monkeypatch.setattr("torch.utils.tensorboard.SummaryWriter.__init__", refuse)
    run = tmp_path / "run"
    assert main(["fit", *data_options, *SMALL_MODEL, "--run", str(run)]) == 1
    assert capsys.readouterr().err.splitlines()[-1] == "graphbench: --trainer.logger: No key for the server"
    assert not run.exists()


@pytest.mark.parametrize("command", ["predict", "test", "validate", "embed", "report"])
def test_help_needs_no_torch(command):
    code = (
        "import sys\nfrom graphbench.cli import main\n"
        "try:\n    assert main([sys.argv[1], '--help']) == 0\n"
        "except SystemExit as end:\n    assert end.code == 0\n"
        "assert not {'torch', 'pandas', 'pytorch_lightning'} & sys.modules.keys()\n"
    )
    done = subprocess.run([sys.executable, "-c", code, command], capture_output=True, text=True, timeout=60)
    assert done.returncode == 0, done.stderr
    assert "usage: graphbench " + command in done.stdout


def test_torchrun_hands_the_folder_over():
    """torchrun's own parser reads `--run` after the script as its `--run-path`, unless two dashes precede."""
    from torch.distributed.run import get_args_parser

    parse = get_args_parser().parse_args
    own = ["--config", "c.yaml", "--run-folder", "runs/x"]
    assert parse(["--nproc-per-node", "2", "graphbench", "fit", *own]).training_script_args == ["fit", *own]
    dashed = ["fit", "--run", "runs/x"]
    assert parse(["--nproc-per-node", "2", "--", "graphbench", *dashed]).training_script_args == dashed
