from __future__ import annotations

import shutil

import pytest
import torch
from torch.utils._python_dispatch import TorchDispatchMode

from graphbench.errors import BadInput
from graphbench.testing import computed_by
from graphbench_sft import leaky_relu_attention, maxout_scores, ops
from graphbench_sft.ops import EPSILON
from graphbench_sft.scores import leaky_relu_mixture

needs_compiler = pytest.mark.skipif(shutil.which("g++") is None, reason="torch.compile needs a C++ compiler")


@pytest.fixture(params=["numba", "torch"], autouse=True)
def way(request):
    """Run every test with the loops and with torch's operations."""
    with computed_by(request.param):
        yield request.param


class LargestTensor(TorchDispatchMode):
    """Record the largest tensor that any operation returns."""

    numel = 0

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        out = func(*args, **(kwargs or {}))
        for tensor in torch.utils._pytree.tree_leaves(out):
            if isinstance(tensor, torch.Tensor):
                self.numel = max(self.numel, tensor.numel())
        return out


def draw(*shape, seed=0, dtype=torch.float64):
    generator = torch.Generator().manual_seed(seed)
    return torch.randn(*shape, dtype=dtype, generator=generator)


def broadcast(query, key):
    return torch.maximum(query.unsqueeze(-2), key.unsqueeze(-3)).sum(-1) / query.shape[-1] ** 0.5


SHAPES = [(1, 1, 1, 1), (2, 5, 3, 4), (3, 40, 7, 5), (2, 9, 200, 3), (1, 300, 150, 16), (2, 700, 20, 12), (4, 3, 1, 2)]


@pytest.mark.parametrize(("matrices", "n", "k", "d"), SHAPES)
def test_scores_and_gradients_equal_the_broadcast_form(matrices, n, k, d):
    query, key = draw(matrices, n, d).requires_grad_(), draw(matrices, k, d, seed=1).requires_grad_()
    weight = draw(matrices, n, k, seed=2)
    expected, actual = broadcast(query, key), maxout_scores(query, key)
    torch.testing.assert_close(actual, expected, rtol=1e-12, atol=1e-12)
    gradients = torch.autograd.grad(actual, (query, key), weight)
    for ours, theirs in zip(gradients, torch.autograd.grad(expected, (query, key), weight), strict=True):
        torch.testing.assert_close(ours, theirs, rtol=1e-12, atol=1e-12)


def test_ties_share_the_gradient_as_torch_maximum_does():
    query, key = (draw(2, 6, 4, seed=seed).round().requires_grad_() for seed in (0, 1))
    assert (query.unsqueeze(-2) == key.unsqueeze(-3)).any()
    gradients = torch.autograd.grad(maxout_scores(query, key).sum(), (query, key))
    expected = torch.autograd.grad(broadcast(query, key).sum(), (query, key))
    for ours, theirs in zip(gradients, expected, strict=True):
        torch.testing.assert_close(ours, theirs)


def test_the_identity_with_the_l1_distance():
    query, key = draw(3, 11, 6), draw(3, 8, 6, seed=1)
    sums = query.sum(-1)[..., :, None] + key.sum(-1)[..., None, :]
    expected = (sums + torch.cdist(query, key, p=1)) / (2 * 6**0.5)
    torch.testing.assert_close(maxout_scores(query, key), expected)


def test_gradcheck_of_maxout_scores():
    query, key = draw(2, 4, 3).requires_grad_(), draw(2, 5, 3, seed=1).requires_grad_()
    assert torch.autograd.gradcheck(maxout_scores, (query, key))


def test_leading_axes_broadcast():
    query, key = draw(2, 1, 5, 4), draw(3, 6, 4, seed=1)
    scores = maxout_scores(query, key)
    assert scores.shape == (2, 3, 5, 6)
    torch.testing.assert_close(scores, broadcast(query, key))
    assert maxout_scores(query[0, 0], key[0]).shape == (5, 6)


