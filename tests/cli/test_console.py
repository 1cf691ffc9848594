"""Measured numbers, against PyTorch and the kernel, and tables on the terminal."""

from __future__ import annotations

import ast
import json
import logging
import subprocess
import sys
from pathlib import Path

import pytest
import torch
import yaml
from command_line import SMALL_MODEL
from torch import nn

import graphbench.cli
from graphbench.cli import main
from graphbench.cli.console import (
    count_parameters,
    in_terminal,
    peak_memory_mb,
    scores_of,
    set_up_logging,
    show_line,
    show_table,
)
from graphbench.experiments.status import write_plan
from graphbench.registry.expected import Expected, Obtained, compare

CPU = torch.device("cpu")
COMMANDS = Path(graphbench.cli.__file__).parent / "commands"


def test_lines_escape_what_would_control_the_terminal(capsys):
    recipe = Expected("test/MAE", 0.07, 0.004, "GPS\x1b[2J", epochs=20)  # as in a folder that somebody sent
    show_line(compare(recipe, Obtained({"test/MAE": 0.072}, epochs=20)))
    shown = capsys.readouterr().out
    assert r"GPS\x1b[2J" in shown
    assert "\x1b" not in shown


@pytest.mark.parametrize("path", sorted(COMMANDS.glob("*.py")), ids=lambda path: path.stem)
def test_commands_print_only_what_is_escaped(path):
    """JSON escapes control characters; completions are words for a shell."""
    calls = [node for node in ast.walk(ast.parse(path.read_text())) if isinstance(node, ast.Call)]
    printed = [ast.unparse(call) for call in calls if isinstance(call.func, ast.Name) and call.func.id == "print"]
    assert path.stem == "completion" or all(text.startswith("print(json.dumps(") for text in printed), printed


def test_shared_parameters_count_once_and_frozen_ones_never():
    first, frozen = nn.Linear(3, 2), nn.Linear(5, 5).requires_grad_(False)
    assert count_parameters(nn.ModuleList([first, first, frozen])) == 8


@pytest.mark.skipif(not Path("/proc/self/status").is_file(), reason="reads the kernel")
def test_peak_memory_is_that_of_the_kernel():
    block = bytearray(32_000_000)
    lines = Path("/proc/self/status").read_text().splitlines()
    kilobytes = next(int(line.split()[1]) for line in lines if line.startswith("VmHWM"))
    assert peak_memory_mb(CPU) == pytest.approx(kilobytes * 1024 / 1e6, rel=0.05)
    assert len(block) < peak_memory_mb(CPU) * 1e6


def test_peak_memory_without_the_line_of_the_kernel(monkeypatch):
    monkeypatch.setattr(Path, "read_text", lambda path, encoding=None: "VmRSS: 7 kB")  # as in gVisor
    assert peak_memory_mb(CPU) > 10


@pytest.mark.skipif(not Path("/proc/self/status").is_file(), reason="reads the kernel")
def test_peak_memory_is_not_that_of_the_process_that_started_this_one():
    block = bytearray(b"1") * 2_000_000_000
    code = "import torch; from graphbench.cli.console import peak_memory_mb as peak; print(peak(torch.device('cpu')))"
    told = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout
    assert float(told) * 1e6 < len(block) / 2


@pytest.mark.skipif(not Path("/proc/self/status").is_file(), reason="reads the kernel")
def test_a_run_on_the_processor_leaves_a_card_alone(data_options, tmp_path, monkeypatch):
    """The GPU is reported but absent: any use of its memory, random numbers or synchronization fails."""
    if torch.backends.cuda.is_built():
        pytest.skip("a card would answer, and without one PyTorch's own optimizers ask for its stream")
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    options = [*data_options, *SMALL_MODEL, "--trainer.limit_train_batches", "2"]
    assert main(["fit", *options, "--trainer.max_epochs", "1", "--run", str(tmp_path / "run")]) == 0
    stored = json.loads((tmp_path / "run" / "results.json").read_text())["peak_memory_mb"]
    lines = Path("/proc/self/status").read_text().splitlines()
    kilobytes = next(int(line.split()[1]) for line in lines if line.startswith("VmHWM"))
    assert stored == pytest.approx(kilobytes * 1024 / 1e6, rel=0.05)
    assert main(["profile", *options, "--steps", "6"]) == 0


def test_what_callbacks_log_is_no_score():
    logged = {"val/MAE": 1.0, "val/loss": 1.0, "flow_sparsity/zeros/layer_0_head_0": 0.3, "validity/x": 2.0}
    assert scores_of("val", logged) == {"val/MAE": 1.0, "val/loss": 1.0}


def test_units_in_brackets_are_shown(capsys):
    show_table("QM9 [eV]", ["target", "MAE"], [["gap [eV]", "0.1"]])
    assert capsys.readouterr().out.count("[eV]") == 2


#: Sets the title, clears the line and writes over it; a C1 control; letters from right to left.
HOSTILE = "a\x1b]0;title\x07\x1b[2K\rb\x9b2Jc\u202ed"


def test_names_in_tables_and_logs_are_shown_and_not_obeyed(capsys):
    show_table(HOSTILE, ["model", HOSTILE], [[HOSTILE, "0.5"]])
    set_up_logging()
    logging.getLogger("graphbench.x").warning("%s", HOSTILE)
    said = "".join(capsys.readouterr())
    assert said.count(r"a\x1b]0;title\x07\x1b[2K\rb\x9b2Jc\u202ed") == 4
    assert not set(said) & {"\x1b", "\x07", "\r", "\x9b", "\u202e"}


def test_commands_show_what_a_sent_folder_says_and_do_not_obey_it(tmp_path, capsys):
    (tmp_path / "logs").mkdir()
    (tmp_path / "logs" / "gps-0.log").write_text(f"{HOSTILE}\n")
    (tmp_path / "logs" / "gps-0.json").write_text(json.dumps({"code": 1, "ended": "x", "problem": HOSTILE}))
    write_plan(tmp_path, [("gps-0", [tmp_path / "runs" / "gps-0"])])
    (tmp_path / "run").mkdir()
    callbacks = [{"class_path": f"evil.Net{HOSTILE}\ngraphbench: all is well"}]
    (tmp_path / "run" / "config.yaml").write_text(yaml.safe_dump({"trainer": {"callbacks": callbacks}, "data": {}}))
    assert main(["status", str(tmp_path)]) == 0
    said = capsys.readouterr().out
    assert "title" in said
    assert main(["params", "--run", str(tmp_path / "run")]) == 1
    said += capsys.readouterr().err
    assert not set(said) & {"\x1b", "\x07", "\r", "\x9b", "\u202e"}
    assert "\ngraphbench: all is well" not in said


def test_a_cell_of_a_notebook_is_no_terminal(monkeypatch):
    """In the terminal of `!command` each movement of the cursor becomes a line."""
    monkeypatch.setattr(sys.stdout, "isatty", lambda: True)
    monkeypatch.delenv("JPY_PARENT_PID", raising=False)
    assert in_terminal()
    monkeypatch.setenv("JPY_PARENT_PID", "1")  # as jupyter_client starts kernels
    assert not in_terminal()
