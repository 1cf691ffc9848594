import networkx as nx
import numpy as np
import pytest
import torch

from graphbench.errors import BadInput
from graphbench_linear_transformer import effective_resistances
from graphbench_linear_transformer.resistance import (
    largest_eigenvalue_bound,
    resistances_from_inverse,
    smallest_eigenvalue_bound,
)


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
    found = effective_resistances(edges_of(graph), 34, num_layers=8, tolerance=0.01)
    error = (found - torch.from_numpy(networkx_resistances(graph))).abs().max()
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


def path(num_nodes):
    return torch.stack([torch.arange(num_nodes - 1), torch.arange(1, num_nodes)])


@pytest.mark.parametrize("method", ["layers", "direct"])
@pytest.mark.parametrize("num_nodes", [2, 24, 120])
def test_a_path_has_its_length(num_nodes, method):
    """Badly conditioned, so eight layers were silently wrong: 16.5 for 23."""
    exact = (torch.arange(num_nodes)[:, None] - torch.arange(num_nodes)).abs().double()
    torch.testing.assert_close(
        effective_resistances(path(num_nodes), num_nodes, method=method), exact, rtol=1e-8, atol=0
    )


def test_too_few_layers_are_refused_with_the_number_that_is_enough():
    with pytest.raises(BadInput, match=r"num_layers=8 is too few for this graph; 15 are enough"):
        effective_resistances(path(24), 24, num_layers=8)
    effective_resistances(path(24), 24, num_layers=15)


def test_what_layers_miss_of_fosters_sum_bounds_every_error():
    graph = nx.connected_watts_strogatz_graph(40, 4, 0.2, seed=0)
    exact, edges = networkx_resistances(graph), edges_of(graph)
    for num_layers in (6, 8, 10):
        rough = effective_resistances(edges, 40, num_layers=num_layers, tolerance=50.0).numpy()
        missing = 39 - rough[edges[0], edges[1]].sum()
        relative = 1 - rough[exact > 0] / exact[exact > 0]
        assert relative.min() > -1e-12
        assert relative.max() <= missing


def test_smallest_eigenvalue_is_bounded_from_below(graph):
    tail, head = graph.incidence.argmin(0), graph.incidence.argmax(0)
    bound = smallest_eigenvalue_bound(torch.stack((tail, head)), len(graph.laplacian), graph.incidence.amax(0) ** -2)
    assert 0 < bound <= graph.lambda_min


@pytest.mark.parametrize("weighted", [False, True])
def test_pairs_are_those_of_all_pairs(weighted):
    graph = nx.connected_watts_strogatz_graph(60, 4, 0.3, seed=1)
    edges = edges_of(graph)
    generator = torch.Generator().manual_seed(0)
    resistance = torch.exp(4 * torch.rand(edges.shape[1], generator=generator) - 2) if weighted else None
    pairs = torch.randint(60, (2, 500), generator=generator)
    pairs[:, 0] = 7
    found = effective_resistances(edges, 60, resistance, pairs=pairs)
    for method in ("layers", "direct"):
        whole = effective_resistances(edges, 60, resistance, method=method)
        torch.testing.assert_close(found, whole[pairs[0], pairs[1]], rtol=1e-8, atol=1e-12)
    assert found[0] == 0


def test_a_hundred_thousand_edges_stay_sparse():
    num_nodes = 100_001
    pairs = torch.tensor([[0, 7, 50_000, 60_000], [100_000, 7, 3, 100_000]])
    found = effective_resistances(path(num_nodes), num_nodes, pairs=pairs)
    torch.testing.assert_close(found, torch.tensor([1e5, 0.0, 49_997.0, 4e4], dtype=torch.float64))
    assert torch.equal(effective_resistances(path(num_nodes).int(), num_nodes, pairs=pairs.int()), found)
    with pytest.raises(BadInput, match="All pairs of 100,001 nodes would take 80 GB"):
        effective_resistances(path(num_nodes), num_nodes)


@pytest.mark.parametrize(
    ("edges", "resistance", "message"),
    [
        ([[0, 1, 1, 2], [1, 0, 2, 1]], None, "between nodes 0 and 1 is listed 2 times"),
        ([[0, 1, 1], [1, 2, 0]], [1.0, 1.0, 3.0], "with resistances 1, 3"),
        ([[0, 1], [1, 2]], [1.0, float("inf")], "infinite"),
        ([[0, 1], [1, 2]], [1.0, -2.0], "not positive"),
        ([[0, 1], [1, 2]], [1.0, float("nan")], "not positive"),
        ([[0, 1], [1, 1]], None, "to itself"),
        ([[0, 1], [1, 3]], None, "nodes 0 to 3, but the graph has nodes 0 to 2"),
        ([[0], [1]], None, "2 components"),
    ],
)
@pytest.mark.parametrize("method", ["layers", "direct"])
def test_what_is_no_simple_graph_is_refused(edges, resistance, message, method):
    resistance = None if resistance is None else torch.tensor(resistance)
    for pairs in (None, torch.tensor([[0], [2]])):
        with pytest.raises(BadInput, match=message):
            effective_resistances(torch.tensor(edges), 3, resistance, pairs=pairs, method=method)


@pytest.mark.parametrize("method", ["layers", "direct"])
@pytest.mark.parametrize("resistance", [[1e12, 1e-12], [1e10, 1e-6]])  # singular to rounding, and inexact
def test_resistances_beyond_float64_are_refused(method, resistance):
    for pairs in (None, torch.tensor([[0], [2]])):
        with pytest.raises(BadInput, match="differ too much"):
            effective_resistances(path(3), 3, torch.tensor(resistance, dtype=torch.float64), pairs=pairs, method=method)


def test_options_that_do_not_fit_are_refused():
    cases = [
        ({"method": "sparse"}, "method must be one of"),
        ({"method": "direct", "num_layers": 3}, "num_layers needs method=.layers."),
        ({"tolerance": 0.0}, "positive tolerance"),
        ({"pairs": torch.tensor([[0], [3]])}, "pairs has nodes 0 to 3, but the graph has nodes 0 to 2"),
        ({"pairs": torch.tensor([0, 1])}, "pairs must be integers"),
    ]
    for options, message in cases:
        with pytest.raises(BadInput, match=message):
            effective_resistances(path(3), 3, **options)


def test_disconnected_graphs_are_refused():
    with pytest.raises(BadInput, match="2 components"):
        effective_resistances(torch.tensor([[0, 2], [1, 3]]), 4)
