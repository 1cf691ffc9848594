"""Attention on the pretended device: values of the formula, launches of the kernel."""

import json

import pytest
import torch
import torch.nn.functional as F

from graphbench.testing.pretend import counted_work, in_fork, on_pretended_device

pytestmark = pytest.mark.fresh_process


def launches_of(dtype=torch.float32, width=8, bias_shape=None, **options):
    """Return launches forward and backward; compare results and gradients with the formula in float64."""
    draw = torch.Generator().manual_seed(0)
    given = [torch.randn(2, 3, 6, width, generator=draw).to(dtype) for _ in range(3)]
    given += [] if bias_shape is None else [torch.randn(bias_shape, generator=draw).to(dtype)]
    upstream = torch.randn(2, 3, 6, width, generator=draw).to(dtype)

    def count():
        with on_pretended_device() as card:
            leaves = [x.to(card).requires_grad_() for x in given]
            above = upstream.to(card)
            with counted_work() as forward:
                out = F.scaled_dot_product_attention(*leaves, **options)
            with counted_work() as backward:
                grads = torch.autograd.grad(out, leaves, above)
            found = [x.double().cpu() for x in (out, *grads)]
        q, k, v, *bias = exact = [x.double().requires_grad_() for x in given]
        weights = (q @ k.transpose(-1, -2) * options.get("scale", width**-0.5) + (bias[0] if bias else 0)).softmax(-1)
        true = weights @ v
        close = 3e-2 if dtype == torch.bfloat16 else 1e-5
        for one, other in zip(found, (true, *torch.autograd.grad(true, exact, upstream.double())), strict=True):
            torch.testing.assert_close(one, other, rtol=close, atol=close)
        return json.dumps([forward.launches, backward.launches])

    return json.loads(in_fork(count))


@pytest.mark.parametrize(
    ("options", "forward", "backward"),
    [
        ({}, 1, 4),
        ({"scale": 0.7, "bias_shape": (2, 1, 1, 6)}, None, None),
        ({"bias_shape": (1, 3, 6, 6)}, None, None),
        ({"dtype": torch.bfloat16}, 1, 1),
    ],
    ids=["float32", "scale", "bias", "bfloat16"],
)
def test_fused_attention_has_the_numbers_of_the_formula(options, forward, backward):
    launches = launches_of(**options)
    assert "_scaled_dot_product_efficient_attention" in launches[0]
    if forward is not None:
        assert [sum(counts.values()) for counts in launches] == [forward, backward]


def test_widths_that_no_fused_kernel_takes_are_computed_by_the_formula():
    assert launches_of(width=6)[0]["bmm"] == 2


def test_gradients_drop_the_weights_that_the_result_dropped():
    def count():
        with on_pretended_device() as card:
            q, k = torch.randn(2, 1, 1, 8, 8).to(card)
            unit = torch.eye(8)[None, None].to(card).requires_grad_()
            weights = F.scaled_dot_product_attention(q, k, unit, dropout_p=0.5)
            (grad,) = torch.autograd.grad(weights, unit, torch.eye(8)[None, None].to(card))
        weights = weights.detach().cpu()
        assert 5 < int((weights == 0).sum()) < 60
        torch.testing.assert_close(grad.cpu(), weights.transpose(-1, -2))
        return "equal"

    assert in_fork(count) == "equal"
