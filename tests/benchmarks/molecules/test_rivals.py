"""Rivals of a model: kept in the store, and fitted on fewer molecules, with a note, if data are large."""

import dataclasses

import numpy as np
import pytest

from graphbench.benchmarks.molecules import rivals
from graphbench.benchmarks.molecules.chemistry import baselines, trees
from graphbench.benchmarks.molecules.chemistry.baselines import ALPHAS
from graphbench.benchmarks.molecules.chemistry.trees import fit_trees, tree_features
from graphbench.data import progress
from graphbench.data.store import Store
from graphbench.testing import tiny_spec

SMILES = [f"{'C' * length}{end}" for length in range(1, 9) for end in ("O", "N", "Cl", "C(=O)O")]
PARTS = [SMILES[:20], SMILES[20:26], SMILES[26:]]
TREES = ["random forest", "gradient boosting"]


def spec_of(task, targets=1, classes=None):
    return dataclasses.replace(tiny_spec(task), num_targets=targets, num_classes=classes, target_names=())


def numbers(targets=1):
    y = np.arange(26.0)[:, None] * np.arange(1, targets + 1)
    return [y[:20], y[20:]]


@pytest.mark.parametrize(
    ("task", "y", "classes", "linear"),
    [
        ("graph-regression", numbers(2), None, "ridge on Morgan counts"),
        ("graph-classification", [part.astype(np.int64) % 3 for part in numbers()], 3, "logistic"),
        ("graph-multilabel", [part % 2 for part in numbers(3)], None, "logistic"),
    ],
)
def test_every_kind_of_target_has_rivals_once_per_split(tmp_path, monkeypatch, task, y, classes, linear):
    spec, store = spec_of(task, y[0].shape[1], classes), Store(tmp_path)
    first = rivals.fit_rivals(store, spec, PARTS, y)
    names = list(first)
    assert names[0].startswith(linear)
    assert names[1:] == TREES
    assert all(one.seconds > 0 and one.note == "" for one in first.values())
    width = classes or y[0].shape[1]
    assert all(one.predictions["test"].shape == (6, width) for one in first.values())
    _, alone = fit_trees("random forest", tree_features(PARTS), y[0], classes, task == "graph-multilabel")
    np.testing.assert_array_equal(first[TREES[0]].predictions["test"], alone)
    monkeypatch.setattr(rivals, "_fit_all", None)  # the second model of a sweep reads them
    again = rivals.fit_rivals(store, spec, PARTS, y)
    assert [(one.seconds, one.note) for one in again.values()] == [(one.seconds, "") for one in first.values()]
    np.testing.assert_array_equal(again[TREES[1]].predictions["val"], first[TREES[1]].predictions["val"])


def test_another_split_is_fitted_again(tmp_path):
    store, spec = Store(tmp_path), spec_of("graph-regression")
    y = numbers()
    rivals.fit_rivals(store, spec, PARTS, y)
    for smiles, targets in (([*PARTS[:2], PARTS[2][::-1]], y), (PARTS, [y[0] + 1, y[1]]), (PARTS, [y[0], y[1] + 1])):
        before = len(list(tmp_path.glob("baselines-*")))
        rivals.fit_rivals(store, spec, smiles, targets)
        assert len(list(tmp_path.glob("baselines-*"))) == before + 1


@pytest.mark.parametrize("task", ["graph-regression", "graph-multilabel"])
def test_what_does_not_depend_on_the_new_molecules_is_computed_once(tmp_path, monkeypatch, task):
    y = numbers(2) if task == "graph-regression" else [part % 2 for part in numbers(2)]
    other, spec, store = [*PARTS[:2], ["CCOCC", "CCBr", "NCCN"]], spec_of(task, 2), Store(tmp_path / "one")
    alone = rivals.fit_rivals(Store(tmp_path / "other"), spec, other, y)
    first = rivals.fit_rivals(store, spec, PARTS, y)
    counts, plain = [], trees.compute_descriptors
    monkeypatch.setattr(baselines, "_select", None)
    monkeypatch.setattr(rivals, "compute_descriptors", None)
    monkeypatch.setattr(trees, "compute_descriptors", lambda kind, new: counts.append(len(new)) or plain(kind, new))
    again = rivals.fit_rivals(store, spec, other, y)
    assert counts == [3]
    for name, one in again.items():
        np.testing.assert_array_equal(one.predictions["test"], alone[name].predictions["test"])
        np.testing.assert_array_equal(one.predictions["val"], first[name].predictions["val"])
    assert all(again[name].seconds >= first[name].seconds for name in list(again)[:1])


def test_large_data_are_thinned_and_the_note_counts_them(tmp_path, monkeypatch):
    for name, value in (("_MAX_RIDGE_MOLECULES", 10), ("_MAX_TREE_MOLECULES", 4), ("_MIN_TREE_MOLECULES", 1)):
        monkeypatch.setattr(rivals, name, value)
    fitted = rivals.fit_rivals(Store(tmp_path), spec_of("graph-regression"), PARTS, numbers())
    assert fitted["ridge on Morgan counts"].note == "fitted on 10 of 20 training molecules"
    forest = fitted[TREES[0]]
    assert forest.note == ("fitted on 4 of 20 training, scored on 3 of 6 validation, scored on 3 of 6 test molecules")
    assert np.flatnonzero(~np.isnan(forest.predictions["test"][:, 0])).tolist() == [0, 2, 4]
    assert not np.isnan(fitted["ridge on Morgan counts"].predictions["test"]).any()


def test_letters_bound_the_rows_as_well(monkeypatch):
    monkeypatch.setattr(rivals, "_MAX_TREE_LETTERS", 10)
    assert rivals._thin(["CCCCC"] * 8, 100).tolist() == [0, 4]


def test_many_targets_have_no_trees_and_the_log_says_so(tmp_path, caplog, monkeypatch):
    monkeypatch.setattr(rivals, "_LONG", 20)
    monkeypatch.setattr(progress, "DELAY", -1.0)
    caplog.set_level("INFO")
    y = [np.tile(part, (1, 41)) for part in numbers()]
    fitted = rivals.fit_rivals(Store(tmp_path), spec_of("graph-regression", 41), PARTS, y)
    assert list(fitted) == ["ridge on Morgan counts"]
    assert "no random forest" in caplog.text
    assert "fitting simple models on 20 molecules" in caplog.text
    fits = 41 * (len(ALPHAS) + 1)
    assert f"Fitting ridge regressions: 1 of {fits} fits so far" in caplog.text
    assert f"Fitting ridge regressions: {fits} fits in" in caplog.text


def test_classes_count_for_the_length_of_a_logistic_regression(tmp_path, monkeypatch, caplog):
    monkeypatch.setattr(rivals, "_MAX_LABELS", 59)
    y = [part.astype(np.int64) % 3 for part in numbers()]
    assert list(rivals.fit_rivals(Store(tmp_path), spec_of("graph-classification", 1, 3), PARTS, y)) == TREES
    assert "take long on 20 labels of 3 classes" in caplog.text
    monkeypatch.setattr(rivals, "_MAX_LABELS", 60)
    assert len(rivals.fit_rivals(Store(tmp_path / "b"), spec_of("graph-classification", 1, 3), PARTS, y)) == 3
