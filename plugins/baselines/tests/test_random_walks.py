"""Walks against the Markov chain that they are drawn from, and their encodings against loops."""

from __future__ import annotations

import pytest
import torch

from graphbench_baselines.random_walks import sample_walks, walk_seeds, window_encodings

#: A square with a diagonal and a tail, and the isolated node 5; both directions of every edge.
PAIRS = [(0, 1), (1, 2), (2, 3), (3, 0), (0, 2), (3, 4)]
SQUARE = torch.tensor([*PAIRS, *(pair[::-1] for pair in PAIRS)]).t()
NODES = 6
#: A loop at 1, two edges 0 -> 1, one way back, an edge to 3, which has no outgoing edge.
ODD = torch.tensor([[0, 0, 1, 1, 1, 2, 2], [1, 1, 1, 0, 2, 1, 3]])


def copies(edge_index, num_nodes, count):
    """Edges, graphs and first nodes of a batch of equal graphs."""
    start = num_nodes * torch.arange(count)
    edges = (edge_index[:, None] + start[:, None]).flatten(1)
    return edges, torch.arange(count).repeat_interleave(num_nodes), torch.arange(count + 1) * num_nodes


def draw(edge_index, num_nodes, count=1, length=9, rate=1.0, seed=0):
    structure = copies(edge_index, num_nodes, count)
    seeds = walk_seeds(*structure, torch.Generator().manual_seed(seed))
    return structure, sample_walks(*structure, seeds, length, rate)


def next_edges(edges, came, node):
    """Return the edges that a walk may take, by definition: all outgoing ones, those back only without others."""
    leaving = [number for number, (source, _) in enumerate(edges) if source == node]
    if came is None:
        return leaving
    ahead = [number for number in leaving if edges[number][1] != edges[came][0]]
    return ahead or leaving


def frequencies(edge_index, num_nodes, start, steps):
    """Return the probability of each edge at each step `[steps, E]`, from the chain over edges; 0 after its end."""
    edges = edge_index.t().tolist()
    state, result = {(None, start): 1.0}, []
    for _ in range(steps):
        moved, taken = {}, torch.zeros(len(edges), dtype=torch.float64)
        for (came, node), share in state.items():
            choices = next_edges(edges, came, node)
            for number in choices:
                taken[number] += share / len(choices)
                key = (number, edges[number][1])
                moved[key] = moved.get(key, 0.0) + share / len(choices)
        state = moved
        result.append(taken)
    return torch.stack(result)


@pytest.mark.parametrize(("edge_index", "num_nodes"), [(SQUARE, NODES), (ODD, 4)], ids=["square", "odd"])
def test_walks_are_those_of_the_chain(edge_index, num_nodes):
    count, steps, num_edges = 4_000, 5, edge_index.shape[1]
    walks = draw(edge_index, num_nodes, count, steps + 1)[1]
    node, edge = (part.view(count, num_nodes, steps + 1) for part in (walks.node, walks.edge))
    graph = torch.arange(count)[:, None]
    for start in range(num_nodes):
        expected = frequencies(edge_index, num_nodes, start, steps)
        for step in range(steps):
            taken = edge[:, start, step]
            going = taken < num_edges * count
            counted = (taken[going] % num_edges).bincount(minlength=num_edges).double() / count
            spread = (expected[step] * (1 - expected[step]) / count).sqrt()
            assert ((counted - expected[step]).abs() <= 5 * spread + 1e-12).all()
        assert torch.equal(node[:, start, 0], graph[:, 0] * num_nodes + start)


@pytest.mark.parametrize(("edge_index", "num_nodes"), [(SQUARE, NODES), (ODD, 4)], ids=["square", "odd"])
def test_nodes_follow_their_edges_until_the_walk_ends(edge_index, num_nodes):
    (edges, _, _), walks = draw(edge_index, num_nodes, count=50)
    end, none = num_nodes * 50, edges.shape[1]
    for nodes, taken in zip(walks.node.tolist(), walks.edge.tolist(), strict=True):
        assert taken[-1] == none
        for position, number in enumerate(taken[:-1]):
            if number == none:
                assert nodes[position + 1] == end
                assert nodes[position] == end or nodes[position] not in edges[0]
            else:
                assert edges[:, number].tolist() == nodes[position : position + 2]


def test_a_share_of_the_nodes_starts_walks():
    (_, batch, _), walks = draw(SQUARE, NODES, count=2_000, rate=0.3)
    starts = walks.node[:, 0]
    assert starts.unique().shape == starts.shape
    assert abs(len(starts) / len(batch) - 0.3) < 5 * (0.3 * 0.7 / len(batch)) ** 0.5


def test_a_rate_takes_away_walks_and_changes_none():
    every, some = draw(SQUARE, NODES, count=20)[1], draw(SQUARE, NODES, count=20, rate=0.5)[1]
    assert torch.equal(some.node, every.node[some.node[:, 0]])


def test_the_order_of_edges_changes_no_walk():
    order = torch.randperm(SQUARE.shape[1], generator=torch.Generator().manual_seed(3))
    before, after = draw(SQUARE, NODES)[1], draw(SQUARE[:, order], NODES)[1]
    assert torch.equal(before.node, after.node)


def test_evaluation_repeats_and_training_does_not():
    structure = copies(SQUARE, NODES, 2)
    first, second = walk_seeds(*structure, None), walk_seeds(*structure, None)
    assert torch.equal(first, second)
    generator = torch.Generator().manual_seed(0)
    assert not torch.equal(walk_seeds(*structure, generator), walk_seeds(*structure, generator))


@pytest.mark.parametrize("window", [1, 3, 20])
@pytest.mark.parametrize(("edge_index", "num_nodes"), [(SQUARE, NODES), (ODD, 4)], ids=["square", "odd"])
def test_encodings_are_those_of_loops(edge_index, num_nodes, window):
    (edges, batch, _), walks = draw(edge_index, num_nodes, count=7)
    pairs, end = set(map(tuple, edges.t().tolist())), len(batch)
    same = torch.zeros(*walks.node.shape, window, dtype=torch.bool)
    joined = torch.zeros(*walks.node.shape, window - 1, dtype=torch.bool)
    for row, nodes in enumerate(walks.node.tolist()):
        for i, node in enumerate(nodes):
            for back in range(1, min(window, i) + 1):
                if node != end:
                    same[row, i, window - back] = nodes[i - back] == node
                    if back > 1:
                        joined[row, i, window - back] = (nodes[i - back], node) in pairs
    found = window_encodings(walks, end, window)
    assert torch.equal(found, torch.cat([same, joined], dim=-1))


def test_graphs_without_edges_have_walks_of_one_node():
    structure = torch.zeros(2, 0, dtype=torch.int64), torch.tensor([0, 0, 1]), torch.tensor([0, 2, 3])
    walks = sample_walks(*structure, walk_seeds(*structure, None), length=3)
    assert walks.node.tolist() == [[0, 3, 3], [1, 3, 3], [2, 3, 3]]
    assert not walks.edge.any()
    assert not window_encodings(walks, 3, window=2).any()
