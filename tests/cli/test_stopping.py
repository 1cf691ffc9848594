"""Signals at several points of a fit: how it ends, and that the resumed run equals one without a stop."""

from __future__ import annotations

import os
import pty
import select
import signal
import sys
import time

import pytest
import torch
from equal_runs import OPTIONS, assert_equal_runs, content
from forked import at, forked, signal_at_step

from graphbench.cli import main


@pytest.fixture(scope="module")
def whole(data_options, tmp_path_factory):
    """Train a run without a stop."""
    folder = tmp_path_factory.mktemp("stopping")
    ended = forked(folder, "fit", *data_options, *OPTIONS, "--run", folder / "run")
    assert ended.code == 0, ended.text
    return folder / "run"


@pytest.mark.parametrize(
    ("signum", "code", "step"), [(signal.SIGTERM, 143, 6), (signal.SIGINT, 130, 5), (signal.SIGHUP, 129, 4)]
)
def test_a_signal_in_a_step_leaves_a_checkpoint_of_that_step(whole, data_options, tmp_path, signum, code, step):
    run = tmp_path / "run"
    arguments = ["fit", *data_options, *OPTIONS, "--run", run]
    ended = forked(tmp_path, *arguments, prepare=at("on_train_batch_end", signal_at_step(step, signum)))
    assert ended.code == code, ended.text
    assert f"Continue with: graphbench fit --resume {run}" in ended.text
    assert "Traceback" not in ended.text
    assert content(run)["global_step"] == step
    assert forked(tmp_path, "fit", "--resume", run).code == 0
    assert_equal_runs(whole, run)


def test_nohup_goes_on_when_the_terminal_closes(data_options, tmp_path):
    prepare = at("on_train_batch_end", signal_at_step(2, signal.SIGHUP))

    def ignoring():
        signal.signal(signal.SIGHUP, signal.SIG_IGN)
        prepare()

    short = [*OPTIONS, "--trainer.max_epochs", "1"]
    ended = forked(tmp_path, "fit", *data_options, *short, "--run", tmp_path / "run", prepare=ignoring)
    assert ended.code == 0, ended.text


@pytest.mark.parametrize("progress", [True, pytest.param(False, marks=pytest.mark.slow)])
def test_a_fit_leaves_a_checkpoint_when_its_terminal_closes(whole, data_options, tmp_path, progress):
    """Only the other end of a real terminal is closed: writing to it is an error from then on."""
    run, begun = tmp_path / "run", tmp_path / "begun"

    def wait_for_the_end(trainer):
        if trainer.global_step == 4:
            heard, handle = [], signal.getsignal(signal.SIGHUP)
            signal.signal(signal.SIGHUP, lambda *told: (heard.append(told), handle(*told)))
            begun.touch()
            while not heard:  # `signal.pause` would wait forever if the signal came before it
                time.sleep(0.01)

    options = [*OPTIONS, "--trainer.enable_progress_bar", str(progress).lower()]
    child, terminal = pty.fork()
    if not child:
        code = 70
        try:
            signal.signal(signal.SIGHUP, signal.SIG_DFL)  # if the tests run under nohup
            torch.cuda.is_available = lambda: False
            at("on_train_batch_end", wait_for_the_end)()
            sys.stdout, sys.stderr = os.fdopen(1, "w", buffering=1), os.fdopen(2, "w", buffering=1)
            code = main([*map(str, ["fit", *data_options, *options, "--run", run])])
        finally:
            os._exit(code)
    while not begun.exists():
        if select.select([terminal], [], [], 0.05)[0]:
            os.read(terminal, 1 << 16)
    os.close(terminal)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 129
    assert content(run)["global_step"] == 4
    assert forked(tmp_path, "fit", "--resume", run, "--trainer.enable_progress_bar", "true").code == 0
    assert_equal_runs(whole, run)


@pytest.mark.slow
def test_a_signal_in_a_validation_lets_its_epoch_end(whole, data_options, tmp_path):
    def prepare():
        from graphbench.training.module import BenchmarkModule

        original = BenchmarkModule.validation_step

        def step(self, batch, batch_idx):
            if self.trainer.global_step == 6 and batch_idx == 0:
                signal.raise_signal(signal.SIGTERM)
            original(self, batch, batch_idx)

        BenchmarkModule.validation_step = step

    run = tmp_path / "run"
    ended = forked(
        tmp_path, "fit", *data_options, *OPTIONS, "--data.eval_batch_size", "4", "--run", run, prepare=prepare
    )
    assert ended.code == 143, ended.text
    assert content(run)["global_step"] == 6
    assert forked(tmp_path, "fit", "--resume", run, "--data.eval_batch_size", "32").code == 0
    one, two = content(whole)["state_dict"], content(run)["state_dict"]
    assert all(torch.equal(one[name], two[name]) for name in one)


@pytest.mark.slow
def test_nobody_stops_between_accumulated_batches(data_options, tmp_path):
    options = [*OPTIONS, "--trainer.accumulate_grad_batches", "2", "--data.batch_size", "16"]
    assert forked(tmp_path, "fit", *data_options, *options, "--run", tmp_path / "whole").code == 0
    batches = []

    def in_the_eighth_batch(trainer):
        batches.append(trainer.global_step)
        if len(batches) == 9:
            signal.raise_signal(signal.SIGTERM)

    run = tmp_path / "run"
    every = ["--trainer.callbacks+=LastCheckpoint", "--trainer.callbacks.every_n_steps", "1"]
    prepare = at("on_train_batch_end", in_the_eighth_batch)
    ended = forked(tmp_path, "fit", *data_options, *options, *every, "--run", run, prepare=prepare)
    assert ended.code == 143, ended.text
    assert content(run)["global_step"] == 5, "batches 9 and 10 make step 5"
    assert forked(tmp_path, "fit", "--resume", run).code == 0
    assert_equal_runs(tmp_path / "whole", run)