def test_many_small_matrices_share_a_block():
    query, key = draw(3000, 4, 3), draw(3000, 5, 3, seed=1)
    torch.testing.assert_close(maxout_scores(query, key), broadcast(query, key))


def test_small_and_large_numbers_keep_their_gradients():
    query = torch.tensor([[1e6, 1e-6]]).requires_grad_()
    key = torch.tensor([[1e6 + 1, 2e-6], [-1e6, 0.5e-6]]).requires_grad_()
    gradients = torch.autograd.grad(maxout_scores(query, key).sum() * 2**0.5, (query, key))
    torch.testing.assert_close(gradients[0], torch.tensor([[1.0, 1.0]]))
    torch.testing.assert_close(gradients[1], torch.tensor([[1.0, 1.0], [0.0, 0.0]]))


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("share", [2.0**-70, 1e-20, 1e-3, 0.2])
def test_gradients_of_any_finite_numbers_are_finite_and_right(dtype, share):
    """Up to a fifth of the largest number of the type; beyond, the sum over channels itself may overflow."""
    size = share * torch.finfo(dtype).max
    query, key = (draw(2, n, 4, seed=n, dtype=torch.float64).clamp(-1, 1) for n in (9, 7))
    weight = draw(2, 9, 7, seed=3).to(dtype)
    query[0, 0], key[0, 0] = 1.0, 1.0  # ties
    query[1, 1], key[1, 1] = 0.5, -0.5
    query, key = ((t.to(dtype) * size).requires_grad_() for t in (query, key))
    scores = maxout_scores(query, key)
    assert scores.isfinite().all()
    gradients = torch.autograd.grad(scores, (query, key), weight)
    for ours, theirs in zip(gradients, torch.autograd.grad(broadcast(query, key), (query, key), weight), strict=True):
        torch.testing.assert_close(ours, theirs)


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
def test_half_precision_is_added_up_in_float32(dtype):
    query, key = draw(4, 64, dtype=torch.float32).to(dtype), draw(6, 64, seed=1, dtype=torch.float32).to(dtype)
    scores = maxout_scores(query, key)
    assert scores.dtype == torch.float32
    torch.testing.assert_close(scores, broadcast(query.float(), key.float()))


def test_no_tensor_over_queries_keys_and_channels():
    n, k, d = 2048, 128, 32
    query, key = (draw(1, size, d, dtype=torch.float32).requires_grad_() for size in (n, k))
    with LargestTensor() as largest:
        maxout_scores(query, key).sum().backward()
    assert largest.numel <= n * k < n * k * d


def test_what_is_no_number_stays_none():
    query, key = draw(2, 9, 6, dtype=torch.float32), draw(2, 40, 6, seed=1, dtype=torch.float32)
    query[0, 3, 5], key[1, 17, 0], query[1, 2, 1], key[0, 1, 2] = torch.nan, torch.nan, torch.inf, -torch.inf
    torch.testing.assert_close(maxout_scores(query, key), broadcast(query, key), equal_nan=True)


def test_threads_change_no_bit(way):
    if way == "torch":
        pytest.skip("torch's own sums depend on its threads")
    found, before = [], torch.get_num_threads()
    for threads in (1, 2, 3):
        torch.set_num_threads(threads)
        query, key = draw(3, 300, 7).requires_grad_(), draw(3, 150, 7, seed=1).requires_grad_()
        scores = maxout_scores(query, key)
        found.append((scores, *torch.autograd.grad(scores, (query, key), draw(3, 300, 150, seed=2))))
    torch.set_num_threads(before)
    for others in found[1:]:
        assert all(torch.equal(ours, theirs) for ours, theirs in zip(found[0], others, strict=True))


def test_scores_are_convex_in_the_queries():
    key = draw(9, 5)
    for seed in range(20):
        one, two = draw(7, 5, seed=2 * seed), draw(7, 5, seed=2 * seed + 1)
        middle = maxout_scores((one + two) / 2, key)
        assert (middle <= (maxout_scores(one, key) + maxout_scores(two, key)) / 2 + 1e-12).all()


