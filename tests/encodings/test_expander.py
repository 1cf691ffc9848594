from __future__ import annotations

import tracemalloc
from math import sqrt

import networkx as nx
import numpy as np
import pytest
import torch

from graphbench.encodings import ExpanderEdges, expander
from graphbench.errors import BadInput


def expanders(table, **options):
    encoded = ExpanderEdges(**options).compute(table)
    return encoded.columns["expander_edges"].split(encoded.ptr["expander"].diff().tolist())


def multigraph(edges, n):
    graph = nx.MultiDiGraph()
    graph.add_nodes_from(range(n))
    graph.add_edges_from(edges.tolist())
    return graph


@pytest.mark.parametrize("degree", [2, 3, 7])
def test_expanders_are_regular_symmetric_and_expand(as_table, degree):
    """Check in-degrees, both directions, and the second eigenvalue of the Laplacian with networkx."""
    graphs = [nx.path_graph(n) for n in (11, 24, 60)]
    for graph, edges in zip(graphs, expanders(as_table(graphs), degree=degree), strict=True):
        made = multigraph(edges, len(graph))
        assert {count for _, count in made.in_degree()} == {2 * degree}
        adjacency = nx.to_numpy_array(made, nodelist=range(len(graph)))
        assert (adjacency == adjacency.T).all()
        spectrum = np.linalg.eigvalsh(np.diag(adjacency.sum(1)) - adjacency)
        assert abs(spectrum[0]) < 1e-9
        assert spectrum[1] >= 2 * degree - 2 * sqrt(2 * degree - 1) - 0.1


def test_small_graphs_get_all_pairs(as_table):
    graphs = [nx.empty_graph(1), nx.path_graph(4), nx.cycle_graph(10)]
    for graph, edges in zip(graphs, expanders(as_table(graphs)), strict=True):
        n = len(graph)
        assert sorted(map(tuple, edges.tolist())) == [(i, j) for i in range(n) for j in range(n) if i != j]


def test_the_graph_decides_its_expander(as_table):
    """Its neighbours in the table and the order of its edges do not matter; its edges and the seed do."""
    path, cycle = nx.path_graph(30), nx.cycle_graph(30)
    backwards = nx.MultiDiGraph()
    backwards.add_nodes_from(range(30))
    backwards.add_edges_from(list(path.to_directed().edges())[::-1])
    alone, other, reordered = (expanders(as_table(part))[-1] for part in ([path], [cycle, path], [backwards]))
    assert torch.equal(alone, other)
    assert torch.equal(alone, reordered)
    assert not torch.equal(alone, expanders(as_table([cycle]))[0])
    assert not torch.equal(alone, expanders(as_table([path]), seed=1)[0])


def test_a_large_graph_needs_no_dense_matrix():
    tracemalloc.start()
    edges = expander.expander(3000, degree=3, seed=0)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < 8 * 3000**2 / 10
    assert torch.bincount(edges[:, 1]).unique().tolist() == [6]


def test_the_gap_of_a_large_graph_is_that_of_the_dense_matrix(monkeypatch):
    rng, source = np.random.default_rng(0), np.tile(np.arange(400), 3)
    target = np.concatenate([rng.permutation(400) for _ in range(3)])
    dense = expander.spectral_gap(source, target, 400)
    monkeypatch.setattr(expander, "LARGE", 100)
    assert abs(expander.spectral_gap(source, target, 400) - dense) < 1e-6


def test_a_degree_of_nothing_is_refused():
    with pytest.raises(BadInput, match="degree"):
        ExpanderEdges(0)
