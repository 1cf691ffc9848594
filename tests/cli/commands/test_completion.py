"""Completions that a shell offers for a word, without an import of torch."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
import pytorch_lightning.callbacks

from graphbench import registry
from graphbench.cli import COMMANDS, main
from graphbench.cli.commands.completion import CALLBACKS, SHELLS, completions
from graphbench.training.tasks import TASKS

PROGRAM = Path(sys.executable).with_name("graphbench")


@pytest.mark.parametrize(
    ("words", "expected"),
    [
        (["pre"], {"predict", "prepare"}),
        (["fit", "--data", "ZI"], {"ZINC"}),
        (["fit", "--model.architecture", "GP"], {"GPS"}),
        (["fit", "--model.architecture=GP"], {"--model.architecture=GPS"}),
        (["fit", "--model.architecture", "=", "GP"], {"GPS"}),
        (["fit", "--model.architecture", "="], set(registry.architectures())),
        (["fit", "--config", "trainer/g"], {"trainer/gpu"}),
        (["fit", "--trainer.callbacks+=EarlyS"], {"--trainer.callbacks+=EarlyStopping"}),
        (["fit", "--trainer.max_e"], {"--trainer.max_epochs"}),
        (["fit", "--model.schedule.warmup_f"], {"--model.schedule.warmup_floor"}),
        (["fit", "--model.architecture", "GPS", "--model.architecture.local"], {"--model.architecture.local_layer"}),
        (["fit", "--data", "Molecules", "--data.smiles"], {"--data.smiles_column"}),
        (["fit", "-c", "gps/zinc", "--model.architecture.local"], {"--model.architecture.local_layer"}),
        (["fit", "-c", "nowhere", "--model.architecture.local"], set()),
        (
            ["fit", "--model.architecture", "=", "GPS", "--model.architecture.local"],
            {"--model.architecture.local_layer"},
        ),
        (["fit", "-c", "trainer/g"], {"trainer/gpu"}),
        (["test", "--data-ch"], {"--data-changed"}),
        (["list", "arch"], {"architectures"}),
        (["list", "wei"], {"weights"}),
        (["test", "--if-exists", ""], {"fail", "replace"}),
        (["fit", "--if-exists="], {"--if-exists=fail", "--if-exists=resume"}),
        (["config", "quick"], {"quickstart"}),
        (["completion", ""], set(SHELLS)),
        (["fit", "--trainer.max_epochs", ""], set()),
    ],
)
def test_the_word_is_completed(words, expected):
    assert set(completions(words)) == expected


def test_runs_are_found_below_the_folder(tmp_path, monkeypatch):
    for name in ("runs/one", "runs/more/two"):
        (tmp_path / name).mkdir(parents=True)
        (tmp_path / name / "config.yaml").touch()
    monkeypatch.chdir(tmp_path)
    assert completions(["test", "--run", "runs/"]) == ["runs/more/two", "runs/one"]


def test_runs_are_not_searched_for_among_all_data(tmp_path, monkeypatch):
    for name in (".", "study/runs/one", "data/images/train/cats/small"):
        (tmp_path / name).mkdir(parents=True, exist_ok=True)
        (tmp_path / name / "config.yaml").touch()
    monkeypatch.chdir(tmp_path)
    read, list_folder = [], os.scandir
    monkeypatch.setattr(os, "scandir", lambda path: read.append(str(path)) or list_folder(path))
    assert completions(["test", "--run", ""]) == [".", "study/runs/one"]
    assert {"data", "data/images"} <= set(read)
    assert not [path for path in read if path.startswith("data/images/train")]


def test_names_that_are_written_down_exist():
    assert all(hasattr(pytorch_lightning.callbacks, name) for name in CALLBACKS)
    losses = {loss for task in TASKS.values() for loss in task.losses if task.comparable}
    assert set(completions(["fit", "--model.loss", ""])) == losses
    assert set(completions([""])) == set(COMMANDS)


def test_torch_stays_out():
    words = ["fit", "--model.architecture", "GPS", "--"]
    code = f"import sys; from graphbench.cli import main; main(['completion', '--words', *{words}]); " \
        "assert not {'torch', 'pytorch_lightning'} & sys.modules.keys()"  # fmt: skip
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60, check=True)
    assert "--model.architecture.num_heads" in done.stdout


@pytest.mark.skipif(shutil.which("bash") is None or not PROGRAM.is_file(), reason="no bash, or no script graphbench")
def test_bash_completes():
    line = 'COMP_WORDS=(graphbench fit --data ZI); COMP_CWORD=3; _graphbench; echo "${COMPREPLY[@]}"'
    script = f"{SHELLS['bash']}\n{line}"
    environment = os.environ | {"PATH": f"{PROGRAM.parent}{os.pathsep}{os.environ['PATH']}"}
    done = subprocess.run(
        ["bash", "-c", script], env=environment, capture_output=True, text=True, timeout=60, check=True
    )
    assert done.stdout.split() == ["ZINC"]


@pytest.mark.skipif(shutil.which("zsh") is None, reason="no zsh")
def test_zsh_takes_the_script():
    done = subprocess.run(["zsh", "-n", "-c", SHELLS["zsh"]], capture_output=True, text=True, timeout=60)
    assert (done.returncode, done.stderr) == (0, "")


def test_the_command_prints_the_script_or_refuses(capsys):
    assert main(["completion", "bash"]) == 0
    assert "complete -o default" in capsys.readouterr().out
    assert main(["completion", "fish"]) == 1
    assert "bash" in capsys.readouterr().err
