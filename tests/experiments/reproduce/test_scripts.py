"""Scripts as jobs: they run once, their CSV fills cells and records, and the ledger judges it."""

from __future__ import annotations

import pytest

from graphbench.cli import main
from graphbench.experiments.records import read_records
from graphbench.experiments.reproduce import scripts as module
from graphbench.experiments.reproduce.ledger import Ledger
from graphbench.experiments.reproduce.obtained import obtain
from graphbench.experiments.reproduce.plan import Request, coverage
from graphbench.experiments.reproduce.scripts import measured, run_missing, scripts
from graphbench.experiments.reproduce.tables import read_table, tables
from graphbench.runs.holding import claimed

TABLE = """
title: Two layers
paper: Somebody, 2026
place: table 2
printed: 4
script: python measure.py --output DIR
csv: found.csv
columns:
  q: {name: Q}
  s: {name: seconds, differs: seconds of another machine}
rows:
  half: {name: 50%, cells: {q: "0.134", s: "3.0"}}
  whole: {name: 100%, cells: {q: "0.268", s: "3.0"}}
"""
SCRIPT = """
import pathlib, sys
folder = pathlib.Path(sys.argv[2])
with (folder / "runs.txt").open("a") as file:
    file.write("run ")
(folder / "found.csv").write_text("row,q,s\\nhalf,0.1341,7\\nwhole,0.3,\\n")
"""


@pytest.fixture
def table(tmp_path, monkeypatch):
    """Write a table and its script into a clone, and read the table."""
    path = tmp_path / "clone" / "tables" / "table-2.yaml"
    path.parent.mkdir(parents=True)
    path.write_text(TABLE, encoding="utf-8")
    (tmp_path / "clone" / "measure.py").write_text(SCRIPT, encoding="utf-8")
    monkeypatch.setattr(module, "table_files", lambda: {"somebody/table-2": (path, "somebody")})
    return read_table(path, "somebody/table-2")


def never(arguments):
    pytest.fail(f"resolved {arguments}")


def test_a_script_runs_once_and_fills_its_cells(table, tmp_path):
    (script,) = scripts(table, table.cells)
    for _ in range(2):
        assert run_missing([script], tmp_path) == []
    assert (script.folder(tmp_path) / "runs.txt").read_text() == "run "
    found = {
        (one.cell.row, one.cell.column): one for one in obtain(table, table.cells, Request(), tmp_path, never, never)
    }
    assert {place: (one.mean, one.verdict) for place, one in found.items()} == {
        ("half", "q"): (0.1341, "met"),
        ("half", "s"): (7.0, "not comparable: seconds of another machine"),
        ("whole", "q"): (0.3, "not met"),
        ("whole", "s"): (None, ""),
    }


def test_nothing_is_obtained_before_it_runs(table, tmp_path):
    assert all(one.mean is None for one in obtain(table, table.cells, Request(), tmp_path, never, never))
    assert measured(table, table.cells, tmp_path) == []


def test_records_keep_what_was_measured_and_the_ledger_judges_it(table, tmp_path):
    run_missing(scripts(table, table.cells), tmp_path)
    records = measured(table, table.cells, tmp_path)
    assert [(one.name, one.column, one.test) for one in records] == [
        ("50%", "Q", 0.1341), ("50%", "seconds", 7.0), ("100%", "Q", 0.3),
    ]  # fmt: skip
    lines = Ledger([table], records).lines
    assert [line.status for line in lines] == ["met", "protocol differs", "not met", "script"]
    assert [line.status for line in Ledger([table], []).lines] == ["script"] * 4


def test_a_script_that_fails_or_is_not_here_leaves_the_others(table, tmp_path, caplog):
    (script,) = scripts(table, table.cells)
    (tmp_path / "clone" / "measure.py").write_text("raise SystemExit(3)", encoding="utf-8")
    assert run_missing([script], tmp_path) == [script]
    (tmp_path / "clone" / "measure.py").unlink()
    caplog.clear()
    assert run_missing([script], tmp_path) == []
    assert "only a clone of the repository has this script" in caplog.text


def test_the_line_of_what_is_left_out_counts_scripts(table):
    assert coverage(table.cells, "full").endswith("0 are counted or looked up; 4 are measured by scripts.")
    assert coverage(table.cells, "smoke").endswith("0 are counted or looked up; 4 are left out: 4 script.")


def test_every_table_that_names_a_csv_has_its_script_here():
    found = [script for table in tables().values() for script in scripts(table, table.cells)]
    assert {script.table for script in found} >= {"sft/table-6", "sft/table-7", "sft/figure-5"}
    assert all(script.root is not None and "DIR" in script.command.split() for script in found)


@pytest.mark.slow
def test_table_7_of_sft_is_measured_by_one_command(tmp_path):
    """Most parts meet the printed values; two parts, which the table says differ, get no verdict."""
    output, kept = tmp_path / "output", tmp_path / "records"
    assert main(["reproduce", "sft/table-7", "--output", str(output), "--records", str(kept)]) == 0
    records = read_records([kept])
    assert len(records) == 45
    lines = [line for line in Ledger(tables().values(), records).lines if line.table.name == "sft/table-7"]
    assert sum(line.status == "protocol differs" for line in lines) == 10
    assert sum(line.status == "met" for line in lines) > 20


def test_a_script_that_another_process_runs_is_left_to_it(table, tmp_path, caplog):
    (script,) = scripts(table, table.cells)
    with claimed(script.folder(tmp_path)):
        assert run_missing([script], tmp_path) == [script]
    assert "works on it" in caplog.text
    assert run_missing([script], tmp_path) == []
    assert (script.folder(tmp_path) / "runs.txt").read_text() == "run "
