"""The promised errors of the fused attention, in every dtype, against many-digit arithmetic on the same numbers.

The promise is that of `sparse_flow_attention`: 2e-2 in float32 and 1e-6 in float64, relative to the greatest entry of
the tensor, or with tied keys, where terms of gradients cancel, to the greatest sum of the sizes of an entry's terms.
"""

from __future__ import annotations

import math

import pytest
import torch
from mpmath import mp, mpf
from quick import slow

from graphbench_sfi_former import sparse_flow, sparse_flow_attention, sparse_flow_weights

NAMES = ("query", "key", "friction_query", "friction_key", "value")
PROMISE = {torch.float32: 2e-2, torch.float64: 1e-6}
#: Standard deviation of the logits, keys, tied pairs of keys.
SWEEP = [
    (1, 7, 0),
    (1, 1, 0),
    (10, 2, 0),
    slow(10, 24, 8),
    slow(50, 24, 0),
    (100, 12, 4),
    slow(200, 24, 0),
    (200, 24, 8),
    slow(100, 64, 9),
]


def operands(std, num_keys, ties=0, dtype=torch.float64, seed=0, num_rows=5, width=4):
    """Q, K, Q~, K~, V and an upstream gradient; of each second tied pair all but the values are equal."""
    generator = torch.Generator().manual_seed(seed)
    shapes = ((num_rows, width), (num_keys, width), (num_rows, width), (num_keys, width), (num_keys, 3), (num_rows, 3))
    parts = [torch.randn(s, generator=generator, dtype=torch.float64) for s in shapes]
    parts[0] *= std
    parts[2] *= std
    for i in range(ties):
        parts[3][-1 - i] = parts[3][i]
        if i % 2:
            parts[1][-1 - i] = parts[1][i]
    parts = [x.to(dtype) for x in parts]
    return parts[:5], parts[5]


def computed(parts, upstream, penalty, alpha, mask, **options):
    """Output and gradients by name."""
    leaves = {name: x.clone().requires_grad_() for name, x in zip(NAMES, parts, strict=True)}
    leaves["penalty"] = torch.tensor(penalty, dtype=torch.float64, requires_grad=True)
    if alpha is not None:
        leaves["alpha"] = torch.tensor(alpha, dtype=torch.float64, requires_grad=True)
    output = sparse_flow_attention(
        *(leaves[name] for name in NAMES), leaves["penalty"], leaves.get("alpha"), mask, **options
    )
    gradients = torch.autograd.grad((output * upstream).sum(), list(leaves.values()))
    return {"output": output.detach(), **dict(zip(leaves, gradients, strict=True))}


def random_mask(num_rows, num_keys):
    mask = torch.rand(num_rows, num_keys, generator=torch.Generator().manual_seed(9)) < 0.7
    mask[-1] = False
    return mask


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize(("std", "num_keys", "ties"), SWEEP)
def test_errors_are_within_the_promise(many_digits, std, num_keys, ties, dtype):
    limits = torch.finfo(dtype)
    for seed, alpha in enumerate((None, 1e-3, 0.1)):
        parts, upstream = operands(std, num_keys, ties, dtype, seed, num_rows=3)
        mask = random_mask(3, num_keys) if seed == 1 else None
        got = computed(parts, upstream, 1 / num_keys, alpha, mask)
        truth = many_digits(max(60, 12 * std)).attention(parts, upstream, 1 / num_keys, alpha, mask)
        for name, values in got.items():
            assert torch.isfinite(values).all(), name
            if limits.tiny * 1e6 < truth.size(name) < limits.max / 1e6:  # what the dtype can hold
                assert truth.error(name, values, natural=ties > 0) < PROMISE[dtype], (name, seed)
            elif truth.size(name) <= limits.tiny * 1e6:
                vanished = values.abs().max() <= limits.tiny * 1e6
                assert vanished or truth.error(name, values, natural=True) < PROMISE[dtype], (name, seed)


