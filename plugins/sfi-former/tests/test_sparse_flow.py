"""The exact solver against rational arithmetic, quadratic programming, optimality conditions and gradcheck."""

from __future__ import annotations

import sys
from fractions import Fraction

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from quick import slow
from scipy.optimize import LinearConstraint, minimize
from torch.autograd import gradcheck, gradgradcheck

from graphbench.errors import BadInput
from graphbench_sfi_former import sparse_flow
from graphbench_sfi_former.sparse_flow import flow_at, water_level


def attention_rows(*shape: int, logit_scale: float = 1.0, dtype: torch.dtype = torch.float64, seed: int = 0):
    """Return resistances and frictions as in attention: softmax of logits with this standard deviation."""
    generator = torch.Generator().manual_seed(seed)
    logits = torch.randn(2, *shape, generator=generator, dtype=torch.float64) * logit_scale
    return logits.softmax(-1).to(dtype).unbind(0)


def rational_row(resistance: list[float], friction: list[float], penalty: float, alpha: float | None) -> list[float]:
    """The closed form by sorting, in exact arithmetic."""
    r = [Fraction(x) for x in resistance]
    g = [Fraction(penalty) * Fraction(x) for x in friction]
    s0, s1, mu = (Fraction(0) if alpha is None else 1 / Fraction(alpha)), Fraction(1), None
    for i in sorted(range(len(r)), key=lambda i: g[i]):
        if g[i] * s0 >= s1:
            break
        s0, s1 = s0 + 1 / r[i], s1 + g[i] / r[i]
        mu = s1 / s0
    return [0.0 if mu is None else float(max(mu - gi, 0) / ri) for gi, ri in zip(g, r, strict=True)]


def rational_flow(resistance: torch.Tensor, friction: torch.Tensor, penalty: float, alpha: float | None):
    rows = zip(resistance.tolist(), friction.tolist(), strict=True)
    return torch.tensor([rational_row(r, f, penalty, alpha) for r, f in rows], dtype=torch.float64)


def quadratic_programme(r: np.ndarray, f: np.ndarray, penalty: float, alpha: float | None) -> np.ndarray:
    """The energy of one row minimised by scipy over z = p - q with p, q >= 0, so without assuming z >= 0."""
    n = len(r)

    def energy(x: np.ndarray) -> tuple[float, np.ndarray]:
        z = x[:n] - x[n:]
        lack = 0.0 if alpha is None else alpha * (z.sum() - 1)
        slope = r * z + lack
        value = 0.5 * (r * z * z).sum() + penalty * (f * (x[:n] + x[n:])).sum() + 0.5 * lack * (z.sum() - 1)
        return value, np.concatenate([slope + penalty * f, -slope + penalty * f])

    total = LinearConstraint(np.concatenate([np.ones(n), -np.ones(n)]), 1, 1)
    found = minimize(
        energy,
        np.full(2 * n, 1 / n),
        jac=True,
        bounds=[(0, None)] * (2 * n),
        method="SLSQP",
        constraints=[] if alpha is not None else [total],
        options={"ftol": 1e-18, "maxiter": 2000},
    )
    return found.x[:n] - found.x[n:]


@pytest.mark.parametrize("alpha", [None, 0.1, 1.0])
@pytest.mark.parametrize("logit_scale", [1.0, 3.0, 10.0])
@pytest.mark.parametrize(
    ("dtype", "tolerances"),
    [
        (torch.float64, {1.0: 1e-15, 3.0: 1e-14, 10.0: 1e-9}),
        (torch.float32, {1.0: 5e-7, 3.0: 2e-5, 10.0: 5e-2}),
    ],
)
def test_agrees_with_rational_arithmetic(dtype, tolerances, logit_scale, alpha):
    r, f = attention_rows(24, 32, logit_scale=logit_scale, dtype=dtype)
    z = sparse_flow(r, f, 1 / 32, alpha)
    exact = rational_flow(r, f, 1 / 32, alpha)
    assert 0.2 < (exact == 0).double().mean() < 0.95
    assert (z - exact).abs().max() < tolerances[logit_scale]
    torch.testing.assert_close(
        z.sum(-1).double(), exact.sum(-1), rtol=0, atol=1e-6 if dtype == torch.float32 else 1e-12
    )


