"""Metrics that skip rows without a target, compared with torchmetrics and scikit-learn on the known rows."""

import numpy as np
import pytest
import torch
import torchmetrics
from sklearn.metrics import accuracy_score, f1_score, recall_score, roc_auc_score

from graphbench.training.tasks.known import (
    KnownAccuracy,
    KnownAUROC,
    KnownF1Score,
    KnownMeanAbsoluteError,
    KnownMeanSquaredError,
)


@pytest.mark.parametrize(
    ("own", "other"),
    [
        (KnownMeanAbsoluteError(), torchmetrics.MeanAbsoluteError()),
        (KnownMeanSquaredError(), torchmetrics.MeanSquaredError()),
        (KnownMeanSquaredError(squared=False), torchmetrics.MeanSquaredError(squared=False)),
    ],
)
def test_errors_of_known_targets_are_those_of_what_is_known(own, other):
    """Compare with torchmetrics on the known entries; one batch has none."""
    generator = torch.Generator().manual_seed(0)
    for share in (0.0, 0.4, 1.0, 0.9):
        predictions, targets = torch.randn(2, 30, 3, generator=generator)
        targets[torch.rand(30, 3, generator=generator) < share] = torch.nan
        own.update(predictions, targets)
        known = ~targets.isnan()
        other.update(predictions[known], targets[known])
    torch.testing.assert_close(own.compute(), other.compute())
    assert int(own.total) == int(other.total)


def labelled_batches(classes, seed=0):
    """Yield scores with ties and classes in batches of several sizes: all known, some, none, one row."""
    rng = np.random.default_rng(seed)
    for rows, share in ((40, 0.0), (30, 0.4), (7, 1.0), (1, 0.0)):
        target = rng.integers(0, classes, rows)
        target[rng.random(rows) < share] = -1
        yield rng.normal(size=(rows, classes)).round(1), target


SCORES = {
    "accuracy": (KnownAccuracy, "micro", accuracy_score),
    "class_accuracy": (KnownAccuracy, "macro", lambda true, chosen: recall_score(true, chosen, average="macro")),
    "macro_F1": (KnownF1Score, "macro", lambda true, chosen: f1_score(true, chosen, average="macro")),
    "micro_F1": (KnownF1Score, "micro", lambda true, chosen: f1_score(true, chosen, average="micro")),
}


@pytest.mark.parametrize("classes", [2, 5])
@pytest.mark.parametrize("name", SCORES)
def test_scores_of_classes_agree_with_scikit_learn(name, classes):
    kind, average, reference = SCORES[name]
    metric, batches = kind(classes, average=average), list(labelled_batches(classes))
    for scores, target in batches:
        metric.update(torch.tensor(scores), torch.tensor(target))
    scores, target = (np.concatenate(parts) for parts in zip(*batches, strict=True))
    known = target >= 0
    expected = reference(target[known], scores[known].argmax(1))
    assert metric.compute().item() == pytest.approx(expected, abs=1e-6)


@pytest.mark.parametrize(
    ("own", "other"),
    [
        (KnownAccuracy, torchmetrics.classification.MulticlassAccuracy),
        (KnownF1Score, torchmetrics.classification.MulticlassF1Score),
    ],
)
@pytest.mark.parametrize("average", ["micro", "macro"])
def test_counts_are_those_of_torchmetrics(own, other, average):
    """Two of the six classes have no rows, and one of these is never predicted."""
    own, other = own(6, average=average), other(6, average=average)
    for scores, target in labelled_batches(4):
        scores = np.pad(scores, ((0, 0), (0, 2)), constant_values=-9.0)
        scores[::5, 4] = 9.0
        own.update(torch.tensor(scores), torch.tensor(target))
        if (known := target >= 0).any():
            other.update(torch.tensor(scores[known]), torch.tensor(target[known]))
    for state in ("tp", "fp", "tn", "fn"):
        assert torch.equal(getattr(own, state).reshape(-1), getattr(other, state).reshape(-1)), state
    assert torch.equal(own.compute(), other.compute())


def test_the_area_is_that_of_known_rows():
    metric, batches = KnownAUROC(), list(labelled_batches(2))
    for scores, target in batches:
        metric.update(torch.tensor(scores[:, 1]).sigmoid(), torch.tensor(target))
    scores, target = (np.concatenate(parts) for parts in zip(*batches, strict=True))
    known = target >= 0
    assert metric.compute().item() == pytest.approx(roc_auc_score(target[known], scores[known, 1]), abs=1e-6)


@pytest.mark.parametrize("target", [[-1, -1], [0, -1], [1, 1]])
def test_a_class_without_rows_gives_no_area(target):
    metric = KnownAUROC()
    metric.update(torch.tensor([0.2, 0.7]), torch.tensor(target))
    assert metric.compute().isnan()
