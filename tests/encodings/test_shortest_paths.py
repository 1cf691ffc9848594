from __future__ import annotations

from collections import Counter
from itertools import pairwise

import networkx as nx
import pytest
import torch

from graphbench.contracts import GraphTable
from graphbench.encodings import ShortestPaths
from graphbench.errors import BadInput

pytestmark = pytest.mark.usefixtures("ways")


def per_graph(table: GraphTable, encoding: ShortestPaths, name: str) -> list[torch.Tensor]:
    """Return field `name` of every graph, `[n, n, ...]`."""
    rows = encoding.compute(table).columns[name].split((table.num_nodes**2).tolist())
    return [part.unflatten(0, (n, n)) for part, n in zip(rows, table.num_nodes.tolist(), strict=True)]


def all_paths(edges: list[list[int]], start: int, goal: int, length: int) -> list[list[int]]:
    """Return every list of `length` edge numbers from start to goal, by brute force."""
    if length == 0:
        return [[]] if start == goal else []
    return [
        [number, *rest]
        for number, (source, target) in enumerate(edges)
        if source == start
        for rest in all_paths(edges, target, goal, length - 1)
    ]


def with_steps(table: GraphTable, encoding: ShortestPaths) -> GraphTable:
    encoded = encoding.compute(table)
    return table.with_columns(encoded.columns, encoding.layout, encoded.ptr)


def steps_of(table: GraphTable) -> list[dict[tuple[int, int], float]]:
    """Return (pair, edge) -> weight for every graph of a table with steps."""
    found = []
    for graph in range(len(table)):
        columns = table.slice(graph, graph + 1).columns
        edge, goal = columns["path_step_edge"].long(), columns["path_step_goal"].long()
        pair = columns["edge_index"][edge, 0] * int(table.num_nodes[graph]) + goal
        keys = zip(pair.tolist(), edge.tolist(), strict=True)
        found.append(dict(zip(keys, columns["path_step_weight"].tolist(), strict=True)))
        assert (pair.diff() >= 0).all()
    return found


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


def test_steps_are_the_shares_of_all_shortest_paths(messy_table):
    """Compare with every list of edges of the right length, with loops, parallel edges and one-way edges."""
    encoding, ties = ShortestPaths(20, with_edges=True), 0
    distances = per_graph(messy_table, encoding, "shortest_path_distance")
    for graph, (distance, steps) in enumerate(zip(distances, steps_of(with_steps(messy_table, encoding)), strict=True)):
        edges = messy_table.slice(graph, graph + 1).columns["edge_index"].tolist()
        expected = {}
        for i, j in torch.cartesian_prod(*[torch.arange(len(distance))] * 2).tolist():
            length = int(distance[i, j])
            paths = all_paths(edges, i, j, length) if 0 < length < encoding.unreachable else []
            firsts = Counter(path[0] for path in paths)
            expected |= {(i * len(distance) + j, edge): number / len(paths) for edge, number in firsts.items()}
            ties += len(firsts) > 1
        assert steps == pytest.approx(expected, abs=1e-7)
    assert ties > 20


def floyd_warshall_paths(n: int, edges: list[list[int]]) -> dict[tuple[int, int], list[int]]:
    """Return the nodes of the path of every pair that has one, joined at the last node that shortened it."""
    distance = [[0 if i == j else 1 if [i, j] in edges else n for j in range(n)] for i in range(n)]
    middle = [[-1] * n for _ in range(n)]
    for k in range(n):
        for i in range(n):
            for j in range(n):
                if distance[i][j] > distance[i][k] + distance[k][j]:
                    distance[i][j], middle[i][j] = distance[i][k] + distance[k][j], k

    def inner(i: int, j: int) -> list[int]:
        k = middle[i][j]
        return [] if k < 0 else [*inner(i, k), k, *inner(k, j)]

    pairs = [(i, j) for i in range(n) for j in range(n) if i != j and distance[i][j] < n]
    return {(i, j): [i, *inner(i, j), j] for i, j in pairs}


def test_steps_of_one_path_are_those_of_floyd_and_warshall(messy_table):
    """Follow each path from step to step; parallel edges have equal weights."""
    encoding, shorter = ShortestPaths(20, with_edges=True, ties="one"), 0
    every = steps_of(with_steps(messy_table, ShortestPaths(20, with_edges=True)))
    for graph, steps in enumerate(steps_of(with_steps(messy_table, encoding))):
        part = messy_table.slice(graph, graph + 1)
        n, edges = int(part.num_nodes), part.columns["edge_index"].tolist()
        shorter += len(every[graph]) - len(steps)
        firsts: dict[tuple[int, int], dict[int, float]] = {}
        for (pair, edge), weight in steps.items():
            firsts.setdefault(divmod(pair, n), {})[edge] = weight
        paths = floyd_warshall_paths(n, edges)
        assert firsts.keys() == paths.keys()
        for (_, j), path in paths.items():
            for at, following in pairwise(path):
                parallel = [number for number, edge in enumerate(edges) if edge == [at, following]]
                assert firsts[at, j] == pytest.approx(dict.fromkeys(parallel, 1 / len(parallel)))
    assert shorter > 20


def test_one_path_without_edges_is_an_error():
    with pytest.raises(BadInput, match="ties=one"):
        ShortestPaths(ties="one")


