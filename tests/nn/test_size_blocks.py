from itertools import combinations, pairwise

import numpy as np
import pytest

from graphbench.nn import size_blocks
from graphbench.nn.size_blocks import block_starts, cut_by_size


def cost_of(sizes, starts):
    """Pairs of nodes of padded blocks, and the cost of each block."""
    blocks = [sizes[start:stop] for start, stop in pairwise(starts)]
    return sum(len(block) * max(block) ** 2 + size_blocks.BLOCK_COST for block in blocks)


def least_cost(sizes):
    """Of every cut of the graphs, one after the other."""
    inner = range(1, len(sizes))
    counts = range(len(sizes))
    return min(cost_of(sizes, [0, *cuts, len(sizes)]) for count in counts for cuts in combinations(inner, count))


@pytest.mark.parametrize("cost", [0, 1, 30, 500, 5_000, 10**9])
@pytest.mark.parametrize("sizes", [[7], [5, 5, 5], [30, 29, 12, 11, 11, 4, 1], [40, 9, 9, 9, 9, 8, 2, 2, 1], [3, 0, 0]])
def test_blocks_cost_least_of_all_cuts(monkeypatch, sizes, cost):
    monkeypatch.setattr(size_blocks, "BLOCK_COST", cost)
    starts = block_starts(sizes)
    assert starts[0] == 0
    assert starts[-1] == len(sizes)
    assert cost_of(sizes, starts) == least_cost(sizes)
    assert all(one > other for one, other in pairwise([sizes[start] for start in starts[:-1]]))


def test_random_sizes_cost_least_too(monkeypatch):
    numbers = np.random.default_rng(0)
    for _ in range(60):
        monkeypatch.setattr(size_blocks, "BLOCK_COST", int(numbers.integers(0, 2_000)))
        sizes = sorted(numbers.integers(0, 40, numbers.integers(1, 11)).tolist(), reverse=True)
        assert cost_of(sizes, block_starts(sizes)) == least_cost(sizes)


def test_of_two_cuts_that_cost_the_same_the_one_of_fewer_blocks_is_taken(monkeypatch):
    monkeypatch.setattr(size_blocks, "BLOCK_COST", 100 - 64)
    assert cost_of([10, 8], [0, 2]) == cost_of([10, 8], [0, 1, 2])
    assert block_starts([10, 8]) == [0, 2]


def test_parts_hold_every_graph_once_the_largest_first(monkeypatch):
    monkeypatch.setattr(size_blocks, "BLOCK_COST", 5_000)
    sizes = np.array([20, 300, 21, 295, 22])
    cut = cut_by_size(sizes)
    assert [part.tolist() for part in cut.parts] == [[1, 3], [4, 2, 0]]


def test_similar_sizes_are_not_cut(monkeypatch):
    monkeypatch.setattr(size_blocks, "BLOCK_COST", 5_000)
    assert cut_by_size(np.array([20, 22, 21])) is None
    assert cut_by_size(np.array([], dtype=np.int64)) is None
