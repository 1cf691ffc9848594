"""Records of runs: their contents, and files that are refused."""

from __future__ import annotations

import csv
import json
from pathlib import Path

import pytest

from graphbench.errors import BadInput
from graphbench.experiments import Record, Training, read_records, record_of, write_records, write_together
from graphbench.experiments.records import MOST_POINTS, curve_of

PLUGINS = Path(__file__).parents[2] / "plugins"
KNOWN = {"experiment": "trial", "name": "GPS", "recipe": ["gps/zinc"], "seed": 0, "metric": "MAE", "test": 0.07}
SCORES = {
    "metric": "MAE", "higher_is_better": False, "data": "local", "parameters": 423_717, "epochs": 10, "steps": 3130,
    "benchmark": "ZINC", "fit_seconds": 12.5, "val": {"val/MAE": 0.4}, "test": {"test/MAE": 0.5},
}  # fmt: skip
ENVIRONMENT = {
    "started": "2026-11-22T09:00:00+00:00", "folder": "/home/somebody", "processor": "EPYC", "torch_threads": 1,
    "commit": "abc", "packages": {"torch": "2.13.0"},
}  # fmt: skip


def leave(folder, metrics=""):
    """Write the files of a finished training."""
    folder.mkdir()
    (folder / "results.json").write_text(json.dumps(SCORES))
    (folder / "environment.json").write_text(json.dumps(ENVIRONMENT))
    (folder / "metrics.csv").write_text(metrics)
    return folder


@pytest.mark.parametrize(
    ("change", "told"),
    [
        ({"epoch": 3}, "has no key 'epoch'"),
        ({"recipe": "gps/zinc"}, "recipe must be a list"),
        ({"test": "0.07"}, "test must be a number or null"),
    ],
)
def test_what_is_no_record_is_refused_with_its_file(tmp_path, change, told):
    (tmp_path / "one.json").write_text(json.dumps([KNOWN, KNOWN | change]))
    with pytest.raises(BadInput, match=rf"one\.json.*{told}"):
        read_records([tmp_path])


@pytest.mark.parametrize(("text", "told"), [("{", "not valid JSON"), ("[1]", "must contain records"), ("{}", "lacks")])
def test_a_damaged_file_is_named(tmp_path, text, told):
    (tmp_path / "one.json").write_text(text)
    with pytest.raises(BadInput, match=told):
        read_records([tmp_path])


def test_a_missing_folder_is_named(tmp_path):
    with pytest.raises(BadInput, match="there is no such folder"):
        read_records([tmp_path / "records"])


def test_a_finished_run_becomes_a_record_and_is_read_back(tmp_path):
    metrics = "epoch,train/MAE,val/MAE\n0,0.7,\n0,,0.71\n1,0.8,0.81\n1,0.85,\n2,nan,0.9\n"
    folder = leave(tmp_path / "run", metrics)
    recipe = PLUGINS / "baselines" / "configs" / "gps" / "zinc.yaml"
    training = Training("gps", 3, [recipe, tmp_path / "mine.yaml", {"trainer": {}}])
    record = record_of(training, folder, {"experiment": "trial", "name": "GPS", "full": False})
    (path,) = write_records({"gps-3.json": record}, tmp_path / "records")
    assert str(tmp_path) not in path.read_text()
    assert "/home" not in path.read_text()
    (read,) = read_records([tmp_path / "records"])
    assert read == record
    assert read.recipe == ("gps/zinc", "mine.yaml", "a configuration of the script")
    assert (read.seed, read.val, read.test, read.full, read.seconds) == (3, 0.4, 0.5, False, 12.5)
    assert (read.date, read.hardware, read.versions) == ("2026-11-22", "EPYC, 1 threads", "torch 2.13.0")
    assert read.curve == (
        {"epoch": 1, "train": 0.7, "val": 0.71}, {"epoch": 2, "train": 0.85, "val": 0.81}, {"epoch": 3, "val": 0.9},
    )  # fmt: skip


def test_records_of_one_file_are_read_back_in_their_order(tmp_path):
    known = Record("trial", "GPS", ("gps/zinc",), 0, "MAE", 0.5, curve=({"epoch": 1, "val": 0.6},))
    lacking = Record("trial", "Übung", ("gps/zinc",), 1, "MAE", None)
    write_together([lacking, known], tmp_path / "new" / "trial.json")
    assert read_records([tmp_path / "new"]) == [lacking, known]
    assert (tmp_path / "new" / "trial.json").read_text(encoding="utf-8").count("\n") == 4


def test_what_a_run_does_not_say_is_null(tmp_path):
    folder = leave(tmp_path / "run")
    (folder / "environment.json").unlink()
    (folder / "metrics.csv").unlink()
    record = record_of(Training("gps", 0, ["gps/zinc"]), folder, {"experiment": "trial", "name": "GPS"})
    assert (record.hardware, record.versions, record.commit, record.date) == (None, None, None, None)
    assert (record.full, record.curve) == (None, ())


def test_a_long_curve_is_thinned_and_keeps_its_end(tmp_path):
    rows = "".join(f"{epoch},{epoch / 1000}\n" for epoch in range(999))
    curve = curve_of(leave(tmp_path / "run", f"epoch,val/MAE\n{rows}"), "MAE")
    assert len(curve) <= MOST_POINTS + 1
    assert curve[-1] == {"epoch": 999, "val": 0.998}


@pytest.mark.parametrize(
    ("plugin", "table", "column"),
    [
        ("sfi-former", "pattern", "test"),
        ("sft", "runs", "test"),
        ("deepgraph", "scores", "test"),
        ("linear-transformer", "table-2", "test_MAE"),
        ("linear-transformer", "figure-1", "log_loss"),
        ("linear-transformer", "figure-1-adamw", "log_loss"),
        ("linear-transformer", "figure-1-published", "log_loss"),
        ("linear-transformer", "figure-2", "log_loss"),
        ("linear-transformer", "figure-15", "log_loss"),
    ],
)
def test_every_row_of_a_table_of_results_has_its_record(plugin, table, column):
    folder = PLUGINS / plugin / "results"
    held = [(one.parameters, one.seed, one.test) for one in read_records([folder / "records"])]
    with (folder / f"{table}.csv").open(newline="", encoding="utf-8") as file:
        rows = list(csv.DictReader(file))
    assert rows
    for row in rows:  # some tables have four digits
        score = pytest.approx(float(row[column]), rel=2e-4, abs=6e-6)
        assert (int(row["parameters"]), int(row["seed"]), score) in held, row
