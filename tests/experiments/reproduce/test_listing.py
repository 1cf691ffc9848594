"""What is said of a table before anything is trained."""

from __future__ import annotations

from graphbench.experiments.reproduce.listing import records, summary
from graphbench.experiments.reproduce.tables import find_table


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
