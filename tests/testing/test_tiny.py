"""Tiny data fit every specification, and renumbering nodes or relisting edges keeps the graphs."""

from __future__ import annotations

import networkx as nx
import pytest
import torch

from graphbench.contracts import Column
from graphbench.encodings import RWSE, ShortestPaths
from graphbench.nn import HeadConfig
from graphbench.testing import FEATURE_KINDS, check_batch, encode, permute_edges, permute_nodes, tiny_spec, tiny_table
from graphbench.training.tasks import build_task

TASKS = (
    "graph-regression", "graph-classification", "graph-multilabel", "node-classification", "edge-classification",
    "edge-regression",
)  # fmt: skip


@pytest.mark.parametrize("kind", FEATURE_KINDS)
@pytest.mark.parametrize("task", TASKS)
def test_tiny_table_matches_its_specification(task, kind):
    spec = tiny_spec(task, kind)
    table = tiny_table(spec, num_graphs=5)
    check_batch(spec, table.batch(range(5)))


def test_sizes_and_edges_are_as_asked():
    table = tiny_table(tiny_spec(), sizes=[1, 4, 9], edges=False)
    assert table.num_nodes.tolist() == [1, 4, 9]
    assert table.num_edges.tolist() == [0, 0, 0]
    mixed = tiny_table(tiny_spec(), sizes=[3, 4, 3], edges=[False, True, False])
    assert mixed.num_edges.bool().tolist() == [False, True, False]


def test_seed_decides_everything():
    first, same, other = (tiny_table(tiny_spec(), seed=seed).columns["x_dense"] for seed in (3, 3, 4))
    assert torch.equal(first, same)
    assert first.shape != other.shape or not torch.equal(first, other)


def test_renumbered_graphs_are_isomorphic():
    table = tiny_table(tiny_spec(kind="categorical"))
    renumbered, _ = permute_nodes(table, seed=1)
    for graph in range(len(table)):
        before, after = (_networkx(t.slice(graph, graph + 1)) for t in (table, renumbered))
        matcher = nx.algorithms.isomorphism.GraphMatcher(
            before, after, node_match=lambda a, b: a["x"] == b["x"], edge_match=lambda a, b: a["e"] == b["e"]
        )
        assert matcher.is_isomorphic()


def test_relisted_edges_are_the_same_edges_with_their_features():
    table = tiny_table(tiny_spec())
    moved, origin = permute_edges(table, seed=1)
    assert not torch.equal(origin, torch.arange(len(origin)))
    for graph in range(len(table)):
        before, after = (t.slice(graph, graph + 1).columns for t in (table, moved))
        listed = [
            sorted(
                map(str, zip(*(c[name].tolist() for name in ("edge_index", "edge_attr", "edge_dense")), strict=True))
            )
            for c in (before, after)
        ]
        assert listed[0] == listed[1]
        assert torch.equal(before["x"], after["x"])


def test_rows_that_number_edges_follow_them():
    table = tiny_table(tiny_spec(), sizes=[4, 3])
    numbers = torch.cat([torch.arange(size) for size in table.num_edges.tolist()])
    table = table.with_columns(
        {"of_edge": numbers}, {"of_edge": Column("mark", index_of="edge")}, {"mark": table.ptr["edge"]}
    )
    moved, _ = permute_edges(table)
    before, after = table.batch([0, 1]), moved.batch([0, 1])
    assert torch.equal(before.edge_index[:, before.of_edge], after.edge_index[:, after.of_edge])


@pytest.mark.parametrize("task", ["link-ranking", "map-recovery"])
def test_tasks_find_what_they_predict(task):
    spec = tiny_spec(task)
    batch = tiny_table(spec, sizes=[1, 4, 6]).batch([0, 1, 2])
    loss = build_task(spec, 5, HeadConfig()).loss
    outputs = torch.randn(11, 5 if task == "link-ranking" else spec.num_targets)
    assert loss(outputs, batch).isfinite()


def _networkx(table):
    graph = nx.Graph()
    graph.add_nodes_from((node, {"x": x}) for node, x in enumerate(table.columns["x"].tolist()))
    ends = zip(table.columns["edge_index"].tolist(), table.columns["edge_attr"].tolist(), strict=True)
    graph.add_edges_from((u, v, {"e": e}) for (u, v), e in ends)
    return graph


def test_renumbering_moves_node_and_pair_columns_alike():
    encodings = (RWSE(num_steps=5), ShortestPaths(max_distance=6))
    table = tiny_table(tiny_spec())
    moved, origin = permute_nodes(encode(table, encodings))
    recomputed = encode(permute_nodes(table)[0], encodings)
    assert not torch.equal(origin, torch.arange(len(origin)))
    torch.testing.assert_close(moved.columns["rwse"], recomputed.columns["rwse"])
    assert torch.equal(moved.columns["shortest_path_distance"], recomputed.columns["shortest_path_distance"])
