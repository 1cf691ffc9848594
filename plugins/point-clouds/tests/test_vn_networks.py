"""VN-PointNet and VN-DGCNN: logits that are invariant to rotations."""

from __future__ import annotations

import pytest
import torch

from graphbench_point_clouds import VNDGCNN, VNPointNet
from graphbench_point_clouds.clouds import Clouds
from graphbench_point_clouds.vector_neurons import rectify
from graphbench_point_clouds.vn_networks import VectorEdgeConv, VectorTNet, channels

SMALL = {"hidden_dim": 12, "num_neighbors": 4}


@pytest.mark.parametrize("model", [VNPointNet, VNDGCNN])
def test_no_rotation_changes_the_logits_of_classes(spec, cut, logits, check_invariance, model):
    check_invariance(logits(model, spec, **SMALL), cut(spec, (9, 5, 9, 7)))


@pytest.mark.parametrize(("model", "options"), [(VNPointNet, {}), (VNDGCNN, {"pooling": "max"})])
def test_no_rotation_changes_the_logits_of_parts(parts_spec, cut, logits, check_invariance, model, options):
    check_invariance(logits(model, parts_spec, **SMALL, **options), cut(parts_spec, (9, 5)))


def test_no_rotation_changes_the_logits_with_maximum_pools(spec, cut, logits, check_invariance):
    check_invariance(logits(VNPointNet, spec, **SMALL, pooling="max"), cut(spec, (9, 5, 9)))


def test_a_reflection_changes_vn_pointnet(spec, cut, logits):
    """Cross products of neighbours distinguish a shape from its mirror image."""
    module, batch = logits(VNPointNet, spec, **SMALL), cut(spec, (9, 7))
    before = module(batch)
    batch.pos = -batch.pos
    assert (module(batch) - before).abs().max() > 1e-4


def test_channels_are_a_third_of_the_widths(spec):
    assert [channels(width) for width in (64, 128, 1024, 2)] == [21, 42, 341, 1]
    model = VNPointNet(spec)
    assert model.wide.linear.weight.shape == (341, 42)
    assert model.last.maps[0].linear.in_features == 341 * 6


def test_dropout_stands_before_the_second_norm_for_clouds_alone(spec, parts_spec):
    """As in the released code, and with the same probability."""
    last = VNPointNet(spec, 12).last
    assert (last.dropouts, last.before_norm) == ((0.0, 0.4), True)
    last = VNPointNet(parts_spec, 12, dropout=0.1).last
    assert (last.dropouts, last.before_norm) == ((0.1, 0.1, 0.0), False)


def test_a_cloud_as_a_whole_stands_beside_each_point(spec, cut, made):
    batch = cut(spec, (9, 5))
    net = made(lambda: VectorTNet(4, 12, "mean"))
    x = torch.randn(14, 4, 3, dtype=torch.float64)
    found = net(x, Clouds.from_batch(batch))
    pooled = torch.stack([net.point_maps(x)[:9].mean(0), net.point_maps(x)[9:].mean(0)])
    torch.testing.assert_close(found, net.cloud_maps(pooled), rtol=1e-10, atol=1e-10)


def test_a_reflection_does_not_change_vn_dgcnn(spec, cut, logits):
    """Differences and places alone do not distinguish a shape from its mirror image."""
    module, batch = logits(VNDGCNN, spec, **SMALL), cut(spec, (9, 7))
    before = module(batch)
    batch.pos = -batch.pos
    torch.testing.assert_close(module(batch), before, rtol=1e-8, atol=1e-8)


def test_an_edge_convolution_is_the_mean_of_rectified_maps_of_edges(made):
    layer = made(lambda: VectorEdgeConv(2, (5,), "mean"))
    x, near = torch.randn(4, 2, 3, dtype=torch.float64), torch.tensor([[0, 1, 2], [1, 2, 3], [2, 3, 0], [3, 0, 1]])
    found, (part,) = layer(x, near), layer.maps
    for row in range(4):
        outs = []
        for other in near[row]:
            edge = torch.cat([x[other] - x[row], x[row]])
            feature = part.norm((part.feature.linear.weight @ edge)[None])[0]
            outs.append(rectify(feature, part.direction.linear.weight @ edge, 0.2))
        torch.testing.assert_close(found[row], torch.stack(outs).mean(0), rtol=1e-10, atol=1e-10)
