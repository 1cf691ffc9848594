from __future__ import annotations

import networkx as nx
import pytest
import torch

from graphbench.encodings._eigenvectors import smallest_eigenpairs

SYMMETRIC = {
    "cycle": nx.cycle_graph(9),
    "petersen": nx.petersen_graph(),
    "star": nx.star_graph(7),
    "complete": nx.complete_graph(6),
    "cube": nx.hypercube_graph(3),
    "two triangles": nx.disjoint_union(nx.cycle_graph(3), nx.cycle_graph(3)),
}


def laplacian_of(graph: nx.Graph) -> torch.Tensor:
    return torch.from_numpy(nx.laplacian_matrix(graph).toarray()).double()[None]


@pytest.mark.parametrize("name", SYMMETRIC)
def test_basis_of_a_degenerate_space_survives_rounding(name):
    """An unfixed basis turns by up to a right angle under noise of one rounding error."""
    matrix = laplacian_of(SYMMETRIC[name])
    noise = torch.randn(20, *matrix.shape[1:], dtype=torch.float64, generator=torch.Generator().manual_seed(0)) * 1e-15
    _, expected = smallest_eigenpairs(matrix, matrix.shape[1])
    _, noisy = smallest_eigenpairs(matrix + noise + noise.mT, matrix.shape[1])
    torch.testing.assert_close(noisy, expected.expand_as(noisy), rtol=0, atol=1e-8)


@pytest.mark.parametrize("name", SYMMETRIC)
def test_basis_is_orthonormal_and_spans_the_eigenspaces(name):
    matrix = laplacian_of(SYMMETRIC[name])
    n = matrix.shape[1]
    values, vectors = smallest_eigenpairs(matrix, n)
    torch.testing.assert_close(vectors.mT @ vectors, torch.eye(n, dtype=torch.float64)[None], rtol=0, atol=1e-12)
    torch.testing.assert_close(vectors * values[:, None, :] @ vectors.mT, matrix, rtol=0, atol=1e-12)


def test_basis_is_the_pivoted_cholesky_factor_of_the_projector():
    """The star's eigenvalue 1 belongs to the vectors on its leaves with sum 0: P = I - 11^T / 3 for three leaves."""
    _, vectors = smallest_eigenpairs(laplacian_of(nx.star_graph(3)), 3)
    first = torch.tensor([0, 2, -1, -1], dtype=torch.float64) / 6**0.5
    second = torch.tensor([0, 0, 1, -1], dtype=torch.float64) / 2**0.5
    torch.testing.assert_close(vectors[0, :, 1:], torch.stack([first, second], dim=1), rtol=0, atol=1e-12)


@pytest.mark.parametrize("count", [1, 2, 3, 5])
def test_fewer_columns_are_the_first_of_all_columns(count):
    matrix = laplacian_of(nx.petersen_graph())
    values, vectors = smallest_eigenpairs(matrix, 10)
    few_values, few = smallest_eigenpairs(matrix, count)
    torch.testing.assert_close(few, vectors[:, :, :count], rtol=0, atol=1e-12)
    torch.testing.assert_close(few_values, values[:, :count], rtol=0, atol=1e-12)


def test_zero_eigenvalues_are_exactly_zero_and_small_ones_are_kept():
    graph = nx.disjoint_union(nx.path_graph(60), nx.path_graph(40))
    values, _ = smallest_eigenpairs(laplacian_of(graph), 3)
    assert values[0, :2].tolist() == [0.0, 0.0]
    assert values[0, 2].item() == pytest.approx(2 - 2 * torch.cos(torch.tensor(torch.pi / 60)).item(), rel=1e-4)
