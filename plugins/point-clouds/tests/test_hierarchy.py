"""Trees of cells, against loops over points and cells."""

from __future__ import annotations

import math
from itertools import product

import pytest
import torch

from graphbench.testing import tiny_spec, tiny_table
from graphbench_point_clouds.clouds import Clouds
from graphbench_point_clouds.hierarchy import MARGIN, build_levels, nearest_cells

SIZES = (40, 2, 9)


def clouds_of(sizes):
    return Clouds.from_batch(tiny_table(tiny_spec(kind="coordinates"), sizes=sizes).batch(range(len(sizes))))


def tree(pos, sizes, depth, divide, k=4):
    near = torch.zeros(len(pos), k, dtype=torch.int64)
    return build_levels(pos, clouds_of(sizes), near, depth, divide)


def box_of(pos):
    """Lower corner and lengths."""
    low = pos.min(0).values - MARGIN
    return low, pos.max(0).values + MARGIN - low


@pytest.mark.parametrize(("depth", "divide"), [(3, 3), (4, 2), (1, 5), (2, 4)])
def test_every_point_lies_in_its_cells_and_empty_cells_are_left_out(depth, divide):
    pos = torch.randn(sum(SIZES), 3, dtype=torch.float64)
    levels = tree(pos, SIZES, depth, divide)
    assert len(levels) == depth + 1
    for cloud, part in enumerate(pos.split(SIZES)):
        low, size = box_of(part)
        start = sum(SIZES[:cloud])
        rows = torch.arange(start, start + len(part))
        for level in range(1, depth + 1):
            rows = levels[level - 1].parent[rows]
            along = divide ** (depth - level)
            held = [tuple(math.floor(x) for x in place) for place in ((part - low) / size * along).tolist()]
            middles = low + (torch.tensor(held, dtype=torch.float64) + 0.5) * size / along
            torch.testing.assert_close(levels[level].pos[rows], middles, rtol=1e-12, atol=1e-12)
            assert int((levels[level].cloud_of == cloud).sum()) == len(set(held))
    assert levels[-1].cloud_of.tolist() == [0, 1, 2]


def test_cells_lie_in_one_parent_each_on_the_borders_too():
    """Points on the corners of all cells, for which rounding decides on each level separately."""
    pos = torch.tensor(list(product(range(10), repeat=3))) / 9
    points, small, large, root = tree(pos, (1000,), 3, 3)
    assert [len(level.pos) for level in (points, small, large, root)] == [1000, 729, 27, 1]
    assert large.parent.tolist() == [0] * 27
    children = torch.bincount(small.parent)
    assert children.tolist() == [27] * 27
    assert bool(((small.pos - large.pos[small.parent]).abs() < 1 / 6).all())


def test_flat_and_single_clouds_have_their_cells_in_the_middle():
    pos = torch.tensor([[2.0, 7.0, 0.0], [2.0, 8.0, 0.0], [2.0, 7.0, 0.0], [1e30, -5.0, 3.0]])
    _, cells, root = tree(pos, (3, 1), 2, 3)
    torch.testing.assert_close(cells.pos[:, 0], torch.tensor([2.0, 2.0, 1e30]))
    assert len(cells.pos) == 3
    torch.testing.assert_close(root.pos, torch.tensor([[2.0, 7.5, 0.0], [1e30, -5.0, 3.0]]))


def test_siblings_are_the_nearest_cells_of_the_cloud():
    place, cloud_of = torch.randint(-99, 99, (12, 3)), torch.tensor([0] * 9 + [1] + [2] * 2)
    side = torch.rand(3, 3, dtype=torch.float64) + 0.5
    found = nearest_cells(place, side, cloud_of, torch.tensor([9, 1, 2]), 9, 4)
    for i in range(12):
        others = [j for j in range(12) if cloud_of[j] == cloud_of[i]]
        distance = ((place - place[i]) * side[cloud_of[i]]).square().sum(1)
        nearest = sorted(others, key=distance.tolist().__getitem__)[:4]
        assert found[i].tolist() == nearest + [i] * (4 - len(nearest))


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("shift", [0.0, 0.1, -0.7, 100.0])
def test_equal_distances_of_cells_go_to_the_first_cell_wherever_the_cloud_is(dtype, shift):
    """Rounding of centres, which depends on the place of the cloud and the precision, must not decide."""
    line = torch.tensor([[0.37 * i, 0.0, 0.0] for i in range(9)], dtype=dtype) + shift
    cells = tree(line, (9,), depth=2, divide=9)[1].siblings
    assert cells.tolist() == [sorted(range(9), key=lambda j: (abs(i - j), j))[:4] for i in range(9)]


def test_neither_order_nor_other_clouds_change_a_tree():
    """Points on a grid have cells on a grid, with equal distances everywhere."""
    pos = (2 * torch.randn(60, 3)).round() / 2
    order = torch.randperm(60)
    alone = tree(pos, (60,), 3, 3)
    moved = tree(pos[order], (60,), 3, 3)
    beside = tree(torch.cat([torch.randn(7, 3), pos, torch.randn(200, 3)]), (7, 60, 200), 3, 3)
    assert torch.equal(moved[0].parent, alone[0].parent[order])
    assert torch.equal(beside[0].parent[7:67] - beside[0].parent[7:67].min(), alone[0].parent)
    for level in (1, 2):
        rows = beside[level].cloud_of == 1
        first = int(rows.nonzero()[0])
        for other, rows_of_it, start in ((moved, slice(None), 0), (beside, rows, first)):
            assert torch.equal(other[level].pos[rows_of_it], alone[level].pos)
            assert torch.equal(other[level].siblings[rows_of_it] - start, alone[level].siblings)
