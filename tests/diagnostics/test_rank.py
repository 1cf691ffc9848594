"""Ranks compared with a float64 SVD of each graph by itself."""

from __future__ import annotations

import math

import numpy as np
import pytest
import torch
from torch import Tensor

from graphbench import diagnostics as D
from graphbench.errors import BadInput


def reference(tokens: Tensor) -> np.ndarray:
    return np.linalg.svd(tokens.double().numpy(), compute_uv=False)


def effective(sigma: np.ndarray) -> float:
    p = sigma / sigma.sum()
    p = p[p > 0]
    return float(np.exp(-(p * np.log(p)).sum()))


PER_GRAPH = {
    "numerical_rank": lambda x, b: D.numerical_rank_per_graph(x, b).double(),
    "stable_rank": D.stable_rank_per_graph,
    "effective_rank": D.effective_rank_per_graph,
    "residual": D.rank_one_residual_per_graph,
    "composite": lambda x, b: D.rank_one_residual_per_graph(x, b, norm="composite"),
}


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_singular_values_are_those_of_each_graph(tokens: Tensor, batch: Tensor, dtype: torch.dtype) -> None:
    tokens = tokens.to(dtype)
    found = D.singular_values_per_graph(tokens, batch)
    assert found.dtype == torch.float64
    assert found.shape == (6, 12)
    for graph, values in enumerate(found):
        expected = reference(tokens[batch == graph])
        padded = np.pad(expected, (0, 12 - len(expected)))
        floor = 1e-12 if dtype == torch.float64 else 3e-7  # sqrt(eps) of the Gram matrix
        np.testing.assert_allclose(values.numpy(), padded, rtol=1e-6, atol=floor * expected[0])


def test_ranks_agree_with_the_svd(tokens: Tensor, batch: Tensor) -> None:
    rank, stable, effect = (
        f(tokens, batch) for f in (D.numerical_rank_per_graph, D.stable_rank_per_graph, D.effective_rank_per_graph)
    )
    assert rank.dtype == torch.int64
    assert stable.dtype == effect.dtype == torch.float32
    for graph in range(6):
        own = tokens[batch == graph]
        sigma = reference(own)
        assert rank[graph] == torch.linalg.matrix_rank(own)
        assert stable[graph].item() == pytest.approx((sigma**2).sum() / sigma[0] ** 2, rel=1e-5)
        assert effect[graph].item() == pytest.approx(effective(sigma), rel=1e-5)
    assert rank.tolist() == [3, 12, 1, 8, 4, 8]


@pytest.mark.parametrize("name", PER_GRAPH)
def test_single_graph_and_shuffled_rows_change_nothing(tokens: Tensor, batch: Tensor, name: str) -> None:
    together = PER_GRAPH[name](tokens, batch)
    order = torch.randperm(len(batch), generator=torch.Generator().manual_seed(1))
    torch.testing.assert_close(PER_GRAPH[name](tokens[order], batch[order]), together)
    for graph in range(6):
        own = tokens[batch == graph]
        alone = PER_GRAPH[name](own, torch.zeros(len(own), dtype=torch.int64))
        torch.testing.assert_close(alone[0], together[graph])


def test_scalars_are_the_ragged_form_of_one_graph(tokens: Tensor, batch: Tensor) -> None:
    own = tokens[batch == 4]
    assert D.numerical_rank(own).shape == ()
    assert int(D.numerical_rank(own)) == 4
    for scalar, ragged in (
        (D.stable_rank, D.stable_rank_per_graph),
        (D.effective_rank, D.effective_rank_per_graph),
        (D.rank_one_residual, D.rank_one_residual_per_graph),
    ):
        torch.testing.assert_close(scalar(own), ragged(tokens, batch)[4])


def test_rows_of_zeros_do_not_change_singular_values(tokens: Tensor, batch: Tensor) -> None:
    own = tokens[batch == 1]
    padded = torch.cat((own, torch.zeros(20, 12)))
    torch.testing.assert_close(D.stable_rank(padded), D.stable_rank(own))
    torch.testing.assert_close(D.effective_rank(padded), D.effective_rank(own))
    assert D.numerical_rank(padded) == D.numerical_rank(own)


