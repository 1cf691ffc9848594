"""Limits, random draws and chunking of the substructure search."""

from __future__ import annotations

import logging
from collections import Counter
from itertools import combinations

import networkx as nx
import pytest
import torch
from quick import slow

from graphbench.contracts import GraphTable
from graphbench.encodings.substructures import Substructures, encoding, mix, structure_hash
from graphbench.encodings.substructures.hashing import below

WALKS_ONLY = {"cycles": (), "paths": (), "stars": (), "hops": ()}
NEIGHBOURS = Substructures(**{**WALKS_ONLY, "hops": (2,)}, walks=(10,), max_neighbourhood=9)
CAPPED = Substructures(walks=(10,), max_per_pattern=20, max_partial=60, max_neighbourhood=8)


def table(graphs):
    rows = [(len(g), torch.tensor(list(g.edges())).reshape(-1, 2).t()) for g in graphs]
    return GraphTable.from_graphs([{"num_nodes": n, "edge_index": e.long()} for n, e in rows])


def sets_of(options, graph):
    """Return the node tuples of all matches in one graph."""
    encoded = options.compute(table([graph]))
    sizes = encoded.columns["substructure_size"].tolist()
    return [tuple(part.tolist()) for part in encoded.columns["member_node"].split(sizes)]


def chi_square(counts, cells, expected):
    return sum((counts[cell] - expected) ** 2 / expected for cell in cells)


@pytest.mark.parametrize("chunk", [1, slow(7)])
@pytest.mark.parametrize("options", [Substructures(), CAPPED, NEIGHBOURS], ids=["all", "capped", "neighbours"])
def test_results_do_not_depend_on_chunks(options, chunk, monkeypatch):
    graphs = [nx.gnp_random_graph(n, p, seed=n) for n, p in [(3, 0.5), (12, 0.3), (1, 0), (70, 0.1), (20, 0.2)] * 3]
    whole = options.compute(table(graphs))
    monkeypatch.setattr(encoding, "_BLOCK_ROWS", 50)
    parts = [options.compute(table(graphs[i : i + chunk])) for i in range(0, len(graphs), chunk)]
    for name, column in whole.columns.items():
        joined = torch.cat([part.columns[name] for part in parts])
        assert torch.equal(joined, column)
        assert joined.dtype == column.dtype
    for axis, ptr in whole.ptr.items():
        assert torch.equal(torch.cat([part.ptr[axis].diff() for part in parts]), ptr.diff())


def test_repeated_and_directed_edges_draw_the_same_walks():
    graph = nx.gnp_random_graph(20, 0.2, seed=0)
    edges = torch.tensor(list(graph.edges())).t()
    loops = torch.arange(20).repeat(2, 1)
    shuffled = edges[:, torch.randperm(edges.shape[1])]
    variants = (edges, edges.flip(0), shuffled, torch.cat((edges, edges.flip(0), edges, loops), 1))
    tables = [GraphTable.from_graphs([{"num_nodes": 20, "edge_index": variant}]) for variant in variants]
    drawn = [NEIGHBOURS.compute(one).columns["member_node"] for one in tables]
    assert all(torch.equal(drawn[0], other) for other in drawn[1:])


def test_uncapped_matches_do_not_depend_on_the_seed():
    graph = nx.gnp_random_graph(15, 0.3, seed=2)
    assert sorted(sets_of(Substructures(), graph)) == sorted(sets_of(Substructures(seed=9), graph))


def test_dense_graph_stays_within_its_limits_and_says_so(caplog):
    graph = nx.gnp_random_graph(120, 0.4, seed=1)
    options = Substructures(hops=(), max_per_pattern=50, max_partial=300)
    with caplog.at_level(logging.WARNING):
        encoded = options.compute(table([graph, nx.path_graph(9)]))
    assert len(caplog.records) == 1
    assert "max_per_pattern=50, max_partial=300" in caplog.text
    assert "path-4 in 1" in caplog.text
    first = int(encoded.ptr["substructure"][1])
    counts = torch.bincount(encoded.columns["substructure_type"][:first])
    assert counts.max() == 50
    sizes = encoded.columns["substructure_size"].tolist()
    members = encoded.columns["member_node"].split(sizes)[:first]
    keys = [(int(t), *m.tolist()) for t, m in zip(encoded.columns["substructure_type"], members, strict=False)]
    assert len(set(keys)) == len(keys)
    for pattern_index, *nodes in keys[::17]:
        pattern = options.vocabulary[pattern_index]
        shape = {"CYCLE": nx.cycle_graph, "PATH": nx.path_graph, "STAR": nx.star_graph}[pattern.kind.name](pattern.size)
        assert nx.is_isomorphic(graph.subgraph(nodes), shape)


def test_no_warning_when_nothing_is_cut(caplog):
    Substructures(max_neighbourhood=17).compute(table([nx.cycle_graph(20)]))
    assert not caplog.records


