"""The public functions of `graphbench.report`."""

import pandas as pd
import pytest

from graphbench.errors import BadInput
from graphbench.report import write_comparison, write_report


def test_a_comparison_is_a_page_and_three_tables(make_run, tmp_path):
    folder = tmp_path / "new" / "out"
    written = write_comparison([make_run("a"), make_run("b", seed=1)], folder)
    assert [path.name for path in written] == ["report.html", "table.md", "table.csv", "table.tex"]
    assert sorted(path.name for path in folder.iterdir()) == sorted(path.name for path in written)
    page = (folder / "report.html").read_text()
    assert page.startswith("<!DOCTYPE html>")
    assert list(pd.read_csv(folder / "table.csv")["model"]) == ["GPS", "training mean"]
    assert "0.7000 ± 0.0000" in (folder / "table.md").read_text()
    assert r"$\pm$" in (folder / "table.tex").read_text()


def test_a_report_needs_a_run(tmp_path):
    with pytest.raises(BadInput, match="at least one run"):
        write_report([], tmp_path / "report.html")


def test_a_report_writes_one_file(make_run, tmp_path):
    run = make_run("a")
    before = set(tmp_path.rglob("*"))
    write_report([run], run.report)
    assert set(tmp_path.rglob("*")) - before == {run.report}
