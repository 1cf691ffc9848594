"""The water level on rows that are known in closed form or hard to settle."""

from __future__ import annotations

import pytest
import torch

from graphbench_sfi_former.waterfill import Vessels, water_level


def solve(weight: torch.Tensor, cost: torch.Tensor, slack: torch.Tensor | None, guess: float):
    flow = torch.empty_like(weight)
    start = torch.full_like(cost[:, :1], guess)
    level = water_level(Vessels(weight, cost, slack), start, torch.empty_like(flow), flow, steepest=torch.inf)
    return level, flow


@pytest.mark.parametrize("guess", [1e-6, 0.5, 1.0, 1e3, 1e9])
def test_any_guess_leads_to_the_level(guess):
    weight = torch.tensor([[0.25, 0.25, 0.5]], dtype=torch.float64)
    level, flow = solve(weight, torch.tensor([[0.0, 2.0, 10.0]], dtype=torch.float64), None, guess)
    assert level.level.item() == pytest.approx(3.0, rel=1e-12)  # 0.25 * 3 + 0.25 * 1 = 1
    assert level.slope.item() == 0.5
    assert flow.tolist() == [pytest.approx([0.75, 0.25, 0.0], rel=1e-12)]


def test_the_overflow_takes_its_share():
    weight, cost = torch.tensor([[0.5, 0.5]]), torch.tensor([[1.0, 3.0]])
    level, flow = solve(weight, cost, torch.tensor([[0.25]]), 1.0)
    assert level.level.item() == pytest.approx(2.0)  # 0.5 * 1 + 0.25 * 2 = 1
    assert flow.tolist() == [[0.5, 0.0]]


def test_all_dry_when_the_overflow_is_low():
    level, flow = solve(torch.tensor([[0.5, 0.5]]), torch.tensor([[5.0, 6.0]]), torch.tensor([[1.0]]), 1.0)
    assert level.level.item() == pytest.approx(1.0)
    assert flow.tolist() == [[0.0, 0.0]]


def test_level_between_two_neighbouring_numbers_ends():
    """Equal costs of 2^24 in float32: the level 2^24 + 1 is no float32, so the passes could step over it for ever.

    Where products are rounded before they are added they do, until they are given up and the level is said to be wrong.
    """
    weight, cost = torch.full((3, 4), 0.25), torch.full((3, 4), 2.0**24)
    level, flow = solve(weight, cost, None, 1.0)
    assert not level.settled.any() or torch.allclose(level.level, cost[:, :1], rtol=1e-3)
    assert torch.isfinite(flow).all()
    assert (level.volume > 0).all()


def test_costs_over_many_orders_of_magnitude():
    generator = torch.Generator().manual_seed(0)
    weight = torch.rand(50, 64, generator=generator, dtype=torch.float64).pow(20)
    weight /= weight.sum(-1, keepdim=True)
    cost = torch.rand(50, 64, generator=generator, dtype=torch.float64).mul(60).sub(30).exp()
    level, flow = solve(weight, cost, None, 1.0)
    torch.testing.assert_close(flow.sum(-1), torch.ones(50, dtype=torch.float64), rtol=1e-6, atol=0)
    torch.testing.assert_close(flow, weight * (level.level - cost).clamp_min(0), rtol=1e-12, atol=0)
