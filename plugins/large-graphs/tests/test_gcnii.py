"""GCNII and GCNII* against dense matrices."""

from __future__ import annotations

import math

import pytest
import torch

from graphbench.errors import BadInput
from graphbench_large_graphs import GCNII

DIM, ALPHA, THETA = 8, 0.2, 0.7


@pytest.mark.parametrize("shared", [True, False])
def test_model_agrees_with_its_equation(made, spec, batch, symmetric, shared):
    model = made(lambda: GCNII(spec, DIM, num_layers=3, alpha=ALPHA, theta=THETA, shared_weights=shared))
    start = x = (batch.x_dense @ model.input_map.weight.T + model.input_map.bias).clamp(min=0)
    identity = torch.eye(DIM, dtype=torch.float64)
    for number, layer in enumerate(model.layers, start=1):
        b = math.log(THETA / number + 1)
        first = (1 - b) * identity + b * layer.weight1
        second = first if shared else (1 - b) * identity + b * layer.weight2
        x = ((1 - ALPHA) * symmetric @ x @ first + ALPHA * start @ second).clamp(min=0)
    torch.testing.assert_close(model(batch).node, x, rtol=1e-11, atol=1e-11)


def test_without_input_map_and_identity_it_is_that_of_the_long_range_graph_benchmark(made, spec, batch, symmetric):
    """Its layers are `ReLU(((1 - a) A x + a x0) W)` on the encoded features."""
    model = made(lambda: GCNII(spec, DIM, num_layers=3, alpha=ALPHA, theta=None, dropout=0.0, input_map=False))
    encoder = model.inputs.features.linear
    start = x = batch.x_dense @ encoder.weight.T + encoder.bias
    for layer in model.layers:
        x = (((1 - ALPHA) * symmetric @ x + ALPHA * start) @ layer.weight1).clamp(min=0)
    assert (start < 0).any()
    torch.testing.assert_close(model(batch).node, x, rtol=1e-11, atol=1e-11)


def test_many_layers_keep_nodes_apart(spec, one_graph):
    """64 layers of the paper's model; with neither the input's share nor the identity all nodes become the same."""
    batch = one_graph(100)
    spread = {}
    for name, options in {"paper": {}, "plain": {"alpha": 0.0, "theta": 1e9}}.items():
        torch.manual_seed(0)
        x = GCNII(spec, DIM, num_layers=64, **options).double().eval()
        node = x(batch.apply(lambda t: t.double() if t.is_floating_point() else t)).node
        node = node / node.norm().clamp(min=1e-300)
        spread[name] = (node - node.mean(0)).norm().item()
    assert spread["paper"] > 10 * spread["plain"]


def test_weight_decay_of_the_layers(spec):
    assert GCNII(spec, DIM, 2).parameter_groups() == ()
    model = GCNII(spec, DIM, 2, layer_weight_decay=0.01)
    (group,) = model.parameter_groups()
    assert group["weight_decay"] == 0.01
    assert {id(p) for p in group["params"]} == {id(p) for p in model.layers.parameters()}


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"alpha": 1.1}, "alpha must be at least 0 and at most 1, but got 1.1"),
        ({"theta": 0.0}, "theta must be above 0 and below inf, but got 0.0"),
        ({"theta": math.inf}, "theta must be above 0 and below inf, but got inf"),
        ({"layer_weight_decay": -0.1}, "layer_weight_decay"),
    ],
)
def test_options_that_do_not_fit_are_refused(spec, options, message):
    with pytest.raises(BadInput, match=message):
        GCNII(spec, **options)
