"""Shares of classes and groups, and folds, checked by counting."""

from __future__ import annotations

import numpy as np
import pytest

from graphbench.benchmarks.graphs.splits.shares import fold_split, group_split, stratified_split

SPLITS = ("train", "val", "test")
FRACTIONS = (0.8, 0.1, 0.1)


def whole(split, size):
    """Return whether every row is in the splits once."""
    rows = np.concatenate([split[name] for name in SPLITS])
    return sorted(rows.tolist()) == list(range(size))


@pytest.mark.parametrize("sizes", [(100, 50, 25), (33, 34, 33), (7, 200, 11), (1, 1, 40)])
@pytest.mark.parametrize("fractions", [FRACTIONS, (0.5, 0.25, 0.25), (0.34, 0.33, 0.33)])
def test_stratified_parts_have_their_share_of_every_class(sizes, fractions):
    classes = np.repeat(np.arange(len(sizes)), sizes)
    split = stratified_split(classes, fractions, seed=1)
    assert whole(split, len(classes))
    for name, share in zip(SPLITS, fractions, strict=True):
        counts = np.bincount(classes[split[name]], minlength=len(sizes))
        assert (np.abs(counts - share * np.array(sizes)) <= 1).all()
        assert abs(len(split[name]) - share * len(classes)) <= 1.5
    again, other = stratified_split(classes, fractions, seed=1), stratified_split(classes, fractions, seed=2)
    assert all(np.array_equal(split[name], again[name]) for name in SPLITS)
    assert any(not np.array_equal(split[name], other[name]) for name in SPLITS)


def test_folds_are_stratified_and_every_graph_tests_once():
    classes = np.repeat([0, 1, 2], [31, 22, 10])
    tests, validations = [], []
    for fold in range(5):
        split = fold_split(np.arange(63), classes, fold, 5, seed=3)
        assert whole(split, 63)
        counts = np.bincount(classes[split["test"]], minlength=3)
        assert (np.abs(counts - np.array([31, 22, 10]) / 5) < 1).all()
        tests.append(split["test"])
        validations.append(split["val"])
    assert sorted(np.concatenate(tests).tolist()) == list(range(63))
    assert all(np.array_equal(validations[fold], tests[(fold + 1) % 5]) for fold in range(5))


def test_groups_stay_together():
    groups = np.random.RandomState(0).randint(20, size=400)
    split = group_split(np.unique(groups, return_inverse=True)[1], FRACTIONS, seed=0)
    assert whole(split, 400)
    owners = [set(groups[split[name]].tolist()) for name in SPLITS]
    assert sum(map(len, owners)) == len(set.union(*owners)) == 20
    assert abs(len(split["train"]) - 320) <= np.bincount(groups).max()
    folds = [fold_split(groups, None, fold, 5, seed=0)["test"] for fold in range(5)]
    assert sorted(np.concatenate(folds).tolist()) == list(range(400))
    assert sum(len(set(groups[fold].tolist())) for fold in folds) == 20


@pytest.mark.parametrize("fractions", [FRACTIONS, (0.34, 0.33, 0.33), (0.9, 0.05, 0.05)])
def test_small_classes_and_groups_are_in_every_split_where_that_can_be(fractions):
    for size in range(1, 12):
        classes = np.repeat([0, 1], [100 - size, size])
        split = stratified_split(classes, fractions, seed=size)
        counts = [int((classes[split[name]] == 1).sum()) for name in SPLITS]
        assert whole(split, 100)
        assert sum(counts) == size
        assert min(counts) > 0 or size < 3
        assert counts[0] == max(counts)
    for number in range(3, 12):
        groups = np.repeat(np.arange(number), 10)
        split = group_split(groups, fractions, seed=number)
        assert whole(split, 10 * number)
        assert all(len(split[name]) for name in SPLITS)
    six = group_split(np.repeat(np.arange(6), 10), FRACTIONS, seed=0)
    assert [len(six[name]) for name in SPLITS] == [40, 10, 10]
