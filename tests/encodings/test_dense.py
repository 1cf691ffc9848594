from __future__ import annotations

import networkx as nx
import numpy as np
import pytest
import torch

import graphbench.encodings
from graphbench.contracts import Encoding, GraphTable
from graphbench.encodings import RWSE, Degree, EffectiveResistance, LapPE, ShortestPaths
from graphbench.encodings._dense import few_threads, laplacian, pivoted_basis, size_blocks, smallest_eigenpairs
from graphbench.errors import BadInput

pytestmark = pytest.mark.usefixtures("ways")

ENCODINGS = [LapPE(3), RWSE(3), Degree(4), ShortestPaths(4, with_edges=True), EffectiveResistance()]


@pytest.mark.parametrize("max_entries", [1, 200, 2**18])
def test_blocks_hold_every_graph_once_and_within_budget(messy_graphs, messy_table, max_entries):
    seen = []
    for block in size_blocks(messy_table, max_entries):
        assert len(block) == 1 or len(block) * block.num_nodes**2 <= max_entries
        seen += block.graphs.tolist()
        for graph, adjacency in zip(block.graphs.tolist(), block.adjacency(), strict=True):
            expected = nx.to_numpy_array(messy_graphs[graph], nodelist=range(block.num_nodes))
            np.testing.assert_array_equal(adjacency.numpy(), expected)
    assert sorted(seen) == list(range(len(messy_table)))


def test_edge_numbers_and_ends_are_those_of_the_graph(messy_table):
    for block in size_blocks(messy_table):
        graph_of_edge = block.source // block.num_nodes
        for place, graph in enumerate(block.graphs.tolist()):
            mine = graph_of_edge == place
            edges = messy_table.slice(graph, graph + 1).columns["edge_index"]
            assert block.edge[mine].tolist() == list(range(len(edges)))
            assert (block.source[mine] % block.num_nodes).tolist() == edges[:, 0].tolist()
            assert (block.target[mine] - place * block.num_nodes).tolist() == edges[:, 1].tolist()


def test_simple_adjacency_drops_direction_loops_and_parallel_edges(messy_graphs, messy_table):
    for block in size_blocks(messy_table):
        for graph, adjacency in zip(block.graphs.tolist(), block.simple_adjacency(), strict=True):
            simple = nx.Graph(messy_graphs[graph])
            simple.remove_edges_from(list(nx.selfloop_edges(simple)))
            np.testing.assert_array_equal(adjacency.numpy(), nx.to_numpy_array(simple, nodelist=range(block.num_nodes)))


@pytest.mark.parametrize("normalization", ["none", "symmetric"])
def test_laplacian_is_that_of_networkx(simple_graphs, simple_table, normalization):
    reference = nx.laplacian_matrix if normalization == "none" else nx.normalized_laplacian_matrix
    for block in size_blocks(simple_table):
        matrices = laplacian(block.simple_adjacency(), normalization)
        for graph, matrix in zip(block.graphs.tolist(), matrices, strict=True):
            np.testing.assert_allclose(matrix.numpy(), reference(simple_graphs[graph]).toarray(), atol=1e-12)


@pytest.mark.parametrize("encoding", ENCODINGS, ids=repr)
@pytest.mark.parametrize("edge", [(0, 3), (-1, 0)])
def test_an_edge_to_a_missing_node_is_an_error_that_names_it(encoding, edge):
    good = {"num_nodes": 3, "edge_index": torch.tensor([[0, 1], [1, 2]])}
    bad = {"num_nodes": 3, "edge_index": torch.tensor([[0, edge[0]], [1, edge[1]]])}
    with pytest.raises(BadInput, match=r"Edge 1 of graph 1 joins nodes .* 3 nodes"):
        encoding.compute(GraphTable.from_graphs([good, bad]))


