"""The kernels in Numba against torch's own operations on the same rows, and against float64."""

from __future__ import annotations

import math
from types import SimpleNamespace

import pytest
import torch

from graphbench.kernels import runs_numba
from graphbench_sfi_former import sparse_flow_attention, workspace
from graphbench_sfi_former.blockwise import BlockwiseAttention
from graphbench_sfi_former.masking import KeyMask
from graphbench_sfi_former.native import NativeAttention
from graphbench_sfi_former.rows import RowState

pytestmark = pytest.mark.skipif(not runs_numba(torch.zeros(1)), reason="kernels in Numba do not run here")

NAMES = ("query", "key", "friction_query", "friction_key", "value", "penalty", "alpha")
#: Errors relative to the greatest entry of a tensor, for logits of standard deviation 1.
ERRORS = {torch.float32: 3e-5, torch.float64: 1e-11}


def operands(num_keys, dtype, std=1.0, num_rows=9, alpha=0.1, ties=False, seed=0):
    """Q, K, Q~, K~ and V `[2, 3, N or K, 5]`, penalty and alpha of each matrix `[6, 1, 1]`."""
    generator = torch.Generator().manual_seed(seed)
    lengths = (num_rows, num_keys, num_rows, num_keys, num_keys)
    parts = [torch.randn(2, 3, n, 5, generator=generator, dtype=torch.float64) for n in lengths]
    parts[0], parts[2] = parts[0] * std, parts[2] * std
    if ties:
        parts[3][..., num_keys // 2 :, :] = parts[3][..., :1, :]
    penalty = torch.rand(6, 1, 1, generator=generator, dtype=torch.float64) * 2 / num_keys
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


def results(attention, inputs, mask=None, dropout=None):
    """Output and gradients by name."""
    leaves = [None if x is None else x.clone().requires_grad_() for x in inputs]
    keys = None if mask is None else KeyMask(mask, (2, 3), inputs[0].shape[-2], inputs[1].shape[-2])
    output = attention.apply(*leaves, keys, dropout, True)
    upstream = torch.randn(output.shape, generator=torch.Generator().manual_seed(2), dtype=torch.float64)
    named = {name: x for name, x in zip(NAMES, leaves, strict=True) if x is not None}
    gradients = torch.autograd.grad((output * upstream.to(output.dtype)).sum(), list(named.values()))
    return {"output": output.detach(), **dict(zip(named, gradients, strict=True))}


def assert_near(got, expected, error):
    for name, values in got.items():
        assert torch.isfinite(values).all(), name
        scale = expected[name].abs().max().clamp_min(0.05)  # those by the scores of one key are 0
        assert (values.double() - expected[name].double()).abs().max() <= error * scale + 1e-30, name


def solved(attention, inputs, keys):
    """State of the rows `(4, rows)` and numbers of the steep ones."""
    saved = []
    context = SimpleNamespace(save_for_backward=lambda *x: saved.extend(x))
    attention.forward(context, *inputs, keys, None, True)
    if attention is NativeAttention:  # whose state has lanes for rows that are not there
        steep = [i for _, block in context.steep for i in block.rows.tolist()]
        return saved[8][:4, :, : saved[0].shape[1]].reshape(4, -1).double(), steep
    steep = [i for block in context.steep if block is not None for i in block.rows.tolist()]
    return torch.stack(saved[8:12]).view(4, -1).double(), steep


def solved_alone(inputs, mask):
    """The same by torch, row by row: in a block it gives rows up or not depending on the others."""
    *parts, penalty, alpha = inputs
    num_rows, num_keys = parts[0].shape[-2], parts[1].shape[-2]
    queries, states, steep = [x.reshape(-1, 1, 5) for x in parts[:3:2]], [], []
    for row in range(len(queries[0])):
        at = row // num_rows
        keys = [x.view(6, num_keys, 5)[at : at + 1] for x in (parts[1], parts[3], parts[4])]
        own = [queries[0][row : row + 1], keys[0], queries[1][row : row + 1], *keys[1:]]
        allowed = None if mask is None else mask.expand(2, 3, num_rows, num_keys).reshape(-1, num_keys)[row]
        own_mask = None if mask is None else KeyMask(allowed, (1,), 1, num_keys)
        state, is_steep = solved(BlockwiseAttention, [*own, penalty[at : at + 1], alpha[at : at + 1]], own_mask)
        states.append(state)
        steep.extend(row for _ in is_steep)
    return torch.cat(states, 1), steep


@pytest.mark.parametrize("mask", [None, "rows", "graphs"])
@pytest.mark.parametrize("num_keys", [1, 2, 7, 8, 9, 17, 31, 64, 100, 300])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_outputs_and_gradients_are_those_of_torch(dtype, num_keys, mask):
    for alpha in (None, 0.1):
        inputs, allowed = operands(num_keys, dtype, alpha=alpha), random_mask(mask, 9, num_keys)
        exact = results(BlockwiseAttention, [None if x is None else x.double() for x in inputs], allowed)
        assert_near(results(NativeAttention, inputs, allowed), exact, ERRORS[dtype])


@pytest.mark.parametrize("mask", [None, "rows"])
@pytest.mark.parametrize("std", [1, 5, 30, 200])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_the_same_rows_are_steep_and_the_others_have_the_same_state(dtype, std, mask):
    tolerance = 1e-3 if dtype == torch.float32 else 1e-8
    for num_keys, ties in ((5, False), (24, False), (24, True), (130, False)):
        inputs, allowed = operands(num_keys, dtype, std, num_rows=12, ties=ties), random_mask(mask, 12, num_keys)
        keys = None if mask is None else KeyMask(allowed, (2, 3), 12, num_keys)
        (state, steep), (expected, expected_steep) = (
            solved(NativeAttention, inputs, keys),
            solved_alone(inputs, allowed),
        )
        # A Newton step may lead to the cost of a key to within rounding, which decides then if the row is given up.
        assert len(set(steep) ^ set(expected_steep)) <= 1
        own, other = RowState(*state), RowState(*expected)
        either = torch.zeros(len(own.level), dtype=torch.bool)
        either[steep + expected_steep] = True
        open_rows = (other.level > 0) & ~either
        assert torch.equal((own.level > 0) & ~either, open_rows)
        for name in ("unit", "level", "slope"):
            torch.testing.assert_close(
                getattr(own, name)[open_rows], getattr(other, name)[open_rows], rtol=tolerance, atol=0
            )
        flows = open_rows & ((other.gain - 1).abs() < 0.5)  # where nothing flows the gain means nothing
        torch.testing.assert_close(own.gain[flows], other.gain[flows], rtol=tolerance, atol=0)


@pytest.mark.parametrize("std", [30, 200])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_large_logits_and_ties(dtype, std):
    for ties in (False, True):
        inputs = operands(24, dtype, std, ties=ties, seed=1)
        got, expected = results(NativeAttention, inputs), results(BlockwiseAttention, inputs)
        assert_near(got, expected, 2e-2 if dtype == torch.float32 else 1e-6)


def test_dropout_has_the_same_factors_in_both_passes():
    for mask in (None, random_mask("rows", 9, 20)):
        inputs = operands(20, torch.float64)
        got, expected = (results(a, inputs, mask, (0.4, 3)) for a in (NativeAttention, BlockwiseAttention))
        assert_near(got, expected, 1e-11)


def test_blocks_of_steep_rows_change_nothing(monkeypatch):
    for mask in (None, random_mask("rows", 40, 20)):
        inputs = operands(20, torch.float64, 100, num_rows=40)
        whole = results(NativeAttention, inputs, mask)
        for size in (1, 350, 2000):
            monkeypatch.setattr(workspace, "BLOCK_ROWS", size * 8)
            assert_near(results(NativeAttention, inputs, mask), whole, 1e-13)
        monkeypatch.undo()


def test_blocks_of_dropout_have_the_same_factors_in_both_passes(monkeypatch):
    """In a matrix cut into blocks of rows, some steep: the output is linear in the values."""
    monkeypatch.setattr(workspace, "BLOCK_ROWS", 350 * 8)
    for std in (1, 100):
        inputs = operands(20, torch.float64, std, num_rows=40)
        got = results(NativeAttention, inputs, None, (0.4, 3))
        upstream = torch.randn(got["output"].shape, generator=torch.Generator().manual_seed(2), dtype=torch.float64)
        torch.testing.assert_close((got["value"] * inputs[4]).sum(), (got["output"] * upstream).sum())


@pytest.mark.parametrize("which", range(5))
def test_no_number_stays_none_where_it_goes(which):
    """A NaN in one matrix: the same entries of the output have none, and other matrices are left as they are."""
    for value in (math.nan, math.inf):
        inputs = operands(12, torch.float32)
        clean = NativeAttention.apply(*inputs, None, None, False)
        inputs[which][1, 2, 3, 1] = value
        got, expected = (a.apply(*inputs, None, None, False) for a in (NativeAttention, BlockwiseAttention))
        assert torch.equal(got.isnan(), expected.isnan())
        torch.testing.assert_close(got.view(6, 9, 5)[:5], clean.view(6, 9, 5)[:5], rtol=0, atol=0)


def test_gradients_that_are_no_numbers_stay_so():
    inputs = [x.requires_grad_() for x in operands(12, torch.float64)]
    output = NativeAttention.apply(*inputs, None, None, True)
    upstream = torch.ones_like(output)
    upstream[0, 0, 2, 1] = math.nan
    of_query = torch.autograd.grad(output, inputs[0], upstream)[0]
    assert of_query.isnan().any(-1).nonzero().tolist() == [[0, 0, 2]]


def test_attention_runs_by_kernels_where_they_run(monkeypatch):
    calls = []
    apply = NativeAttention.apply
    monkeypatch.setattr(NativeAttention, "apply", lambda *x: calls.append(1) or apply(*x))
    parts = operands(6, torch.float16)[:5]
    assert sparse_flow_attention(*parts, penalty=0.1).dtype == torch.float16
    assert calls == [1]
