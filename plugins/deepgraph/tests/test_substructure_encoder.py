"""Depth-first orders against a step-by-step reference, and their distribution against exact probabilities."""

from __future__ import annotations

from collections import Counter

import networkx as nx
import pytest
import torch

from graphbench.errors import BadInput
from graphbench_deepgraph.substructure_encoder import dfs_order, encode_adjacency, induced_adjacency
from graphbench_deepgraph.tokens import ordering_seeds, pad_members

PADDED = 12


def adjacency_of(graphs, size=PADDED):
    """Padded adjacency `[m, size, size]` and sizes `[m]` of networkx graphs with nodes 0 .. n - 1."""
    result = torch.zeros(len(graphs), size, size, dtype=torch.bool)
    for matrix, graph in zip(result, graphs, strict=True):
        matrix[: len(graph), : len(graph)] = torch.from_numpy(nx.to_numpy_array(graph, sorted(graph)) > 0)
    return result, torch.tensor([len(graph) for graph in graphs])


def choices(graph, visited):
    """Nodes that a search by degree may visit next, by the rules of Appendix E."""
    for node in reversed(visited):
        left = [u for u in graph[node] if u not in visited]
        if left:
            break
    else:
        left = [u for u in graph if u not in visited]
    least = min(graph.degree(u) for u in left)
    return [u for u in left if graph.degree(u) == least]


def exact_distribution(graph, visited=(), probability=1.0):
    if len(visited) == len(graph):
        return {visited: probability}
    possible = choices(graph, visited)
    parts = [exact_distribution(graph, (*visited, u), probability / len(possible)) for u in possible]
    return {order: p for part in parts for order, p in part.items()}


def draws(graph, count):
    adjacency, size = adjacency_of([graph], len(graph))
    seeds = ordering_seeds(torch.tensor([5]), torch.zeros(count, dtype=torch.int64), torch.arange(count))
    return dfs_order(adjacency.expand(count, -1, -1), size.expand(count), seeds)


@pytest.mark.parametrize("random", [True, False])
def test_orders_follow_the_rules(random):
    graphs = [nx.gnp_random_graph(1 + k % PADDED, (k % 7) / 7, seed=k) for k in range(300)]
    adjacency, size = adjacency_of(graphs)
    seeds = torch.randint(0, 2**40, (300,), generator=torch.Generator().manual_seed(0)) if random else None
    for graph, order in zip(graphs, dfs_order(adjacency, size, seeds).tolist(), strict=True):
        n = len(graph)
        assert order[n:] == list(range(n, PADDED))
        for step in range(n):
            possible = choices(graph, order[:step])
            assert order[step] in possible
            assert random or order[step] == min(possible)


@pytest.mark.parametrize(
    "graph",
    [
        nx.complete_graph(4),
        nx.star_graph(4),
        nx.Graph([(0, 1), (1, 2), (2, 0), (2, 3), (3, 4), (4, 2)]),  # two triangles: the search returns to node 2
        nx.Graph([(0, 1), (1, 2), (2, 3), (3, 0), (0, 2), (1, 3), (3, 4)]),
        nx.disjoint_union(nx.path_graph(3), nx.path_graph(2)),
    ],
    ids=["complete", "star", "bowtie", "wheel", "disconnected"],
)
def test_orders_have_the_exact_distribution(graph):
    expected = exact_distribution(graph)
    count = 200 * len(expected)
    seen = Counter(map(tuple, draws(graph, count).tolist()))
    assert set(seen) <= set(expected)
    distance = sum((seen[order] - count * p) ** 2 / (count * p) for order, p in expected.items())
    freedom = len(expected) - 1
    assert distance < freedom + 4 * (2 * freedom) ** 0.5


