"""The table as Markdown, CSV and LaTeX."""

import csv
import dataclasses
import io
import re

import pandas as pd
import pytest

from graphbench.report import result_tables
from graphbench.report.formats import as_csv, as_latex, as_markdown

HOSTILE = r"<script>a|b_c & 50% $x$ #1 {~^\}"


@pytest.fixture
def tables(make_run):
    return result_tables(
        [make_run("a", seed=0), make_run("b", seed=1, scores=(0.8, 1.0)), make_run("c", architecture=HOSTILE)]
    )


def test_csv_holds_unrounded_numbers(tables):
    table = pd.read_csv(io.StringIO(as_csv(tables))).set_index("model")
    assert table.loc["GPS", "val/MAE mean"] == pytest.approx(0.75, rel=1e-15)
    assert table.loc["GPS", "test/MAE sd"] == pytest.approx(0.1 / 2**0.5, rel=1e-12)
    assert table.loc["GPS", "val/MAE n"] == 2
    other = dataclasses.replace(tables[0], quantities=())  # a benchmark without these columns
    several = csv.DictReader(io.StringIO(as_csv([*tables, other])))
    assert {row["val/MAE n"] for row in several if row["kind"] == "model"} == {"2", "1", ""}
    assert table.loc["training mean", "kind"] == "baseline"
    assert pd.isna(table.loc["training mean", "val/RMSE mean"])
    assert HOSTILE in table.index
    assert table.loc["training mean", ["seeds", "best_epochs"]].isna().all(), "a baseline has none"
    assert table.loc["GPS", "seeds"] == "0, 1"


@pytest.mark.parametrize("begin", ["=1+1", "+1+1", "-1+1", "@SUM(A1)", "\t=1"])
def test_a_name_that_a_spreadsheet_would_run_is_text_in_the_table(make_run, begin):
    """Names come from runs that others may have sent."""
    text = as_csv(result_tables([make_run("a", architecture=begin)]))
    assert f"'{begin}" in pd.read_csv(io.StringIO(text))["model"].tolist()
    cells = [cell for line in csv.reader(io.StringIO(text)) for cell in line]
    assert not [cell for cell in cells if cell.lstrip().startswith(("=", "+", "@"))]


def test_markdown_rows_have_as_many_cells_as_the_header(tables):
    lines = [line for line in as_markdown(tables).splitlines() if line.startswith("|")]
    counts = {len(re.split(r"(?<!\\)\|", line)) for line in lines}
    assert len(lines) == 2 + 3
    assert len(counts) == 1
    assert "<script>" not in as_markdown(tables).replace(r"\<", "")


def test_latex_is_balanced_and_escaped(tables):
    text = as_latex(tables)
    begun, ended = re.findall(r"\\begin\{(\w+)\}", text), re.findall(r"\\end\{(\w+)\}", text)
    assert begun == ["table", "tabular"]
    assert ended == begun[::-1]
    body = text.replace(r"\textbackslash{}", "").replace(r"\\", "")
    bare = re.sub(r"\\[&%$#_{}]", "", body)
    assert bare.count("{") == bare.count("}")
    assert bare.count("$") == 2 * bare.count(r"\pm")
    columns = len(re.search(r"\\begin\{tabular\}\{(l?r*)\}", text)[1])
    rows = [line for line in bare.splitlines() if line.count("&")]
    assert rows
    assert {row.count("&") + 1 for row in rows} == {columns}
    for mark in ("_", "#", "~", "^", "<", "|"):
        assert mark not in bare, mark


def test_all_formats_show_the_same_cells(tables):
    (table,) = tables
    line = next(line for line in table.lines() if line[0] == "GPS")
    assert f"| {' | '.join(line)} |" in as_markdown(tables)
    assert " & ".join(line).replace("±", r"$\pm$") in as_latex(tables)
