"""PointCNN against loops over neighbours and channels, PyG's X-Conv and the sizes of the released networks."""

from __future__ import annotations

from itertools import pairwise

import pytest
import torch
import torch_geometric.typing
from torch.nn import functional as F
from torch_geometric.nn import XConv as PyGXConv

from graphbench import registry
from graphbench.nn import HeadConfig
from graphbench_point_clouds import PointCNN
from graphbench_point_clouds.clouds import Block, Clouds
from graphbench_point_clouds.model import Points
from graphbench_point_clouds.pointcnn import XConv, XTransform


def cloud_of(pos, x):
    """One cloud whose points keep their order."""
    rows = torch.arange(len(pos))
    return Points(pos, x, Clouds((Block(torch.tensor([0]), rows[None]),), torch.zeros_like(rows), 1))


def normed(x, norm):
    scaled = (x - norm.running_mean) / (norm.running_var + norm.eps).sqrt()
    return scaled * norm.weight + norm.bias


def mapped(x, layers):
    for layer in layers:
        x = normed(F.elu(x @ layer.linear.weight.T), layer.norm)
    return x


def depthwise(x, weight):
    """Numbers of channel 0, then of channel 1, ..., each a sum over rows."""
    rows, channels, multiplier = weight.shape
    return torch.stack(
        [
            sum(weight[i, j, n] * x[i, j] for i in range(rows))
            for j in range(channels)
            for n in range(multiplier)
        ]
    )  # fmt: skip


def matrix(layer, seen):
    """The X-transformation of one point."""
    k = len(seen)
    x = mapped(seen.flatten(), [layer.first]).view(k, k)
    x = normed(F.elu(depthwise(x, layer.second.weight)), layer.second_norm).view(k, k)
    return normed(depthwise(x, layer.third.weight), layer.third_norm).view(k, k)


def test_the_matrix_is_that_of_two_depthwise_convolutions_in_turn(made):
    layer = made(lambda: XTransform(3, 4))
    seen = torch.randn(5, 4, 3, dtype=torch.float64)
    expected = torch.stack([matrix(layer, places) for places in seen])
    torch.testing.assert_close(layer(seen), expected, rtol=1e-10, atol=1e-10)
    assert (layer(seen.flip(1)) - expected).abs().max() > 1e-3  # which neighbour is which matters


def test_a_convolution_weighs_and_orders_the_nearest_points_before_it_sums(spec, cut, made):
    batch = cut(spec, (14, 9, 14))
    points = Points(batch.pos, batch.x_dense, Clouds.from_batch(batch, batch.pos.unbind(1)))
    layer = made(lambda: XConv(3, 1, 2, 7, num_neighbors=4, dilation=3))
    assert layer.depthwise.weight.shape == (4, 3, 3)  # nine channels for seven
    found = layer(points, batch.pos, points.clouds)
    for row in range(14):
        near = (batch.pos[:14] - batch.pos[row]).norm(dim=1).argsort()[[0, 3, 6, 9]]
        seen = batch.pos[near] - batch.pos[row]
        x = matrix(layer.transform, seen) @ torch.cat([mapped(seen, layer.places), batch.x_dense[near]], dim=1)
        expected = mapped(depthwise(x, layer.depthwise.weight), [layer.out])
        torch.testing.assert_close(found[row], expected, rtol=1e-9, atol=1e-9)


class Given(torch.nn.Module):
    """Our matrices instead of PyG's, whose convolutions never mix rows; PyG multiplies from the right."""

    def __init__(self, transform):
        super().__init__()
        self.transform = transform

    def forward(self, seen):
        return self.transform(seen.view(len(seen), -1, 3)).transpose(1, 2)


def nearest_pairs(x, y, ptr_x, ptr_y, k, cosine, num_workers):
    """Find by brute force, as pyg-lib's kernel does, the query rows and their nearest rows, nearest first."""
    assert ptr_x is None
    assert not cosine
    near = torch.cdist(x, y).argsort(dim=1)[:, :k]
    return torch.stack([torch.arange(len(x)).repeat_interleave(k), near.flatten()])


def test_a_convolution_agrees_with_that_of_pyg(made, monkeypatch):
    if not hasattr(torch_geometric.typing, "WITH_KNN"):
        pytest.skip("this release of PyG finds neighbours by torch-cluster alone")
    monkeypatch.setattr("torch_geometric.typing.WITH_KNN", True)
    monkeypatch.setattr(torch.ops.pyg, "knn", nearest_pairs, raising=False)
    ours = made(lambda: XConv(3, 5, 4, 24, num_neighbors=4, dilation=2))
    theirs = PyGXConv(5, 24, dim=3, kernel_size=4, hidden_channels=4, dilation=2, bias=False).double().eval()
    theirs.mlp2 = Given(ours.transform)
    with torch.no_grad():
        for place, layer in zip((0, 3), ours.places, strict=True):
            theirs.mlp1[place].weight.copy_(layer.linear.weight)
            theirs.mlp1[place].bias.zero_()
            theirs.mlp1[place + 2].load_state_dict(layer.norm.state_dict())
        theirs.conv[0].weight.copy_(ours.depthwise.weight.permute(1, 2, 0).reshape(theirs.conv[0].weight.shape))
        theirs.conv[0].bias.zero_()
        theirs.conv[2].weight.copy_(ours.out.linear.weight)
    pos, x = torch.randn(20, 3, dtype=torch.float64), torch.randn(20, 5, dtype=torch.float64)
    points = cloud_of(pos, x)
    expected = normed(F.elu(theirs(x, pos)), ours.out.norm)
    torch.testing.assert_close(ours(points, pos, points.clouds), expected, rtol=1e-9, atol=1e-9)


