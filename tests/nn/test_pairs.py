import pytest
import torch

from graphbench.nn import node_pairs
from graphbench.testing import tiny_spec, tiny_table

SIZES = [3, 1, 4, 2]


def test_pairs_are_those_of_two_loops():
    batch = tiny_table(tiny_spec(), sizes=SIZES).batch(range(len(SIZES)))
    expected, start = [], 0
    for size in SIZES:
        expected += [(start + i, start + j) for i in range(size) for j in range(size)]
        start += size
    first, second = node_pairs(batch, len(expected))
    assert list(zip(first.tolist(), second.tolist(), strict=True)) == expected


@pytest.mark.slow
def test_compiled_pairs_are_the_same():
    """Vector widths do not divide these sizes: lanes after the last pair must not matter."""
    batch = tiny_table(tiny_spec(), sizes=SIZES).batch(range(len(SIZES)))
    num_pairs = sum(size**2 for size in SIZES)
    compiled = torch.compile(lambda: torch.stack(node_pairs(batch, num_pairs)), dynamic=True)
    assert torch.equal(compiled(), torch.stack(node_pairs(batch, num_pairs)))
