"""The gap has one sign for all metrics."""

from __future__ import annotations

import pytest
import torch

from graphbench.diagnostics import generalization_gap


def test_larger_gap_is_worse_for_scores_and_errors() -> None:
    assert generalization_gap(0.95, 0.80, higher_is_better=True) == pytest.approx(0.15)
    assert generalization_gap(0.10, 0.30, higher_is_better=False) == pytest.approx(0.20)
    assert generalization_gap(0.30, 0.10, higher_is_better=False) < 0  # better on unseen data
    gap = generalization_gap(torch.tensor([0.1, 0.2]), torch.tensor([0.3, 0.1]), higher_is_better=False)
    torch.testing.assert_close(gap, torch.tensor([0.2, -0.1]))
