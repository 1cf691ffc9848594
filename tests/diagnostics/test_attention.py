"""Measures of attention matrices, in list and padded form, compared with one row at a time."""

from __future__ import annotations

import math
import weakref

import pytest
import scipy.stats
import torch
from torch import Tensor

from graphbench import diagnostics as D
from graphbench.errors import BadInput


@pytest.fixture
def matrices(generator: torch.Generator) -> list[Tensor]:
    """Return leaky, sparse matrices of three graphs; graph 1 samples two columns and has a row of zeros."""
    matrices = []
    for n, k in ((4, 4), (5, 2), (1, 1)):
        weights = torch.rand(3, n, k, generator=generator) * (torch.rand(3, n, k, generator=generator) < 0.7)
        weights[..., 0] += 0.01
        matrices.append(weights / (weights.sum(-1, keepdim=True) + 0.3))
    matrices[1][:, 2] = 0.0
    return matrices


def test_entropy_zeros_and_sums_of_every_head(matrices: list[Tensor]) -> None:
    entropy, zeros, sums = D.attention_entropy(matrices), D.attention_zeros(matrices), D.attention_row_sum(matrices)
    assert entropy.shape == zeros.shape == sums.shape == (3, 3)
    for graph, weights in enumerate(matrices):
        for head, matrix in enumerate(weights):
            rows = [row for row in matrix.double().numpy() if row.sum() > 0]
            expected = sum(scipy.stats.entropy(row) for row in rows) / len(rows)
            assert entropy[graph, head].item() == pytest.approx(expected, abs=1e-7)
            assert zeros[graph, head].item() == pytest.approx((matrix == 0).double().mean().item())
            assert sums[graph, head].item() == pytest.approx(matrix.sum(1).mean().item(), rel=1e-6)


def test_padding_does_not_count(matrices: list[Tensor]) -> None:
    padded = torch.full((3, 3, 6, 5), 7.0)
    rows, columns = torch.zeros(3, 6, dtype=torch.bool), torch.zeros(3, 5, dtype=torch.bool)
    for graph, weights in enumerate(matrices):
        n, k = weights.shape[1:]
        padded[graph, :, :n, :k], rows[graph, :n], columns[graph, :k] = weights, True, True
    for measure in (D.attention_entropy, D.attention_zeros, D.attention_row_sum):
        torch.testing.assert_close(measure(padded, rows, columns), measure(matrices))
        torch.testing.assert_close(measure(matrices[0].unsqueeze(0)), measure(matrices[:1]))


def test_one_matrix_at_a_time_is_in_double_precision(monkeypatch: pytest.MonkeyPatch) -> None:
    doubles: list[weakref.ref[Tensor]] = []
    held: list[int] = []

    def counted(matrix: Tensor) -> Tensor:
        held.append(sum(one() is not None for one in doubles))
        double = matrix.double()
        doubles.append(weakref.ref(double))
        return double

    monkeypatch.setattr("graphbench.diagnostics.attention.as_double", counted)
    D.attention_entropy([torch.rand(2, 5, 5) for _ in range(6)])
    assert len(held) == 6
    assert max(held) <= 1


def test_special_rows() -> None:
    uniform, hard, nothing = torch.full((1, 8, 8), 1 / 8), torch.eye(8).unsqueeze(0), torch.zeros(1, 8, 8)
    entropy = D.attention_entropy([uniform, hard, nothing])
    assert entropy[:2, 0].tolist() == pytest.approx([math.log(8), 0])
    assert entropy[2].isnan().all()
    assert D.attention_zeros([uniform, hard, nothing])[:, 0].tolist() == pytest.approx([0, 7 / 8, 1])
    assert D.attention_row_sum([uniform, hard, nothing])[:, 0].tolist() == pytest.approx([1, 1, 0])
    torch.testing.assert_close(D.attention_entropy([uniform.bfloat16()]), entropy[:1])
    broken = uniform.clone()
    broken[0, 2] = math.nan
    for measure in (D.attention_entropy, D.attention_zeros, D.attention_row_sum):
        assert measure([broken]).isnan().all()
        with pytest.raises(BadInput, match="non-negative"):
            measure([torch.cat([broken, -uniform])])


def test_matrices_that_do_not_fit_are_refused(matrices: list[Tensor]) -> None:
    with pytest.raises(BadInput, match="non-negative"):
        D.attention_entropy([-matrices[0]])
    with pytest.raises(BadInput, match="equally many heads"):
        D.attention_zeros([matrices[0], matrices[1][:2]])
    with pytest.raises(BadInput, match="a list of matrices has no padding"):
        D.attention_row_sum(matrices, row_mask=torch.ones(3, 4, dtype=torch.bool))
    with pytest.raises(BadInput, match="Padded attention must be"):
        D.attention_row_sum(matrices[0])
    with pytest.raises(BadInput, match="Masks must be"):
        D.attention_row_sum(matrices[0].unsqueeze(0), row_mask=torch.ones(1, 3, dtype=torch.bool))
