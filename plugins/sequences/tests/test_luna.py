"""Luna against torch's attention with the same weights, document by document."""

from __future__ import annotations

import pytest
import torch
from torch import nn

from graphbench.errors import BadInput
from graphbench.nn import DenseLayout
from graphbench_sequences import Luna
from graphbench_sequences.luna import LunaAttention, LunaStack
from graphbench_sequences.tokens import sinusoids

graph_of = torch.tensor([0] * 5 + [1] + [2] * 9)
SMALL = {"hidden_dim": 12, "num_layers": 2, "num_heads": 3, "ffn_dim": 14, "num_packed": 4}


def attention_of_torch(query, key_value, out=None):
    """Attention by torch with the weights of ours; without a last map it has the identity."""
    dim = query.in_features
    theirs = nn.MultiheadAttention(dim, 2, batch_first=True).double()
    with torch.no_grad():
        theirs.in_proj_weight.copy_(torch.cat([query.weight, key_value.weight]))
        theirs.in_proj_bias.copy_(torch.cat([query.bias, key_value.bias]))
        theirs.out_proj.weight.copy_(torch.eye(dim) if out is None else out.weight)
        theirs.out_proj.bias.copy_(torch.zeros(dim) if out is None else out.bias)
    return lambda q, k: theirs(q, k, k)[0]


def test_stack_agrees_with_torchs_attention(made):
    """Documents of 5, 1 and 9 tokens, which have 4, 1 and 4 packed ones."""
    stack = made(lambda: LunaStack(8, num_layers=2, num_packed=4, num_heads=2, ffn_dim=12))
    x = torch.randn(15, 8, dtype=torch.float64)
    found = stack(x, DenseLayout.from_batch(graph_of))
    assert stack.layers[1].packed_norm is None
    for graph in range(3):
        own = stack.norm(x[graph_of == graph])[None]
        packed = stack.packed_norm(stack.packed + sinusoids(torch.arange(4), 8))[None, : own.shape[1]]
        for layer in stack.layers:
            maps = layer.attention
            new = attention_of_torch(maps.pack_query, maps.pack_map)(packed, own)
            own = layer.attention_norm(
                own + attention_of_torch(maps.query_map, maps.unpack_map, maps.out_map)(own, new)
            )
            own = layer.ffn_norm(own + layer.ffn(own))
            packed = packed + new if layer.packed_norm is None else layer.packed_norm(packed + new)
        torch.testing.assert_close(found[graph_of == graph], own[0], rtol=1e-10, atol=1e-11)


def test_parameters_are_those_of_the_formula(spec):
    d, f = 12, 14
    layer = 7 * d * d + 7 * d + 2 * d * f + f + d + 4 * d
    packed = 4 * d + 4 * d  # the tokens and both norms before the first layer
    expected = 5 * d + d + packed + 2 * layer + 2 * d  # tokens, the learned one; the first layer's norm of packed ones
    assert sum(parameter.numel() for parameter in Luna(spec, **SMALL).parameters()) == expected


def test_maps_are_drawn_smaller_than_the_last_one():
    torch.manual_seed(0)
    attention, bound = LunaAttention(64, 4), (6 / 128) ** 0.5
    assert 0.68 * bound < attention.pack_query.weight.abs().max() <= 0.7072 * bound
    assert all(0.68 * bound < part.abs().max() <= 0.7072 * bound for part in attention.unpack_map.weight.chunk(2))
    assert 0.98 * bound < attention.out_map.weight.abs().max() <= bound


def test_weights_are_dropped_in_training_alone(spec, batch_of):
    torch.manual_seed(0)
    model, batch = Luna(spec, **SMALL, dropout=0.0, attention_dropout=0.5).double(), batch_of(spec)
    assert not torch.equal(model(batch).graph, model(batch).graph)
    model.eval()
    assert torch.equal(model(batch).graph, model(batch).graph)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"num_heads": 5}, "num_heads must divide hidden_dim, but got num_heads=5 and hidden_dim=12"),
        ({"num_packed": 0}, "num_packed must be an integer of at least 1"),
        ({"max_length": 0}, "max_length must be"),
    ],
)
def test_options_that_do_not_fit_are_refused(spec, options, message):
    with pytest.raises(BadInput, match=message):
        Luna(spec, **(SMALL | options))
