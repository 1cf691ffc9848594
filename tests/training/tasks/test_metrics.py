"""Ranking metrics against scikit-learn on concatenated data."""

import numpy as np
import pytest
import torch
from sklearn.metrics import average_precision_score, roc_auc_score

from graphbench.training.tasks.metrics import (
    TaskAUROC,
    TaskAveragePrecision,
)


@pytest.fixture(scope="module")
def scored():
    rng = np.random.default_rng(0)
    labels = (rng.random((200, 5)) < 0.2).astype(float)
    labels[rng.random((200, 5)) < 0.1] = np.nan
    labels[:, 3] = np.where(np.isnan(labels[:, 3]), np.nan, 0.0)  # a task without positives does not count
    scores = rng.normal(size=(200, 5)).round(1)  # ties
    return scores, labels


@pytest.mark.parametrize(
    ("metric", "reference"), [(TaskAveragePrecision, average_precision_score), (TaskAUROC, roc_auc_score)]
)
def test_mean_over_tasks_agrees_with_scikit_learn(scored, metric, reference):
    scores, labels = scored
    expected = []
    for task in (0, 1, 2, 4):
        valid = ~np.isnan(labels[:, task])
        expected.append(reference(labels[valid, task], scores[valid, task]))
    ours = metric()
    for part in np.array_split(np.arange(200), 7):
        ours.update(torch.tensor(scores[part]), torch.tensor(labels[part]))
    assert ours.compute().item() == pytest.approx(np.mean(expected), abs=1e-6)


def test_no_task_with_both_labels_gives_nan():
    metric = TaskAveragePrecision()
    metric.update(torch.zeros(3, 2), torch.zeros(3, 2))
    assert metric.compute().isnan()