def test_typical_errors_are_far_smaller(many_digits):
    for std in (1, 200):
        for dtype, bound in ((torch.float32, 1e-5), (torch.float64, 1e-11)):
            parts, upstream = operands(std, 24, dtype=dtype, seed=3, num_rows=2)
            got = computed(parts, upstream, 1 / 24, 0.1, None)
            truth = many_digits(12 * std + 60).attention(parts, upstream, 1 / 24, 0.1)
            assert truth.error("output", got["output"]) < bound
            assert truth.error("query", got["query"]) < bound


@pytest.mark.parametrize("std", [1e3, 1e4, 1e8])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.bfloat16])
def test_beyond_the_promise_all_is_finite_and_flows_are_flows(std, dtype):
    for ties in (0, 6):
        parts, upstream = operands(std, 16, ties, dtype, num_rows=16)
        got = computed(parts, upstream, 1 / 16, 0.1, None)
        assert all(torch.isfinite(values).all() for values in got.values())
        flow = sparse_flow_weights(*parts[:4], 1 / 16)
        assert flow.min() >= 0
        torch.testing.assert_close(flow.sum(-1), torch.ones_like(flow.sum(-1)))


def test_the_flow_goes_on_being_right_at_logits_of_a_thousand(many_digits):
    parts, upstream = operands(1e3, 8, dtype=torch.float32, num_rows=1)
    got = computed(parts, upstream, 1 / 12, None, None)
    truth = many_digits(9000).attention(parts, upstream, 1 / 12)
    assert truth.error("output", got["output"]) < 1e-5
    assert truth.error("value", got["value"]) < 1e-5


def test_the_reference_agrees_with_differences_of_itself(many_digits):
    """Compare derivatives of the many-digit formula with a difference of 1e-150, at logits of standard deviation 50."""
    parts, upstream = operands(50, 6, num_rows=1)
    reference = many_digits(600)
    truth = reference.attention(parts, upstream, 0.2, 0.1)
    with mp.workdps(600):
        step = mpf(10) ** -150

        def loss(penalty, alpha):
            query, key, friction_query, friction_key, value = ([[mpf(x) for x in r] for r in p.tolist()] for p in parts)
            r = _powers([-mp.fdot(query[0], k) / 2 for k in key])
            f = _powers([mp.fdot(friction_query[0], k) / 2 for k in friction_key])
            flow = reference.row(r, f, penalty, alpha)[0]
            up = [mpf(x) for x in upstream[0].tolist()]
            return mp.fsum(z * mp.fdot(up, v) for z, v in zip(flow, value, strict=True))

        here, penalty, alpha = loss(mpf(0.2), mpf(0.1)), mpf(0.2), mpf(0.1)
        of_penalty, of_alpha = (loss(penalty + step, alpha) - here) / step, (loss(penalty, alpha + step) - here) / step
        assert abs(truth.values["penalty"][0][0] - of_penalty) <= abs(of_penalty) * mpf(10) ** -40
        assert abs(truth.values["alpha"][0][0] - of_alpha) <= abs(of_alpha) * mpf(10) ** -40


def _powers(logits):
    powers = [mp.exp(x) for x in logits]
    return [x / mp.fsum(powers) for x in powers]


def test_gradients_of_all_operands_against_differences(many_digits):
    """Float64 gradients at logits of standard deviation 30 against central differences of the many-digit output."""
    parts, upstream = operands(30, 4, num_rows=2, seed=4)
    got = computed(parts, upstream, 0.25, 0.1, None)
    for which, name in enumerate(NAMES):
        shifted = []
        for sign in (1, -1):
            moved = [x.clone() for x in parts]
            moved[which][0, 0] += sign * 2.0**-26
            shifted.append(many_digits(400).attention(moved, upstream, 0.25, 0.1).values["output"])
        change = [[a - b for a, b in zip(*rows, strict=True)] for rows in zip(*shifted, strict=True)]
        by_difference = sum(
            float(c * mpf(u))
            for r, ur in zip(change, upstream.tolist(), strict=True)
            for c, u in zip(r, ur, strict=True)
        )
        by_difference /= 2.0**-25
        scale = float(got[name].abs().max())
        assert math.isclose(float(got[name][0, 0]), by_difference, rel_tol=1e-4, abs_tol=1e-5 * scale + 1e-9)


