"""The sentences at the top of the page, for chosen scores."""

from __future__ import annotations

import re

import pytest

from graphbench.experiments.sweeps.plan import parse_numbers
from graphbench.report import result_tables, write_report
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


def test_of_many_models_a_sentence_names_the_first(make_run):
    runs = [make_run(f"{heads}-{seed}", num_heads=heads, seed=seed, scores=(heads / 10 + 0.1, None))
            for heads in range(20) for seed in range(2 if heads == 0 else 1)]  # fmt: skip
    assert "of GPS (num_heads 1), " in (sentences := said(*runs))
    assert "GPS (num_heads 12), 7 more changes with the seed" in sentences


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
    steady = [make_run(f"c-{seed}", seed, "GCN", scores=(0.5, 0.6)) for seed in range(2)]
    varying = [make_run(f"d-{seed}", seed, scores=(score, 0.6)) for seed, score in enumerate((0.4, 0.6))]
    assert "ties with" in said(*steady, *varying), "the deviation is no part of the score"


def test_a_run_without_scores_has_no_verdict(make_run):
    assert "No model has a score" in said(make_run("one", scores=(float("nan"), None)))


def test_only_models_with_a_score_are_counted(make_run):
    runs = [make_run("a"), make_run("b", architecture="GCN"), make_run("c", architecture="SAT", scores=(0.8, 1.0))]
    runs[1].results.unlink()  # still training, or killed
    assert "of 2 models" in said(*runs)
    assert "Without a finite validation MAE: GCN" in said(*runs)
    diverged = make_run("d", architecture="SFT", scores=(float("nan"), float("nan")))
    assert "best" not in said(runs[0], diverged).replace("best baseline", "")


def test_untested_models_are_named(make_run):
    runs = [make_run("a", scores=(0.3, None)), make_run("b", architecture="GCN", scores=(0.4, 0.5))]
    assert "the test split by GPS" in said(*runs)
    assert "the test split (" in said(runs[0], make_run("e", architecture="SFT", scores=(0.4, None)))
    runs = [make_run("c", scores=(0.7, 0.9)), make_run("d", architecture="SAT", scores=(0.8, None))]
    assert "the test split by SAT" in said(*runs)


def test_no_model_is_the_best_where_none_was_validated(make_run):
    runs = [make_run(name, architecture=name, results={"val": {}}) for name in ("GPS", "GCN")]
    assert "best" not in said(*runs)
    (table,) = result_tables(runs)
    assert "last checkpoint" in table.basis
    assert not table.comparisons


def test_models_that_are_not_compared_are_named_and_pairs_are_of_all(make_run):
    runs = two_models(make_run, (1.9, 1.902, 1.903))
    sentences = said(*runs, make_run("sat", 0, "SAT", (0.9, 1.5)))
    assert "for GCN (p below" in sentences
    assert "Not compared, with fewer than two scores in common: SAT" in sentences
    sft = [make_run(f"sft-{seed}", seed, "SFT", (0.8, score)) for seed, score in enumerate((0.8, 1.1))]
    assert "Over 2 to 3 seeds" in said(*runs, *sft)


def test_checkpoints_that_another_metric_chose_are_named(make_run, tmp_path):
    runs = [make_run("a"), make_run("b", architecture="GCN", results={"metric": "RMSE"})]
    write_report(runs, tmp_path / "report.html")
    page = (tmp_path / "report.html").read_text()
    assert "GCN: its checkpoint was chosen by validation RMSE" in page
    assert "best validation MAE:" not in page
    assert "best validation score" in page


def test_the_advice_trains_several_seeds(make_run):
    (seeds,) = re.findall(r"--seeds ([\w-]+)", said(make_run("one")))
    assert len(parse_numbers("--seeds", seeds)) == 3
