"""Values that a class refuses, and what this machine lacks: one line each, whoever complains, and no folder stays."""

from __future__ import annotations

import pytest
import torch
from command_line import SMALL_MODEL

from graphbench.cli import main

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
        (["--seed_everything", "-1"], ["--seed_everything is -1", "from 0 to"]),
        (["--trainer.strategy", "fsdp"], ["fsdp", "GPU"]),
        (["--trainer.devices", "0"], ["devices", "0"]),
        (["--trainer.max_epochs", "-5"], ["max_epochs", "-5"]),
        (["--trainer.val_check_interval", "7.5"], ["val_check_interval", "7.5"]),
        (["--data.class_path", ""], ["--data"]),
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
        (["--if-exists", "hope", "--run", "x"], "must be fail or resume"),
        (["--if-exists", "resume"], "needs --run"),
        (["--checkpoint", "x.ckpt"], "where --resume goes on"),
    ],
)
def test_options_of_fit_that_make_no_sense_are_refused(data_options, capsys, options, expected):
    assert main(["fit", *data_options, *SMALL_MODEL, *options]) == 1
    assert expected in capsys.readouterr().err
