"""The baselines against closed forms and against scikit-learn and RDKit used directly."""

import numpy as np
import pytest
from rdkit import Chem
from rdkit.Chem import rdFingerprintGenerator
from sklearn.linear_model import Ridge

from graphbench.benchmarks.molecules.chemistry.baselines import mean_baseline, morgan_counts, ridge_baseline

RINGS = [f"C1{'C' * size}C1" for size in range(1, 6)]
SMILES = [ring + chain for ring in RINGS for chain in ("C", "CO", "CN", "CCl", "C(=O)O", "c1ccccc1")]
PARTS = (slice(0, 18), slice(18, 24), slice(24, 30))


@pytest.fixture
def targets():
    return np.random.RandomState(0).normal(size=len(SMILES)) + np.arange(len(SMILES))


def test_mean_is_that_of_training():
    score = mean_baseline(np.array([1.0, 3.0]), np.array([2.0, 6.0]), np.array([0.0, 2.0, 5.0]))
    assert (score.val_mae, score.test_mae) == (2.0, pytest.approx(5 / 3))
    assert score.prediction.tolist() == [[2.0]] * 3


def test_missing_labels_do_not_count():
    train = np.array([[1.0, np.nan], [3.0, 7.0]])
    score = mean_baseline(train, train, np.array([[2.0, 8.0], [np.nan, 7.0]]))
    assert score.prediction.tolist() == [[2.0, 7.0]] * 2
    assert score.test_mae == pytest.approx(1 / 3)


@pytest.mark.parametrize("num_bits", [256, None])
def test_counts_are_those_of_rdkit(num_bits):
    generator = rdFingerprintGenerator.GetMorganGenerator(radius=2, fpSize=num_bits or 2048)
    for smiles, found in zip(SMILES, morgan_counts(SMILES, num_bits), strict=True):
        mol = Chem.MolFromSmiles(smiles)
        if num_bits:
            dense = generator.GetCountFingerprintAsNumPy(mol)
            assert found == {int(column): int(dense[column]) for column in np.flatnonzero(dense)}
        else:
            assert found == generator.GetSparseCountFingerprint(mol).GetNonzeroElements()


def test_ridge_equals_a_dense_fit_with_the_best_penalty(targets):
    generator = rdFingerprintGenerator.GetMorganGenerator(radius=2, fpSize=256)
    counts = np.stack([generator.GetCountFingerprintAsNumPy(Chem.MolFromSmiles(smiles)) for smiles in SMILES])
    counts = counts.astype(float)
    train, val, test = PARTS
    fits = {alpha: Ridge(alpha=alpha).fit(counts[train], targets[train]) for alpha in (0.1, 1.0, 100.0)}
    errors = {alpha: np.abs(fit.predict(counts[val]) - targets[val]).mean() for alpha, fit in fits.items()}
    best = min(errors, key=errors.get)
    score = ridge_baseline(
        *(item for part in PARTS for item in (SMILES[part], targets[part])), num_bits=256, alphas=(0.1, 1.0, 100.0)
    )
    assert score.setting == f"alpha {best:.3g}, 256 columns"
    assert score.val_mae == pytest.approx(errors[best], rel=1e-3)
    assert score.prediction[:, 0] == pytest.approx(fits[best].predict(counts[test]), rel=1e-3)


def test_unfolded_substructures_unknown_in_training_are_left_out(targets):
    score = ridge_baseline(
        ["CCO", "CCN", "CCC"], targets[:3], ["CCO"], targets[:1], ["BrI"], targets[:1], num_bits=None
    )
    assert np.isfinite(score.prediction).all()
    assert score.setting.endswith("substructures")


def test_several_targets_are_fitted_where_they_are_known(targets):
    both = np.stack([targets, -targets], axis=1)
    both[3, 1] = np.nan
    arguments = [item for part in PARTS for item in (SMILES[part], both[part])]
    score = ridge_baseline(*arguments, num_bits=256, alphas=(1.0,))
    alone = ridge_baseline(
        *(item for part in PARTS for item in (SMILES[part], targets[part])), num_bits=256, alphas=(1.0,)
    )
    assert score.prediction.shape == (6, 2)
    assert score.prediction[:, 0] == pytest.approx(alone.prediction[:, 0])
