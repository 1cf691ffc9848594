"""A study's page: every comparison states its number of pairs of runs."""

import numpy as np
from scipy import stats

from graphbench.report.study import Answer, Line, write_study

SCORES = {"GPS": [0.71, 0.735, 0.69], "GCN": [0.80, 0.79, 0.775], "GT": [0.80, 0.77]}


def lines(make_run, scores):
    return tuple(
        Line(
            label,
            runs=tuple(
                make_run(f"{label}-{seed}", seed=seed, architecture=label, scores=(value, value))
                for seed, value in enumerate(values)
            ),
            is_model=label == "GPS",
        )
        for label, values in scores.items()
    )


def test_each_row_has_its_own_number_of_pairs(make_run, tmp_path):
    write_study("GPS", [Answer("budget", "NCI", lines(make_run, SCORES))], tmp_path / "out")
    text = (tmp_path / "out" / "study.md").read_text()
    header, _, *rows = [
        [cell.strip() for cell in line.strip("|").split("|")] for line in text.split("\n") if line[:2] == "| "
    ]
    table = {row[0]: dict(zip(header, row, strict=True)) for row in rows}
    assert {label: row["pairs"] for label, row in table.items()} == {"GPS": "–", "GCN": "3", "GT": "2"}
    assert "n = 2 to 3" in text
    raw = {one: stats.ttest_rel(SCORES[one], SCORES["GPS"][: len(SCORES[one])]).pvalue for one in ("GCN", "GT")}
    assert raw["GCN"] < raw["GT"]
    for label, p in {"GCN": 2 * raw["GCN"], "GT": max(2 * raw["GCN"], raw["GT"])}.items():
        assert table[label]["p (Holm)"] == f"p = {p:.2g}"
    difference = np.subtract(SCORES["GT"], SCORES["GPS"][:2])
    assert table["GT"]["test less GPS"].startswith(f"{difference.mean():+.4g} ± {difference.std(ddof=1):.2g}")


def test_equal_numbers_are_said_once(make_run, tmp_path):
    write_study(
        "GPS", [Answer("budget", "NCI", lines(make_run, {**SCORES, "GT": [0.8, 0.77, 0.78]}))], tmp_path / "out"
    )
    assert "n = 3)" in (tmp_path / "out" / "study.md").read_text()


def test_a_reason_without_a_step_to_measure_ends_once(tmp_path):
    line = Line("GPS", missing=("It cannot be built.",))
    write_study("GPS", [Answer("cost", "NCI", (line,))], tmp_path / "out")
    assert "- GPS: It cannot be built.\n" in (tmp_path / "out" / "study.md").read_text()
