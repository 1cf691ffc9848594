"""Expected scores next to obtained ones."""

from __future__ import annotations

from graphbench.report import write_report
from graphbench.report.external import expectations
from graphbench.report.groups import group_runs
from graphbench.report.loading import load_runs

STORED = {
    "metric": "test/MAE", "obtained": 0.9, "value": 0.07, "sd": 0.004, "source": "GraphGPS, table 2", "better": -0.83,
    "obstacles": [], "verdict": "beyond two standard deviations (0.8300 worse)",
}  # fmt: skip


def lines_of(*runs):
    return expectations(group_runs(load_runs(runs)))


def test_a_line_per_run_with_an_expectation(make_run):
    runs = [make_run(f"run-{seed}", seed=seed, results={"expected": STORED}) for seed in (0, 1)]
    lines = lines_of(*runs, make_run("plain", architecture="GCN"))
    assert [line[0] for line in lines] == ["run", "GPS, seed 0", "GPS, seed 1"]
    assert lines[1][2:] == ["0.9000", "0.0700 ± 0.0040", STORED["source"], STORED["verdict"]]


def test_a_score_that_is_not_finite_and_one_without_deviation(make_run):
    _, line = lines_of(make_run("run", results={"expected": STORED | {"obtained": None, "sd": None}}))
    assert (line[0], *line[2:4]) == ("GPS", "not finite", "0.0700")
    _, line = lines_of(
        make_run("small", results={"expected": STORED | {"obtained": 1.5e-5, "value": 2e-5, "sd": 4e-6}})
    )
    assert line[2:4] == ["1.5e-05", "2e-05 ± 4e-06"]


def test_what_is_expected_tells_no_runs_apart(make_run):
    first, second = make_run("first", seed=0), make_run("second", seed=1)
    second.config.write_text(second.config.read_text() + "expected: {value: 0.07}\n")
    assert len(group_runs(load_runs([first, second]))) == 1


def test_the_page_has_the_table_and_escapes_it(make_run, tmp_path):
    write_report([make_run("run", results={"expected": STORED | {"source": "<b>us"}})], tmp_path / "page.html")
    page = (tmp_path / "page.html").read_text()
    assert "Compared with what the configuration expects" in page
    assert "&lt;b&gt;us" in page
    assert "beyond two standard deviations" in page
    write_report([make_run("plain", seed=3)], tmp_path / "other.html")
    assert "Compared with what the configuration expects" not in (tmp_path / "other.html").read_text()


def test_a_damaged_entry_is_left_out(make_run):
    assert lines_of(make_run("a", results={"expected": "0.07"}), make_run("b", seed=1, results={"expected": {}})) == []
