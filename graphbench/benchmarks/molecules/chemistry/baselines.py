"""Baselines without a network, fitted on the same split: what a graph model must beat to be worth its training."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
from rdkit import rdBase
from rdkit.Chem import rdFingerprintGenerator
from scipy import sparse

from graphbench.benchmarks.molecules.chemistry.smiles import parse_smiles

#: One training row of so many chooses the penalty where there are no validation rows.
_HELD_OUT = 5
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
        val_prediction: of the validation molecules `[val, T]`.
    """

    name: str
    val_mae: float
    test_mae: float
    prediction: np.ndarray
    setting: str = ""
    val_prediction: np.ndarray | None = None


def _columns(values: np.ndarray | Sequence[float]) -> np.ndarray:
    array = np.asarray(values, dtype=np.float64)
    return array if array.ndim == 2 else array[:, None]


def _mae(prediction: np.ndarray, target: np.ndarray) -> float:
    """Mean absolute error over the targets that are known (not NaN); NaN where none is."""
    errors = np.abs(prediction - target)
    known = errors[~np.isnan(errors)]
    return float(known.mean()) if known.size else float("nan")


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
    """Ridge regression on Morgan radius-2 count fingerprints; each target's penalty is chosen by validation MAE.

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
    counts = [morgan_counts(smiles, num_bits) for smiles in (train_smiles, val_smiles, test_smiles)]
    # Substructures that training never shows would get weight zero from any penalty.
    used = np.unique(np.array([name for found in counts[0] for name in found], dtype=np.int64))
    train, val, test = (_matrix(part, used) for part in counts)
    targets, val_targets, test_targets = _columns(train_y), _columns(val_y), _columns(test_y)
    chosen = [
        _best_ridge(alphas, train, column, val, val_column, test)
        for column, val_column in zip(targets.T, val_targets.T, strict=True)
    ]
    val_prediction, prediction = (np.stack([one[part] for one in chosen], axis=1) for part in (1, 2))
    width = f"{num_bits} columns" if num_bits else f"{len(used)} substructures"
    penalties = ", ".join(dict.fromkeys(f"{alpha:.3g}" for alpha, _, _ in chosen))
    return BaselineScore(
        "ridge on Morgan counts",
        _mae(val_prediction, val_targets),
        _mae(prediction, test_targets),
        prediction,
        f"alpha {penalties}, {width}",
        val_prediction,
    )


def _best_ridge(
    alphas: Sequence[float],
    train: sparse.csr_matrix,
    target: np.ndarray,
    val: sparse.csr_matrix,
    val_target: np.ndarray,
    test: sparse.csr_matrix,
) -> tuple[float, np.ndarray, np.ndarray]:
    """The penalty with the smallest validation MAE of one target, and predictions of val and test."""
    from sklearn.linear_model import Ridge  # slow to import

    known, scored = ~np.isnan(target), ~np.isnan(val_target)
    if not known.any():
        return alphas[0], np.full(val.shape[0], np.nan), np.full(test.shape[0], np.nan)
    if not scored.any() and known.sum() > _HELD_OUT and len(alphas) > 1:
        fitted, held = _held_out(known)
        alpha = _best_ridge(alphas, train[fitted], target[fitted], train[held], target[held], test)[0]
        return _best_ridge([alpha], train, target, val, val_target, test)
    best: tuple[float, float, np.ndarray, np.ndarray] | None = None
    for alpha in alphas:
        model = Ridge(alpha=alpha).fit(train[known], target[known])
        on_val = _predicted(model.predict, val)
        score = float(np.abs(on_val - val_target)[scored].mean()) if scored.any() else 0.0
        if best is None or score < best[0]:
            best = (score, alpha, on_val, _predicted(model.predict, test))
    assert best is not None
    return best[1:]


def _held_out(known: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Known rows to fit, and others to choose a penalty by."""
    rows = np.flatnonzero(known)
    return np.delete(rows, np.s_[::_HELD_OUT]), rows[::_HELD_OUT]


