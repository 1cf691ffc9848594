"""Run folders, whole, broken and incomplete; metrics.csv as curves, against numbers placed by hand."""

from __future__ import annotations

import numpy as np
import pandas as pd
import pytest

from graphbench.cli import main
from graphbench.report.loading import curves_of, load_run, load_runs
from graphbench.runs.tables import load_table

TEXT = """step,epoch,val/MAE,train/loss_step,lr/rest
0,,,,0.1
4,0,,2.0,
9,0,0.9,1.5,
10,,,,0.05
14,1,,1.0,
19,1,nan,0.5,
24,2,,0.4,
29,2,inf,0.3,
"""


@pytest.fixture
def curves(tmp_path):
    path = tmp_path / "metrics.csv"
    path.write_text(TEXT)
    return curves_of(load_table(path))


def test_epoch_scores_lie_on_finished_epochs(curves):
    assert list(curves["val/MAE"].index) == [1, 2, 3]
    assert curves["val/MAE"][1] == 0.9


def test_not_finite_is_kept_apart_from_not_logged(curves):
    values = curves["val/MAE"].to_numpy()
    assert len(values) == 3
    assert np.isnan(values[1])
    assert np.isinf(values[2])


def test_what_is_logged_within_an_epoch_lies_between_epochs(curves):
    assert list(curves["train/loss_step"].index) == [0.5, 1.0, 1.5, 2.0, 2.5, 3.0]
    assert list(curves["train/loss_step"]) == [2.0, 1.5, 1.0, 0.5, 0.4, 0.3]


def test_what_has_no_epoch_is_placed_by_its_step(curves):
    assert list(curves["lr/rest"].index) == [0.1, 1.1]


def test_an_epoch_cut_short_does_not_stretch_the_axis(tmp_path):
    (tmp_path / "m.csv").write_text("step,epoch,x\n9,0,1\n19,1,2\n22,2,3\n")
    (tmp_path / "n.csv").write_text("step,epoch,x\n4,0,1\n9,0,1\n22,2,3\n")
    assert list(curves_of(load_table(tmp_path / "m.csv"))["x"].index) == [1, 2, 3]
    assert list(curves_of(load_table(tmp_path / "n.csv"))["x"].index) == [0.5, 1.0, 2.3]


def test_hundreds_of_columns_are_parsed_at_once(tmp_path, monkeypatch):
    names = [f"val/MAE/t{number}" for number in range(200)]
    rows = [",".join([str(step), str(step), *(f"{step}{number}" for number in range(200))]) for step in (1, 2, 2)]
    (tmp_path / "m.csv").write_text("\n".join([",".join(["epoch", "step", *names]), *rows, ""]))
    calls, parse = [], pd.to_numeric
    monkeypatch.setattr(pd, "to_numeric", lambda *given, **options: calls.append(1) or parse(*given, **options))
    found = curves_of(load_table(tmp_path / "m.csv"))
    assert found.keys() == set(names)
    assert found["val/MAE/t7"].to_dict() == {1.0: 17.0, 1.5: 27.0}
    assert len(calls) == 1


def test_without_a_finished_epoch_there_are_no_curves(tmp_path):
    (tmp_path / "m.csv").write_text("step,epoch,lr/rest\n0,,0.1\n")
    assert curves_of(load_table(tmp_path / "m.csv")) == {}


@pytest.mark.parametrize("text", ["", "a,b\n1,2\n"])
def test_a_file_that_is_no_log_is_an_error_value(tmp_path, text):
    (tmp_path / "m.csv").write_text(text)
    with pytest.raises(ValueError, match=r"column|No columns"):
        curves_of(load_table(tmp_path / "m.csv"))


def test_a_whole_run_has_no_problems(make_run):
    run = load_run(make_run("a", seed=3), "a")
    assert run.problems == []
    assert (run.benchmark, run.architecture, run.seed, run.best_epoch) == ("NCI", "GPS", "3", 2)
    assert run.scores("val") == {"loss": 0.7, "MAE": 0.7, "RMSE": 1.4}
    assert run.baselines == {"training mean": {"val/MAE": 1.9, "test/MAE": 1.92}}


def test_an_unfinished_run_is_named_by_its_configuration(make_run):
    folder = make_run("a", seed=5)
    folder.results.unlink()
    run = load_run(folder, "a")
    assert (run.benchmark, run.architecture, run.seed, run.best_epoch) == ("NCI", "GPS", "5", None)
    assert run.scores("val") == {}
    assert ["results.json" in problem for problem in run.problems] == [True]


