"""Luna against torch's attention with the same weights, document by document."""

from __future__ import annotations

import math

import pytest
import torch
from torch import nn

from graphbench.errors import BadInput
from graphbench.nn import DenseLayout
from graphbench_sequences import Luna
from graphbench_sequences.luna import LunaAttention, LunaPositions, LunaStack
from graphbench_sequences.tokens import Documents, Positions

graph_of = torch.tensor([0] * 5 + [1] + [2] * 9)
SMALL = {"hidden_dim": 12, "num_layers": 2, "num_heads": 3, "ffn_dim": 14, "num_packed": 4}


def attention_of_torch(query, key_value, out=None):
    """Compute attention with torch and our weights; without a last map it uses the identity."""
    dim = query.in_features
    theirs = nn.MultiheadAttention(dim, 2, batch_first=True).double()
    with torch.no_grad():
        theirs.in_proj_weight.copy_(torch.cat([query.weight, key_value.weight]))
        theirs.in_proj_bias.copy_(torch.cat([query.bias, key_value.bias]))
        theirs.out_proj.weight.copy_(torch.eye(dim) if out is None else out.weight)
        theirs.out_proj.bias.copy_(torch.zeros(dim) if out is None else out.bias)
    return lambda q, k: theirs(q, k, k)[0]


def places(numbers, dim):
    """Compute sines and then cosines of places with the formula of fairseq's `get_sinusoidal_positional_embedding`."""
    half = dim // 2
    rates = [math.exp(-math.log(10_000) / (half - 1) * column) for column in range(half)]
    rows = [[function(number * rate) for function in (math.sin, math.cos) for rate in rates] for number in numbers]
    return torch.tensor(rows, dtype=torch.float64)


def test_stack_agrees_with_torchs_attention(made):
    """Documents of 5, 1 and 9 tokens, which have 4, 1 and 4 packed ones."""
    stack = made(lambda: LunaStack(8, num_layers=2, num_packed=4, num_heads=2, ffn_dim=12))
    x = torch.randn(15, 8, dtype=torch.float64)
    found = stack(x, DenseLayout.from_batch(graph_of))
    assert stack.layers[1].packed_norm is None
    for graph in range(3):
        own = stack.norm(x[graph_of == graph])[None]
        packed = stack.packed_norm(stack.packed + places(range(4), 8))[None, : own.shape[1]]
        for layer in stack.layers:
            maps = layer.attention
            new = attention_of_torch(maps.pack_query, maps.pack_map)(packed, own)
            own = layer.attention_norm(
                own + attention_of_torch(maps.query_map, maps.unpack_map, maps.out_map)(own, new)
            )
            own = layer.ffn_norm(own + layer.ffn(own))
            packed = packed + new if layer.packed_norm is None else layer.packed_norm(packed + new)
        torch.testing.assert_close(found[graph_of == graph], own[0], rtol=1e-10, atol=1e-11)


@pytest.mark.parametrize(("tokens", "first"), [("categories", 2), ("values", 0)])
def test_tokens_are_counted_as_in_fairseq(tokens, first):
    """Places start after the padding index, 1, if there is such a category."""
    x = torch.randn(5, 8, dtype=torch.float64)
    found = LunaPositions(8, tokens)(x, torch.arange(5))
    torch.testing.assert_close(found, x + places(range(first, first + 5), 8), rtol=1e-12, atol=1e-12)


def test_the_first_layer_sees_fairseqs_places(made, spec, batch_of):
    """The learned token is at place 2, the others after it."""
    model, batch = made(lambda: Luna(spec, **SMALL)), batch_of(spec)
    seen = []
    model.layers[0].register_forward_pre_hook(lambda module, inputs: seen.append(inputs[0]))
    model(batch)
    documents, table = Documents.of(batch_of(spec), None), model.token_encoder.encoder.features.table
    first = 0
    for graph in range(batch.num_graphs):
        rows = documents.order[documents.document == graph]
        expected = torch.cat([model.cls, table[batch.x[rows, 0]]])
        expected = expected + places(range(2, 2 + len(expected)), 12)
        torch.testing.assert_close(seen[0][first : first + len(expected)], expected, rtol=1e-12, atol=1e-12)
        first += len(expected)


@pytest.mark.parametrize("positions", ["learned", "none"])
def test_other_places_are_those_of_all_models(spec, positions):
    model = Luna(spec, **SMALL, positions=positions)
    assert type(model.positions) is Positions
    assert model.positions.name == positions


def test_weights_begin_as_those_of_bert(pairs):
    """All maps and vectors of tokens; packed tokens, norms and the learned token are as with xavier."""
    torch.manual_seed(0)
    model = Luna(pairs, hidden_dim=128, num_layers=2, num_heads=4, ffn_dim=256, num_packed=64, init="bert")
    maps = [module for module in model.modules() if isinstance(module, nn.Linear)]
    assert len(maps) == 2 * 7 + 1, "two layers of seven, and where two documents meet"
    for module in maps:
        assert module.weight.std().item() == pytest.approx(0.02, rel=0.05)
        assert module.weight.abs().max() > 0.02 * 3.2, "a normal distribution has tails"
        assert (module.bias == 0).all()
    table = model.token_encoder.encoder.features.table
    assert table.std().item() == pytest.approx(0.02 * 128**0.5, rel=0.1)
    assert model.layers[0].packed.std().item() == pytest.approx(1, rel=0.05)


def test_xavier_begins_as_its_attention_does(pairs):
    torch.manual_seed(0)
    model = Luna(pairs, hidden_dim=128, num_layers=1, num_heads=4, ffn_dim=256, num_packed=64, init="xavier")
    attention = model.layers[0].layers[0].attention
    assert attention.out_map.weight.std().item() == pytest.approx((2 / 256) ** 0.5, rel=0.05)
    assert attention.query_map.weight.std().item() == pytest.approx((1 / 256) ** 0.5, rel=0.05)
    assert model.token_encoder.encoder.features.table.std().item() == pytest.approx(1, rel=0.1)


def test_both_starts_are_the_same_function(spec, batch_of):
    """Only the initial weights differ."""
    first, second = (Luna(spec, **SMALL, init=init).double().eval() for init in ("bert", "xavier"))
    second.load_state_dict(first.state_dict())
    assert torch.equal(first(batch_of(spec)).graph, second(batch_of(spec)).graph)


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
        ({"init": "normal"}, "init must be one of bert, xavier, but got 'normal'"),
        ({"max_length": 0}, "max_length must be"),
    ],
)
def test_options_that_do_not_fit_are_refused(spec, options, message):
    with pytest.raises(BadInput, match=message):
        Luna(spec, **(SMALL | options))
