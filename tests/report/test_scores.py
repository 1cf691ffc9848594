"""The numbers of the result table against pandas on the result files."""

import json
import math

import pandas as pd
import pytest

from graphbench.report import result_tables
from graphbench.report.scores import Quantity, Score

SEEDS = {0: (0.71, 0.93), 1: (0.735, 0.9), 2: (0.69, 0.955)}


@pytest.fixture
def seeds(make_run):
    return [make_run(f"gps-{seed}", seed=seed, scores=scores) for seed, scores in SEEDS.items()]


def from_files(folders):
    """Return the numbers of the results files, one row per run."""
    rows = []
    for folder in folders:
        results = json.loads(folder.results.read_text())
        rows.append(
            {
                **results["val"],
                **results["test"],
                **{k: results[k] for k in ("parameters", "fit_seconds", "peak_memory_mb")},
            }
        )
        rows[-1]["graphs_per_s"] = pd.read_csv(folder.metrics)["time/graphs_per_s"].median()
    return pd.DataFrame(rows)


def test_mean_and_deviation_equal_pandas(seeds):
    (table,) = result_tables(seeds)
    row, truth = table.rows[0], from_files(seeds)
    keys = [quantity.key for quantity in table.quantities]
    assert keys[:4] == ["val/MAE", "test/MAE", "val/RMSE", "test/RMSE"]
    assert set(keys) == set(truth) - {"val/loss", "test/loss"}
    for key in keys:
        assert row.scores[key].mean == pytest.approx(truth[key].mean(), rel=1e-12), key
        assert row.scores[key].sd == pytest.approx(truth[key].std(ddof=1), rel=1e-12), key
    assert (row.seeds, row.best_epochs) == ("0, 1, 2", "2, 2, 2 of 3")


def test_cells_show_mean_and_deviation(seeds):
    (table,) = result_tables(seeds)
    cells = dict(zip(table.header(), table.lines()[0], strict=True))
    assert cells["validation MAE"] == "0.7117 ± 0.0225"
    assert cells["parameters"] == "1,234"
    assert cells["peak memory [MB]"] == "501 ± 1"
    assert cells["training speed [graphs/s]"] == "101 ± 0"


def test_models_and_baselines_are_ordered_by_validation(make_run):
    (table,) = result_tables([make_run("c", scores=(2.5, 0.1)), make_run("d", architecture="GCN", scores=(0.5, 0.8))])
    assert [(row.label, row.kind) for row in table.rows] == [
        ("GCN", "model"),
        ("training mean", "baseline"),
        ("GPS", "model"),
    ]
    assert table.best.label == "GCN"
    runs = [make_run("a", scores=(0.9, 0.1)), make_run("b", architecture="GCN", scores=(0.5, 0.8))]
    (table,) = result_tables(runs)
    assert [(row.label, row.kind) for row in table.rows] == [
        ("GCN", "model"),
        ("GPS", "model"),
        ("training mean", "baseline"),
    ]
    assert table.rows[2].scores["test/MAE"].mean == 1.92
    assert table.lines()[2][0] == "training mean (baseline)"
    assert table.lines()[2][-1] == "–"


def test_higher_scores_come_first_where_they_are_better(make_run):
    better = {"higher_is_better": True}
    runs = [
        make_run("a", scores=(0.5, None), results=better),
        make_run("b", architecture="GCN", scores=(0.9, None), results=better),
    ]
    (table,) = result_tables(runs)
    assert [row.label for row in table.rows] == ["GCN", "GPS"]
    assert table.better == "higher is better"


def test_the_test_split_is_not_looked_at_before_the_test_command(make_run):
    (table,) = result_tables([make_run("a", scores=(0.7, None))])
    assert dict(zip(table.header(), table.lines()[0], strict=True))["test MAE"] == "not looked at"


def test_a_score_of_some_seeds_says_of_how_many(make_run):
    runs = [make_run("a", seed=0), make_run("b", seed=1, scores=(0.8, None)), make_run("c", seed=2)]
    (table,) = result_tables(runs)
    assert dict(zip(table.header(), table.lines()[0], strict=True))["test MAE"] == "0.9000 ± 0.0000 (2 of 3 runs)"


