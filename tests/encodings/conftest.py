"""Graphs shared by the tests of encodings."""

from __future__ import annotations

from collections.abc import Iterator

import networkx as nx
import pytest
import torch

from graphbench.contracts import GraphTable
from graphbench.testing import computed_by


@pytest.fixture(params=["numba", "torch"])
def ways(request) -> Iterator[str]:
    """Run with and without kernels; test modules request this fixture by name."""
    with computed_by(request.param):
        yield request.param


def _as_mapping(graph: nx.Graph) -> dict:
    edges = torch.tensor(list(graph.to_directed().edges()), dtype=torch.int64).reshape(-1, 2).t()
    return {"num_nodes": graph.number_of_nodes(), "edge_index": edges}


@pytest.fixture(scope="session")
def as_table():
    """Return a function: networkx graphs (directed or not, with parallel edges or not) -> `GraphTable`."""
    return lambda graphs: GraphTable.from_graphs([_as_mapping(graph) for graph in graphs])


@pytest.fixture(scope="session")
def simple_graphs() -> list[nx.Graph]:
    """Return undirected graphs: symmetric and random, connected or not, tiny and larger; sizes recur out of order."""
    pieces = nx.disjoint_union_all([nx.cycle_graph(3), nx.path_graph(4), nx.empty_graph(2)])
    return [
        nx.cycle_graph(9),
        nx.empty_graph(1),
        nx.petersen_graph(),
        pieces,
        nx.star_graph(6),
        nx.complete_graph(5),
        nx.empty_graph(4),
        nx.grid_2d_graph(3, 3),
        nx.path_graph(2),
        *(nx.gnp_random_graph(n, 0.4, seed=n) for n in (7, 9, 23, 10, 23)),
    ]


@pytest.fixture(scope="session")
def simple_table(as_table, simple_graphs) -> GraphTable:
    return as_table([nx.convert_node_labels_to_integers(graph) for graph in simple_graphs])


@pytest.fixture(scope="session")
def messy_graphs() -> list[nx.MultiDiGraph]:
    """Return directed graphs with loops, parallel edges, sinks and isolated nodes."""
    generator = torch.Generator().manual_seed(3)
    graphs = []
    for nodes, edges in ((6, 14), (9, 12), (6, 5), (1, 2), (12, 60)):
        graph = nx.MultiDiGraph()
        graph.add_nodes_from(range(nodes))
        graph.add_edges_from(torch.randint(0, nodes, (edges, 2), generator=generator).tolist())
        graphs.append(graph)
    return graphs


@pytest.fixture(scope="session")
def messy_table(messy_graphs) -> GraphTable:
    """Return the same graphs with the edges of each in shuffled order."""
    tables = []
    for graph in messy_graphs:
        edges = torch.tensor(list(graph.edges()), dtype=torch.int64).reshape(-1, 2)
        shuffle = torch.randperm(len(edges), generator=torch.Generator().manual_seed(len(edges)))
        tables.append({"num_nodes": graph.number_of_nodes(), "edge_index": edges[shuffle].t()})
    return GraphTable.from_graphs(tables)


@pytest.fixture(scope="session")
def assert_chunks_agree():
    """Return a check that every field of a graph is the same alone and together with other graphs."""

    def check(encoding, table: GraphTable) -> None:
        whole = encoding.compute(table)
        together = table.with_columns(whole.columns, encoding.layout, whole.ptr)
        for graph in range(len(table)):
            alone = encoding.compute(table.slice(graph, graph + 1)).columns
            for name, column in together.slice(graph, graph + 1).columns.items():
                if name in alone:
                    torch.testing.assert_close(alone[name], column, rtol=0, atol=1e-6)

    return check
