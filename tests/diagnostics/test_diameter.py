"""Diameters of many sets against all pairwise distances."""

from __future__ import annotations

import pytest
import torch

from graphbench.diagnostics import diameter


@pytest.mark.parametrize("cells", [1 << 8, 1 << 18])
def test_diameters_agree_with_pdist(cells: int, monkeypatch: pytest.MonkeyPatch, generator: torch.Generator) -> None:
    monkeypatch.setitem(diameter._CELLS, "cpu", cells)
    sizes = [0, 1, 2, 300, 5, 33, 32, 0]
    group = torch.repeat_interleave(torch.arange(8), torch.tensor(sizes))
    order = torch.randperm(len(group), generator=generator)
    points = torch.randn(len(group), 6, generator=generator, dtype=torch.float64) + 100
    found = diameter.diameters(points[order], group[order], 8)
    for number, size in enumerate(sizes):
        expected = torch.pdist(points[group == number]).max().item() if size > 1 else 0.0
        assert found[number].item() == pytest.approx(expected, rel=1e-12)


def test_thousands_of_points_need_no_square_matrix(monkeypatch: pytest.MonkeyPatch, generator: torch.Generator) -> None:
    points = torch.randn(4000, 3, generator=generator, dtype=torch.float64)
    largest = 0
    original = torch.baddbmm

    def watched(*args: torch.Tensor, **kwargs: float) -> torch.Tensor:
        nonlocal largest
        result = original(*args, **kwargs)
        largest = max(largest, result.numel())
        return result

    monkeypatch.setattr(torch, "baddbmm", watched)
    found = diameter.diameters(points, torch.zeros(4000, dtype=torch.int64), 1)
    assert found.item() == pytest.approx(torch.cdist(points, points).max().item(), rel=1e-12)
    assert largest <= 1 << 18


def test_a_point_that_is_not_finite_marks_its_set() -> None:
    points = torch.tensor([[0.0], [1.0], [torch.inf], [0.0], [torch.nan], [2.0]], dtype=torch.float64)
    found = diameter.diameters(points, torch.tensor([0, 0, 1, 1, 2, 2]), 3)
    assert found[0].item() == 1
    assert found[1:].isnan().all()