def test_a_diverged_seed_is_not_averaged_away(make_run):
    (table,) = result_tables([make_run("a", seed=0), make_run("b", seed=1, scores=(float("nan"), 0.9))])
    baseline, model = table.lines()  # the baseline has a score
    assert baseline[0] == "training mean (baseline)"
    assert dict(zip(table.header(), model, strict=True))["validation MAE"] == "not finite (1 of 2 runs)"
    assert math.isnan(table.best.scores["val/MAE"].mean)


@pytest.mark.parametrize("kept", [{}, {"val": {"val/MAE": 0.6}}])
def test_a_seed_that_diverged_before_its_scores_is_not_averaged_away(make_run, kept):
    """A finished run that is resumed and diverges keeps its scores."""
    one, other = make_run("a", seed=0), make_run("b", seed=1)
    other.results.write_text(json.dumps({"diverged": "Step 2: the loss is nan. Graphs: 7."} | kept))
    (table,) = result_tables([one, other])
    cells = dict(zip(table.header(), next(line for line in table.lines() if "baseline" not in line[0]), strict=True))
    assert cells["validation MAE"] == ("0.6500 ± 0.0707" if kept else "not finite (1 of 2 runs)")


def test_every_benchmark_has_its_table(make_run):
    other = make_run("b", results={"benchmark": "ZINC"})
    tables = result_tables([make_run("a"), other])
    assert [table.benchmark for table in tables] == ["NCI", "ZINC"]
    assert all(len(table.groups) == 1 for table in tables)


def test_baselines_on_other_splits_are_told_apart(make_run):
    baselines = {"training mean": {"val": {"val/MAE": 1.5}, "test": {"test/MAE": 1.6}}}
    (table,) = result_tables(
        [make_run("a"), make_run("b", architecture="GCN", scores=(0.8, 0.9), results={"baselines": baselines})]
    )
    assert [row.label for row in table.rows if row.kind == "baseline"] == [
        "training mean, for GCN",
        "training mean, for GPS",
    ]


def test_a_baseline_that_wins_is_first_and_the_best_model_is_still_compared_with(make_run):
    good = {"baselines": {"ridge": {"val": {"val/MAE": 0.1}, "test": {"test/MAE": 0.1}}}}
    runs = [
        make_run(f"{model}-{seed}", seed=seed, architecture=model, scores=(score + seed / 100, score), results=good)
        for model, score in (("GPS", 0.7), ("GCN", 0.5))
        for seed in range(3)
    ]
    (table,) = result_tables(runs)
    assert [row.label for row in table.rows] == ["ridge", "GCN", "GPS"]
    lines = dict(zip((row.label for row in table.rows), table.lines(), strict=True))
    assert (lines["ridge"][-2], lines["GCN"][-2]) == ("–", "best")
    assert lines["GPS"][-2].startswith("+0.2000")


def test_a_unit_is_shown_where_the_results_have_one(make_run):
    (table,) = result_tables([make_run("a", results={"unit": "eV"})])
    assert table.header()[3:5] == ["validation MAE [eV]", "test MAE [eV]"]


@pytest.mark.parametrize(
    ("seconds", "heading", "shown"),
    [(19.26, "fit time [s]", "19.3"), (600, "fit time [min]", "10.0"), (36000, "fit time [h]", "10.0")],
)
def test_time_has_a_unit_that_suits_it(make_run, seconds, heading, shown):
    (table,) = result_tables([make_run("a", results={"fit_seconds": seconds})])
    assert dict(zip(table.header(), table.lines()[0], strict=True))[heading] == shown


@pytest.mark.parametrize(
    ("values", "shown"),
    [
        ((0.00001234,), "1.23e-05"),
        ((0.0,), "0.0000"),
        ((1234.56,), "1,235"),
        ((12.3456,), "12.35"),
        ((264435120.0,), "2.64e+08"),
        ((-0.5, 0.5), "0.0000 ± 0.7071"),
    ],
)
def test_numbers_have_the_decimals_they_need(values, shown):
    assert Quantity("k", "t").show(Score(values, len(values))) == shown
