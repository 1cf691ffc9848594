"""Linear attention against matrices of all pairs."""

from __future__ import annotations

import pytest
import torch

from graphbench.nn import DenseLayout
from graphbench_large_graphs.linear import attention_matrices, linear_attention, unit_norm

HEADS, WIDTH, VALUES = 2, 3, 4


def rows(count, width, seed):
    return torch.randn(count, HEADS, width, dtype=torch.float64, generator=torch.Generator().manual_seed(seed))


def pairs(q, k, loop, uniform, same_graph):
    """Return unnormalised weights `[H, T, T]` of nodes of the same graph, by definition."""
    size = same_graph.sum(1).double()
    weights = (torch.einsum("ihm,jhm->hij", q, k) + uniform) / size[:, None]
    return (weights + loop * torch.eye(len(q), dtype=torch.float64)) * same_graph


@pytest.mark.parametrize(("loop", "uniform"), [(0.0, 0.0), (1.0, 0.0), (0.0, 1.0), (0.3, 2.0)])
def test_it_is_the_weighted_mean_over_the_nodes_of_each_graph(batch, same_graph, loop, uniform):
    count = batch.num_nodes
    q, k = rows(count, WIDTH, 0).abs(), rows(count, WIDTH, 1).abs()
    v = rows(count, VALUES, 2)
    layout = DenseLayout.from_batch(batch)
    weights = pairs(q, k, loop, uniform, same_graph)
    expected = torch.einsum("hij,jhd->ihd", weights / weights.sum(-1, keepdim=True), v)
    found = linear_attention(q, k, v, layout, loop, uniform)
    torch.testing.assert_close(found, expected, rtol=1e-13, atol=1e-13)
    first = 0
    for matrix, size in zip(attention_matrices(q, k, layout, loop, uniform), batch.ptr.diff().tolist(), strict=True):
        own = weights[:, first : first + size, first : first + size]
        torch.testing.assert_close(matrix, own / own.sum(-1, keepdim=True), rtol=1e-13, atol=1e-13)
        first += size


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
def test_half_precision_sums_a_large_graph_in_float32(dtype):
    """A sum of this many keys exceeds float16, and means in bfloat16 stop changing after a few hundred nodes."""
    count = 100_000
    v = torch.linspace(0, 1, count)[:, None, None].to(dtype)
    q = torch.ones(count, 1, 1, dtype=dtype)
    for autocast in (False, True):
        with torch.autocast("cpu", dtype=torch.bfloat16, enabled=autocast):
            found = linear_attention(q, q, v, DenseLayout.from_batch(torch.zeros(count, dtype=torch.int64)))
        assert found.dtype == dtype
        torch.testing.assert_close(found.float(), torch.full_like(found, 0.5, dtype=torch.float32), rtol=1e-2, atol=0)


def test_the_frobenius_norm_is_that_of_each_graph(batch, same_graph):
    x = rows(batch.num_nodes, WIDTH, 3)
    norm = (same_graph.double() @ x.square().sum((1, 2))).sqrt()
    found = unit_norm(x, batch.batch, batch.num_graphs)
    torch.testing.assert_close(found, x / norm[:, None, None], rtol=1e-14, atol=0)


def test_a_graph_of_zeros_has_finite_gradients(batch):
    x = torch.zeros(batch.num_nodes, HEADS, WIDTH, requires_grad=True)
    unit_norm(x, batch.batch, batch.num_graphs).sum().backward()
    assert x.grad.isfinite().all()


def test_squares_of_half_precision_do_not_overflow():
    x = torch.full((4, 1, 1), 60_000.0, dtype=torch.float16)
    found = unit_norm(x, torch.zeros(4, dtype=torch.int64), 1)
    torch.testing.assert_close(found, torch.full((4, 1, 1), 0.5))
