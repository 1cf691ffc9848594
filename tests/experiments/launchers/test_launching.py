"""Jobs on an imitated SLURM, in local processes and in this process: which are submitted, and in which order."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import threading
import time
from itertools import pairwise
from pathlib import Path
from types import SimpleNamespace

import imitated_slurm
import pytest
from waits import wait_until

from graphbench.errors import CorruptData, GraphbenchError
from graphbench.experiments.launchers import Cluster, Unit, launch, launching
from graphbench.experiments.launchers.launching import ROOM, read_jobs
from graphbench.experiments.launchers.units import read_notes

pytest.importorskip("submitit")

GOOD, BAD = ("completion", "bash"), ("completion", "fish")


@pytest.fixture
def slurm(tmp_path, monkeypatch):
    """Imitate SLURM and return the folder of the units."""
    imitated_slurm.imitate(tmp_path, monkeypatch, seconds=0.1)
    return tmp_path / "out"


def units(folder, **commands):
    return [Unit(name, words, folder / "logs" / f"{name}.log") for name, words in commands.items()]


def codes(some):
    return {unit.name: read_notes(unit.record).get("code") for unit in some}


def test_units_share_jobs_and_the_last_one_follows_them(slurm):
    some = units(slurm, a=GOOD, b=BAD, c=GOOD, d=GOOD, e=GOOD)
    (last,) = units(slurm, last=GOOD)
    said = []
    launch([some], Cluster(per_task=2, at_once=2), slurm, last, lambda: said.append(1) or str(len(said) > 3))
    assert codes([*some, last]) == {"a": 0, "b": 1, "c": 0, "d": 0, "e": 0, "last": 0}
    assert "completion" in some[1].log.read_text()
    array, single = imitated_slurm.scripts(slurm.parent)
    assert "#SBATCH --array=0-2%2" in array
    assert "--dependency=afterany:101" in single
    ends = [read_notes(unit.record)["ended"] for unit in some]
    assert max(ends) <= read_notes(last.record)["began"]
    assert read_jobs(slurm) == {"101_0": ["a", "b"], "101_1": ["c", "d"], "101_2": ["e"], "102": ["last"]}


def test_a_stage_waits_for_the_one_before(slurm):
    first, second = units(slurm, a=BAD, b=GOOD), units(slurm, c=GOOD)
    launch([first, [], second], Cluster(), slurm)
    assert codes([*first, *second]) == {"a": 1, "b": 0, "c": 0}, "also after one that failed"
    assert max(read_notes(one.record)["ended"] for one in first) <= read_notes(second[0].record)["began"]
    assert "--dependency=afterany:101" in imitated_slurm.scripts(slurm.parent)[1]


def test_what_is_still_queued_is_not_submitted_again_but_waited_for(slurm, monkeypatch):
    some, (last,) = units(slurm, a=GOOD, b=GOOD), units(slurm, last=GOOD)
    blocker = slurm.parent / "slurm" / "101.state"
    blocker.write_text("RUNNING")
    (slurm.parent / "slurm" / "101.sh").write_text("")
    with monkeypatch.context() as patch:  # jobs wait for another one, and the terminal is closed
        patch.setattr(launching.Jobs, "recover", lambda jobs: jobs.open.update({"101": object()}) or set())
        patch.setattr(launching.Jobs, "wait", lambda jobs: (_ for _ in ()).throw(KeyboardInterrupt))
        with pytest.raises(KeyboardInterrupt):
            launch([some], Cluster(), slurm, last)
    assert set(imitated_slurm.states(slurm.parent).values()) == {"RUNNING", "PENDING"}
    more = units(slurm, c=GOOD)
    threading.Thread(target=lambda: time.sleep(2) or blocker.write_text("COMPLETED"), daemon=True).start()
    launch([[*some, *more]], Cluster(), slurm, last)
    assert codes([*some, *more, last]) == {"a": 0, "b": 0, "c": 0, "last": 0}
    runs = {path.stem: path.read_text() for path in (slurm.parent / "slurm").glob("*.runs")}
    assert set(runs.values()) == {"."}, "no task ran twice"
    assert len(runs) == 2 + 1 + 1 + 1, "two, the new one, and the last one after each call"


def test_a_refused_job_is_an_error_with_the_words_of_the_cluster(slurm):
    (slurm.parent / "slurm" / "bin" / "sbatch").write_text("#!/bin/bash\necho 'Invalid account' >&2; exit 1\n")
    with pytest.raises(GraphbenchError, match="Invalid account"):
        launch([units(slurm, a=GOOD)], Cluster(), slurm)


@pytest.mark.parametrize("kind", ["local", "debug"])
def test_processes_here_run_at_most_so_many_at_a_time(kind, tmp_path):
    some, (last,) = units(tmp_path, a=GOOD, b=BAD, c=GOOD), units(tmp_path, last=GOOD)
    assert launch([some[:2], some[2:]], Cluster(kind=kind, per_task=2), tmp_path, last) == [some[1]]
    assert codes([*some, last]) == {"a": 0, "b": 1, "c": 0, "last": 0}
    assert read_notes(some[0].record)["ended"] <= read_notes(some[1].record)["began"], "they share a job"
    assert max(read_notes(one.record)["ended"] for one in some) <= read_notes(last.record)["began"]


def test_a_report_that_fails_alone_is_named(tmp_path, caplog):
    some, (last,) = units(tmp_path, a=GOOD), units(tmp_path, report=BAD)
    assert launch([some], Cluster(kind="debug"), tmp_path, last) == [last]
    assert "report" in caplog.text
    assert str(last.log) in caplog.text


def test_processes_here_share_the_cards(tmp_path, monkeypatch):
    """Three jobs of two GPUs each run two at a time on the four GPUs that `CUDA_VISIBLE_DEVICES` names."""
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "4,5,6,GPU-7")
    script = tmp_path / "sitecustomize.py"  # Python's own hook: each command notes its GPUs and waits for another one
    script.write_text(
        "import glob, os, sys, time\n"
        "if 'completion' in sys.orig_argv:\n"
        "    begun = time.time()\n"
        f"    path = {str(tmp_path)!r} + '/cards-' + str(os.getpid())\n"
        "    open(path, 'w').write(os.environ['CUDA_VISIBLE_DEVICES'] + ' ' + str(time.time()))\n"
        f"    while len(glob.glob({str(tmp_path)!r} + '/cards-*')) < 2 and time.time() < begun + 60:\n"
        "        time.sleep(0.02)\n"
        "    time.sleep(0.5)\n"
        "    open(path, 'a').write(' ' + str(time.time()))\n"
    )
    monkeypatch.setenv("PYTHONPATH", f"{tmp_path}:{os.environ.get('PYTHONPATH', '')}")
    some = units(tmp_path / "out", a=GOOD, b=GOOD, c=GOOD)
    launch([some], Cluster(kind="local", gpus=2, at_once=2), tmp_path / "out")
    assert codes(some) == {"a": 0, "b": 0, "c": 0}
    notes = [path.read_text().split() for path in tmp_path.glob("cards-*")]
    assert {cards for cards, _, _ in notes} == {"4,5", "6,GPU-7"}
    times = {cards: sorted((float(a), float(b)) for c, a, b in notes if c == cards) for cards, _, _ in notes}
    assert all(before[1] <= after[0] for spans in times.values() for before, after in pairwise(spans)), "one at a time"


def test_a_job_that_has_left_the_queue_is_submitted_again(slurm):
    queue = slurm.parent / "slurm" / "bin" / "squeue"
    queue.write_text("#!/bin/bash\necho 102_0\n")
    (slurm / ROOM).mkdir(parents=True)
    (slurm / ROOM / "jobs.json").write_text(json.dumps({"101_0": ["a"], "102_0": ["b"]}))
    assert launching.Jobs(Cluster(), slurm, lambda: "").recover() == {"b"}, "101 is not in the queue"
    queue.write_text("#!/bin/bash\necho 'unable to contact controller' >&2; exit 1\n")
    assert launching.Jobs(Cluster(), slurm, lambda: "").recover() == {"a", "b"}, "the queue is unknown"


def test_a_task_that_is_cancelled_before_it_begins_is_not_waited_for(slurm, caplog):
    """Job accounting has no line for it, and an earlier answer calls it pending."""
    some = units(slurm, a=GOOD, b=GOOD)
    place = slurm.parent / "slurm"

    def cancel():
        wait_until((place / "101_1.state").is_file)
        (place / "101_1.state").write_text("CANCELLED")

    threading.Thread(target=cancel, daemon=True).start()
    assert launch([some], Cluster(at_once=1), slurm) == [some[1]]
    assert "Job 101_1 has left the queue" in caplog.text


def test_a_damaged_list_of_jobs_is_named(tmp_path):
    assert read_jobs(tmp_path) == {}
    (tmp_path / ROOM).mkdir()
    (tmp_path / ROOM / "jobs.json").write_text(json.dumps(["101"]))
    with pytest.raises(CorruptData, match=r"jobs\.json"):
        read_jobs(tmp_path)


def test_launching_needs_no_torch():
    code = "import sys, graphbench.experiments.launchers, graphbench.experiments.status; print('torch' in sys.modules)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, cwd=Path.cwd())
    assert done.stdout == "False\n"


@pytest.mark.parametrize(("seconds", "rest"), [(0.01, 0.5), (2.0, 18.0)])
def test_looking_at_many_units_takes_a_tenth_of_the_time(tmp_path, monkeypatch, seconds, rest):
    clock, slept = [0.0], []

    def describe():
        clock[0] += seconds
        return ""

    jobs = launching.Jobs(Cluster(kind="local"), tmp_path, describe)
    looks = iter([False, True])
    jobs.open = {"1": SimpleNamespace(done=lambda: next(looks))}
    monkeypatch.setattr(launching, "time", SimpleNamespace(monotonic=lambda: clock[0], sleep=slept.append))
    jobs.wait()
    assert slept == [rest]
