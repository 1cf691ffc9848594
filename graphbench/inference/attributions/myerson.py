"""Myerson values: the average contribution of a node to the connected parts of its graph, over all orders of nodes.

Myerson, "Graphs and cooperation in games", Mathematics of Operations Research 2(3), 1977. A coalition C of nodes is
worth v(C) = F(h with the vectors of all other nodes at the reference) - F(h'); an edge keeps its vector if both of its
ends are in C. Nodes act together only if edges connect them, so a coalition S is worth the sum over its connected
parts, v^g(S) = sum_C v(C), and the Myerson value is the Shapley value of v^g.

Nodes arrive in a random order. The connected set C with neighbours B is a component of the arrived nodes after its last
member and before the first of B arrives. So a member gains its worth, and a neighbour loses it, with the probabilities

    (|C| - 1)! |B|! / (|C| + |B|)!     and     |C|! (|B| - 1)! / (|C| + |B|)!,

and the sum over all connected sets is the value itself (Skibski, Michalak, Rahwan & Wooldridge, "Algorithms for the
Shapley and Myerson values in graph-restricted games", AAMAS 2014). A graph with too many connected sets is sampled:
random orders, whose contributions have a mean and a standard error. Either way, the values of a connected graph sum to
F(h) - F(h').
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from graphbench.errors import BadInput
from graphbench.inference.attributions.question import Question

#: Function for the worth of coalitions; a coalition is a number whose bit i says whether node i is in it.
Worth = Callable[[Sequence[int]], Sequence[float]]
#: Nodes of the largest supported graph: every order needs about as many predictions as there are nodes.
_LARGEST = 256


@dataclass(frozen=True)
class MyersonValues:
    """Values of all nodes.

    Args:
        nodes: `[n]`, float64.
        errors: standard errors `[n]`; 0 if the values are exact.
        orders: random orders that were drawn; 0 if the values are exact.
    """

    nodes: Tensor
    errors: Tensor
    orders: int


def myerson(question: Question, samples: int) -> MyersonValues:
    """Compute Myerson values of the nodes of one graph.

    Use `samples` random orders, at least 2, if there are more connected sets than coalitions in these orders.
    """
    if question.num_nodes > _LARGEST:
        raise BadInput(
            f"--method myerson: the graph has {question.num_nodes} nodes, and at most {_LARGEST} are supported. "
            "Use --method masking or integrated_gradients."
        )
    size, ends = question.num_nodes, question.graph.edge_index.cpu()

    def worth(coalitions: Sequence[int]) -> list[float]:
        bits = [[coalition >> node & 1 for node in range(size)] for coalition in coalitions]
        nodes = torch.tensor(bits, dtype=torch.bool).reshape(len(coalitions), size)
        values = question.masked(nodes, nodes[:, ends[0]] & nodes[:, ends[1]])
        return [float(value) - question.at_reference for value in values]

    return values_of(worth, neighbours_of(ends, size), samples)


def neighbours_of(edge_index: Tensor, num_nodes: int) -> list[int]:
    """Return the neighbours of each node, as a coalition, whatever the direction of the edges.

    Examples:
        >>> [bin(found) for found in neighbours_of(torch.tensor([[0, 1], [1, 2]]), 3)]
        ['0b10', '0b101', '0b10']
    """
    neighbours = [0] * num_nodes
    for one, other in edge_index.t().tolist():
        if one != other:
            neighbours[one] |= 1 << other
            neighbours[other] |= 1 << one
    return neighbours


def values_of(worth: Worth, neighbours: Sequence[int], samples: int) -> MyersonValues:
    """Compute Myerson values of any game, exactly if that needs no more coalitions than `samples` orders.

    `worth` is defined on connected coalitions; `neighbours` are those of each of n players, as a coalition.

    Examples:
        A path of three players, whose ends are worth 1 together: the one between them makes it possible.

        >>> game = lambda coalitions: [float(c & 0b101 == 0b101) for c in coalitions]
        >>> values_of(game, [0b010, 0b101, 0b010], samples=100).nodes
        tensor([0.3333, 0.3333, 0.3333], dtype=torch.float64)
    """
    sets = connected_sets(neighbours, limit=samples * len(neighbours))
    if sets is None:
        return _sampled(worth, neighbours, samples)
    values = torch.zeros(len(neighbours), dtype=torch.float64)
    for coalition, value in zip(sets, worth(sets), strict=True):
        around = _around(coalition, neighbours)
        size, border = coalition.bit_count(), around.bit_count()
        # (s - 1)! b! / (s + b)! is 1 / (s binom(s + b, s)): Python's integers do not overflow.
        orders = math.comb(size + border, size)
        values[_members(coalition)] += value / (size * orders)
        if border:
            values[_members(around)] -= value / (border * orders)
    return MyersonValues(values, torch.zeros_like(values), 0)


def connected_sets(neighbours: Sequence[int], limit: int) -> list[int] | None:
    """List all connected coalitions of at least one player, each once; None if there are more than `limit`.

    Examples:
        >>> [bin(found) for found in connected_sets([0b010, 0b101, 0b010], limit=6)]
        ['0b1', '0b11', '0b111', '0b10', '0b110', '0b100']
        >>> connected_sets([0b010, 0b101, 0b010], limit=5)
    """
    parts: list[int] = []
    for root, around in enumerate(neighbours):
        # Sets with a lower player were listed from that player, so each set is listed once.
        lower = (1 << root + 1) - 1
        waiting = [(1 << root, around & ~lower, lower)]
        while waiting:
            coalition, border, refused = waiting.pop()
            parts.append(coalition)
            if len(parts) > limit:
                return None
            while border:
                # Later branches exclude a neighbour that was used, so each set grows in only one way.
                player = border & -border
                border ^= player
                refused |= player
                more = neighbours[player.bit_length() - 1] & ~refused & ~coalition
                waiting.append((coalition | player, border | more, refused))
    return parts


def _sampled(worth: Worth, neighbours: Sequence[int], samples: int) -> MyersonValues:
    """Compute means over random orders, the same ones every time."""
    # A separate generator, so that explaining a graph does not change later random numbers of a program.
    generator = torch.Generator().manual_seed(0)
    orders = [torch.randperm(len(neighbours), generator=generator).tolist() for _ in range(samples)]
    steps = [_arrivals(order, neighbours) for order in orders]
    # Evaluate each coalition once: orders share most of them.
    needed = list(dict.fromkeys(part for order in steps for new, old in order for part in (new, *old)))
    worths = dict(zip(needed, worth(needed), strict=True))
    gained = torch.zeros(samples, len(neighbours), dtype=torch.float64)
    for number, (order, arrivals) in enumerate(zip(orders, steps, strict=True)):
        for player, (new, old) in zip(order, arrivals, strict=True):
            gained[number, player] = worths[new] - math.fsum(worths[part] for part in old)
    return MyersonValues(gained.mean(0), gained.std(0) / math.sqrt(samples), samples)


def _arrivals(order: Sequence[int], neighbours: Sequence[int]) -> list[tuple[int, list[int]]]:
    """Return for each player the connected part that it then belongs to, and the parts that it connects."""
    parts: list[int] = []
    arrivals = []
    for player in order:
        joined = [part for part in parts if part & neighbours[player]]
        new = 1 << player
        for part in joined:
            new |= part
        parts = [part for part in parts if not part & neighbours[player]] + [new]
        arrivals.append((new, joined))
    return arrivals


def _around(coalition: int, neighbours: Sequence[int]) -> int:
    """Return the players adjacent to a coalition."""
    around = 0
    for player in _members(coalition):
        around |= neighbours[player]
    return around & ~coalition


def _members(coalition: int) -> list[int]:
    return [player for player in range(coalition.bit_length()) if coalition >> player & 1]
