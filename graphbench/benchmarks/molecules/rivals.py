"""Fit models that a chemist would try before a graph model, on the same split, and keep predictions in the store."""

from __future__ import annotations

import hashlib
import logging
import time
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from importlib import metadata
from typing import Any, get_args

import numpy as np
from rdkit import rdBase

from graphbench.benchmarks.molecules.chemistry.baselines import logistic_baseline, ridge_baseline
from graphbench.benchmarks.molecules.chemistry.descriptors import compute_descriptors
from graphbench.benchmarks.molecules.chemistry.trees import Trees, fit_trees, tree_features
from graphbench.contracts import Baseline, BenchmarkSpec
from graphbench.data.columns import from_log10, to_log10
from graphbench.data.entry import Entry, EntryWriter
from graphbench.data.store import Store

logger = logging.getLogger(__name__)
#: Maximum labels of the training split, times classes if more than two, for a logistic regression; MolHIV has 33,000,
#: MolPCBA 45 million.
_MAX_LABELS = 200_000
#: Maximum training molecules of a ridge regression.
_MAX_RIDGE_MOLECULES = 200_000
#: Maximum targets or classes for which trees are fitted.
_MAX_TREE_TARGETS = 40
#: Maximum molecules per split for trees, and letters of their SMILES: descriptors of large molecules take long.
_MAX_TREE_MOLECULES, _MAX_TREE_LETTERS = 10_000, 600_000
#: Maximum training molecules of trees times targets, and the minimum of molecules that are used regardless.
_MAX_TREE_LABELS, _MIN_TREE_MOLECULES = 40_000, 1000
#: Training molecules from which fitting takes minutes, which is said before it begins.
_LONG = 5_000
#: Increase this when the predictions for the same data change.
_VERSION = 2  # leaves of boosting are smaller in small sets

_Predictions = tuple[np.ndarray, np.ndarray]


def fit_rivals(
    store: Store, spec: BenchmarkSpec, smiles: Sequence[Sequence[str]], targets: Sequence[np.ndarray]
) -> dict[str, Baseline]:
    """Fit ridge or logistic regression, random forest and gradient boosting, or read them from the store.

    Large data are thinned in equal steps, which is noted. For targets in log10, models are fitted on the logarithms.

    Args:
        store: keeps predictions and costs, so that the models of a sweep share them.
        spec: specification of the benchmark.
        smiles: SMILES of train, val, and test or new molecules.
        targets: targets of train and val, as for `ridge_baseline` and `logistic_baseline`.

    Returns:
        Name -> predictions of "val" and "test"; rows that were not predicted are NaN.
    """
    logged = spec.log10_targets
    key = _key("baselines", spec, smiles, targets) | ({"log10": list(logged)} if any(logged) else {})

    def build(writer: EntryWriter) -> None:
        if len(smiles[0]) >= _LONG:
            logger.info(
                "%s: fitting simple models on %s molecules for comparison, which takes minutes the first time.",
                spec.name, f"{len(smiles[0]):,}",
            )  # fmt: skip
        fitted = _fit_all(store, spec, smiles, [to_log10(part, logged) for part in targets])
        writer.meta["baselines"] = [[name, one.seconds, one.note] for name, one in fitted.items()]
        for number, one in enumerate(fitted.values()):
            for split, values in one.predictions.items():
                writer.append(f"{number}_{split}", from_log10(values, logged))

    entry: Entry = store.open_or_build(key, build, f"simple models for {spec.name}")
    return {
        name: Baseline({split: np.array(entry.arrays[f"{number}_{split}"]) for split in ("val", "test")}, seconds, note)
        for number, (name, seconds, note) in enumerate(entry.meta["baselines"])
    }


def _key(
    kind: str, spec: BenchmarkSpec, smiles: Sequence[Sequence[str]], targets: Sequence[np.ndarray]
) -> dict[str, Any]:
    """Return the key of an entry that depends on these molecules and targets."""
    return {
        "kind": kind, "version": _VERSION, "task": [spec.kind, spec.num_classes], "rdkit": rdBase.rdkitVersion,
        "sklearn": metadata.version("scikit-learn"), "content": _content(smiles, targets),
    }  # fmt: skip


def _content(smiles: Sequence[Sequence[str]], targets: Sequence[np.ndarray]) -> str:
    content = hashlib.sha256()
    for part in smiles:
        content.update(f"{len(part)}\n".encode())  # else moving a molecule to the next part would not change the result
        content.update("\n".join(part).encode())
    for values in targets:
        content.update(np.ascontiguousarray(values, dtype=np.float64).tobytes())
    return content.hexdigest()


def _fit_all(
    store: Store, spec: BenchmarkSpec, smiles: Sequence[Sequence[str]], targets: Sequence[np.ndarray]
) -> dict[str, Baseline]:
    fitted = _fit_regression(store, spec, smiles, targets)
    count = spec.num_classes if spec.num_classes is not None and spec.num_classes > 2 else targets[0].shape[1]
    if count > _MAX_TREE_TARGETS:
        logger.warning(
            "%s: no random forest or gradient boosting for comparison: %d targets or classes, more than %d, "
            "would take long.", spec.name, count, _MAX_TREE_TARGETS,
        )  # fmt: skip
        return fitted
    return fitted | _fit_trees(store, spec, smiles, targets[0], count)


