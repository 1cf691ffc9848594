"""Signals in every phase of a real fit: it stops soon with a message, and resumes to equal weights."""

from __future__ import annotations

import os
import signal
import sys
import threading
import time

import numpy as np
import pytest
from equal_runs import OPTIONS, assert_equal_runs
from forked import at, forked

#: Seconds within which a fit must have ended after a signal, on a busy machine.
SOON = 60


@pytest.fixture(scope="module")
def whole(data_options, tmp_path_factory):
    """Train a run without a stop."""
    folder = tmp_path_factory.mktemp("phases")
    ended = forked(folder, "fit", *data_options, *OPTIONS, "--run", folder / "run")
    assert ended.code == 0, ended.text
    return folder / "run"


def at_write(folder, number, signum):
    """Return a `prepare` that sends the signal before the n-th change of a file in a folder."""

    def prepare():
        seen = 0

        def hook(event, arguments):
            nonlocal seen
            changes = event in ("os.rename", "os.link", "os.remove", "os.mkdir") or (
                event == "open" and isinstance(arguments[2], int) and arguments[2] & (os.O_WRONLY | os.O_RDWR)
            )
            if changes and str(folder) in str(arguments[0]):
                seen += 1
                if seen == number:
                    (folder / "sent").write_text(str(time.time()))
                    os.kill(os.getpid(), signum)

        sys.addaudithook(hook)

    return prepare


def stopped_and_continued(whole, data_options, tmp_path, prepare, code, store=None):
    """Stop a fit, continue it and compare; return whether the signal was sent."""
    run = tmp_path / "run"
    places = ["--data.store", store] if store else []
    command = ["fit", *data_options, *OPTIONS, *places, "--run", run, "--if-exists", "resume"]
    ended = forked(tmp_path, *command, prepare=prepare)
    sent = tmp_path / "sent"
    if sent.exists():
        assert time.time() - float(sent.read_text()) < SOON
    assert ended.code in (code, 0), ended.text
    assert "Traceback" not in ended.text
    if ended.code:
        assert signal.Signals(code - 128).name in ended.text, "it names the signal"
        again = forked(tmp_path, *command)
        assert again.code == 0, again.text
    assert_equal_runs(whole, run)
    return sent.exists()


@pytest.mark.parametrize("number", [70, pytest.param(100, marks=pytest.mark.slow)])
def test_while_a_file_is_written(whole, data_options, tmp_path, number):
    """Files of the run and of its new store: data, checkpoints, tables, scores."""
    prepare = at_write(tmp_path, number, signal.SIGTERM)
    assert stopped_and_continued(whole, data_options, tmp_path, prepare, 143, tmp_path / "store")


@pytest.mark.slow
def test_while_any_file_is_written(whole, data_options, tmp_path):
    number = 1
    while stopped_and_continued(
        whole, data_options, tmp_path / str(number),
        at_write(tmp_path / str(number), number, signal.SIGHUP), 129, tmp_path / str(number) / "store",
    ):  # fmt: skip
        number += 29  # each takes two fits
    assert number > 100


@pytest.mark.slow
def test_while_a_kernel_is_compiled(whole, data_options, tmp_path):
    numba = pytest.importorskip("numba")

    def compile_something(trainer):
        if trainer.global_step == 0:
            threading.Timer(0.05, os.kill, (os.getpid(), signal.SIGTERM)).start()
            assert numba.njit(lambda x: (x**2).sum())(np.arange(3)) == 5

    prepare = at("on_train_batch_start", compile_something)
    stopped_and_continued(whole, data_options, tmp_path, prepare, 143)


@pytest.mark.slow
@pytest.mark.parametrize("hook", ["on_validation_start", "on_validation_end", "on_train_end", "on_fit_end", "teardown"])
def test_in_a_validation_and_at_the_end(whole, data_options, tmp_path, hook):
    def prepare():
        from graphbench.callbacks.throughput import Throughput

        def send(self, *rest, **options):
            if not (tmp_path / "sent").exists():
                (tmp_path / "sent").write_text(str(time.time()))
                os.kill(os.getpid(), signal.SIGTERM)

        setattr(Throughput, hook, send)

    assert stopped_and_continued(whole, data_options, tmp_path, prepare, 143)
