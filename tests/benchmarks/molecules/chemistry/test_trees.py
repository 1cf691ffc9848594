"""Forests and boosting against scikit-learn called directly."""

import numpy as np
import pytest
from rdkit import Chem
from rdkit.Chem import Descriptors, rdFingerprintGenerator
from sklearn import ensemble

from graphbench.benchmarks.molecules.chemistry.descriptors import descriptor_names
from graphbench.benchmarks.molecules.chemistry.trees import fit_trees, tree_features

KINDS = ("random forest", "gradient boosting")


@pytest.fixture
def features():
    random = np.random.default_rng(0)
    return [random.normal(size=(rows, 6)).astype(np.float32) for rows in (90, 7, 5)]


def sklearn_model(kind, classifies, leaf):
    if kind == "random forest":
        make = ensemble.RandomForestClassifier if classifies else ensemble.RandomForestRegressor
        return make(n_estimators=100, max_features=1 / 3, random_state=0)
    make = ensemble.HistGradientBoostingClassifier if classifies else ensemble.HistGradientBoostingRegressor
    return make(max_iter=100, learning_rate=0.1, max_features=1 / 3, early_stopping=False, random_state=0,
                min_samples_leaf=leaf)  # fmt: skip


@pytest.mark.parametrize("kind", KINDS)
def test_several_targets_with_gaps_are_fitted_on_their_known_rows(features, kind):
    train, val, test = features
    y = np.stack([train[:, 0], train[:, 1] ** 2, np.full(90, np.nan), np.full(90, 3.0)], axis=1)
    y[::3, 1] = np.nan
    on_val, on_test = fit_trees(kind, features, y, None)
    for column in (0, 1):
        known = ~np.isnan(y[:, column])
        model = sklearn_model(kind, False, known.sum() // 10).fit(train[known], y[known, column])
        np.testing.assert_allclose(on_val[:, column], model.predict(val), rtol=1e-9)
        np.testing.assert_allclose(on_test[:, column], model.predict(test), rtol=1e-9)
    assert np.isnan(on_test[:, 2]).all()
    assert (on_test[:, 3] == 3).all()


@pytest.mark.parametrize("kind", KINDS)
def test_targets_of_few_molecules_are_learnt_too(features, kind):
    train, val, _ = features
    y = np.full((90, 1), np.nan)
    y[:30, 0] = train[:30, 0]
    on_others, _ = fit_trees(kind, [train, train[30:], val], y, None)
    assert np.corrcoef(on_others[:, 0], train[30:, 0])[0, 1] > 0.5


@pytest.mark.parametrize("kind", KINDS)
def test_classes_get_probabilities_and_absent_ones_zero(features, kind):
    train, val, _ = features
    y = np.where(train[:, 0] > 0.5, 3, np.where(train[:, 0] > 0, 1, 0))
    y[:5] = -1
    on_val, on_test = fit_trees(kind, features, y[:, None], 5)
    expected = sklearn_model(kind, True, 8).fit(train[5:], y[5:]).predict_proba(val)
    np.testing.assert_allclose(on_val[:, [0, 1, 3]], expected, rtol=1e-9)
    assert (on_test[:, [2, 4]] == 0).all()
    np.testing.assert_allclose(on_test.sum(1), 1)


@pytest.mark.parametrize("kind", KINDS)
def test_labels_get_the_probability_of_one(features, kind):
    train, _, test = features
    y = np.stack([train[:, 0] > 0, train[:, 1] > 0, np.ones(90)], axis=1).astype(float)
    y[::4, 1] = np.nan
    _, on_test = fit_trees(kind, features, y, None, labels=True)
    for column in (0, 1):
        known = ~np.isnan(y[:, column])
        model = sklearn_model(kind, True, known.sum() // 10).fit(train[known], y[known, column].astype(int))
        np.testing.assert_allclose(on_test[:, column], model.predict_proba(test)[:, 1], rtol=1e-9)
    assert (on_test[:, 2] == 1).all()


def test_features_are_frequent_counts_and_descriptors():
    train, test = ["CCO", "CCCO", "CCCCO", "CCN"], ["CCCl", "CCO"]
    parts = tree_features([train, test])
    generator = rdFingerprintGenerator.GetMorganGenerator(radius=2)
    counts = [generator.GetSparseCountFingerprint(Chem.MolFromSmiles(s)).GetNonzeroElements() for s in train + test]
    frequent = sorted(n for n in set().union(*counts[:4]) if sum(n in row for row in counts[:4]) >= 3)
    assert frequent
    both = np.concatenate(parts)
    np.testing.assert_array_equal(both[:, : len(frequent)], [[row.get(n, 0) for n in frequent] for row in counts])
    place = len(frequent) + descriptor_names("rdkit2d").index("MolLogP")
    expected = [Descriptors.MolLogP(Chem.MolFromSmiles(s)) for s in train + test]
    np.testing.assert_allclose(both[:, place], expected, rtol=1e-6)
