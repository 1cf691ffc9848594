import pytest
import torch

from graphbench.errors import BadInput
from graphbench_sft import leaky_relu_attention
from graphbench_sft.leaky import EPSILON, leaky_relu_mixture


def draw(*shape, seed=0):
    return torch.randn(*shape, dtype=torch.float64, generator=torch.Generator().manual_seed(seed))


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
    with pytest.raises(BadInput, match="leak must end in the 5 keys"):
        leaky_relu_attention(draw(3, 5), draw(4))
    with pytest.raises(BadInput, match="mask must end in the 5 keys"):
        leaky_relu_mixture(draw(3, 5), draw(5, 2), draw(5), torch.ones(3, dtype=torch.bool))