def test_encodings_do_not_depend_on_node_numbers():
    """A renumbered graph has the same set of encodings, though every single one differs from node order."""
    graph = nx.Graph([(0, 1), (1, 2), (2, 3), (3, 4), (4, 1), (4, 5)])
    renumbered = nx.relabel_nodes(graph, {0: 3, 1: 5, 2: 0, 3: 1, 4: 2, 5: 4})
    sets, in_node_order = [], []
    for one in (graph, renumbered):
        adjacency, _ = adjacency_of([one], 6)
        encoded = encode_adjacency(adjacency.expand(300, -1, -1), draws(one, 300))
        sets.append({tuple(row) for row in encoded.int().tolist()})
        in_node_order.append(encode_adjacency(adjacency))
    assert sets[0] == sets[1]
    assert not torch.equal(*in_node_order)


def test_encoding_is_the_permuted_matrix():
    graph = nx.path_graph(4)
    adjacency, _ = adjacency_of([graph], 5)
    order = torch.tensor([[2, 0, 3, 1, 4]])
    matrix = encode_adjacency(adjacency, order, dtype=torch.float64).reshape(5, 5)
    expected = torch.zeros(5, 5, dtype=torch.float64)
    expected[:4, :4] = torch.from_numpy(nx.to_numpy_array(graph, [2, 0, 3, 1]))
    assert torch.equal(matrix, expected)


def test_orders_do_not_depend_on_other_substructures():
    graphs = [nx.gnp_random_graph(9, 0.4, seed=k) for k in range(20)]
    adjacency, size = adjacency_of(graphs)
    seeds = ordering_seeds(torch.tensor([1, 2]), torch.tensor([0, 1]).repeat_interleave(10), torch.arange(20) % 10)
    together = dfs_order(adjacency, size, seeds)
    alone = torch.cat([dfs_order(adjacency[k : k + 1], size[k : k + 1], seeds[k : k + 1]) for k in range(20)])
    assert torch.equal(together, alone)
    assert len(seeds.unique()) == 20


def test_members_and_adjacency_equal_induced_subgraphs():
    """Any edge list: one direction, repeated, self-loops; two graphs, one without edges in its substructures."""
    edges = torch.tensor([[0, 1, 2, 2, 3, 3, 5, 6], [1, 2, 0, 0, 3, 2, 6, 7]])
    batch, ptr = torch.tensor([0] * 5 + [1] * 4), torch.tensor([0, 5, 9])
    sets = [(0, 1, 2, 3), (4,), (1, 3), (5, 6, 7), (5, 8)]
    member_node = torch.tensor([node for nodes in sets for node in nodes])
    sizes = torch.tensor([len(nodes) for nodes in sets])
    chosen = torch.tensor([4, 0, 1, 3])
    members = pad_members(member_node, sizes, chosen, 4)
    assert members.tolist() == [[5, 8, -1, -1], [0, 1, 2, 3], [4, -1, -1, -1], [5, 6, 7, -1]]
    adjacency = induced_adjacency(members, edges, batch, ptr, max_nodes=5)
    graph = nx.Graph([edge for edge in edges.t().tolist() if edge[0] != edge[1]])
    graph.add_nodes_from(range(9))
    induced = [graph.subgraph(sets[index]) for index in chosen.tolist()]
    expected, _ = adjacency_of([nx.convert_node_labels_to_integers(part, ordering="sorted") for part in induced], 4)
    assert torch.equal(adjacency, expected)


def test_no_substructures_at_all():
    members = pad_members(torch.empty(0).long(), torch.empty(0).long(), torch.empty(0).long(), 4)
    adjacency = induced_adjacency(members, torch.tensor([[0], [1]]), torch.tensor([0, 0]), torch.tensor([0, 2]), 2)
    order = dfs_order(adjacency, torch.empty(0).long(), torch.empty(0).long())
    assert encode_adjacency(adjacency, order).shape == (0, 16)


def test_too_large_substructure_is_refused():
    with pytest.raises(BadInput, match="has 5 nodes, but the encoder supports at most 4"):
        pad_members(torch.arange(5), torch.tensor([5]), torch.tensor([0]), 4)