@pytest.mark.parametrize("encoding", ENCODINGS, ids=repr)
def test_graphs_without_nodes_and_tables_without_graphs(encoding):
    empty = {"num_nodes": 0, "edge_index": torch.zeros(2, 0, dtype=torch.int64)}
    pair = {"num_nodes": 2, "edge_index": torch.tensor([[0, 1], [1, 0]])}
    table = GraphTable.from_graphs([empty, pair, empty])
    mixed, alone = encoding.compute(table), encoding.compute(table.slice(1, 2))
    joined = table.with_columns(mixed.columns, encoding.layout, mixed.ptr).slice(1, 2)
    for name, column in alone.columns.items():
        torch.testing.assert_close(joined.columns[name], column)
    assert all(len(column) == 0 for column in encoding.compute(table.slice(0, 0)).columns.values())


@pytest.mark.parametrize("encoding", ENCODINGS, ids=repr)
def test_layout_names_the_columns_and_their_lengths(encoding, messy_table):
    encoded = encoding.compute(messy_table)
    table = messy_table.with_columns(encoded.columns, encoding.layout, encoded.ptr)
    assert encoded.columns.keys() == encoding.layout.keys()
    for name, column in encoded.columns.items():
        assert len(column) == int(table.lengths(encoding.layout[name].axis).sum())


@pytest.mark.parametrize("encoding", ENCODINGS, ids=repr)
def test_stored_integer_widths_of_the_edge_list_do_not_matter(encoding, messy_table):
    narrow = {"edge_index": messy_table.columns["edge_index"].to(torch.int16)}
    table = GraphTable(narrow, messy_table.layout, messy_table.ptr)
    for name, column in encoding.compute(messy_table).columns.items():
        assert torch.equal(encoding.compute(table).columns[name], column)


@pytest.mark.parametrize("encoding", ENCODINGS, ids=repr)
def test_threads_change_no_bit(encoding, as_table):
    table = as_table([nx.gnp_random_graph(60 + i % 7, 0.05 if i % 2 else 0.5, seed=i) for i in range(30)])
    before, found = torch.get_num_threads(), []
    try:
        for threads in (1, 2, 3):
            torch.set_num_threads(threads)
            found.append(encoding.compute(table).columns)
    finally:
        torch.set_num_threads(before)
    for name, column in found[0].items():
        assert all(torch.equal(column, other[name]) for other in found[1:]), name


@pytest.mark.parametrize(("nodes", "expected"), [(20, 1), (300, 2)])
def test_only_large_graphs_are_encoded_on_several_threads(nodes, expected):
    table = GraphTable.from_graphs([{"num_nodes": nodes, "edge_index": torch.zeros(2, 0, dtype=torch.int64)}])
    before = torch.get_num_threads()
    torch.set_num_threads(2)
    try:
        with few_threads(table):
            assert torch.get_num_threads() == expected
        assert torch.get_num_threads() == 2
    finally:
        torch.set_num_threads(before)


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
    """Noise of one rounding error turns an arbitrary basis by up to a right angle."""
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
    small = torch.tensor([0.0, -1e-4, -2e-4], dtype=torch.float64)[None, :, None]  # as in a graph of a million nodes
    torch.testing.assert_close(pivoted_basis(small, 1), -small, rtol=1e-12, atol=0)


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


@pytest.mark.parametrize("dtype", [torch.float64, torch.bfloat16])
def test_columns_do_not_depend_on_the_default_dtype(simple_table, dtype):
    """A script may compute in float64, and Lightning's bf16-true sets bfloat16; stored columns have the same key."""
    listed = [getattr(graphbench.encodings, name) for name in graphbench.encodings.__all__]
    for encoding in (kind() for kind in listed if isinstance(kind, type) and issubclass(kind, Encoding)):
        expected = encoding.compute(simple_table).columns
        torch.set_default_dtype(dtype)
        try:
            found = encoding.compute(simple_table).columns
        finally:
            torch.set_default_dtype(torch.float32)
        for name, column in expected.items():
            assert found[name].dtype == column.dtype, name
            assert torch.equal(found[name], column), name
