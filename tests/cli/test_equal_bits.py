"""Runs with other workers, clocks set back or resumed at any step have equal bits; other threads change the last."""

from __future__ import annotations

import random
import signal
import time

import pandas as pd
import pytest
import torch
from equal_runs import OPTIONS, assert_equal_runs, content
from forked import at, forked, signal_at_step


@pytest.fixture(scope="module")
def whole(data_options, tmp_path_factory):
    """Train a run with one thread and no workers, without a stop."""
    folder = tmp_path_factory.mktemp("bits")
    ended = forked(folder, "fit", *data_options, *OPTIONS, "--run", folder / "run")
    assert ended.code == 0, ended.text
    return folder / "run"


@pytest.mark.parametrize("workers", [2, pytest.param(1, marks=pytest.mark.slow)])
def test_workers_change_no_bit(whole, data_options, tmp_path, workers):
    options = [*OPTIONS, "--data.num_workers", str(workers)]
    ended = forked(tmp_path, "fit", *data_options, *options, "--run", tmp_path / "run")
    assert ended.code == 0, ended.text
    assert_equal_runs(whole, tmp_path / "run")


def test_a_clock_that_is_set_back_changes_nothing(whole, data_options, tmp_path):
    """Every reading is an hour before the last; durations are measured by clocks that cannot be set."""
    now = time.time()

    def prepare():
        looks = iter(range(10**9))
        time.time = lambda: now - 3600 * next(looks)

    options = [
        *OPTIONS,
        "--trainer.max_time", "00:01:00:00",
        "--trainer.callbacks+=ModelCheckpoint",
        "--trainer.callbacks.train_time_interval", "0:00:00.001",
        "--trainer.callbacks.filename", "by-time",
    ]  # fmt: skip
    run = tmp_path / "run"
    ended = forked(tmp_path, "fit", *data_options, *options, "--run", run, prepare=prepare)
    assert ended.code == 0, ended.text
    assert_equal_runs(whole, run)
    assert list((run / "checkpoints").glob("by-time*.ckpt"))
    assert "-" not in "".join(line for line in ended.text.splitlines() if "takes about" in line)
    rows = pd.read_csv(run / "metrics.csv")
    assert (rows["time/epoch_s"].dropna() > 0).all()
    assert (rows["time/data_share"].dropna().between(0, 1)).all()


@pytest.mark.slow
def test_a_run_goes_on_at_any_step(whole, data_options, tmp_path):
    """Twenty random steps: ten runs are stopped at one each, resumed, and stopped again at a later one."""
    draw = random.Random(0)
    for number in range(10):
        first, second = sorted(draw.sample(range(1, 12), 2))
        run = tmp_path / str(number)
        prepare = at("on_train_batch_end", signal_at_step(first, signal.SIGTERM))
        ended = forked(tmp_path, "fit", *data_options, *OPTIONS, "--run", run, prepare=prepare)
        assert ended.code == 143, ended.text
        assert content(run)["global_step"] == first
        prepare = at("on_train_batch_end", signal_at_step(second, signal.SIGHUP))
        ended = forked(tmp_path, "fit", "--resume", run, prepare=prepare)
        assert ended.code == 129, ended.text
        assert content(run)["global_step"] == second
        ended = forked(tmp_path, "fit", "--resume", run)
        assert ended.code == 0, ended.text
        assert_equal_runs(whole, run)


@pytest.mark.slow
@pytest.mark.parametrize("threads", [2, 4])
def test_threads_change_the_last_bits_at_most(whole, data_options, tmp_path, threads):
    """Sums over many rows are split into as many parts as there are threads.

    The bias of keys shifts all scores of a query equally, which softmax cancels. Its gradient is only rounding, which
    Adam scales to whole steps.
    """
    ended = forked(
        tmp_path, "fit", *data_options, *OPTIONS, "--run", tmp_path / "run",
        prepare=lambda: torch.set_num_threads(threads),
    )  # fmt: skip
    assert ended.code == 0, ended.text
    one, two = content(whole)["state_dict"], content(tmp_path / "run")["state_dict"]
    for name in one:
        pair = one[name], two[name]
        if name.endswith("in_proj.bias"):
            pair = tuple(torch.stack(bias.chunk(3))[[0, 2]] for bias in pair)  # of queries and values
        torch.testing.assert_close(*pair, rtol=1e-3, atol=1e-4)
