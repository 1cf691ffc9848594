"""Diameters of many sets compared with all pairwise distances."""

from __future__ import annotations

import pytest
import torch

from graphbench.diagnostics import diameter


@pytest.mark.parametrize(("cells", "block"), [(1 << 8, 3), (1 << 20, 32)])
def test_diameters_agree_with_pdist(
    cells: int, block: int, monkeypatch: pytest.MonkeyPatch, generator: torch.Generator
) -> None:
    monkeypatch.setattr(diameter, "_CELLS", cells)
    monkeypatch.setitem(diameter._BLOCK, "cpu", block)
    sizes = [0, 1, 2, 300, 5, 33, 32, 0]
    group = torch.repeat_interleave(torch.arange(8), torch.tensor(sizes))
    order = torch.randperm(len(group), generator=generator)
    points = torch.randn(len(group), 6, generator=generator, dtype=torch.float64) + 100
    found = diameter.diameters(points[order], group[order], 8)
    for number, size in enumerate(sizes):
        expected = torch.pdist(points[group == number]).max().item() if size > 1 else 0.0
        assert found[number].item() == pytest.approx(expected, rel=1e-12)


def shapes_of_many_points(generator: torch.Generator) -> dict[str, torch.Tensor]:
    """Return a cloud, and shapes on which few pairs can be ruled out."""
    cloud = torch.randn(3000, 3, generator=generator, dtype=torch.float64)
    line = torch.linspace(-1, 1, 3000, dtype=torch.float64).unsqueeze(1)
    return {
        "cloud": cloud,
        "sphere": cloud / cloud.norm(dim=1, keepdim=True),
        "line": line * torch.tensor([[1.0, 2.0, -1.0]]),
        "one place": torch.ones(3000, 3, dtype=torch.float64),
        "far away": cloud + 1e6,
    }


@pytest.mark.parametrize("shape", ["cloud", "sphere", "line", "one place", "far away"])
def test_thousands_of_points_need_no_square_matrix(
    shape: str, monkeypatch: pytest.MonkeyPatch, generator: torch.Generator
) -> None:
    points = shapes_of_many_points(generator)[shape]
    largest, original = 0, torch.baddbmm

    def watched(*args: torch.Tensor, **kwargs: float) -> torch.Tensor:
        nonlocal largest
        result = original(*args, **kwargs)
        largest = max(largest, result.numel())
        return result

    monkeypatch.setattr(torch, "baddbmm", watched)
    found = diameter.diameters(points, torch.zeros(3000, dtype=torch.int64), 1)
    assert found.item() == pytest.approx(torch.pdist(points).max().item(), rel=1e-12)
    assert 0 < largest <= 32 * 3000


def test_a_point_that_is_not_finite_marks_its_set() -> None:
    points = torch.tensor([[0.0], [1.0], [torch.inf], [0.0], [torch.nan], [2.0]], dtype=torch.float64)
    found = diameter.diameters(points, torch.tensor([0, 0, 1, 1, 2, 2]), 3)
    assert found[0].item() == 1
    assert found[1:].isnan().all()
