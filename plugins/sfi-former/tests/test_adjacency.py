"""A~ against networkx, dense algebra and autograd."""

from __future__ import annotations

import networkx as nx
import numpy as np
import pytest
import torch

from graphbench.testing import tiny_batch
from graphbench_sfi_former import DFiFormer, NormalisedAdjacency
from graphbench_sfi_former.adjacency import adjacency_of, with_adjacency


def edges_of(graph):
    pairs = np.array(graph.edges()).T
    return torch.from_numpy(np.concatenate([pairs, pairs[::-1]], axis=1).copy())


def test_it_is_the_normalised_adjacency_of_networkx():
    graph = nx.gnp_random_graph(9, 0.4, seed=1)
    adjacency = NormalisedAdjacency.from_edges(edges_of(graph), 9, torch.float64)
    looped = graph.copy()
    looped.add_edges_from((node, node) for node in graph)
    dense = nx.to_numpy_array(looped)
    degree = dense.sum(1)
    expected = torch.from_numpy(dense / np.sqrt(np.outer(degree, degree)))
    torch.testing.assert_close(adjacency.matrix.to_dense(), expected)


def test_directed_edges_point_at_their_target_and_gradients_run_against_them():
    edges, x = torch.tensor([[0, 1, 0], [1, 2, 2]]), torch.randn(4, 5, dtype=torch.float64, requires_grad=True)
    adjacency = NormalisedAdjacency.from_edges(edges, 4, torch.float64)
    dense = adjacency.matrix.to_dense()
    degree = torch.tensor([1.0, 2.0, 3.0, 1.0], dtype=torch.float64)
    assert dense[1, 0] == pytest.approx(float((degree[1] * degree[0]) ** -0.5))
    assert dense[0, 1] == 0
    torch.testing.assert_close(adjacency.transposed.to_dense(), dense.T)
    upstream = torch.randn(4, 5, dtype=torch.float64)
    (gradient,) = torch.autograd.grad(adjacency.mix(x), x, upstream)
    torch.testing.assert_close(gradient, dense.T @ upstream)
    assert torch.autograd.gradcheck(adjacency.mix, x)


def test_without_edges_it_is_the_identity():
    x = torch.randn(3, 2)
    adjacency = NormalisedAdjacency.from_edges(torch.empty(2, 0, dtype=torch.int64), 3, torch.float32)
    torch.testing.assert_close(adjacency.mix(x), x)


def test_half_precision_comes_back_in_half_precision():
    x = torch.randn(3, 2)
    adjacency = NormalisedAdjacency.from_edges(torch.tensor([[0, 1], [1, 0]]), 3, torch.float32)
    with torch.autocast("cpu", torch.bfloat16):
        mixed = adjacency.mix(x.bfloat16())
    assert mixed.dtype == torch.bfloat16
    torch.testing.assert_close(mixed.float(), adjacency.mix(x), rtol=2e-2, atol=2e-2)


def test_the_batch_that_carries_it_is_a_copy(tiny_model):
    batch = tiny_batch(tiny_model)
    shared = with_adjacency(batch, torch.float32)
    assert adjacency_of(shared, torch.float32) is adjacency_of(shared, torch.float32)
    assert adjacency_of(shared, torch.float64).matrix.dtype == torch.float64
    assert set(shared.keys()) - set(batch.keys()) == {"normalised_adjacency"}


@pytest.fixture
def tiny_model():
    from graphbench.testing import tiny_spec

    return DFiFormer(tiny_spec(), hidden_dim=8, num_layers=1, num_heads=2)
