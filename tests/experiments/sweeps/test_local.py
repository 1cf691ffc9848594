"""Several trainings at a time, devices and reports of failures, with pretended commands."""

import json
import os
import socket
import threading

import pytest
import torch

from graphbench.errors import CorruptData
from graphbench.experiments import CommandFailed, TrainedElsewhere, Training
from graphbench.experiments.launchers.units import note_begin
from graphbench.experiments.status import _of_run
from graphbench.experiments.sweeps import local
from graphbench.runs.environment import timestamp
from graphbench.runs.holding import claimed

TRAININGS = [Training(name, 0, []) for name in "abcdef"]


class Pretended:
    """Commands that write scores; `broken` runs fail with a line in their log, `diverged` ones have no score."""

    def __init__(self, at_once=1):
        self.broken, self.diverged, self.places = set(), set(), []
        self.meet = threading.Barrier(at_once, timeout=20)

    def __call__(self, command, *words, log=None, environment=None):
        folder = local.Path(words[-1])
        if command == "fit":
            self.places.append((folder.name, environment))
            self.meet.wait()
            if folder.name in self.broken:
                if log is not None:
                    log.parent.mkdir(parents=True, exist_ok=True)
                    log.write_text("Epoch 1\ngraphbench: it broke\n\n")
                raise CommandFailed(command, 1)
            folder.mkdir(parents=True)
            (folder / "results.json").write_text(json.dumps({"metric": "MAE", "val": {"val/MAE": 1.0}}))
        else:
            stored = json.loads((folder / "results.json").read_text())
            score = None if folder.name in self.diverged else 2.0
            (folder / "results.json").write_text(json.dumps(stored | {"test": {"test/MAE": score}}))


@pytest.fixture
def pretended(monkeypatch):
    def make(at_once=1):
        made = Pretended(at_once)
        monkeypatch.setattr(local, "graphbench", made)
        return made

    return make


def test_failures_are_told_with_the_last_line_of_their_log(pretended, tmp_path):
    commands = pretended()
    commands.broken, commands.diverged = {"b-0"}, {"d-0"}
    assert [failure.reason for failure in local.run_all(TRAININGS[1:2], tmp_path, logs=False)] == ["exit code 1"]
    failures = local.run_all(TRAININGS, tmp_path)
    assert [(failure.name, failure.reason) for failure in failures] == [
        ("b-0", "exit code 1: graphbench: it broke"),
        ("d-0", "it diverged: test MAE is not a number"),
    ]
    commands.broken, commands.places = set(), []
    assert [failure.name for failure in local.run_all(TRAININGS, tmp_path)] == ["d-0"], "it stays diverged"
    assert commands.places == [("b-0", None)], "finished runs are not run again"


def test_what_another_call_works_on_is_left_to_it(pretended, tmp_path):
    """Its notes stay unchanged, so `status` shows it as running, and a later call has no failure."""
    commands = pretended()
    record = local.record_of(tmp_path / "logs" / "b-0.log")
    record.parent.mkdir()
    note_begin(record)
    notes = record.read_text()
    with claimed(TRAININGS[1].folder(tmp_path)):
        failures = local.run_all(TRAININGS, tmp_path)
        assert record.read_text() == notes
        units = status(tmp_path, TRAININGS)
    here = f"process {os.getpid()} on {socket.gethostname()}"
    ((name, reason),) = [(failure.name, failure.reason) for failure in failures]
    assert name == "b-0"
    assert reason.startswith(f"{here} (since ")
    assert reason.endswith(") works on it")
    assert units == {name: "running" if name == "b-0" else "done" for name in units}
    assert [name for name, _ in commands.places] == [f"{name}-0" for name in "acdef"]
    assert local.run_all(TRAININGS, tmp_path) == []


def test_a_training_of_a_call_that_was_killed_is_no_failure(pretended, tmp_path, monkeypatch):
    """It keeps running without its sweep, and the next sweep may not use its folder."""
    commands = pretended()
    commands.broken = {"b-0"}
    (folder := TRAININGS[1].folder(tmp_path)).mkdir(parents=True)
    begun = {"host": socket.gethostname(), "process": os.getppid(), "since": timestamp()}
    (folder / ".holder").write_text(json.dumps(begun))
    (failure,) = local.run_all(TRAININGS[:2], tmp_path)
    assert failure.reason.startswith(f"process {os.getppid()} on {socket.gethostname()} (since ")
    assert failure.reason.endswith(") works on it")
    assert status(tmp_path, TRAININGS[:2]) == {"a-0": "done", "b-0": "running"}
    (folder / ".holder").unlink()
    assert status(tmp_path, TRAININGS[:2]) == {"a-0": "done", "b-0": "stopped"}


def status(output, trainings):
    """Return the state of each unit, as `graphbench status` shows it."""
    return {
        training.folder(output).name: _of_run(
            training.folder(output), training.folder(output).name, output / "logs" / f"{training.name}-0.log"
        ).state
        for training in trainings
    }


def test_results_that_cannot_be_read_stop_no_other(pretended, tmp_path, monkeypatch):
    pretended()
    monkeypatch.setattr(
        local, "train", lambda *_, **__: (_ for _ in ()).throw(CorruptData("results.json cannot be read"))
    )
    assert {failure.reason for failure in local.run_all(TRAININGS[:2], tmp_path)} == {"results.json cannot be read"}


def test_what_another_call_has_finished_meanwhile_is_no_failure(pretended, tmp_path, monkeypatch):
    commands = pretended()

    def trained_elsewhere(folder, *_, **__):
        for command in ("fit", "test"):
            commands(command, str(folder))
        raise TrainedElsewhere("process 1")

    monkeypatch.setattr(local, "train", trained_elsewhere)
    assert local.run_all(TRAININGS[:1], tmp_path) == []


def test_as_many_run_at_a_time_as_asked_for_each_on_its_device(pretended, tmp_path, monkeypatch):
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 2)
    for name in ("CUDA_VISIBLE_DEVICES", "OMP_NUM_THREADS"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setattr(local.os, "sched_getaffinity", lambda _: set(range(8)))
    commands = pretended(at_once=3)  # three must run together, or none ends
    commands.broken = {"c-0"}
    assert [failure.name for failure in local.run_all(TRAININGS, tmp_path, jobs=3)] == ["c-0"]
    assert sorted(name for name, _ in commands.places) == [f"{name}-0" for name in "abcdef"]
    for first in (0, 3):
        seen = sorted(place["CUDA_VISIBLE_DEVICES"] for _, place in commands.places[first : first + 3])
        assert seen == ["0", "0", "1"]
    assert {place["OMP_NUM_THREADS"] for _, place in commands.places} == {"2"}


def test_devices_that_the_environment_names_are_shared_out(monkeypatch):
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "5,7")
    monkeypatch.setenv("OMP_NUM_THREADS", "3")
    assert local.devices(3) == [{"CUDA_VISIBLE_DEVICES": gpu} for gpu in ("5", "7", "5")]
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES")
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 0)
    assert local.devices(2) == [{}, {}]
