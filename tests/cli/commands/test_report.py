"""`graphbench report` on a finished run."""

import json
import shutil

import pandas as pd
import pytest

from graphbench.cli import main


@pytest.fixture(scope="module")
def compared(finished_run, tmp_path_factory):
    """Return the folder with the report of one finished run."""
    folder = tmp_path_factory.mktemp("report") / "out"
    assert main(["report", str(finished_run), "--output", str(folder)]) == 0
    return folder


def test_page_and_tables_are_written(compared):
    assert sorted(path.name for path in compared.iterdir()) == ["report.html", "table.csv", "table.md", "table.tex"]


def test_the_table_holds_what_the_fit_recorded(compared, finished_run):
    results = json.loads((finished_run / "results.json").read_text())
    row = pd.read_csv(compared / "table.csv").iloc[0]
    assert row["model"] == "GPS"
    assert row["val/MAE mean"] == pytest.approx(results["val"]["val/MAE"], rel=1e-12)
    assert row["parameters mean"] == results["parameters"]
    assert row["graphs_per_s mean"] == pytest.approx(
        pd.read_csv(finished_run / "metrics.csv")["time/graphs_per_s"].median()
    )


def test_the_page_of_a_real_run_has_nothing_to_complain_of(compared):
    page = (compared / "report.html").read_text()
    assert "Missing or broken" not in page
    assert "GPS on Molecules" in page
    assert page.count("<figure>") >= 3


def test_a_folder_without_a_run_is_refused(tmp_path, capsys):
    assert main(["report", str(tmp_path), "--output", str(tmp_path / "out")]) == 1
    assert "is not the folder of a run" in capsys.readouterr().err
    assert not (tmp_path / "out").exists()


def test_its_own_output_is_skipped(compared, finished_run, tmp_path, capsys):
    folder = compared if not hasattr(compared, "path") else compared.path
    assert main(["report", str(finished_run), str(folder), "--output", str(tmp_path / "again")]) == 0
    assert (tmp_path / "again" / "table.csv").read_text() == (folder / "table.csv").read_text()
    assert main(["report", str(folder), "--output", str(tmp_path / "none")]) == 1
    assert "this is the output of `graphbench report`" in capsys.readouterr().err


def test_a_file_is_no_output_folder(finished_run, tmp_path, capsys):
    (tmp_path / "taken").write_text("mine")
    assert main(["report", str(finished_run), "--output", str(tmp_path / "taken")]) == 1
    assert "name a folder" in capsys.readouterr().err
    assert (tmp_path / "taken").read_text() == "mine"
    assert main(["report", str(finished_run), "--output", str(tmp_path / "page.html")]) == 1
    assert "name a folder" in capsys.readouterr().err
    assert not (tmp_path / "page.html").exists()


def test_a_run_is_reported_into_its_own_folder(finished_run, tmp_path, capsys):
    shutil.copytree(finished_run, tmp_path / "one")
    assert main(["report", str(tmp_path / "one")]) == 0
    assert "GPS on Molecules" in (tmp_path / "one" / "report.html").read_text()
    assert (tmp_path / "one" / "table.csv").is_file()
    assert main(["report", str(tmp_path / "one"), str(finished_run)]) == 1
    assert "--output DIR is missing" in capsys.readouterr().err


@pytest.mark.parametrize("words", [["--run", "{}"], ["--run={}"], ["--output", "out", "--run", "{}"]])
def test_a_run_may_be_named_as_in_other_commands(words, compared, finished_run, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    given = [word.format(finished_run) for word in words]
    assert main(["report", *given, *([] if "--output" in words else ["--output", "out"])]) == 0
    assert (tmp_path / "out" / "table.csv").read_text() == (compared / "table.csv").read_text()


def test_a_run_must_be_named(finished_run, capsys):
    for arguments in ([], ["--output", "x"]):
        assert main(["report", *arguments]) == 1
        assert "graphbench report needs RUN" in capsys.readouterr().err
