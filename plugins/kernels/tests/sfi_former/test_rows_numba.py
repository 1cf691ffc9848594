"""The kernels in Numba against the plain form on the same rows, and against float64."""

from __future__ import annotations

import math

import pytest
import torch

from graphbench.contracts.kernels import plain_form, runs_numba
from graphbench.testing import computed_by
from graphbench_kernels.sfi_former import operations
from graphbench_sfi_former import sparse_flow_attention

pytestmark = pytest.mark.skipif(not runs_numba(torch.zeros(1)), reason="kernels in Numba do not run here")

NAMES = ("query", "key", "friction_query", "friction_key", "value", "penalty", "alpha")
#: Errors relative to the greatest entry of a tensor, for logits of standard deviation 1.
ERRORS = {torch.float32: 3e-5, torch.float64: 1e-11}


def operands(num_keys, dtype, std=1.0, num_rows=9, alpha=0.1, ties=False, seed=0):
    """Q, K, Q~, K~ and V `[2, 3, N or K, 5]`, penalty and alpha of each matrix `[2, 3, 1, 1]`."""
    generator = torch.Generator().manual_seed(seed)
    lengths = (num_rows, num_keys, num_rows, num_keys, num_keys)
    parts = [torch.randn(2, 3, n, 5, generator=generator, dtype=torch.float64) for n in lengths]
    parts[0], parts[2] = parts[0] * std, parts[2] * std
    if ties:
        parts[3][..., num_keys // 2 :, :] = parts[3][..., :1, :]
    penalty = torch.rand(2, 3, 1, 1, generator=generator, dtype=torch.float64) * 2 / num_keys
    weights = [penalty, None if alpha is None else alpha * (1 + penalty)]
    return [x.to(dtype) for x in parts] + weights


def random_mask(kind, num_rows, num_keys):
    """Masks per row with a row without keys, masks per graph with a graph without keys, or none."""
    if kind is None:
        return None
    shape = (2, 1, num_rows, num_keys) if kind == "rows" else (2, 1, 1, num_keys)
    mask = torch.rand(shape, generator=torch.Generator().manual_seed(1)) < 0.6
    mask[0, 0, 0, 0], mask[1, 0, -1] = True, False
    return mask


def results(inputs, mask=None, dropout=0.0):
    """Output and gradients by name."""
    leaves = [None if x is None else x.clone().requires_grad_() for x in inputs]
    torch.manual_seed(3)
    output = sparse_flow_attention(*leaves, mask, dropout=dropout)
    upstream = torch.randn(output.shape, generator=torch.Generator().manual_seed(2), dtype=torch.float64)
    named = {name: x for name, x in zip(NAMES, leaves, strict=True) if x is not None}
    gradients = torch.autograd.grad((output * upstream.to(output.dtype)).sum(), list(named.values()))
    return {"output": output.detach(), **dict(zip(named, gradients, strict=True))}


def expected(inputs, mask=None):
    """The same by the plain form."""
    with computed_by("torch"):
        return results(inputs, mask)


def assert_near(got, exact, error):
    for name, values in got.items():
        assert torch.isfinite(values).all(), name
        scale = exact[name].abs().max().clamp_min(0.05)  # those w.r.t. the scores of a single key are 0
        assert (values.double() - exact[name].double()).abs().max() <= error * scale + 1e-30, name


@pytest.mark.parametrize("mask", [None, "rows", "graphs"])
@pytest.mark.parametrize("num_keys", [1, 2, 7, 8, 9, 17, 31, 64, 100, 300])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_outputs_and_gradients_are_those_of_torch(dtype, num_keys, mask):
    for alpha in (None, 0.1):
        inputs, allowed = operands(num_keys, dtype, alpha=alpha), random_mask(mask, 9, num_keys)
        exact = expected([None if x is None else x.double() for x in inputs], allowed)
        assert_near(results(inputs, allowed), exact, ERRORS[dtype])


@pytest.mark.parametrize("mask", [None, "rows"])
@pytest.mark.parametrize("std", [1, 5, 30, 200])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_rows_beyond_the_plain_form_are_steep_and_the_others_equal(dtype, std, mask):
    for num_keys, ties in ((5, False), (24, False), (24, True), (130, False)):
        inputs = [x.flatten(0, 1) for x in operands(num_keys, dtype, std, num_rows=12, ties=ties)]
        allowed = random_mask(mask, 12, num_keys)
        masks = (None, None) if allowed is None else (allowed[:, 0], torch.tensor([0, 0, 0, 1, 1, 1]))
        output, steep = operations.attend_rows(*inputs, *masks, 0.0, 0)
        other, other_steep = plain_form("graphbench_sfi_former::attend_rows")(*inputs, *masks, 0.0, 0)
        # A Newton step may reach the cost of a key to within rounding, which then decides if the row is abandoned. The
        # kernel also abandons rows whose condition is far too large on the way.
        assert int((other_steep & ~steep).sum()) <= 1
        ordinary = ~(steep | other_steep)
        assert not output[steep].any()
        torch.testing.assert_close(
            output[ordinary], other[ordinary], rtol=0, atol=2e-3 if dtype == torch.float32 else 1e-8
        )


@pytest.mark.parametrize("std", [30, 200])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_large_logits_and_ties(dtype, std):
    for ties in (False, True):
        inputs = operands(24, dtype, std, ties=ties, seed=1)
        assert_near(results(inputs), expected(inputs), 2e-2 if dtype == torch.float32 else 1e-6)


@pytest.mark.parametrize("std", [1, 100])
@pytest.mark.parametrize("block", [350 * 8, 2**21])
def test_dropout_has_the_same_factors_in_both_passes(std, block, monkeypatch):
    """In a matrix split into blocks of rows, some steep: the output is linear in the values."""
    from graphbench_kernels.sfi_former import attention

    monkeypatch.setattr(attention, "BLOCK_BYTES", block)
    inputs = operands(20, torch.float64, std, num_rows=40)
    got = results(inputs, dropout=0.4)
    upstream = torch.randn(got["output"].shape, generator=torch.Generator().manual_seed(2), dtype=torch.float64)
    torch.testing.assert_close((got["value"] * inputs[4]).sum(), (got["output"] * upstream).sum())
    assert not torch.equal(got["output"], results(inputs)["output"])


@pytest.mark.parametrize("which", range(5))
def test_no_number_stays_none_where_it_goes(which):
    """A NaN in one matrix: the same entries of the output have none, and other matrices are left as they are."""
    for value in (math.nan, math.inf):
        inputs = operands(12, torch.float32)
        clean = sparse_flow_attention(*inputs)
        inputs[which][1, 2, 3, 1] = value
        got = sparse_flow_attention(*inputs)
        with computed_by("torch"):
            other = sparse_flow_attention(*inputs)
        assert torch.equal(got.isnan(), other.isnan())
        torch.testing.assert_close(got.view(6, 9, 5)[:5], clean.view(6, 9, 5)[:5], rtol=0, atol=0)


def test_gradients_that_are_no_numbers_stay_so():
    inputs = [x.requires_grad_() for x in operands(12, torch.float64)]
    output = sparse_flow_attention(*inputs)
    upstream = torch.ones_like(output)
    upstream[0, 0, 2, 1] = math.nan
    of_query = torch.autograd.grad(output, inputs[0], upstream)[0]
    assert of_query.isnan().any(-1).nonzero().tolist() == [[0, 0, 2]]


@pytest.mark.parametrize("dropout", [0.0, 0.3])
def test_second_derivatives(dropout):
    inputs = [x[:1, :1].clone().requires_grad_() for x in operands(5, torch.float64, num_rows=3)]

    def attend(*inputs):
        torch.manual_seed(7)
        return sparse_flow_attention(*inputs, dropout=dropout)

    assert torch.autograd.gradgradcheck(attend, inputs)


def test_attention_runs_by_kernels_where_they_run(monkeypatch):
    from graphbench_kernels.sfi_former import attention

    calls = []
    run = attention.run_in_threads
    monkeypatch.setattr(attention, "run_in_threads", lambda *x: calls.append(1) or run(*x))
    parts = operands(6, torch.float16)[:5]
    assert sparse_flow_attention(*parts, penalty=0.1).dtype == torch.float16
    assert calls == [1]
    with computed_by("torch"):
        sparse_flow_attention(*parts, penalty=0.1)
    assert calls == [1]
