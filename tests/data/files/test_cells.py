"""Cells that a spreadsheet would run as formulas."""

import io

import numpy as np
import pandas as pd
import pytest

from graphbench.data.files.cells import as_text, without_formulas
from graphbench.tables.cells import USUAL, Missing, split_signs

RUN = ["=1+1", "+cmd|' /C calc'!A0", "-2+3", "@SUM(A1)", "\t=1", "\r=1", "\n=1", "=", "+", "--1", "-1,5,2", "+-1"]
STAY = ["-1.2", "+3", "-1e-5", "-1,5", "+0,5", "-1,5e-3", "-", "CCO", "[NH4+]", "", "1-2", "a=b", -1.2, 3, None, True]


@pytest.mark.parametrize("cell", RUN)
def test_formulas_become_text(cell):
    assert as_text(cell) == f"'{cell}"


@pytest.mark.parametrize(
    ("cell", "text"),
    [("a;=HYPERLINK(1)", "a;'=HYPERLINK(1)"), ("=a;@b;c;-1", "'=a;'@b;c;-1"), (";=1", ";'=1"), ("1;-2.5", "1;-2.5")],
)
def test_formulas_behind_semicolons_become_text(cell, text):
    """Split at semicolons, no cell except a number begins like a formula."""
    assert as_text(cell) == text


@pytest.mark.parametrize("cell", STAY)
def test_everything_else_stays(cell):
    assert as_text(cell) is cell


def test_a_table_keeps_numbers_and_gaps_and_can_be_read_again():
    frame = pd.DataFrame(
        {
            "id": ["=a", None, "c"],
            "kind": pd.Categorical(["@x", "y", "@x"]),
            "name": pd.array(["+n", "m", None], dtype="string"),
            "y": [-1.5, np.nan, 2.0],
            "n": pd.array([-1, None, 3], dtype="Int64"),
            "=total": [True, False, True],
        },
        index=[4, 5, 6],
    )
    safe = without_formulas(frame)
    assert list(safe.columns) == ["id", "kind", "name", "y", "n", "'=total"]
    assert list(safe.index) == [4, 5, 6]
    read = pd.read_csv(io.StringIO(safe.to_csv(index=False)))
    assert read["id"].tolist()[::2] == ["'=a", "c"]
    assert read["id"].isna().tolist() == [False, True, False]
    assert read["kind"].tolist() == ["'@x", "y", "'@x"]
    assert read["name"].tolist()[:2] == ["'+n", "m"]
    assert read["y"].tolist()[0] == -1.5
    assert read["n"].tolist()[0] == -1
    pd.testing.assert_series_equal(safe["y"], frame["y"])


def test_two_columns_of_one_name_stay_two():
    frame = pd.DataFrame([["=a", 1, "@b"]], columns=["x", "y", "x"])
    assert without_formulas(frame).to_numpy().tolist() == [["'=a", 1, "'@b"]]


def test_numbers_and_gaps_of_a_table_with_decimal_commas_are_read_as_they_were():
    """Predictions may become input again, so a cell keeps its value and whether it counts as missing."""
    cells = [*USUAL, "-0,87", "0,5", "-1e3", "<-2,5", "\u22641,5"]
    missing = Missing.of(None)
    kept = without_formulas(pd.DataFrame({"y": cells}))["y"].tolist()
    for before, after in zip(cells, kept, strict=True):
        numbers = [split_signs({"y": [cell]}) for cell in (before, after)]
        assert numbers[0][0] == numbers[1][0]
        assert (before in missing) == (after in missing)
