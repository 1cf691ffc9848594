import networkx as nx
import numpy as np
import pytest
import torch

from graphbench.errors import BadInput
from graphbench_linear_transformer import effective_resistances
from graphbench_linear_transformer.resistance import largest_eigenvalue_bound, resistances_from_inverse


def edges_of(graph):
    return torch.tensor(list(graph.edges)).t()


def networkx_resistances(graph, weight=None):
    pairs = nx.resistance_distance(graph, weight=weight, invert_weight=True)
    return np.array([[pairs[u][v] for v in graph] for u in graph])


def test_resistances_equal_those_of_networkx():
    graph = nx.karate_club_graph()
    ours = effective_resistances(edges_of(graph), 34, num_layers=14)
    np.testing.assert_allclose(ours.numpy(), networkx_resistances(graph), atol=1e-10)


def test_eight_layers_are_within_the_bound():
    graph = nx.karate_club_graph()
    laplacian = torch.tensor(nx.laplacian_matrix(graph, weight=None).toarray(), dtype=torch.float64)
    lambda_min = torch.linalg.eigvalsh(laplacian)[1].item()
    error = (effective_resistances(edges_of(graph), 34) - torch.from_numpy(networkx_resistances(graph))).abs().max()
    bound = np.exp(-(2**8) * lambda_min / largest_eigenvalue_bound(laplacian).item()) / lambda_min
    assert 0 < error < 2 * bound  # R = (e_i - e_j)^T L† (e_i - e_j), and ‖e_i - e_j‖² = 2


def test_resistances_of_edges_count():
    graph = nx.cycle_graph(5)
    resistance = torch.tensor([1.0, 2.0, 0.5, 4.0, 1.5])
    for edge, value in zip(graph.edges, resistance.tolist(), strict=True):
        graph.edges[edge]["r"] = value
    ours = effective_resistances(edges_of(graph), 5, resistance, num_layers=12)
    np.testing.assert_allclose(ours.numpy(), networkx_resistances(graph, "r"), atol=1e-10)


def test_resistors_in_series_add_up():
    path = torch.stack([torch.arange(4), torch.arange(1, 5)])
    total = effective_resistances(path, 5, torch.tensor([1.0, 2.0, 3.0, 4.0]), num_layers=14)
    assert total[0, 4].item() == pytest.approx(10)


def test_single_node_has_no_resistance():
    assert effective_resistances(torch.zeros(2, 0, dtype=torch.int64), 1).tolist() == [[0.0]]


def test_no_eigenvalue_exceeds_the_bound(graph):
    bound = largest_eigenvalue_bound(graph.laplacian).item()
    assert graph.lambda_max <= bound <= graph.lambda_max * len(graph.laplacian) ** (1 / 64)


def test_bound_of_a_batch_is_that_of_each_matrix():
    matrices = torch.diag_embed(torch.tensor([[1.0, 5.0], [0.0, 0.0], [1e-12, 0.0], [1e12, 1e12]], dtype=torch.float64))
    expected = torch.tensor([5.0, 0.0, 1e-12, 1e12 * 2 ** (1 / 64)], dtype=torch.float64)
    torch.testing.assert_close(largest_eigenvalue_bound(matrices), expected, rtol=1e-9, atol=0)


def test_resistance_is_the_squared_distance_of_the_embedding(graph):
    root = graph.function(lambda v: v**-0.5)
    distances = torch.cdist(root, root).square()
    torch.testing.assert_close(resistances_from_inverse(root @ root), distances, atol=1e-10, rtol=1e-8)


def test_disconnected_graphs_are_refused():
    with pytest.raises(BadInput, match="2 components"):
        effective_resistances(torch.tensor([[0, 2], [1, 3]]), 4)
