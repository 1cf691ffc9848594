"""Commands run without the parts of POSIX that Windows lacks, and refuse files that a locale would change."""

import subprocess
import sys

import pytest

#: Third parties choose their platform on import, so they are imported before anything is removed.
START = """
import os, signal, sys
import torch, pytorch_lightning.cli, rdkit, torch_geometric.data, pandas, pyarrow, numba, matplotlib.pyplot
import sklearn.ensemble, rich.console, torch.utils.tensorboard
from filelock import BaseFileLock, FileLock, SoftFileLock, Timeout
for name in ("getuid geteuid getgid getegid uname sched_getaffinity O_DIRECTORY killpg mkfifo statvfs getloadavg sync "
             "fdatasync posix_fadvise chown fchown getpgrp tcgetpgrp").split():
    delattr(os, name)
for name in "SIGHUP SIGUSR1 SIGUSR2 SIGALRM SIGTSTP".split():
    delattr(signal, name)
for name in "resource fcntl pwd grp termios pty tty".split():
    sys.modules[name] = None
os.supports_dir_fd = set()
from graphbench.cli import main
"""


IMPORT_ALL = """
import importlib, pkgutil
import graphbench
for module in pkgutil.walk_packages(graphbench.__path__, "graphbench."):
    if not module.name.endswith("__main__"):
        importlib.import_module(module.name)
"""


def problems(*commands: str, before: str = "") -> str:
    """Run commands in a process without POSIX; return its error, or nothing if all succeed."""
    calls = "\n".join(f"assert main({command.split()!r}) == 0" for command in commands)
    done = subprocess.run([sys.executable, "-c", START + before + calls], capture_output=True, text=True, timeout=600)
    return f"exit code {done.returncode}: {done.stderr[-2000:]}" if done.returncode else ""


def test_modules_and_commands_without_data_need_no_posix():
    assert problems("list benchmarks", "params --config quickstart", before=IMPORT_ALL) == ""


@pytest.mark.slow
def test_training_and_testing_need_no_posix(tmp_path):
    shown = "--trainer.enable_progress_bar false --trainer.max_epochs 1"
    run = tmp_path / "run"
    assert problems(f"fit --config quickstart --run {run} {shown}", f"test --run {run}") == ""


def test_letters_that_the_locale_would_change_are_refused(tmp_path, monkeypatch):
    """jsonargparse reads a configuration in the encoding of the locale; ours are UTF-8."""
    path = tmp_path / "mine.yaml"
    path.write_text("# 5 Å\nmodel: {architecture: {class_path: GCN}}\n", encoding="utf-8")
    for name, value in {"LC_ALL": "C", "PYTHONUTF8": "0", "PYTHONCOERCECLOCALE": "0"}.items():
        monkeypatch.setenv(name, value)
    words = [sys.executable, "-m", "graphbench", "params", "--data", "NCI", "--config", str(path)]
    refused = subprocess.run(words, capture_output=True, text=True, check=False)
    assert refused.returncode == 1
    assert str(path) in refused.stderr
