"""Ranking metrics against scikit-learn on concatenated data."""

import numpy as np
import pytest
import torch
from scipy import stats
from sklearn.metrics import average_precision_score, roc_auc_score

from graphbench.nn.heads import HeadConfig
from graphbench.testing import tiny_spec
from graphbench.training.tasks import build_task
from graphbench.training.tasks.metrics import (
    CalibrationError,
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


@pytest.mark.parametrize("name", ["R2", "explained_variance", "RAE", "Spearman", "Pearson"])
@pytest.mark.parametrize(("offset", "scale", "dtype"), [(2e3, 1.0, torch.float32), (1.0, 1e-20, torch.float64)])
def test_scores_of_a_column_do_not_depend_on_its_offset_or_digits(name, offset, scale, dtype):
    metric = build_task(tiny_spec(), 8, HeadConfig(), metrics=[name]).all_metrics()[name]
    truth = torch.arange(64.0)[:, None] / 8 + offset  # exact in float32
    guesses = (truth - offset + torch.tensor([0.5, -0.5]).repeat(32)[:, None]) * scale + offset * (scale == 1)
    metric.update(guesses, truth.to(dtype))
    one, other = (values.double().flatten().numpy() for values in (guesses, truth))
    expected = {
        "R2": lambda: 1 - ((other - one) ** 2).sum() / ((other - other.mean()) ** 2).sum(),
        "explained_variance": lambda: 1 - (other - one).var() / other.var(),
        "RAE": lambda: np.abs(other - one).sum() / np.abs(other - other.mean()).sum(),
        "Spearman": lambda: stats.spearmanr(one, other).statistic,
        "Pearson": lambda: np.corrcoef(one, other)[0, 1],
    }[name]()
    assert metric.compute().item() == pytest.approx(expected, rel=1e-5, abs=1e-6)


def test_no_task_with_both_labels_gives_nan():
    metric = TaskAveragePrecision()
    metric.update(torch.zeros(3, 2), torch.zeros(3, 2))
    assert metric.compute().isnan()


def test_the_calibration_error_is_that_of_guo_with_certain_predictions_in_the_last_bin():
    """Bin m of 15 holds confidences in ((m - 1) / 15, m / 15]; a fifth of the rows has confidence 1."""
    rng = np.random.default_rng(0)
    given = rng.dirichlet([0.3] * 3, 300).astype(np.float32)
    given[::5] = np.eye(3, dtype=np.float32)[rng.integers(0, 3, 60)]
    truth = rng.integers(0, 3, 300)
    metric, expected = CalibrationError(3), 0.0
    for part in np.array_split(np.arange(300), [7, 8, 200]):
        metric.update(torch.tensor(given[part]), torch.tensor(truth[part]))
    confidence, right = given.max(1), given.argmax(1) == truth
    for number in range(15):
        inside = (confidence > number / 15) & (confidence <= (number + 1) / 15)
        if inside.any():
            expected += inside.mean() * abs(right[inside].mean() - confidence[inside].mean())
    assert metric.compute().item() == pytest.approx(expected, abs=1e-6)
    metric.reset()
    metric.update(torch.tensor([[0.95, 0.05, 0.0], [1.0, 0.0, 0.0]]), torch.tensor([0, 1]))
    assert metric.compute().item() == pytest.approx(abs(1 / 2 - 0.975)), "0.95 and 1 share a bin"