@pytest.mark.parametrize("alpha", [None, 0.1, 2.0])
@pytest.mark.parametrize("penalty", [0.0, 0.05, 0.5])
def test_agrees_with_scipy(penalty, alpha):
    r, f = attention_rows(4, 8, seed=3)
    z = sparse_flow(r, f, penalty, alpha).numpy()
    expected = np.stack([quadratic_programme(*row, penalty, alpha) for row in zip(r.numpy(), f.numpy(), strict=True)])
    np.testing.assert_allclose(z, expected, rtol=0, atol=1e-6)


@settings(max_examples=60, deadline=None)
@given(
    st.integers(1, 12),
    st.sampled_from([0.0, 1e-6, 0.1, 3.0]),
    st.sampled_from([None, 1e-3, 0.1, 50.0]),
    st.integers(0, 2**31),
)
def test_meets_the_optimality_conditions(num_keys, penalty, alpha, seed):
    generator = torch.Generator().manual_seed(seed)
    r = torch.rand(3, num_keys, generator=generator, dtype=torch.float64) + 1e-3
    # Frictions on a coarse grid: ties and zeros are common.
    f = torch.randint(0, 4, (3, num_keys), generator=generator).double() / 4
    z = sparse_flow(r, f, penalty, alpha)
    toll, active = penalty * f, z > 0
    if alpha is None:
        torch.testing.assert_close(z.sum(-1), torch.ones(3, dtype=torch.float64))
        mu = torch.where(active, r * z + toll, 0.0).amax(-1, keepdim=True)
    else:
        mu = alpha * (1 - z.sum(-1, keepdim=True))
    rounding = 1e-12 * (1 + (alpha or 1.0))
    assert torch.where(active, r * z + toll - mu, 0.0).abs().max() < rounding
    assert torch.where(active, torch.inf, toll - mu).min() > -rounding
    assert z.min() >= 0


def test_without_friction_it_is_softmax_attention():
    generator = torch.Generator().manual_seed(0)
    q, k = torch.randn(2, 2, 3, 9, 8, generator=generator, dtype=torch.float64)
    logits = q @ k.mT / 8**0.5
    resistance, expected = (-logits).softmax(-1), logits.softmax(-1)
    equal = torch.full_like(resistance, 1 / 9)
    for friction, penalty in ((torch.rand_like(resistance), 0.0), (equal, 0.3), (torch.zeros_like(equal), 0.3)):
        torch.testing.assert_close(sparse_flow(resistance, friction, penalty), expected, rtol=0, atol=1e-14)


@pytest.mark.parametrize("alpha", [None, slow(0.1), 1.0])
@pytest.mark.parametrize("penalty", [0.0, slow(0.2), 2.0])
@pytest.mark.parametrize("masked", [False, True])
def test_gradients(penalty, alpha, masked):
    generator = torch.Generator().manual_seed(1)
    log_r, log_f = torch.randn(2, 2, 3, 6, generator=generator, dtype=torch.float64).unbind(0)
    mask = torch.rand(2, 3, 6, generator=generator) < 0.7 if masked else None
    if mask is not None:
        mask[0, 1] = False
    weights = [torch.full((2, 1, 1), x, dtype=torch.float64) for x in (penalty or 1e-3, alpha) if x is not None]

    def flow(log_r, log_f, penalty, alpha=None):
        return sparse_flow(log_r.exp(), log_f.exp(), penalty, alpha, mask)

    inputs = [x.clone().requires_grad_() for x in (log_r, log_f, *weights)]
    assert gradcheck(flow, inputs)


def test_gradient_of_the_penalty_at_zero():
    r, f = attention_rows(5, 7)
    penalty, upstream = torch.zeros((), dtype=torch.float64, requires_grad=True), torch.randn(5, 7, dtype=torch.float64)
    (sparse_flow(r, f, penalty, 0.1) * upstream).sum().backward()
    ahead, here = (sparse_flow(r, f, x, 0.1) for x in (1e-7, 0.0))
    torch.testing.assert_close(penalty.grad, ((ahead - here) * upstream).sum() / 1e-7, rtol=1e-5, atol=0)