def test_second_derivatives():
    query, key = draw(2, 4, 3).requires_grad_(), draw(2, 5, 3, seed=1).requires_grad_()
    assert torch.autograd.gradgradcheck(maxout_scores, (query, key))


def test_empty_inputs():
    assert maxout_scores(torch.zeros(2, 0, 3), torch.zeros(2, 4, 3)).shape == (2, 0, 4)
    assert maxout_scores(torch.zeros(2, 3, 3), torch.zeros(2, 0, 3)).shape == (2, 3, 0)
    assert torch.equal(maxout_scores(torch.zeros(3, 0), torch.zeros(4, 0)), torch.zeros(3, 4))


def test_maxout_scores_refuses_what_does_not_fit():
    with pytest.raises(BadInput, match=r"but got \[3, 4\] and \[3, 5\]"):
        maxout_scores(torch.zeros(3, 4), torch.zeros(3, 5))
    with pytest.raises(BadInput, match="do not broadcast"):
        maxout_scores(torch.zeros(2, 3, 4), torch.zeros(3, 3, 4))
    with pytest.raises(BadInput, match="real numbers"):
        maxout_scores(torch.zeros(3, 4, dtype=torch.int64), torch.zeros(3, 4))


def test_blocks_cover_rows_and_matrices():
    for matrices, rows, other, channels in ((1, 1000, 256, 32), (512, 75, 150, 9), (5, 3, 4, 2), (2, 40, 9000, 64)):
        a, b = torch.empty(matrices, rows, channels), torch.empty(matrices, other, channels)
        group, step = ops._block_shape(a, b)
        assert 1 <= group <= matrices
        assert 1 <= step <= rows
        assert group * step * other * channels <= max(ops._CPU_BLOCK, 8 * other * channels)


@needs_compiler
@pytest.mark.slow
def test_compiled_scores_equal_the_broadcast_form():
    for matrices, n, k, d in SHAPES:
        query, key = draw(matrices, n, d).round().requires_grad_(), draw(matrices, k, d, seed=1).requires_grad_()
        weight = draw(matrices, n, k, seed=2)
        expected, actual = broadcast(query, key), maxout_scores(query, key, compiled=True)
        torch.testing.assert_close(actual, expected)
        gradients = torch.autograd.grad(actual, (query, key), weight)
        for ours, theirs in zip(gradients, torch.autograd.grad(expected, (query, key), weight), strict=True):
            torch.testing.assert_close(ours, theirs)


@needs_compiler
@pytest.mark.slow
def test_scores_inside_a_compiled_function():
    inside = torch.compile(lambda query, key: maxout_scores(query, key).relu() * 2, fullgraph=True, dynamic=True)
    query, key = draw(2, 30, 4).requires_grad_(), draw(2, 20, 4, seed=1).requires_grad_()
    expected, actual = broadcast(query, key).relu() * 2, inside(query, key)
    torch.testing.assert_close(actual, expected)
    gradients = torch.autograd.grad(actual.sum(), (query, key))
    for ours, theirs in zip(gradients, torch.autograd.grad(expected.sum(), (query, key)), strict=True):
        torch.testing.assert_close(ours, theirs)


def test_weights_follow_the_equation():
    scores, leak = draw(2, 3, 4, 5), draw(2, 3, 5, seed=1)
    weights = leaky_relu_attention(scores, leak)
    for b in range(2):
        for h in range(3):
            leaks = sum(torch.log1p(c.exp()) for c in leak[b, h])
            for i in range(4):
                positive = [max(a.item(), 0.0) for a in scores[b, h, i]]
                total = sum(positive) + leaks + EPSILON
                expected = torch.tensor([a / total for a in positive], dtype=torch.float64)
                torch.testing.assert_close(weights[b, h, i], expected)


