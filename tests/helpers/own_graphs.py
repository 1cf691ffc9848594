"""Graphs as users have them: files in the layout of the TU collection, and PyG's objects with all kinds of targets."""

from __future__ import annotations

import networkx as nx
import numpy as np
import torch
from torch_geometric.data import Data
from torch_geometric.utils import to_undirected

#: Number of nodes of `large_graph`.
NODES = 90


def write_tu(folder, name, num_graphs=30, attributes=True, seed=0):
    """Write trees with two classes, labels of nodes and edges, and two node attributes; nodes count from 1."""
    folder.mkdir(parents=True, exist_ok=True)
    rng = np.random.RandomState(seed)
    suffixes = ("A", "graph_indicator", "graph_labels", "node_labels", "edge_labels", "node_attributes")
    rows = {suffix: [] for suffix in suffixes}
    first = 1
    for graph in range(num_graphs):
        size = rng.randint(3, 9)
        rows["graph_labels"].append(f"{(-1, 1)[graph % 2]}")
        for node in range(size):
            rows["graph_indicator"].append(f"{graph + 1}")
            rows["node_labels"].append(f"{rng.randint(1, 4)}")
            rows["node_attributes"].append(", ".join(f"{value:.4f}" for value in rng.randn(2)))
            if node:
                parent, label = rng.randint(node), rng.randint(2)
                rows["A"] += [f"{first + parent}, {first + node}", f"{first + node}, {first + parent}"]
                rows["edge_labels"] += [f"{label}", f"{label}"]
        first += size
    if not attributes:
        del rows["node_attributes"]
    for suffix, lines in rows.items():
        (folder / f"{name}_{suffix}.txt").write_text("\n".join(lines) + "\n")
    return folder


def ring(size):
    """Return a cycle in both directions, `[2, 2 * size]`."""
    nodes = torch.arange(size)
    one_way = torch.stack([nodes, nodes.roll(-1)])
    return torch.cat([one_way, one_way.flip(0)], 1)


def make_graphs(num_graphs=40, seed=0):
    """Return cycles of 4 to 8 nodes with two categories and a number on each, and targets of every kind."""
    generator = torch.Generator().manual_seed(seed)
    graphs = []
    for number in range(num_graphs):
        size = 4 + number % 5
        flags = torch.tensor([[1.0, number % 2, torch.nan]]) if number % 4 else torch.tensor([[0.0, 1.0, 1.0]])
        graph = Data(
            x=torch.randint(5, (size, 2), generator=generator),
            charge=torch.randn(size, generator=generator),
            edge_index=ring(size),
            edge_attr=torch.randn(2 * size, 3, generator=generator),
            y=torch.tensor([number % 3]),
            energy=torch.randn(1, generator=generator),
            several=torch.randn(1, 4, generator=generator),
            flags=flags,
            role=torch.arange(size) % 3,
            batch_number=number // 4,
        )
        graphs.append(graph)
    return graphs


def large_graph(seed=0):
    """Return a graph with heavy degrees, features of nodes and edges, and classes that a third of the nodes lack."""
    edges = torch.tensor(list(nx.barabasi_albert_graph(NODES, 3, seed=seed).edges)).t()
    edges = to_undirected(edges)
    generator = torch.Generator().manual_seed(seed)
    return Data(
        x=torch.randn(NODES, 4, generator=generator),
        kind=torch.arange(NODES) % 5,
        edge_index=edges,
        edge_attr=torch.randn(edges.shape[1], 2, generator=generator),
        y=torch.where(torch.arange(NODES) % 3 == 2, -1, torch.arange(NODES) % 4),
    )
