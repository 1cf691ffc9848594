"""Families of graphs against networkx, and random orders against counts."""

import networkx as nx
import pytest
import torch

from graphbench.benchmarks.electric_flow.resistor_graphs import TableWiring, make_wiring, random_orders
from graphbench.benchmarks.electric_flow.sampling import stream
from graphbench.contracts import GraphTable
from graphbench.errors import BadInput

CPU = torch.device("cpu")


def drawn(family, sizes, num_graphs=60, probability=0.4, degree=3, seed=0):
    wiring = make_wiring(family, sizes, probability, degree)
    generator = stream(CPU, seed)
    return wiring, wiring.draw(num_graphs, generator).shuffled(generator)


def as_networkx(wires):
    graphs = []
    for tail, head, present, size in zip(wires.tail, wires.head, wires.present, wires.num_nodes, strict=True):
        graph = nx.Graph()
        graph.add_nodes_from(range(int(size)))
        graph.add_edges_from(torch.stack((tail, head), 1)[present].tolist())
        assert graph.number_of_edges() == int(present.sum()), "an edge occurs twice"
        graphs.append(graph)
    return graphs


@pytest.mark.parametrize("family", ["FC", "CSL", "ER", "grid", "regular"])
@pytest.mark.parametrize("sizes", [(10,), range(6, 13)])
def test_graphs_are_simple_and_connected(family, sizes):
    wiring, wires = drawn(family, sizes)
    graphs = as_networkx(wires)
    assert all(nx.is_connected(graph) and nx.number_of_selfloops(graph) == 0 for graph in graphs)
    assert max(graph.number_of_edges() for graph in graphs) <= wiring.max_edges
    assert {len(graph) for graph in graphs} <= set(sizes)
    assert len({len(graph) for graph in graphs}) > 1 or len(sizes) == 1
    first = wires.present.int().diff(dim=1)
    assert bool((first <= 0).all()), "absent edges must come last"


@pytest.mark.parametrize(("family", "degree"), [("ER", 3), ("regular", 3), ("regular", 4)])
def test_one_graph_is_found_although_a_round_of_candidates_has_none(family, degree):
    for seed in range(20):
        _, wires = drawn(family, (9 if degree == 4 else 8,), 1, 0.2, degree, seed)
        assert all(map(nx.is_connected, as_networkx(wires)))


def test_fully_connected_and_grid():
    _, wires = drawn("FC", (10,))
    assert all(nx.is_isomorphic(graph, nx.complete_graph(10)) for graph in as_networkx(wires))
    _, wires = drawn("grid", (12,), num_graphs=5)
    assert all(nx.is_isomorphic(graph, nx.grid_2d_graph(3, 4)) for graph in as_networkx(wires))
    _, wires = drawn("grid", (7,), num_graphs=2)
    assert all(nx.is_isomorphic(graph, nx.path_graph(7)) for graph in as_networkx(wires))


def test_skip_links_have_the_skips_of_the_paper():
    _, wires = drawn("CSL", (10,), num_graphs=80)
    kinds = [nx.circulant_graph(10, [1, skip]) for skip in (2, 4, 6, 8)]
    graphs = as_networkx(wires)
    assert all(any(nx.is_isomorphic(graph, kind) for kind in kinds) for graph in graphs)
    shares = torch.tensor([[nx.is_isomorphic(graph, kind) for kind in kinds] for graph in graphs]).float().mean(0)
    assert shares[0] == pytest.approx(0.5, abs=0.2)  # skips 2 and 8 give one graph, 4 and 6 the other


@pytest.mark.parametrize("degree", [3, 4])
def test_regular_graphs_are_regular(degree):
    _, wires = drawn("regular", (10,), degree=degree)
    assert all(set(dict(graph.degree).values()) == {degree} for graph in as_networkx(wires))


def test_cubic_graphs_are_uniform():
    """Six nodes: the prism has 60 labellings and K_3,3 has 10."""
    _, wires = drawn("regular", (6,), num_graphs=3000)
    graphs = as_networkx(wires)
    share = sum(nx.is_bipartite(graph) for graph in graphs) / len(graphs)
    assert share == pytest.approx(1 / 7, abs=0.02)


def test_random_graphs_have_the_conditional_distribution():
    """Three nodes, p = 1/2, given connected: the triangle has probability 1/4."""
    _, wires = drawn("ER", (3,), num_graphs=4000, probability=0.5)
    assert (wires.present.sum(1) == 3).float().mean() == pytest.approx(0.25, abs=0.03)


def test_orders_are_uniform_permutations():
    present = torch.tensor([[True, False, True, True]]).expand(6000, -1)
    order = random_orders(present, stream(CPU, 1))
    assert torch.equal(order[:, 3], torch.ones(6000, dtype=torch.int64))
    assert torch.equal(order.sort(1).values, torch.arange(4).expand(6000, -1))
    counts = (order[:, :3] @ torch.tensor([16, 4, 1])).unique(return_counts=True)[1]
    assert len(counts) == 6
    assert (counts / 6000 - 1 / 6).abs().max() < 0.02


def test_graphs_of_a_table_are_made_simple_and_connected(caplog):
    def graph(n, edges):
        return {"num_nodes": n, "edge_index": torch.tensor(edges).t()}

    path = graph(3, [[0, 1], [1, 0], [1, 2], [2, 1], [1, 1], [0, 1]])
    two_parts = graph(4, [[0, 1], [1, 0], [2, 3], [3, 2]])
    directed_cycle = graph(5, [[i, (i + 1) % 5] for i in range(5)])
    single = {"num_nodes": 1, "edge_index": torch.zeros(2, 0, dtype=torch.int64)}
    with caplog.at_level("INFO"):
        wiring = TableWiring(GraphTable.from_graphs([path, two_parts, single, directed_cycle]), "mine")
    assert caplog.messages == ["mine: graphs without edges or not connected are left out: 2 of 4"]
    assert (wiring.max_nodes, wiring.max_edges) == (5, 5)
    generator = stream(CPU, 2)
    graphs = as_networkx(wiring.draw(200, generator).shuffled(generator))
    kinds = [nx.path_graph(3), nx.cycle_graph(5)]
    assert all(any(nx.is_isomorphic(graph, kind) for kind in kinds) for graph in graphs)
    assert 60 < sum(len(graph) == 3 for graph in graphs) < 140
    with pytest.raises(BadInput, match="no connected graph"):
        TableWiring(GraphTable.from_graphs([two_parts, single]), "mine")


def test_impossible_families_say_so():
    cases = [
        (("CSL", (4,), 0.5, 3), "at least 5 nodes"),
        (("regular", (9,), 0.5, 3), "even number"),
        (("regular", (10,), 0.5, 5), "degree"),
        (("ER", (10,), 0.0, 3), "edge_probability"),
        (("tree", (10,), 0.5, 3), "family"),
    ]
    for arguments, message in cases:
        with pytest.raises(BadInput, match=message):
            make_wiring(*arguments)
    with pytest.raises(BadInput, match="hardly any is connected"):
        make_wiring("ER", (30,), 0.01, 3).draw(5, stream(CPU, 0))
