"""Baselines against scikit-learn and RDKit called directly."""

import tracemalloc

import numpy as np
import pytest
from rdkit import Chem
from rdkit.Chem import rdFingerprintGenerator
from sklearn.linear_model import Ridge

from graphbench.benchmarks.molecules.chemistry import baselines
from graphbench.benchmarks.molecules.chemistry.baselines import ALPHAS, morgan_counts, ridge_baseline

RINGS = [f"C1{'C' * size}C1" for size in range(1, 6)]
SMILES = [ring + chain for ring in RINGS for chain in ("C", "CO", "CN", "CCl", "C(=O)O", "c1ccccc1")]
PARTS = (slice(0, 18), slice(18, 24), slice(24, 30))


@pytest.fixture
def targets():
    return np.random.RandomState(0).normal(size=len(SMILES)) + np.arange(len(SMILES))


def test_counts_are_those_of_rdkit():
    generator = rdFingerprintGenerator.GetMorganGenerator(radius=2)
    for smiles, counts in zip(SMILES, morgan_counts(SMILES), strict=True):
        assert counts == generator.GetSparseCountFingerprint(Chem.MolFromSmiles(smiles)).GetNonzeroElements()


def split(values):
    return [values[part] for part in PARTS]


@pytest.mark.parametrize("validated", [True, False])
def test_ridge_equals_a_dense_fit_with_the_best_penalty(targets, validated):
    """Without validation targets, every fifth training row chooses the penalty."""
    counts = morgan_counts(SMILES)
    names = sorted(set().union(*counts[PARTS[0]]))
    dense = np.array([[row.get(name, 0) for name in names] for row in counts], dtype=float)
    train, val, test = split(dense)
    y, val_y, _ = split(targets)
    held = np.arange(len(y)) % 5 == 0
    parts = (train, y, val, val_y) if validated else (train[~held], y[~held], train[held], y[held])
    errors = {alpha: abs(Ridge(alpha=alpha).fit(*parts[:2]).predict(parts[2]) - parts[3]).mean() for alpha in ALPHAS}
    best = Ridge(alpha=min(errors, key=errors.get)).fit(train, y)
    on_val, on_test = ridge_baseline(split(SMILES), [y, val_y if validated else np.full(len(val_y), np.nan)])
    assert on_val[:, 0] == pytest.approx(best.predict(val), rel=1e-3)
    assert on_test[:, 0] == pytest.approx(best.predict(test), rel=1e-3)


def test_unfolded_substructures_unknown_in_training_are_left_out(targets):
    """A molecule with only unknown substructures gets the prediction of a row of zeros, the intercept."""
    train, alpha = ["CCO", "CCN", "CCC"], 0.1
    _, test = ridge_baseline([train, ["CCO"], ["BrI"]], [targets[:3], targets[:1]], alphas=(alpha,))
    counts = morgan_counts(train)
    names = sorted(set().union(*counts))
    dense = np.array([[row.get(name, 0) for name in names] for row in counts], dtype=float)
    assert test.item() == pytest.approx(Ridge(alpha=alpha).fit(dense, targets[:3]).intercept_, rel=1e-3)


def test_several_targets_are_fitted_where_they_are_known(targets):
    both = np.stack([targets, -targets], axis=1)
    both[3, 1] = np.nan
    _, test = ridge_baseline(split(SMILES), split(both), alphas=(1.0,))
    _, alone = ridge_baseline(split(SMILES), split(targets), alphas=(1.0,))
    assert test.shape == (6, 2)
    assert test[:, 0] == pytest.approx(alone[:, 0])
    none, same = ridge_baseline([SMILES[:18], [], SMILES[24:]], [both[:18], both[:0]], alphas=(1.0,))
    assert none.shape == (0, 2), "there may be no validation split"
    assert same == pytest.approx(test)


def test_counts_of_one_split_are_held_at_once():
    def peak(*parts):
        tracemalloc.start()
        baselines._matrices(parts)
        most = tracemalloc.get_traced_memory()[1]
        tracemalloc.stop()
        return most

    smiles = 10 * SMILES
    peak(smiles, [], [])
    assert peak(smiles, smiles, smiles) < 1.5 * peak(smiles, [], [])
