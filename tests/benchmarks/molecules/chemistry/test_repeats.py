"""Repeated molecules: how many, and which contradict each other."""

from __future__ import annotations

import numpy as np

from graphbench.benchmarks.molecules.chemistry.repeats import describe_leaks, describe_repeats, find_repeats


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
    assert "1 molecule stands in several splits" in describe_leaks(
        repeats, ["train", "val", "train", "test"], smiles, "a.csv"
    )