def test_gradcheck_of_leaky_attention():
    scores, leak = draw(2, 3, 4).requires_grad_(), draw(2, 4, seed=1).requires_grad_()
    mask = torch.tensor([[True, True, False, True], [True, True, True, True]])
    assert torch.autograd.gradcheck(leaky_relu_attention, (scores, leak))
    assert torch.autograd.gradcheck(lambda s, c: leaky_relu_attention(s, c, mask), (scores, leak))


@pytest.mark.parametrize("masked", [False, True])
@pytest.mark.parametrize("leaks", [False, True])
def test_mixtures_are_those_of_the_weights(masked, leaks):
    """Outputs and gradients: dividing before or after the product with the values is the same."""
    scores, value = draw(2, 3, 4, 5).requires_grad_(), draw(2, 3, 5, 6, seed=1).requires_grad_()
    leak = draw(2, 3, 5, seed=2).requires_grad_() if leaks else None
    mask = torch.rand(2, 1, 5, generator=torch.Generator().manual_seed(0)) < 0.7 if masked else None
    leaves = [tensor for tensor in (scores, value, leak) if tensor is not None]
    mixed = leaky_relu_mixture(scores, value, leak, mask)
    expected = leaky_relu_attention(scores, leak, mask) @ value
    torch.testing.assert_close(mixed, expected)
    weight = draw(2, 3, 4, 6, seed=3)
    for ours, theirs in zip(
        torch.autograd.grad(mixed, leaves, weight), torch.autograd.grad(expected, leaves, weight), strict=True
    ):
        torch.testing.assert_close(ours, theirs)


def test_mixtures_of_half_precision_values_keep_the_sums_in_float32():
    scores, value = draw(64, 300).float(), draw(300, 8, seed=1).to(torch.bfloat16)
    mixed = leaky_relu_mixture(scores, value, None)
    assert mixed.dtype == torch.bfloat16
    exact = leaky_relu_attention(scores.double(), None) @ value.double()
    torch.testing.assert_close(mixed.double(), exact, rtol=0.02, atol=0.01)


def test_masked_keys_are_as_if_absent():
    scores, leak = draw(2, 3, 6), draw(2, 6, seed=1)
    mask = torch.tensor([True, False, True, True, False, True])
    weights = leaky_relu_attention(scores, leak, mask.expand(2, 6))
    torch.testing.assert_close(weights[..., mask], leaky_relu_attention(scores[..., mask], leak[..., mask]))
    assert (weights[..., ~mask] == 0).all()


def test_leak_and_mask_broadcast_over_heads():
    scores, leak = draw(2, 3, 4, 5), draw(2, 1, 5, seed=1)
    mask = torch.rand(2, 1, 5, generator=torch.Generator().manual_seed(0)) < 0.7
    weights = leaky_relu_attention(scores, leak, mask)
    for head in range(3):
        torch.testing.assert_close(weights[:, head], leaky_relu_attention(scores[:, head], leak[:, 0], mask[:, 0]))


def test_the_leak_takes_a_part_of_every_row():
    scores = draw(7, 5).abs() + 0.1
    full, leaky = leaky_relu_attention(scores, None).sum(-1), leaky_relu_attention(scores, draw(5)).sum(-1)
    assert (leaky < full).all()
    torch.testing.assert_close(full, torch.ones_like(full), atol=1e-5, rtol=0)


def test_rows_without_a_positive_score_are_zero():
    scores = -draw(3, 4).abs()
    assert (leaky_relu_attention(scores, draw(4)) == 0).all()
    assert (leaky_relu_attention(scores, None) == 0).all()
    masked = leaky_relu_attention(scores.abs(), draw(4), torch.zeros(4, dtype=torch.bool))
    assert (masked == 0).all()


def test_leak_and_mask_must_have_the_keys_of_the_scores():
    with pytest.raises(BadInput, match="leak must have 5 keys"):
        leaky_relu_attention(draw(3, 5), draw(4))
    with pytest.raises(BadInput, match="mask must have 5 keys"):
        leaky_relu_mixture(draw(3, 5), draw(5, 2), draw(5), torch.ones(3, dtype=torch.bool))
