"""S4D against the recurrence that its kernel sums, token by token."""

from __future__ import annotations

import math

import pytest
import torch
import torch.nn.functional as F

from graphbench.errors import BadInput
from graphbench.nn import DenseLayout
from graphbench_sequences import S4D
from graphbench_sequences.s4d import DiagonalKernel, S4DLayer, diagonal, long_convolution

graph_of = torch.tensor([0] * 5 + [1] + [2] * 9)


def recurrence(kernel, u, number=0):
    """Outputs `[n, C]` of inputs `[n, C]` through one of the read-outs: state after state."""
    step, states = kernel.log_step.exp(), torch.complex(-kernel.log_decay.exp(), kernel.frequency)
    readout = torch.view_as_complex(kernel.readout[number])
    factor = (step[:, None] * states).exp()
    weight = (factor - 1) / states
    state, outputs = torch.zeros_like(states), []
    for value in u:
        state = factor * state + weight * value[:, None]
        outputs.append(2 * (readout * state).sum(1).real)
    return torch.stack(outputs)


@pytest.mark.parametrize("length", [0, 40, 64, 65, 300])
@pytest.mark.parametrize("init", ["lin", "inv"])
def test_kernel_is_the_answer_of_the_recurrence_to_an_impulse(made, init, length):
    kernel = made(lambda: DiagonalKernel(3, num_states=6, init=init, num_readouts=2))
    impulse = torch.zeros(length, 3, dtype=torch.float64)
    impulse[:1] = 1
    found = kernel(length)
    assert found.shape == (2, 3, length)
    if not length:
        return
    for number in range(2):
        torch.testing.assert_close(found[number], recurrence(kernel, impulse, number).T, rtol=1e-11, atol=1e-12)


def test_backward_keeps_no_power_of_a_state_for_every_place(made):
    """These would be 16 times the kernels with S = 64: a gigabyte for 8,192 tokens and 256 channels."""
    kernel, length, saved = made(lambda: DiagonalKernel(3, num_states=64, num_readouts=2)), 4096, []
    with torch.autograd.graph.saved_tensors_hooks(lambda x: saved.append(x.numel()) or x, lambda x: x):
        kernel(length).sum().backward()
    assert max(saved) < 3 * 2 * length


@pytest.mark.parametrize("position", ["pre", "post"])
@pytest.mark.parametrize("both", [True, False])
def test_layer_is_the_recurrence_from_one_side_or_both(made, position, both):
    layer = made(lambda: S4DLayer(4, "layer", position, bidirectional=both, num_states=6))
    x = torch.randn(15, 4, dtype=torch.float64)
    found = layer(x, DenseLayout.from_batch(graph_of))
    for graph in range(3):
        own = x[graph_of == graph]
        u = layer.norm(own) if position == "pre" else own
        y = recurrence(layer.kernel, u) + layer.skip * u
        if both:  # the same states from the other side, starting with the next token
            later = recurrence(layer.kernel, u.flip(0), 1).flip(0)
            y = y + torch.cat([later[1:], torch.zeros_like(later[:1])])
        gate, value = (F.gelu(y) @ layer.out_map.weight.T + layer.out_map.bias).chunk(2, dim=-1)
        expected = own + gate * value.sigmoid()
        expected = expected if position == "pre" else layer.norm(expected)
        torch.testing.assert_close(found[graph_of == graph], expected, rtol=1e-10, atol=1e-11)


@pytest.mark.parametrize(("both", "directions"), [(True, 2), (False, 1)])
def test_directions_share_states_and_steps_and_have_read_outs_of_their_own(both, directions):
    """As in `FFTConv` of the released code, which computes one kernel with twice as many channels."""
    layer = S4DLayer(4, "none", bidirectional=both, num_states=6)
    shapes = {name: tuple(parameter.shape) for name, parameter in layer.kernel.named_parameters()}
    assert shapes == {"log_step": (4,), "log_decay": (4, 3), "frequency": (4, 3), "readout": (directions, 4, 3, 2)}
    if both:
        assert not torch.equal(*layer.kernel.readout)


def test_states_begin_as_published():
    assert diagonal("lin", 8).imag.tolist() == pytest.approx([0, math.pi, 2 * math.pi, 3 * math.pi])
    assert diagonal("inv", 8).imag.tolist() == pytest.approx([8 / math.pi * (8 / k - 1) for k in (1, 3, 5, 7)])
    assert (diagonal("inv", 8).real == -0.5).all()


