from __future__ import annotations

import networkx as nx
import numpy as np
import pytest
import torch

from graphbench.encodings import RRWP, RWSE, LapPE
from graphbench.errors import BadInput


def powers(graph, num_steps):
    """Return (D^-1 A)^k of a graph by numpy in float64, `[n, n, num_steps]`."""
    adjacency = nx.to_numpy_array(graph, nodelist=range(len(graph)))
    transition = adjacency / np.maximum(adjacency.sum(1, keepdims=True), 1)
    return np.stack([np.linalg.matrix_power(transition, k) for k in range(1, num_steps + 1)], axis=-1)


@pytest.mark.parametrize("num_steps", [1, 2, 7])
def test_pairs_are_the_powers_of_the_transition_matrix(messy_graphs, messy_table, num_steps):
    """The graphs are directed, with loops, parallel edges and sinks."""
    rrwp = RRWP(num_steps).compute(messy_table).columns["rrwp"].split((messy_table.num_nodes**2).tolist())
    for graph, rows in zip(messy_graphs, rrwp, strict=True):
        np.testing.assert_allclose(rows, powers(graph, num_steps).reshape(-1, num_steps), atol=1e-7)


def test_edges_read_the_pair_from_source_to_target(messy_graphs, messy_table):
    walks = RRWP(5, rows="edges").compute(messy_table).columns["edge_rrwp"]
    rows = walks.split(messy_table.num_edges.tolist())
    for number, (graph, found) in enumerate(zip(messy_graphs, rows, strict=True)):
        source, target = messy_table.slice(number, number + 1).columns["edge_index"].numpy().T
        np.testing.assert_allclose(found, powers(graph, 5)[source, target], atol=1e-7)


def test_the_diagonal_is_rwse(simple_table):
    rrwp = RRWP(6).compute(simple_table).columns["rrwp"].split((simple_table.num_nodes**2).tolist())
    own = [rows.view(n, n, 6).diagonal().T for rows, n in zip(rrwp, simple_table.num_nodes.tolist(), strict=True)]
    torch.testing.assert_close(torch.cat(own), RWSE(6).compute(simple_table).columns["rwse"], rtol=0, atol=1e-6)


@pytest.mark.parametrize("rows", ["pairs", "edges"])
def test_a_graph_does_not_depend_on_its_chunk(messy_table, assert_chunks_agree, rows):
    assert_chunks_agree(RRWP(4, rows=rows), messy_table)


def test_bad_options_are_refused():
    with pytest.raises(BadInput, match="num_steps"):
        RRWP(0)
    with pytest.raises(BadInput, match="pairs, edges"):
        RRWP(3, rows="nodes")


def test_memory_grows_with_pairs():
    for encoding in (RRWP(20), RRWP(20, rows="edges"), RWSE(20), LapPE(8)):
        assert encoding.memory(1000, 5000) == 4 * encoding.memory(500, 5000)
        assert encoding.memory(1000, 5000) >= 2 * 8 * 1000**2, "the matrix and its next power or eigenvectors"
    assert RRWP(20).memory(1000, 5000) >= 20 * 8 * 1000**2, "all powers are kept"


def test_memory_of_large_graphs_grows_with_nodes_and_edges():
    for encoding in (RWSE(20), LapPE(16)):
        assert encoding.memory(170_000, 2_400_000) < 2**30
        assert encoding.memory(340_000, 4_800_000) <= 2 * encoding.memory(170_000, 2_400_000)
