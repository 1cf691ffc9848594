"""The theorems' bounds on a transformer that meets their assumptions, and the wrong constant of the paper."""

from __future__ import annotations

import math

import pytest
import torch
from torch import Tensor

from graphbench import diagnostics as D
from graphbench.errors import BadInput


def spread(tokens: Tensor) -> Tensor:
    return (tokens - tokens.mean(0)).norm()


class TheoremTransformer:
    """Layers stacked exactly as in Theorem 2, in float64, with every quantity that the theorem names."""

    def __init__(self, n: int, dim: int, layers: int, generator: torch.Generator) -> None:
        def draw(*shape: int) -> Tensor:
            return torch.randn(*shape, generator=generator, dtype=torch.float64)

        self.states, self.factors, self.weights, self.alphas = [draw(n, dim)], [], [], []
        for _ in range(layers):
            h, attention = self.states[-1], draw(n, n).softmax(-1)
            w, f1, f2 = draw(dim, dim) / dim, draw(dim, 3 * dim) / dim, draw(3 * dim, dim) / dim
            b, b1, b2 = draw(dim), draw(3 * dim), draw(dim)
            d, d2 = draw(dim).abs() + 0.1, draw(dim).abs() + 0.1
            found = D.decay_factors(h, h @ w, attention, scale=d, bias=b)
            after = (h + attention @ h @ w - b) * d
            torch.testing.assert_close(found.spread[0], spread(after))
            self.states.append((after + torch.relu(after @ f1 + b1) @ f2 + b2) * d2)
            self.weights.append(w)
            self.alphas.append(found.alpha[0])
            self.factors.append(found.alpha[0] * found.lam[0] * D.feed_forward_factor(f1, f2, d2))

    def bound(self, layer: int, patterns: Tensor) -> Tensor:
        norm = torch.linalg.matrix_norm(patterns - patterns.mean(0), 2)
        value_norm = torch.linalg.matrix_norm(self.weights[layer], 2)
        return D.capacity_bound(len(self.states[0]), norm, spread(self.states[0]), value_norm, self.factors[:layer])


def random_patterns(m: int, n: int, generator: torch.Generator) -> Tensor:
    return torch.randn(m, n, generator=generator, dtype=torch.float64).mul(2).softmax(-1)


@pytest.mark.parametrize(("n", "m"), [(5, 3), (12, 40), (23, 2)])
def test_bound_of_theorem_2_holds_at_every_depth(n: int, m: int, generator: torch.Generator) -> None:
    model, patterns = TheoremTransformer(n, 6, 6, generator), random_patterns(m, n, generator)
    for layer, weight in enumerate(model.weights):
        capacity = D.attention_capacity(model.states[layer] @ weight, patterns, normalize=None)
        assert capacity <= model.bound(layer, patterns)
    assert all(0 < alpha < 1 for alpha in model.alphas)


def test_attention_factors_are_exact(generator: torch.Generator) -> None:
    """alpha lambda is the ratio of the spreads after and before attention."""
    h, w = torch.randn(9, 4, generator=generator).double(), torch.randn(4, 4, generator=generator).double()
    attention = torch.randn(9, 9, generator=generator).double().softmax(-1)
    found = D.decay_factors(h, h @ w, attention)
    assert (found.alpha * found.lam).item() == pytest.approx((spread(h + attention @ h @ w) / spread(h)).item())
    projector = torch.eye(9, dtype=torch.float64) - 1 / 9
    x = projector @ h + attention @ projector @ h @ w
    assert found.alpha.item() == pytest.approx(((projector @ x).norm() / x.norm()).item())
    assert found.lam.item() == pytest.approx((x.norm() / spread(h)).item())


def test_leaky_attention_can_add_spread(generator: torch.Generator) -> None:
    h = torch.ones(6, 3) + 1e-3 * torch.randn(6, 3, generator=generator)
    leaky = torch.rand(6, 6, generator=generator) / 6
    assert D.decay_factors(h, h, leaky).alpha > 1


def test_constant_is_the_root_of_2n_and_not_of_2m(generator: torch.Generator) -> None:
    """F <= sqrt(2n) ||P_m V||_F always holds and is tight for two patterns; the printed sqrt(2m) is violated."""
    violations, draws, n = 0, 200, 23
    for _ in range(draws):
        m = int(torch.randint(2, 15, (1,), generator=generator))
        values, patterns = torch.randn(n, 8, generator=generator).double(), random_patterns(m, n, generator)
        capacity = D.attention_capacity(values, patterns, normalize=None)
        mixed = spread(patterns @ values)
        assert capacity <= math.sqrt(2 * n) * mixed * (1 + 1e-12)
        violations += bool(capacity > math.sqrt(2 * m) * mixed)
        if m == 2:
            assert capacity.item() == pytest.approx((math.sqrt(2 * n) * mixed).item())
    assert violations > draws / 5


