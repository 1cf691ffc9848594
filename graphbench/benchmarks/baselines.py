"""Predict without a network: by a constant from the training rows, and edges by a linear model of their features."""

from __future__ import annotations

import time
import warnings
from collections.abc import Callable, Mapping

import numpy as np
import torch

from graphbench.contracts import Baseline, BenchmarkSpec, GraphTable
from graphbench.contracts.table import EDGE
from graphbench.data.columns import from_log10, to_log10

_MAX_EDGES = 100_000  # training edges of a fit, evenly spaced among all of them
_BLOCK = 1 << 16  # edges that are predicted at once: one-hot columns of all edges of a large graph take gigabytes
_MAX_CATEGORIES = 256  # of a column that becomes one-hot: 65,536 of them would need 52 GB for these edges


def predict_plainly(tables: Mapping[str, GraphTable], spec: BenchmarkSpec) -> dict[str, Baseline]:
    """Return all predictions of this module for validation and test, and the seconds that each took."""
    started = time.perf_counter()
    name, answer = constant_answer(tables["train"], spec)
    constant = {split: np.tile(answer, (len(tables[split].columns["y"]), 1)) for split in ("val", "test")}
    baselines = {name: Baseline(constant, round(time.perf_counter() - started, 2))}
    if spec.level == EDGE:
        started = time.perf_counter()
        for name, predictions in predict_by_features(tables, spec).items():
            baselines[name] = Baseline(predictions, round(time.perf_counter() - started, 2))
    return baselines


def constant_answer(train: GraphTable, spec: BenchmarkSpec) -> tuple[str, np.ndarray]:
    """Return name and values `[T]` or `[C]` of the constant prediction for every row, from training targets."""
    y = train.columns["y"]
    if spec.num_classes is None:
        targets, logged = y.double().reshape(len(y), -1).numpy(), spec.log10_targets
        mean = torch.from_numpy(to_log10(targets, logged)).nanmean(0).numpy()
        return "training mean", from_log10(mean, logged)
    classes = y.reshape(-1).long()
    counts = torch.bincount(classes[classes >= 0], minlength=spec.num_classes)
    return "majority class", (counts / counts.sum()).numpy()


def predict_by_features(tables: Mapping[str, GraphTable], spec: BenchmarkSpec) -> dict[str, dict[str, np.ndarray]]:
    """Predict validation and test edges by logistic or ridge regression on their features.

    Categories are one-hot and numbers standardised. At most 100,000 training edges are used, and no columns with more
    than 256 categories.

    Returns:
        Name -> split -> probabilities `[edges, C]` or numbers `[edges, T]`; empty if edges have no features, or
        training edges no targets.
    """
    if not (any(size <= _MAX_CATEGORIES for size in spec.edge.vocabularies) or spec.edge.dense):
        return {}
    y = tables["train"].columns["y"].numpy()
    labelled = np.flatnonzero((y >= 0).all(1) if spec.num_classes is not None else ~np.isnan(y).any(1))
    rows = labelled[:: max(1, -(-len(labelled) // _MAX_EDGES))]
    if len(rows) < 2:
        return {}
    features = _features(tables["train"], spec, rows)
    mean, deviation = features.mean(0), features.std(0)
    # Standardised, since both regressions penalise the weight of a column by its scale.
    scaled = lambda values: (values - mean) / np.where(deviation > 0, deviation, 1.0)  # noqa: E731
    columns, answer = _fitted(scaled(features), y[rows], spec)
    if answer is None:
        return {}
    width = spec.num_targets if spec.num_classes is None else spec.num_classes
    predictions = {split: np.zeros((len(tables[split].columns["y"]), width)) for split in ("val", "test")}
    for split, values in predictions.items():
        for start in range(0, len(values), _BLOCK):
            block = np.arange(start, min(start + _BLOCK, len(values)))
            values[block[:, None], columns] = answer(scaled(_features(tables[split], spec, block)))
    kind = "ridge" if spec.num_classes is None else "logistic regression"
    return {f"{kind} on edge features": predictions}


def _fitted(
    features: np.ndarray, y: np.ndarray, spec: BenchmarkSpec
) -> tuple[np.ndarray, Callable[[np.ndarray], np.ndarray] | None]:
    """Fit a regression; return the columns that it predicts and how, or None for a single class."""
    if spec.num_classes is None:
        from sklearn.linear_model import Ridge

        # Fitted on logarithms where the models are: else a small number may become one below 0, which has none.
        logged = spec.log10_targets
        ridge = Ridge().fit(features, to_log10(y, logged))
        return np.arange(spec.num_targets), lambda x: from_log10(ridge.predict(x).reshape(len(x), -1), logged)
    classes = np.unique(y[:, 0])
    if len(classes) < 2:
        return classes, None
    from sklearn.linear_model import LogisticRegression

    with warnings.catch_warnings():  # a baseline does not need to converge fully
        warnings.simplefilter("ignore")
        model = LogisticRegression(max_iter=200).fit(features, y[:, 0])
    return model.classes_, model.predict_proba


def _features(table: GraphTable, spec: BenchmarkSpec, rows: np.ndarray) -> np.ndarray:
    """Return features of some edges `[rows, width]`, with one-hot categories."""
    parts, chosen = [], torch.from_numpy(rows)
    if spec.edge.vocabularies:
        codes = table.columns["edge_attr"][chosen].numpy()
        sizes = enumerate(spec.edge.vocabularies)
        parts += [np.eye(size)[codes[:, number]] for number, size in sizes if size <= _MAX_CATEGORIES]
    if spec.edge.dense:
        parts.append(table.columns["edge_dense"][chosen].double().numpy())
    return np.concatenate(parts, axis=1)
