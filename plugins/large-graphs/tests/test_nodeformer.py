"""NodeFormer's features against the estimated softmax, its attention and noise against matrices of all pairs."""

from __future__ import annotations

import pytest
import torch
from torch.nn import functional as F

from graphbench.errors import BadInput
from graphbench.nn import DenseLayout
from graphbench_large_graphs import NodeFormer
from graphbench_large_graphs.nodeformer import GumbelAttention, random_projection, softmax_features
from graphbench_large_graphs.propagation import hop_edges, hop_pairs

DIM, HEADS, FEATURES, TEMPERATURE, SAMPLES = 4, 2, 6, 0.5, 3


def test_features_average_to_the_softmax():
    """Attention with many features is that of `exp(q . k / (temperature sqrt(d)))`, within the error of 40,000."""
    torch.manual_seed(0)
    q, k = 0.4 * torch.randn(5, 1, DIM).double(), 0.4 * torch.randn(7, 1, DIM).double()
    projection = random_projection(40_000, DIM)
    layout = DenseLayout.from_batch(torch.zeros(7, dtype=torch.int64))
    queries, keys = softmax_features(q, projection, 0.8), softmax_features(k, projection, 0.8, layout)
    found = torch.einsum("ihm,jhm->ij", queries, keys)
    expected = torch.einsum("ihd,jhd->ij", q, k) / (0.8 * DIM**0.5)
    torch.testing.assert_close(found / found.sum(1, keepdim=True), expected.softmax(1), rtol=0.05, atol=0)


def test_directions_are_orthogonal_and_as_long_as_gaussian_ones():
    torch.manual_seed(0)
    projection = random_projection(3000, 3).double()
    block = projection[:3] / projection[:3].norm(dim=1, keepdim=True)
    torch.testing.assert_close(block @ block.T, torch.eye(3).double(), atol=1e-6, rtol=0)
    assert projection.square().sum(1).mean().item() == pytest.approx(3, rel=0.1)
    assert projection.mean(0).abs().max().item() < 0.1  # five standard errors; the signs of QR alone are skewed


def features(x, projection, temperature, graph_of=None):
    """Compute features by definition, with the largest exponent of keys per graph."""
    y = x / (temperature**0.5 * x.shape[-1] ** 0.25)
    exponents = torch.einsum("ihd,md->ihm", y, projection)
    largest = exponents.max(-1).values
    if graph_of is not None:
        for graph in graph_of.unique():
            largest[graph_of == graph] = largest[graph_of == graph].max(0).values
    shifted = exponents - (y**2).sum(-1, keepdim=True) / 2 - largest[..., None]
    return (shifted.exp() + 1e-6) / len(projection) ** 0.5


def reference(layer, x, batch, same_graph, projection, noise=None):
    """Run one layer pair by pair; noise `[T, H, K]` is already divided by the temperature."""
    q, k, v = ((x @ layer.qkv_map.weight.T + layer.qkv_map.bias).unflatten(-1, (3, HEADS, DIM))).unbind(1)
    pairs = torch.einsum(
        "ihm,jhm->hij", features(q, projection, layer.temperature),
        features(k, projection, layer.temperature, batch.batch),
    )  # fmt: skip
    pairs = pairs * same_graph
    factors = torch.ones(*q.shape[:2], 1, dtype=x.dtype) if noise is None else noise.exp()
    mixed = torch.zeros_like(v)
    for sample in factors.unbind(-1):
        weights = pairs * sample.T[:, None, :]
        mixed = mixed + torch.einsum("hij,jhd->ihd", weights / weights.sum(-1, keepdim=True), v) / factors.shape[-1]
    for numbers, edges in zip(
        layer.bias, hop_edges(hop_pairs(batch, len(layer.bias)), batch.num_nodes, x.dtype), strict=True
    ):
        shares = numbers.sigmoid() if layer.bias_name == "sigmoid" else numbers
        mixed = mixed + shares[:, None] * edges.mix(v)
    return mixed.flatten(1) @ layer.out.weight.T + layer.out.bias


@pytest.mark.parametrize("bias", ["sigmoid", "identity"])
def test_model_agrees_with_its_equations(made, spec, batch, same_graph, bias):
    options = {"num_heads": HEADS, "num_features": FEATURES, "temperature": TEMPERATURE, "bias": bias}
    model = made(lambda: NodeFormer(spec, DIM, num_layers=2, activation=True, concatenate=True, **options))
    encoder = model.node_encoder.features.linear
    x = F.elu(F.layer_norm(batch.x_dense @ encoder.weight.T + encoder.bias, (DIM,), *model.norms[0].parameters()))
    states = [x]
    for layer, norm in zip(model.layers, model.norms[1:], strict=True):
        new = reference(layer, x, batch, same_graph, layer.projection)
        x = F.elu(F.layer_norm(x + new, (DIM,), *norm.parameters()))
        states.append(x)
    assert model.dim == 3 * DIM
    torch.testing.assert_close(model(batch).node, torch.cat(states, dim=-1), rtol=1e-10, atol=1e-10)


def test_training_averages_over_samples_of_noise(made, batch, same_graph):
    """Sample new directions, then exponential numbers, as the layer does."""
    options = {"num_features": FEATURES, "temperature": TEMPERATURE, "num_samples": SAMPLES, "bias_order": 1}
    layer = made(lambda: GumbelAttention(DIM, HEADS, **options)).train()
    x = torch.randn(batch.num_nodes, DIM, dtype=torch.float64, generator=torch.Generator().manual_seed(1))
    torch.manual_seed(5)
    projection = random_projection(FEATURES, DIM).double()
    noise = -torch.empty(len(x), HEADS, SAMPLES).exponential_().log().double() / TEMPERATURE
    expected = reference(layer, x, batch, same_graph, projection, noise)
    torch.manual_seed(5)
    projection = random_projection(FEATURES, DIM).double()  # as `NodeFormer.precompute` samples it
    edges = hop_edges(hop_pairs(batch, 1), batch.num_nodes, x.dtype)
    found = layer(x, batch, DenseLayout.from_batch(batch), edges, projection)
    torch.testing.assert_close(found, expected, rtol=1e-5, atol=1e-5)  # noise is sampled in float32


def test_strong_noise_stays_finite(batch):
    """At a temperature of 0.02 the factors themselves exceed float32."""
    torch.manual_seed(0)
    layer = GumbelAttention(DIM, HEADS, temperature=0.02, bias_order=0)
    x = torch.randn(batch.num_nodes, DIM, requires_grad=True)
    layer(x, batch, DenseLayout.from_batch(batch), []).sum().backward()
    assert x.grad.isfinite().all()


def test_directions_of_evaluation_are_saved_and_those_of_training_are_new(spec, batch):
    model = NodeFormer(spec, DIM, num_samples=0).double()
    assert any(name.endswith("projection") for name in model.state_dict())
    assert not torch.equal(model(batch).node, model(batch).node)
    model.eval()
    assert torch.equal(model(batch).node, model(batch).node)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"temperature": 0.0}, "temperature must be above 0, but got 0.0"),
        ({"num_samples": -1}, "num_samples must be an integer of at least 0"),
        ({"bias_order": 1.5}, "bias_order must be an integer"),
        ({"bias": "softmax"}, "bias must be one of sigmoid, identity, but got 'softmax'"),
        ({"num_features": 0}, "num_features"),
    ],
)
def test_options_that_do_not_fit_are_refused(spec, options, message):
    with pytest.raises(BadInput, match=message):
        NodeFormer(spec, **options)
