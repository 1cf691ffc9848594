"""PointConv against explicit sums over neighbours."""

from __future__ import annotations

import math

import pytest
import torch

from graphbench.errors import BadInput
from graphbench_point_clouds import PointConv
from graphbench_point_clouds.clouds import Clouds
from graphbench_point_clouds.model import Points
from graphbench_point_clouds.pointconv import SampledConv, WholeConv, inverse_density


@pytest.fixture
def points(spec, cut):
    batch = cut(spec, (12, 5, 12))
    return Points(batch.pos, batch.x_dense, Clouds.from_batch(batch, batch.pos.unbind(1)))


def density(pos, at, bandwidth):
    """Compute the mean of normalised Gaussian kernels, as in the released code."""
    squared = (pos - at).square().sum(1)
    return (torch.exp(-squared / (2 * bandwidth**2)) / (math.sqrt(2 * math.pi) * bandwidth)).mean()


def convolved(layer, seen, x, inverse):
    total = 0
    for place, feature, share in zip(seen, x, inverse / inverse.max(), strict=True):
        scale = layer.scale_out(layer.scale(share.view(1, 1))).sigmoid()
        u = layer.features(torch.cat([place, feature])[None])[0] * scale[0]
        total = total + torch.outer(u, layer.places(place[None])[0])
    return layer.out(total.flatten()[None])[0]


def test_densities_are_means_of_kernels_in_the_cloud(points):
    found = inverse_density(points.pos, points.clouds, 0.4)
    for row in range(12):
        expected = 1 / density(points.pos[:12], points.pos[row], 0.4)
        ratio = found[row] / expected
        assert ratio == pytest.approx(1 / (math.sqrt(2 * math.pi) * 0.4))


def test_a_convolution_sums_weighted_features_of_the_nearest_points(points, made):
    layer = made(lambda: SampledConv(3, 1, (4, 6), 0.4, num_points=4, num_neighbors=3))
    found = layer(points)
    assert torch.bincount(found.clouds.cloud_of).tolist() == [4, 4, 4]
    for row in range(4):
        at = found.pos[row]
        near = (points.pos[:12] - at).norm(dim=1).argsort()[:3]
        inverse = torch.stack([1 / density(points.pos[:12], points.pos[j], 0.4) for j in near])
        expected = convolved(layer, points.pos[near] - at, points.x[near], inverse)
        torch.testing.assert_close(found.x[row], expected, rtol=1e-9, atol=1e-9)


def test_the_last_convolution_sees_the_whole_cloud_from_its_mean(points, made):
    layer = made(lambda: WholeConv(3, 1, (4, 6), 0.8))
    found = layer(points)
    for cloud, rows in enumerate((slice(0, 12), slice(12, 17), slice(17, 29))):
        pos = points.pos[rows]
        inverse = torch.stack([1 / density(pos, at, 0.8) for at in pos])
        expected = convolved(layer, pos - pos.mean(0), points.x[rows], inverse)
        torch.testing.assert_close(found[cloud], expected, rtol=1e-9, atol=1e-9)


@pytest.mark.parametrize("bandwidth", [math.inf, 0, 1e-13, math.nan])
def test_densities_without_an_end_are_refused(spec, bandwidth):
    with pytest.raises(BadInput, match="bandwidth must be at least 1e-12 and below inf"):
        PointConv(spec, bandwidth=bandwidth)


def test_parts_are_refused(parts_spec):
    with pytest.raises(BadInput, match=r"PointConv .*Parts .*node-classification"):
        PointConv(parts_spec)
