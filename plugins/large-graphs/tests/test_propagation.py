"""Sums over neighbours against dense matrices."""

from __future__ import annotations

import pytest
import torch
from half_sums import half_sums
from torch_geometric.data import Data

from graphbench_large_graphs.propagation import hop_edges, hop_pairs, row_edges, symmetric_edges


@pytest.fixture
def x(batch):
    return torch.randn(batch.num_nodes, 2, 3, dtype=torch.float64, generator=torch.Generator().manual_seed(0))


def test_hubs_are_summed_in_float32(batch, x):
    with half_sums() as found:
        mixed = symmetric_edges(batch, torch.bfloat16).mix(x.bfloat16())
    assert (mixed.dtype, found) == (torch.bfloat16, [])


def test_symmetric_weights(batch, symmetric, x):
    found = symmetric_edges(batch, torch.float64).mix(x)
    torch.testing.assert_close(found, torch.einsum("ij,jhd->ihd", symmetric, x), rtol=1e-13, atol=1e-13)


def test_means_over_neighbours(batch, adjacency, x):
    mean = adjacency / adjacency.sum(1, keepdim=True).clamp(min=1)
    found = row_edges(batch, torch.float64).mix(x)
    torch.testing.assert_close(found, torch.einsum("ij,jhd->ihd", mean, x), rtol=1e-13, atol=1e-13)
    assert (found[5] == 0).all()  # the graph of a single node


def test_products_of_patterns_warn_of_nothing(batch, recwarn):
    """Torch calls sparse matrices a beta feature, in the midst of a training."""
    always = torch.is_warn_always_enabled()
    torch.set_warn_always(True)
    try:
        hop_pairs(batch, 2)
    finally:
        torch.set_warn_always(always)
    assert not recwarn.list


def test_orders_double_the_steps(batch, adjacency, x):
    """Patterns of pairs within 1, 2 and 4 steps, and the degrees of each pattern."""
    reach = adjacency + torch.eye(len(adjacency), dtype=torch.float64)
    found = hop_edges(hop_pairs(batch, 3), batch.num_nodes, torch.float64)
    assert len(found) == 3
    for edges in found:
        pattern = (reach > 0).double()
        weights = pattern / (pattern.sum(1)[:, None] * pattern.sum(0)).sqrt()
        torch.testing.assert_close(edges.mix(x), torch.einsum("ij,jhd->ihd", weights, x), rtol=1e-12, atol=1e-12)
        reach = pattern @ pattern


def test_directions_have_degrees_of_their_own():
    """0 -> 2 and 1 -> 2: node 2 receives three messages with its loop, and sends one."""
    graph = Data(edge_index=torch.tensor([[0, 1], [2, 2]]), num_nodes=3)
    (edges,) = hop_edges(hop_pairs(graph, 1), 3, torch.float64)
    expected = torch.tensor([1.0, 1.0, 2 / 3**0.5 / 2**0.5 + 1 / 3**0.5], dtype=torch.float64)
    expected[:2] = 2**-0.5  # each sends two messages with its loop and receives one
    torch.testing.assert_close(edges.mix(torch.ones(3, dtype=torch.float64)), expected)


def test_half_precision_counts_degrees_in_float32():
    """1,025 neighbours: at that size bfloat16 counts in steps of 8."""
    source = torch.arange(1, 1026)
    star = Data(edge_index=torch.stack([source, torch.zeros_like(source)]), num_nodes=1026)
    assert row_edges(star, torch.bfloat16).weight[0] == torch.tensor(1 / 1025)
