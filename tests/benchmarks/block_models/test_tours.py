"""Shortest tours against dynamic programming, all permutations, and known tours."""

from __future__ import annotations

import itertools

import numpy as np
import pytest

from graphbench.benchmarks.block_models.tours import shortest_tour
from graphbench.errors import BadInput


def length(points, order):
    return float(np.linalg.norm(points[order] - points[np.roll(order, -1)], axis=1).sum())


def held_karp(points):
    """Return the length of a shortest tour, by dynamic programming over sets of points."""
    n = len(points)
    distances = np.linalg.norm(points[:, None] - points[None], axis=2)
    best = np.full((1 << n, n), np.inf)
    best[1, 0] = 0.0
    for visited in range(1, 1 << n, 2):
        for nearest in range(n):
            if not visited >> nearest & 1:
                arrived = best[visited] + distances[:, nearest]
                best[visited | 1 << nearest, nearest] = min(best[visited | 1 << nearest, nearest], arrived.min())
    return float((best[-1] + distances[:, 0]).min())


def drawn(kind, n, seed):
    random = np.random.default_rng([n, seed])
    if kind == "uniform":
        return random.random((n, 2))
    if kind == "two clusters":  # edges between near neighbours contain no tour
        return random.random((n, 2)) * 0.1 + np.repeat([[0.0, 0.0], [5.0, 5.0]], [n // 2, n - n // 2], axis=0)
    return random.integers(0, 4, (n, 2)).astype(float)  # a grid, with points that coincide


@pytest.mark.parametrize("kind", ["uniform", "two clusters", "grid"])
@pytest.mark.parametrize("n", [3, 4, 5, 7, 9, 11])
def test_tours_are_as_short_as_dynamic_programming_finds(n, kind):
    points = drawn(kind, n, seed=0)
    order = shortest_tour(points)
    assert sorted(order.tolist()) == list(range(n))
    assert order[0] == 0
    assert length(points, order) == pytest.approx(held_karp(points), abs=1e-6)


def test_tours_are_as_short_as_every_order():
    points = drawn("uniform", 8, seed=3)
    every = (length(points, np.array([0, *rest])) for rest in itertools.permutations(range(1, 8)))
    assert length(points, shortest_tour(points)) == pytest.approx(min(every), abs=1e-9)


def test_two_far_clusters_are_joined_though_near_neighbours_do_not_join_them():
    points = drawn("two clusters", 24, seed=1)
    crossing = np.diff(np.append(order := shortest_tour(points), order[0]) >= 12).sum()
    assert crossing == 2


def test_points_of_a_circle_in_their_order():
    angles = np.random.default_rng(0).permutation(30) * 2 * np.pi / 30
    points = np.stack([np.cos(angles), np.sin(angles)], 1)
    order = shortest_tour(points)
    assert length(points, order) == pytest.approx(60 * np.sin(np.pi / 30))


@pytest.mark.parametrize(("rows", "columns"), [(4, 6), (5, 5)])
def test_grids_have_the_length_of_their_parity(rows, columns):
    """Steps of 1, and one diagonal if the number of points is odd."""
    points = np.array([[i, j] for i in range(rows) for j in range(columns)], dtype=float)
    odd = rows * columns % 2
    assert length(points, shortest_tour(points)) == pytest.approx(rows * columns - odd + odd * 2**0.5)


def test_tours_do_not_depend_on_how_points_are_numbered():
    points = drawn("uniform", 40, seed=5)
    shuffled = np.random.default_rng(1).permutation(40)
    first, second = length(points, shortest_tour(points)), length(points[shuffled], shortest_tour(points[shuffled]))
    assert first == pytest.approx(second, abs=1e-6)


@pytest.mark.slow
def test_no_exchange_of_two_or_three_edges_shortens_a_tour_of_a_hundred_points():
    points = drawn("uniform", 100, seed=7)
    tour = points[shortest_tour(points)]
    ends = np.linalg.norm(tour[:, None] - tour[None], axis=2)
    a, c, e = np.array(list(itertools.combinations(range(100), 3))).T  # three edges of the tour: a-b, c-d and e-f
    b, d, f = a + 1, c + 1, (e + 1) % 100
    removed = ends[a, b] + ends[c, d] + ends[e, f]
    two = [(a, c, b, d, e, f), (a, b, c, e, d, f), (a, e, b, f, c, d)]
    three = [(a, c, b, e, d, f), (a, d, e, b, c, f), (a, d, e, c, b, f), (a, e, d, b, c, f)]
    for p, q, r, s, t, u in two + three:
        assert (ends[p, q] + ends[r, s] + ends[t, u] > removed - 1e-9).all()


@pytest.mark.parametrize("points", [np.zeros((2, 2)), np.array([[0.0, 0.0], [1.0, np.nan], [1.0, 1.0]]), np.zeros(6)])
def test_what_has_no_tour_is_refused(points):
    with pytest.raises(BadInput, match="three or more finite points"):
        shortest_tour(points)
