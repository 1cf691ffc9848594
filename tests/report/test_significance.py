"""Paired tests against SciPy, published formulas and numbers worked out by hand."""

import json
import math

import numpy as np
import pytest
from scipy import stats

from graphbench.report import result_tables
from graphbench.report.significance import CORRECTED, PAIRED, holm, paired

GPS = [0.71, 0.735, 0.69, 0.702, 0.744]
GCN = [0.80, 0.79, 0.78, 0.701, 0.85]


def models(make_run, first=GPS, second=GCN, data=None):
    """Write runs of two models with the given test scores, one per seed; validation prefers GPS."""
    runs = []
    for name, values, val in (("GPS", first, 0.5), ("GCN", second, 0.6)):
        for seed, value in enumerate(values):
            runs.append(make_run(f"{name}-{seed}", seed=seed, architecture=name, scores=(val, value)))
    return runs


def compared(runs):
    (table,) = result_tables(runs)
    return table, next(row.comparison for row in table.rows if row.label == "GCN")


def test_p_values_and_interval_are_those_of_scipy(make_run):
    _, found = compared(models(make_run))
    truth = stats.ttest_rel(GCN, GPS)
    assert found.p == pytest.approx(truth.pvalue, rel=1e-9)
    assert (found.low, found.high) == pytest.approx(tuple(truth.confidence_interval(0.95)), rel=1e-9)
    assert found.wilcoxon == pytest.approx(stats.wilcoxon(GCN, GPS).pvalue, rel=1e-12)
    assert (found.pairs, found.over, found.test, found.key) == (5, "seeds", PAIRED, "test/MAE")
    assert found.difference == pytest.approx(sum(GCN) / 5 - sum(GPS) / 5)
    assert found.holm == found.p, "a single comparison"


def test_only_common_seeds_are_compared(make_run):
    runs = [run for run in models(make_run) if run.path.name not in ("GPS-4", "GCN-0")]
    _, found = compared(runs)
    assert found.pairs == 3
    assert found.p == pytest.approx(stats.ttest_rel(GCN[1:4], GPS[1:4]).pvalue, rel=1e-9)


def test_runs_of_one_seed_are_averaged(make_run):
    runs = [
        make_run(f"a{n}", seed, scores=(score, score)) for n, (seed, score) in enumerate([(0, 0.2), (0, 0.4), (1, 0.1)])
    ]
    others = [make_run(f"b{seed}", seed, "GCN", scores=(0.5, 0.5 + seed)) for seed in range(2)]
    _, found = compared([*runs, *others])
    assert (found.pairs, found.difference) == (2, pytest.approx((0.2 + 1.4) / 2))


def test_nothing_is_said_of_one_pair_or_a_diverged_run(make_run):
    table, found = compared([run for run in models(make_run) if run.path.name in ("GPS-0", "GCN-0", "GCN-1")])
    assert found is None
    assert not any("test" in heading and "best" in heading for heading in table.header())


def test_a_diverged_run_is_not_left_out_of_the_pairs(make_run):
    _, found = compared(models(make_run, second=[*GCN[:4], math.nan]))
    assert found is None


def test_equal_differences_have_no_p_value(make_run):
    _, found = compared(models(make_run, second=[value + 0.1 for value in GPS]))
    assert math.isnan(found.p)
    assert found.sd == 0
    assert found.low == found.high == pytest.approx(0.1)
    _, found = compared(models(lambda name, **options: make_run(f"same/{name}", **options), second=GPS))
    assert math.isnan(found.wilcoxon)


def test_validation_is_compared_before_a_test(make_run):
    runs = [make_run(f"{name}-{seed}", seed=seed, architecture=name, scores=(value + seed**2 / 9, None))
            for name, value in (("GPS", 0.5), ("GCN", 0.7)) for seed in (0, 1)]  # fmt: skip
    assert compared(runs)[1].key == "val/MAE"


def with_split(folder, sizes=(60, 20, 20), **options):
    """Set the data options and split sizes of a run, and return it."""
    import yaml

    config = yaml.safe_load(folder.config.read_text())
    config["data"]["init_args"] |= options
    folder.config.write_text(yaml.safe_dump(config))
    splits = {name: {"graphs": size} for name, size in zip(("train", "val", "test"), sizes, strict=True)}
    folder.data.write_text(json.dumps({"splits": splits}))
    return folder


def test_folds_get_the_corrected_test_and_seeds_of_one_fold_are_averaged(make_run):
    scores = {("GPS", 0.5): GPS, ("GCN", 0.6): GCN}
    runs = [
        with_split(
            make_run(f"{name}-{fold}-{seed}", seed=seed, architecture=name, scores=(val, value + seed)),
            folds=5, fold=fold,
        )
        for (name, val), values in scores.items() for fold, value in enumerate(values) for seed in (0, 1)
    ]  # fmt: skip
    table, found = compared(runs)
    differences = [b - a for a, b in zip(GPS, GCN, strict=True)]
    mean = sum(differences) / 5
    variance = sum((d - mean) ** 2 for d in differences) / 4
    t = mean / math.sqrt((1 / 5 + 20 / 60) * variance)
    assert found.p == pytest.approx(2 * stats.t.sf(t, 4), rel=1e-9)
    assert (found.pairs, found.over, found.test) == (5, "splits", CORRECTED)
    assert [row.seeds for row in table.rows[:2]] == ["0, 1; folds 0, 1, 2, 3, 4"] * 2
    assert table.over == "seeds and splits"


