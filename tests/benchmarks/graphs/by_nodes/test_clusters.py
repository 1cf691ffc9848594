"""Clusters by METIS: known clusters are found, and edges in one direction are refused."""

from __future__ import annotations

from itertools import pairwise

import networkx as nx
import pytest
import torch

from graphbench.benchmarks.graphs.by_nodes.clusters import write_clusters
from graphbench.benchmarks.graphs.by_nodes.incoming import IncomingEdges, write_incoming
from graphbench.data.store import Store
from graphbench.errors import BadInput

pytest.importorskip("pymetis")


def clusters_of(edges, num_nodes, num_parts, folder):
    """Return the nodes of each cluster of a graph with `edges [E, 2]`."""
    store = Store(folder)
    entry = store.open_or_build({"kind": "incoming"}, lambda to: write_incoming(to, edges, num_nodes), "edges")
    index = IncomingEdges.of_entry(entry)
    found = store.open_or_build({"kind": "clusters"}, lambda to: write_clusters(to, index, num_parts), "clusters")
    ptr = found.arrays["ptr"].tolist()
    return [set(found.arrays["nodes"][start:end].tolist()) for start, end in pairwise(ptr)]


def test_cliques_that_hardly_touch_are_the_clusters(tmp_path):
    graph = nx.connected_caveman_graph(4, 8)
    edges = torch.tensor(list(nx.DiGraph(graph).edges))
    loops = torch.arange(5)[:, None].repeat(1, 2)
    found = clusters_of(torch.cat([edges, loops])[torch.randperm(len(edges) + 5)], 32, 4, tmp_path)
    assert sorted(map(min, found)) == [0, 8, 16, 24]
    assert all(found[number] == set(range(min(found[number]), min(found[number]) + 8)) for number in range(4))


def test_edges_of_one_direction_are_refused(tmp_path):
    with pytest.raises(BadInput, match="METIS needs edges in both directions"):
        clusters_of(torch.tensor([[0, 1], [1, 0], [1, 2]]), 3, 2, tmp_path)
