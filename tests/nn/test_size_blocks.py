from itertools import combinations, pairwise

import numpy as np
import pytest
import torch

from graphbench.benchmarks.block_models.sampling import Chunk, sample_pattern_graphs, sample_patterns
from graphbench.data.sampler import SizeBucketSampler
from graphbench.nn import DenseLayout, size_blocks
from graphbench.nn.size_blocks import block_starts, cut_by_size, rounded_size


def cost_of(sizes, starts):
    """Return the node pairs of padded blocks plus the cost of each block."""
    blocks = [sizes[start:stop] for start, stop in pairwise(starts)]
    return sum(len(block) * max(block) ** 2 + size_blocks.BLOCK_COST for block in blocks)


def least_cost(sizes):
    """Return the smallest cost of all cuts into consecutive blocks."""
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


def pattern_sizes():
    chunk = Chunk((0,), 2_000, np.arange(2_000) % 100)
    sizes = sample_pattern_graphs(chunk, sample_patterns(0)).num_nodes
    return torch.from_numpy(np.random.default_rng(0).choice(sizes, 10_000))


def peptide_sizes():
    """Draw sizes with the mean (151), deviation (84), minimum (8) and maximum (444) of the published training data."""
    drawn = np.random.default_rng(0).gamma((151 / 84) ** 2, 84**2 / 151, 10_873)
    return torch.from_numpy(np.clip(drawn.round(), 8, 444).astype(np.int64))


def shapes_of(sizes, batch_size):
    """Return shapes `(B, N)` of padded batches in ten epochs: those of the graphs, and those on the meta device."""
    sampler, exact, padded = SizeBucketSampler(sizes, batch_size, shuffle=True), set(), {}
    for epoch in range(10):
        sampler.set_epoch(epoch)
        for rows in sampler:
            count, most, total = len(rows), int(sizes[rows].max()), int(sizes[rows].sum())
            exact.add((count, most))
            if (case := (count, most, total == count * most)) not in padded:
                graph_of, ptr = (torch.zeros(n, dtype=torch.int64, device="meta") for n in (total, count + 1))
                padded[case] = DenseLayout.from_rows(graph_of, ptr, most).mask.shape
    return exact, set(padded.values())


@pytest.mark.parametrize(
    ("draw", "batch_size"), [(pattern_sizes, 32), (peptide_sizes, 128), (peptide_sizes, 200)],
    ids=["PATTERN", "peptides", "peptides in large batches"],
)  # fmt: skip
def test_few_shapes_come_up_on_a_card(draw, batch_size):
    exact, padded = shapes_of(draw(), batch_size)
    assert len(padded) <= 24 < 60 < len(exact)


def test_rounded_sizes_are_multiples_of_8_that_waste_little():
    for rows in range(1, 10_000):
        rounded = rounded_size(rows)
        assert rounded % 8 == 0
        assert rows <= rounded < max(rows * 9 / 8 + 8, 9)
        assert rounded_size(rounded) == rounded


def test_sizes_are_rounded_up_to_a_limit_and_never_on_a_processor():
    graph_of, ptr = torch.tensor([0] * 19 + [1]), torch.tensor([0, 19, 20])
    assert DenseLayout.from_rows(graph_of, ptr, 19).max_nodes == 19
    there = graph_of.to("meta"), ptr.to("meta")
    for limit, expected in ((None, 24), (100, 24), (21, 21), (0, 19)):
        assert DenseLayout.from_rows(*there, 19, limit).max_nodes == expected


def test_graphs_of_one_size_are_not_padded_on_a_card():
    graph_of, ptr = (torch.zeros(n, dtype=torch.int64, device="meta") for n in (3 * 19, 4))
    layout = DenseLayout.from_rows(graph_of, ptr, 19)
    assert layout.is_full
    assert layout.max_nodes == 19
