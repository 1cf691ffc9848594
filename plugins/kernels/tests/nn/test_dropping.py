"""Random bits of kernels: the published generator, and shares that match the probability."""

import pytest
import torch

pytest.importorskip("numba")

from graphbench_kernels import run_in_threads
from graphbench_kernels.nn.dropping import draw_bits, draws_bits
from graphbench_kernels.nn.random_numba import fill_numbers

ENTRIES = 1 << 18


def splitmix(seed, count):
    """Steele, Lea & Flood 2014, figure 9, in Python's integers."""
    mask, state, found = (1 << 64) - 1, seed, []
    for _ in range(count):
        state = (state + 0x9E3779B97F4A7C15) & mask
        z = ((state ^ (state >> 30)) * 0xBF58476D1CE4E5B9) & mask
        z = ((z ^ (z >> 27)) * 0x94D049BB133111EB) & mask
        found.append(z ^ (z >> 31))
    return found


@pytest.mark.parametrize("seed", [0, 1234567, (1 << 64) - 1])
@pytest.mark.parametrize("length", [0, 1, 5, 100])
def test_numbers_are_those_of_the_published_generator(seed, length):
    import numpy as np

    numbers = np.empty(length, np.uint64)
    run_in_threads(fill_numbers, length, 1, np.uint64(seed), numbers)
    assert numbers.tolist() == splitmix(seed, length)


@pytest.mark.parametrize("p", [0.1, 0.25, 0.5, 0.9])
def test_a_share_p_is_dropped_and_the_mean_stays(p):
    torch.manual_seed(3)
    drawn = draw_bits(ENTRIES, p, more=7)
    assert len(drawn.bits) == ENTRIES + 7
    kept = (drawn.bits[:ENTRIES] >= drawn.least).double()
    spread = (p * (1 - p) / ENTRIES) ** 0.5
    assert abs(kept.mean() - (1 - p)) < 4 * spread
    assert abs(kept.mean() * drawn.factor - 1) < 4 * spread / (1 - p) + 1e-3
    pattern = kept.view(-1, 4).long() @ torch.tensor([8, 4, 2, 1])  # four entries share a number
    expected = torch.tensor([p ** (4 - i.bit_count()) * (1 - p) ** i.bit_count() for i in range(16)])
    found = torch.bincount(pattern, minlength=16) / len(pattern)
    assert (found - expected).abs().max() < 5 * (expected.max() / len(pattern)) ** 0.5


def test_torch_s_seed_decides():
    torch.manual_seed(1)
    first, second = draw_bits(100, 0.5).bits, draw_bits(100, 0.5).bits
    torch.manual_seed(1)
    assert torch.equal(draw_bits(100, 0.5).bits, first)
    assert not torch.equal(first, second)


def test_probabilities_without_a_near_multiple_are_left_to_torch():
    assert all(draws_bits(p) for p in (0.1, 0.5, 0.9))
    assert not any(draws_bits(p) for p in (1e-6, 1.0, 1 - 1e-6))
