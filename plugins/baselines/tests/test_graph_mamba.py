"""Graph-Mamba: the order in which nodes are read, buckets, evaluation, and the shipped configurations."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest
import torch

from graphbench.errors import BadInput
from graphbench.nn import DenseLayout
from graphbench_baselines import GraphMamba
from graphbench_baselines import graph_mamba as mamba
from graphbench_baselines.gps import fixed_uniforms
from graphbench_baselines.graph_mamba import MambaBlock, MambaBranch, linear_recurrence, selective_scan

DIM = 8
NAMES = sorted(path.stem for path in (Path(__file__).parents[1] / "configs" / "graphmamba").glob("*.yaml"))


def make(num_orders, num_buckets):
    torch.manual_seed(0)
    return MambaBranch(DIM, num_orders, num_buckets, seed=3).double().eval()


def features(batch):
    return torch.randn(batch.num_nodes, DIM, dtype=torch.float64, generator=torch.Generator().manual_seed(1))


@pytest.mark.parametrize(("num_orders", "num_buckets"), [(1, 1), (3, 1), (2, 3)])
def test_nodes_are_read_by_degree_graph_by_graph(batch, num_orders, num_buckets):
    """Each bucket of each graph is a separate sequence; evaluation is the mean over the orders."""
    branch, x = make(num_orders, num_buckets), features(batch)
    leaving = [int((batch.edge_index[0] == node).sum()) for node in range(len(x))]
    numbers = fixed_uniforms(batch.max_nodes, 2 * num_orders, seed=3)
    expected = torch.zeros_like(x)
    for order in range(num_orders):
        noise, choice = numbers[:, 2 * order], numbers[:, 2 * order + 1]
        for graph in range(batch.num_graphs):
            start, stop = batch.ptr[graph].item(), batch.ptr[graph + 1].item()
            for bucket in range(num_buckets):
                members = [i for i in range(start, stop) if int(choice[i - start] * num_buckets) == bucket]
                members.sort(key=lambda i: leaving[i] + noise[i - start].item())
                if members:
                    expected[members] += branch.mamba(x[members][None])[0] / num_orders
    found = branch(x, batch, DenseLayout.from_batch(batch))
    torch.testing.assert_close(found, expected, atol=1e-10, rtol=1e-10)


def test_training_samples_orders_and_evaluation_does_not(batch):
    branch, x, layout = make(5, 3), features(batch), DenseLayout.from_batch(batch)
    assert torch.equal(branch(x, batch, layout), branch(x, batch, layout))
    branch.train()
    torch.manual_seed(0)
    first, second = branch(x, batch, layout), branch(x, batch, layout)
    assert not torch.allclose(first, second)
    torch.manual_seed(0)
    assert torch.equal(first, branch(x, batch, layout))


def test_layers_take_other_orders(spec):
    assert [layer.attention.seed for layer in GraphMamba(spec, num_layers=3).layers] == [0, 1, 2]


@pytest.mark.parametrize("name", NAMES)
def test_configurations_have_the_parameters_they_expect(recipe, name):
    found = recipe(f"graphmamba/{name}")
    assert found.config["expected"]["parameters"] == found.parameters


@pytest.mark.parametrize("option", ["num_orders", "num_buckets", "num_layers"])
def test_options_below_one_are_refused(spec, option):
    with pytest.raises(BadInput, match=option):
        GraphMamba(spec, **{option: 0})


LENGTHS = (1, 2, 3, 4, 5, 8, 13, 64)


def numbers(*shape, seed=0, low=-2.0, high=2.0):
    generator = torch.Generator().manual_seed(seed)
    return torch.rand(*shape, dtype=torch.float64, generator=generator) * (high - low) + low


def one_by_one(decay, inputs):
    state, states = torch.zeros_like(inputs[:, 0]), []
    for position in range(inputs.shape[1]):
        state = decay[:, position] * state + inputs[:, position]
        states.append(state)
    return torch.stack(states, dim=1)


@pytest.mark.parametrize("length", LENGTHS)
def test_the_recurrence_is_that_of_a_loop(length):
    """Any sign, zeros, and decays above one."""
    decay, inputs = numbers(2, length, 3), numbers(2, length, 3, seed=1)
    decay[0, length // 2] = 0.0
    torch.testing.assert_close(linear_recurrence(decay, inputs), one_by_one(decay, inputs), atol=1e-9, rtol=1e-9)


def test_gradients_of_the_recurrence_are_those_of_differences():
    for length in (1, 2, 5, 6):
        decay, inputs = (numbers(2, length, 2, seed=seed).requires_grad_() for seed in (2, 3))
        assert torch.autograd.gradcheck(linear_recurrence, (decay, inputs))
        assert torch.autograd.gradgradcheck(linear_recurrence, (decay, inputs))


@pytest.mark.parametrize("length", LENGTHS)
def test_programs_know_what_the_recurrence_returns(length):
    """Any memory order is allowed: the backward pass flips tensors."""
    decay, inputs = numbers(2, length, 3), numbers(length, 2, 3, seed=1).transpose(0, 1)
    operation = torch.ops.graphbench_baselines.linear_recurrence.default
    checks = ("test_schema", "test_faketensor")
    passed = torch.library.opcheck(operation, (decay, inputs), test_utils=checks)
    assert passed == dict.fromkeys(checks, "SUCCESS")


def test_long_sequences_with_strong_decay_stay_exact():
    """Products of all decays are far below the smallest float32, but no ratio of them is computed."""
    decay, inputs = numbers(1, 2000, 4, low=0.0, high=0.5), numbers(1, 2000, 4, seed=1)
    expected = one_by_one(decay, inputs)
    found = linear_recurrence(decay.float(), inputs.float()).double()
    torch.testing.assert_close(found, expected, atol=1e-5, rtol=1e-5)


@pytest.fixture
def block():
    torch.manual_seed(0)
    return MambaBlock(20, state_dim=3, conv_width=4, expand=2).double()


def test_a_block_agrees_with_its_equations_position_by_position(block):
    x = numbers(2, 7, 20)
    expected = torch.zeros_like(x)
    for sequence in range(2):
        uz = x[sequence] @ block.in_proj.weight.T
        u, z = uz[:, :40], uz[:, 40:]
        state = torch.zeros(40, 3, dtype=torch.float64)
        for position in range(7):
            summed = block.conv1d.bias.clone()
            for back in range(4):
                if position - back >= 0:
                    summed = summed + block.conv1d.weight[:, 0, 3 - back] * u[position - back]
            channel = summed * summed.sigmoid()
            projected = block.x_proj.weight @ channel
            step, b, c = projected[:2], projected[2:5], projected[5:]
            delta = (1 + (block.dt_proj.weight @ step + block.dt_proj.bias).exp()).log()
            for d in range(40):
                for s in range(3):
                    decay = (-delta[d] * block.A_log[d, s].exp()).exp()
                    state[d, s] = decay * state[d, s].clone() + delta[d] * channel[d] * b[s]
            y = state @ c + block.D * channel
            gate = z[position]
            expected[sequence, position] = block.out_proj.weight @ (y * gate * gate.sigmoid())
    torch.testing.assert_close(block(x), expected, atol=1e-10, rtol=1e-10)


@pytest.mark.parametrize("length", [1, 2, 3, 4, 9])
def test_programs_compute_the_convolution_of_the_block(block, length, monkeypatch):
    x = numbers(2, length, 20)
    expected = block(x)
    monkeypatch.setattr(mamba, "in_program", lambda: True)
    torch.testing.assert_close(block(x), expected, atol=1e-12, rtol=1e-12)


def test_what_comes_later_changes_nothing(block):
    x = numbers(1, 9, 20)
    changed = x.clone()
    changed[:, 5:] += 1
    torch.testing.assert_close(block(changed)[:, :5], block(x)[:, :5], atol=1e-12, rtol=1e-12)


def test_initial_values_are_those_of_the_authors():
    torch.manual_seed(0)
    made = MambaBlock(64, state_dim=16)
    steps = torch.nn.functional.softplus(made.dt_proj.bias)
    assert steps.min() > 1e-3 * 0.999
    assert steps.max() < 0.1 * 1.001
    torch.testing.assert_close(made.A_log.exp(), torch.arange(1.0, 17).expand(64, 16))
    assert made.dt_proj.weight.abs().max() <= 0.5  # the rank is 4
    assert set(dict(made.named_parameters())) == {
        "A_log", "D", "in_proj.weight", "conv1d.weight", "conv1d.bias", "x_proj.weight", "dt_proj.weight",
        "dt_proj.bias", "out_proj.weight",
    }  # fmt: skip
    # 3 e d + e (w + 1) + e (R + 2 S) + (R + 1) e + e S + e for e = d = 64, R = 4
    assert sum(p.numel() for p in made.parameters()) == 3 * 64**2 + 64 * (5 + 36 + 5 + 16 + 1)


def test_the_fused_kernel_gets_channels_first_and_gives_the_same(block, monkeypatch):
    shapes = []

    def kernel(u, delta, a, b, c, d):
        shapes.append([tuple(part.shape) for part in (u, delta, a, b, c, d)])
        assert all(part.is_contiguous() for part in (u, delta, b, c))
        u, delta, b, c = (part.transpose(1, 2) for part in (u, delta, b, c))
        states = one_by_one((delta[..., None] * a).exp(), (delta * u)[..., None] * b[:, :, None])
        return ((states * c[:, :, None]).sum(-1) + d * u).transpose(1, 2)

    x = numbers(2, 6, 20)
    expected = block(x)
    monkeypatch.setattr(mamba, "_kernel_for", lambda u: kernel)
    torch.testing.assert_close(block(x), expected, atol=1e-10, rtol=1e-10)
    assert shapes == [[(2, 40, 6), (2, 40, 6), (40, 3), (2, 3, 6), (2, 3, 6), (40,)]]


@pytest.fixture
def fresh():
    """Hide the package `mamba_ssm` before and after."""

    def forget():
        for name in [name for name in sys.modules if name.split(".")[0] == "mamba_ssm"]:
            del sys.modules[name]
        mamba._fused.cache_clear()

    forget()
    yield
    forget()


def test_without_the_package_there_is_no_kernel(fresh, monkeypatch):
    monkeypatch.setattr(mamba, "find_spec", lambda name: None)
    assert mamba._fused() is None


def test_the_kernel_is_that_of_the_installed_package(fresh, tmp_path, monkeypatch):
    folder = tmp_path / "mamba_ssm" / "ops"
    folder.mkdir(parents=True)
    for place in (folder.parent, folder):
        (place / "__init__.py").write_text("")
    (folder / "selective_scan_interface.py").write_text("def selective_scan_fn(*args): return 'fused'\n")
    monkeypatch.syspath_prepend(str(tmp_path))
    assert mamba._fused()() == "fused"


def test_on_a_cpu_no_kernel_is_asked_for():
    assert mamba._kernel_for(torch.zeros(1)) is None


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
def test_a_scan_is_computed_in_float32_under_autocast(dtype):
    """As by the fused kernel, also if the states are above the largest number of float16."""
    torch.manual_seed(0)
    u, delta, b, c = 1e5 * torch.randn(2, 9, 4), torch.rand(2, 9, 4), torch.randn(2, 9, 3), torch.randn(2, 9, 3)
    a, d = -torch.arange(1.0, 4).repeat(4, 1), torch.ones(4)
    exact = selective_scan(*(part.double() for part in (u, delta, a, b, c, d)))
    with torch.autocast("cpu", dtype=dtype):
        found = selective_scan(u, delta, a, b, c, d)
    torch.testing.assert_close(found.double(), exact, rtol=1e-5, atol=1e-5 * float(exact.abs().max()))


def test_a_scan_without_decay_is_a_running_sum():
    u = numbers(1, 5, 2)
    ones = torch.ones(1, 5, 1, dtype=torch.float64)
    y = selective_scan(u, torch.ones_like(u), torch.zeros(2, 1).double(), ones, ones, torch.zeros(2).double())
    torch.testing.assert_close(y, u.cumsum(1))
