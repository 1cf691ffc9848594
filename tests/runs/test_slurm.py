"""Whether a job requeues itself, for each answer that `scontrol` of SLURM 22.05 gave at SIGTERM."""

from __future__ import annotations

import pytest

from graphbench.runs.slurm import job_number, queue_again_if_preempted

NAMED = "JobId=24 ArrayJobId=7 ArrayTaskId=3 JobName=fit UserId=me(7) Reason=None Requeue=1 TimeLimit=00:05:00"


@pytest.fixture
def asked(tmp_path, monkeypatch):
    """Fake `scontrol`, which prints the file `said`; return a function that lists its requeue calls."""
    tool = tmp_path / "scontrol"
    tool.write_text(f"#!/bin/sh\necho $@ >> {tmp_path}/asked\ncat {tmp_path}/said\n")
    tool.chmod(0o755)
    for name, value in {"JOB_ID": "24", "ARRAY_JOB_ID": "7", "ARRAY_TASK_ID": "3", "PROCID": "0"}.items():
        monkeypatch.setenv(f"SLURM_{name}", value)
    monkeypatch.setenv("PATH", f"{tmp_path}:/usr/bin:/bin")
    return lambda: [line for line in _lines(tmp_path / "asked") if "requeue" in line]


def _lines(path):
    return path.read_text().splitlines() if path.exists() else []


@pytest.mark.parametrize(
    ("why", "said", "comes_back"),
    [
        ("preempted, at the begin of a grace time", "JobState=RUNNING PreemptTime=2026-11-28T20:07:48", True),
        ("preempted without one, SLURM queues it again", "JobState=COMPLETING Restarts=1", False),
        ("cancelled", "JobState=COMPLETING Restarts=0 PreemptTime=None", False),
        ("cancelled in such a grace time", "JobState=COMPLETING PreemptTime=2026-11-28T20:07:48", False),
        ("queued again by hand", "JobState=COMPLETING Restarts=1 PreemptTime=None", False),
        ("a signal sent by hand", "JobState=RUNNING PreemptTime=None", False),
    ],
)
def test_only_a_job_in_the_grace_time_of_a_preemption_asks_for_it(why, said, comes_back, asked, tmp_path):
    (tmp_path / "said").write_text(f"{NAMED} {said}\n")
    queue_again_if_preempted()
    assert asked() == (["requeue 7_3"] if comes_back else [])


@pytest.mark.parametrize("name", ["SLURM_PROCID", "SLURM_JOB_ID"])
def test_other_processes_do_not_ask(name, asked, tmp_path, monkeypatch):
    (tmp_path / "said").write_text(f"{NAMED} JobState=RUNNING PreemptTime=2026-11-28T20:07:48\n")
    monkeypatch.delenv("SLURM_ARRAY_JOB_ID")
    monkeypatch.delenv(name)
    queue_again_if_preempted()
    assert asked() == []


def test_without_an_answer_nothing_is_asked(asked, tmp_path):
    (tmp_path / "scontrol").write_text("#!/bin/sh\nexit 1\n")
    queue_again_if_preempted()
    (tmp_path / "scontrol").unlink()
    queue_again_if_preempted()
    assert job_number() == "7_3"