def test_steps_begin_within_their_range():
    torch.manual_seed(0)
    step = DiagonalKernel(2_000, num_states=2, step_min=0.01, step_max=0.2).log_step.detach().exp()
    assert 0.01 <= step.min() < 0.011
    assert 0.18 < step.max() <= 0.2
    assert step.log().mean() == pytest.approx(math.log(0.01 * 0.2) / 2, abs=0.1)


def test_tokens_from_one_side_see_none_behind_them(made):
    layer = made(lambda: S4DLayer(4, "none", bidirectional=False, num_states=6))
    x, layout = torch.randn(15, 4, dtype=torch.float64), DenseLayout.from_batch(torch.zeros(15, dtype=torch.long))
    before = layer(x, layout)
    x[9] += 1
    moved = (layer(x, layout) - before).abs().amax(1)
    assert moved[:9].max() < 1e-13
    assert moved[9:].min() > 1e-9


def test_states_and_steps_have_rates_of_their_own(spec):
    model = S4D(spec, hidden_dim=8, num_layers=2, num_states=4, state_lr_scale=0.1, step_lr_scale=0.5)
    states, steps = model.parameter_groups()
    assert (states["lr_scale"], steps["lr_scale"]) == (0.1, 0.5)
    assert states["weight_decay"] == steps["weight_decay"] == 0.0
    assert (len(states["params"]), len(steps["params"])) == (2 * 2, 2)
    named = {id(parameter): name for name, parameter in model.named_parameters()}
    assert {named[id(parameter)].rpartition(".")[2] for parameter in states["params"]} == {"log_decay", "frequency"}
    assert {named[id(parameter)].rpartition(".")[2] for parameter in steps["params"]} == {"log_step"}


def test_parameters_are_those_of_the_formula(spec):
    c, s = 12, 4
    model = S4D(spec, hidden_dim=c, num_layers=3, num_states=s)
    layer = c * (s + 1) + 2 * c * s + c + 2 * c * c + 2 * c + 2 * c  # states and steps, read-outs, D, W and b, norm
    assert sum(parameter.numel() for parameter in model.parameters()) == 5 * c + 3 * layer + 2 * c


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"num_states": 5}, "num_states must be even, for conjugate pairs, but got 5"),
        ({"num_states": 0}, "num_states must be an integer of at least 2"),
        ({"init": "legs"}, "init must be one of lin, inv, but got 'legs'"),
        ({"norm_position": "both"}, "norm_position must be one of pre, post"),
        ({"step_min": 0.2, "step_max": 0.1}, "step_max must be at least 0.2 and below inf, but got 0.1"),
        ({"step_max": math.inf}, "step_max must be at least 0.001 and below inf, but got inf"),
        ({"step_min": math.inf, "step_max": math.inf}, "step_min must be above 0 and below inf, but got inf"),
        ({"state_lr_scale": 0.0}, "state_lr_scale must be above 0"),
        ({"state_lr_scale": math.inf}, "state_lr_scale must be above 0 and below inf, but got inf"),
        ({"step_lr_scale": math.inf}, "step_lr_scale must be above 0 and below inf, but got inf"),
    ],
)
def test_options_that_do_not_fit_are_refused(spec, options, message):
    with pytest.raises(BadInput, match=message):
        S4D(spec, hidden_dim=8, num_layers=1, **options)


@pytest.mark.parametrize("length", [1, 2, 7, 16])
@pytest.mark.parametrize("both", [False, True])
def test_it_is_the_sum_over_pairs_of_tokens(length, both):
    generator = torch.Generator().manual_seed(length)
    x, past, future = (
        torch.randn(shape, generator=generator, dtype=torch.float64)
        for shape in ((2, length, 3), (3, length), (3, length))
    )
    found = long_convolution(x, past, future if both else None)
    expected = torch.zeros_like(x)
    for i in range(length):
        for j in range(length):
            if j <= i:
                expected[:, i] += past[:, i - j] * x[:, j]
            elif both:
                expected[:, i] += future[:, j - i - 1] * x[:, j]
    torch.testing.assert_close(found, expected, rtol=1e-12, atol=1e-12)


def test_no_tokens_are_no_tokens():
    assert long_convolution(torch.zeros(2, 0, 3), torch.zeros(3, 0)).shape == (2, 0, 3)
