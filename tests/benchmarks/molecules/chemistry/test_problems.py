"""One message for all rows that cannot be used."""

import pytest

from graphbench.benchmarks.molecules.chemistry.problems import RowProblem, describe_problems, quote, refuse_problems
from graphbench.errors import BadInput

PROBLEMS = [RowProblem("empty", 9), RowProblem("odd", 3, "'x'"), RowProblem("odd", 2, "'y'"), RowProblem("empty", 3)]


def test_problems_are_grouped_counted_and_in_line_order():
    assert describe_problems(PROBLEMS, "a.csv", 10).splitlines() == [
        "a.csv: 3 of 10 rows cannot be used.",
        "  2 x empty: line 3; line 9",
        "  2 x odd: line 2 ('y'); line 3 ('x')",
    ]


def test_long_lists_are_cut_but_counted():
    text = describe_problems([RowProblem("odd", line) for line in range(1, 1001)], "a.csv", 2000, unit="row")
    assert "1,000 x odd: row 1; " in text
    assert text.endswith("and 992 more")


def test_refusing_needs_a_problem():
    refuse_problems([], "a.csv", 10, "advice")
    with pytest.raises(BadInput, match=r"3 of 10 rows(.|\n)*Do this"):
        refuse_problems(PROBLEMS, "a.csv", 10, "Do this.")


def test_long_values_are_cut():
    assert quote("C" * 500) == "'" + "C" * 57 + "...'"
    assert quote("CCO") == "'CCO'"
