"""Dropout against what its numbers must be: rates, independence, gradients, and torch's where it is torch's."""

import math

import numpy as np
import pytest
import torch
from torch.nn import functional as F

from graphbench.nn import dropped, fill_factors
from graphbench.nn.dropout import random_numbers
from graphbench.testing import computed_by

ENTRIES = 1 << 20


@pytest.fixture(autouse=True)
def seed():
    torch.manual_seed(0)


@pytest.mark.parametrize("p", [0.01, 0.1, 0.2, 1 / 3, 0.5, 0.9, 0.99])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.bfloat16])
def test_the_share_that_is_dropped_and_the_mean_are_right(p, dtype):
    out = dropped(torch.ones(ENTRIES, dtype=dtype), p)
    assert out.dtype == dtype
    spread = math.sqrt(p * (1 - p) / ENTRIES)
    assert (out == 0).double().mean().item() == pytest.approx(p, abs=5 * spread)
    kept = out[out != 0].double().unique()
    assert len(kept) == 1
    assert kept.item() == pytest.approx(1 / (1 - p), rel=5e-3 if dtype == torch.bfloat16 else 1e-3)


@pytest.mark.parametrize("p", [1e-6, 1e-4, 1 - 1e-6])
def test_a_probability_that_sixteen_bits_cannot_tell_is_drawn_by_torch(p):
    x = torch.ones(1000)
    torch.manual_seed(3)
    expected = F.dropout(x, p)
    torch.manual_seed(3)
    assert torch.equal(dropped(x, p), expected)


def test_entries_that_share_a_number_are_independent():
    """Of groups of four, which come from 64 bits, each of the 16 patterns comes as often as chance has it."""
    p = 0.3
    pattern = (dropped(torch.ones(ENTRIES // 4, 4), p) == 0).long() @ torch.tensor([8, 4, 2, 1])
    found = torch.bincount(pattern, minlength=16).double()
    ones = torch.tensor([bin(number).count("1") for number in range(16)])
    expected = len(pattern) * p**ones * (1 - p) ** (4 - ones)
    assert ((found - expected) ** 2 / expected).sum() < 37.7  # chi-square with 15 degrees of freedom, 1 in 1,000


def test_the_gradient_passes_where_an_entry_was_kept():
    x = torch.randn(50, 7, dtype=torch.float64, requires_grad=True)
    out = dropped(x, 0.4)
    (grad,) = torch.autograd.grad(out, x, torch.ones_like(x))
    torch.testing.assert_close(grad * x, out)
    assert 0 < int((grad == 0).sum()) < grad.numel()


def test_the_same_seed_drops_the_same():
    x = torch.ones(33, 3)
    first, second = dropped(x, 0.5), dropped(x, 0.5)
    torch.manual_seed(0)
    assert torch.equal(dropped(x, 0.5), first)
    assert not torch.equal(first, second)


def test_outside_of_training_and_with_nothing_to_drop_it_is_the_input():
    x = torch.randn(4)
    assert dropped(x, 0.5, training=False) is x
    assert dropped(x, 0.0) is x


@pytest.mark.parametrize("shape", [(0,), (1,), (5, 0), (3, 1, 5)])
def test_shapes_that_no_number_fills(shape):
    assert dropped(torch.ones(shape), 0.5).shape == shape


def test_everything_is_dropped_with_probability_one():
    assert torch.equal(dropped(torch.ones(9), 1.0), torch.zeros(9))


@pytest.mark.parametrize("p", [-0.1, 1.5])
def test_what_is_no_probability_is_refused(p):
    with pytest.raises(ValueError, match="probability"):
        dropped(torch.ones(2), p)


def test_compiled_it_is_that_of_torch():
    def run(x):
        return dropped(x, 0.5)

    compiled = torch.compile(run, backend="eager", fullgraph=True)
    torch.manual_seed(1)
    out = compiled(torch.ones(8))
    torch.manual_seed(1)
    assert torch.equal(out, F.dropout(torch.ones(8), 0.5))


def test_random_numbers_are_those_of_the_published_generator():
    """The first of seed 1234567, as other implementations of SplitMix64 have them; with Numba and without."""
    published = [6457827717110365317, 3203168211198807973, 9817491932198370423, 4593380528125082431]
    for by in ("numba", "torch"):
        numbers = np.empty(4, np.uint64)
        with computed_by(by):
            random_numbers(1234567, numbers)
        assert numbers.tolist() == published


def test_random_numbers_follow_the_definition_for_every_seed_and_length():
    def mixed(z):
        z = (z ^ (z >> 30)) * 0xBF58476D1CE4E5B9 % 2**64
        z = (z ^ (z >> 27)) * 0x94D049BB133111EB % 2**64
        return z ^ (z >> 31)

    for seed in (0, 1, 2**63, 2**64 - 1):
        exact = [mixed((seed + (i + 1) * 0x9E3779B97F4A7C15) % 2**64) for i in range(100_000)]
        for by in ("numba", "torch"):
            numbers = np.empty(100_000, np.uint64)
            with computed_by(by):
                random_numbers(seed, numbers)
            assert numbers.tolist() == exact


def test_threads_draw_the_same():
    found, before = [], torch.get_num_threads()
    for threads in (1, 3):
        torch.set_num_threads(threads)
        torch.manual_seed(1)
        found.append(dropped(torch.ones(1 << 19), 0.5))
    torch.set_num_threads(before)
    assert torch.equal(*found)


def test_factors_of_a_generator_of_its_own_leave_that_of_torch_alone():
    before = torch.get_rng_state()
    made = [fill_factors(torch.empty(6, 5), 0.2, torch.Generator().manual_seed(4)) for _ in range(2)]
    assert torch.equal(*made)
    assert made[0].unique().tolist() == pytest.approx([0.0, 1.25], rel=1e-4)
    assert torch.equal(torch.get_rng_state(), before)


def test_factors_fill_a_view():
    whole = torch.full((4, 6), 7.0)
    fill_factors(whole[:, ::2], 0.5)
    assert bool((whole[:, 1::2] == 7).all())
    assert set(whole[:, ::2].unique().tolist()) <= {0.0, 2.0}
