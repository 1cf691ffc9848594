"""Shares of zeros and row sums on matrices that can be counted by eye."""

from __future__ import annotations

import torch

from graphbench_sfi_former import flow_statistics


def test_zero_share_and_row_sums():
    flow = torch.tensor([[[0.5, 0.5], [0.0, 1.0]], [[0.0, 0.0], [0.0, 0.25]]])
    statistics = flow_statistics(flow)
    assert statistics.zero_share.tolist() == [0.25, 0.75]
    assert statistics.row_sum.tolist() == [[1.0, 1.0], [0.0, 0.25]]


def test_masked_keys_count_nowhere():
    flow = torch.tensor([[[0.5, 0.0, 7.0], [0.25, 0.75, 7.0]]])
    statistics = flow_statistics(flow, torch.tensor([True, True, False]))
    assert statistics.zero_share.tolist() == [0.25]
    assert statistics.row_sum.tolist() == [[0.5, 1.0]]
