"""Weighted cross-entropy against the formula written out with NumPy."""

import numpy as np
import pytest
import torch

from graphbench.training.tasks.losses import masked_mean, weighted_cross_entropy


def test_weighted_cross_entropy_of_several_classes():
    logits = torch.randn(40, 4, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    target = torch.tensor([0] * 25 + [1] * 10 + [3] * 5)  # class 2 is absent
    weights = np.array([15 / 40, 30 / 40, 0.0, 35 / 40])
    log_p = logits.numpy() - np.log(np.exp(logits.numpy()).sum(1, keepdims=True))
    w = weights[target.numpy()]
    expected = -(w * log_p[np.arange(40), target.numpy()]).sum() / w.sum()
    assert weighted_cross_entropy(logits, target).item() == pytest.approx(expected, rel=1e-12)


def test_weighted_cross_entropy_of_one_logit_is_averaged_over_labels():
    logits = torch.randn(12, 1, generator=torch.Generator().manual_seed(1), dtype=torch.float64)
    target = torch.tensor([1, 1, 1, 0, 0, 0, 0, 0, 0, 0, 0, 0])
    p = 1 / (1 + np.exp(-logits.numpy()[:, 0]))
    y = target.numpy()
    w = np.where(y == 1, 9 / 12, 3 / 12)
    expected = -(w * (y * np.log(p) + (1 - y) * np.log(1 - p))).mean()
    assert weighted_cross_entropy(logits, target).item() == pytest.approx(expected, rel=1e-10)


def test_masked_mean_of_nothing_is_zero_with_a_gradient():
    values = torch.tensor([1.0, torch.nan, 3.0], requires_grad=True)
    assert masked_mean(values, torch.tensor([True, False, True])).item() == 2.0
    nothing = masked_mean(torch.ones(3, requires_grad=True), torch.zeros(3, dtype=torch.bool))
    assert nothing.item() == 0.0
    assert nothing.requires_grad
