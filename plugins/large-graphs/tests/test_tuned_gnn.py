"""Re-tuned GCN, GAT and GraphSAGE against dense matrices."""

from __future__ import annotations

import pytest
import torch
from torch.nn import functional as F

from graphbench.errors import BadInput
from graphbench_large_graphs import TunedGNN

DIM, HEADS = 8, 2


def gcn(conv, x, adjacency, symmetric):
    return symmetric @ x @ conv.lin.weight.T + conv.bias


def sage(conv, x, adjacency, symmetric):
    """The mean also includes the node itself."""
    looped = adjacency + torch.eye(len(x), dtype=x.dtype)
    mean = looped @ x / looped.sum(1, keepdim=True)
    return mean @ conv.lin_l.weight.T + conv.lin_l.bias + x @ conv.lin_r.weight.T


def gat(conv, x, adjacency, symmetric):
    h = (x @ conv.lin.weight.T).unflatten(-1, (HEADS, -1))
    logits = (h * conv.att_dst).sum(-1)[:, None] + (h * conv.att_src).sum(-1)[None]
    seen = (adjacency + torch.eye(len(x), dtype=x.dtype)) > 0
    weights = F.leaky_relu(logits, 0.2).masked_fill(~seen[..., None], -torch.inf).softmax(1)
    return torch.einsum("ijh,jhd->ihd", weights, h).flatten(1)


@pytest.mark.parametrize(("layer", "conv"), [("GCN", gcn), ("GraphSAGE", sage), ("GAT", gat)])
@pytest.mark.parametrize("full", [True, False])
def test_model_agrees_with_its_equations(made, spec, batch, adjacency, symmetric, layer, conv, full):
    """With residuals, an input map and the sum of all layers, and with none of them."""
    options = {"residual": full, "input_map": full, "jumping": full, "norm": "batch" if full else "layer"}
    model = made(lambda: TunedGNN(spec, layer, DIM, num_layers=3, num_heads=HEADS, **options))
    x, states = batch.x_dense, []
    if full:
        x = x @ model.input_map.weight.T + model.input_map.bias
    for part in model.layers:
        new = conv(part.conv, x, adjacency, symmetric)
        if full:
            new = new + x @ part.residual.weight.T + part.residual.bias
            norm = part.norm
            new = (new - norm.running_mean) / (norm.running_var + norm.eps).sqrt() * norm.weight + norm.bias
        else:
            new = F.layer_norm(new, (DIM,), *part.norm.parameters())
        x = new.clamp(min=0)
        states.append(x)
    torch.testing.assert_close(model(batch).node, sum(states) if full else x, rtol=1e-10, atol=1e-10)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"layer": "GIN"}, "layer must be one of GCN, GAT, GraphSAGE, but got 'GIN'"),
        ({"layer": "GAT", "num_heads": 7}, "num_heads=7 and hidden_dim=512"),
        ({"norm": "instance"}, "norm must be one of batch, layer, none"),
    ],
)
def test_options_that_do_not_fit_are_refused(spec, options, message):
    with pytest.raises(BadInput, match=message):
        TunedGNN(spec, **options)
