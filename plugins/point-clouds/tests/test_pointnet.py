"""PointNet against its equations, one cloud after the other."""

from __future__ import annotations

import pytest
import torch
from torch.nn import functional as F

from graphbench_point_clouds import PointNet
from graphbench_point_clouds.pointnet import TNet, orthogonality

H = 5


def mapped(x, layers):
    for layer in layers:
        y = x @ layer.linear.weight.T + layer.linear.bias
        x = F.batch_norm(y, layer.norm.running_mean, layer.norm.running_var, layer.norm.weight, layer.norm.bias).relu()
    return x


def matrix(x, net):
    pooled = mapped(mapped(x, net.point_maps).amax(0, keepdim=True), net.cloud_maps)
    return (pooled @ net.out.weight.T + net.out.bias).view(net.dim, net.dim) + torch.eye(net.dim, dtype=x.dtype)


def clouds_of(batch):
    return [slice(int(a), int(b)) for a, b in zip(batch.ptr[:-1], batch.ptr[1:], strict=True)]


def test_classes_follow_the_published_network(spec, cut, made):
    model, batch = made(lambda: PointNet(spec, H)), cut(spec)
    found = model(batch).graph
    for cloud, rows in enumerate(clouds_of(batch)):
        x = batch.pos[rows]
        x = mapped(x @ matrix(x, model.align_input), model.before)
        x = mapped(x @ matrix(x, model.align_features), model.after).amax(0, keepdim=True)
        torch.testing.assert_close(found[cloud], mapped(x, model.last.maps)[0], rtol=1e-10, atol=1e-10)


def test_parts_follow_the_published_network(parts_spec, cut, made):
    """Concatenate each point's features after every map, the maximum of its cloud and the category."""
    model, batch = made(lambda: PointNet(parts_spec, H)), cut(parts_spec)
    found = model(batch).node
    for rows in clouds_of(batch):
        x, kept = batch.pos[rows] @ matrix(batch.pos[rows], model.align_input), []
        for number, layer in enumerate((*model.before, *model.after)):
            if number == len(model.before):
                x = x @ matrix(x, model.align_features)
            x = mapped(x, [layer])
            kept.append(x)
        category = F.one_hot(batch.x[rows, 0], 16).double()
        inputs = torch.cat([x.amax(0).expand_as(x), category, *kept], dim=1)
        torch.testing.assert_close(found[rows], mapped(inputs, model.last.maps), rtol=1e-10, atol=1e-10)


def test_alignments_start_as_identities_and_can_be_left_out(spec, cut):
    torch.manual_seed(0)
    model, batch = PointNet(spec, H).double().eval(), cut(spec)
    with_nets = model(batch).graph
    model.align_input = model.align_features = None
    torch.testing.assert_close(model(batch).graph, with_nets, rtol=1e-12, atol=1e-12)
    plain = PointNet(spec, H, input_transform=False, feature_transform=False)
    assert not [name for name, _ in plain.named_modules() if isinstance(plain.get_submodule(name), TNet)]
    assert plain.train()(batch.apply(lambda t: t.float() if t.is_floating_point() else t)).penalty is None


@pytest.mark.parametrize("dim", [3, 64])
def test_rotations_have_no_penalty(dim):
    rotation, _ = torch.linalg.qr(torch.randn(2, dim, dim, dtype=torch.float64))
    assert orthogonality(rotation) < 1e-20
    assert orthogonality(2 * rotation) == pytest.approx(9 * dim)
