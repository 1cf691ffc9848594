"""Detection of separators and decimal commas, and lookup of columns."""

from __future__ import annotations

import pytest

from graphbench.errors import BadInput
from graphbench.tables.layout import find_column, has_decimal_commas, near, separator_of


@pytest.mark.parametrize(
    ("header", "separator"),
    [
        ("smiles,y", ","),
        ("smiles;y", ";"),
        ("smiles\ty", "\t"),
        ('"smiles";"y, measured, at 25 C"', ";"),
        ("a,b,c,d;SMILES", ";"),  # the wanted column decides, not the number of cells
        ("structure\tvalue", "\t"),
        ("smiles", ","),
        ("", ","),
        ('"smiles,y', ","),
    ],
)
def test_separator_is_told_by_the_header(header, separator):
    assert separator_of(header, ",", ["smiles"]) == separator


def test_usual_separator_wins_where_another_finds_no_more():
    assert separator_of("smiles", "\t", ["smiles"]) == "\t"
    assert separator_of("x,y\tz", "\t", []) == "\t"


@pytest.mark.parametrize(
    ("cells", "commas"),
    [
        (["1,5", "2"], True),
        (["-,5e-3"], True),
        (["1,5", "2.5"], False),  # both in one file: neither can be trusted
        (["1.234,5"], False),
        (["CC,O"], False),
        (["", "7"], False),
    ],
)
def test_decimal_commas(cells, commas):
    assert has_decimal_commas(cells) is commas


def test_columns_in_another_case_are_found_unless_two_could_be_meant():
    assert find_column("a.csv", ["ID", "LogP"], "logp") == 1
    assert find_column("a.csv", ["logp", "LogP"], "LogP") == 1
    assert find_column("a.csv", ["ID"], "logp") is None
    with pytest.raises(BadInput, match=r"'LOGP' may be 'logp' \(column 1\) or 'LogP' \(column 2\)"):
        find_column("a.csv", ["logp", "LogP"], "LOGP")
    with pytest.raises(BadInput, match="duplicate columns: 'y' as columns 1, 3"):
        find_column("a.csv", ["y", "z", "y"], "y")


def test_no_name_is_near_where_none_is_alike():
    assert near(["smiles"], ["mass", "charge"]) == ""
