"""ECHO's families and distances against networkx: diameters, shapes and shortest paths."""

import networkx as nx
import numpy as np
import pytest

from graphbench.benchmarks.echo.topologies import DIAMETERS, FAMILIES, measure, sample_topology


def graph_of(nodes, edges):
    graph = nx.Graph(edges.tolist())
    graph.add_nodes_from(range(nodes))
    assert graph.number_of_edges() == len(edges), "an edge occurs twice"
    return graph


@pytest.mark.parametrize("family", FAMILIES)
@pytest.mark.parametrize("diameter", [DIAMETERS[0], 29, DIAMETERS[1]])
def test_a_graph_is_connected_and_has_its_diameter(family, diameter):
    rng = np.random.default_rng(diameter)
    for _ in range(5):
        nodes, edges = sample_topology(family, diameter, rng)
        graph = graph_of(nodes, edges)
        assert len(graph) == nodes
        assert nx.diameter(graph) == diameter
        assert not list(nx.selfloop_edges(graph))


def test_families_are_what_their_names_say():
    rng = np.random.default_rng(1)
    graphs = {f: [graph_of(*sample_topology(f, d, rng)) for d in range(17, 41)] for f in FAMILIES}
    for diameter, graph in zip(range(17, 41), graphs["ladder"], strict=True):
        assert nx.is_isomorphic(graph, nx.ladder_graph(diameter))
    for graph in [*graphs["tree"], *graphs["caterpillar"], *graphs["lobster"]]:
        assert nx.is_tree(graph)

    def pruned(graph):
        return graph.subgraph([node for node, degree in graph.degree if degree > 1])

    def is_path(graph):
        return max(degree for _, degree in graph.degree) <= 2

    assert all(is_path(pruned(graph)) for graph in graphs["caterpillar"])
    assert all(is_path(pruned(pruned(graph))) for graph in graphs["lobster"])
    assert not all(is_path(pruned(graph)) for graph in graphs["lobster"])
    assert all(nx.is_bipartite(graph) and max(d for _, d in graph.degree) <= 4 for graph in graphs["grid"])


def test_shares_of_edges_are_the_published_ones():
    """A line has 0.2 further edges per node except near its end, and trees have larger hubs than lobsters."""
    rng = np.random.default_rng(2)
    lines = [sample_topology("line", 40, rng) for _ in range(300)]
    nodes = np.array([n for n, _ in lines])
    further = np.array([len(edges) - (n - 1) for n, edges in lines])
    assert further.sum() / (nodes - 4).sum() == pytest.approx(0.2, abs=0.01)  # the mean reach is 4
    degrees = np.concatenate([np.bincount(edges.ravel()) for n, edges in lines])
    assert degrees.max() > 3
    trees = [max(np.bincount(sample_topology("tree", 30, rng)[1].ravel())) for _ in range(50)]
    lobsters = [max(np.bincount(sample_topology("lobster", 30, rng)[1].ravel())) for _ in range(50)]
    assert np.median(trees) > 2 * np.median(lobsters), "preferential attachment makes hubs"


@pytest.mark.parametrize("nodes", [1, 5, 63, 64, 65, 130])
def test_distances_are_those_of_networkx(nodes):
    graph = nx.connected_watts_strogatz_graph(nodes, 4, 0.2, seed=nodes) if nodes > 5 else nx.path_graph(nodes)
    edges = np.array(graph.edges, dtype=np.int64).reshape(-1, 2)
    source = nodes // 2
    eccentricity, distance = measure(nodes, edges, source)
    assert eccentricity.tolist() == [nx.eccentricity(graph)[v] for v in range(nodes)]
    lengths = nx.single_source_shortest_path_length(graph, source)
    assert distance.tolist() == [lengths[v] for v in range(nodes)]


def test_what_is_not_reached_has_no_distance():
    eccentricity, distance = measure(4, np.array([[0, 1], [2, 3]]), source=3)
    assert eccentricity.tolist() == [-1] * 4
    assert distance.tolist() == [-1, -1, 1, 0]
