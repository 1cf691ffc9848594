"""PointNet++ against loops over samples and balls."""

from __future__ import annotations

import math

import pytest
import torch
from torch.nn import functional as F

from graphbench.errors import BadInput
from graphbench_point_clouds import PointNetPlusPlus
from graphbench_point_clouds.clouds import Block, Clouds
from graphbench_point_clouds.model import Points
from graphbench_point_clouds.pointnet_plus_plus import SetAbstraction


def mapped(x, layers):
    for layer in layers:
        y, norm = F.linear(x, layer.linear.weight, layer.linear.bias), layer.norm
        x = F.batch_norm(y, norm.running_mean, norm.running_var, norm.weight, norm.bias).relu()
    return x


def test_a_sample_holds_the_maximum_of_its_balls(spec, cut, made):
    batch = cut(spec, (12, 3))
    layer = made(lambda: SetAbstraction(3, 1, (6, 8), num_points=5, radius=1.5, num_neighbors=4))
    points = Points(batch.pos, batch.x_dense, Clouds.from_batch(batch, batch.pos.unbind(1)))
    found = layer(points)
    assert torch.bincount(found.clouds.cloud_of).tolist() == [5, 3]
    for row, center in enumerate(found.pos):
        members = (batch.batch == found.clouds.cloud_of[row]).nonzero().squeeze(1)
        distance = (batch.pos[members] - center).norm(dim=1)
        near = members[distance.argsort()[:4]]
        ball = [other for other in near if (batch.pos[other] - center).norm() <= 1.5]
        seen = torch.stack([torch.cat([batch.pos[other] - center, batch.x_dense[other]]) for other in ball])
        torch.testing.assert_close(found.x[row], mapped(seen, layer.maps).amax(0), rtol=1e-9, atol=1e-9)


def test_balls_of_both_stages_have_their_own_numbers_of_points(spec, cut, made):
    """The second stage sees only the nearest point of each sample, which is the sample itself."""
    batch = cut(spec, (12,))
    wide = {"num_points": 12, "radius": 9.0, "num_neighbors": 12}
    model = made(lambda: PointNetPlusPlus(spec, 4, **wide, num_far_neighbors=1))
    near = model.near(Points(batch.pos, torch.zeros(12, 0, dtype=torch.float64), Clouds.from_batch(batch)))
    far = model.far(near)
    rows = torch.cdist(far.pos, near.pos).argmin(1)
    alone = mapped(torch.cat([torch.zeros(3, 3, dtype=torch.float64), near.x[rows]], dim=1), model.far.maps)
    torch.testing.assert_close(far.x, alone, rtol=1e-10, atol=1e-10)
    assert PointNetPlusPlus(spec).far.num_neighbors == 64
    assert PointNetPlusPlus(spec, num_neighbors=128, num_far_neighbors=128).near.num_neighbors == 128


@pytest.mark.parametrize("options", [{"num_far_neighbors": 0}, {"radius": math.inf}, {"radius": 0}, {"radius": 1e-13}])
def test_balls_without_points_or_without_an_end_are_refused(spec, options):
    with pytest.raises(BadInput, match=f"{next(iter(options))} must be"):
        PointNetPlusPlus(spec, **options)


def test_a_far_point_beyond_every_ball_is_seen_by_the_whole_cloud_alone(spec, cut, made):
    """Two points too far apart to share a ball: the sets of the first two stages do not mix."""
    model = made(lambda: PointNetPlusPlus(spec, 4, radius=0.5))
    batch = cut(spec, (2,))
    batch.pos = torch.tensor([[0.0, 0.0, 0.0], [9.0, 0.0, 0.0]], dtype=torch.float64)
    points = Points(batch.pos, torch.zeros(2, 0, dtype=torch.float64), Clouds.from_batch(batch))
    far = model.far(model.near(points))
    torch.testing.assert_close(far.x[0], far.x[1], rtol=1e-12, atol=1e-12)  # each sees only itself
    whole = model.whole(far)
    expected = mapped(torch.cat([far.pos, far.x], dim=1), model.whole.maps).amax(0)
    torch.testing.assert_close(whole[0], expected, rtol=1e-10, atol=1e-10)


def moved(x, pos, onto):
    """Features of three points, weighted by inverse squared distances."""
    distance, near = torch.cdist(onto, pos).sort(dim=1, stable=True)
    weight = 1 / distance[:, :3].square().clamp(min=1e-10)
    return ((weight / weight.sum(1, keepdim=True))[:, :, None] * x[near[:, :3]]).sum(1)


def test_points_get_back_what_the_samples_know(parts_spec, cut, made):
    """Each of two clouds with enough points, stage by stage."""
    model = made(lambda: PointNetPlusPlus(parts_spec, 4, num_points=16, radius=1.0, use_features=True))
    batch = cut(parts_spec, (24, 20))
    found = model(batch).node
    for rows in (slice(0, 24), slice(24, 44)):
        pos, normals = batch.pos[rows], batch.x_dense[rows]
        own = torch.zeros(len(pos), dtype=torch.int64)
        cloud = Clouds((Block(torch.tensor([0]), torch.arange(len(pos))[None]),), own, 1)
        near = model.near(Points(pos, normals, cloud))
        far = model.far(near)
        x = torch.cat([model.whole(far).expand(len(far.x), -1), far.x], dim=1)
        x = mapped(x, model.onto_far)
        x = mapped(torch.cat([moved(x, far.pos, near.pos), near.x], dim=1), model.onto_near)
        category = F.one_hot(batch.x[rows, 0], 16).double()
        x = torch.cat([moved(x, near.pos, pos), category, pos, normals], dim=1)
        expected = mapped(mapped(x, model.onto_all), model.last.maps)
        torch.testing.assert_close(found[rows], expected, rtol=1e-8, atol=1e-8)
