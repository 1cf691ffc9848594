"""The fused attention against its composition from plain operations and the unfused solver."""

from __future__ import annotations

import threading
from functools import partial

import pytest
import torch
from packaging.version import Version
from quick import slow
from torch.autograd import gradcheck, gradgradcheck

from graphbench.errors import BadInput
from graphbench_sfi_former import (
    blocks,
    sparse_flow,
    sparse_flow_attention,
    sparse_flow_proximal,
    sparse_flow_weights,
)


def projections(
    *lead: int, num_rows: int = 7, num_keys: int = 9, dtype: torch.dtype = torch.float64, seed: int = 0
) -> list[torch.Tensor]:
    """Q, K, Q~, K~, V with different widths, so that none can be mistaken for another."""
    generator = torch.Generator().manual_seed(seed)
    shapes = ((num_rows, 4), (num_keys, 4), (num_rows, 3), (num_keys, 3), (num_keys, 5))
    return [torch.randn(*lead, *s, generator=generator, dtype=torch.float64).to(dtype) for s in shapes]


def composed(query, key, friction_query, friction_key, value, penalty, alpha=None, mask=None):
    """Compute equation (11) step by step: softmaxes, exact flow, values."""
    allowed = torch.ones((), dtype=torch.bool) if mask is None else mask
    resistance = (-(query @ key.mT) / query.shape[-1] ** 0.5).masked_fill(~allowed, -1e30).softmax(-1)
    friction = (friction_query @ friction_key.mT / friction_query.shape[-1] ** 0.5).masked_fill(~allowed, -1e30)
    return sparse_flow(resistance, friction.softmax(-1), penalty, alpha, mask) @ value


def random_mask(*shape: int) -> torch.Tensor:
    """Return a mask that forbids about a quarter of the keys, and all keys of the last row."""
    mask = torch.rand(*shape, generator=torch.Generator().manual_seed(5)) < 0.75
    mask[..., -1, :] = False
    return mask


def with_gradients(function, inputs, upstream, *rest):
    leaves = [x.clone().requires_grad_() for x in inputs]
    output = function(*leaves, *rest)
    return [output, *torch.autograd.grad((output * upstream).sum(), leaves)]


@pytest.mark.parametrize("alpha", [None, 0.1, 1.0])
@pytest.mark.parametrize("penalty", [0.0, 0.1, 2.0])
@pytest.mark.parametrize("mask_shape", [None, (2, 1, 7, 9), (7, 9), (2, 1, 1, 9), (2, 3, 7, 9)])
def test_equals_its_composition(penalty, alpha, mask_shape):
    inputs, upstream = projections(2, 3), torch.randn(2, 3, 7, 5, dtype=torch.float64)
    mask = None if mask_shape is None else random_mask(*mask_shape)
    weights = [torch.full((2, 1, 1, 1), x, dtype=torch.float64) for x in (penalty, alpha) if x is not None]
    rest = (mask,) if alpha is not None else (None, mask)
    fused = with_gradients(sparse_flow_attention, [*inputs, *weights], upstream, *rest)
    expected = with_gradients(composed, [*inputs, *weights], upstream, *rest)
    for a, b in zip(fused, expected, strict=True):
        torch.testing.assert_close(a, b, rtol=1e-9, atol=1e-11)
        assert torch.isfinite(a).all()
    if mask is not None and mask.shape[-2] > 1:
        assert torch.equal(fused[0][..., -1, :], torch.zeros(2, 3, 5, dtype=torch.float64))


@pytest.mark.parametrize("alpha", [slow(None), 0.3])
@pytest.mark.parametrize("block", [slow(1), 2**19])
def test_gradients_of_the_fused_attention(alpha, block, monkeypatch):
    monkeypatch.setattr(blocks, "BLOCK", block)
    inputs = projections(2, num_rows=3, num_keys=4)
    inputs += [torch.tensor(x, dtype=torch.float64) for x in (0.2, alpha) if x is not None]
    assert gradcheck(sparse_flow_attention, [x.requires_grad_() for x in inputs])


