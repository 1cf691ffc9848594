"""Exphormer: its attention against loops, virtual nodes, and the shipped configurations."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch

from graphbench import GraphTable
from graphbench.errors import BadInput
from graphbench.testing import encode
from graphbench_baselines import Exphormer

DIM, HEADS, VIRTUAL = 8, 2, 2
NAMES = sorted(path.stem for path in (Path(__file__).parents[1] / "configs" / "exphormer").glob("*.yaml"))


@pytest.fixture
def tables(spec, graphs):
    """A model in float64 and a batch with its expanders, the largest graph above 10 nodes."""
    torch.manual_seed(0)
    options = {"hidden_dim": DIM, "num_layers": 2, "num_heads": HEADS, "num_virtual_nodes": VIRTUAL}
    model = Exphormer(spec, **options, expander_degree=2, norm="none", dropout=0.0, local_layer="GINE").double().eval()
    table = encode(GraphTable.from_graphs(graphs), model.required_encodings())
    return model, table.batch(range(len(graphs)))


def attend(layer, nodes, virtual, interactions):
    """Run one layer on one graph, interaction by interaction; also return the new virtual nodes."""
    rows, width = torch.cat([nodes, virtual]), DIM // HEADS
    q, k, v = (rows @ weight.T for weight in layer.qkv_map.weight.chunk(3))
    out = torch.zeros_like(rows)
    for head in range(HEADS):
        part = slice(head * width, (head + 1) * width)
        weights, totals = [], torch.zeros(len(rows), dtype=torch.float64)
        for j, i, vector in interactions:
            steer = (layer.edge_map.weight @ vector)[part]
            logit = (q[i, part] * k[j, part] * steer).sum() / width**0.5
            weights.append(logit.clamp(-5, 5).exp())
            totals[i] += weights[-1]
        for weight, (j, i, _) in zip(weights, interactions, strict=True):
            out[i, part] += weight / totals[i] * v[j, part]
    return out[: len(nodes)], out[len(nodes) :]


def test_exphormer_agrees_with_its_equations_graph_by_graph(tables):
    """Edges, expander, virtual nodes and the GPS layer around them, in float64."""
    model, batch = tables
    x, edge = model.node_encoder(batch), model.edge_encoder(batch)
    expected = torch.zeros_like(x)
    for graph in range(batch.num_graphs):
        start, stop = batch.ptr[graph].item(), batch.ptr[graph + 1].item()
        nodes, virtual, n = x[start:stop], model.virtual_nodes, stop - start
        own = [(e, j - start, i - start) for e, (j, i) in enumerate(batch.edge_index.T.tolist()) if start <= i < stop]
        pairs = [(j - start, i - start) for j, i in batch.expander_edges.tolist() if start <= i < stop]
        along = [(j, i, edge[e]) for e, j, i in own] + [(j, i, model.expander_row) for j, i in pairs]
        for v in range(VIRTUAL):
            along += [(i, n + v, model.to_virtual[v]) for i in range(n)]
            along += [(n + v, i, model.from_virtual[v]) for i in range(n)]
        for layer in model.layers:
            total = nodes.clone()
            for e, j, i in own:
                total[i] += (nodes[j] + edge[e]).clamp(min=0)
            mixed, virtual = attend(layer.attention, nodes, virtual, along)
            joined = nodes + layer.local.conv.nn(total) + nodes + mixed
            nodes = joined + layer.feed_forward(joined)
        expected[start:stop] = nodes
    torch.testing.assert_close(model(batch).node, expected, atol=1e-9, rtol=1e-9)


def test_virtual_nodes_carry_a_change_to_every_node(spec, graphs):
    """Without an expander the nodes of a graph without edges see each other only through the virtual node."""
    torch.manual_seed(0)
    for count, spreads in ((0, False), (1, True)):
        model = Exphormer(
            spec, hidden_dim=DIM, num_layers=2, expander_degree=0, num_virtual_nodes=count, norm="none"
        ).eval()
        batch = GraphTable.from_graphs(graphs).batch([5])  # three nodes, no edge
        before = model(batch).node
        batch.x_dense[0] += 1
        assert torch.equal(before[2], model(batch).node[2]) != spreads


def test_without_expander_no_encoding_is_asked_for(spec):
    assert Exphormer(spec, expander_degree=0).required_encodings() == ()
    (encoding,) = Exphormer(spec, expander_degree=7, expander_seed=3).required_encodings()
    assert encoding.parameters() == {"degree": 7, "seed": 3}


@pytest.mark.parametrize("name", NAMES)
def test_configurations_have_the_parameters_they_expect(recipe, name):
    found = recipe(f"exphormer/{name}")
    assert found.config["expected"]["parameters"] == found.parameters


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"num_heads": 7}, "num_heads=7 and hidden_dim=40"),
        ({"expander_degree": -1}, "expander_degree"),
        ({"num_virtual_nodes": -2}, "num_virtual_nodes"),
    ],
)
def test_options_that_do_not_fit_are_refused(spec, options, message):
    with pytest.raises(BadInput, match=message):
        Exphormer(spec, **options)
