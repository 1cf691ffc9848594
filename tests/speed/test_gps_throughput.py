"""The three GPS networks of speed/gps_throughput.py are equivalent."""

from __future__ import annotations

import importlib
from pathlib import Path

import pytest
import torch

SPEED = Path(__file__).parents[2] / "speed"


@pytest.fixture
def script(monkeypatch):
    monkeypatch.syspath_prepend(str(SPEED))
    return importlib.import_module("gps_throughput")


@pytest.fixture
def kind(script):
    return script.Kind(
        mean_nodes=9.0, sd_nodes=2.0, max_nodes=12, ring_share=0.2, hidden_dim=16, num_layers=2, batch_size=4
    )


def copied(published, ours):
    """Copy the weights of a stack of GraphGPS's layers into our model."""
    pairs = [
        (ours.architecture.node_encoder, published.node),
        (ours.architecture.edge_encoder, published.edge),
        (ours.head, published.head),
    ]
    for own, theirs in zip(ours.architecture.layers, published.layers, strict=True):
        pairs += [
            (own.local, theirs.local),
            (own.attention, theirs.attention),
            (own.local_norm, theirs.local_norm),
            (own.attention_norm, theirs.attention_norm),
            (own.feed_forward, theirs.feed_forward),
            (own.norm, theirs.norm),
        ]
    with torch.no_grad():
        for own, theirs in pairs:
            for parameter, value in zip(own.parameters(), theirs.parameters(), strict=True):
                parameter.copy_(value)


def test_the_published_layer_is_ours(script, kind):
    torch.manual_seed(0)
    published, ours = script.PublishedGPS(kind).eval(), script.OurGPS(kind).eval()
    copied(published, ours)
    batch = script.molecule_like(4, kind, torch.Generator().manual_seed(0)).batch(range(4))
    torch.testing.assert_close(published(batch), ours(batch), atol=1e-5, rtol=1e-4)


def test_the_published_layer_is_that_of_pyg(script, kind):
    """Parameters are listed in the order of attributes, which differs, so parts are copied by name."""
    published, pyg = script.PublishedLayer(16, 4).eval(), script.BaselineGPS(kind).layers[0].eval()
    pairs = [
        (pyg.conv, published.local),
        (pyg.attn, published.attention),
        (pyg.mlp, published.feed_forward),
        (pyg.norm1, published.local_norm),
        (pyg.norm2, published.attention_norm),
        (pyg.norm3, published.norm),
    ]
    with torch.no_grad():
        for own, theirs in pairs:
            for parameter, value in zip(own.parameters(), theirs.parameters(), strict=True):
                parameter.copy_(value)
    x, edge_index, edge = torch.randn(5, 16), torch.tensor([[0, 1, 3], [1, 2, 4]]), torch.randn(3, 16)
    batch = torch.tensor([0, 0, 0, 1, 1])
    torch.testing.assert_close(
        published(x, edge_index, batch, edge_attr=edge), pyg(x, edge_index, batch, edge_attr=edge)
    )


def test_models_of_different_sizes_are_refused(script, kind, monkeypatch):
    table = script.molecule_like(8, kind, torch.Generator().manual_seed(0))
    assert all(len(values) == 1 for values in script.compare(table, kind, 1, bucketed=False).values())
    monkeypatch.setattr(script.PublishedGPS, "layer", lambda self, dim: script.PublishedLayer(dim + 4, 4))
    with pytest.raises(AssertionError, match="different sizes"):
        script.compare(table, kind, 1, bucketed=False)
