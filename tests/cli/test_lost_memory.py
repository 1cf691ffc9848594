"""Memory that runs out, and data workers that are killed: the message, which blames nothing else."""

from __future__ import annotations

import multiprocessing
import os
import signal
from pathlib import Path

import pytest
import torch
from equal_runs import OPTIONS
from forked import at, forked

from graphbench.data.lost_memory import explain_memory

resource = pytest.importorskip("resource")
WORKERS = ["--data.num_workers", "2"]


def use_up_memory():
    """Limit the memory of the process as `ulimit -v` does, and ask for more."""
    used = int(Path("/proc/self/statm").read_text().split()[0]) * resource.getpagesize()
    resource.setrlimit(resource.RLIMIT_AS, (used + (64 << 20), used + (64 << 20)))
    torch.zeros(1 << 30)  # more than the limit allows


@pytest.mark.parametrize("within_logger", [False, True])
def test_a_killed_data_worker_is_named_with_its_memory(data_options, tmp_path, within_logger):
    def kill(*_):
        if not multiprocessing.active_children():
            return  # before the first batch
        os.kill(multiprocessing.active_children()[0].pid, signal.SIGKILL)
        signal.sigtimedwait([], 5)  # torch raises from its handler of SIGCHLD, wherever the program is

    def prepare():
        if within_logger:
            from lightning_fabric.loggers.csv_logs import CSVLogger

            CSVLogger.save = kill
        else:
            at("on_train_batch_end", lambda trainer: kill() if trainer.global_step == 5 else None)()

    run = tmp_path / "run"
    ended = forked(tmp_path, "fit", *data_options, *OPTIONS, *WORKERS, "--run", run, prepare=prepare)
    assert ended.code == 1, ended.text
    assert "Traceback" not in ended.text
    said = ended.text.splitlines()[-1]
    assert "--data.num_workers" in said
    assert "held up to" in said
    assert "--trainer.logger" not in said
    assert within_logger or f"graphbench fit --resume {run}" in said


def test_a_data_worker_without_memory_is_told_what_to_set(data_options, tmp_path):
    """The limit is that of `ulimit -v`, only for the workers."""

    def prepare():
        from graphbench.data import loader

        original = loader._Rows.__getitems__

        def limited(self, indices):
            if loader.get_worker_info() is not None:
                use_up_memory()
            return original(self, indices)

        loader._Rows.__getitems__ = limited

    ended = forked(tmp_path, "fit", *data_options, *OPTIONS, *WORKERS, "--run", tmp_path / "run", prepare=prepare)
    assert ended.code == 1, ended.text
    assert "Traceback" not in ended.text
    assert "--data.num_workers" in ended.text.splitlines()[-1]


def test_a_limit_of_the_whole_process_is_named(data_options, tmp_path):
    def limit(trainer):
        if trainer.global_step == 5:
            use_up_memory()

    run = tmp_path / "run"
    ended = forked(tmp_path, "fit", *data_options, *OPTIONS, "--run", run, prepare=at("on_train_batch_end", limit))
    assert ended.code == 1, ended.text
    assert "Traceback" not in ended.text
    said = ended.text.splitlines()[-1]
    assert "ulimit -v" in said
    assert "--data.batch_size" in said
    assert f"graphbench fit --resume {run}" in said


@pytest.mark.parametrize(
    "error", [ValueError("out of memory"), RuntimeError("The size of tensor a (3) must match"), KeyError("memory")]
)
def test_other_errors_are_not_explained_by_memory(error):
    assert explain_memory(error) is None


def test_a_cause_counts():
    with pytest.raises(RuntimeError) as raised:
        torch.empty(1 << 60)
    error = ValueError("no batch")
    error.__cause__ = raised.value
    assert "--data.batch_size" in explain_memory(error)
