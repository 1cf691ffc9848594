from __future__ import annotations

import networkx as nx
import pytest
import torch

from graphbench.contracts import GraphTable
from graphbench.encodings import ShortestPaths, path_edges_in_batch
from graphbench.errors import BadInput


def per_graph(table: GraphTable, encoding: ShortestPaths, name: str) -> list[torch.Tensor]:
    """Field `name` of every graph, `[n, n, ...]`."""
    rows = encoding.compute(table).columns[name].split((table.num_nodes**2).tolist())
    return [part.unflatten(0, (n, n)) for part, n in zip(rows, table.num_nodes.tolist(), strict=True)]


def lowest_path(edges: list[list[int]], start: int, goal: int, length: int) -> list[int] | None:
    """Brute force: the lexicographically smallest list of `length` edge numbers that leads from start to goal."""
    if length == 0:
        return [] if start == goal else None
    for number, (source, target) in enumerate(edges):
        if source == start and (rest := lowest_path(edges, target, goal, length - 1)) is not None:
            return [number, *rest]
    return None


@pytest.mark.parametrize("max_distance", [2, 20, 400])
@pytest.mark.parametrize("kind", ["messy", "simple"])
def test_distances_equal_those_of_networkx(request, kind, max_distance):
    graphs, table = request.getfixturevalue(f"{kind}_graphs"), request.getfixturevalue(f"{kind}_table")
    encoding = ShortestPaths(max_distance)
    for graph, distance in zip(graphs, per_graph(table, encoding, "shortest_path_distance"), strict=True):
        numbered = nx.convert_node_labels_to_integers(graph)
        expected = torch.full((len(graph), len(graph)), encoding.unreachable)
        for source, lengths in nx.all_pairs_shortest_path_length(numbered):
            for target, length in lengths.items():
                expected[source, target] = min(length, max_distance)
        assert torch.equal(distance.long(), expected)
        assert distance.max() < encoding.num_distances


def test_path_edges_are_the_lowest_shortest_path(messy_table):
    encoding = ShortestPaths(20, with_edges=3)
    distances = per_graph(messy_table, encoding, "shortest_path_distance")
    paths = per_graph(messy_table, encoding, "shortest_path_edges")
    for graph, (distance, path) in enumerate(zip(distances, paths, strict=True)):
        edges = messy_table.slice(graph, graph + 1).columns["edge_index"].tolist()
        for i, j in torch.cartesian_prod(*[torch.arange(len(distance))] * 2).tolist():
            length = int(distance[i, j])
            expected = lowest_path(edges, i, j, length) if length < encoding.unreachable else []
            assert path[i, j].tolist() == [*expected, -1, -1, -1][:3]


def test_a_long_path_is_found_to_its_end(as_table):
    n = 300
    table = as_table([nx.path_graph(n, create_using=nx.DiGraph)])
    encoding = ShortestPaths(max_distance=n, with_edges=n - 1)
    assert encoding.compute(table).columns["shortest_path_distance"].dtype == torch.int16
    (distance,) = per_graph(table, encoding, "shortest_path_distance")
    (path,) = per_graph(table, encoding, "shortest_path_edges")
    assert distance[0].tolist() == list(range(n))
    assert (distance[1:, 0] == encoding.unreachable).all()
    assert path[0, n - 1].tolist() == list(range(n - 1))


def test_shortest_paths_of_a_graph_do_not_depend_on_its_chunk(messy_table, assert_chunks_agree):
    assert_chunks_agree(ShortestPaths(5, with_edges=2), messy_table)


@pytest.mark.parametrize("chosen", [[4, 0, 3], [3], [0, 1, 2, 3, 4]])
def test_path_edges_in_a_batch_are_rows_of_its_edge_index(messy_table, chosen):
    encoding = ShortestPaths(20, with_edges=4)
    batch = messy_table.with_columns(encoding.compute(messy_table).columns, encoding.layout).batch(chosen)
    edges = path_edges_in_batch(batch)
    length = batch.shortest_path_distance
    reachable = (length > 0) & (length < encoding.unreachable)
    sizes = batch.ptr.diff().tolist()
    first = torch.cat(
        [start + torch.arange(n).repeat_interleave(n) for start, n in zip(batch.ptr, sizes, strict=False)]
    )
    last = torch.cat([start + torch.arange(n).repeat(n) for start, n in zip(batch.ptr, sizes, strict=False)])
    assert torch.equal(edges[:, 0] >= 0, reachable)
    assert torch.equal(batch.edge_index[0][edges[reachable, 0]], first[reachable])
    whole = reachable & (length <= 4)
    assert torch.equal(batch.edge_index[1][edges[whole, length[whole] - 1]], last[whole])


def test_path_edges_in_a_batch_skip_graphs_without_edges():
    bare = {"num_nodes": 2, "edge_index": torch.zeros(2, 0, dtype=torch.int64)}
    pair = {"num_nodes": 2, "edge_index": torch.tensor([[0, 1], [1, 0]])}
    table = GraphTable.from_graphs([bare, pair, bare, pair, bare])
    encoding = ShortestPaths(3, with_edges=1)
    batch = table.with_columns(encoding.compute(table).columns, encoding.layout).batch(range(5))
    none = [-1] * 4
    assert path_edges_in_batch(batch).flatten().tolist() == [*none, -1, 0, 1, -1, *none, -1, 2, 3, -1, *none]


@pytest.mark.parametrize("options", [{"max_distance": 0}, {"max_distance": 40_000}, {"with_edges": -1}], ids=repr)
def test_shortest_paths_refuse_bad_options(options):
    with pytest.raises(BadInput, match=next(iter(options))):
        ShortestPaths(**options)
