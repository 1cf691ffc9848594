"""Large graphs: eigenvectors and walks from sparse matrices equal those from dense ones."""

from __future__ import annotations

import networkx as nx
import numpy as np
import pytest
import torch
from scipy.sparse import csr_array

from graphbench.contracts import GraphTable
from graphbench.encodings import _sparse, lap_pe, rwse
from graphbench.encodings._dense import laplacian, smallest_eigenpairs
from graphbench.encodings.lap_pe import LapPE
from graphbench.encodings.rwse import RWSE
from graphbench.errors import BadInput
from graphbench.testing import computed_by

NORMALIZATIONS = ("none", "symmetric")


def joined(*graphs):
    return nx.disjoint_union_all([nx.convert_node_labels_to_integers(graph) for graph in graphs])


GRAPHS = {
    "heavy degrees": nx.barabasi_albert_graph(700, 4, seed=0),
    "a ring, whose eigenvalues are double": nx.cycle_graph(640),
    "a scale-free graph, whose eigenvalues are dense": nx.barabasi_albert_graph(1500, 2, seed=0),
    "a random regular graph": nx.random_regular_graph(4, 1200, seed=0),
    "a ring of cliques": nx.ring_of_cliques(90, 10),
    "a hypercube, with more equal eigenvalues than a block has": nx.hypercube_graph(10),
    "a grid": nx.grid_2d_graph(21, 31),
    "components and single nodes": joined(
        nx.empty_graph(2),
        nx.barabasi_albert_graph(650, 3, seed=1),
        nx.path_graph(4),
        nx.path_graph(4),
        nx.star_graph(9),
    ),
    "many components": joined(*[nx.cycle_graph(3 + number % 4) for number in range(30)]),
}


@pytest.mark.parametrize("normalization", NORMALIZATIONS)
@pytest.mark.parametrize("name", GRAPHS)
def test_eigenvectors_are_those_of_the_dense_matrix(name, normalization):
    dense = nx.to_numpy_array(GRAPHS[name])
    matrix = laplacian(torch.from_numpy(dense)[None], normalization)
    expected_values, expected = (found[0] for found in smallest_eigenpairs(matrix, 9))
    values, vectors = _sparse.smallest_eigenpairs(csr_array(dense), normalization, 9)
    assert torch.allclose(values, expected_values, atol=1e-9)
    assert torch.allclose(vectors, expected, atol=2e-6)
    residual = matrix[0] @ vectors - vectors * values
    assert residual.abs().max() < 1e-7


def test_a_long_ring_in_closed_form():
    size = 6_000
    ends = (np.arange(size), (np.arange(size) + 1) % size)
    one_way = csr_array((np.ones(size), ends), shape=(size, size))
    values, vectors = _sparse.smallest_eigenpairs(one_way + one_way.T, "none", 6)
    angles = 2 * np.pi * np.array([0, 1, 1, 2, 2, 3]) / size
    assert np.allclose(values, 2 - 2 * np.cos(angles), rtol=1e-6, atol=1e-15)
    assert torch.allclose(vectors.T @ vectors, torch.eye(6, dtype=torch.float64), atol=1e-8)


def test_a_long_path_in_closed_form():
    """Its first eigenvalues differ by 1e-8 and more, while the largest is 4; their vectors are cosines."""
    size = 32_000
    ends = (np.arange(size - 1), np.arange(1, size))
    one_way = csr_array((np.ones(size - 1), ends), shape=(size, size))
    values, vectors = _sparse.smallest_eigenpairs(one_way + one_way.T, "none", 4)
    waves = np.cos(np.pi / size * np.arange(4) * (np.arange(size)[:, None] + 0.5))
    assert np.allclose(values, 2 - 2 * np.cos(np.pi / size * np.arange(4)), rtol=1e-6, atol=1e-15)
    assert np.allclose(np.abs((vectors.numpy() * waves).sum(0)), np.linalg.norm(waves, axis=0), rtol=1e-6)


def test_null_vectors_of_components_with_weights_that_are_all_ties(monkeypatch):
    monkeypatch.setattr(_sparse, "TIE", 1.0)  # as 1e-6 is in graphs of a million nodes
    found = _sparse._null_vectors(np.array([0, 0, 0, 1, 1, 1]), np.ones(6), 2)
    assert np.allclose(found.T * 3**0.5, [[1, 1, 1, 0, 0, 0], [0, 0, 0, 1, 1, 1]])


def test_a_dense_graph_whose_eigenvectors_do_not_converge_is_refused(monkeypatch):
    monkeypatch.setattr(_sparse, "_PRODUCTS", 1)
    with pytest.raises(BadInput, match=r"num_eigenvectors"):
        _sparse.smallest_eigenpairs(csr_array(nx.to_scipy_sparse_array(nx.hypercube_graph(10), dtype=float)), "none", 4)


def test_an_eigenvalue_that_is_repeated_too_often():
    star = csr_array(nx.to_scipy_sparse_array(nx.star_graph(700), dtype=float))
    with pytest.raises(BadInput, match=r"eigenvalue 1 .*701 nodes"):
        _sparse.smallest_eigenpairs(star, "none", 4)


@pytest.mark.parametrize("share", [0.0, 0.2, 1.0])
@pytest.mark.parametrize("directed", [False, True])
def test_walks_are_those_of_the_dense_matrix(directed, share, monkeypatch):
    monkeypatch.setattr(_sparse, "_SPARSE_SHARE", share)  # dense from the first step, after some steps, never
    monkeypatch.setattr(_sparse, "WALK_ENTRIES", 60 * 13)
    rng = np.random.RandomState(0)
    dense = (rng.rand(60, 60) < 0.05).astype(float) * rng.randint(1, 3, (60, 60))
    dense[7] = dense[:, 7] = 0
    dense = dense if directed else dense + dense.T
    transition = torch.from_numpy(dense / np.maximum(dense.sum(1, keepdims=True), 1))
    found = _sparse.return_probabilities(csr_array(dense), 7)
    power = torch.eye(60, dtype=torch.float64)
    for step in range(7):
        power = power @ transition
        assert torch.allclose(found[:, step], power.diagonal(), atol=1e-12)


def test_large_and_small_graphs_of_one_table(monkeypatch):
    small, large = nx.cycle_graph(5), nx.barabasi_albert_graph(80, 2, seed=3)
    graphs = []
    for graph in (small, large, small):
        edges = torch.tensor([*graph.edges, *((b, a) for a, b in graph.edges)]).t()
        graphs.append({"num_nodes": len(graph), "edge_index": edges})
    table = GraphTable.from_graphs(graphs)
    encodings = [LapPE(4, "random_walk", skip_trivial=True), LapPE(3), RWSE(5)]
    expected = [encoding.compute(table).columns for encoding in encodings]
    for module in (lap_pe, rwse):
        monkeypatch.setattr(module, "LARGE", 50)
    for encoding, columns in zip(encodings, expected, strict=True):
        with computed_by("torch"):
            found = encoding.compute(table).columns
        assert all(torch.allclose(found[name], columns[name], atol=1e-6) for name in columns)
