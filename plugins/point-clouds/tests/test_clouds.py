"""Blocks of clouds of equal size, against loops over clouds."""

from __future__ import annotations

import pytest
import torch

from graphbench_point_clouds import PointNet
from graphbench_point_clouds import clouds as clouds_module
from graphbench_point_clouds.clouds import Clouds, farthest_points, interpolate, nearest, squared_distances
from graphbench_point_clouds.hierarchy import nearest_cells
from graphbench_point_clouds.pointconv import inverse_density


def loop(batch, x):
    return [x[batch.ptr[cloud] : batch.ptr[cloud + 1]] for cloud in range(batch.num_graphs)]


@pytest.mark.parametrize("sizes", [(7, 1, 12, 7), (4, 4, 4), (1,)])
def test_every_row_is_in_the_block_of_its_cloud(spec, cut, sizes):
    batch = cut(spec, sizes)
    clouds = Clouds.from_batch(batch)
    found = {}
    for block, part in zip(clouds.blocks, clouds.to_blocks(batch.pos), strict=True):
        found |= dict(zip(block.clouds.tolist(), part, strict=True))
    for cloud, expected in enumerate(loop(batch, batch.pos)):
        assert torch.equal(found[cloud], expected)
    assert len(clouds.blocks) == len(set(sizes))
    assert torch.equal(clouds.to_rows(clouds.to_blocks(batch.pos)), batch.pos)


def test_sizes_of_equal_clouds_are_not_read_from_the_device(spec, cut):
    """Meta tensors have no numbers to read. Benchmarks of points sample clouds of one size on the device."""
    model = PointNet(spec)
    model.precompute(cut(spec, sizes=(5, 5, 5)).apply(lambda tensor: tensor.to("meta")))
    batch = cut(spec, sizes=(5, 4))
    assert model.precomputed(batch).cloud_sizes == [(4, 1), (5, 1)]


def test_keys_order_the_points_of_a_cloud_and_the_first_counts_most(spec, cut):
    batch = cut(spec)
    batch.pos = (2 * batch.pos).round()  # with ties
    clouds = Clouds.from_batch(batch, batch.pos.unbind(1))
    for block in clouds.blocks:
        for rows in block.rows:
            places = batch.pos[rows].tolist()
            assert places == sorted(places)
    assert torch.equal(clouds.to_rows(clouds.to_blocks(batch.pos)), batch.pos)


def test_each_cloud_has_its_own_matrix(spec, cut):
    batch = cut(spec)
    matrices = torch.randn(batch.num_graphs, 3, 5, dtype=torch.float64)
    found = Clouds.from_batch(batch, batch.pos.unbind(1)).transform(batch.pos, matrices)
    expected = torch.cat([part @ matrix for part, matrix in zip(loop(batch, batch.pos), matrices, strict=True)])
    torch.testing.assert_close(found, expected, rtol=1e-12, atol=1e-12)


def test_a_sample_stands_cloud_after_cloud(spec, cut):
    batch = cut(spec)
    clouds = Clouds.from_batch(batch)
    sample, rows = clouds.take([block.rows[:, :3].flip(1) for block in clouds.blocks])
    expected = [torch.arange(a, b)[:3].flip(0) for a, b in zip(batch.ptr[:-1], batch.ptr[1:], strict=True)]
    assert torch.equal(rows, torch.cat(expected))
    assert torch.equal(sample.cloud_of, batch.batch[rows])
    assert torch.equal(sample.to_rows(sample.to_blocks(batch.pos[rows])), batch.pos[rows])


@pytest.fixture
def clouds(spec, cut):
    batch = cut(spec)
    return batch, Clouds.from_batch(batch, batch.pos.unbind(1))


def rows_of(batch, row):
    """Return the rows of the cloud of a row."""
    cloud = int(batch.batch[row])
    return range(int(batch.ptr[cloud]), int(batch.ptr[cloud + 1]))


