"""The forecast of a training, on a clock that the test sets."""

import logging
import math
import re
from types import SimpleNamespace

import pytest
from pytorch_lightning.callbacks import Timer

from graphbench.callbacks import progress as forecast
from graphbench.callbacks.progress import Forecast


def trainer(**options):
    usual = {
        "is_global_zero": True,
        "num_training_batches": 100,
        "max_epochs": 10,
        "max_steps": -1,
        "current_epoch": 0,
        "global_step": 0,
        "accumulate_grad_batches": 1,
        "callbacks": [],
    }
    return SimpleNamespace(**usual | options)


@pytest.fixture
def train(monkeypatch, caplog):
    """Return a function that runs batches of given seconds and returns the logged messages."""

    def run(trainer, *epochs, first=0, pause=1000.0, within=False):
        now = [0.0]
        monkeypatch.setattr(forecast.time, "perf_counter", lambda: now[0])
        caplog.set_level(logging.INFO)
        callback = Forecast()
        callback.on_train_start(trainer, None)
        for steps in epochs:
            now[0] += pause
            if not within:
                callback.on_train_epoch_start(trainer, None)
            for number, seconds in enumerate(steps):
                now[0] += seconds
                trainer.global_step += number % trainer.accumulate_grad_batches == 0
                callback.on_train_batch_end(trainer, None, None, None, first + number)
            trainer.current_epoch += 1
        return [record.getMessage() for record in caplog.records]

    return run


SLOW_START = [60.0, 5.0, 5.0]


def figures(line):
    """Return the batches of an epoch, its time and the time left, as the line states them."""
    return re.findall(r"\d[\d.,]*(?: (?:d|h|min|s)\b)?(?: \d+ (?:h|min|s)\b)?", line)


def test_the_rest_of_a_run_ends_with_its_time(train, monkeypatch):
    timers = [Timer(), Timer("00:01:00:00")]
    monkeypatch.setattr(timers[1], "time_elapsed", lambda stage: 3600 - 90.0)
    (line,) = train(trainer(callbacks=timers), [*SLOW_START, *[2.0] * 30])
    assert "the rest of the run about 1 min 30 s," in line
    (*_, line) = train(trainer(callbacks=timers, max_epochs=-1), [*SLOW_START, *[2.0] * 30])
    assert "the rest of the run about 1 min 30 s," in line


def test_the_median_of_the_first_steps_counts_and_their_first_do_not(train):
    told = train(trainer(), [*SLOW_START, *[0.1] * 15, *[9.0] * 5, *[0.1] * 30])
    (line,) = told
    assert figures(line) == ["100", "10 s", "1 min 38 s"]


def test_few_slow_steps_are_enough(train):
    told = train(trainer(num_training_batches=1000, max_epochs=100), [60.0, 5.0, 5.0, 4.0, 4.0, 4.0])
    assert figures(told[0])[:3] == ["1,000", "1 h 6 min", "4 d 15 h"]


def test_short_epochs_are_counted_together_without_what_is_between_them(train):
    told = train(trainer(num_training_batches=10, max_epochs=100), *[[*SLOW_START, *[0.1] * 7], *[[0.1] * 10] * 4])
    (line,) = told
    assert figures(line) == ["10", "1.0 s", "1 min 38 s"]


def test_a_run_that_goes_on_has_less_left(train):
    told = train(trainer(current_epoch=8), [0.5] * 40, first=50)
    assert figures(told[0])[2] == "1 min 8 s"  # 13 of 50 batches are done, and one more epoch follows


def test_a_run_that_goes_on_within_an_epoch_is_timed_from_its_start(train):
    """Lightning does not start an epoch then."""
    told = train(trainer(), [0.1] * 40, first=50, pause=0.0, within=True)
    assert figures(told[0])[:2] == ["100", "10 s"]


def test_a_limit_of_steps_is_heeded(train):
    told = train(trainer(max_epochs=-1, max_steps=50, accumulate_grad_batches=2), [0.5] * 40)
    assert figures(told[0])[2] == "43 s"  # 43 steps of 2 batches


def test_a_run_without_an_end_has_epochs_alone(train):
    (line,) = train(trainer(max_epochs=-1), [0.5] * 40)
    assert figures(line) == ["100", "50 s"]


@pytest.mark.parametrize("options", [{"is_global_zero": False}, {"num_training_batches": math.inf}])
def test_other_processes_and_endless_epochs_say_nothing(train, options):
    assert train(trainer(**options), [0.5] * 40) == []


def test_a_short_training_says_nothing(train):
    assert train(trainer(num_training_batches=5, max_epochs=2), *[[0.1] * 5] * 2) == []
