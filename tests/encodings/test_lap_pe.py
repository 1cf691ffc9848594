from __future__ import annotations

import networkx as nx
import numpy as np
import pytest
import torch

from graphbench.contracts import GraphTable
from graphbench.encodings import LapPE
from graphbench.errors import BadInput

pytestmark = pytest.mark.usefixtures("ways")


def reference_laplacian(graph: nx.Graph, normalization: str) -> np.ndarray:
    """Return the dense float64 Laplacian of networkx; D^-1 L is computed row by row."""
    if normalization == "symmetric":
        return nx.normalized_laplacian_matrix(graph).toarray()
    matrix = nx.laplacian_matrix(graph).toarray().astype(np.float64)
    return matrix if normalization == "none" else matrix / np.maximum(np.diag(matrix), 1)[:, None]


def per_graph(table: GraphTable, encoding: LapPE):
    """Return vectors and values of every graph."""
    columns = encoding.compute(table).columns
    vectors = columns["lap_pe_vectors"].double().split(table.num_nodes.tolist())
    return zip(vectors, columns["lap_pe_values"].double(), strict=True)


@pytest.mark.parametrize("normalization", ["none", "symmetric", "random_walk"])
@pytest.mark.parametrize("skip_trivial", [False, True])
def test_lap_pe_solves_the_dense_eigenproblem(simple_graphs, simple_table, normalization, skip_trivial):
    encoding = LapPE(6, normalization, skip_trivial)
    for graph, (vectors, values) in zip(simple_graphs, per_graph(simple_table, encoding), strict=True):
        matrix = reference_laplacian(graph, normalization)
        expected = np.sort(np.linalg.eigvals(matrix).real)[int(skip_trivial) :][:6]
        valid = len(expected)
        np.testing.assert_allclose(values[:valid], expected, atol=1e-6)
        np.testing.assert_allclose(matrix @ vectors.numpy(), (vectors * values).numpy(), atol=1e-5)
        np.testing.assert_allclose(vectors.norm(dim=0)[:valid], 1, atol=1e-6)
        assert not values[valid:].any()
        assert not vectors[:, valid:].any()


REPEATED = {
    "hypercube": nx.hypercube_graph(6),
    "complete": nx.complete_graph(40),
    "star": nx.star_graph(60),
    "cycles": nx.disjoint_union_all([nx.cycle_graph(6)] * 9),
    "tree": nx.balanced_tree(2, 6),
    "no edges": nx.empty_graph(13),
    "the largest that is made tridiagonal without LAPACK": nx.gnp_random_graph(79, 0.2, seed=0),
    "the smallest that is made so by LAPACK": nx.gnp_random_graph(80, 0.2, seed=0),
    "large": nx.gnp_random_graph(700, 0.01, seed=0),
}


@pytest.mark.parametrize("name", REPEATED)
@pytest.mark.parametrize("normalization", ["none", "symmetric"])
def test_lap_pe_of_repeated_eigenvalues_and_large_graphs(as_table, name, normalization):
    """Eigenvalues equal numpy's in float64; vectors solve the equation, are orthonormal and form the agreed basis."""
    graph = nx.convert_node_labels_to_integers(REPEATED[name])
    (vectors, values), *_ = per_graph(as_table([graph]), LapPE(11, normalization))
    matrix = reference_laplacian(graph, normalization)
    expected, full = np.linalg.eigh(matrix)
    np.testing.assert_allclose(values, expected[:11], atol=1e-6 * max(1, expected[-1]))
    np.testing.assert_allclose(matrix @ vectors.numpy(), (vectors * values).numpy(), atol=1e-5 * max(1, expected[-1]))
    np.testing.assert_allclose(vectors.T @ vectors, np.eye(11), atol=1e-6)
    first = np.flatnonzero(expected < expected[0] + 1e-9)  # of 0: pivoted columns of its projector
    projector = full[:, first] @ full[:, first].T
    for column in range(min(11, len(first))):
        weights = np.diag(projector)
        pivot = int(np.argmax(weights >= weights.max() - 1e-6))
        agreed = projector[:, pivot] / np.sqrt(weights[pivot])
        np.testing.assert_allclose(vectors[:, column], agreed, atol=1e-6)
        projector = projector - np.outer(agreed, agreed)


@pytest.mark.parametrize("normalization", ["none", "symmetric"])
def test_lap_pe_vectors_are_orthogonal(simple_table, normalization):
    for vectors, _ in per_graph(simple_table, LapPE(5, normalization)):
        valid = min(5, len(vectors))
        torch.testing.assert_close(
            (vectors.T @ vectors)[:valid, :valid], torch.eye(valid, dtype=torch.float64), rtol=0, atol=1e-6
        )


