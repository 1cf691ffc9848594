"""Blocks of clouds of one size, against loops over clouds."""

from __future__ import annotations

import pytest
import torch

from graphbench_point_clouds.clouds import Clouds


def loop(batch, x):
    return [x[batch.ptr[cloud] : batch.ptr[cloud + 1]] for cloud in range(batch.num_graphs)]


@pytest.mark.parametrize("sizes", [(7, 1, 12, 7), (4, 4, 4), (1,)])
def test_every_row_is_in_the_block_of_its_cloud(spec, cut, sizes):
    batch = cut(spec, sizes)
    clouds = Clouds.from_batch(batch)
    found = {}
    for block, part in zip(clouds.blocks, clouds.gathered(batch.pos), strict=True):
        found |= dict(zip(block.clouds.tolist(), part, strict=True))
    for cloud, expected in enumerate(loop(batch, batch.pos)):
        assert torch.equal(found[cloud], expected)
    assert len(clouds.blocks) == len(set(sizes))
    assert torch.equal(clouds.to_rows(clouds.gathered(batch.pos)), batch.pos)


def test_keys_order_the_points_of_a_cloud_and_the_first_counts_most(spec, cut):
    batch = cut(spec)
    batch.pos = (2 * batch.pos).round()  # with ties
    clouds = Clouds.from_batch(batch, batch.pos.unbind(1))
    for block in clouds.blocks:
        for rows in block.rows:
            places = batch.pos[rows].tolist()
            assert places == sorted(places)
    assert torch.equal(clouds.to_rows(clouds.gathered(batch.pos)), batch.pos)


def test_each_cloud_has_its_own_matrix(spec, cut):
    batch = cut(spec)
    matrices = torch.randn(batch.num_graphs, 3, 5, dtype=torch.float64)
    found = Clouds.from_batch(batch, batch.pos.unbind(1)).transformed(batch.pos, matrices)
    expected = torch.cat([part @ matrix for part, matrix in zip(loop(batch, batch.pos), matrices, strict=True)])
    torch.testing.assert_close(found, expected, rtol=1e-12, atol=1e-12)


def test_a_sample_stands_cloud_after_cloud(spec, cut):
    batch = cut(spec)
    clouds = Clouds.from_batch(batch)
    sample, rows = clouds.sampled([block.rows[:, :3].flip(1) for block in clouds.blocks])
    expected = [torch.arange(a, b)[:3].flip(0) for a, b in zip(batch.ptr[:-1], batch.ptr[1:], strict=True)]
    assert torch.equal(rows, torch.cat(expected))
    assert torch.equal(sample.cloud_of, batch.batch[rows])
    assert torch.equal(sample.to_rows(sample.gathered(batch.pos[rows])), batch.pos[rows])
