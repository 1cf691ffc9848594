"""Fit what a chemist would try before a graph model, on the same split, and keep its predictions in the store."""

from __future__ import annotations

import hashlib
import logging
import time
from collections.abc import Callable, Sequence
from functools import partial
from importlib import metadata
from typing import Any, get_args

import numpy as np
from rdkit import rdBase

from graphbench.benchmarks.molecules.chemistry.baselines import logistic_baseline, ridge_baseline
from graphbench.benchmarks.molecules.chemistry.trees import Trees, fit_trees, tree_features
from graphbench.contracts import Baseline, BenchmarkSpec
from graphbench.data.columns import from_log10, to_log10
from graphbench.data.entry import Entry, EntryWriter
from graphbench.data.store import Store

logger = logging.getLogger(__name__)
#: Labels of the training split up to which a logistic regression is fitted; MolHIV has 33,000, MolPCBA 45 million.
_MOST_LABELS = 200_000
#: Training molecules of a ridge regression.
_MOST_OF_RIDGE = 200_000
#: Molecules, letters of their SMILES (descriptors of large molecules take long), and targets (or classes) of trees.
_MOST_OF_TREES, _MOST_LETTERS, _MOST_TARGETS = 10_000, 600_000, 40
#: Training molecules times targets of trees; 1,000 molecules are taken in any case.
_MOST_NUMBERS, _FEWEST_OF_TREES = 40_000, 1000
#: To be raised when the predictions of the same data change.
_VERSION = 2  # leaves of boosting are smaller in small sets

_Predictions = tuple[np.ndarray, np.ndarray]


def fit_rivals(
    store: Store, spec: BenchmarkSpec, smiles: Sequence[Sequence[str]], targets: Sequence[np.ndarray]
) -> dict[str, Baseline]:
    """Fit ridge or logistic regression, random forest and gradient boosting; read them from the store if it has them.

    Large data are thinned in equal steps, and a note says so. Of targets in log10 they are fitted on the logarithms.

    Args:
        store: keeps predictions and costs, so that the models of a sweep share them.
        spec: of the benchmark.
        smiles: of train, val, and test or new molecules.
        targets: of train and val, as `ridge_baseline` and `logistic_baseline` take them.

    Returns:
        Name -> predictions of "val" and "test"; rows of NaN where only a part was predicted.
    """
    logged = spec.log10_targets
    key: dict[str, Any] = {
        "kind": "baselines", "version": _VERSION, "task": [spec.kind, spec.num_classes], "rdkit": rdBase.rdkitVersion,
        "sklearn": metadata.version("scikit-learn"), "content": _content(smiles, targets),
        **({"log10": list(logged)} if any(logged) else {}),
    }  # fmt: skip

    def build(writer: EntryWriter) -> None:
        fitted = _fit_all(spec, smiles, [to_log10(part, logged) for part in targets])
        writer.meta["baselines"] = [[name, one.seconds, one.note] for name, one in fitted.items()]
        for number, one in enumerate(fitted.values()):
            for split, values in one.predictions.items():
                writer.append(f"{number}_{split}", from_log10(values, logged))

    entry: Entry = store.open_or_build(key, build, f"simple models beside {spec.name}")
    return {
        name: Baseline({split: np.array(entry.arrays[f"{number}_{split}"]) for split in ("val", "test")}, seconds, note)
        for number, (name, seconds, note) in enumerate(entry.meta["baselines"])
    }


def _content(smiles: Sequence[Sequence[str]], targets: Sequence[np.ndarray]) -> str:
    content = hashlib.sha256()
    for part in smiles:
        content.update(f"{len(part)}\n".encode())  # else a molecule that moves to the next part would change nothing
        content.update("\n".join(part).encode())
    for values in targets:
        content.update(np.ascontiguousarray(values, dtype=np.float64).tobytes())
    return content.hexdigest()


def _fit_all(
    spec: BenchmarkSpec, smiles: Sequence[Sequence[str]], targets: Sequence[np.ndarray]
) -> dict[str, Baseline]:
    fitted = _fit_regression(spec, smiles, targets)
    count = spec.num_classes if spec.num_classes is not None and spec.num_classes > 2 else targets[0].shape[1]
    if count > _MOST_TARGETS:
        logger.warning(
            "%s: no random forest and no gradient boosting beside the model: %d targets or classes, more than %d, "
            "would take long.", spec.name, count, _MOST_TARGETS,
        )  # fmt: skip
        return fitted
    started = time.perf_counter()
    most = min(_MOST_OF_TREES, max(_FEWEST_OF_TREES, _MOST_NUMBERS // count))
    rows = [_thin(part, limit) for part, limit in zip(smiles, (most, _MOST_OF_TREES, _MOST_OF_TREES), strict=True)]
    features = tree_features([[part[row] for row in chosen] for part, chosen in zip(smiles, rows, strict=True)])
    shared = time.perf_counter() - started
    notes = [
        f"{words} {len(chosen):,} of {len(part):,} {of}"
        for words, of, chosen, part in zip(
            ("fitted on", "scored on", "scored on"), ("training", "validation", "test"), rows, smiles, strict=True
        )
        if len(chosen) < len(part)
    ]

    def fit(kind: Trees) -> _Predictions:
        values = fit_trees(kind, features, targets[0][rows[0]], spec.num_classes, spec.kind == "multilabel")
        val, test = (
            _spread(part, chosen, len(whole)) for part, chosen, whole in zip(values, rows[1:], smiles[1:], strict=True)
        )
        return val, test

    for kind in get_args(Trees):
        fitted[kind] = _timed(partial(fit, kind), ", ".join(notes) + (" molecules" if notes else ""), shared)
    return fitted


def _fit_regression(
    spec: BenchmarkSpec, smiles: Sequence[Sequence[str]], targets: Sequence[np.ndarray]
) -> dict[str, Baseline]:
    """Fit a ridge regression, or a logistic one unless there are too many labels."""
    if spec.kind == "regression":
        step = max(1, -(-len(smiles[0]) // _MOST_OF_RIDGE))
        some = [smiles[0][::step], *smiles[1:]], [targets[0][::step], targets[1]]
        note = "" if step == 1 else f"fitted on {len(some[0][0]):,} of {len(smiles[0]):,} training molecules"
        return {"ridge on Morgan counts": _timed(lambda: ridge_baseline(*some), note)}
    if targets[0].size > _MOST_LABELS:
        logger.warning(
            "%s: no logistic regression beside the model, which would take long on %d labels.",
            spec.name, targets[0].size,
        )  # fmt: skip
        return {}
    fit = lambda: logistic_baseline(smiles, targets, spec.num_classes)  # noqa: E731
    return {"logistic regression on Morgan counts": _timed(fit)}


def _timed(fit: Callable[[], _Predictions], note: str = "", before: float = 0.0) -> Baseline:
    """Fit, with the seconds that it takes and those `before` it."""
    started = time.perf_counter()
    val, test = fit()
    return Baseline({"val": val, "test": test}, round(before + time.perf_counter() - started, 2), note)


def _thin(smiles: Sequence[str], most: int) -> np.ndarray:
    """Choose rows in equal steps, so that neither they nor their letters are too many."""
    step = max(1, -(-len(smiles) // most), -(-sum(map(len, smiles)) // _MOST_LETTERS))
    return np.arange(0, len(smiles), step)


def _spread(values: np.ndarray, rows: np.ndarray, count: int) -> np.ndarray:
    """Put predictions into their rows among `count`, with NaN in the others."""
    whole = np.full((count, values.shape[1]), np.nan)
    whole[rows] = values
    return whole
