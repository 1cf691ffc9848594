"""A full disk gives one line that names the file; once there is space, the same command works.

Here no file may have content, so every writer fails where it would on a full disk.
"""

from __future__ import annotations

import contextlib
import logging
import os
import subprocess
import sys
from pathlib import Path

import pytest

import graphbench.cli
from graphbench.cli import main
from graphbench.cli.console import _StandardError
from graphbench.data.files.writing import writing_together

resource = pytest.importorskip("resource")


@contextlib.contextmanager
def no_room():
    """Let no file of this process have content."""
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (0, hard))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))


@pytest.mark.parametrize(
    ("words", "named"),
    [
        (["config", "molecules", "--copy", "mine.yaml"], "mine.yaml"),
        (["new-plugin", "my-model", "--directory", "."], "graphbench-my-model"),
    ],
)
def test_what_cannot_be_written_is_named_and_not_there(words, named, tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    with no_room():
        assert main(words) == 1
    assert capsys.readouterr().err == f"graphbench: {named} cannot be used: File too large.\n"
    assert not list(tmp_path.iterdir())
    assert main(words) == 0
    assert (tmp_path / named).exists()


def test_a_file_is_named_by_its_place_and_not_by_where_it_is_staged(tmp_path, monkeypatch, capsys):
    def draw(words):
        with writing_together(tmp_path / "out") as staged, (staged / "row-0.png").open("wb") as file:
            file.write(b"picture")

    monkeypatch.setattr(graphbench.cli, "_dispatch", draw)
    with no_room():
        assert main(["explain"]) == 1
    assert capsys.readouterr().err == f"graphbench: {tmp_path / 'out' / 'row-0.png'} cannot be used: File too large.\n"
    assert not (tmp_path / "out").exists()


def test_a_thread_of_a_logger_names_its_file_and_prints_no_traceback(tmp_path, monkeypatch, capsys):
    from torch.utils.tensorboard import SummaryWriter

    monkeypatch.setattr(graphbench.cli, "_dispatch", lambda words: SummaryWriter(str(tmp_path)))
    with no_room():
        assert main(["fit"]) == 1
    said = capsys.readouterr().err
    assert said.startswith(f"graphbench: {tmp_path / 'events.out'}")
    assert said.endswith(" cannot be used: File too large.\n")
    assert said.count("\n") == 1


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="a device of Linux")
@pytest.mark.parametrize("buffered", ["", "1"])
def test_standard_output_on_a_full_disk_is_named(buffered):
    shell = f"{sys.executable} -m graphbench config molecules >/dev/full"
    environment = {**os.environ, "PYTHONUNBUFFERED": buffered}
    done = subprocess.run(["/bin/sh", "-c", shell], capture_output=True, text=True, env=environment)
    said = "graphbench: standard output cannot be used: No space left on device.\n"
    assert (done.returncode, done.stderr) == (1, said)


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="a device of Linux")
def test_a_log_on_a_full_disk_ends_nothing(monkeypatch):
    with contextlib.suppress(OSError), Path("/dev/full").open("w", buffering=1) as full:  # closing flushes
        monkeypatch.setattr(sys, "stderr", full)
        with pytest.raises(OSError, match="No space left"):
            print("a line", file=sys.stderr)
        _StandardError().emit(logging.makeLogRecord({"msg": "a line"}))