def test_scalar_and_per_graph_weights_agree_and_get_their_gradients():
    r, f = attention_rows(3, 2, 5, 8)
    sizes = torch.tensor([4.0, 6.0, 8.0], dtype=torch.float64).view(3, 1, 1, 1)
    penalty = (1 / sizes).requires_grad_()
    alpha = torch.tensor(0.1, dtype=torch.float64, requires_grad=True)
    z = sparse_flow(r, f, penalty, alpha)
    for graph in range(3):
        torch.testing.assert_close(z[graph], sparse_flow(r[graph], f[graph], penalty[graph].item(), 0.1))
    z.square().sum().backward()
    assert penalty.grad.shape == (3, 1, 1, 1)
    assert alpha.grad.shape == ()


@pytest.mark.parametrize("alpha", [None, 0.3])
@pytest.mark.parametrize("masked", [False, True])
def test_second_derivatives(alpha, masked):
    generator = torch.Generator().manual_seed(1)
    log_r, log_f = torch.randn(2, 2, 3, 5, generator=generator, dtype=torch.float64).unbind(0)
    mask = torch.rand(2, 3, 5, generator=generator) < 0.7 if masked else None
    weights = [torch.full((2, 1, 1), x, dtype=torch.float64) for x in (0.2, alpha) if x is not None]

    def flow(log_r, log_f, penalty, alpha=None):
        return sparse_flow(log_r.exp(), log_f.exp(), penalty, alpha, mask)

    assert gradgradcheck(flow, [x.clone().requires_grad_() for x in (log_r, log_f, *weights)])


def test_second_derivatives_of_rows_in_logarithms_are_refused():
    r, f = (x.requires_grad_() for x in attention_rows(8, 24, logit_scale=100))
    (first,) = torch.autograd.grad(sparse_flow(r, f, 0.1).square().sum(), r, create_graph=True)
    with pytest.raises(RuntimeError, match="once_differentiable"):
        first.sum().backward()


def test_rows_are_zero_where_friction_costs_more_than_inflow_is_worth():
    r, f = attention_rows(6, 5)
    worth = 0.1 / f.min()  # of the cheapest key of all; there both are the same, up to rounding
    z = sparse_flow(r, f, worth, 0.1)
    torch.testing.assert_close(z, torch.zeros_like(z), rtol=0, atol=1e-14)
    r.requires_grad_()
    z = sparse_flow(r, f, 1.0001 * worth, 0.1)
    assert torch.equal(z, torch.zeros_like(z))
    z.sum().backward()
    assert torch.equal(r.grad, torch.zeros_like(r))


@pytest.mark.parametrize("alpha", [None, 0.1])
def test_one_key(alpha):
    r, f = torch.full((2, 3, 1), 0.5), torch.full((2, 3, 1), 0.25)
    expected = 1.0 if alpha is None else (0.1 - 0.2 * 0.25) / (0.5 + 0.1)
    torch.testing.assert_close(sparse_flow(r, f, 0.2, alpha), torch.full_like(r, expected))


def test_masked_keys_are_absent_and_may_hold_anything():
    r, f = attention_rows(2, 4, 6, 9)
    mask = torch.rand(2, 1, 6, 9, generator=torch.Generator().manual_seed(0)) < 0.6
    mask[..., 0] = True
    mask[0, 0, 2] = False
    dirty_r = torch.where(mask, r, torch.nan).requires_grad_()
    dirty_f = torch.where(mask, f, torch.inf).requires_grad_()
    penalty = torch.tensor(0.2, dtype=torch.float64, requires_grad=True)
    z = sparse_flow(dirty_r, dirty_f, penalty, 0.1, mask)
    everywhere = mask.expand_as(z)
    assert torch.equal(z[~everywhere], torch.zeros_like(z[~everywhere]))
    for graph, row in ((0, 0), (0, 2), (1, 5)):
        kept = mask[graph, 0, row]
        alone = torch.zeros(4, 1, 0) if not kept.any() else None
        if alone is None:
            alone = sparse_flow(r[graph, :, row : row + 1, kept], f[graph, :, row : row + 1, kept], 0.2, 0.1)
        torch.testing.assert_close(z[graph, :, row, kept], alone[:, 0].to(z), rtol=1e-12, atol=1e-14)
    z.square().sum().backward()
    for gradient in (dirty_r.grad, dirty_f.grad):
        assert torch.equal(gradient[~everywhere], torch.zeros_like(gradient[~everywhere]))
        assert torch.isfinite(gradient).all()
    assert torch.isfinite(penalty.grad)


