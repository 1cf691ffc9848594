"""One layer against a dense float64 reference, deepnorm's factors, and what a layer tells a listener."""

from __future__ import annotations

import pytest
import torch
import torch.nn.functional as F

from graphbench.diagnostics import record
from graphbench.errors import BadInput
from graphbench.testing import tiny_batch, tiny_spec
from graphbench_deepgraph import DeepGraph, DeepGraphLayer
from graphbench_deepgraph.layer import deepnorm_factors


@pytest.mark.parametrize(
    ("layers", "alpha", "beta"),
    [(12, 2.2134, 0.3195), (16, 2.3784, 0.2973), (24, 2.6321, 0.2686), (32, 2.8284, 0.25), (48, 3.1302, 0.2259)],
)
def test_deepnorm_factors_are_those_of_the_paper(layers, alpha, beta):
    assert deepnorm_factors(layers) == pytest.approx((alpha, beta), abs=5e-5)


@pytest.mark.parametrize("beta", [1.0, 0.25])
def test_initial_weights_have_their_scale(beta):
    """Bounds of the uniform distributions: those of the library times the gain times beta."""
    torch.manual_seed(0)
    layer = DeepGraphLayer(64, 96, 4, beta=beta)
    xavier = (6 / 128) ** 0.5
    query, key, value = layer.attention.in_proj.weight.chunk(3)
    for weight, bound in (
        (query, xavier * 2**-0.5),
        (key, xavier * 2**-0.5),
        (value, xavier * 2**-0.5 * beta),
        (layer.attention.out_proj.weight, xavier * beta),
        (layer.ffn.expand.weight, 64**-0.5 * beta),
        (layer.ffn.contract.bias, 96**-0.5 * beta),
    ):
        assert bound * 0.9 < weight.abs().max() <= bound * (1 + 1e-6)
    assert not layer.attention.out_proj.bias.any()


@pytest.mark.parametrize("deepnorm", [True, False])
def test_normal_weights_replace_all_maps_before_deepnorm_scales_them(deepnorm):
    """N(0, 0.02^2) everywhere and no biases, times beta where deepnorm scales; the published default is xavier."""
    torch.manual_seed(0)
    sizes = {"hidden_dim": 64, "ffn_dim": 64, "num_layers": 2, "num_heads": 4}
    model = DeepGraph(tiny_spec(), **sizes, deepnorm=deepnorm, init="normal")
    beta = 16**-0.25 if deepnorm else 1.0
    attention, ffn = model.layers[1].attention, model.layers[1].ffn
    query, key, value = attention.in_proj.weight.chunk(3)
    scaled = [value, attention.out_proj.weight, ffn.expand.weight, ffn.contract.weight]
    plain = [query, key, model.readout.linear.weight, model.substructure_encoder.network[0].weight]
    for weights, std in ((scaled, 0.02 * beta), (plain, 0.02)):
        for weight in weights:
            assert float(weight.detach().std()) == pytest.approx(std, rel=0.06)
    assert not any(m.bias.any() for m in model.modules() if isinstance(m, torch.nn.Linear))
    torch.manual_seed(0)
    default = DeepGraph(tiny_spec(), **sizes, deepnorm=deepnorm)
    assert default.layers[0].attention.in_proj.weight.abs().max() > 0.9 * (3 / 128) ** 0.5


def model_and_batch(**options):
    torch.manual_seed(1)
    model = DeepGraph(tiny_spec(), hidden_dim=16, ffn_dim=24, num_layers=2, num_heads=2, **options).double().eval()
    batch = tiny_batch(model).apply(lambda tensor: tensor.double() if tensor.is_floating_point() else tensor)
    return model, batch


@torch.no_grad()
def test_layers_equal_the_formula():
    """Graph by graph, without padding, from the trace's input to the next layer's."""
    model, batch = model_and_batch()
    with record(model) as recording:
        model(batch)
    first, second = recording
    layer, alpha = model.layers[0], 4**0.25
    assert first.residual_weight == pytest.approx(alpha)
    for graph, weights in enumerate(first.attention):
        x = first.input[first.batch == graph]
        value = F.linear(x, layer.attention.in_proj.weight, layer.attention.in_proj.bias).chunk(3, -1)[2]
        heads = value.unflatten(-1, (2, -1)).transpose(0, 1)
        mixed = layer.attention.out_proj((weights @ heads).transpose(0, 1).flatten(1))
        y = layer.attention_norm(alpha * x + mixed)
        expected = layer.ffn_norm(alpha * y + layer.ffn.contract(F.gelu(layer.ffn.expand(y))))
        assert torch.allclose(second.input[second.batch == graph], expected, atol=1e-10)


@torch.no_grad()
def test_traces_name_nodes_first_and_mark_substructures():
    model, batch = model_and_batch()
    with record(model) as recording:
        output = model(batch)
    for number, trace in enumerate(recording):
        assert trace.layer == number
        marks = trace.substructure
        assert torch.equal(trace.batch[marks], output.tokens_batch)
        for graph, nodes in enumerate(trace.num_nodes.tolist()):
            own = marks[trace.batch == graph]
            assert not own[: nodes + 1].any(), "nodes and the graph token come first"
            assert own[nodes + 1 :].all()
            rows = trace.attention[graph]
            assert torch.allclose(rows.sum(-1), torch.ones(()).double())
            hidden = rows[:, nodes + 1 :, nodes + 1 :]
            assert not hidden.any(), "substructures see each other"
        value = model.layers[number].attention.in_proj.weight.chunk(3)[2]
        whole = trace.input @ value.T @ model.layers[number].attention.out_proj.weight.T
        assert torch.allclose(trace.values.sum(1), whole, atol=1e-10)


def test_heads_must_divide_the_width():
    with pytest.raises(BadInput, match="num_heads=3"):
        DeepGraphLayer(16, 16, 3)
