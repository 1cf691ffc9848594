"""Frames that rotate with the cloud, and networks that are invariant."""

from __future__ import annotations

import pytest
import torch

from graphbench_point_clouds import CNDGCNN, DGCNN, CNPointNet, PointNet
from graphbench_point_clouds.canonical import CanonicalFrame, orthonormal
from graphbench_point_clouds.clouds import Clouds
from graphbench_point_clouds.model import Points

SMALL = {"hidden_dim": 12, "num_neighbors": 4}


@pytest.mark.parametrize("architecture", [CNPointNet, CNDGCNN])
def test_no_rotation_changes_the_logits(spec, cut, logits, check_invariance, architecture):
    check_invariance(logits(architecture, spec, **SMALL), cut(spec, (9, 5, 9, 7)))


def test_no_rotation_changes_the_logits_of_parts(parts_spec, cut, logits, check_invariance):
    check_invariance(logits(CNDGCNN, parts_spec, **SMALL), cut(parts_spec, (9, 5)))


def test_the_basis_is_orthonormal_and_spans_what_the_vectors_do():
    vectors = torch.randn(5, 3, 3, dtype=torch.float64)
    basis = orthonormal(vectors)
    torch.testing.assert_close(
        basis @ basis.mT, torch.eye(3, dtype=torch.float64).expand(5, 3, 3), rtol=1e-9, atol=1e-9
    )
    q, r = torch.linalg.qr(vectors.mT)
    expected = (q * r.diagonal(dim1=1, dim2=2).sign()[:, None]).mT
    torch.testing.assert_close(basis, expected, rtol=1e-9, atol=1e-9)
    assert orthonormal(torch.ones(1, 3, 3)).isfinite().all()


def test_frames_turn_with_the_cloud_and_the_points_they_see_do_not(spec, cut, made):
    batch, frame = cut(spec, (9, 7)), made(lambda: CanonicalFrame(12, 4, 0.5))
    rotation, _ = torch.linalg.qr(torch.randn(3, 3, dtype=torch.float64))
    rotation = rotation * rotation.det()
    clouds, empty = Clouds.from_batch(batch), torch.zeros(16, 0, dtype=torch.float64)
    points, turned = Points(batch.pos, empty, clouds), Points(batch.pos @ rotation, empty, clouds)
    torch.testing.assert_close(frame(turned), frame(points) @ rotation, rtol=1e-8, atol=1e-8)
    torch.testing.assert_close(frame.transform(turned).pos, frame.transform(points).pos, rtol=1e-8, atol=1e-8)
    torch.testing.assert_close(frame.transform(points).pos[0], frame(points)[0] @ batch.pos[0], rtol=1e-10, atol=1e-10)


def test_dropout_stands_before_the_second_norm_for_clouds_alone(spec, parts_spec):
    """In PointNet as in the authors' code; in DGCNN it comes after each activation."""
    last = CNPointNet(spec, 12).last
    assert (last.dropouts, last.before_norm) == ((0.0, 0.4), True)
    assert not CNPointNet(parts_spec, 12).last.before_norm
    last = CNDGCNN(spec, 12).last
    assert (last.dropouts, last.before_norm) == ((0.5, 0.5), False)


@pytest.mark.parametrize(("architecture", "plain"), [(CNPointNet, PointNet), (CNDGCNN, DGCNN)])
def test_the_network_behind_the_frame_is_the_plain_one(spec, cut, made, architecture, plain):
    model, other = made(lambda: architecture(spec, 12)), plain(spec, 12).double().eval()
    other.load_state_dict({name: value for name, value in model.state_dict().items() if not name.startswith("frame.")})
    batch = cut(spec, (9, 7))
    found = model(batch).graph
    points = Points(batch.pos, torch.zeros(16, 0, dtype=torch.float64), Clouds.from_batch(batch))
    batch.pos = model.frame.transform(points).pos.detach()
    torch.testing.assert_close(other(batch).graph, found, rtol=1e-9, atol=1e-9)
