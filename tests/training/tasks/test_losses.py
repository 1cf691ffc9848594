"""Weighted cross-entropy compared with the formula in NumPy."""

import numpy as np
import pytest
import torch

from graphbench.training.tasks.losses import class_terms, combine_classes, masked_terms


def test_weighted_cross_entropy_of_several_classes():
    logits = torch.randn(40, 4, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    target = torch.tensor([0] * 25 + [1] * 10 + [3] * 5)  # class 2 is absent
    weights = np.array([15 / 40, 30 / 40, 0.0, 35 / 40])
    log_p = logits.numpy() - np.log(np.exp(logits.numpy()).sum(1, keepdims=True))
    w = weights[target.numpy()]
    expected = -(w * log_p[np.arange(40), target.numpy()]).sum() / w.sum()
    loss = combine_classes(*class_terms(logits, target, 4), divide_by_weights=True)
    assert loss.item() == pytest.approx(expected, rel=1e-12)


def test_weighted_cross_entropy_of_one_logit_is_averaged_over_labels():
    logits = torch.randn(12, 1, generator=torch.Generator().manual_seed(1), dtype=torch.float64)
    target = torch.tensor([1, 1, 1, 0, 0, 0, 0, 0, 0, 0, 0, 0])
    p = 1 / (1 + np.exp(-logits.numpy()[:, 0]))
    y = target.numpy()
    w = np.where(y == 1, 9 / 12, 3 / 12)
    expected = -(w * (y * np.log(p) + (1 - y) * np.log(1 - p))).mean()
    loss = combine_classes(*class_terms(logits, target, 2), divide_by_weights=False)
    assert loss.item() == pytest.approx(expected, rel=1e-10)


def test_masked_terms_of_nothing_are_zero_with_a_gradient():
    values = torch.tensor([1.0, torch.nan, 3.0], requires_grad=True)
    assert [term.item() for term in masked_terms(values, torch.tensor([True, False, True]))] == [4.0, 2]
    nothing, count = masked_terms(torch.ones(3, requires_grad=True), torch.zeros(3, dtype=torch.bool))
    assert (nothing.item(), count.item()) == (0.0, 0)
    assert nothing.requires_grad
