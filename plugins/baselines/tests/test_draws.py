"""Numbers that do not depend on what surrounds them."""

from __future__ import annotations

import torch

from graphbench_baselines.draws import fixed_uniforms


def test_rows_are_those_of_every_longer_table():
    long = fixed_uniforms(1000, 3, seed=5)
    for rows in (0, 1, 255, 256, 257, 999):
        assert torch.equal(fixed_uniforms(rows, 3, seed=5), long[:rows])


def test_numbers_are_uniform_and_differ_between_seeds_and_streams():
    numbers = fixed_uniforms(10_000, 4, seed=1)
    assert numbers.min() >= 0
    assert numbers.max() < 1
    # The mean of 40,000 uniform numbers has a deviation of 0.29 / 200; their variance is 1 / 12.
    assert abs(numbers.mean() - 0.5) < 5 * 0.29 / 200
    assert abs(numbers.var() - 1 / 12) < 0.003
    assert not torch.equal(numbers[:256], numbers[256:512])
    assert not torch.equal(numbers, fixed_uniforms(10_000, 4, seed=2))


def test_no_generator_of_torch_moves():
    before = torch.get_rng_state()
    fixed_uniforms(700, 2, seed=9)
    assert torch.equal(before, torch.get_rng_state())
