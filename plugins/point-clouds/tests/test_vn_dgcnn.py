"""VN-DGCNN: logits that no rotation changes."""

from __future__ import annotations

import torch

from graphbench_point_clouds import VNDGCNN
from graphbench_point_clouds.vector_neurons import rectified
from graphbench_point_clouds.vn_dgcnn import VectorEdgeConv

SMALL = {"hidden_dim": 12, "num_neighbors": 4}


def test_no_rotation_changes_the_logits_of_classes(spec, cut, logits, check_invariance):
    check_invariance(logits(VNDGCNN, spec, **SMALL), cut(spec, (9, 5, 9, 7)))


def test_no_rotation_changes_the_logits_of_parts(parts_spec, cut, logits, check_invariance):
    check_invariance(logits(VNDGCNN, parts_spec, **SMALL, pooling="max"), cut(parts_spec, (9, 5)))


def test_a_reflection_changes_nothing_either(spec, cut, logits):
    """Differences and places alone do not tell a shape from its mirror image."""
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
            outs.append(rectified(feature, part.direction.linear.weight @ edge, 0.2))
        torch.testing.assert_close(found[row], torch.stack(outs).mean(0), rtol=1e-10, atol=1e-10)
