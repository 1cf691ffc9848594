"""Baselines without a network, fitted on the same split: what a graph model must beat to be worth its training."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from rdkit import rdBase
from rdkit.Chem import rdFingerprintGenerator
from scipy import sparse

from graphbench.benchmarks.molecules.chemistry.reading import parse_smiles

#: Ridge penalties that are tried, half a decade apart.
ALPHAS = tuple(10.0 ** (step / 2) for step in range(-2, 9))


@dataclass(frozen=True)
class BaselineScore:
    """How a baseline did.

    Args:
        name: what it is.
        val_mae, test_mae: mean absolute errors over all known targets, in the target's units.
        prediction: of the test molecules `[test, T]`.
        setting: what was chosen on the validation molecules.
    """

    name: str
    val_mae: float
    test_mae: float
    prediction: np.ndarray
    setting: str = ""


def _columns(values: np.ndarray | Sequence[float]) -> np.ndarray:
    array = np.asarray(values, dtype=np.float64)
    return array.reshape(len(array), -1)


def _mae(prediction: np.ndarray, target: np.ndarray) -> float:
    """Mean absolute error over the targets that are known (not NaN)."""
    return float(np.nanmean(np.abs(prediction - target)))


def mean_baseline(train_y: np.ndarray, val_y: np.ndarray, test_y: np.ndarray) -> BaselineScore:
    """Predict the mean of the training targets for every molecule.

    Args:
        train_y: targets `[molecules]` or `[molecules, T]`, NaN where unknown.
        val_y: the same of the validation molecules.
        test_y: the same of the test molecules.
    """
    mean = np.nanmean(_columns(train_y), axis=0)
    val, test = _columns(val_y), _columns(test_y)
    prediction = np.broadcast_to(mean, test.shape).copy()
    return BaselineScore("training mean", _mae(mean, val), _mae(prediction, test), prediction)


def morgan_counts(smiles: Sequence[str], num_bits: int | None = 4096) -> list[dict[int, int]]:
    """Circular substructures up to radius 2 of each molecule, with their counts (Rogers and Hahn, 2010).

    Args:
        smiles: readable molecules.
        num_bits: numbers that substructures are folded into; None keeps each apart.
    """
    generator = rdFingerprintGenerator.GetMorganGenerator(radius=2, fpSize=num_bits or 2048)
    count = generator.GetCountFingerprint if num_bits else generator.GetSparseCountFingerprint
    with rdBase.BlockLogs():
        return [count(parse_smiles(text)).GetNonzeroElements() for text in smiles]


def _matrix(counts: Sequence[dict[int, int]], columns: np.ndarray) -> sparse.csr_matrix:
    """Counts of the substructures `columns` (ascending), others left out: float64 `[molecules, len(columns)]`."""
    rows = np.repeat(np.arange(len(counts)), [len(found) for found in counts])
    names = np.array([name for found in counts for name in found], dtype=np.int64)
    values = np.array([value for found in counts for value in found.values()], dtype=np.float64)
    place = np.searchsorted(columns, names).clip(max=len(columns) - 1)
    kept = columns[place] == names
    return sparse.csr_matrix((values[kept], (rows[kept], place[kept])), shape=(len(counts), len(columns)))


def ridge_baseline(
    train_smiles: Sequence[str],
    train_y: np.ndarray,
    val_smiles: Sequence[str],
    val_y: np.ndarray,
    test_smiles: Sequence[str],
    test_y: np.ndarray,
    *,
    num_bits: int | None = 4096,
    alphas: Sequence[float] = ALPHAS,
) -> BaselineScore:
    """Ridge regression on Morgan radius-2 count fingerprints; the penalty is chosen by validation MAE.

    Fitted on the training molecules alone, as the networks are. Several targets are fitted one by one, each on the
    molecules that have it.

    Args:
        train_smiles: training molecules.
        train_y: their targets `[molecules]` or `[molecules, T]`, NaN where unknown.
        val_smiles: validation molecules.
        val_y: their targets.
        test_smiles: test molecules.
        test_y: their targets.
        num_bits: see `morgan_counts`; None is often the stronger baseline.
        alphas: penalties to try.
    """
    from sklearn.linear_model import Ridge  # slow to import

    counts = [morgan_counts(smiles, num_bits) for smiles in (train_smiles, val_smiles, test_smiles)]
    # Substructures that training never shows would get weight zero from any penalty.
    used = np.unique(np.array([name for found in counts[0] for name in found], dtype=np.int64))
    train, val, test = (_matrix(part, used) for part in counts)
    targets, val_targets, test_targets = _columns(train_y), _columns(val_y), _columns(test_y)
    best: tuple[float, float, np.ndarray] | None = None
    for alpha in alphas:
        predictions = []
        for column in targets.T:
            known = ~np.isnan(column)
            model = Ridge(alpha=alpha).fit(train[known], column[known])
            predictions.append((model.predict(val), model.predict(test)))
        on_val, on_test = (np.stack(part, axis=1) for part in zip(*predictions, strict=True))
        score = _mae(on_val, val_targets)
        if best is None or score < best[0]:
            best = (score, alpha, on_test)
    assert best is not None
    val_mae, alpha, prediction = best
    width = f"{num_bits} columns" if num_bits else f"{len(used)} substructures"
    name = "ridge on Morgan counts"
    return BaselineScore(name, val_mae, _mae(prediction, test_targets), prediction, f"alpha {alpha:.3g}, {width}")