@pytest.mark.parametrize("alpha", [None, 0.3])
@pytest.mark.parametrize("masked", [False, True])
@pytest.mark.parametrize("dropout", [0.0, 0.3])
def test_second_derivatives(masked, alpha, dropout, monkeypatch):
    monkeypatch.setattr(blocks, "BLOCK", 2 * 4)
    inputs = projections(2, num_rows=3, num_keys=4)
    inputs += [torch.tensor(x, dtype=torch.float64) for x in (0.2, alpha) if x is not None]
    mask = torch.tensor([True, False, True, True]) if masked else None

    def attend(*inputs: torch.Tensor) -> torch.Tensor:
        torch.manual_seed(7)
        rest = inputs if alpha is not None else (*inputs, None)
        return sparse_flow_attention(*rest, mask, dropout=dropout)

    assert gradgradcheck(attend, [x.requires_grad_() for x in inputs])


def test_blocks_of_matrices_and_of_rows_give_the_same(monkeypatch):
    inputs, upstream = projections(2, 3), torch.randn(2, 3, 7, 5, dtype=torch.float64)
    for mask in (None, random_mask(2, 1, 7, 9)):
        monkeypatch.undo()
        whole = with_gradients(sparse_flow_attention, inputs, upstream, 0.1, 0.2, mask)
        for size in (1, 20, 63, 130):
            monkeypatch.setattr(blocks, "BLOCK", size)
            blockwise = with_gradients(sparse_flow_attention, inputs, upstream, 0.1, 0.2, mask)
            for a, b in zip(blockwise, whole, strict=True):
                torch.testing.assert_close(a, b, rtol=1e-11, atol=1e-13)


def test_without_penalty_it_is_ordinary_attention():
    query, key, friction_query, friction_key, value = projections(2, 3)
    expected = torch.nn.functional.scaled_dot_product_attention(query, key, value)
    actual = sparse_flow_attention(query, key, friction_query, friction_key, value, 0.0)
    torch.testing.assert_close(actual, expected, rtol=0, atol=1e-14)


@pytest.mark.parametrize(
    ("logit_scale", "worst", "typical"), [(1.0, 1e-6, 3e-7), (3.0, 1e-3, 1e-5), (30.0, 1e-3, 1e-5)]
)
def test_float32_stays_near_float64(logit_scale, worst, typical):
    query, key, friction_query, friction_key, _ = projections(4, 2, num_rows=48, num_keys=48, dtype=torch.float32)
    inputs = [query * logit_scale, key, friction_query * logit_scale, friction_key, torch.eye(48).expand(4, 2, 48, 48)]
    for alpha in (None, 0.1):
        flow = sparse_flow_attention(*inputs, 1 / 48, alpha)
        exact = sparse_flow_attention(*(x.double() for x in inputs), 1 / 48, alpha)
        error = (flow - exact).abs()
        assert error.max() < worst
        assert error.flatten().quantile(0.99) < typical
        torch.testing.assert_close(flow.sum(-1), exact.sum(-1).float(), rtol=0, atol=1e-5)


def test_absurd_logits_stay_finite():
    inputs = [x * 100 for x in projections(2, dtype=torch.float32)]
    for a in with_gradients(sparse_flow_attention, inputs, torch.ones(2, 7, 5), 0.1, 0.1):
        assert torch.isfinite(a).all()


def test_padding_and_batching_change_nothing():
    generator = torch.Generator().manual_seed(3)
    sizes, padded = (3, 8, 5), 8
    graphs = [[torch.randn(2, n, 4, generator=generator) for _ in range(5)] for n in sizes]
    mask = torch.arange(padded) < torch.tensor(sizes).view(3, 1, 1, 1)
    stacked = [torch.full((3, 2, padded, 4), 1e4) for _ in range(5)]
    for graph, parts in enumerate(graphs):
        for whole, part in zip(stacked, parts, strict=True):
            whole[graph, :, : part.shape[1]] = part
    penalty = (1 / torch.tensor(sizes)).view(3, 1, 1, 1)
    together = sparse_flow_attention(*stacked, penalty, 0.1, mask)
    for graph, (size, parts) in enumerate(zip(sizes, graphs, strict=True)):
        alone = sparse_flow_attention(*parts, 1 / size, 0.1)
        torch.testing.assert_close(together[graph, :, :size], alone, rtol=1e-5, atol=1e-6)


