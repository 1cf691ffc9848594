"""Jobs one after the other, on several devices, and as units of a launcher, without any training."""

from __future__ import annotations

from dataclasses import replace

import pytest

from graphbench.experiments import CommandFailed
from graphbench.experiments import trainings as experiments
from graphbench.experiments.launchers.units import note_begin, read_notes
from graphbench.experiments.reproduce import running
from graphbench.experiments.reproduce.plan import Request, jobs, select
from graphbench.experiments.reproduce.running import missing, planned, run_beside, run_here, stages, units
from graphbench.experiments.status import read_status, write_plan
from graphbench.runs.holding import claimed


@pytest.fixture
def plan(table, tmp_path):
    return jobs(select(table, ["ours", "plus"], ["pattern"]), Request(seeds=(0, 1)), tmp_path)


def test_what_is_finished_is_not_missing(plan, tmp_path, finish):
    assert missing(plan, tmp_path) == [0, 1, 2, 3, 4, 5]
    finish(plan[1].training.folder(tmp_path), 0.8)
    assert missing(plan, tmp_path) == [0, 2, 3, 4, 5]
    assert stages(plan, [0, 2, 4, 5]) == [[0, 2], [4, 5]]


def test_one_after_the_other_and_a_failure_does_not_stop_the_rest(plan, tmp_path, monkeypatch, finish):
    made = []

    def command(*words):
        made.append(words)
        folder = tmp_path / "runs" / words[-1].rpartition("/")[2]
        if folder.name == "sfi-former-pattern-0":
            raise CommandFailed("fit", 1)
        finish(folder, 0.8)

    monkeypatch.setattr(experiments, "graphbench", command)
    ended = []
    assert run_here(plan, [0, 2, 4], tmp_path, lambda: ended.append(1)) == [0]
    assert len(ended) == 3
    started = [words[-1].rpartition("/")[2] for words in made if words[0] == "fit"]
    assert started[:3] == ["sfi-former-pattern-0", "sfi-former-pattern-1", "sfi-former-pattern+dense-0"]
    assert plan[4].is_finished(tmp_path)
    assert plan[1].is_finished(tmp_path)  # what the fifth starts from


def test_a_training_that_diverges_has_an_outcome(plan, tmp_path, monkeypatch, diverge, caplog):
    def command(*words):
        diverge(tmp_path / "runs" / words[-1].rpartition("/")[2])
        raise CommandFailed("fit", 1)

    monkeypatch.setattr(experiments, "graphbench", command)
    assert run_here(plan, [0, 2], tmp_path, lambda: None) == []
    assert "sfi-former-pattern diverged; to train it again, remove its folder." in caplog.text
    assert missing(plan, tmp_path) == [1, 3, 4, 5]
    diverge(plan[1].training.folder(tmp_path))
    assert missing(plan, tmp_path) == [3, 5], "the fifth would start from the second"


def test_a_signal_ends_all_of_it(plan, tmp_path, monkeypatch):
    def stopped(*words):
        raise SystemExit(143)

    monkeypatch.setattr(experiments, "graphbench", stopped)
    with pytest.raises(SystemExit, match="143"):
        run_here(plan, [0, 2], tmp_path, lambda: None)


def test_every_device_gets_jobs_and_those_that_start_from_others_come_last(plan, tmp_path, monkeypatch):
    seen = []

    def run(*words, environment):
        seen.append((int(words[-1]), environment["CUDA_VISIBLE_DEVICES"], words[:2]))
        if words[-1] == "5":
            raise CommandFailed("reproduce", 1)

    monkeypatch.setattr(running, "graphbench", run)
    failed = run_beside(plan, [0, 1, 4, 5], ["0", "GPU-7"], ["reproduce", "somebody/table-1"])
    assert failed == [5]
    assert {device for _, device, _ in seen} <= {"0", "GPU-7"}
    assert {number for number, *_ in seen[:2]} == {0, 1}
    assert seen[0][2] == ("reproduce", "somebody/table-1")


def test_units_are_the_missing_jobs_in_their_order(plan, tmp_path):
    first, second = units(plan, [1, 2, 4], tmp_path, ["reproduce", "somebody/table-1"])
    assert [unit.words[-2:] for unit in first] == [("--job", "1"), ("--job", "2")]
    assert [unit.words for unit in second] == [("reproduce", "somebody/table-1", "--job", "4")]
    names = [plan[number].training.folder(tmp_path).name for number in (1, 2, 4)]
    assert [unit.name for unit in (*first, *second)] == names
    assert [unit.log.name for unit in (*first, *second)] == [f"{name}.log" for name in names]


def test_a_planned_job_may_end_in_the_folder_of_each_of_its_starts(plan, tmp_path):
    one, *_ = planned([plan[0]], tmp_path)
    assert one[1] == [plan[0].training.folder(tmp_path)]
    several = replace(plan[0], starts=3)
    ((name, folders),) = planned([several], tmp_path)
    assert name == folders[0].name
    assert [folder.name for folder in folders] == [
        f"{several.training.name}-{trial.seed}" for trial in several.trials()
    ]


def test_how_a_job_ended_is_noted(plan, tmp_path, monkeypatch, finish):
    def command(*words):
        if words[-1] == str(plan[1].training.folder(tmp_path)):
            raise CommandFailed("fit", 3)
        finish(tmp_path / "runs" / words[-1].rpartition("/")[2], 0.8)

    monkeypatch.setattr(experiments, "graphbench", command)
    run_here(plan, [0, 1], tmp_path, lambda: None)
    (first, second) = (tmp_path / "logs" / f"{plan[number].training.folder(tmp_path).name}.json" for number in (0, 1))
    assert (read_notes(first)["code"], read_notes(second)["code"]) == (0, 3)


def test_callers_at_one_table_share_its_jobs(plan, tmp_path, monkeypatch, finish, caplog):
    """A job that another caller trains, and one that starts from it, are skipped; finished jobs are not rerun."""
    started = []

    def command(*words):
        folder = tmp_path / "runs" / words[-1].rpartition("/")[2]
        started.append((words[0], folder.name))
        finish(folder, 0.8)

    monkeypatch.setattr(experiments, "graphbench", command)
    write_plan(tmp_path, planned(plan, tmp_path))
    folders = [job.training.folder(tmp_path) for job in plan]
    record = tmp_path / "logs" / f"{folders[1].name}.json"
    note_begin(record)
    notes = record.read_text()
    finish(folders[0], 0.7)
    with claimed(folders[1]):
        assert run_here(plan, range(6), tmp_path, lambda: None) == [1, 4]
        states = {unit.name: unit.state for unit in read_status(tmp_path)}
    assert record.read_text() == notes
    assert "is skipped: process" in caplog.text
    assert sorted(name for what, name in started if what == "fit") == sorted(folders[n].name for n in (2, 3, 5))
    assert plan[4].before.folder(tmp_path) == folders[1]
    done = {folder.name: "done" for folder in folders}
    assert states == done | {folders[1].name: "running", folders[4].name: "waiting"}
    assert run_here(plan, missing(plan, tmp_path), tmp_path, lambda: None) == []
    assert missing(plan, tmp_path) == []