def test_ragged_factors_with_heads_extra_tokens_and_columns(generator: torch.Generator) -> None:
    """Two graphs of 5 and 3 nodes; the first has two more tokens, the second attends to sampled columns."""
    tokens, values = torch.randn(10, 4, generator=generator), torch.randn(10, 2, 4, generator=generator)
    batch, node = torch.tensor([0] * 7 + [1] * 3), torch.tensor([True] * 5 + [False] * 2 + [True] * 3)
    first = torch.randn(2, 7, 7, generator=generator).softmax(-1)
    second = torch.randn(2, 3, 2, generator=generator).softmax(-1)
    columns = [torch.arange(7), torch.tensor([2, 0])]
    found = D.decay_factors_per_graph(tokens, values, [first, second], batch, columns, node, residual=2.0)
    mixed = 2 * tokens[:5] + torch.einsum("hqk,khd->qd", first, values[:7])[:5]
    assert found.spread[0].item() == pytest.approx(spread(mixed).item(), rel=1e-5)
    full = torch.zeros(2, 3, 3)
    full[:, :, [2, 0]] = second
    alone = D.decay_factors(tokens[7:], values[7:], full, residual=2.0)
    torch.testing.assert_close(found.alpha[1:], alone.alpha)
    torch.testing.assert_close(found.lam[1:], alone.lam)
    torch.testing.assert_close(found.alpha[0] * found.lam[0], found.spread[0] / spread(tokens[:5].double()))


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("n", [1, 3, 7, 100])
def test_equal_tokens_have_no_factors(n: int, dtype: torch.dtype, generator: torch.Generator) -> None:
    """Rounding in the mean of n equal rows must not count as spread, nor the ratio of such errors as a factor."""
    token, weight = torch.randn(1, 5, generator=generator), torch.randn(5, 5, generator=generator)
    tokens = token.expand(n, -1).to(dtype)
    attention = torch.randn(n, n, generator=generator, dtype=torch.float64).softmax(-1)
    found = D.decay_factors(tokens, tokens @ weight.to(dtype), attention)
    assert found.spread.item() == 0
    assert found.alpha.isnan().all()
    assert found.lam.isnan().all()


def test_attention_that_levels_all_tokens_has_alpha_zero_and_a_norm(generator: torch.Generator) -> None:
    """Without a residual, equal rows of attention give every token the same sum: no spread, but lambda is defined."""
    tokens = torch.randn(6, 3, generator=generator).double()
    weights = torch.randn(6, generator=generator).double().softmax(0)
    found = D.decay_factors(tokens, tokens, weights.expand(6, 6), residual=0.0)
    assert (found.spread.item(), found.alpha.item()) == (0, 0)
    norm = (weights @ (tokens - tokens.mean(0))).norm() * 6**0.5
    assert found.lam.item() == pytest.approx((norm / spread(tokens)).item())


def test_a_graph_with_spread_is_measured_beside_one_without(generator: torch.Generator) -> None:
    tokens = torch.cat([torch.ones(4, 3), torch.randn(5, 3, generator=generator)])
    batch = torch.tensor([0] * 4 + [1] * 5)
    attention = [torch.full((1, n, n), 1 / n) for n in (4, 5)]
    found = D.decay_factors_per_graph(tokens, tokens[:, None], attention, batch)
    alone = D.decay_factors(tokens[4:], tokens[4:], attention[1])
    assert found.alpha[0].isnan()
    torch.testing.assert_close(found.alpha[1:], alone.alpha)
    torch.testing.assert_close(found.lam[1:], alone.lam)


def test_shapes_that_do_not_fit_are_refused() -> None:
    tokens, batch = torch.zeros(4, 3), torch.zeros(4, dtype=torch.int64)
    with pytest.raises(BadInput, match="values must be"):
        D.decay_factors_per_graph(tokens, torch.zeros(4, 2, 5), [torch.zeros(2, 4, 4)], batch)
    with pytest.raises(BadInput, match=r"graph 0 must be \[2, 4, 4\]"):
        D.decay_factors_per_graph(tokens, torch.zeros(4, 2, 3), [torch.zeros(2, 4, 3)], batch)
