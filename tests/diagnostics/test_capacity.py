"""Attention capacity compared with brute-force maximisation over attention matrices."""

from __future__ import annotations

import itertools
import math

import pytest
import torch
from torch import Tensor

from graphbench import diagnostics as D
from graphbench.diagnostics import Patterns
from graphbench.errors import BadInput


def random_patterns(m: int, n: int, generator: torch.Generator) -> Tensor:
    weights = torch.rand(m, n, generator=generator, dtype=torch.float64)
    weights = weights * (torch.rand(m, n, generator=generator) < 0.6)
    weights[:, 0] += 0.1
    return weights / weights.sum(1, keepdim=True)


def by_vertices(values: Tensor, patterns: Tensor) -> float:
    """Return the maximum over all m^(2n) pairs of attention matrices whose rows are patterns."""
    m, n = patterns.shape
    best = 0.0
    for rows in itertools.product(range(m), repeat=2 * n):
        first, second = patterns[list(rows[:n])], patterns[list(rows[n:])]
        best = max(best, float((first @ values - second @ values).norm()))
    return best


@pytest.mark.parametrize(("n", "m"), [(2, 4), (3, 3), (4, 2), (1, 5)])
def test_capacity_is_the_maximum_over_vertices(n: int, m: int, generator: torch.Generator) -> None:
    values = torch.randn(n, 3, generator=generator, dtype=torch.float64)
    patterns = random_patterns(m, n, generator)
    found = D.attention_capacity(values, patterns, normalize=None)
    assert found.item() == pytest.approx(by_vertices(values, patterns), rel=1e-12)


def test_no_attention_matrix_in_the_span_does_better(generator: torch.Generator) -> None:
    n, m = 6, 5
    values = torch.randn(n, 4, generator=generator, dtype=torch.float64)
    patterns = random_patterns(m, n, generator)
    capacity = D.attention_capacity(values, patterns, normalize=None)
    mixtures = torch.distributions.Dirichlet(torch.full((m,), 0.05, dtype=torch.float64)).sample((2, 4000, n))
    difference = (mixtures[0] - mixtures[1]) @ patterns @ values
    reached = torch.linalg.matrix_norm(difference).max()
    assert 0.6 * capacity < reached <= capacity * (1 + 1e-12)


def test_gradient_ascent_ends_at_the_capacity(generator: torch.Generator) -> None:
    n, m = 3, 4
    values = torch.randn(n, 3, generator=generator, dtype=torch.float64)
    patterns = random_patterns(m, n, generator)
    logits = torch.randn(30, 2, n, m, generator=generator, dtype=torch.float64).requires_grad_()
    optimizer = torch.optim.Adam([logits], lr=0.5)
    for _ in range(120):
        first, second = logits.softmax(-1).unbind(1)
        reached = torch.linalg.matrix_norm((first - second) @ patterns @ values)
        optimizer.zero_grad()
        (-reached.sum()).backward()
        optimizer.step()
    capacity = D.attention_capacity(values, patterns, normalize=None).item()
    assert reached.max().item() == pytest.approx(capacity, rel=1e-3)
    assert reached.max().item() <= capacity


def test_normalisers(generator: torch.Generator) -> None:
    values = torch.randn(9, 4, generator=generator)
    patterns = random_patterns(6, 9, generator).float()
    bare = D.attention_capacity(values, patterns, normalize=None)
    torch.testing.assert_close(D.attention_capacity(values, patterns), bare / values.norm())
    torch.testing.assert_close(D.attention_capacity(values, patterns, "sum"), bare / values.norm(dim=1).sum())
    assert bare.dtype == torch.float32
    assert D.attention_capacity(values * 7, patterns).item() == pytest.approx(
        D.attention_capacity(values, patterns).item()
    )
    assert D.attention_capacity(torch.zeros(9, 4), patterns).item() == 0


def test_frobenius_normaliser_does_not_know_the_size_of_the_graph(generator: torch.Generator) -> None:
    values, patterns = torch.randn(5, 4, generator=generator), random_patterns(6, 5, generator)
    copies = torch.cat((values, values, values)), torch.cat((patterns, patterns, patterns), 1) / 3
    for normalize, ratio in (("frobenius", 1.0), ("sum", 1 / math.sqrt(3))):
        found = D.attention_capacity(*copies, normalize) / D.attention_capacity(values, patterns, normalize)
        assert found.item() == pytest.approx(ratio, rel=1e-5)


def test_shift_of_all_values_leaves_the_capacity(generator: torch.Generator) -> None:
    values = torch.randn(9, 4, generator=generator)
    patterns = random_patterns(6, 9, generator)
    bare = D.attention_capacity(values, patterns, None)
    torch.testing.assert_close(D.attention_capacity(values + 1000, patterns, None), bare, rtol=1e-4, atol=0)


def test_ragged_capacity_is_that_of_each_graph(tokens: Tensor, batch: Tensor, patterns: Patterns) -> None:
    dense = D.pattern_matrix(patterns.node, patterns.pattern, len(patterns.batch), len(batch))
    heads = torch.stack((tokens, tokens.flip(1).cumsum(1), tokens**2), 1)
    for normalize in ("frobenius", "sum", None):
        together = D.attention_capacity_per_graph(tokens, patterns, normalize)
        by_head = D.attention_capacity_per_graph(heads, patterns, normalize)
        assert by_head.shape == (6, 3)
        torch.testing.assert_close(by_head[:, 0], together, equal_nan=True)
        assert together[3].isnan()  # without patterns
        assert together[2].item() == 0  # with a single one
        for graph in (0, 1, 2, 4, 5):
            own = dense[patterns.batch == graph][:, batch == graph]
            alone = D.attention_capacity(heads[batch == graph].transpose(0, 1), own, normalize)
            torch.testing.assert_close(by_head[graph], alone)


