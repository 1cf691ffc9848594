"""The random start that does not depend on the batch."""

from __future__ import annotations

import torch

from graphbench_sfi_former import ProximalOptions
from graphbench_sfi_former.iteration import _nested_uniform


def test_a_smaller_start_is_the_corner_of_a_larger_one():
    whole = _nested_uniform(3, 40, seed=0)
    assert whole.shape == (3, 40, 40)
    for size in (1, 2, 17):
        assert torch.equal(_nested_uniform(3, size, seed=0), whole[:, :size, :size])
    assert not torch.equal(_nested_uniform(3, 40, seed=1), whole)


def test_the_numbers_are_uniform_and_all_different():
    drawn = _nested_uniform(2, 100, seed=0).flatten().sort().values
    assert drawn[0] >= 0
    assert drawn[-1] < 1
    uniform = (torch.arange(len(drawn)) + 0.5) / len(drawn)
    assert (drawn - uniform).abs().max() < 1.63 / len(drawn) ** 0.5  # Kolmogorov and Smirnov, 1%
    assert len(drawn.unique()) > 0.99 * len(drawn)


def test_a_scaled_start_sums_to_about_one_in_every_row():
    rows = torch.rand(2, 3, 50, 50)
    mask = torch.ones(2, 1, 50, 50, dtype=torch.bool)
    mask[1, ..., 30:] = False
    start = ProximalOptions(start="scaled")._start(rows, mask)
    start = torch.where(mask, start, 0.0)
    assert torch.allclose(start.sum(-1).mean(-1), torch.ones(2, 3), atol=0.1)
