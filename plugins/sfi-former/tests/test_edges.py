"""A~ against networkx, dense algebra and autograd, and the flow over edges against the solver of dense rows."""

from __future__ import annotations

import networkx as nx
import numpy as np
import pytest
import torch
from quick import slow
from torch.autograd import gradcheck

from graphbench.errors import BadInput
from graphbench.testing import tiny_batch
from graphbench_sfi_former import DFiFormer, NormalisedAdjacency, sparse_flow, sparse_flow_edges, with_virtual_nodes
from graphbench_sfi_former.enhanced import adjacency_of, with_adjacency


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


NODES, HEADS = 7, 3


@pytest.fixture
def graph():
    """Resistances, frictions `[E, H]`, sources and targets; the last node has no edge, edges are in no order."""
    generator = torch.Generator().manual_seed(0)
    allowed = torch.rand(NODES, NODES, generator=generator) < 0.6
    allowed[-1] = False
    target, source = allowed.nonzero().T
    order = torch.randperm(len(target), generator=generator)
    values = torch.rand(2, len(target), HEADS, generator=generator, dtype=torch.float64) + 0.05
    return values[0], values[1], source[order], target[order]


def dense(values, source, target):
    matrix = torch.ones(HEADS, NODES, NODES, dtype=torch.float64)
    matrix[:, target, source] = values.T
    return matrix


@pytest.mark.parametrize("alpha", [None, 0.1, 1.0])
@pytest.mark.parametrize("penalty", [0.0, 0.3, 5.0])
def test_it_is_the_dense_flow_with_a_mask(graph, penalty, alpha):
    resistance, friction, source, target = graph
    mask = torch.zeros(NODES, NODES, dtype=torch.bool)
    mask[target, source] = True
    r, f = resistance.clone().requires_grad_(), friction.clone().requires_grad_()
    flow = sparse_flow_edges(r, f, target, NODES, penalty, alpha)
    expected = sparse_flow(dense(r, source, target), dense(f, source, target), penalty, alpha, mask)
    torch.testing.assert_close(flow, expected[:, target, source].T, rtol=1e-12, atol=1e-14)
    upstream = torch.randn_like(flow)
    gradients = torch.autograd.grad(flow, (r, f), upstream)
    of_expected = torch.autograd.grad(expected[:, target, source].T, (r, f), upstream)
    for gradient, other in zip(gradients, of_expected, strict=True):
        torch.testing.assert_close(gradient, other)


def test_a_penalty_of_each_node(graph):
    resistance, friction, _, target = graph
    penalty = torch.linspace(0, 3, NODES, dtype=torch.float64)
    flow = sparse_flow_edges(resistance, friction, target, NODES, penalty)
    for node in range(NODES - 1):
        own = target == node
        alone = sparse_flow_edges(resistance[own], friction[own], target[own], NODES, float(penalty[node]))
        torch.testing.assert_close(flow[own], alone)
    sums = torch.zeros(NODES, HEADS, dtype=torch.float64).index_add(0, target, flow)
    torch.testing.assert_close(sums, torch.tensor([1.0] * (NODES - 1) + [0.0]).double()[:, None].expand(NODES, HEADS))


@pytest.mark.parametrize("alpha", [slow(None), 0.1])
def test_gradients(graph, alpha):
    resistance, friction, _, target = graph
    penalty = torch.full((NODES,), 0.4, dtype=torch.float64, requires_grad=True)
    inputs = (resistance.requires_grad_(), friction.requires_grad_(), penalty)
    assert gradcheck(lambda r, f, p: sparse_flow_edges(r, f, target, NODES, p, alpha), inputs)


def test_edges_of_infinite_resistance_are_no_edges(graph):
    resistance, friction, _, target = graph
    cut = torch.arange(len(target)) % 3 == 0
    cut |= target == target[0]  # one node is left without any
    kept = ~cut
    r = resistance.masked_fill(cut[:, None], torch.inf).requires_grad_()
    flow = sparse_flow_edges(r, friction, target, NODES, 0.3, 0.1)
    assert not flow[cut].any()
    torch.testing.assert_close(flow[kept], sparse_flow_edges(r[kept], friction[kept], target[kept], NODES, 0.3, 0.1))
    flow.square().sum().backward()
    assert torch.isfinite(r.grad).all()


def test_a_tiny_alpha_is_a_tiny_inflow(graph):
    """Without friction a link carries `mu / r`, and mu is alpha to first order; frictions above mu leave nothing."""
    resistance, friction, _, target = graph
    flow = sparse_flow_edges(resistance, friction, target, NODES, 0.0, 1e-40)
    torch.testing.assert_close(flow, 1e-40 / resistance, rtol=1e-12, atol=0)
    assert not sparse_flow_edges(resistance, friction, target, NODES, 1.0, 1e-40).any()
    single = sparse_flow_edges(resistance.float(), friction.float(), target, NODES, 0.3, 1e-40)
    assert torch.isfinite(single).all()


def test_autocast_does_not_lower_the_precision(graph):
    """Run forward and backward inside autocast, as in a training step in bf16-mixed."""
    resistance, friction, _, target = graph

    def both():
        inputs = [resistance.float().requires_grad_(), friction.float().requires_grad_()]
        flow = sparse_flow_edges(*inputs, target, NODES, 0.3, 0.1)
        return flow, *torch.autograd.grad(flow.square().sum(), inputs)

    with torch.autocast("cpu", dtype=torch.bfloat16):
        inside = both()
    assert all(torch.equal(a, b) for a, b in zip(inside, both(), strict=True))


def test_no_edges_at_all():
    empty = torch.empty(0, 2)
    assert sparse_flow_edges(empty, empty, torch.empty(0, dtype=torch.int64), 3, 1.0).shape == (0, 2)


def test_virtual_nodes_reach_every_node_of_their_graph_and_no_other():
    edges = with_virtual_nodes(torch.tensor([[0], [1]]), torch.tensor([0, 0, 1]), 2, num_virtual=2)
    assert edges.shape == (2, 1 + 2 * 3 * 2)
    pairs = set(map(tuple, edges.T.tolist()))
    expected = {(0, 1)}
    for node, virtual in ((0, 3), (0, 4), (1, 3), (1, 4), (2, 5), (2, 6)):
        expected |= {(node, virtual), (virtual, node)}
    assert pairs == expected


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"friction": torch.ones(2)}, "one shape"),
        ({"resistance": torch.ones(3, dtype=torch.int64)}, "resistance must be a floating-point tensor"),
        ({"friction": torch.ones(3, dtype=torch.int32)}, "friction must be a floating-point tensor"),
        ({"friction": -torch.ones(3)}, "friction must be non-negative"),
        ({"resistance": torch.tensor([1.0, torch.nan, 1.0])}, "resistance must be non-negative"),
        ({"target": torch.tensor([0, 1, 2])}, r"0 \.\. 1"),
        ({"penalty": torch.ones(3)}, "one per node"),
        ({"penalty": -1.0}, "penalty must be non-negative"),
        ({"alpha": 0.0}, "alpha must be positive"),
    ],
)
def test_bad_arguments_are_named(change, message):
    arguments = {"resistance": torch.ones(3), "friction": torch.ones(3), "target": torch.tensor([0, 1, 1])}
    with pytest.raises(BadInput, match=message):
        sparse_flow_edges(**(arguments | {"num_nodes": 2, "penalty": 1.0} | change))
