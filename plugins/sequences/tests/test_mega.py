"""MEGA against its recurrences and equations, document by document."""

from __future__ import annotations

import math

import pytest
import torch
import torch.nn.functional as F

from graphbench.errors import BadInput
from graphbench.nn import DenseLayout
from graphbench_sequences import MEGA
from graphbench_sequences.mega import GatedAttention, MegaLayer, MovingAverage, ScaleNorm, laplace

graph_of = torch.tensor([0] * 5 + [1] + [2] * 9)
LAYOUT = DenseLayout.from_batch(graph_of)
SMALL = {"hidden_dim": 12, "num_layers": 2, "key_dim": 4, "value_dim": 10, "ffn_dim": 14, "num_averages": 3}


def one_side(average, side, x):
    """Return averages `[n, d]` of tokens `[n, d]` in their order."""
    decay, damping = average.decay[side].sigmoid(), average.damping[side].sigmoid()
    state, outputs = torch.zeros_like(decay), []
    for token in x:
        state = decay * average.expansion[side] * token[:, None] + (1 - decay * damping) * state
        outputs.append((average.projection[side] * state).sum(1) / math.sqrt(decay.shape[1]))
    return torch.stack(outputs)


def averaged(average, x):
    y = one_side(average, 0, x) + one_side(average, 1, x.flip(0)).flip(0)
    return F.silu(y + average.skip * x)


def test_averages_are_their_recurrence_from_both_sides(made):
    average = made(lambda: MovingAverage(4, num_averages=3))
    x = torch.randn(15, 4, dtype=torch.float64)
    found = average(x, LAYOUT)
    for graph in range(3):
        own = x[graph_of == graph]
        torch.testing.assert_close(found[graph_of == graph], averaged(average, own), rtol=1e-11, atol=1e-12)


def test_truncated_averages_forget(made):
    average = made(lambda: MovingAverage(4, num_averages=3, truncation=3))
    whole = MovingAverage(4, num_averages=3).double()
    whole.load_state_dict(average.state_dict())
    past, future = average.kernels(9)
    full_past, full_future = whole.kernels(9)
    torch.testing.assert_close(past[:, :3], full_past[:, :3])
    torch.testing.assert_close(future[:, :2], full_future[:, :2])
    assert past[:, 3:].abs().max() == future[:, 2:].abs().max() == 0
    assert past.shape == future.shape == (4, 9)


def expected_attention(layer, x, residual):
    d, z, v_dim, _ = layer.widths
    new = averaged(layer.average, x)
    base = new @ layer.average_map.weight.T + layer.average_map.bias
    gate, shared, r, h = base[:, :d], base[:, d : d + z], base[:, d + z : d + z + v_dim], base[:, d + z + v_dim :]
    q, k = (F.silu(shared) * layer.key_scale[i] + layer.key_shift[i] for i in (0, 1))
    v = F.silu(x @ layer.value_map.weight.T + layer.value_map.bias)
    n, middle = len(x), len(layer.distance_bias) // 2
    logits = torch.empty(n, n, dtype=torch.float64)
    scale = 1 / math.sqrt(z) if layer.attention == "softmax" else 1 / n
    for i in range(n):
        for j in range(n):
            logits[i, j] = q[i] @ k[j] * scale + layer.distance_bias[middle + j - i]
    if layer.attention == "softmax":
        weights = logits.softmax(-1)
    else:
        weights = 0.5 * (1 + torch.erf((logits - math.sqrt(0.5)) / math.sqrt(2 / (4 * math.pi))))
    h = F.silu(h + (F.silu(r) * (weights @ v)) @ layer.out_map.weight.T)
    return gate.sigmoid() * h + (1 - gate.sigmoid()) * residual


@pytest.mark.parametrize("attention", ["softmax", "laplace"])
@pytest.mark.parametrize("position", ["pre", "post"])
def test_layer_agrees_with_its_equations(made, attention, position):
    layer = made(lambda: MegaLayer(6, 7, "layer", position, GatedAttention(6, 4, 5, 3, None, attention, 9)))
    x = torch.randn(15, 6, dtype=torch.float64)
    found = layer(x, LAYOUT)
    for graph in range(3):
        own = x[graph_of == graph]
        first = layer.attention_norm(own) if position == "pre" else own
        mixed = expected_attention(layer.attention, first, own)
        mixed = mixed if position == "pre" else layer.attention_norm(mixed)
        first = layer.ffn_norm(mixed) if position == "pre" else mixed
        out = mixed + layer.contract(F.silu(layer.expand(first)))
        out = out if position == "pre" else layer.ffn_norm(out)
        torch.testing.assert_close(found[graph_of == graph], out, rtol=1e-10, atol=1e-11)


def test_laplace_is_near_the_squared_relu_where_they_meet():
    """Equation 19 chooses mean and deviation so that value and slope agree at x = sqrt(1 / 2)."""
    x = torch.tensor(math.sqrt(0.5), dtype=torch.float64, requires_grad=True)
    laplace(x).backward()
    assert laplace(x).item() == pytest.approx(x.item() ** 2, abs=1e-12)
    assert x.grad.item() == pytest.approx(2 * x.item(), abs=1e-12)


def test_scale_norm_has_rows_of_one_length():
    norm = ScaleNorm().double()
    norm.scale.data.fill_(3)
    large = 100 * torch.randn(5, 8, dtype=torch.float64)
    assert norm(large).norm(dim=1).tolist() == pytest.approx([3 * 8**0.5] * 5, rel=1e-5)


def test_scale_norm_adds_to_mean_squares_what_the_authors_do():
    """It adds 1e-5, so rows of mean square 1e-5 get half the mean square of large ones."""
    norm = ScaleNorm().double()
    small = torch.full((2, 4), 1e-5, dtype=torch.float64).sqrt()
    torch.testing.assert_close(norm(small), torch.full_like(small, 0.5).sqrt(), rtol=1e-12, atol=0)


def test_parameters_are_those_of_the_formula(spec):
    model = MEGA(spec, **SMALL, norm="layer", norm_position="pre")
    d, z, v, f, m, n = 12, 4, 10, 14, 3, spec.max_nodes
    attention = (8 * m + 1) * d + d * v + v + (d + 1) * (2 * d + z + v) + v * d + 4 * z + 2 * n - 1
    layer = attention + 4 * d + 2 * d * f + f + d
    assert sum(parameter.numel() for parameter in model.parameters()) == 5 * d + 2 * layer + 2 * d


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"attention": "relu2"}, "attention must be one of softmax, laplace, but got 'relu2'"),
        ({"norm": "none"}, "norm must be one of batch, layer, scale"),
        ({"norm_position": "both"}, "norm_position must be one of pre, post"),
        ({"truncation": 0}, "truncation must be an integer of at least 1"),
        ({"key_dim": 0}, "key_dim must be"),
        ({"num_averages": 0}, "num_averages must be"),
        ({"max_length": 0}, "max_length must be"),
    ],
)
def test_options_that_do_not_fit_are_refused(spec, options, message):
    with pytest.raises(BadInput, match=message):
        MEGA(spec, **(SMALL | options))