@pytest.mark.parametrize(
    ("name", "text", "told"),
    [
        ("config.yaml", "a: [", "config.yaml cannot be read"),
        ("config.yaml", "words", "config.yaml cannot be read (it has no options)"),
        ("results.json", "{", "results.json cannot be read"),
        ("results.json", "[1]", "is not a JSON object"),
        ("environment.json", "", "environment.json cannot be read"),
        ("metrics.csv", "", "metrics.csv cannot be read"),
        ("metrics.csv", "step,epoch\n", "no finished epoch"),
        ("metrics.csv", "\x00\x01", "metrics.csv cannot be read"),
        ("diagnostics/x.csv", "a,b\n1,2\n", "diagnostics/x.csv is not shown"),
        ("diagnostics/x.csv", "", "diagnostics/x.csv cannot be read"),
        ("data.json", '{"splits": {"train": {"graphs": NaN}}}', "data.json has no split sizes"),
        ("data.json", '{"splits": {"train": {"graphs": 3}}, "left_out": null}', "others than numbers"),
    ],
)
def test_a_broken_file_is_a_sentence(make_run, name, text, told):
    folder = make_run("a")
    (folder.path / name).write_text(text)
    problems = load_run(folder, "a").problems
    assert len(problems) == 1
    assert told in problems[0]


def test_times_and_sizes_below_zero_are_left_out_and_said(make_run, tmp_path):
    folder = make_run("a", results={"fit_seconds": -5.0, "peak_memory_mb": -1, "parameters": 7})
    run = load_run(folder, "a")
    assert [problem for problem in run.problems if "impossible" in problem] == [
        "results.json: fit_seconds is -5, which is impossible; it is skipped.",
        "results.json: peak_memory_mb is -1, which is impossible; it is skipped.",
    ]
    assert "fit_seconds" not in run.results
    assert run.results["parameters"] == 7
    assert main(["report", str(folder.path), "--output", str(tmp_path / "page")]) == 0
    assert "fit_seconds is -5" in (tmp_path / "page" / "report.html").read_text()


def test_a_configuration_that_is_a_bomb_is_a_sentence(make_run):
    folder = make_run("a")
    lines = [f"a{i}: &a{i} [{', '.join([f'*a{i - 1}'] * 9)}]" for i in range(1, 10)]
    folder.config.write_text("a0: &a0 [x, x]\n" + "\n".join(lines))
    (problem,) = load_run(folder, "a").problems
    assert "aliases stand for more than 100,000 values" in problem


@pytest.mark.parametrize("name", ["config.yaml", "results.json", "environment.json", "metrics.csv"])
def test_a_missing_file_is_a_sentence(make_run, name):
    folder = make_run("a")
    (folder.path / name).unlink()
    (problem,) = load_run(folder, "a").problems
    assert name in problem


def test_binary_rubbish_everywhere_is_survived(make_run):
    folder = make_run("a")
    for path in (
        folder.config,
        folder.results,
        folder.environment,
        folder.metrics,
        folder.path / "predictions-test.csv",
    ):
        path.write_bytes(bytes(range(128, 256)))
    run = load_run(folder, "a")
    assert len(run.problems) == 5
    assert run.predictions is None


def test_identifiers_of_digits_stay_as_they_were_written(make_run):
    folder = make_run("a")
    (folder.path / "predictions-test.csv").write_text("id,prediction,target\n007,1.5,2\n1e5,0.5,1\n")
    predictions = load_run(folder, "a").predictions
    assert predictions["id"].tolist() == ["007", "1e5"]
    assert predictions["prediction"].tolist() == [1.5, 0.5]


def test_a_diverged_run_says_when(make_run):
    run = load_run(make_run("a", losses=((1.0, 1.0), (2.0, float("inf")), (2.0, float("inf")))), "a")
    (problem,) = run.problems
    assert problem.startswith("val/loss ")
    assert "2 of 3 epochs, first in epoch 2" in problem


def test_a_run_that_diverged_in_its_first_epoch_says_so(make_run):
    folder = make_run("a")
    folder.results.write_text(
        '{"diverged": "Step 2 (epoch 1): the loss is nan; layers.0. Graphs: 73. A lower rate may help."}'
    )
    folder.metrics.write_text("lr-AdamW/rest,step\n0.1,0\n")
    first, second = load_run(folder, "a").problems
    assert first == "The run diverged. Step 2 (epoch 1): the loss is nan; layers.0."
    assert "no finished epoch" in second


def test_the_word_nan_is_a_logged_value(make_run):
    folder = make_run("a")
    folder.metrics.write_text("step,epoch,train/loss\n9,0,1.0\n19,1,nan\n29,2,nan\n")
    (problem,) = load_run(folder, "a").problems
    assert problem.startswith("train/loss ")
    assert "2 of 3 epochs, first in epoch 2" in problem


def test_a_folder_named_twice_counts_once_and_names_differ(make_run, monkeypatch):
    first, second = make_run("one/run"), make_run("two/run")
    monkeypatch.chdir(first.path.parent)
    relative = type(first)(first.path.relative_to(first.path.parent))
    runs = load_runs([first, second, relative])
    assert [run.name for run in runs] == ["one/run", "two/run"]


@pytest.mark.parametrize("best", [float("nan"), "first", None, True])
def test_a_best_epoch_that_is_no_number_is_unknown(make_run, best):
    assert load_run(make_run("a", results={"best_epoch": best}), "a").best_epoch is None


def test_numbers_of_the_wrong_kind_are_left_out(make_run):
    run = load_run(make_run("a", results={"baselines": [1], "val": {"val/MAE": "low", "val/RMSE": True}}), "a")
    assert (run.baselines, run.scores("val")) == ({}, {})