def test_a_single_matrix_needs_no_leading_dimension():
    r, f = attention_rows(6, 9)
    mask = torch.rand(6, 9, generator=torch.Generator().manual_seed(1)) < 0.7
    for allowed in (None, mask):
        expected = sparse_flow(r[None], f[None], 0.1, 0.1, allowed)[0]
        assert torch.equal(sparse_flow(r, f, 0.1, 0.1, allowed), expected)


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
def test_half_precision_is_solved_in_float32(dtype):
    r, f = attention_rows(4, 16, dtype=dtype)
    z = sparse_flow(r.requires_grad_(), f, 1 / 16, 0.1)
    assert z.dtype == dtype
    assert torch.equal(z, sparse_flow(r.float(), f.float(), 1 / 16, 0.1).to(dtype))
    z.float().square().sum().backward()
    assert r.grad.dtype == dtype


def test_gradients_beyond_half_precision_are_cut():
    r = torch.full((1, 2), 1e-4, dtype=torch.float16, requires_grad=True)
    flow = sparse_flow(r, torch.tensor([[0.0, 0.1]], dtype=torch.float16), 1e-4)
    (flow.float() * torch.tensor([[0.0, 1e3]])).sum().backward()
    assert r.grad.abs().max() == torch.finfo(torch.float16).max


@pytest.mark.parametrize("scale", [1e-30, 1e-12, 1e12, 1e30])
def test_scaling_the_energy_changes_nothing(scale):
    r, f = attention_rows(8, 12, dtype=torch.float32)
    torch.testing.assert_close(sparse_flow(r * scale, f, 0.1 * scale), sparse_flow(r, f, 0.1), rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("alpha", [None, 0.1])
def test_no_flow_takes_a_link_of_infinite_resistance(alpha):
    r, f = attention_rows(4, 6)
    r[1, 2], r[3] = torch.inf, torch.inf
    r.requires_grad_()
    z = sparse_flow(r, f, 0.1, alpha)
    kept = torch.tensor([0, 1, 3, 4, 5])
    assert z[1, 2] == 0
    torch.testing.assert_close(z[1, kept], sparse_flow(r[1:2, kept], f[1:2, kept], 0.1, alpha)[0])
    assert not z[3].any()
    z.square().sum().backward()
    assert torch.isfinite(r.grad).all()


def test_a_tiny_alpha_and_no_rows_at_all():
    r, f = attention_rows(3, 5)
    torch.testing.assert_close(sparse_flow(r, f, 0.0, 1e-40), 1e-40 / r, rtol=1e-12, atol=0)
    assert not sparse_flow(r, f + 1, 1.0, 1e-40).any()
    for shape in ((0, 5), (2, 0, 4)):
        none = torch.empty(shape, requires_grad=True)
        flow = sparse_flow(none, torch.empty(shape), 0.1)
        assert flow.shape == shape
        flow.sum().backward()


def test_zero_resistance_takes_the_flow():
    r = torch.tensor([[0.0, 1.0, 1.0]])
    torch.testing.assert_close(sparse_flow(r, torch.zeros(1, 3), 0.1), torch.tensor([[1.0, 0.0, 0.0]]))


def test_nan_stays_in_its_row():
    r, f = attention_rows(3, 5)
    r[1, 2] = torch.nan
    z = sparse_flow(r, f, 0.1, 0.1)
    assert torch.isnan(z[1]).any()
    assert torch.isfinite(z[[0, 2]]).all()


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"resistance": torch.ones(2, 4)}, "one shape"),
        ({"resistance": torch.ones(3), "friction": torch.ones(3)}, "one shape"),
        ({"resistance": torch.ones(2, 3, dtype=torch.int64)}, "floating-point"),
        ({"resistance": -torch.ones(2, 3)}, "resistance must be positive"),
        ({"friction": -torch.ones(2, 3)}, "friction must be non-negative"),
        ({"friction": torch.full((2, 3), torch.inf)}, "Use mask"),
        ({"penalty": -0.1}, "penalty must be non-negative"),
        ({"penalty": torch.tensor(torch.nan)}, "penalty must be non-negative"),
        ({"penalty": torch.ones(2, 3)}, "one number per matrix"),
        ({"alpha": 0.0}, "alpha must be positive"),
        ({"alpha": torch.tensor(0.0)}, "alpha=None"),
        ({"mask": torch.ones(2, 3)}, "boolean"),
        ({"mask": torch.ones(3, 3, dtype=torch.bool)}, "does not broadcast"),
    ],
)
def test_bad_input_is_named(change, message):
    good = {"resistance": torch.ones(2, 3), "friction": torch.ones(2, 3), "penalty": 0.1, "alpha": 0.1, "mask": None}
    with pytest.raises(BadInput, match=message):
        sparse_flow(**(good | change))


