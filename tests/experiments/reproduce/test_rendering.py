"""The three files of a table, and its listing."""

from __future__ import annotations

import csv

import pytest
from resolved import RECIPE

from graphbench.experiments.reproduce.obtained import obtain
from graphbench.experiments.reproduce.plan import Request, job_of, select
from graphbench.experiments.reproduce.rendering import number, records, summary, write_table
from graphbench.experiments.reproduce.tables import find_table


@pytest.fixture
def written(table, tmp_path, finish):
    request = Request(seeds=(0, 1))
    cell = table.by_place["ours", "pattern"]
    for seed, score in ((0, 0.866), (1, 0.87)):
        finish(job_of(cell, seed, request, tmp_path).training.folder(tmp_path), score)
    found = obtain(table, select(table), request, tmp_path, lambda words: 0, lambda words: RECIPE)
    return {path.suffix: path for path in write_table(table, found, request, tmp_path)}


def test_files_are_named_after_the_table(written):
    assert {path.name for path in written.values()} == {
        "somebody-table-1.html", "somebody-table-1.md", "somebody-table-1.csv",
    }  # fmt: skip


def test_the_csv_has_a_row_a_value_with_all_that_is_known(written):
    with written[".csv"].open(newline="", encoding="utf-8") as file:
        rows = {(row["row"], row["column"]): row for row in csv.DictReader(file)}
    assert len(rows) == 6
    ours = rows["SFi-Former", "PATTERN, %"]
    assert float(ours["obtained"]) == pytest.approx(86.8)
    named = ("printed", "printed_sd", "way", "recipe", "seeds", "verdict", "full", "epochs", "parameters", "data")
    assert [ours[name] for name in named] == [
        "86.74 ± 0.17", "0.17", "recipe", "sfi-former/pattern", "2", "met", "True", "200", "222213", "published",
    ]  # fmt: skip
    assert rows["SAN", "PATTERN, %"]["why"] == "model is missing: SAN"


def test_markdown_has_printed_over_obtained(written):
    text = written[".md"].read_text(encoding="utf-8")
    assert "| SFi-Former | 86.74 ± 0.17<br>86.800 ± 0.283 | 200<br>200 |" in text
    assert "| SAN | 86.58 ± 0.04<br>no model |  |" in text
    assert "full, 200 epochs, 2 seeds" in text


def test_html_is_one_page_without_scripts_and_escaped(written):
    text = written[".html"].read_text(encoding="utf-8")
    assert "86.74 ± 0.17" in text
    assert 'class="met"' in text
    assert "with 4 &gt; 2 seeds" in text
    assert "<script" not in text
    assert "http" not in text


@pytest.mark.parametrize(
    ("value", "like", "text"),
    [(0.5, "", "0.5000"), (86.8, "86.74 ± 0.17", "86.800"), (612705.0, "612,705", "612,705"), (1e-5, "1e-5", "1e-05")],
)
def test_numbers_have_a_place_more_than_the_printed_ones(value, like, text):
    assert number(value, like) == text


def test_a_table_in_a_line(table):
    line = summary(table)
    assert (line["values"], line["printed"], line["seeds"]) == (6, 4, 4)
    assert line["ways"] == {"missing": 1, "setting": 1, "recipe": 4}
    assert line["offline"] == 4
    assert line["data"] == {"PATTERN": "download, or offline with source=generated"}


def test_a_value_with_recipe_data_and_cost():
    cells = {(cell["row"], cell["column"]): cell for cell in records(find_table("sfi-former/table-2"))["cells"]}
    plus = cells["sfi-former-plus", "pattern"]
    assert plus["recipe"] == ["sfi-former/pattern", "sfi-former/overlays/pretrained"]
    assert plus["after"] == ["sfi-former/pattern", "sfi-former/overlays/dense"]
    assert (plus["value"], plus["sd"], plus["offline"]) == (0.8678, 0.0021, True)
    assert plus["cost"] == "200 epochs of 10,000 graphs"
    assert plus["source"] == "SFi-Former, table 2, SFi-Former+, PATTERN"


def test_a_value_without_a_model_names_no_recipe(table):
    (other,) = [cell for cell in records(table)["cells"] if cell["row"] == "other"]
    assert "recipe" not in other
    assert (other["way"], other["why"]) == ("missing", "SAN")