def test_padded_capacity_is_that_of_each_graph(tokens: Tensor, batch: Tensor, patterns: Patterns) -> None:
    dense = D.pattern_matrix(patterns.node, patterns.pattern, len(patterns.batch), len(batch))
    values, rows = torch.full((6, 30, 12), math.nan), torch.full((6, 40, 30), math.nan)
    node_mask, pattern_mask = torch.zeros(6, 30, dtype=torch.bool), torch.zeros(6, 40, dtype=torch.bool)
    for graph in range(6):
        nodes, own = batch == graph, patterns.batch == graph
        n, m = int(nodes.sum()), int(own.sum())
        values[graph, :n], rows[graph, :m, :n], rows[graph, :m, n:] = tokens[nodes], dense[own][:, nodes], 0.0
        node_mask[graph, :n], pattern_mask[graph, :m] = True, True
    padded = D.attention_capacity(values, rows, "frobenius", node_mask, pattern_mask)
    torch.testing.assert_close(padded, D.attention_capacity_per_graph(tokens, patterns), equal_nan=True)


def test_nodes_narrower_and_wider_than_values_agree(generator: torch.Generator) -> None:
    """Values wider than the graph are first rotated into their span."""
    matrix = torch.rand(20, 6, generator=generator, dtype=torch.float64)
    matrix = matrix / matrix.sum(1, keepdim=True)
    node, pattern = torch.arange(6).repeat(20), torch.arange(20).repeat_interleave(6)
    patterns = Patterns(node, pattern, matrix.flatten(), torch.zeros(20, dtype=torch.int64), torch.tensor([6]))
    for dim in (3, 6, 50):
        heads = torch.randn(6, 2, dim, generator=generator, dtype=torch.float64)
        expected = [math.sqrt(6) * torch.pdist(matrix @ values).max().item() for values in heads.unbind(1)]
        found = D.attention_capacity_per_graph(heads, patterns, None)
        assert found[0].tolist() == pytest.approx(expected, rel=1e-12)
        one = D.attention_capacity_per_graph(heads[:, 0], patterns, None)
        assert one.item() == pytest.approx(expected[0], rel=1e-12)


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float32, torch.float64])
def test_types_and_autocast(tokens: Tensor, patterns: Patterns, dtype: torch.dtype) -> None:
    values = tokens.to(dtype)
    found = D.attention_capacity_per_graph(values, patterns)
    assert found.dtype == (torch.float64 if dtype == torch.float64 else torch.float32)
    exact = D.attention_capacity_per_graph(values.double(), patterns)
    torch.testing.assert_close(found, exact.to(found.dtype), equal_nan=True)
    with torch.autocast("cpu", dtype=torch.bfloat16):
        torch.testing.assert_close(D.attention_capacity_per_graph(values, patterns), found, equal_nan=True)


def test_diverged_values_have_no_capacity(tokens: Tensor, batch: Tensor, patterns: Patterns) -> None:
    broken = tokens.clone()
    broken[batch == 1] = math.nan
    found = D.attention_capacity_per_graph(broken, patterns)
    assert found[1].isnan()
    torch.testing.assert_close(found[[0, 2, 4, 5]], D.attention_capacity_per_graph(tokens, patterns)[[0, 2, 4, 5]])
    first, alone = torch.tensor([0, 1]), torch.tensor([[3.0, 0.0], [0.0, 4.0], [math.nan, 1.0]])
    beside = Patterns.uniform(first, first, torch.zeros(2, dtype=torch.int64), torch.tensor([3]))
    assert D.attention_capacity_per_graph(alone, beside).isnan().all()  # of the node that no pattern reads


def test_token_capacity(generator: torch.Generator) -> None:
    values = torch.randn(14, 2, 5, generator=generator)
    batch = torch.tensor([0] * 5 + [2] * 9)
    found = D.token_capacity_per_graph(values.sum(1), batch, num_graphs=4)
    assert found[[1, 3]].isnan().all()
    for graph in (0, 2):
        own = values.sum(1)[batch == graph]
        expected = torch.pdist(own).max() / own.norm(dim=1).mean()
        torch.testing.assert_close(found[graph], expected)
        torch.testing.assert_close(D.token_capacity(own), expected)
        torch.testing.assert_close(D.token_capacity(own, normalize=None), torch.pdist(own).max())
    heads = D.token_capacity_per_graph(values, batch)
    torch.testing.assert_close(heads[2, 1], D.token_capacity(values[batch == 2, 1]))


def test_bad_patterns_and_options_are_refused(tokens: Tensor, patterns: Patterns) -> None:
    values = torch.ones(3, 2)
    for rows in (torch.full((2, 3), 0.5), torch.tensor([[1.5, -0.5, 0.0]]), torch.tensor([[math.nan, 0.5, 0.5]])):
        with pytest.raises(BadInput, match="non-negative and sum to one"):
            D.attention_capacity(values, rows)
    with pytest.raises(BadInput, match="sum to one over the nodes"):
        D.attention_capacity(values, torch.tensor([[0, 0, 1.0]]), node_mask=torch.tensor([True, True, False]))
    with pytest.raises(BadInput, match=r"\[..., n, dim\]"):
        D.attention_capacity(values, torch.eye(4))
    with pytest.raises(BadInput, match="normalize must be"):
        D.attention_capacity(values, torch.eye(3), "max")  # type: ignore[arg-type]
    with pytest.raises(BadInput, match="67 nodes"):
        D.attention_capacity_per_graph(tokens[1:], patterns)
    with pytest.raises(BadInput, match="normalize must be"):
        D.token_capacity(values, "sum")  # type: ignore[arg-type]
