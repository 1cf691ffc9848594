"""Checks before computing; the tests of the constructions trigger them as users would."""

import networkx as nx
import pytest
import torch

from graphbench.errors import BadInput
from graphbench_linear_transformer.checks import (
    check_connected,
    check_demands,
    check_edges,
    check_laplacian,
    check_largest,
    check_symmetric_resistance,
    component_labels,
    rayleigh_quotient,
)


def test_quotient_is_just_below_the_largest_eigenvalue(graph):
    found = rayleigh_quotient(lambda x: graph.laplacian @ x, graph.demands)
    assert 0.9 * graph.lambda_max < found <= graph.lambda_max * (1 + 1e-12)


def test_quotient_of_a_batch_is_that_of_its_largest_graph():
    matrices = torch.diag_embed(torch.tensor([[1.0, 0.5], [0.0, 0.0], [3.0, 7.0]], dtype=torch.float64))
    assert rayleigh_quotient(lambda x: matrices @ x, matrices) == pytest.approx(7)
    check_largest(lambda x: matrices @ x, matrices, 7.0, "step=1/7")
    with pytest.raises(BadInput, match=r"step=1/6 allows eigenvalues of the Laplacian up to 6, .* at least 7"):
        check_largest(lambda x: matrices @ x, matrices, 6.0, "step=1/6")


def test_labels_are_the_components_of_networkx():
    graph = nx.gnm_random_graph(40, 25, seed=0)
    labels = component_labels(*torch.tensor(list(graph.edges)).t(), 40)
    parts = {frozenset((labels == label).nonzero().flatten().tolist()) for label in labels.unique()}
    assert parts == set(map(frozenset, nx.connected_components(graph)))


@pytest.mark.parametrize("edges", [[[0, 1], [1, 0]], [[0, 0], [1, 1]]])
def test_an_edge_counts_once_in_either_direction(edges):
    with pytest.raises(BadInput, match=r"between nodes 0 and 1 is listed 2 times.* edge_index\[0\] < edge_index\[1\]"):
        check_edges(torch.tensor(edges), 3)
    check_edges(torch.tensor(edges)[:, :1], 3)


def test_demands_need_finite_values_that_add_up_to_zero_over_each_part():
    labels = torch.tensor([0, 0, 1, 1])
    good = torch.tensor([[1.0, -1, 2, -2]]).mT
    check_demands(good, labels)
    check_demands(good + 1)
    for demands, message in (
        (good * torch.inf, "not finite"),
        (good + 1, "Subtract its mean"),
        (good[[0, 2, 1, 3]].expand(4, 2), "adds up to 3 over one of its parts"),
    ):
        with pytest.raises(BadInput, match=message):
            check_demands(demands, labels)


def test_resistances_of_both_directions_are_compared():
    first = torch.tensor([0, 1, 0, 1])
    check_symmetric_resistance(torch.tensor([2.0, 3.0, 2.0, 3.0]), first)
    with pytest.raises(BadInput, match="5 one way and 2 the other way"):
        check_symmetric_resistance(torch.tensor([2.0, 3.0, 5.0, 3.0]), first)
    for value in (0.0, torch.inf, torch.nan):
        with pytest.raises(BadInput, match="positive finite"):
            check_symmetric_resistance(torch.tensor([2.0, 3.0, value, 3.0]), first)


def test_laplacians_are_told_from_other_matrices(graph):
    present = torch.ones(len(graph.laplacian))
    check_laplacian(graph.laplacian)
    check_connected(graph.laplacian, present)
    padded = torch.nn.functional.pad(graph.laplacian, (0, 2, 0, 2))
    check_connected(padded, torch.nn.functional.pad(present, (0, 2)))
    with pytest.raises(BadInput, match="not connected"):
        check_connected(padded, torch.ones(len(padded)))
    with pytest.raises(BadInput, match="add up to 0"):
        check_connected(torch.diag(graph.laplacian.diagonal()) - 2 * graph.laplacian, present)
    with pytest.raises(BadInput, match="not symmetric"):
        check_laplacian(graph.laplacian.tril())
