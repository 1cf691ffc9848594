"""The page of results: seeds in one row, short runs marked, and the page of this repository."""

from __future__ import annotations

from pathlib import Path

from graphbench.cli import main
from graphbench.experiments.records import Record
from graphbench.experiments.reproduce.page import Page

ROOT = Path(__file__).parents[3]


def record(seed, test, **more):
    return Record(
        **{
            "experiment": "trial", "name": "SFi-Former", "recipe": ("sfi-former/pattern",), "seed": seed,
            "metric": "class_accuracy", "test": test, "benchmark": "PATTERN", "data": "generated", "epochs": 10,
            "parameters": 222_213, "full": False, **more,
        }
    )  # fmt: skip


def lines(text, start):
    return [line for line in text.splitlines() if line.startswith(start)]


def test_seeds_stand_in_one_row_with_the_printed_value(table):
    text = Page([table]).text([record(1, 0.868), record(0, 0.866)])
    (row,) = lines(text, "| SFi-Former")
    assert "| 0, 1 |" in row
    assert "0.8670 ± 0.0014 class_accuracy" in row
    assert "**short**, 10 epochs" in row
    assert "222,213" in row
    assert "86.74 ± 0.17 (Somebody, 2026, table 1)" in row


def test_a_training_with_other_options_has_no_printed_value(table):
    text = Page([table]).text([record(0, 0.866, options=("--model.architecture.init_args.num_layers=2",))])
    (row,) = lines(text, "| SFi-Former")
    assert "`num_layers=2`" in row
    assert "86.74" not in row


def test_whole_runs_and_short_ones_are_never_averaged(table):
    text = Page([table]).text([record(0, 0.866), record(1, 0.868, full=True), record(2, 0.87, full=None)])
    assert [("**short**" in row, "whole" in row) for row in lines(text, "| SFi-Former")] == [
        (True, False), (False, True), (False, False),
    ]  # fmt: skip


def test_whole_runs_that_their_rate_ended_stand_in_one_row(table):
    text = Page([table]).text([record(0, 0.866, full=True, epochs=150), record(1, 0.868, full=True, epochs=171)])
    (row,) = lines(text, "| SFi-Former")
    assert "whole, 150 to 171 epochs | 0, 1 |" in row


def test_points_of_a_curve_are_laid_out_by_column(table):
    points = [
        record(seed, layers + seed / 10, column=f"{layers} layers", recipe=("mine",))
        for layers in (1, 3)
        for seed in (0, 1)
    ]
    points.append(record(0, None, column="5 layers", recipe=("mine",)))
    text = Page([table]).text(points)
    assert lines(text, "| test class_accuracy") == ["| test class_accuracy | 1 layers | 3 layers | 5 layers |"]
    (row,) = lines(text, "| SFi-Former")
    assert "1.0500 ± 0.0707 (2 seeds) | 3.0500 ± 0.0707 (2 seeds) | – (1 seed) |" in row


def test_points_of_a_curve_from_other_data_or_recipes_say_so(table):
    other = {"data": "local"}, {"altered": ("data.seed is 1 instead of 0",)}, {"epochs": 20}
    points = [record(0, 0.8, column="1 layer", recipe=("mine",), **more) for more in ({}, *other)]
    (row,) = lines(Page([table]).text(points), "| SFi-Former")
    scores = row.split("|")[2].split("<br>")
    assert ["local PATTERN" in score for score in scores] == [False, True, False, False]
    assert ["data.seed" in score for score in scores] == [False, False, True, False]
    assert ["20 epochs" in score for score in scores] == [False, False, False, True]
    assert all("generated PATTERN" in score for score in scores[:1] + scores[2:])
    assert "Data: generated PATTERN." in Page([table]).text(points[:1])


def test_altered_runs_are_never_averaged_with_others(table):
    text = Page([table]).text([record(0, 0.866), record(1, 0.868, altered=("data.batch_size is 4 instead of 32",))])
    assert ["batch_size" in row for row in lines(text, "| SFi-Former")] == [False, True]


def test_origin_is_told_and_never_made_up(table):
    text = Page([table]).text([record(0, 0.8, commit="0123456789", hardware="EPYC", seconds=90), record(1, 0.9)])
    assert "commit 0123456; EPYC; 2 minutes of wall time in 1 run." in text
    assert "How these runs were made is not recorded." in Page([table]).text([record(0, 0.8)])


def test_the_page_of_this_repository_is_what_the_command_writes(tmp_path):
    """Update with: graphbench reproduce --page RESULTS.md --records experiments/records plugins/*/results/records."""
    folders = [str(ROOT / "experiments" / "records"), *sorted(map(str, ROOT.glob("plugins/*/results/records")))]
    assert main(["reproduce", "--page", str(tmp_path / "RESULTS.md"), "--records", *folders]) == 0
    assert (tmp_path / "RESULTS.md").read_text(encoding="utf-8") == (ROOT / "RESULTS.md").read_text(encoding="utf-8")


def test_a_page_needs_records(capsys):
    assert main(["reproduce", "--page", "RESULTS.md"]) == 1
    assert "--page FILE needs --records FOLDER" in capsys.readouterr().err