def _predicted(predict: Callable[[sparse.csr_matrix], np.ndarray], rows: sparse.csr_matrix) -> np.ndarray:
    """What a model says of rows, of which scikit-learn wants one at least."""
    found = predict(rows if rows.shape[0] else sparse.csr_matrix((1, rows.shape[1])))
    return np.asarray(found[: rows.shape[0]])


#: Inverse penalties of the logistic regression that are tried.
INVERSE_PENALTIES = (0.01, 0.1, 1.0, 10.0)


def logistic_baseline(
    smiles: Sequence[Sequence[str]],
    targets: Sequence[np.ndarray],
    num_classes: int | None,
    inverse_penalties: Sequence[float] = INVERSE_PENALTIES,
) -> tuple[np.ndarray, np.ndarray]:
    """Logistic regression on unfolded Morgan radius-2 counts; the penalty is chosen by the validation log loss.

    Args:
        smiles: molecules of train, val and test.
        targets: their classes `[molecules]` or `[molecules, 1]`, -1 where unknown; or labels 0 and 1
            `[molecules, T]`, NaN where unknown, each fitted alone.
        num_classes: of a classification; None for labels.
        inverse_penalties: to try.

    Returns:
        Probabilities for val and test: of classes `[molecules, C]`, of labels `[molecules, T]`.
    """
    counts = [morgan_counts(part, None) for part in smiles]
    used = np.unique(np.array([name for found in counts[0] for name in found], dtype=np.int64))
    train, val, test = (_matrix(part, used) for part in counts)
    if num_classes is not None:
        y = [np.where(_columns(part)[:, 0] < 0, np.nan, _columns(part)[:, 0]) for part in targets[:2]]
        return _best_logistic(train, y[0], val, y[1], test, num_classes, inverse_penalties)[1:]
    fits = [
        _best_logistic(train, known, val, val_known, test, 2, inverse_penalties)[1:]
        for known, val_known in zip(_columns(targets[0]).T, _columns(targets[1]).T, strict=True)
    ]
    on_val, on_test = (np.stack([fit[part][:, 1] for fit in fits], axis=1) for part in (0, 1))
    return on_val, on_test


def _best_logistic(
    train: sparse.csr_matrix,
    target: np.ndarray,
    val: sparse.csr_matrix,
    val_target: np.ndarray,
    test: sparse.csr_matrix,
    num_classes: int,
    inverse_penalties: Sequence[float],
) -> tuple[float, np.ndarray, np.ndarray]:
    """Inverse penalty, and probabilities `[molecules, C]` for val and test; of one class in training its share."""
    from sklearn.linear_model import LogisticRegression  # slow to import

    known, scored = ~np.isnan(target), ~np.isnan(val_target)
    present = np.unique(target[known]).astype(np.int64)

    def spread(probabilities: np.ndarray) -> np.ndarray:
        every = np.zeros((len(probabilities), num_classes))
        every[:, present] = probabilities
        return every

    if len(present) < 2:
        on_val, on_test = (spread(np.ones((part.shape[0], len(present)))) for part in (val, test))
        return inverse_penalties[0], on_val, on_test
    if not scored.any() and known.sum() > _HELD_OUT and len(inverse_penalties) > 1:
        fitted, held = _held_out(known)
        inner = (train[fitted], target[fitted], train[held], target[held], test)
        chosen = _best_logistic(*inner, num_classes, inverse_penalties)[0]
        return _best_logistic(train, target, val, val_target, test, num_classes, [chosen])
    best: tuple[float, float, np.ndarray, np.ndarray] | None = None
    for inverse in inverse_penalties:
        model = LogisticRegression(C=inverse, max_iter=1000, tol=1e-3).fit(train[known], target[known].astype(int))
        on_val = spread(_predicted(model.predict_proba, val))
        own = on_val[scored, val_target[scored].astype(np.int64)]
        loss = float(-np.log(own.clip(min=1e-12)).mean()) if scored.any() else 0.0
        if best is None or loss < best[0]:
            best = (loss, inverse, on_val, spread(_predicted(model.predict_proba, test)))
    assert best is not None
    return best[1:]
