"""Edges grouped by target against brute force, and samples against their exact probabilities."""

from __future__ import annotations

from itertools import combinations

import numpy as np
import pytest
import torch
from torch_geometric.utils import k_hop_subgraph

from graphbench.benchmarks.graphs.by_nodes.batches import neighbors
from graphbench.benchmarks.graphs.by_nodes.incoming import IncomingEdges, draw_distinct, write_incoming
from graphbench.data.store import Store

NODES = 40


def some_edges(count=300, seed=0):
    """Return edges `[count, 2]` with loops and duplicates; the last nodes have none, node 0 has many."""
    ends = np.random.default_rng(seed).integers(0, NODES - 3, (count, 2))
    ends[::4, 1] = 0
    return torch.from_numpy(ends.astype(np.int32))


def index_of(edges, folder, block=1 << 25):
    entry = Store(folder).open_or_build(
        {"kind": "incoming", "block": block}, lambda writer: write_incoming(writer, edges, NODES, block), "edges"
    )
    return IncomingEdges.of_entry(entry)


@pytest.mark.parametrize("block", [1 << 25, 7])
def test_edges_to_nodes_are_those_of_the_list_in_its_order(tmp_path, block):
    edges = some_edges()
    index = index_of(edges, tmp_path, block)
    asked = np.array([5, 0, 39, 2])
    places, row = index.of(asked)
    found = [index.numbers[places[row == number]].tolist() for number in range(len(asked))]
    assert found == [np.flatnonzero(edges[:, 1].numpy() == node).tolist() for node in asked]
    assert (index.sources[places] == edges[index.numbers[places], 0].numpy()).all()


def test_a_graph_without_edges_has_an_index(tmp_path):
    index = index_of(torch.empty((0, 2), dtype=torch.int32), tmp_path)
    assert [part.tolist() for part in index.sample(np.arange(NODES), 3, np.random.default_rng(0))] == [[], []]


def test_every_set_of_numbers_is_drawn_as_often():
    rows = 40_000
    drawn = draw_distinct(np.full(rows, 5), 3, np.random.default_rng(1))
    sets, counts = np.unique(np.sort(drawn, 1), axis=0, return_counts=True)
    assert sets.tolist() == [list(numbers) for numbers in combinations(range(5), 3)]
    deviation = np.sqrt(rows * 0.1 * 0.9)
    assert np.abs(counts - rows * 0.1).max() < 4.5 * deviation


def test_samples_hold_all_of_few_edges_and_distinct_ones_of_many(tmp_path):
    index = index_of(some_edges(), tmp_path)
    nodes = np.arange(NODES)
    places, row = index.sample(nodes, 4, np.random.default_rng(2))
    degree = np.diff(index.ptr)
    assert np.bincount(row, minlength=NODES).tolist() == np.minimum(degree, 4).tolist()
    assert len(np.unique(places)) == len(places)
    assert ((index.ptr[row] <= places) & (places < index.ptr[row + 1])).all()


@pytest.mark.parametrize("hops", [1, 2, 3])
def test_all_neighbours_are_those_of_pyg(tmp_path, hops):
    edges = some_edges(60, seed=3)
    piece = neighbors(index_of(edges, tmp_path), [-1] * hops, 0)(torch.tensor([7, 3]))
    ends = edges.t().to(torch.int64)
    expected, *_ = k_hop_subgraph([7, 3], hops, ends, num_nodes=NODES)
    assert piece.nodes[:2].tolist() == [7, 3]
    assert sorted(piece.nodes.tolist()) == expected.tolist()
    reached, *_ = k_hop_subgraph([7, 3], hops - 1, ends, num_nodes=NODES)
    assert sorted(piece.edges.tolist()) == torch.isin(ends[1], reached).nonzero()[:, 0].tolist()
    assert torch.equal(piece.nodes[piece.edge_index], ends[:, piece.edges])