def sizes(stages):
    return [len(stage.x) for stage in stages]


def test_clouds_are_the_mean_of_what_the_last_points_say(spec, cut, made):
    model = made(lambda: PointCNN(spec, 4, num_points=24))
    batch = cut(spec, (60, 36))
    found = model(batch).graph
    for cloud, rows in enumerate((slice(0, 60), slice(60, 96))):
        pos = batch.pos[rows]
        stages = model._stages(cloud_of(pos, pos[:, :0]))
        assert sizes(stages) == [len(pos), 24, 8, 8]
        top = stages[-1]
        assert torch.equal(top.x[:, :8], model.places(top.pos))
        expected = mapped(top.x, model.last).mean(0)
        torch.testing.assert_close(found[cloud], expected, rtol=1e-8, atol=1e-8)


def test_points_get_back_what_fewer_points_know(parts_spec, cut, made):
    """Each of two clouds with enough points, stage by stage."""
    model = made(lambda: PointCNN(parts_spec, 4, num_points=48, use_features=True))
    batch = cut(parts_spec, (90, 70))
    found = model(batch).node
    for rows in (slice(0, 90), slice(90, 160)):
        pos, normals = batch.pos[rows], batch.x_dense[rows]
        every, many, fewer, few = model._stages(cloud_of(pos, normals))
        assert sizes((every, many, fewer, few)) == [len(pos), 48, 24, 8]
        first = model.down[0](cloud_of(pos, mapped(normals, [model.features])), pos, every.clouds)
        torch.testing.assert_close(every.x, first, rtol=1e-9, atol=1e-9)
        path = (few, fewer, many, every, every)
        x = few.x
        for conv, fuse, (source, target) in zip(model.back, model.fuse, pairwise(path), strict=True):
            mixed = conv(Points(source.pos, x, source.clouds), target.pos, target.clouds)
            x = mapped(torch.cat([mixed, target.x], dim=1), [fuse])
        torch.testing.assert_close(found[rows], mapped(x, model.last), rtol=1e-8, atol=1e-8)


def released(k, places, before, dim, multiplier):
    """Count the parameters of a convolution of the released code: no biases, and a norm after each map."""
    both = places + before
    lifted = (3 + places) * places + 4 * places
    transformed = 3 * k * k**2 + 2 * k**3 + 6 * k**2
    return lifted + transformed + k * both * multiplier + multiplier * both * dim + 2 * dim


def dense(inputs, outputs):
    return inputs * outputs + 2 * outputs


def count(benchmark, **options):
    spec = registry.load("benchmarks", benchmark).spec
    with torch.device("meta"):
        model = PointCNN(spec, **options)
        head = HeadConfig(num_layers=1).mlp(model.dim, spec.output_dim)
    return sum(p.numel() for module in (model, head) for p in module.parameters())


def test_classes_have_the_parameters_of_the_released_network():
    convolutions = released(8, 24, 0, 48, 4) + released(12, 12, 48, 96, 2)
    convolutions += released(16, 24, 96, 192, 2) + released(16, 48, 192, 384, 2)
    last = dense(3, 96) + dense(96, 96) + dense(480, 384) + dense(384, 192) + 192 * 40 + 40
    assert count("ModelNet40") == convolutions + last == 599_340  # printed as 0.6 million


def test_parts_have_the_parameters_of_the_released_network():
    down = released(8, 128, 0, 256, 4) + released(12, 64, 256, 256, 1)
    down += released(16, 64, 256, 512, 2) + released(16, 128, 512, 1024, 2)
    places = dense(3, 256) + dense(256, 256)
    back = released(16, 256, 1280, 512, 1) + released(12, 128, 512, 256, 1) + 2 * released(8, 64, 256, 256, 1)
    fused = dense(1024, 512) + 3 * dense(512, 256)
    last = 2 * dense(256, 256) + 256 * 50 + 50
    found = count("ShapeNetPart", hidden_dim=256, num_points=768, dropout=0.5)
    assert found == down + places + back + fused + last == 4_411_762  # printed as 4.4 million


@pytest.mark.parametrize("hidden_dim", [1, 3])
def test_narrow_models_keep_a_channel_everywhere(spec, parts_spec, cut, hidden_dim):
    for task in (spec, parts_spec):
        model = PointCNN(task, hidden_dim, num_points=4, use_features=True).double()
        assert model(cut(task)).node.shape == (27, (4 if task is spec else 1) * hidden_dim)
