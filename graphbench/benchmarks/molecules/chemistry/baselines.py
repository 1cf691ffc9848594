"""Baselines on Morgan counts, fitted on the same split, which a graph model must beat to be worth training.

A split is three sequences, for train, val and test. Legend: M molecules, T targets, C classes.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np
from rdkit import rdBase
from rdkit.Chem import rdFingerprintGenerator
from scipy import sparse

from graphbench.benchmarks.molecules.chemistry.smiles import parse_smiles
from graphbench.data.progress import progress

#: Ridge penalties to try, half a decade apart.
ALPHAS = tuple(10.0 ** (step / 2) for step in range(-2, 9))
#: Inverse penalties of the logistic regression to try.
INVERSE_PENALTIES = (0.01, 0.1, 1.0, 10.0)
#: Without validation rows, one out of this many training rows is used to choose the penalty.
_HELD_OUT = 5

_Predict = Callable[[sparse.csr_matrix], np.ndarray]
#: Fits a model with a penalty to rows and their targets.
_Fit = Callable[[float, sparse.csr_matrix, np.ndarray], _Predict]
_Loss = Callable[[np.ndarray, np.ndarray], float]


def morgan_counts(smiles: Sequence[str]) -> list[dict[int, int]]:
    """Count the circular substructures up to radius 2 of readable molecules (Rogers and Hahn, 2010)."""
    generator = rdFingerprintGenerator.GetMorganGenerator(radius=2)
    with rdBase.BlockLogs():
        return [generator.GetSparseCountFingerprint(parse_smiles(text)).GetNonzeroElements() for text in smiles]


def ridge_baseline(
    smiles: Sequence[Sequence[str]],
    targets: Sequence[np.ndarray],
    alphas: Sequence[float] = ALPHAS,
    chosen: list[float] | None = None,
) -> tuple[np.ndarray, np.ndarray]:
    """Fit ridge regressions on Morgan counts, one per target, with the penalty that minimises the validation MAE.

    Targets of train and val are `[M]` or `[M, T]`, NaN where unknown. An empty list `chosen` receives the penalties
    of the targets; if it has those of an earlier call with the same train and val, they are not chosen again.

    Returns:
        Predictions `[M, T]` for val and test; NaN for a target that training lacks.
    """
    from sklearn.linear_model import Ridge  # slow to import

    def fit(alpha: float, rows: sparse.csr_matrix, target: np.ndarray) -> _Predict:
        if not len(target):
            return lambda others: np.full(others.shape[0], np.nan)
        return Ridge(alpha=alpha).fit(rows, target).predict

    train_y, val_y = (_columns(part) for part in targets[:2])
    return _stack(_fit_each(fit, _mae, alphas, _matrices(smiles), train_y, val_y, "ridge", chosen))


def logistic_baseline(
    smiles: Sequence[Sequence[str]],
    targets: Sequence[np.ndarray],
    num_classes: int | None,
    inverse_penalties: Sequence[float] = INVERSE_PENALTIES,
    chosen: list[float] | None = None,
) -> tuple[np.ndarray, np.ndarray]:
    """Fit logistic regressions on Morgan counts, with the penalty that minimises the validation log loss.

    Targets of train and val are classes `[M]` or `[M, 1]`, -1 where unknown; or, if `num_classes` is None, labels 0 and
    1 `[M, T]`, NaN where unknown, each fitted separately. `chosen` is that of `ridge_baseline`.

    Returns:
        Probabilities for val and test: of classes `[M, C]`, of labels `[M, T]`.
    """
    from sklearn.linear_model import LogisticRegression  # slow to import

    width = num_classes or 2

    def fit(inverse: float, rows: sparse.csr_matrix, target: np.ndarray) -> _Predict:
        classes = np.unique(target).astype(np.int64)
        if len(classes) < 2:
            return lambda others: np.tile(np.isin(np.arange(width), classes).astype(float), (others.shape[0], 1))
        model = LogisticRegression(C=inverse, max_iter=1000, tol=1e-3).fit(rows, target.astype(int))

        def predict(others: sparse.csr_matrix) -> np.ndarray:
            probabilities = np.zeros((others.shape[0], width))
            probabilities[:, classes] = model.predict_proba(others)
            return probabilities

        return predict

    counts = _matrices(smiles)
    train_y, val_y = (_columns(part) for part in targets[:2])
    if num_classes is not None:
        train_y, val_y = (np.where(part < 0, np.nan, part)[:, :1] for part in (train_y, val_y))
    fits = _fit_each(fit, _log_loss, inverse_penalties, counts, train_y, val_y, "logistic", chosen)
    if num_classes is not None:
        return fits[0]
    return _stack([(val[:, 1], test[:, 1]) for val, test in fits])


def _columns(values: np.ndarray) -> np.ndarray:
    array = np.asarray(values, dtype=np.float64)
    return array if array.ndim == 2 else array[:, None]


def _stack(fits: Sequence[tuple[np.ndarray, np.ndarray]]) -> tuple[np.ndarray, np.ndarray]:
    val, test = (np.stack(part, axis=1) for part in zip(*fits, strict=True))
    return val, test


def _mae(prediction: np.ndarray, target: np.ndarray) -> float:
    return float(np.abs(prediction - target).mean())


def _log_loss(probabilities: np.ndarray, target: np.ndarray) -> float:
    chosen = probabilities[np.arange(len(target)), target.astype(np.int64)]
    return float(-np.log(chosen.clip(min=1e-12)).mean())


def _matrices(smiles: Sequence[Sequence[str]]) -> list[sparse.csr_matrix]:
    """Count the substructures of train in each split: float64 `[M, substructures]`."""
    counts = morgan_counts(smiles[0])
    # Any penalty would give substructures that never occur in training a weight of zero.
    columns = np.unique(np.array([name for row in counts for name in row], dtype=np.int64))
    matrices = [count_matrix(counts, columns)]
    del counts  # dictionaries, ten times as large as the matrix
    return [*matrices, *(count_matrix(morgan_counts(part), columns) for part in smiles[1:])]


def count_matrix(counts: Sequence[dict[int, int]], columns: np.ndarray) -> sparse.csr_matrix:
    """Arrange counts of the substructures `columns` (sorted) as float64 `[M, columns]`; ignore other substructures."""
    if not len(columns):
        return sparse.csr_matrix((len(counts), 0))
    rows = np.repeat(np.arange(len(counts)), [len(row) for row in counts])
    names = np.array([name for row in counts for name in row], dtype=np.int64)
    values = np.array([value for row in counts for value in row.values()], dtype=np.float64)
    place = np.searchsorted(columns, names).clip(max=len(columns) - 1)
    mask = columns[place] == names
    return sparse.csr_matrix((values[mask], (rows[mask], place[mask])), shape=(len(counts), len(columns)))


def _fit_each(
    fit: _Fit,
    loss: _Loss,
    penalties: Sequence[float],
    counts: Sequence[sparse.csr_matrix],
    targets: np.ndarray,
    val_targets: np.ndarray,
    what: str,
    chosen: list[float] | None,
) -> list[tuple[np.ndarray, np.ndarray]]:
    """Predict val and test with the best model for each column of `targets`, and show the progress."""
    train, val, test = counts
    chosen = [] if chosen is None else chosen
    fits = targets.shape[1] * (1 if chosen else len(penalties) + 1)
    with progress(f"Fitting {what} regressions", fits, "fits") as advance:

        def counted(penalty: float, rows: sparse.csr_matrix, target: np.ndarray) -> _Predict:
            predict = fit(penalty, rows, target)
            advance(1)
            return predict

        if not chosen:
            columns = zip(targets.T, val_targets.T, strict=True)
            chosen += [_best(counted, loss, penalties, (train, val), *column) for column in columns]
        answers = []
        for penalty, target in zip(chosen, targets.T, strict=True):
            rows = np.flatnonzero(~np.isnan(target))
            predict = counted(penalty, train[rows], target[rows])
            answers.append((_predict_rows(predict, val), _predict_rows(predict, test)))
        return answers


def _best(
    fit: _Fit,
    loss: _Loss,
    penalties: Sequence[float],
    counts: Sequence[sparse.csr_matrix],
    target: np.ndarray,
    val_target: np.ndarray,
) -> float:
    """Return the penalty of the model of smallest loss on val, or on training rows if val has no target."""
    train, val = counts
    rows, scored = np.flatnonzero(~np.isnan(target)), ~np.isnan(val_target)
    if scored.any():
        return _select(fit, loss, penalties, (train[rows], target[rows]), (val[scored], val_target[scored]))
    if len(rows) > _HELD_OUT:
        held, rest = rows[::_HELD_OUT], np.delete(rows, np.s_[::_HELD_OUT])
        return _select(fit, loss, penalties, (train[rest], target[rest]), (train[held], target[held]))
    return penalties[0]


def _select(
    fit: _Fit,
    loss: _Loss,
    penalties: Sequence[float],
    train: tuple[sparse.csr_matrix, np.ndarray],
    val: tuple[sparse.csr_matrix, np.ndarray],
) -> float:
    if len(penalties) == 1:
        return penalties[0]
    return min(penalties, key=lambda penalty: loss(fit(penalty, *train)(val[0]), val[1]))


def _predict_rows(predict: _Predict, rows: sparse.csr_matrix) -> np.ndarray:
    """Predict rows; scikit-learn requires at least one."""
    padded = rows if rows.shape[0] else sparse.csr_matrix((1, rows.shape[1]))
    return np.asarray(predict(padded)[: rows.shape[0]])