def _fit_trees(
    store: Store, spec: BenchmarkSpec, smiles: Sequence[Sequence[str]], targets: np.ndarray, num_targets: int
) -> dict[str, Baseline]:
    """Fit random forest and gradient boosting on thinned data; the time of each includes their shared features."""
    started = time.perf_counter()
    train = min(_MAX_TREE_MOLECULES, max(_MIN_TREE_MOLECULES, _MAX_TREE_LABELS // num_targets))
    limits = (train, _MAX_TREE_MOLECULES, _MAX_TREE_MOLECULES)
    rows = [_thin(part, limit) for part, limit in zip(smiles, limits, strict=True)]
    parts = [[part[row] for row in chosen] for part, chosen in zip(smiles, rows, strict=True)]
    entries, described = [_described(store, part) for part in parts[:2]], time.perf_counter() - started
    features = tree_features(parts, [entry.arrays["values"] for entry in entries])
    # What the descriptors took when they were computed, perhaps for an earlier file.
    seconds = time.perf_counter() - started - described + sum(entry.meta["seconds"] for entry in entries)

    def fit(kind: Trees) -> _Predictions:
        values = fit_trees(kind, features, targets[rows[0]], spec.num_classes, spec.kind == "multilabel")
        val, test = (
            _spread(part, chosen, len(whole)) for part, chosen, whole in zip(values, rows[1:], smiles[1:], strict=True)
        )
        return val, test

    note = _note_of_thinning([len(chosen) for chosen in rows], [len(part) for part in smiles])
    return {kind: _timed(partial(fit, kind), note, seconds) for kind in get_args(Trees)}


def _described(store: Store, smiles: Sequence[str]) -> Entry:
    """Compute descriptors, or read them from the store: training and validation are the same for each new file."""

    def build(writer: EntryWriter) -> None:
        started = time.perf_counter()
        writer.append("values", compute_descriptors("rdkit2d", smiles))
        writer.meta["seconds"] = time.perf_counter() - started

    key = {"kind": "rdkit2d", "content": _content([smiles], []), "rdkit": rdBase.rdkitVersion}
    return store.open_or_build(key, build, "descriptors for simple models")


def _note_of_thinning(chosen: Sequence[int], sizes: Sequence[int]) -> str:
    """Describe how many molecules of train, val and test were used, if not all of them."""
    uses = ("fitted on", "training"), ("scored on", "validation"), ("scored on", "test")
    parts = [
        f"{use} {number:,} of {size:,} {split}"
        for (use, split), number, size in zip(uses, chosen, sizes, strict=True)
        if number < size
    ]
    return f"{', '.join(parts)} molecules" if parts else ""


def _fit_regression(
    store: Store, spec: BenchmarkSpec, smiles: Sequence[Sequence[str]], targets: Sequence[np.ndarray]
) -> dict[str, Baseline]:
    """Fit a ridge regression, or a logistic one unless there are too many labels.

    The store keeps the penalties: to choose them takes most of the fits, and does not depend on the test molecules.
    """
    key = _key("penalties", spec, smiles[:2], targets)
    entry = store.open(key)
    chosen: list[float] = [] if entry is None else entry.arrays["penalties"].tolist()
    before: float = 0.0 if entry is None else entry.meta["seconds"]
    if spec.kind == "regression":
        step = max(1, -(-len(smiles[0]) // _MAX_RIDGE_MOLECULES))
        thinned = smiles[0][::step]
        note = "" if step == 1 else f"fitted on {len(thinned):,} of {len(smiles[0]):,} training molecules"
        fit = partial(ridge_baseline, [thinned, *smiles[1:]], [targets[0][::step], targets[1]], chosen=chosen)
        fitted = {"ridge on Morgan counts": _timed(fit, note, before)}
        _keep_penalties(store, key, chosen, fitted)
        return fitted
    classes = spec.num_classes if spec.num_classes is not None and spec.num_classes > 2 else 1
    if targets[0].size * classes > _MAX_LABELS:
        of = f" of {classes} classes" if classes > 1 else ""
        logger.warning(
            "%s: no logistic regression for comparison, which would take long on %d labels%s.",
            spec.name, targets[0].size, of,
        )  # fmt: skip
        return {}
    fit = partial(logistic_baseline, smiles, targets, spec.num_classes, chosen=chosen)
    fitted = {"logistic regression on Morgan counts": _timed(fit, before=before)}
    _keep_penalties(store, key, chosen, fitted)
    return fitted


def _keep_penalties(
    store: Store, key: Mapping[str, Any], chosen: Sequence[float], fitted: Mapping[str, Baseline]
) -> None:
    def build(writer: EntryWriter) -> None:
        writer.append("penalties", np.array(chosen))
        writer.meta["seconds"] = sum(one.seconds or 0.0 for one in fitted.values())

    store.open_or_build(key, build, "penalties of simple models")


def _timed(fit: Callable[[], _Predictions], note: str = "", before: float = 0.0) -> Baseline:
    """Fit, and measure the seconds including those `before` it."""
    started = time.perf_counter()
    val, test = fit()
    return Baseline({"val": val, "test": test}, round(before + time.perf_counter() - started, 2), note)


def _thin(smiles: Sequence[str], limit: int) -> np.ndarray:
    """Choose rows in equal steps, to limit both their number and the number of letters."""
    step = max(1, -(-len(smiles) // limit), -(-sum(map(len, smiles)) // _MAX_TREE_LETTERS))
    return np.arange(0, len(smiles), step)


def _spread(values: np.ndarray, rows: np.ndarray, count: int) -> np.ndarray:
    """Put predictions into their rows among `count`, with NaN in all others."""
    whole = np.full((count, values.shape[1]), np.nan)
    whole[rows] = values
    return whole
