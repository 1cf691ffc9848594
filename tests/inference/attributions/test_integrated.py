"""Integrated gradients: the closed form for a square, completeness on real models, the error without captum."""

import importlib.util
import sys

import pytest
import torch
from attributed import additive, copies_of, facts_of, table_of

from graphbench import registry
from graphbench.errors import MissingExtra
from graphbench.inference.attributions import attribute
from graphbench.inference.attributions.question import explained
from graphbench.testing import tiny_spec
from graphbench.training.module import BenchmarkModule

needs_captum = pytest.mark.skipif(not importlib.util.find_spec("captum"), reason="needs the extra explain (captum)")


@needs_captum
def test_a_square_gives_each_node_its_share():
    """F = sum_i w s_i^2 with s_i = n_i + e_i has IG of n_i = w (n_i - n') (s_i + s'_i), along a straight line."""
    module = additive(power=2)
    copies = copies_of(module, seed=3)
    batch, weight = copies(1), module.task.head.mlp.layers[0].weight[0]
    found = attribute(module, copies, facts_of(module), target=0, steps=4)
    seen = table_of(module, num_graphs=6, seed=9)
    seen = seen.batch(range(6))
    model, target = module.architecture, batch.edge_index[1]
    with torch.no_grad():
        node, edge = model.node(batch), model.edge(batch)
        node_mean, edge_mean = model.node(seen).mean(0), model.edge(seen).mean(0)
        now = node + torch.zeros_like(node).index_add(0, target, edge)
        before = node_mean + torch.zeros_like(node).index_add(0, target, edge_mean.expand_as(edge))
        nodes = ((node - node_mean) * (now + before)) @ weight
        edges = ((edge - edge_mean) * (now + before)[target]) @ weight
    torch.testing.assert_close(found.nodes, nodes.double(), atol=1e-5, rtol=1e-4)
    torch.testing.assert_close(found.edges, edges.double(), atol=1e-5, rtol=1e-4)


@needs_captum
@pytest.mark.parametrize("name", ["GPS", "Graphormer", "GatedGCN"])
def test_attributions_sum_to_the_difference_of_the_predictions(name):
    torch.manual_seed(0)
    cls = registry.load("architectures", name)
    module = BenchmarkModule(tiny_spec("graph-multilabel", "both"), lambda spec: cls(spec, hidden_dim=16, num_layers=2))
    copies = copies_of(module.eval(), row=2)
    found = attribute(module, copies, facts_of(module), target=2, steps=200)
    with torch.no_grad():
        assert found.prediction == pytest.approx(float(explained(module, copies(1))[0, 2]), abs=1e-6)
    assert found.edges is not None
    assert found.nodes.abs().sum() > 0
    assert found.edges.abs().sum() > 0
    assert abs(found.prediction - found.at_reference) > 1e-3
    assert abs(found.gap) < 0.02 * abs(found.prediction - found.at_reference)
    assert not any(part._forward_hooks for part in module.modules())


def test_without_captum_the_line_that_installs_it_is_said(monkeypatch):
    monkeypatch.setitem(sys.modules, "captum.attr", None)
    monkeypatch.setitem(sys.modules, "captum", None)
    module = additive()
    with pytest.raises(MissingExtra, match=r"pip install 'graphbench-lightning\[explain\]'"):
        attribute(module, copies_of(module), facts_of(module), target=0)
    assert attribute(module, copies_of(module), facts_of(module), target=0, method="masking").nodes.numel()
