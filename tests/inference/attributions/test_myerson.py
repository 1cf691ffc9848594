"""Myerson values against Shapley's formula over all coalitions, and the sampled ones against the exact ones."""

import math
from itertools import combinations

import pytest
import torch
from attributed import additive, copies_of, facts_of, table_of, terms

from graphbench.errors import BadInput
from graphbench.inference.attributions import attribute
from graphbench.inference.attributions.myerson import connected_sets, neighbours_of, values_of


def parts_of(coalition, edges):
    """Return the connected parts of a set of nodes."""
    left, found = set(coalition), []
    while left:
        part = {left.pop()}
        while more := {j for i, j in edges if i in part and j in left}:
            part |= more
            left -= more
        found.append(frozenset(part))
    return found


def brute_force(game, size, edges):
    """Apply Shapley's formula over all 2^n coalitions to the game's sum over connected parts."""
    edges = [*edges, *((j, i) for i, j in edges)]
    worth = {
        frozenset(c): math.fsum(game(part) for part in parts_of(c, edges))
        for k in range(size + 1)
        for c in combinations(range(size), k)
    }
    found = []
    for player in range(size):
        gained = [
            math.factorial(len(c)) * math.factorial(size - len(c) - 1) * (worth[c | {player}] - value)
            for c, value in worth.items()
            if player not in c
        ]
        found.append(math.fsum(gained) / math.factorial(size))
    return torch.tensor(found, dtype=torch.float64), worth


def drawn_game(seed):
    """Return a game with a random worth for every set."""
    values = torch.rand(1 << 9, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)
    return lambda nodes: float(values[sum(1 << i for i in nodes)])


def asked(game):
    return lambda coalitions: [game([i for i in range(9) if c >> i & 1]) for c in coalitions]


GRAPHS = {
    "path": (6, [(0, 1), (1, 2), (2, 3), (3, 4), (4, 5)]),
    "ring": (5, [(0, 1), (1, 2), (2, 3), (3, 4), (4, 0)]),
    "star": (6, [(0, 1), (0, 2), (0, 3), (0, 4), (0, 5)]),
    "complete": (4, list(combinations(range(4), 2))),
    "two parts and a loop": (7, [(0, 1), (1, 2), (3, 4), (4, 5), (5, 3), (6, 6)]),
    "no edges": (3, []),
}


@pytest.mark.parametrize("name", GRAPHS)
def test_exact_values_are_those_of_all_coalitions(name):
    size, edges = GRAPHS[name]
    game = drawn_game(len(edges))
    neighbours = neighbours_of(torch.tensor(edges, dtype=torch.int64).reshape(-1, 2).t(), size)
    found = values_of(asked(game), neighbours, samples=1000)
    expected, worth = brute_force(game, size, edges)
    torch.testing.assert_close(found.nodes, expected)
    assert found.orders == 0
    assert not found.errors.any()
    assert float(found.nodes.sum()) == pytest.approx(worth[frozenset(range(size))])
    sets = connected_sets(neighbours, limit=1 << size)
    both = [*edges, *((j, i) for i, j in edges)]
    assert len(sets) == len(set(sets)) == sum(len(parts_of(c, both)) == 1 for c in worth)


def test_standard_errors_cover_the_exact_values():
    """On a complete graph of 9 nodes, 40 orders need fewer sets than the 511 connected ones."""
    size, edges = 9, list(combinations(range(9), 2))
    neighbours = neighbours_of(torch.tensor(edges).t(), size)
    scores = []
    for seed in range(12):
        game = drawn_game(seed)
        found = values_of(asked(game), neighbours, samples=40)
        assert found.orders == 40
        exact = values_of(asked(game), neighbours, samples=100)
        assert exact.orders == 0
        assert float(found.nodes.sum()) == pytest.approx(game(range(9)))
        scores.append((found.nodes - exact.nodes) / found.errors)
    scores = torch.cat(scores)
    assert 0.7 < float((scores**2).mean().sqrt()) < 1.4
    assert float((scores.abs() < 2).double().mean()) > 0.85


def test_a_linear_model_gives_each_node_its_term_and_half_of_its_lines():
    """A line counts only if both its ends are present, so each gets half; a loop counts for its node."""
    module = additive()
    copies = copies_of(module, row=1, seed=4)
    batch, weight = copies(1), module.task.head.mlp.layers[0].weight[1]
    found = attribute(module, copies, facts_of(module), target=1, method="myerson")
    nodes, edges = terms(module, copies, table_of(module, num_graphs=6, seed=9), weight)
    expected = nodes.index_add(0, batch.edge_index[0], edges / 2).index_add(0, batch.edge_index[1], edges / 2)
    torch.testing.assert_close(found.nodes, expected.double(), atol=1e-5, rtol=1e-4)
    assert found.edges is None
    assert found.orders == 0
    assert abs(found.gap) < 1e-4


def test_graphs_that_are_too_large_are_refused_with_another_method():
    module = additive()
    with pytest.raises(BadInput, match=r"--method myerson: the graph has 300 nodes, .* Use --method masking"):
        attribute(module, copies_of(module, sizes=[300]), facts_of(module), target=0, method="myerson")
