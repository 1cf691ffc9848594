"""States of units from files only: which are alive, which failed and why, and how far a run is."""

from __future__ import annotations

import json
import os
import socket
import subprocess
import time

import pytest

from graphbench.errors import BadInput, CorruptData
from graphbench.experiments import status
from graphbench.experiments.launchers.launching import ROOM
from graphbench.experiments.launchers.units import note_begin, note_end
from graphbench.experiments.status import read_status, summarize, write_plan, write_trials


def run(folder, *, epochs=(), of=9, results=None, holder=None):
    """Write the folder of a run as `fit` leaves it after some epochs."""
    folder.mkdir(parents=True)
    (folder / "config.yaml").write_text(
        f"# a\nseed_everything: 0\ntrainer:\n  devices: 1\n  max_epochs: {of}\ndata: {{}}\n"
    )
    rows = "".join(f",{epoch + 1}.0,0.5\n,,\n" for epoch in epochs)
    (folder / "metrics.csv").write_text(f"lr,epoch,train/loss\n{rows}")
    if results is not None:
        (folder / "results.json").write_text(json.dumps(results))
    if holder is not None:
        (folder / ".holder").write_text(json.dumps(holder))
    return folder


def holder(host=None, process=None, since="2020-01-01T00:00:00+00:00"):
    return {"host": host or socket.gethostname(), "process": process or os.getpid(), "since": since}


def dead_process():
    process = subprocess.Popen(["true"])
    process.wait()
    return process.pid


def states(folder):
    return {unit.name: unit.state for unit in read_status(folder)}


def test_every_state_of_a_sweep(tmp_path):
    score = {"metric": "MAE", "val": {"val/MAE": 1.5}, "test": {"test/MAE": 2.25}, "fit_seconds": 7.5}
    runs, logs = tmp_path / "runs", tmp_path / "logs"
    run(runs / "done-0", epochs=range(9), results=score)
    run(runs / "runs-0", epochs=[0, 1], holder=holder())
    run(runs / "killed-0", epochs=[0], holder=holder(process=dead_process()))
    run(runs / "untested-0", epochs=range(9), results={"metric": "MAE", "val": {"val/MAE": 1.0}})
    run(runs / "diverged-0", results={"diverged": "train/loss is nan"})
    run(runs / "broken-0")
    logs.mkdir()
    (logs / "broken-0.log").write_text("".join(f"line {number}\n" for number in range(900)))
    note_begin(logs / "broken-0.json")
    note_end(logs / "broken-0.json", 1)
    note_begin(logs / "begins-0.json")
    note_end(logs / "ended-0.json", 143)
    (tmp_path / ROOM).mkdir()
    (tmp_path / ROOM / "jobs.json").write_text(json.dumps({"7_1": ["later-0"]}))
    names = ["done-0", "runs-0", "killed-0", "untested-0", "diverged-0", "broken-0", "begins-0", "ended-0", "later-0"]
    write_plan(tmp_path, [(name, [runs / name]) for name in names])
    run(runs / "beside-1", results=score)
    units = {unit.name: unit for unit in read_status(tmp_path)}
    assert {name: unit.state for name, unit in units.items()} == {
        "done-0": "done", "runs-0": "running", "killed-0": "stopped", "untested-0": "stopped", "diverged-0": "failed",
        "broken-0": "failed", "begins-0": "running", "ended-0": "stopped", "later-0": "waiting", "beside-1": "done",
    }  # fmt: skip
    assert (units["done-0"].seconds, units["done-0"].epoch, units["done-0"].note) == (7.5, "9 of 9", "test/MAE 2.25")
    assert units["runs-0"].epoch == "2 of 9"
    assert units["runs-0"].seconds == pytest.approx(time.time() - 1577836800, abs=60)
    assert units["broken-0"].lines == tuple(f"line {number}" for number in range(895, 900))
    assert "train/loss is nan" in units["diverged-0"].note
    assert "7_1" in units["later-0"].note
    assert summarize(list(units.values())) == "10 units: 2 done, 2 running, 1 waiting, 2 failed, 3 stopped"


