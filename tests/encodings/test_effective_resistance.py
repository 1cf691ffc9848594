from __future__ import annotations

import networkx as nx
import numpy as np
import pytest
import torch

from graphbench.encodings import EffectiveResistance


def per_graph(table) -> list[torch.Tensor]:
    """Return the resistances of every graph, `[n, n]`."""
    rows = EffectiveResistance().compute(table).columns["effective_resistance"]
    parts = rows.split((table.num_nodes**2).tolist())
    return [part.view(n, n) for part, n in zip(parts, table.num_nodes.tolist(), strict=True)]


def test_resistances_equal_those_of_networkx(simple_graphs, simple_table):
    connected = 0
    for graph, resistance in zip(simple_graphs, per_graph(simple_table), strict=True):
        if len(graph) > 1 and nx.is_connected(graph):
            connected += 1
            expected = nx.resistance_distance(graph)
            expected = [[expected[i][j] for j in graph] for i in graph]
            np.testing.assert_allclose(resistance, expected, atol=1e-6)
    assert connected >= 8


@pytest.mark.parametrize("kind", ["messy", "simple"])
def test_resistances_equal_the_dense_pseudo_inverse(request, kind):
    graphs, table = request.getfixturevalue(f"{kind}_graphs"), request.getfixturevalue(f"{kind}_table")
    for graph, resistance in zip(graphs, per_graph(table), strict=True):
        simple = nx.Graph(nx.convert_node_labels_to_integers(graph))
        simple.remove_edges_from(list(nx.selfloop_edges(simple)))
        inverse = np.linalg.pinv(nx.laplacian_matrix(simple, nodelist=range(len(simple))).toarray().astype(np.float64))
        expected = np.diag(inverse)[:, None] + np.diag(inverse)[None, :] - 2 * inverse
        for component in nx.connected_components(simple):
            others = [node for node in simple if node not in component]
            assert (resistance[list(component)][:, others] == EffectiveResistance.disconnected).all()
            inside = np.ix_(list(component), list(component))
            np.testing.assert_allclose(resistance.numpy()[inside], expected[inside], atol=1e-6)


def test_resistance_on_a_tree_is_the_distance(as_table):
    tree = nx.balanced_tree(2, 4)
    (resistance,) = per_graph(as_table([tree]))
    np.testing.assert_allclose(resistance, nx.floyd_warshall_numpy(tree), atol=1e-5)


def test_resistances_of_a_graph_do_not_depend_on_its_chunk(simple_table, assert_chunks_agree):
    assert_chunks_agree(EffectiveResistance(), simple_table)
