"""Long convolutions against their sums."""

from __future__ import annotations

import pytest
import torch

from graphbench_sequences.convolution import long_convolution


@pytest.mark.parametrize("length", [1, 2, 7, 16])
@pytest.mark.parametrize("both", [False, True])
def test_it_is_the_sum_over_pairs_of_tokens(length, both):
    generator = torch.Generator().manual_seed(length)
    x, past, future = (
        torch.randn(shape, generator=generator, dtype=torch.float64)
        for shape in ((2, length, 3), (3, length), (3, length))
    )
    found = long_convolution(x, past, future if both else None)
    expected = torch.zeros_like(x)
    for i in range(length):
        for j in range(length):
            if j <= i:
                expected[:, i] += past[:, i - j] * x[:, j]
            elif both:
                expected[:, i] += future[:, j - i - 1] * x[:, j]
    torch.testing.assert_close(found, expected, rtol=1e-12, atol=1e-12)


def test_no_tokens_are_no_tokens():
    assert long_convolution(torch.zeros(2, 0, 3), torch.zeros(3, 0)).shape == (2, 0, 3)
