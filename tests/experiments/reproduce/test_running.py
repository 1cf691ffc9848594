"""Jobs one after the other, on several devices, and as SLURM arrays, without any training."""

from __future__ import annotations

import os
import subprocess

import pytest

from graphbench.experiments import CommandFailed
from graphbench.experiments import trainings as experiments
from graphbench.experiments.reproduce import running
from graphbench.experiments.reproduce.plan import Request, jobs, select
from graphbench.experiments.reproduce.running import missing, run_beside, run_here, stages, write_slurm


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


def test_slurm_scripts_name_the_missing_jobs_and_their_order(plan, tmp_path):
    *arrays, submit = write_slurm(plan, [1, 2, 4], tmp_path / "my output", ["reproduce", "somebody/table-1"])
    first, second = (path.read_text() for path in arrays)
    assert "#SBATCH --array=1-2\n" in first
    assert "#SBATCH --array=4\n" in second
    assert "#SBATCH --gpus=1\n" in second
    assert f"#SBATCH --output='{tmp_path}/my output/slurm/slurm-%a.log'\n" in first
    assert '-m graphbench reproduce somebody/table-1 --job "$SLURM_ARRAY_TASK_ID"' in first
    fake = tmp_path / "sbatch"
    fake.write_text('#!/bin/bash\necho "$@" >>"$CALLS"; echo 41\n')
    fake.chmod(0o755)
    environment = {**os.environ, "PATH": f"{tmp_path}:{os.environ['PATH']}", "CALLS": str(tmp_path / "calls")}
    subprocess.run(["bash", str(submit)], env=environment, check=True, capture_output=True)
    assert (tmp_path / "calls").read_text().splitlines() == [
        f"--parsable {arrays[0]}", f"--parsable --dependency=afterok:41 {arrays[1]}",
    ]  # fmt: skip
