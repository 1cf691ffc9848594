"""Figures of tables: the numbers drawn from values and from files of runs, and the files written."""

from __future__ import annotations

import base64
import re

import pytest
from resolved import RECIPE

from graphbench.diagnostics.figures.series import Series
from graphbench.experiments.reproduce import drawing
from graphbench.experiments.reproduce.obtained import obtain
from graphbench.experiments.reproduce.plan import Request, job_of
from graphbench.experiments.reproduce.rendering import write_table
from graphbench.experiments.reproduce.tables import read_table, tables

HEAD = """
title: Depth
paper: Somebody, 2026
place: figure 1
printed: 1
recipe: sfi-former/pattern
options: ["--model.architecture.init_args.num_layers={n}"]
"""
COLUMNS = """
columns:
  one: {name: 1 layer, metric: test/class_accuracy, with: {n: 1}, scale: 100}
  two: {name: 2 layers, metric: test/class_accuracy, with: {n: 2}, scale: 100}
rows:
  gps: {name: GPS, cells: {one: null, two: "87.0"}}
"""
SEEDS = Request(seeds=(0, 1))


@pytest.fixture
def drawn(tmp_path, finish, monkeypatch):
    """Return a function that draws a table with finished one-layer runs; it returns the panels or files."""
    calls = []
    for name in ("curves_figure", "bars_figure"):
        real = getattr(drawing, name)
        monkeypatch.setattr(drawing, name, lambda *words, real=real: calls.append(words) or real(*words))

    def draw(figure, prepare=lambda folder, seed: None, write=False):
        path = tmp_path / "figure-1.yaml"
        path.write_text(f"{HEAD}figure: {figure}\n{COLUMNS}", encoding="utf-8")
        table = read_table(path, "somebody/figure-1")
        for seed, score in enumerate((0.8, 0.9)):
            folder = job_of(table.by_place["gps", "one"], seed, SEEDS, tmp_path).training.folder(tmp_path)
            finish(folder, score)
            prepare(folder, seed)
        found = obtain(table, table.cells, SEEDS, tmp_path, lambda words: 0, lambda words: RECIPE)
        if write:
            return write_table(table, found, SEEDS, tmp_path)
        drawing.draw(table, found, SEEDS, tmp_path)
        return calls[0] if calls else None

    return draw


def check_series(series: Series, obtained, printed=None):
    assert series.obtained == {place: pytest.approx(value) for place, value in obtained.items()}
    assert printed is None or series.printed == pytest.approx(printed)


def test_curves_are_means_over_seeds_and_printed_values_by_a_number_of_the_column(drawn):
    panels, x, y, title = drawn("{x: n, x_label: layers, y: accuracy}")
    ((series,),) = panels.values()
    assert (series.label, x, y) == ("GPS", "layers", "accuracy")
    assert "Somebody, 2026, figure 1" in title
    check_series(series, obtained={1.0: (85.0, 50**0.5)}, printed={2.0: 87.0})


def test_without_x_every_column_is_a_panel_of_bars(drawn):
    panels, y, _ = drawn("{y: accuracy}")
    assert (list(panels), y) == (["1 layer", "2 layers"], "accuracy")
    check_series(panels["1 layer"][0], obtained={0.0: (85.0, 50**0.5)}, printed={})
    check_series(panels["2 layers"][0], obtained={}, printed={0.0: 87.0})


def test_files_of_runs_are_drawn_in_the_rows_that_are_asked_for(drawn):
    def prepare(folder, seed):
        rows = [(1, "val", 9), (1, "test", 0.1 + seed), (2, "test", 0.3 + seed), (2, "val", 9)]
        text = "\n".join(f"{epoch},{split},class_accuracy,{gap}" for epoch, split, gap in rows)
        (folder / "gap.csv").write_text(f"epoch,split,measure,gap\n{text}\n", encoding="utf-8")

    panels, *_ = drawn('{file: gap.csv, x: epoch, y: gap, where: {split: test, measure: "{metric}"}}', prepare)
    ((series,),) = panels.values()
    assert list(panels) == ["1 layer"]
    check_series(series, obtained={1.0: (60.0, 5000**0.5), 2.0: (80.0, 5000**0.5)})


def test_files_by_layer_show_the_last_epoch_in_a_panel_for_each_measure(drawn):
    def prepare(folder, seed):
        rows = [(1, 0, "rank", 9), (2, 0, "rank", 0.3), (2, 1, "rank", 0.2), (2, 0, "similarity", 0.5)]
        text = "\n".join(",".join(map(str, row)) for row in rows)
        (folder / "ranks.csv").write_text(f"epoch,layer,measure,value\n{text}\n", encoding="utf-8")

    panels, *_ = drawn("{file: ranks.csv, x: layer, y: value, panels: measure}", prepare)
    assert list(panels) == ["rank", "similarity"]
    check_series(panels["rank"][0], obtained={0.0: (30.0, 0.0), 1.0: (20.0, 0.0)})


def test_nothing_is_drawn_before_there_is_a_value(drawn):
    assert drawn("{file: missing.csv, x: epoch, y: gap}") is None


def test_the_figure_lies_beside_the_table_and_in_its_page(drawn):
    paths = {path.suffix: path for path in drawn("{x: n, y: accuracy}", write=True)}
    svg = paths[".svg"].read_bytes()
    assert b"GPS, printed" in svg
    page = paths[".html"].read_text(encoding="utf-8")
    assert base64.b64decode(re.search(r"base64,([^\"]+)\"", page)[1]) == svg
    assert "![Depth](somebody-figure-1.svg)" in paths[".md"].read_text(encoding="utf-8")


def test_shipped_figures_name_what_their_tables_have():
    shipped = {name: table for name, table in tables().items() if table.figure}
    assert {"electric-flow/figure-1", "electric-flow/figure-2", "electric-flow/figure-15"} <= shipped.keys()
    assert {"sft/figure-5", "sfi-former/figure-3"} <= shipped.keys()
    for name, table in shipped.items():
        assert table.figure.get("y"), name
        if table.figure.get("x") and not table.figure.get("file"):
            assert all(float(column.filled[table.figure["x"]]) for column in table.columns.values()), name


def test_printed_curves_are_drawn_without_any_run(tmp_path):
    table = tables()["electric-flow/figure-1-notebook"]
    found = obtain(table, table.cells, SEEDS, tmp_path, lambda words: 0, lambda words: RECIPE)
    assert drawing.draw(table, found, SEEDS, tmp_path).count("printed") >= 4