@pytest.mark.parametrize("hook", ["prepare_data", "setup"])
def test_a_signal_before_training_leaves_nothing(data_options, tmp_path, hook):
    def prepare():
        from graphbench.benchmarks.base import GraphBenchmark

        setattr(GraphBenchmark, hook, lambda self, *rest, **options: signal.raise_signal(signal.SIGTERM))

    ended = forked(tmp_path, "fit", *data_options, *OPTIONS, "--run", tmp_path / "run", prepare=prepare)
    assert ended.code == 143, ended.text
    assert "before the first checkpoint: run the same command again" in ended.text
    assert not (tmp_path / "run").exists()


def test_a_signal_while_a_plugin_is_imported_is_not_taken_for_its_fault(data_options, tmp_path):
    def prepare():
        from graphbench.registry import entry_points

        import_target = entry_points._import

        def interrupted(target):
            signal.raise_signal(signal.SIGTERM)
            return import_target(target)

        entry_points._import = interrupted

    ended = forked(tmp_path, "fit", *data_options, *OPTIONS, "--run", tmp_path / "run", prepare=prepare)
    assert ended.code == 143, ended.text
    assert "stopped by SIGTERM" in ended.text
    assert "cannot be used" not in ended.text


def test_a_signal_while_graphs_of_another_package_are_made_is_not_taken_for_its_fault(tmp_path):
    (tmp_path / "slow_source.py").write_text("import signal\ndef load():\n    signal.raise_signal(signal.SIGTERM)\n")
    options = ["--data", "Graphs", "--data.source", "slow_source:load", "--model.architecture", "GCN"]
    ended = forked(tmp_path, "fit", *options, "--run", tmp_path / "run", cwd=tmp_path)
    assert ended.code == 143, ended.text
    assert "could not be made" not in ended.text


@pytest.mark.slow
def test_a_signal_in_a_sanity_check_leaves_nothing(data_options, tmp_path):
    def in_validation():
        from graphbench.training.module import BenchmarkModule

        BenchmarkModule.validation_step = lambda self, *rest: signal.raise_signal(signal.SIGTERM)

    options = [*OPTIONS, "--trainer.num_sanity_val_steps", "2"]
    ended = forked(tmp_path, "fit", *data_options, *options, "--run", tmp_path / "run", prepare=in_validation)
    assert ended.code == 143, ended.text
    assert not (tmp_path / "run").exists()


@pytest.mark.parametrize(("signum", "code"), [(signal.SIGTERM, 143), (signal.SIGINT, 130)])
def test_a_signal_in_a_test_is_said_and_changes_nothing(finished_run, tmp_path, signum, code):
    before = (finished_run / "results.json").read_bytes()

    def prepare():
        from graphbench.training.module import BenchmarkModule

        BenchmarkModule.test_step = lambda self, *rest: signal.raise_signal(signum)

    ended = forked(tmp_path, "test", "--run", finished_run, prepare=prepare)
    assert ended.code == code, ended.text
    assert f"stopped by {signal.Signals(signum).name}" in ended.text
    assert "Traceback" not in ended.text
    assert (finished_run / "results.json").read_bytes() == before


def test_a_second_ctrl_c_leaves_at_once_with_the_last_whole_checkpoint(data_options, tmp_path):
    def twice(trainer):
        if trainer.global_step == 5:
            signal.raise_signal(signal.SIGINT)
            signal.raise_signal(signal.SIGINT)

    run = tmp_path / "run"
    ended = forked(tmp_path, "fit", *data_options, *OPTIONS, "--run", run, prepare=at("on_train_batch_end", twice))
    assert ended.code == 130, ended.text
    assert content(run)["global_step"] == 3
    assert "Continue with" in ended.text


@pytest.mark.slow
def test_the_warning_of_slurm_writes_a_checkpoint_and_queues_the_job_again(whole, data_options, tmp_path, monkeypatch):
    asked = tmp_path / "asked.txt"
    tools = tmp_path / "bin"
    tools.mkdir()
    (tools / "scontrol").write_text(f"#!/bin/sh\necho $@ >> {asked}\n")
    (tools / "scontrol").chmod(0o755)
    job = {"SLURM_JOB_ID": "7", "SLURM_JOB_NAME": "fit", "SLURM_NTASKS": "1", "SLURM_PROCID": "0",
           "SLURM_LOCALID": "0", "SLURM_NODEID": "0", "SLURM_NTASKS_PER_NODE": "1",
           "PATH": f"{tools}:/usr/bin:/bin"}  # fmt: skip
    for name, value in job.items():
        monkeypatch.setenv(name, value)
    run = tmp_path / "run"
    command = ["fit", *data_options, *OPTIONS, "--run", run, "--if-exists", "resume"]
    ended = forked(tmp_path, *command, prepare=at("on_train_batch_end", signal_at_step(5, signal.SIGUSR1)))
    assert ended.code == 128 + signal.SIGUSR1, ended.text
    assert asked.read_text() == "requeue 7\n"
    assert content(run)["global_step"] == 5
    again = forked(tmp_path, *command)
    assert again.code == 0, again.text
    assert "Continuing" in again.text
    assert_equal_runs(whole, run)
