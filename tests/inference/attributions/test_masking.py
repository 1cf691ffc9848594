"""Masking against the closed form for a square, and lines of several edges."""

import pytest
import torch
from attributed import additive, copies_of, facts_of, table_of

from graphbench.inference.attributions import attribute
from graphbench.inference.attributions.question import lines_of, spread_over_edges


def test_what_a_square_loses_without_a_part():
    """F = sum_i w s_i^2 loses w (s_i^2 - (s_i - d_i)^2) without node i; without a line both its ends lose that."""
    module = additive(power=2)
    copies = copies_of(module, seed=3)
    batch, weight = copies(1), module.task.head.mlp.layers[0].weight[0]
    found = attribute(module, copies, facts_of(module), target=0, method="masking")
    seen = table_of(module, num_graphs=6, seed=9)
    seen = seen.batch(range(6))
    model, (source, target) = module.architecture, batch.edge_index
    with torch.no_grad():
        node, edge = model.node(batch), model.edge(batch)
        more, more_edge = node - model.node(seen).mean(0), edge - model.edge(seen).mean(0)
        now = node + torch.zeros_like(node).index_add(0, target, edge)
        nodes = (now**2 - (now - more) ** 2) @ weight
    torch.testing.assert_close(found.nodes, nodes.double(), atol=1e-5, rtol=1e-4)
    for one, other in {tuple(sorted(pair)) for pair in batch.edge_index.t().tolist()}:
        on_line = ((source == one) & (target == other)) | ((source == other) & (target == one))
        less = now - torch.zeros_like(node).index_add(0, target[on_line], more_edge[on_line])
        expected = float(((now**2 - less**2).sum(0) @ weight).detach())
        assert float(found.edges[on_line].sum()) == pytest.approx(expected, abs=1e-4)


def test_edges_between_the_same_nodes_share_the_value_of_their_line():
    edges = torch.tensor([[0, 1, 0, 2, 2], [1, 0, 1, 2, 0]])
    line, count = lines_of(edges)
    assert count == 3
    assert len(set(line[:3].tolist())) == 1
    values = spread_over_edges([6.0, 5.0, 4.0], line)
    assert values.sum() == 15
    assert values[:3].unique().numel() == 1
    assert spread_over_edges([], lines_of(edges[:, :0])[0]).shape == (0,)
