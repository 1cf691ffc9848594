"""One message for all rows that cannot be used, and molecules that a file repeats."""

from __future__ import annotations

import numpy as np
import pytest

from graphbench.benchmarks.molecules.chemistry.problems import (
    RowProblem,
    describe_leaks,
    describe_problems,
    describe_repeats,
    find_repeats,
    quote,
    refuse_problems,
)
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


def told(y, canonical=("C", "CC", "C", "CC")):
    y = np.array(y)
    return describe_repeats(find_repeats(canonical, y), y, canonical, range(2, 2 + len(y)), "a.csv", "line")


def test_missing_targets_contradict_nothing():
    y = np.array([[1.0, np.nan], [0.0, 5.0], [np.nan, 2.0], [0.0, 6.0]])
    found = find_repeats(["C", "CC", "C", "CC"], y)
    assert (found.rows, found.contradicting) == ([[0, 2], [1, 3]], [1])
    assert told(y.tolist()).endswith("1 of them with different targets: 'CC' (lines 3, 5: (0, 5), (0, 6)).")


def test_equal_targets_are_counted_alone():
    assert told([[1], [0], [1], [0]]) == "a.csv: 2 molecules are there more than once, in 4 rows, with equal targets."


def test_long_lists_are_cut():
    many = told([[float(n)] for n in range(12)], canonical=["C"] * 12)
    assert "(lines 2, 3, 4, 5, 6, 7, 8, 9: 0, 1, 2, 3, 4, 5, 6, 7, and 4 more)" in many
    pairs = [f"C{'C' * (n // 2)}" for n in range(20)]
    assert told([[float(n)] for n in range(20)], canonical=pairs).endswith("; and 2 more.")


def test_molecules_in_several_splits_are_named():
    repeats = find_repeats(["C", "CC", "C", "CC"], np.zeros((4, 1)))
    smiles = ["C", "CC", "[CH4]", "CC"]
    assert describe_leaks(repeats, ["train", "val", "train", "val"], smiles, "a.csv") == ""
    assert "1 molecule is in several splits" in describe_leaks(
        repeats, ["train", "val", "train", "test"], smiles, "a.csv"
    )