def test_steps_do_not_depend_on_how_edges_are_listed(messy_table):
    """Steps and edges are the same under their new numbers, with weights equal to the last bit."""
    generator = torch.Generator().manual_seed(0)
    encoding, shuffled, numbers = ShortestPaths(with_edges=True), [], []
    for graph in range(len(messy_table)):
        part = messy_table.slice(graph, graph + 1)
        order = torch.randperm(int(part.num_edges), generator=generator)
        edges = part.columns["edge_index"][order].t()
        shuffled.append({"num_nodes": int(part.num_nodes), "edge_index": edges})
        numbers.append(order.tolist())
    before = steps_of(with_steps(messy_table, encoding))
    after = steps_of(with_steps(GraphTable.from_graphs(shuffled), encoding))
    for expected, actual, number in zip(before, after, numbers, strict=True):
        assert {(pair, number[edge]): weight for (pair, edge), weight in actual.items()} == expected


def test_a_long_path_is_found_to_its_end(as_table):
    n = 300
    table = as_table([nx.path_graph(n, create_using=nx.DiGraph)])
    encoding = ShortestPaths(max_distance=n, with_edges=True)
    encoded = encoding.compute(table)
    assert encoded.columns["shortest_path_distance"].dtype == torch.int16
    (distance,) = per_graph(table, encoding, "shortest_path_distance")
    assert distance[0].tolist() == list(range(n))
    assert (distance[1:, 0] == encoding.unreachable).all()
    (steps,) = steps_of(with_steps(table, encoding))
    assert steps == {(i * n + j, i): 1.0 for i in range(n) for j in range(i + 1, n)}


def test_more_paths_than_a_float_can_count_keep_their_shares():
    """A chain with 16 edges between neighbours: 2^1080 paths from end to end, and a way around its first node."""
    length, ways = 270, 16
    chain = [(node, node + 1) for node in range(length) for _ in range(ways)]
    start, aside = length + 1, length + 2
    edges = torch.tensor([*chain, (start, 0), (start, aside), (aside, 1)]).t()
    n = length + 3
    table = GraphTable.from_graphs([{"num_nodes": n, "edge_index": edges}])
    encoding = ShortestPaths(max_distance=length + 1, with_edges=True)
    columns = encoding.compute(table).columns
    weight, edge, goal = (columns[f"path_step_{name}"] for name in ("weight", "edge", "goal"))
    along = edge < len(chain)
    torch.testing.assert_close(weight[along], torch.full_like(weight[along], 1 / ways))
    # From `start` to nodes after node 0 there are 16 times as many paths through 0 as through `aside`.
    behind = (goal >= 1) & (goal <= length)
    for number, share in ((len(chain), ways / (ways + 1)), (len(chain) + 1, 1 / (ways + 1))):
        torch.testing.assert_close(weight[behind & (edge == number)], torch.full((length,), share))


def test_shortest_paths_of_a_graph_do_not_depend_on_its_chunk(messy_table, assert_chunks_agree):
    assert_chunks_agree(ShortestPaths(5, with_edges=True), messy_table)


@pytest.mark.parametrize("chosen", [[4, 0, 3], [3], [0, 1, 2, 3, 4]])
def test_steps_in_a_batch_are_rows_of_its_edge_index_and_pairs(messy_table, chosen):
    """Every step leads one edge closer to its goal, in the same graph, and the shares of a pair sum to one."""
    batch = with_steps(messy_table, ShortestPaths(20, with_edges=True)).batch(chosen)
    graph = batch.path_step_batch
    size, start = batch.ptr.diff()[graph], batch.ptr[graph]
    assert torch.equal(batch.batch[batch.path_step_goal], graph)
    pair, left = (
        batch.pair_ptr[graph] + (node - start) * size + batch.path_step_goal - start
        for node in batch.edge_index[:, batch.path_step_edge]
    )
    assert torch.equal(batch.shortest_path_distance[pair], batch.shortest_path_distance[left] + 1)
    reachable = (batch.shortest_path_distance > 0) & (batch.shortest_path_distance < 21)
    share = torch.zeros(len(reachable)).index_add_(0, pair, batch.path_step_weight)
    torch.testing.assert_close(share, reachable.float())


def test_graphs_without_edges_have_no_steps():
    bare = {"num_nodes": 2, "edge_index": torch.zeros(2, 0, dtype=torch.int64)}
    pair = {"num_nodes": 2, "edge_index": torch.tensor([[0, 1], [1, 0]])}
    table = with_steps(GraphTable.from_graphs([bare, pair, bare, pair, bare]), ShortestPaths(3, with_edges=True))
    batch = table.batch(range(5))
    assert batch.path_step_edge.tolist() == [0, 1, 2, 3]
    assert batch.path_step_goal.tolist() == [3, 2, 7, 6]
    alone = table.batch([0, 2])
    assert len(alone.path_step_edge) == 0
    assert len(alone.shortest_path_distance) == 8


@pytest.mark.parametrize("options", [{"max_distance": 0}, {"max_distance": 40_000}, {"with_edges": 5}], ids=repr)
def test_shortest_paths_refuse_bad_options(options):
    with pytest.raises(BadInput, match=next(iter(options))):
        ShortestPaths(**options)
