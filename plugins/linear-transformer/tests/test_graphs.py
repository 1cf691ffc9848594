import networkx as nx
import numpy as np
import pytest
import torch

from graphbench.benchmarks.electric_flow import make_wiring, sample_resistors
from graphbench.errors import BadInput
from graphbench_linear_transformer.graphs import (
    incidence_matrices,
    incidence_matrix,
    pad_incidence,
    sample_incidence,
)


@pytest.fixture
def generator():
    return torch.Generator().manual_seed(0)


def test_incidence_matrix_is_that_of_networkx():
    edges = torch.tensor(list(nx.circulant_graph(10, [1, 4]).edges)).t()
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


def test_one_seed_samples_the_same_graphs(generator):
    first = sample_incidence("CSL", 3, generator=generator)
    again = sample_incidence("CSL", 3, generator=torch.Generator().manual_seed(generator.initial_seed()))
    torch.manual_seed(generator.initial_seed())
    assert torch.equal(first, again)
    assert torch.equal(first, sample_incidence("CSL", 3))


def test_sampled_csl_graphs_have_every_skip_but_half(generator):
    incidence = sample_incidence("CSL", 300, generator=generator)
    kinds = set()
    for matrix in incidence.ne(0):
        graph = nx.Graph([tuple(column.nonzero().flatten().tolist()) for column in matrix.t()])
        assert graph.number_of_edges() == 20
        kinds.add(nx.diameter(graph))
    assert kinds == {nx.diameter(nx.circulant_graph(10, [1, skip])) for skip in (2, 4)}


def test_graphs_of_several_sizes_have_the_laplacians_of_networkx(generator):
    """Absent edges go from node 0 to itself and must have no effect there."""
    wires, resistance = sample_resistors(make_wiring("ER", range(4, 9)), 30, generator)
    incidence = incidence_matrices(wires, resistance)
    assert not wires.present.all()
    for row, size in enumerate(wires.num_nodes.tolist()):
        present = wires.present[row]
        graph = nx.Graph()
        graph.add_nodes_from(range(wires.max_nodes))
        ends = torch.stack((wires.tail[row], wires.head[row]), 1)[present].tolist()
        weights = (1 / resistance[row, present]).tolist()
        graph.add_weighted_edges_from((u, v, w) for (u, v), w in zip(ends, weights, strict=True))
        expected = nx.laplacian_matrix(graph, range(wires.max_nodes)).toarray()
        np.testing.assert_allclose(incidence[row] @ incidence[row].T, expected, atol=1e-12)
        assert incidence[row, size:].eq(0).all()
        assert incidence[row, :, ~present].eq(0).all()


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
        (lambda: sample_incidence("BA", 1), "family must be one of"),
        (lambda: sample_incidence("CSL", 1, 4), "no CSL graph of 4 to 4 nodes"),
        (lambda: incidence_matrix(torch.tensor([[0], [3]]), 3), "nodes 0 to 2"),
        (lambda: incidence_matrix(torch.tensor([[1], [1]]), 3), "joins a node to itself"),
        (lambda: incidence_matrix(torch.tensor([[0], [1]]), 3, torch.zeros(1)), "one positive number"),
        (lambda: incidence_matrix(torch.zeros(3, 2), 3), "integers"),
    ],
)
def test_bad_graphs_are_refused(call, message):
    with pytest.raises(BadInput, match=message):
        call()