@pytest.mark.parametrize("normalization", ["none", "symmetric", "random_walk"])
def test_lap_pe_has_one_zero_eigenvalue_per_component(simple_graphs, simple_table, normalization):
    for graph, (_, values) in zip(simple_graphs, per_graph(simple_table, LapPE(8, normalization)), strict=True):
        components = nx.number_connected_components(graph)
        valid = min(8, len(graph))
        assert (values[:valid] == 0).sum() == min(components, valid)


def test_lap_pe_entry_of_largest_magnitude_is_positive(simple_table):
    for vectors, _ in per_graph(simple_table, LapPE(8)):
        leading = vectors[:, : min(8, len(vectors))]
        assert (leading.amax(0) >= -leading.amin(0) - 1e-6).all()


def test_lap_pe_on_a_path_has_the_closed_form(as_table):
    n, k = 11, 5
    ((vectors, values),) = per_graph(as_table([nx.path_graph(n)]), LapPE(k))
    orders, places = torch.arange(k).double(), torch.arange(n).double()
    expected = torch.cos(torch.pi * orders * (places[:, None] + 0.5) / n)
    expected /= expected.norm(dim=0)
    torch.testing.assert_close(values, 2 - 2 * torch.cos(torch.pi * orders / n), rtol=0, atol=1e-6)
    torch.testing.assert_close((vectors * expected).sum(0).abs(), torch.ones(k).double(), rtol=0, atol=1e-6)


def test_lap_pe_tells_small_eigenvalues_from_zero_beside_a_hub(as_table):
    """A star with a long tail: the largest eigenvalue is 601, the smallest above 0 is less than 1e-8 of it."""
    leaves, tail = 600, 1_200
    graph = nx.star_graph(leaves)
    nx.add_path(graph, range(leaves, leaves + tail + 1))
    ((vectors, values),) = per_graph(as_table([graph]), LapPE(4))
    matrix = reference_laplacian(graph, "none")
    expected_values, expected = np.linalg.eigh(matrix)
    assert 0 < expected_values[1] < 1e-8 * expected_values[-1]
    np.testing.assert_allclose(values, expected_values[:4], atol=1e-9)
    np.testing.assert_allclose(vectors[:, 0], len(vectors) ** -0.5, rtol=1e-6)
    np.testing.assert_allclose(np.abs((vectors.numpy() * expected[:, :4]).sum(0)), 1, atol=1e-6)


@pytest.mark.parametrize("normalization", ["none", "symmetric", "random_walk"])
def test_lap_pe_of_a_graph_does_not_depend_on_its_chunk(simple_table, assert_chunks_agree, normalization):
    assert_chunks_agree(LapPE(6, normalization), simple_table)


def test_lap_pe_follows_the_nodes_where_eigenvalues_are_distinct(as_table):
    graph = nx.gnp_random_graph(14, 0.35, seed=5)
    order = torch.randperm(14, generator=torch.Generator().manual_seed(0))
    moved = nx.relabel_nodes(graph, dict(enumerate(order.tolist())))
    renamed = nx.Graph()
    renamed.add_nodes_from(range(14))
    renamed.add_edges_from(moved.edges())
    (vectors, values), (moved_vectors, moved_values) = per_graph(as_table([graph, renamed]), LapPE(14))
    assert values.diff().min() > 1e-4
    torch.testing.assert_close(moved_values, values, rtol=0, atol=1e-6)
    torch.testing.assert_close(moved_vectors[order], vectors, rtol=0, atol=1e-5)


def test_lap_pe_reads_messy_graphs_as_simple_ones(messy_graphs, messy_table, as_table):
    simple = [nx.Graph(graph) for graph in messy_graphs]
    for graph in simple:
        graph.remove_edges_from(list(nx.selfloop_edges(graph)))
    expected = LapPE(4).compute(as_table(simple)).columns
    for name, column in LapPE(4).compute(messy_table).columns.items():
        torch.testing.assert_close(column, expected[name], rtol=0, atol=1e-6)


def test_lap_pe_batches_vectors_by_node_and_values_by_graph(simple_table):
    encoding = LapPE(4)
    encoded = encoding.compute(simple_table)
    batch = simple_table.with_columns(encoded.columns, encoding.layout).batch([3, 0])
    assert batch.lap_pe_vectors.shape == (batch.num_nodes, 4)
    torch.testing.assert_close(batch.lap_pe_values, encoded.columns["lap_pe_values"][[3, 0]])


@pytest.mark.parametrize(
    "options", [{"num_eigenvectors": 0}, {"num_eigenvectors": 2.5}, {"normalization": "sym"}], ids=repr
)
def test_lap_pe_refuses_bad_options(options):
    with pytest.raises(BadInput, match=next(iter(options))):
        LapPE(**options)


def test_lap_pe_parameters_tell_encodings_apart():
    assert LapPE(4) == LapPE(4, "none", skip_trivial=False)
    assert len({LapPE(4), LapPE(5), LapPE(4, "symmetric"), LapPE(4, skip_trivial=True)}) == 4
    assert repr(LapPE(4)) == "LapPE(num_eigenvectors=4, normalization='none', skip_trivial=False)"
