import networkx as nx
import numpy as np
import pytest
import scipy.linalg
import torch

from graphbench.errors import BadInput
from graphbench_linear_transformer.graphs import (
    circular_skip_links,
    fully_connected,
    incidence_matrix,
    pad_incidence,
    sample_demands,
    sample_incidence,
    target_matrix,
)


@pytest.fixture
def generator():
    return torch.Generator().manual_seed(0)


@pytest.mark.parametrize("skip", [2, 4, 6, 8])
def test_csl_graphs_are_those_of_networkx(skip):
    ours = nx.Graph(circular_skip_links(10, skip).t().tolist())
    assert nx.utils.graphs_equal(ours, nx.circulant_graph(10, [1, skip]))


def test_fully_connected_graph_has_all_pairs():
    assert nx.utils.graphs_equal(nx.Graph(fully_connected(7).t().tolist()), nx.complete_graph(7))


def test_incidence_matrix_is_that_of_networkx():
    edges = circular_skip_links(10, 4)
    resistance = torch.linspace(0.5, 2, 20, dtype=torch.float64)
    graph = nx.DiGraph()
    graph.add_nodes_from(range(10))
    graph.add_edges_from(
        (u, v, {"w": 1 / r**0.5}) for u, v, r in zip(*edges.tolist(), resistance.tolist(), strict=True)
    )
    order = list(zip(*edges.tolist(), strict=True))
    expected = nx.incidence_matrix(graph, range(10), order, oriented=True, weight="w").toarray()
    np.testing.assert_allclose(incidence_matrix(edges, 10, resistance).numpy(), expected, rtol=1e-12)


@pytest.mark.parametrize(("family", "num_edges"), [("FC", 45), ("CSL", 20)])
def test_sampled_graphs_have_the_published_sizes_and_resistances(family, num_edges, generator):
    incidence = sample_incidence(family, 200, generator=generator)
    assert incidence.shape == (200, 10, num_edges)
    assert (incidence != 0).sum(1).eq(2).all()
    torch.testing.assert_close(incidence.sum(1), torch.zeros(200, num_edges, dtype=torch.float64))
    logs = -2 * incidence.abs().amax(1).log()  # u of r = e^u
    assert logs.min() >= -2
    assert logs.max() <= 2
    assert abs(logs.mean()) < 0.05
    assert logs.var() == pytest.approx(16 / 12, rel=0.05)


def test_sampled_csl_graphs_have_every_skip_but_half(generator):
    incidence = sample_incidence("CSL", 300, generator=generator)
    kinds = set()
    for matrix in incidence.ne(0):
        graph = nx.Graph([tuple(column.nonzero().flatten().tolist()) for column in matrix.t()])
        assert graph.number_of_edges() == 20
        kinds.add(nx.diameter(graph))
    assert kinds == {nx.diameter(nx.circulant_graph(10, [1, skip])) for skip in (2, 4)}


def test_demands_add_up_to_zero(generator):
    demands = sample_demands(3, 10, 4, generator)
    assert demands.shape == (3, 10, 4)
    assert demands.sum(1).abs().max() < 1e-12


@pytest.mark.parametrize(
    ("target", "expected"),
    [
        ("electric", np.linalg.pinv),
        ("heat", lambda laplacian: scipy.linalg.expm(-0.5 * laplacian)),
    ],
)
def test_targets_are_those_of_numpy_and_scipy(target, expected, graph):
    actual = target_matrix(graph.laplacian, target)
    np.testing.assert_allclose(actual, expected(graph.laplacian.numpy()), atol=1e-11)


def test_resistive_target_is_a_root_of_the_electric_one(graph):
    root = target_matrix(graph.laplacian, "resistive")
    torch.testing.assert_close(root @ root, target_matrix(graph.laplacian, "electric"), atol=1e-11, rtol=1e-11)
    torch.testing.assert_close(root, root.mT)


def test_padding_keeps_each_graph_and_adds_zeros(generator):
    graphs = [sample_incidence("CSL", 1, 10, generator)[0], sample_incidence("FC", 1, 5, generator)[0]]
    padded, sizes = pad_incidence(graphs)
    assert padded.shape == (2, 10, 20)
    assert sizes.tolist() == [10, 5]
    assert torch.equal(padded[1, :5, :10], graphs[1])
    assert padded[1, 5:].eq(0).all()
    assert padded[1, :, 10:].eq(0).all()


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: circular_skip_links(10, 5), "skip must be"),
        (lambda: circular_skip_links(10, 9), "skip must be"),
        (lambda: sample_incidence("ER", 1), "family must be one of"),
        (lambda: sample_incidence("CSL", 1, 4), "no even skip"),
        (lambda: target_matrix(torch.eye(2), "flow"), "target must be one of"),
        (lambda: incidence_matrix(torch.tensor([[0], [3]]), 3), "nodes 0 to 2"),
        (lambda: incidence_matrix(torch.tensor([[1], [1]]), 3), "joins a node to itself"),
        (lambda: incidence_matrix(torch.tensor([[0], [1]]), 3, torch.zeros(1)), "one positive number"),
        (lambda: incidence_matrix(torch.zeros(3, 2), 3), "integers"),
    ],
)
def test_bad_graphs_are_refused(call, message):
    with pytest.raises(BadInput, match=message):
        call()
