"""Which rows take the slow path: none of ordinary size, all whose softmax has nearly one key."""

from __future__ import annotations

import pytest
import torch

from graphbench_sfi_former import sparse_flow_attention, steep
from graphbench_sfi_former.blocks import _hot

WIDTH = 16


@pytest.fixture
def steep_rows(monkeypatch):
    """Record the numbers of the rows passed to `steep` in the calls that follow."""
    found: list[int] = []
    solve = steep.solve_steep

    def counted(part, allowed, rows):
        found.extend(rows.tolist())
        return solve(part, allowed, rows)

    monkeypatch.setattr(steep, "solve_steep", counted)
    return found


def _operands(num_nodes, generator, deviation=1.0):
    """Return projections whose logits are normal with this standard deviation, `[2, N, WIDTH]` each."""
    query, key, query2, key2, value = torch.randn(5, 2, num_nodes, WIDTH, generator=generator).unbind()
    return query * deviation, key, query2 * deviation, key2, value


@pytest.mark.parametrize("num_nodes", [16, 32, 64])
def test_no_ordinary_row_is_steep(steep_rows, num_nodes):
    for seed in range(8):
        operands = _operands(num_nodes, torch.Generator().manual_seed(seed))
        softmax = (operands[0] @ operands[1].mT / WIDTH**0.5).softmax(-1)
        assert softmax.max() < 0.9  # what makes these rows ordinary
        sparse_flow_attention(*operands, penalty=1 / num_nodes, alpha=0.1)
    assert steep_rows == []


def test_rows_with_one_key_are_steep_and_their_neighbours_are_not(steep_rows):
    query, key, query2, key2, value = _operands(32, torch.Generator().manual_seed(0))
    key[0, 5] = 12 * torch.nn.functional.one_hot(torch.tensor(3), WIDTH)
    query[0, 7] = key[0, 5]  # a logit of 36 among those of size 1
    key2[0, 5], query2[0, 7] = -key[0, 5], torch.nn.functional.one_hot(torch.tensor(3), WIDTH).float()
    for seen in (query, query2):
        seen[:, :, 3] *= torch.arange(32).eq(7)  # which no other query sees
    sparse_flow_attention(query, key, query2, key2, value, penalty=1 / 32, alpha=0.1)
    assert steep_rows == [7]


def test_hot_rows_have_large_logits_and_a_softmax_near_one():
    softmax = torch.tensor([[[0.95, 0.03, 0.02]], [[0.85, 0.10, 0.05]], [[0.95, 0.03, 0.02]], [[0.4, 0.3, 0.3]]])
    friction = torch.tensor([[[0.4, 0.3, 0.3]], [[0.4, 0.3, 0.3]], [[0.4, 0.3, 0.3]], [[0.02, 0.03, 0.95]]])
    size = torch.tensor([20.0, 20.0, 2.0, 20.0]).view(4, 1, 1)
    weight = (1 / softmax) / (1 / softmax).sum(-1, keepdim=True)  # resistances that are this softmax
    unit = 1 / (1 / weight).sum(-1, keepdim=True)
    torch.testing.assert_close(unit / weight, softmax)
    assert _hot(weight, unit, friction, size, None).flatten().tolist() == [True, False, False, True]
    assert not _hot(weight, unit, friction, size / 10, None).any()
