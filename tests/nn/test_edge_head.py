"""Edge heads: what they read, and predictions that are the same in both directions."""

from __future__ import annotations

import dataclasses

import pytest
import torch

from graphbench import Representation
from graphbench.contracts import GraphTable
from graphbench.errors import BadInput
from graphbench.nn import HeadConfig
from graphbench.nn.heads import EdgeHead, with_reverse
from graphbench.testing import permute_edges, tiny_spec, tiny_table

SPEC = tiny_spec("edge-regression")
BARE = tiny_spec("edge-regression", "none")


def batch_of(spec, **options):
    table = tiny_table(spec, sizes=[5, 1, 7], **options)
    return table.batch(range(3))


def reverse_of(edge_index):
    """Return the row of each edge's reverse, found by search."""
    rows = [tuple(pair) for pair in edge_index.T.tolist()]
    return torch.tensor([rows.index((j, i)) for i, j in rows])


def test_the_plain_head_is_an_mlp_of_both_ends_and_the_edge():
    torch.manual_seed(0)
    batch = batch_of(SPEC)
    node, edge = torch.randn(batch.num_nodes, 8), torch.randn(batch.edge_index.shape[1], 6)
    head = EdgeHead(8, 2, HeadConfig(), SPEC, edge_dim=6)
    source, target = batch.edge_index
    expected = head.mlp(torch.cat([node[source], node[target], edge], 1))
    torch.testing.assert_close(head(Representation(node=node, edge=edge), batch), expected)


def test_features_of_edges_stand_in_where_the_model_has_no_edges():
    torch.manual_seed(0)
    batch = batch_of(SPEC)
    node = torch.randn(batch.num_nodes, 8)
    head = EdgeHead(8, 2, HeadConfig(), SPEC)
    source, target = batch.edge_index
    expected = head.mlp(torch.cat([node[source], node[target], head.encoder(batch)], 1))
    torch.testing.assert_close(head(Representation(node=node), batch), expected)
    batch.edge_dense = batch.edge_dense + 1
    assert not torch.allclose(head(Representation(node=node), batch), expected)


@pytest.mark.parametrize("edge_dim", [0, 6])
def test_the_ends_alone_are_read_where_that_is_asked_for(edge_dim):
    """3 layers of halving width: the edge predictions of "Benchmarking GNNs", 2d to d to d / 2."""
    head = EdgeHead(8, 1, HeadConfig(3, "halving", edge_input="ends"), SPEC, edge_dim)
    assert [tuple(layer.weight.shape) for layer in head.mlp.layers] == [(8, 16), (4, 8), (1, 4)]
    assert head.encoder is None
    with pytest.raises(BadInput, match="edge_input of a head must be one of all, ends"):
        EdgeHead(8, 1, HeadConfig(edge_input="nodes"), SPEC)


@pytest.mark.parametrize("edge_dim", [0, 6])
@pytest.mark.parametrize("spec", [SPEC, BARE], ids=["features", "no features"])
@pytest.mark.parametrize("edge_input", ["all", "ends"])
def test_symmetric_predictions_are_the_same_both_ways(edge_input, spec, edge_dim):
    torch.manual_seed(0)
    batch = batch_of(spec)
    back = reverse_of(batch.edge_index)
    node, edge = torch.randn(batch.num_nodes, 8), torch.randn(batch.edge_index.shape[1], 6) if edge_dim else None
    said = {}
    for symmetric in (True, False):
        head = EdgeHead(8, 2, HeadConfig(edge_input=edge_input, symmetric=symmetric), spec, edge_dim)
        out = said[symmetric] = head(Representation(node=node, edge=edge), batch)
        assert out.shape == (batch.edge_index.shape[1], 2)
    torch.testing.assert_close(said[True], said[True][back])
    assert not torch.allclose(said[False], said[False][back])


def test_the_specification_says_whether_targets_are_the_same_both_ways():
    undirected = dataclasses.replace(SPEC, extra={"edges": "undirected"})
    assert [EdgeHead(8, 1, HeadConfig(), spec).symmetric for spec in (SPEC, undirected)] == [False, True]
    assert not EdgeHead(8, 1, HeadConfig(symmetric=False), undirected).symmetric


def test_the_order_of_edges_does_not_matter_even_where_some_are_parallel():
    torch.manual_seed(0)
    edges = torch.tensor([[0, 1, 0, 1, 2, 0, 3], [1, 0, 1, 0, 2, 2, 1]])  # 0-1 twice, a loop, two one-way edges
    graph = {"num_nodes": 4, "edge_index": edges, "edge_dense": torch.randn(7, 2)}
    table = GraphTable.from_graphs([graph, graph])
    moved, origin = permute_edges(table)
    head = EdgeHead(8, 1, HeadConfig(symmetric=True), tiny_spec("edge-regression", "dense"))
    node = torch.randn(8, 8)
    first, second = (head(Representation(node=node), t.batch([0, 1])) for t in (table, moved))
    torch.testing.assert_close(second, first[origin])


def test_reverse_edges_by_a_search():
    torch.manual_seed(0)
    batch = batch_of(SPEC)
    edge = torch.randn(batch.edge_index.shape[1], 3)
    expected = (edge + edge[reverse_of(batch.edge_index)]) / 2
    torch.testing.assert_close(with_reverse(edge, batch.edge_index, batch.num_nodes), expected)


def test_graphs_without_edges_have_no_predictions():
    batch = batch_of(SPEC, edges=False)
    for symmetric in (True, False):
        head = EdgeHead(8, 2, HeadConfig(symmetric=symmetric), SPEC)
        assert head(Representation(node=torch.randn(batch.num_nodes, 8)), batch).shape == (0, 2)