def test_permuting_nodes_permutes_rows():
    inputs = projections(2, num_rows=9)
    order = torch.randperm(9, generator=torch.Generator().manual_seed(0))
    permuted = sparse_flow_attention(*(x[:, order] for x in inputs), 0.1, 0.1)
    torch.testing.assert_close(permuted, sparse_flow_attention(*inputs, 0.1, 0.1)[:, order], rtol=1e-10, atol=1e-12)


@pytest.mark.parametrize("block", [32 * 32, 2**18])
def test_keeps_no_matrix_for_the_backward_pass(block, monkeypatch):
    monkeypatch.setattr(blocks, "BLOCK", block)
    inputs, sizes = [x.requires_grad_() for x in projections(2, num_rows=32, num_keys=32)], []
    with torch.autograd.graph.saved_tensors_hooks(lambda x: sizes.append(x.numel()) or x, lambda x: x):
        sparse_flow_attention(*inputs, 1 / 32, 0.1)
    assert 0 < max(sizes) < 32 * 32


@pytest.mark.slow
def test_dropout_scales_what_it_keeps_and_repeats_it_in_the_backward_pass(monkeypatch):
    monkeypatch.setattr(blocks, "BLOCK", 100)
    query, key, friction_query, friction_key, value = projections(3, num_rows=9)
    inputs = [query, key, friction_query, friction_key, torch.eye(9, dtype=torch.float64).expand(3, 9, 9)]

    def attend(*inputs: torch.Tensor) -> torch.Tensor:
        torch.manual_seed(7)
        return sparse_flow_attention(*inputs, 0.1, 0.1, dropout=0.4)

    flow = sparse_flow_attention(*inputs, 0.1, 0.1)
    factors = torch.where(flow > 0, attend(*inputs) / flow, torch.nan)
    known = factors[~factors.isnan()]
    assert 0.3 < (known == 0).double().mean() < 0.5
    torch.testing.assert_close(known[known != 0], torch.full_like(known[known != 0], 1 / 0.6), rtol=1e-4, atol=0)
    assert gradcheck(attend, [x[:2].requires_grad_() for x in (*inputs[:4], value)])


def test_other_solvers_can_be_given():
    inputs = projections(2)
    exact = sparse_flow_attention(*inputs, 0.1, 0.1)
    torch.testing.assert_close(sparse_flow_attention(*inputs, 0.1, 0.1, solver=sparse_flow), exact)
    torch.testing.assert_close(sparse_flow_weights(*inputs[:4], 0.1, 0.1) @ inputs[4], exact)
    many_steps = partial(sparse_flow_proximal, num_steps=2000, start="dense")
    assert (sparse_flow_attention(*inputs, 0.1, 0.1, solver=many_steps) - exact).abs().max() < 1e-6


def test_weights_vanish_at_masked_keys():
    mask = random_mask(2, 7, 9)
    weights = sparse_flow_weights(*projections(2)[:4], 0.1, 0.1, mask)
    assert torch.equal(weights[~mask], torch.zeros_like(weights[~mask]))
    assert (weights.sum(-1)[:, :-1] > 0.5).all()


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
def test_half_precision_attention_is_computed_in_float32(dtype):
    inputs = [x.requires_grad_() for x in projections(2, dtype=dtype)]
    output = sparse_flow_attention(*inputs, 0.1, 0.1)
    assert output.dtype == dtype
    assert torch.equal(output, sparse_flow_attention(*(x.float() for x in inputs), 0.1, 0.1).to(dtype))
    output.float().sum().backward()
    assert all(x.grad.dtype == dtype for x in inputs)


