"""Every command whose answer goes to standard output fails if it cannot be written there."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from forked import forked

from graphbench.cli import COMMANDS, main

pytestmark = pytest.mark.skipif(not Path("/dev/full").exists(), reason="a device of Linux")

UNUSABLE = "graphbench: standard output cannot be used: {}.\n"
SAID = {
    "closed": UNUSABLE.format("Bad file descriptor"),
    "full": UNUSABLE.format("No space left on device"),
    "pipe": "",
}
#: Commands that write only files, and log to standard error.
SILENT = {"fit", "embed", "prepare", "sweep", "study", "tune", "explain", "export", "push", "report"}
LIGHT = ("list", "list --json", "list configs", "config quickstart", "version", "completion bash", "help", "test -h",
    "status {run}", "status {run} --json", "new-plugin my-model --directory {new}", "reproduce --list")  # fmt: skip
HEAVY = ("params {fit}", "profile {fit} --steps 6", "predict --run {run} --input {file} --output -",
    "validate --run {run}", "test --run {run}", "test --run {run} --input {file} --if-exists replace")  # fmt: skip


QUICK = {("closed", HEAVY[2]), ("full", HEAVY[4]), ("pipe", HEAVY[2])}


def spoil(how):
    """Return a `prepare` that breaks standard output and leaves standard error."""

    def prepare():
        if how == "closed":
            os.close(1)
            sys.stdout = None
            return
        reader, writer = os.pipe() if how == "pipe" else (os.open("/dev/null", 0), os.open("/dev/full", os.O_WRONLY))
        os.close(reader)
        os.dup2(writer, 1)
        sys.stdout, sys.__stdout__ = os.fdopen(1, "w"), sys.stdout  # which would close the handle when it is gone

    return prepare


def test_every_command_is_walked():
    """`verify` needs a run that was sent, and prints as the others do."""
    assert COMMANDS.keys() == SILENT | {"verify"} | {line.split()[0] for line in LIGHT + HEAVY} - {"help"}


@pytest.mark.parametrize("how", ["closed", *(pytest.param(how, marks=pytest.mark.slow) for how in ("full", "pipe"))])
def test_light_commands(how, finished_run, tmp_path):
    for number, line in enumerate(LIGHT):
        words = line.format(run=finished_run, new=tmp_path / f"new-{number}").split()
        assert vars(forked(tmp_path, *words, prepare=spoil(how))) == {"code": 1, "text": SAID[how]}, line


@pytest.mark.parametrize(
    ("line", "how"),
    [pytest.param(line, how, marks=() if (how, line) in QUICK else pytest.mark.slow) for line in HEAVY for how in SAID],
)
@pytest.mark.usefixtures("with_report")
def test_commands_of_models(line, how, finished_run, data_options, molecule_file, tmp_path):
    run = shutil.copytree(finished_run, tmp_path / "run")
    options = data_options if line.startswith(("params", "profile")) else []
    words = line.format(run=run, file=molecule_file, fit="--model.architecture GT").split()
    if options:
        words[1:1] = options
    ended = forked(tmp_path, *words, prepare=spoil(how))
    assert ended.code == 1
    assert ended.text.endswith(SAID[how])
    assert "Traceback" not in ended.text
    assert "graphbench: " not in ended.text.removesuffix(SAID[how])
    if line.startswith("test"):  # the scores are not lost
        assert (
            list(run.glob("external/*.json"))
            if "--input" in line
            else "test" in json.loads((run / "results.json").read_text())
        )
        assert (run / "report.html").is_file()


@pytest.mark.parametrize(
    ("redirected", "said"),
    [(">&-", SAID["closed"]), (">&- 2>&-", ""), (">/dev/full", SAID["full"]), ("| head -c 1 >/dev/null", None)],
)
def test_a_process_ends_without_a_word_of_python(redirected, said):
    """Python itself would flush again and report it. The exit code of a pipe is that of its last command."""
    shell = f"{sys.executable} -m graphbench list configs {redirected}"
    done = subprocess.run(["/bin/sh", "-c", shell], capture_output=True, text=True)
    assert (done.returncode, done.stderr) == ((0, "") if said is None else (1, said))


def test_what_is_logged_may_have_no_reader(monkeypatch):
    monkeypatch.setattr(sys, "stderr", None)
    assert main(["version"]) == 0