def test_a_run_of_another_machine_lives_by_its_signs(tmp_path):
    lonely, launched = run(tmp_path / "runs" / "a-0"), run(tmp_path / "runs" / "b-0", holder=holder("elsewhere", 1))
    (lonely / ".holder").write_text(json.dumps(holder("elsewhere", 1)))
    record = tmp_path / "logs" / "b-0.json"
    record.parent.mkdir()
    record.write_text(json.dumps({"host": "elsewhere", "process": 1, "began": holder()["since"]}))
    assert states(tmp_path) == {"a-0": "running", "b-0": "running"}
    long_ago = time.time() - 7200
    for path in (record, *lonely.iterdir(), *launched.iterdir()):
        os.utime(path, (long_ago, long_ago))
    units = {unit.name: unit for unit in read_status(tmp_path)}
    assert units["a-0"].state == "running", "it may be alive"
    assert "elsewhere" in units["a-0"].note
    assert "120 minutes" in units["a-0"].note
    assert units["b-0"].state == "stopped", "its job would have given a sign"


def test_a_unit_with_several_starts_has_the_folder_that_was_chosen(tmp_path):
    folders = [tmp_path / "runs" / f"a-{seed}" for seed in range(3)]
    write_plan(tmp_path, [("a-0", folders)])
    assert states(tmp_path) == {"a-0": "waiting"}
    run(folders[2], results={"metric": "MAE", "test": {}})
    run(tmp_path / "trials" / "a-1", results={"metric": "MAE", "test": {}})
    assert states(tmp_path) == {"a-0": "done", "a-1": "done"}


def test_trials_of_a_study(tmp_path):
    optuna = pytest.importorskip("optuna")
    from graphbench.experiments.tuning.storage import open_storage

    storage, name = open_storage(tmp_path, None)
    study = optuna.create_study(storage=storage, study_name=name)
    trials = [study.ask() for _ in range(5)]
    study.tell(trials[0], 1.0)
    trials[1].set_user_attr("pruned_in_epoch", 2)
    study.tell(trials[1], state=optuna.trial.TrialState.PRUNED)
    trials[2].set_user_attr("problem", "out of memory")
    study.tell(trials[2], state=optuna.trial.TrialState.FAIL)
    for number in range(5):
        run(tmp_path / "trials" / str(number), epochs=[0, 1], holder=holder() if number == 3 else None)
    write_trials(tmp_path, 7)
    before = {path: path.stat().st_mtime_ns for path in tmp_path.rglob("*")}
    units = read_status(tmp_path)
    assert [unit.state for unit in units] == ["done", "done", "failed", "running", "stopped", "waiting", "waiting"]
    assert [unit.note for unit in units[1:3]] == ["pruned after epoch 3", "out of memory"]
    assert {path: path.stat().st_mtime_ns for path in tmp_path.rglob("*")} == before, "nothing is written"


def test_shares_of_a_prediction(tmp_path):
    def note(number, count=4, **notes):
        (tmp_path / f".share-{number}-of-{count}.json").write_text(json.dumps(holder() | notes))

    (tmp_path / ROOM).mkdir()
    (tmp_path / ROOM / "jobs.json").write_text(json.dumps({"7_0": ["share-1-of-4"], "7_1": ["share-2-of-4"]}))
    assert states(tmp_path) == dict.fromkeys(("1/4", "2/4", "3/4", "4/4"), "waiting"), "all are queued"
    note_end(tmp_path / ROOM / "share-3-of-4.json", 1)
    (tmp_path / ROOM / "share-3-of-4.log").write_text("no such column\n")
    assert states(tmp_path)["3/4"] == "failed", "before it opened the folder"
    note(1, 2, done=True)
    os.utime(tmp_path / ".share-1-of-2.json", (0, 0))
    note(1, done=True, seconds=5.0)
    note(2)
    note(4, process=dead_process())
    for part in (0, 1, 4, 8):
        (tmp_path / f"part-{part:06}.parquet").touch()
    units = {unit.name: unit for unit in read_status(tmp_path)}
    assert [(name, unit.state) for name, unit in units.items()] == [
        ("1/4", "done"), ("2/4", "running"), ("3/4", "failed"), ("4/4", "stopped"),
    ]  # fmt: skip
    assert [unit.note.partition(" ")[0] for unit in units.values()] == ["3", "1", "0", "0"]
    assert units["3/4"].lines == ("no such column",)
    note_begin(tmp_path / ROOM / "share-4-of-4.json")
    assert states(tmp_path)["4/4"] == "running", "its job has not opened the folder yet"
    (tmp_path / ".share-4-of-4.json").unlink()
    note_end(tmp_path / ROOM / "share-4-of-4.json", 128 + 15)
    assert states(tmp_path)["4/4"] == "stopped", "before it opened the folder"