@pytest.mark.parametrize("size", [1.0, 100.0])
@pytest.mark.parametrize("attend", [sparse_flow_attention, partial(sparse_flow_attention, solver=sparse_flow)])
def test_autocast_does_not_lower_the_precision(attend, size):
    inputs = [x * size for x in projections(2, dtype=torch.float32)]
    with torch.autocast("cpu", dtype=torch.bfloat16):
        inside = with_gradients(attend, inputs, torch.ones(2, 7, 5), 0.1, 0.1)
    outside = with_gradients(attend, inputs, torch.ones(2, 7, 5), 0.1, 0.1)
    assert torch.equal(inside[0], outside[0])
    if attend is sparse_flow_attention:  # the gradients of plain products are autograd's, in the precision around them
        assert all(torch.equal(a, b) for a, b in zip(inside, outside, strict=True))


def test_a_tiny_alpha_and_no_rows_at_all():
    inputs = projections(2)
    output = sparse_flow_attention(*inputs, 0.0, 1e-40)
    expected = torch.nn.functional.scaled_dot_product_attention(inputs[0], inputs[1], inputs[4])
    resistance = (-(inputs[0] @ inputs[1].mT) / 2).softmax(-1)
    unit = 1 / (1 / resistance).sum(-1, keepdim=True)
    torch.testing.assert_close(output, expected * 1e-40 / unit, rtol=1e-10, atol=0)
    single = [x.float() for x in inputs]
    assert torch.isfinite(
        torch.stack(with_gradients(sparse_flow_attention, single, torch.ones(2, 7, 5), 0.1, 1e-40)[:1])
    ).all()
    empty = [x[:, :0] if x.shape[1] == 7 else x for x in inputs]
    for found in with_gradients(sparse_flow_attention, empty, torch.ones(2, 0, 5), 0.1, 0.1):
        assert torch.isfinite(found).all()
    assert sparse_flow_attention(*empty, 0.1).shape == (2, 0, 5)


def test_backward_twice_and_inference_mode_leave_the_buffers_usable():
    inputs = [x.requires_grad_() for x in projections(2, num_rows=11)]
    with torch.inference_mode():
        first = sparse_flow_attention(*inputs, 0.1, 0.1)
    output = sparse_flow_attention(*inputs, 0.1, 0.1)
    assert torch.equal(output, first)
    once = torch.autograd.grad(output.sum(), inputs, retain_graph=True)
    for a, b in zip(once, torch.autograd.grad(output.sum(), inputs), strict=True):
        assert torch.equal(a, b)


def test_threads_do_not_share_buffers():
    problems = [projections(2, num_rows=40, num_keys=40, seed=seed) for seed in range(4)]
    expected = [sparse_flow_attention(*p, 0.05, 0.1) for p in problems]
    results: dict[int, bool] = {}

    def work(number: int) -> None:
        same = (torch.equal(sparse_flow_attention(*problems[number], 0.05, 0.1), expected[number]) for _ in range(20))
        results[number] = all(same)

    threads = [threading.Thread(target=work, args=(number,)) for number in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert results == dict.fromkeys(range(4), True)


@pytest.mark.skipif(Version(torch.__version__) < Version("2.13"), reason="see test_programs.py")
def test_works_inside_a_compiled_function():
    inputs = projections(2)
    compiled = torch.compile(lambda *x: sparse_flow_attention(*x, 0.1, 0.1) * 2, backend="eager")
    assert torch.equal(compiled(*inputs), sparse_flow_attention(*inputs, 0.1, 0.1) * 2)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"key": torch.ones(2, 8, 4)}, "must share their leading dimensions"),
        ({"friction_query": torch.ones(2, 7, 4)}, "must share their leading dimensions"),
        ({"value": torch.ones(1, 9, 5)}, "must share their leading dimensions"),
        ({"dropout": 1.0}, "dropout must be at least 0"),
        ({"solver": "newton"}, "solver must be 'exact'"),
        ({"mask": torch.ones(2, 1, 7, 9, dtype=torch.bool)}, "does not broadcast"),
    ],
)
def test_bad_attention_input_is_named(change, message):
    names = ("query", "key", "friction_query", "friction_key", "value")
    arguments = dict(zip(names, projections(2, dtype=torch.float32), strict=True)) | {"penalty": 0.1}
    with pytest.raises(BadInput, match=message):
        sparse_flow_attention(**(arguments | change))
