"""The variant for compilers against the blockwise one; the compiler itself is left out unless asked for."""

from __future__ import annotations

import pytest
import torch

from graphbench_sfi_former import compiled, sparse_flow_attention


@pytest.fixture
def uncompiled(monkeypatch):
    """Runs the functions as they stand: compiling takes half a minute."""
    monkeypatch.setattr(compiled, "_compile", lambda function: function)


def output_and_gradients(solver: str, inputs: list[torch.Tensor], mask: torch.Tensor | None, dropout: float = 0.0):
    torch.manual_seed(0)
    leaves = [x.clone().requires_grad_() for x in inputs]
    rest = leaves[5:] if len(leaves) == 7 else [leaves[5], None]
    output = sparse_flow_attention(*leaves[:5], *rest, mask, dropout=dropout, solver=solver)
    return [output, *torch.autograd.grad((output * output.detach().cos()).sum(), leaves)]


def make_inputs(logit_scale: float, alpha: float | None, dtype: torch.dtype = torch.float64) -> list[torch.Tensor]:
    generator = torch.Generator().manual_seed(0)
    shapes = ((7, 4), (9, 4), (7, 3), (9, 3), (9, 5))
    inputs = [torch.randn(2, 3, *s, generator=generator, dtype=dtype) for s in shapes]
    inputs[0], inputs[2] = inputs[0] * logit_scale, inputs[2] * logit_scale
    return inputs + [torch.full((2, 1, 1, 1), x, dtype=dtype) for x in (0.1, alpha) if x is not None]


@pytest.mark.parametrize("alpha", [None, 0.1])
@pytest.mark.parametrize("mask_shape", [None, (2, 1, 7, 9), (2, 1, 1, 9), (1, 9)])
def test_equals_the_blockwise_attention(uncompiled, alpha, mask_shape):
    mask = None
    if mask_shape is not None:
        mask = torch.rand(mask_shape, generator=torch.Generator().manual_seed(4)) < 0.7
        mask[..., 1:, :][..., -1:, :] = False  # the last row has no key, unless all rows share theirs
    inputs = make_inputs(1.0, alpha)
    pairs = zip(*(output_and_gradients(s, inputs, mask) for s in ("compiled", "exact")), strict=True)
    for a, b in pairs:
        torch.testing.assert_close(a, b, rtol=1e-9, atol=1e-12)


def test_unsettled_rows_are_left_to_the_blockwise_attention(uncompiled, monkeypatch):
    monkeypatch.setattr(compiled, "NUM_PASSES", 1)
    inputs = make_inputs(5.0, 0.1)
    for a, b in zip(*(output_and_gradients(s, inputs, None) for s in ("compiled", "exact")), strict=True):
        assert torch.equal(a, b)


def test_dropout_draws_what_the_blockwise_attention_draws(uncompiled):
    inputs = make_inputs(1.0, 0.1)
    for a, b in zip(*(output_and_gradients(s, inputs, None, 0.3) for s in ("compiled", "exact")), strict=True):
        torch.testing.assert_close(a, b, rtol=1e-9, atol=1e-12)


@pytest.mark.slow
def test_compiled_for_real():
    for size in (1.0, 0.5):
        inputs = make_inputs(size, 0.1, torch.float32)
        for a, b in zip(*(output_and_gradients(s, inputs, None) for s in ("compiled", "exact")), strict=True):
            torch.testing.assert_close(a, b, rtol=1e-4, atol=1e-5)
