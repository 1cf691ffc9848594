"""Which processes of a study are alive: by locks on this machine, by signs of life on another."""

from __future__ import annotations

import os
import time

import pytest
from waits import wait_until

from graphbench.experiments.tuning import workers
from graphbench.experiments.tuning.workers import BEAT, STALE, Worker


@pytest.fixture
def worker(tmp_path):
    made = []

    def make():
        made.append(Worker(tmp_path))
        return made[-1]

    yield make
    for one in made:
        one.close()


def test_a_process_of_this_machine_lives_as_long_as_its_lock(worker, tmp_path):
    one, other = worker(), worker()
    for moment in (-9999, 9999):  # clocks do not matter
        os.utime(tmp_path / f"{other.name}.lock", times=(time.time() + moment,) * 2)
        assert one.is_alive(other.name)
        assert not one.is_doubtful(other.name)
    other._lock.release()
    assert not one.is_alive(other.name)
    assert one.is_alive(one.name)


@pytest.mark.parametrize(
    ("age", "alive", "doubtful"),
    [(0, True, False), (2 * BEAT, True, False), (4 * BEAT, True, True), (STALE + 2, False, False)],
)
def test_a_process_of_another_machine_lives_by_its_signs(worker, tmp_path, age, alive, doubtful):
    one = worker()
    name = "elsewhere-12ab34cd-77-0"
    (tmp_path / f"{name}.lock").touch()
    os.utime(tmp_path / f"{name}.lock", times=(time.time() - age,) * 2)
    assert one.is_alive(name) == alive
    assert one.is_doubtful(name) == doubtful


def test_a_process_that_ended_in_order_is_gone_at_once(worker):
    one, other = worker(), worker()
    other.close()
    assert not one.is_alive(other.name)
    assert not one.is_alive("elsewhere-12ab34cd-77-0")
    assert not one.is_alive(""), "killed before it wrote its name"


def test_signs_of_life_go_on_while_a_process_lives(monkeypatch, tmp_path, worker):
    monkeypatch.setattr(workers, "BEAT", 0.02)
    one = worker()
    file = tmp_path / f"{one.name}.lock"
    os.utime(file, times=(1.0, 1.0))
    wait_until(lambda: file.stat().st_mtime > 1e9)
    one.close()
    assert not file.exists()