@pytest.mark.slow
def test_last_limit_keeps_a_uniform_subset():
    """C_12 has 12 paths of 4 nodes; each of the 66 pairs of paths is equally likely to be kept."""
    options = [Substructures(cycles=(), paths=(4,), stars=(), hops=(), max_per_pattern=2, seed=s) for s in range(330)]
    kept = Counter(tuple(sorted(sets_of(option, nx.cycle_graph(12)))) for option in options)
    paths = sorted(tuple(sorted((i + j) % 12 for j in range(4))) for i in range(12))
    assert set(kept) <= set(combinations(paths, 2))
    assert chi_square(kept, combinations(paths, 2), 5) < 65 + 4 * (2 * 65) ** 0.5


@pytest.mark.parametrize(
    "options",
    [
        {"paths": (5,), "cycles": (), "stars": (), "max_partial": 40},
        slow({"paths": (), "cycles": (6,), "stars": (), "max_partial": 60}),
        slow({"paths": (), "cycles": (), "stars": (3,), "max_partial": 40}),
    ],
    ids=["paths", "cycles", "stars"],
)
def test_limits_on_unfinished_matches_favour_no_node_number(options):
    """All nodes of a circulant graph are equivalent, so mean node numbers must scatter around the middle."""
    graph = nx.circulant_graph(40, [1, 3, 5, 9])
    means = []
    for seed in range(150):
        nodes = [node for match in sets_of(Substructures(**options, hops=(), seed=seed), graph) for node in match]
        means += [sum(nodes) / len(nodes)] if nodes else []
    values = torch.tensor(means)
    assert len(values) > 100
    assert (values.mean() - 19.5).abs() < 4 * values.std() / len(values) ** 0.5


def test_walks_visit_connected_sets_that_hold_their_start():
    graph = nx.connected_watts_strogatz_graph(50, 4, 0.3, seed=0)
    options = Substructures(**WALKS_ONLY, walks=(10,), distinct_neighbourhoods=False)
    walks = sets_of(options, graph)
    assert len(walks) == 50
    assert all(2 <= len(walk) <= 11 and nx.is_connected(graph.subgraph(walk)) for walk in walks)
    assert all(start in walk for start, walk in enumerate(walks))
    assert walks != sets_of(Substructures(**WALKS_ONLY, walks=(10,), distinct_neighbourhoods=False, seed=1), graph)


@pytest.mark.slow
def test_walk_steps_are_uniform_over_neighbours():
    """From the centre of a star one step reaches each of its 8 leaves equally often."""
    graph = nx.star_graph(8)
    options = [Substructures(**WALKS_ONLY, walks=(1,), seed=seed, distinct_neighbourhoods=False) for seed in range(400)]
    reached = Counter(sets_of(option, graph)[0][1] for option in options)
    assert chi_square(reached, range(1, 9), 50) < 7 + 4 * 14**0.5


def test_large_neighbourhoods_are_cut_nearest_first(caplog):
    graph = nx.star_graph(5)
    graph.add_edges_from((leaf, 10 * leaf + k) for leaf in range(1, 6) for k in range(4))
    graph = nx.convert_node_labels_to_integers(graph)
    options = Substructures(**{**WALKS_ONLY, "hops": (2,)}, max_neighbourhood=9, distinct_neighbourhoods=False)
    balls = sets_of(options, graph)
    assert "hop-2 over 9 nodes in 1" in caplog.text
    assert max(map(len, balls)) == 9
    assert all(nx.is_connected(graph.subgraph(ball)) for ball in balls)
    # Around the centre, the whole first ring stays and three nodes of the second; a smaller ball is whole.
    assert sum(set(range(6)) <= set(ball) for ball in balls) >= 1
    small = [tuple(sorted(nx.ego_graph(graph, v, 2))) for v in graph]
    assert all(ball in balls for ball in small if len(ball) <= 9)


def test_hash_is_uniform_and_follows_its_salt():
    draws = below(mix(torch.arange(70_000), 3), torch.tensor(7))
    counts = torch.bincount(draws, minlength=7)
    assert ((counts - 10_000) ** 2 / 10_000).sum() < 6 + 4 * 12**0.5
    assert not torch.equal(mix(torch.arange(5), 0), mix(torch.arange(5), 1))
    # The published outputs of SplitMix64 for seed 1234567, in order.
    published = [6457827717110365317, 3203168211198807973, 9817491932198370423]
    assert [int(mix(torch.tensor(1234567), salt)) % 2**64 for salt in range(3)] == published


def test_structure_hash_ignores_the_batch_and_the_order_of_edges():
    left, right = torch.tensor([[0, 1, 2], [1, 2, 0]]), torch.tensor([[0, 1], [1, 0]])
    together = structure_hash(torch.cat((right, left + 2), 1), torch.tensor([0, 0, 1, 1, 1]), torch.tensor([0, 2, 5]))
    alone = structure_hash(left.flip(1), torch.zeros(3, dtype=torch.int64), torch.tensor([0, 3]))
    assert together[1] == alone[0]
    assert together[0] != together[1]
