"""The sentences on top of the page, for tables whose scores are chosen."""

from __future__ import annotations

import pytest

from graphbench.report import result_tables
from graphbench.report.verdict import verdict

BOOSTING = {"boosting": {"val": {"val/MAE": 0.5}, "test": {"test/MAE": 0.6}},
            "mean": {"val": {"val/MAE": 1.9}, "test": {"test/MAE": 1.9}}}  # fmt: skip


def said(*runs):
    (table,) = result_tables(runs)
    return " ".join(verdict(table))


@pytest.mark.parametrize(
    ("test", "relation"), [(0.9, "worse than boosting"), (0.3, "better than boosting"), (0.6, "ties with boosting")]
)
def test_the_model_stands_beside_the_best_baseline(make_run, test, relation):
    sentences = said(make_run("one", scores=(0.7, test), results={"baselines": BOOSTING}))
    assert relation in sentences
    assert ("50.0%" in sentences) == (test != 0.6)  # |0.9 - 0.6| and |0.3 - 0.6| are half of 0.6


def test_higher_may_be_better(make_run):
    results = {"metric": "AP", "higher_is_better": True, "val": {"val/AP": 0.8}, "test": {"test/AP": 0.9},
               "baselines": {"boosting": {"test": {"test/AP": 0.6}}}}  # fmt: skip
    assert "better than boosting" in said(make_run("one", results=results))


def test_what_was_not_looked_at_is_said(make_run):
    sentences = said(make_run("one", scores=(0.7, None)))
    assert "validation MAE of 0.7000" in sentences
    assert "the test split" in sentences
    assert "baselines" in sentences
    assert "seed" in sentences


def test_three_seeds_need_no_more(make_run):
    sentences = said(*(make_run(f"run-{seed}", seed=seed, scores=(0.7 + seed / 100, 0.9)) for seed in range(3)))
    assert "Not looked at" not in sentences


def two_models(make_run, others):
    runs = [make_run(f"gps-{seed}", seed=seed, scores=(0.7, 0.9 + seed / 1000)) for seed in range(3)]
    return [*runs, *(make_run(f"gcn-{seed}", seed, "GCN", (0.8, score)) for seed, score in enumerate(others))]


def test_a_difference_that_may_be_chance_is_called_so(make_run):
    assert "may be chance for GCN" in said(*two_models(make_run, (0.8, 1.1, 0.9)))


def test_a_sure_difference_is_called_so(make_run):
    assert "no other model's" in said(*two_models(make_run, (1.9, 1.902, 1.903)))


def test_equal_scores_are_a_tie(make_run):
    assert "ties with" in said(make_run("a", scores=(0.7, 0.9)), make_run("b", architecture="GCN", scores=(0.7, 0.8)))


def test_a_run_without_scores_has_no_verdict(make_run):
    assert "No model has a score" in said(make_run("one", scores=(float("nan"), None)))
