"""Fit random forests and gradient boosting on Morgan counts and RDKit descriptors.

Legend: M molecules, T targets, C classes.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from typing import Any, Literal

import numpy as np
from threadpoolctl import threadpool_limits

from graphbench.benchmarks.molecules.chemistry.baselines import count_matrix, morgan_counts
from graphbench.benchmarks.molecules.chemistry.descriptors import compute_descriptors
from graphbench.data.worker_pool import available_cores

Trees = Literal["random forest", "gradient boosting"]
#: Substructures that become columns: the most frequent ones that occur in at least three training molecules.
_MAX_COLUMNS, _MIN_MOLECULES = 2048, 3
_TREES = 100
_ROUNDS, _LEARNING_RATE = 100, 0.1
#: Minimum training molecules in a leaf of boosting: scikit-learn's 20, but a tenth of a small set. With leaves of 20,
#: fewer than 40 molecules would not be split, and their mean would be predicted.
_LEAF, _LEAF_SHARE = 20, 10
#: Share of the columns that each tree node may choose from.
_SHARE = 1 / 3


def tree_features(smiles: Sequence[Sequence[str]], known: Sequence[np.ndarray] = ()) -> list[np.ndarray]:
    """Compute Morgan counts that are frequent in training (first split), then descriptors: float32 `[M, columns]`.

    `known` has descriptors of the first splits that are not computed again.
    """
    counts = [morgan_counts(part) for part in smiles]
    molecules_with = Counter(name for row in counts[0] for name in row)
    frequent = [name for name, number in molecules_with.most_common(_MAX_COLUMNS) if number >= _MIN_MOLECULES]
    columns = np.array(sorted(frequent), dtype=np.int64)
    descriptors = [*known, *(compute_descriptors("rdkit2d", part) for part in smiles[len(known) :])]
    return [
        np.hstack([count_matrix(rows, columns).toarray().astype(np.float32), values])
        for rows, values in zip(counts, descriptors, strict=True)
    ]


def fit_trees(
    kind: Trees, features: Sequence[np.ndarray], targets: np.ndarray, num_classes: int | None, labels: bool = False
) -> tuple[np.ndarray, np.ndarray]:
    """Fit one model per target on its known training rows, and predict val and test.

    `features` of train, val and test are `[M, columns]`, NaN if unknown. Targets of train are numbers `[M, T]`, NaN if
    unknown; classes `[M, 1]`, negative if unknown; or, with `labels`, 0 and 1 `[M, T]`, NaN if unknown.

    Returns:
        Predictions for val and test: numbers `[M, T]`, NaN for a target that training lacks; probabilities of classes
        `[M, C]`, or of labels `[M, T]`.
    """
    train, *others = features
    stacked = np.concatenate(others)
    y = np.asarray(targets, dtype=np.float64).reshape(len(train), -1)
    if num_classes is not None:
        y = np.where(y < 0, np.nan, y)
    width = num_classes or (2 if labels else None)
    # Threads that wait for each other waste most of their time on a machine that is also doing other work.
    with threadpool_limits(1):
        columns = [_fit(kind, train, target, stacked, width) for target in y.T]
    if num_classes is not None:
        predictions = columns[0]
    else:
        predictions = np.stack([column[:, 1] if labels else column for column in columns], axis=1)
    return predictions[: len(others[0])], predictions[len(others[0]) :]


def _fit(kind: Trees, train: np.ndarray, target: np.ndarray, others: np.ndarray, width: int | None) -> np.ndarray:
    """Predict numbers `[M]`, or probabilities `[M, width]` if `width` is given."""
    labelled = ~np.isnan(target)
    target = target[labelled]
    values = np.unique(target)
    if width is None:
        if len(values) < 2 or not len(others):
            return np.full(len(others), values[0] if len(values) else np.nan)
        model = _models(len(target))[kind, False]().fit(train[labelled], target)
        return _one_thread(model).predict(others)
    probabilities = np.zeros((len(others), width))
    classes = values.astype(np.int64)
    if len(classes) < 2 or not len(others):
        probabilities[:, classes] = 1.0
    else:
        model = _models(len(target))[kind, True]().fit(train[labelled], target.astype(np.int64))
        probabilities[:, classes] = _one_thread(model).predict_proba(others)
    return probabilities


def _models(count: int) -> dict[tuple[Trees, bool], Callable[[], Any]]:
    """Return factories of models for `count` training molecules, by kind and whether they classify."""
    from sklearn import ensemble  # slow to import

    forest = {"n_estimators": _TREES, "max_features": _SHARE, "n_jobs": available_cores(), "random_state": 0}
    boosting = {
        "max_iter": _ROUNDS, "learning_rate": _LEARNING_RATE, "max_features": _SHARE, "early_stopping": False,
        "random_state": 0, "min_samples_leaf": min(_LEAF, max(1, count // _LEAF_SHARE)),
    }  # fmt: skip
    return {
        ("random forest", False): lambda: ensemble.RandomForestRegressor(**forest),
        ("random forest", True): lambda: ensemble.RandomForestClassifier(**forest),
        ("gradient boosting", False): lambda: ensemble.HistGradientBoostingRegressor(**boosting),
        ("gradient boosting", True): lambda: ensemble.HistGradientBoostingClassifier(**boosting),
    }


def _one_thread(model: Any) -> Any:
    """Make a forest add up its trees in order: with threads, rounding would differ from call to call."""
    if hasattr(model, "n_jobs"):
        model.n_jobs = 1
    return model