def test_a_study_in_a_database_shows_what_its_trials_left(tmp_path):
    (tmp_path / "storage.json").write_text('{"storage": "postgresql://host/name", "study": "a"}')
    run(tmp_path / "trials" / "0", results={"metric": "MAE", "val": {"val/MAE": 0.5}})
    run(tmp_path / "trials" / "1")
    assert states(tmp_path) == {"0": "done", "1": "stopped"}


def test_a_single_run_is_a_unit(tmp_path):
    run(tmp_path / "mine", epochs=[0, 1, 2], holder=holder())
    (unit,) = read_status(tmp_path / "mine")
    assert (unit.name, unit.state, unit.epoch) == ("mine", "running", "3 of 9")


@pytest.mark.parametrize("torn", [b"", b"lr,epo", b"lr,epoch,loss\n", b"lr,epoch,loss\n0.1,", b"\xff\xfe\n\n"])
def test_a_table_that_is_being_written_has_no_epoch(tmp_path, torn):
    run(tmp_path / "mine")
    (tmp_path / "mine" / "metrics.csv").write_bytes(torn)
    assert read_status(tmp_path / "mine")[0].epoch == ""


def test_what_another_call_has_planned_is_still_waited_for(tmp_path):
    """Two commands share a folder; a table is tried with a few steps before it is trained."""
    runs, ended = tmp_path / "runs", {"metric": "MAE", "val": {"val/MAE": 1.0}}
    write_plan(tmp_path, [(name, [runs / name]) for name in ("a-0", "b-0")])
    write_plan(tmp_path, [("b-0", [runs / "b-0"]), ("tried-0", [tmp_path / "trials" / "tried-0"])], end="val")
    write_plan(tmp_path, [("c-0", [runs / "c-0"])])
    run(tmp_path / "trials" / "tried-0", results=ended)
    run(runs / "b-0", results=ended)
    run(runs / "c-0", results=ended)
    units = {unit.name: (unit.state, unit.note) for unit in read_status(tmp_path)}
    assert units == {
        "c-0": ("stopped", "resumes with the same command"), "b-0": ("done", "val/MAE 1"),
        "tried-0": ("done", "val/MAE 1"), "a-0": ("waiting", "for another call"),
    }  # fmt: skip
    write_plan(tmp_path, [("a-0", [runs / "a-0"])])
    assert {unit.name: unit.note for unit in read_status(tmp_path)}["a-0"] == ""
    (tmp_path / status.PLAN).write_text('{"units": [{"name": "old-0", "folders": ["runs/old-0"]}], "end": "val"}')
    run(runs / "old-0", results=ended)
    assert states(tmp_path)["old-0"] == "done", "as earlier versions wrote it"
    (tmp_path / status.PLAN).write_text("{")
    write_plan(tmp_path, [("a-0", [runs / "a-0"])])
    assert states(tmp_path)["a-0"] == "waiting"


def test_what_is_no_folder_of_units_is_refused(tmp_path):
    with pytest.raises(BadInput, match="no such folder"):
        read_status(tmp_path / "nothing")
    with pytest.raises(BadInput, match=str(tmp_path)):
        read_status(tmp_path)
    (tmp_path / status.PLAN).write_text("{")
    with pytest.raises(CorruptData, match=r"plan\.json"):
        read_status(tmp_path)


def test_a_worker_that_failed_is_shown_beside_trials_that_nobody_runs(tmp_path):
    (tmp_path / "storage.json").write_text('{"storage": "postgresql://host/name", "study": "a"}')
    write_trials(tmp_path, 2)
    (tmp_path / "logs").mkdir()
    for number, code in enumerate((1, 0, 128 + 15)):
        note_begin(tmp_path / "logs" / f"worker-{number}.json")
        note_end(tmp_path / "logs" / f"worker-{number}.json", code)
    (tmp_path / "logs" / "worker-0.log").write_text("no module named optuna\n")
    assert states(tmp_path) == {"0": "waiting", "1": "waiting", "worker-0": "failed"}
    assert read_status(tmp_path)[-1].lines == ("no module named optuna",)
    run(tmp_path / "trials" / "1")
    assert [*states(tmp_path).items()][:2] == [("0", "waiting"), ("1", "stopped")], "the first is still starting"