def test_bfloat16_is_computed_in_float32():
    parts, upstream = operands(50, 16, dtype=torch.bfloat16, num_rows=16)
    half = computed(parts, upstream, 1 / 16, 0.1, None)
    single = computed([x.float() for x in parts], upstream.float(), 1 / 16, 0.1, None)
    for name in ("output", *NAMES):
        assert torch.equal(half[name], single[name].to(torch.bfloat16))


def test_the_composed_form_agrees_where_softmax_can_hold_the_resistances(many_digits):
    parts, upstream = operands(30, 24)
    got = computed(parts, upstream, 1 / 24, 0.1, None, solver=sparse_flow)
    truth = many_digits(500).attention(parts, upstream, 1 / 24, 0.1)
    for name in ("output", "value", "query"):
        assert truth.error(name, got[name]) < 1e-6


def test_operands_need_not_lie_in_one_piece(many_digits):
    """Heads of a layer are strided views; steep rows are put into their places among others."""
    parts, upstream = operands(50, 16, num_rows=16)
    both = [torch.stack((x, x * 0.1), 1).transpose(0, 1) for x in parts]
    assert not both[0].is_contiguous()
    together = computed(both, upstream, 1 / 16, 0.1, None)
    for head, own in enumerate((parts, [x * 0.1 for x in parts])):
        alone = computed(own, upstream, 1 / 16, 0.1, None)
        for name in ("output", *NAMES):
            assert torch.equal(together[name][head], alone[name])


def test_identical_keys_get_identical_flows_and_derivatives():
    """Keys are equal in all but two groups, as in a first layer on categorical features; dropout distinguishes them."""
    torch.manual_seed(0)
    kinds = [torch.randn(3, 8) for _ in range(5)]
    kinds[0], kinds[2] = kinds[0] * 200, kinds[2] * 200
    which = torch.randint(3, (30,), generator=torch.Generator().manual_seed(0))
    parts = [x[which] for x in kinds]
    flow = sparse_flow_weights(*parts[:4], 1 / 30, 0.1)
    for kind in range(3):
        same = flow[:, which == kind]
        assert torch.equal(same, same[:, :1].expand_as(same))
    got = computed(parts, torch.randn(30, 8), 1 / 30, 0.1, None)
    for name in NAMES:
        assert torch.isfinite(got[name]).all()
    # Keys of one kind have equal derivatives, because nothing distinguishes them, so no derivative is large.
    assert got["friction_key"].abs().max() < 100


@pytest.mark.parametrize("alpha", [None, 0.5])
@pytest.mark.parametrize(("dtype", "spread"), [(torch.float32, 40.0), (torch.float32, 86.0), (torch.float64, 700.0)])
def test_gradients_of_rows_that_are_solved_apart(dtype, spread, alpha):
    """Of r = softmax(-s) and equal frictions f the flow is (1 - penalty f / alpha) / (1 + unit / alpha) softmax(s)."""
    generator = torch.Generator().manual_seed(0)
    scores = torch.rand(2, 3, 6, generator=generator, dtype=torch.float64)
    low, high = scores.amin(-1, keepdim=True), scores.amax(-1, keepdim=True)
    scores = (spread * (scores - low) / (high - low)).to(dtype)
    upstream = torch.randn(2, 3, 6, generator=generator, dtype=torch.float64)
    exact = scores.double().requires_grad_()
    slack = 0.0 if alpha is None else 1 / alpha
    unit = (-exact.logsumexp(-1, keepdim=True) - (-exact).logsumexp(-1, keepdim=True)).exp()
    expected = (1 - 0.3 / 6 * slack) / (1 + slack * unit) * exact.softmax(-1)
    (wanted,) = torch.autograd.grad(expected, exact, upstream)
    given = scores.clone().requires_grad_()
    flow = sparse_flow((-given).softmax(-1), torch.full_like(given, 1 / 6), 0.3, alpha)
    (found,) = torch.autograd.grad(flow, given, upstream.to(dtype))
    tolerance = {"rtol": 1e-5, "atol": 1e-6} if dtype == torch.float32 else {"rtol": 1e-11, "atol": 1e-12}
    torch.testing.assert_close(flow.double(), expected, **tolerance)
    torch.testing.assert_close(found.double(), wanted, **tolerance)