@pytest.mark.parametrize(("n", "d"), [(9, 5), (5, 9), (40, 40)])
def test_closed_forms(n: int, d: int) -> None:
    k = min(n, d)
    basis = torch.linalg.qr(torch.randn(n, k, dtype=torch.float64))[0]
    isometry = basis @ torch.linalg.qr(torch.randn(d, k, dtype=torch.float64))[0].T
    for measure in (D.stable_rank, D.effective_rank, D.numerical_rank):
        assert float(measure(isometry)) == pytest.approx(k)
        assert float(measure(torch.ones(n, d))) == pytest.approx(1)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_float_tolerance_sees_what_torch_sees(dtype: torch.dtype) -> None:
    u = torch.linalg.qr(torch.randn(60, 20, dtype=torch.float64))[0]
    v = torch.linalg.qr(torch.randn(20, 20, dtype=torch.float64))[0]
    sigma = torch.logspace(0, -16, 20, dtype=torch.float64)
    tokens = ((u * sigma) @ v).to(dtype)
    assert D.numerical_rank(tokens) == torch.linalg.matrix_rank(tokens)
    assert D.numerical_rank(tokens.double(), rtol=1e-3) == int((sigma > 1e-3).sum())


def test_tolerance_follows_the_size_of_the_graph() -> None:
    eps = torch.finfo(torch.float32).eps
    tokens = torch.zeros(1002, 2)
    tokens[0, 0] = tokens[2, 0] = 1.0
    tokens[1, 1] = tokens[3, 1] = 100 * eps  # above max(n, d) eps for n = 2, below it for n = 1000
    batch = torch.tensor([0, 0] + [1] * 1000)
    assert D.numerical_rank_per_graph(tokens, batch).tolist() == [2, 1]


def test_bfloat16_counts_as_exact_numbers(tokens: Tensor, batch: Tensor) -> None:
    coarse = tokens.bfloat16()
    for name, measure in PER_GRAPH.items():
        found = measure(coarse, batch)
        torch.testing.assert_close(found, measure(coarse.float(), batch), msg=name)
        assert found.dtype in (torch.float32, torch.float64)
    with torch.autocast("cpu", dtype=torch.bfloat16):
        torch.testing.assert_close(
            D.effective_rank_per_graph(tokens, batch), PER_GRAPH["effective_rank"](tokens, batch)
        )


def test_zero_missing_and_broken_graphs() -> None:
    tokens = torch.ones(6, 3)
    tokens[2:4] = 0.0
    tokens[4, 1] = math.nan
    batch = torch.tensor([0, 0, 1, 1, 2, 2])
    assert D.numerical_rank_per_graph(tokens, batch, num_graphs=4).tolist() == [1, 0, 0, 0]
    for measure in (D.stable_rank_per_graph, D.effective_rank_per_graph, D.rank_one_residual_per_graph):
        found = measure(tokens, batch, num_graphs=4)
        assert found[0].isfinite()
        assert found[1:].isnan().all()
    assert D.singular_values_per_graph(tokens[:0], batch[:0]).shape == (0, 0)


def test_rank_one_residual_is_the_distance_to_equal_rows(generator: torch.Generator) -> None:
    tokens = torch.randn(7, 4, generator=generator, dtype=torch.float64)
    distance = D.rank_one_residual(tokens, relative=False)
    row = torch.zeros(4, dtype=torch.float64, requires_grad=True)
    optimizer = torch.optim.LBFGS([row], max_iter=50)

    def closure() -> Tensor:
        optimizer.zero_grad()
        loss = (tokens - row).square().sum()
        loss.backward()
        return loss

    optimizer.step(closure)
    assert distance.item() == pytest.approx((tokens - row).norm().item())
    centred = tokens - tokens.mean(0)
    assert D.rank_one_residual(tokens).item() == pytest.approx((centred.norm() / tokens.norm()).item())
    composite = math.sqrt(torch.linalg.matrix_norm(centred, 1) * torch.linalg.matrix_norm(centred, torch.inf))
    assert D.rank_one_residual(tokens, "composite", relative=False).item() == pytest.approx(composite)
    assert D.rank_one_residual(torch.ones(5, 3)).item() == pytest.approx(0, abs=1e-7)


def test_bad_tokens_are_refused(tokens: Tensor, batch: Tensor) -> None:
    with pytest.raises(BadInput, match="matrix"):
        D.stable_rank(tokens[0])
    with pytest.raises(BadInput, match="floating point"):
        D.stable_rank(tokens.long())
    with pytest.raises(BadInput, match="graph of each"):
        D.stable_rank_per_graph(tokens, batch[:-1])
    with pytest.raises(BadInput, match="num_graphs is 5"):
        D.stable_rank_per_graph(tokens, batch, num_graphs=5)
    with pytest.raises(BadInput, match="norm must be"):
        D.rank_one_residual(tokens, norm="spectral")  # type: ignore[arg-type]
