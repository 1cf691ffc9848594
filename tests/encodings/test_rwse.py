from __future__ import annotations

from math import comb

import networkx as nx
import numpy as np
import pytest
import torch
from torch_geometric.data import Data
from torch_geometric.transforms import AddRandomWalkPE

from graphbench.encodings import RWSE
from graphbench.errors import BadInput

pytestmark = pytest.mark.usefixtures("ways")


@pytest.mark.parametrize("num_steps", [1, 2, 3, 4, 5, 7, 16, 20])
def test_rwse_is_the_diagonal_of_dense_powers(messy_graphs, messy_table, num_steps):
    """Compare with numpy in float64 on directed graphs with loops, parallel edges and sinks."""
    rwse = RWSE(num_steps).compute(messy_table).columns["rwse"].split(messy_table.num_nodes.tolist())
    for graph, rows in zip(messy_graphs, rwse, strict=True):
        adjacency = nx.to_numpy_array(graph, nodelist=range(len(graph)))
        transition = adjacency / np.maximum(adjacency.sum(1, keepdims=True), 1)
        powers = [np.linalg.matrix_power(transition, k) for k in range(1, num_steps + 1)]
        np.testing.assert_allclose(rows, np.stack([np.diag(power) for power in powers], axis=1), atol=1e-7)


def test_rwse_of_sparse_and_dense_graphs_of_one_table(as_table):
    """Sparse graphs are walked along their edges, dense ones by products of matrices."""
    graphs = [nx.gnp_random_graph(50, share, seed=i, directed=True) for i, share in enumerate((0.02, 0.9, 0.1, 0.6))]
    rwse = RWSE(20).compute(as_table(graphs)).columns["rwse"].split(50)
    for graph, rows in zip(graphs, rwse, strict=True):
        adjacency = nx.to_numpy_array(graph, nodelist=range(50))
        transition = adjacency / np.maximum(adjacency.sum(1, keepdims=True), 1)
        diagonals = [np.diag(np.linalg.matrix_power(transition, k)) for k in range(1, 21)]
        np.testing.assert_allclose(rows, np.stack(diagonals, axis=1), atol=1e-7)


@pytest.mark.parametrize("num_steps", [1, 2, 7, 20])
def test_rwse_of_undirected_graphs_around_the_size_of_a_panel(as_table, num_steps):
    """Includes loops, parallel edges, nodes without edges, and a copy of each graph with a one-way edge."""
    graphs = []
    for seed, (nodes, share) in enumerate([(1, 0), (2, 1), (31, 0.1), (32, 0.3), (33, 0.1), (64, 0.7), (65, 0.05)]):
        graph = nx.MultiDiGraph(nx.gnp_random_graph(nodes, share, seed=seed))
        graph.add_edges_from([(0, 0), *2 * [(0, nodes // 2), (nodes // 2, 0)]])
        graphs += [graph, graph.copy()]
        graphs[-1].add_edge(nodes - 1, 0)
    rwse = RWSE(num_steps).compute(as_table(graphs)).columns["rwse"].split([len(graph) for graph in graphs])
    for graph, rows in zip(graphs, rwse, strict=True):
        adjacency = nx.to_numpy_array(graph, nodelist=range(len(graph)))
        transition = adjacency / np.maximum(adjacency.sum(1, keepdims=True), 1)
        powers = [np.linalg.matrix_power(transition, k) for k in range(1, num_steps + 1)]
        np.testing.assert_allclose(rows, np.stack([np.diag(power) for power in powers], axis=1), rtol=1e-6, atol=1e-12)


def test_rwse_equals_that_of_pyg(simple_table):
    rwse = RWSE(8).compute(simple_table).columns["rwse"].split(simple_table.num_nodes.tolist())
    for graph, rows in enumerate(rwse):
        edges = simple_table.slice(graph, graph + 1).columns["edge_index"]
        data = Data(edge_index=edges.t(), num_nodes=len(rows))
        if len(edges):
            torch.testing.assert_close(rows, AddRandomWalkPE(8)(data).random_walk_pe, rtol=0, atol=1e-6)
        else:
            assert not rows.any()


def test_rwse_on_a_long_cycle_counts_balanced_walks(as_table):
    """On a cycle longer than the walk, P(return after 2m) = C(2m, m) / 4^m and odd walks never return."""
    rwse = RWSE(10).compute(as_table([nx.cycle_graph(12)])).columns["rwse"]
    expected = torch.tensor([0 if k % 2 else comb(k, k // 2) / 2**k for k in range(1, 11)])
    torch.testing.assert_close(rwse, expected.expand(12, 10))


def test_rwse_of_a_graph_does_not_depend_on_its_chunk(messy_table, assert_chunks_agree):
    assert_chunks_agree(RWSE(9), messy_table)


def test_rwse_of_a_graph_larger_than_a_block(as_table):
    """A block of 2^18 pairs fits graphs of up to 512 nodes."""
    graph = nx.random_regular_graph(3, 520, seed=1)
    adjacency = nx.to_numpy_array(graph, nodelist=range(520)) / 3
    rwse = RWSE(6).compute(as_table([graph, graph])).columns["rwse"]
    np.testing.assert_allclose(rwse[520:, 5], np.diag(np.linalg.matrix_power(adjacency, 6)), atol=1e-7)
    assert torch.equal(rwse[:520], rwse[520:])


def test_rwse_refuses_zero_steps():
    with pytest.raises(BadInput, match="num_steps"):
        RWSE(0)