def test_repeated_splits_are_pairs_too(make_run):
    runs = [with_split(run, split_seed=int(run.path.name[-1])) for run in models(make_run)]
    for run in runs:  # one seed on every split
        run.config.write_text(
            run.config.read_text().replace(f"seed_everything: {run.path.name[-1]}", "seed_everything: 0")
        )
        run.results.write_text(run.results.read_text().replace(f'"seed": {run.path.name[-1]}', '"seed": 0'))
    table, found = compared(runs)
    assert (found.pairs, found.over) == (5, "splits")
    assert table.rows[0].seeds == "0; split seeds 0, 1, 2, 3, 4"


def test_repeated_folds_are_as_many_splits_with_one_correction(make_run):
    """5 x 5 folds get the test of Bouckaert and Frank (2004): all 25 differences, n2 / n1 of one split."""
    rng = np.random.default_rng(0)
    scores = {"GPS": rng.normal(0.7, 0.02, (5, 5)), "GCN": rng.normal(0.72, 0.02, (5, 5))}
    runs = [
        with_split(
            make_run(f"{name}-{repeat}-{fold}", seed=0, architecture=name, scores=(val, value)),
            sizes=(600, 200, 200), folds=5, fold=fold, split_seed=repeat,
        )
        for (name, values), val in zip(scores.items(), (0.5, 0.6), strict=True)
        for repeat, row in enumerate(values) for fold, value in enumerate(row)
    ]  # fmt: skip
    table, found = compared(runs)
    d = (scores["GCN"] - scores["GPS"]).flatten()
    x = sum(d) / 25
    variance = sum((d - x) ** 2) / 24
    t = x / math.sqrt((1 / 25 + 200 / 600) * variance)
    assert found.p == pytest.approx(2 * stats.t.sf(abs(t), 24), rel=1e-9)
    plain = stats.ttest_1samp(d, 0)
    assert found.p > plain.pvalue
    assert t == pytest.approx(plain.statistic / math.sqrt(1 + 25 / 3), rel=1e-9)
    assert (found.pairs, found.over, found.test) == (25, "splits", CORRECTED)
    assert table.rows[0].seeds == "0; folds 0, 1, 2, 3, 4; split seeds 0, 1, 2, 3, 4"


def test_corrected_p_of_three_splits_by_hand():
    """d = 1, 2, 3: mean 2, variance 1; with n_test/n_train = 1/6 the error is sqrt(1/3 + 1/6) and t = 2 sqrt(2)."""
    found = paired("test/MAE", "splits", [1.0, 2.0, 3.0], 1 / 6)
    t = 2 * math.sqrt(2)
    assert found.p == pytest.approx(1 - t / math.sqrt(2 + t * t), rel=1e-12), "Student's t with 2 degrees of freedom"


def test_holm_corrects_for_every_comparison(make_run):
    assert holm([0.01, math.nan, 0.04, 0.03, 0.005]) == pytest.approx([0.03, math.nan, 0.06, 0.06, 0.02], nan_ok=True)
    third = [
        make_run(f"GIN-{seed}", seed=seed, architecture="GIN", scores=(0.7, 0.9 + seed**2 / 50)) for seed in range(5)
    ]
    (table,) = result_tables([*models(make_run), *third])
    rows = {row.label: row.comparison for row in table.rows if row.comparison}
    expected = holm([rows["GCN"].p, rows["GIN"].p])
    assert [rows["GCN"].holm, rows["GIN"].holm] == pytest.approx(expected)


def test_tables_and_page_tell_effect_n_test_and_p(make_run):
    from graphbench.report.comparison import comparison_section
    from graphbench.report.formats import as_latex, as_markdown

    table, found = compared(models(make_run))
    cells = [dict(zip(table.header(), line, strict=True)) for line in table.lines()]
    assert cells[0]["paired test against the best"] == "–"
    assert cells[0]["test MAE less that of the best"] == "best"
    assert cells[1]["test MAE less that of the best"] == f"+{found.difference:.4f} ± {found.sd:.4f}"
    assert cells[1]["paired test against the best"] == f"p = {found.p:.2g} (paired t test, n = 5)"
    assert cells[2]["paired test against the best"] == "–", "baselines have no seeds"
    for text in (as_markdown([table]), as_latex([table])):
        assert f"p = {found.p:.2g} (paired t test, n = 5)" in text
    section = comparison_section(table, "differences")
    (note,) = section.notes
    assert note == (
        f"GCN: test MAE {found.difference:.4f} worse than GPS (95 % interval of the difference {found.low:.4f} to "
        f"{found.high:.4f}, n = 5 seeds); paired t test p = {found.p:.2g}, Wilcoxon's signed-rank test "
        f"p = {found.wilcoxon:.2g}."
    )
    assert len(section.panels) == 1