def solve(weight: torch.Tensor, cost: torch.Tensor, slack: torch.Tensor | None):
    """Level, slope and whether it settled, and the flow at this level."""
    slack = torch.zeros_like(cost[:, :1]) if slack is None else slack
    level, slope, settled = water_level(weight, cost, slack)
    return level, slope, settled, flow_at(weight, cost, slack, level)


def test_a_level_of_a_row_that_is_known():
    weight = torch.tensor([[0.25, 0.25, 0.5]], dtype=torch.float64)
    level, slope, settled, flow = solve(weight, torch.tensor([[0.0, 2.0, 10.0]], dtype=torch.float64), None)
    assert level.item() == pytest.approx(3.0, rel=1e-12)  # 0.25 * 3 + 0.25 * 1 = 1
    assert (slope.item(), settled.item()) == (0.5, True)
    assert flow.tolist() == [pytest.approx([0.75, 0.25, 0.0], rel=1e-12)]


def test_the_overflow_takes_its_share():
    weight, cost = torch.tensor([[0.5, 0.5]]), torch.tensor([[1.0, 3.0]])
    level, _, _, flow = solve(weight, cost, torch.tensor([[0.25]]))
    assert level.item() == pytest.approx(2.0)  # 0.5 * 1 + 0.25 * 2 = 1
    assert flow.tolist() == [[0.5, 0.0]]


def test_all_dry_when_the_overflow_is_low():
    level, _, _, flow = solve(torch.tensor([[0.5, 0.5]]), torch.tensor([[5.0, 6.0]]), torch.tensor([[1.0]]))
    assert level.item() == pytest.approx(1.0)
    assert flow.tolist() == [[0.0, 0.0]]


def test_a_level_between_two_neighbouring_numbers_is_one_of_them():
    """Equal costs of 2^24 in float32: the level 2^24 + 1 is no float32."""
    weight, cost = torch.full((3, 4), 0.25), torch.full((3, 4), 2.0**24)
    level, *_ = solve(weight, cost, None)
    assert ((level.double() - (2.0**24 + 1)).abs() <= 1).all()


def test_costs_over_many_orders_of_magnitude():
    generator = torch.Generator().manual_seed(0)
    weight = torch.rand(50, 64, generator=generator, dtype=torch.float64).pow(20)
    weight /= weight.sum(-1, keepdim=True)
    cost = torch.rand(50, 64, generator=generator, dtype=torch.float64).mul(60).sub(30).exp()
    level, _, _, flow = solve(weight, cost, None)
    torch.testing.assert_close(flow.sum(-1), torch.ones(50, dtype=torch.float64), rtol=1e-6, atol=0)
    torch.testing.assert_close(flow, weight * (level - cost).clamp_min(0), rtol=1e-6, atol=0)


def test_devices_that_are_not_asked_make_steps_enough(monkeypatch):
    """The steps for devices that would need a sync settle rows of attention with logits of up to 3."""
    module = sys.modules["graphbench_sfi_former.sparse_flow"]
    monkeypatch.setattr(module, "_STEPS", module._STEPS_UNSEEN)
    for logit_scale in (1.0, 3.0):
        r, f = attention_rows(2000, 128, logit_scale=logit_scale, dtype=torch.float32)
        unit = 1 / r.reciprocal().sum(-1, keepdim=True)
        assert solve(unit / r, f / 128 / unit, unit / 0.1)[2].all()