@pytest.mark.parametrize("width", [2, 3, 9])
def test_distances_are_those_of_all_pairs(width):
    x, y = torch.randn(2, 5, width, dtype=torch.float64), torch.randn(2, 30, width, dtype=torch.float64)
    torch.testing.assert_close(squared_distances(x, y), torch.cdist(x, y).square(), rtol=1e-10, atol=1e-10)
    with torch.autocast("cpu", dtype=torch.bfloat16):
        assert squared_distances(x.bfloat16(), y.bfloat16()).dtype == torch.float32
        torch.testing.assert_close(squared_distances(x, y), torch.cdist(x, y).square(), rtol=1e-10, atol=1e-10)


@pytest.mark.parametrize("k", [1, 5, 20])
def test_nearest_points_are_those_of_a_loop(clouds, k):
    batch, own = clouds
    found = nearest(batch.pos, own, batch.pos, own, k)
    assert found.shape == (batch.num_nodes, k)
    for row, neighbours in enumerate(found.tolist()):
        near = sorted(rows_of(batch, row), key=lambda other: float((batch.pos[other] - batch.pos[row]).norm()))
        assert neighbours == [near[place % min(k, len(near))] for place in range(k)]


@pytest.mark.parametrize("width", [3, 9])
def test_only_some_pairs_of_points_are_in_memory(spec, cut, monkeypatch, width):
    """All pairs of one cloud of 100,000 points would need 40 GB, and several times as much with temporary tensors."""
    batch = cut(spec, (40, 40, 25))
    own, x = Clouds.from_batch(batch), torch.randn(batch.num_nodes, width)
    place, cloud_of, sizes = torch.randint(9, (105, 3)), batch.batch, torch.tensor([40, 40, 25])

    def found():
        return [
            nearest(x, own, x, own, 5, radius=1.0),
            inverse_density(batch.pos, own, 0.4),
            nearest_cells(place, torch.ones(3, 3), cloud_of, sizes, 40, 4),
        ]

    whole, pairs = found(), []

    class Counted(torch.utils._python_dispatch.TorchDispatchMode):
        def __torch_dispatch__(self, function, types, args=(), kwargs=None):
            result = function(*args, **(kwargs or {}))
            pairs.extend(part.numel() for part in torch.utils._pytree.tree_leaves(result) if torch.is_tensor(part))
            return result

    monkeypatch.setattr(clouds_module, "_PAIRS", 400)
    with Counted():
        parts = found()
    assert max(pairs) <= 105 * max(width, 5)  # columns and results; all pairs are 3,200 and 4,800
    for one, other in zip(whole, parts, strict=True):
        torch.testing.assert_close(one, other, rtol=1e-6, atol=0)


def test_neighbours_in_a_large_cloud_are_found_without_all_pairs(spec, cut, monkeypatch):
    batch = cut(spec, sizes=(40, 40))
    own, computed = Clouds.from_batch(batch), []
    expected = [nearest(batch.pos, own, batch.pos, own, 9, radius, 2) for radius in (None, 0.7)]
    between = clouds_module.squared_distances
    monkeypatch.setattr(clouds_module, "squared_distances", lambda *both: computed.append(both) or between(*both))
    monkeypatch.setattr(clouds_module, "_PAIRS", 1_599)
    for radius, index in zip((None, 0.7), expected, strict=True):
        assert torch.equal(nearest(batch.pos, own, batch.pos, own, 9, radius, 2), index)
    assert not computed
    batch.pos[3] = torch.nan  # which a tree refuses
    assert nearest(batch.pos, own, batch.pos, own, 9).shape == (80, 9)
    assert computed


