"""Relative terms of one row, against torch in float64; `test_mixture` tests them in layers."""

import numpy as np
import pytest
import torch
import torch.nn.functional as F

pytest.importorskip("numba")

from graphbench_kernels.models.distances_numba import (
    MAPS,
    PLACE,
    TABLE,
    distance_gradients,
    distance_terms,
    take_places,
)
from graphbench_kernels.running import cpu_kernel

GRAPHS, NODES, SLOTS, COLUMNS, HEADS = 2, 11, 9, 16, 3
GRAPH, ROW, HEAD = 1, 4, 2


@cpu_kernel
def call(places, index, partner, weight, maps, slopes, scores, factors, summands, of_maps, of_shares, sizes):
    graph, nodes, slots, columns, row, head = sizes
    own, shares = np.zeros(2 * PLACE * columns, places.dtype), np.zeros(columns, places.dtype)
    table, hidden = np.empty(TABLE * columns, places.dtype), np.zeros(columns, places.dtype)
    take_places(places, graph, nodes, slots, columns, index, partner, weight, own, shares)
    at = (graph * nodes + row) * PLACE
    distance_terms(places, at, columns, own, shares, hidden, maps, head, table, factors, summands)
    distance_gradients(slopes, scores, 0, columns, shares, maps, head, table, of_maps, of_shares)


def draw(*shape, seed):
    return np.random.default_rng(seed).standard_normal(shape).astype(np.float32)


def terms(place, chosen, partner, weight, maps):
    found = []
    for other in (chosen, partner):
        square, product = (place[:3] - other[:, :3]).square().sum(-1), other[:, 3:] @ place[3:]
        features = torch.stack([square, product, torch.ones_like(square)], dim=-1)
        found.append((F.softplus(features @ maps[:3]), features @ maps[3:]))
    return tuple(weight * one + (1 - weight) * two for one, two in zip(*found, strict=True))


@pytest.mark.parametrize("size", [1e-3, 1.0, 30.0])
def test_terms_and_gradients_of_a_row(size):
    places, maps = draw(GRAPHS, NODES, PLACE, seed=0), size * draw(HEADS, MAPS, seed=1)
    rng = np.random.default_rng(2)
    index, partner = (rng.integers(0, NODES, (GRAPHS, SLOTS)) for _ in range(2))
    weight = rng.random((GRAPHS, SLOTS)).astype(np.float32)
    slopes, scores = (np.pad(draw(SLOTS, seed=seed), (0, COLUMNS - SLOTS)) for seed in (3, 4))
    factors, summands, of_shares = (np.zeros(COLUMNS, np.float32) for _ in range(3))
    of_maps = np.zeros(MAPS, np.float32)
    flat = [x.ravel() for x in (places, index, partner, weight, maps)]
    sizes = (GRAPH, NODES, SLOTS, COLUMNS, ROW, HEAD)
    call(*flat, slopes, scores, factors, summands, of_maps, of_shares, sizes)

    exact = torch.tensor(places[GRAPH]).double()
    own_maps = torch.tensor(maps[HEAD]).double().requires_grad_()
    share = torch.tensor(weight[GRAPH]).double().requires_grad_()
    mul, add = terms(exact[ROW], exact[index[GRAPH]], exact[partner[GRAPH]], share, own_maps)
    slope, score = (torch.tensor(x[:SLOTS]).double() for x in (slopes, scores))
    gradients = torch.autograd.grad((slope * (score * mul + add)).sum(), (own_maps, share))
    for ours, theirs in zip(
        (factors[:SLOTS], summands[:SLOTS], of_maps, of_shares[:SLOTS]), (mul, add, *gradients), strict=True
    ):
        expected = theirs.detach().numpy()
        np.testing.assert_allclose(ours, expected, rtol=1e-5, atol=2e-6 * max(1.0, np.abs(expected).max()))
