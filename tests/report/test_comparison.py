"""Scores of every seed side by side, and tests over several benchmarks against SciPy and values by hand."""

from __future__ import annotations

import re
from types import SimpleNamespace

import numpy as np
import pytest
from scipy import stats

from graphbench.report import result_tables
from graphbench.report.comparison import across_section, common_scores, friedman, score_panels, signed_rank


def table(metric, higher, scores):
    rows = [
        SimpleNamespace(group=group(name), label=metric, scores={f"test/{metric}": SimpleNamespace(mean=value)})
        for name, value in scores.items()
    ]
    baseline = SimpleNamespace(group=None, label="ridge", scores={f"test/{metric}": SimpleNamespace(mean=9.0)})
    return SimpleNamespace(metric=metric, higher_is_better=higher, rows=[*rows, baseline])


def group(name):
    """Return a group of one run; the letter names its architecture and the number its width."""
    return SimpleNamespace(runs=[SimpleNamespace(architecture=name[0], config={"model": {"width": name[1:]}})])


TABLES = [
    table("MAE", False, {"A": 0.1, "B": 0.2, "C": 0.3}),
    table("accuracy", True, {"A": 0.9, "B": 0.8, "C": 0.8, "D": 0.1}),
    table("MAE", False, {"A": 30.0, "B": 20.0, "C": 40.0}),
]


def test_ranks_are_by_place_and_models_must_be_everywhere():
    models, scores = common_scores(TABLES)
    assert models == ["A", "B", "C"]
    assert scores.tolist() == [[0.1, -0.9, 30.0], [0.2, -0.8, 20.0], [0.3, -0.8, 40.0]]
    section = across_section(TABLES)
    assert section.notes[0] == "A 1.33; B 1.83; C 2.83."  # (1 + 1 + 2) / 3, (2 + 2.5 + 1) / 3, (3 + 2.5 + 3) / 3
    assert len(section.notes) == 4
    assert [note.partition(":")[0] for note in section.notes[2:]] == ["B and A", "C and A"]
    assert across_section(TABLES[:1]) is None
    nan = table("MAE", False, {"A": 0.1, "B": float("nan"), "C": float("nan")})
    assert across_section([TABLES[0], nan]) is None


def test_models_of_one_architecture_are_told_apart_by_their_options():
    tables = [table("MAE", False, {"A1": 1.0, "A2": 2.0}), table("RMSE", False, {"A2": 4.0, "A1": 3.0})]
    models, scores = common_scores(tables)
    assert models == ["A 1", "A 2"]
    assert scores.tolist() == [[1.0, 3.0], [2.0, 4.0]]


def test_the_tests_are_those_of_scipy():
    generator = np.random.default_rng(0)
    scores = generator.random((4, 9)) + 1
    assert friedman(scores) == pytest.approx(stats.friedmanchisquare(*scores).pvalue)
    one, other = scores[:2]
    assert signed_rank(one, other) == pytest.approx(stats.wilcoxon(2 * (one - other) / (one + other)).pvalue)
    assert np.isnan(signed_rank(one, one))
    assert signed_rank(1000 * one, 1000 * other) == pytest.approx(signed_rank(one, other)), "units do not matter"


def test_one_model_without_baselines_has_nothing_to_compare(make_run):
    assert score_panels(result_tables([make_run("a", scores=(0.7, None))])[0], "s") == []


def test_splits_have_a_panel_with_every_row(make_run):
    panels = score_panels(result_tables([make_run("a"), make_run("b", architecture="GCN")])[0], "s")
    assert len(panels) == 2
    for panel in panels:
        assert all(label in panel.figure.striptags() for label in ("GPS", "GCN", "training mean"))


def test_a_baseline_far_away_is_an_arrow_with_its_score(make_run):
    panels = score_panels(
        result_tables([make_run("a"), make_run("b", architecture="GCN", scores=(0.72, 0.91))])[0], "s"
    )
    assert [re.findall(r"\S+ →", panel.figure.striptags()) for panel in panels] == [["1.9 →"], ["1.92 →"]]