@pytest.mark.parametrize("pairs", [clouds_module._PAIRS, 0], ids=["all pairs", "a tree"])
def test_a_ball_holds_what_is_within_its_radius_and_the_nearest_again(clouds, pairs, monkeypatch):
    monkeypatch.setattr(clouds_module, "_PAIRS", pairs)
    batch, own = clouds
    k, radius = 4, 1.2
    for row, ball in enumerate(nearest(batch.pos, own, batch.pos, own, k, radius).tolist()):
        distance = {other: float((batch.pos[other] - batch.pos[row]).norm()) for other in rows_of(batch, row)}
        near = sorted(distance, key=distance.get)[:k]
        assert set(ball) == {other for other in near if distance[other] <= radius}
        assert ball[0] == row


@pytest.mark.parametrize("pairs", [clouds_module._PAIRS, 0], ids=["all pairs", "a tree"])
@pytest.mark.parametrize(("k", "dilation"), [(2, 3), (3, 3), (5, 2)])
def test_dilated_neighbours_are_every_so_many_of_the_nearest(clouds, k, dilation, pairs, monkeypatch):
    """A cloud of fewer points uses the largest dilation it has points for; one of fewer than k repeats them in turn."""
    monkeypatch.setattr(clouds_module, "_PAIRS", pairs)
    batch, own = clouds
    steps = set()
    for row, neighbours in enumerate(nearest(batch.pos, own, batch.pos, own, k, dilation=dilation).tolist()):
        near = sorted(rows_of(batch, row), key=lambda other: float((batch.pos[other] - batch.pos[row]).norm()))
        step = max(s for s in range(1, dilation + 1) if s == 1 or s * k <= len(near))
        steps.add(step)
        assert neighbours == [near[place * step % len(near)] for place in range(k)]
    assert {1, dilation} <= steps


def test_equal_distances_do_not_follow_the_numbering(spec, cut):
    """Points of a grid: the neighbours of a point are at the same places for any numbering."""
    batch = cut(spec, (27,))
    grid = torch.cartesian_prod(*(torch.arange(3.0, dtype=torch.float64),) * 3)
    answers = []
    for seed in (0, 1):
        order = torch.randperm(27, generator=torch.Generator().manual_seed(seed))
        batch.pos = grid[order]
        own = Clouds.from_batch(batch, batch.pos.unbind(1))
        near = batch.pos[nearest(batch.pos, own, batch.pos, own, 4)]
        far = batch.pos[farthest_points(batch.pos, own, 6)[1]]
        answers.append((near[order.argsort()], far))
    assert torch.equal(answers[0][0], answers[1][0])
    assert torch.equal(answers[0][1], answers[1][1])


def test_farthest_points_are_those_of_a_loop_from_the_one_farthest_from_the_mean(clouds):
    batch, own = clouds
    sample, rows = farthest_points(batch.pos, own, 5)
    for cloud in range(batch.num_graphs):
        members = torch.arange(batch.ptr[cloud], batch.ptr[cloud + 1])
        pos = batch.pos[members]
        chosen = [int((pos - pos.mean(0)).norm(dim=1).argmax())]
        while len(chosen) < min(5, len(members)):
            chosen.append(int(torch.cdist(pos, pos[chosen]).amin(1).argmax()))
        assert rows[sample.cloud_of == cloud].tolist() == members[chosen].tolist()


@pytest.mark.parametrize("count", [1, 2, 3, 5])
def test_interpolation_weights_three_points_by_inverse_squared_distances(clouds, count):
    """All points of a cloud of fewer than three, each once."""
    batch, own = clouds
    sample, rows = farthest_points(batch.pos, own, count)
    x, pos = torch.randn(len(rows), 2, dtype=torch.float64), batch.pos[rows]
    found = interpolate(x, pos, sample, batch.pos, own)
    for row in range(batch.num_nodes):
        members = [place for place in range(len(rows)) if sample.cloud_of[place] == batch.batch[row]]
        distance = (pos[members] - batch.pos[row]).norm(dim=1)
        near = distance.argsort()[:3]
        weight = 1 / distance[near].square().clamp(min=1e-10)
        expected = (weight[:, None] * x[members][near]).sum(0) / weight.sum()
        torch.testing.assert_close(found[row], expected, rtol=1e-9, atol=1e-9)
