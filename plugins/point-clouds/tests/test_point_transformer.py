"""Point Transformer's attention and transitions, against loops over points."""

from __future__ import annotations

import torch

from graphbench_point_clouds import PointTransformer
from graphbench_point_clouds.clouds import Clouds
from graphbench_point_clouds.model import Points
from graphbench_point_clouds.point_transformer import TransitionDown, TransitionUp, VectorAttention


def mlp(x, layers):
    return layers[2](layers[0](x).relu())


def test_attention_has_a_weight_for_each_channel_of_each_neighbour(made):
    layer = made(lambda: VectorAttention(3, 4), scale=0.6)
    x, pos = torch.randn(6, 4, dtype=torch.float64), torch.randn(6, 3, dtype=torch.float64)
    near = torch.stack([torch.randperm(6)[:3] for _ in range(6)])
    found = layer(x, pos[:, None] - pos[near], near)
    for i in range(6):
        scores, values = [], []
        for j in near[i]:
            delta = mlp(pos[i] - pos[j], layer.place)
            scores.append(mlp(layer.query(x[i]) - layer.key(x[j]) + delta, layer.weigh).exp())
            values.append(layer.value(x[j]) + delta)
        weights = torch.stack(scores) / torch.stack(scores).sum(0)
        torch.testing.assert_close(found[i], (weights * torch.stack(values)).sum(0), rtol=1e-9, atol=1e-9)


def test_transitions_keep_a_quarter_and_bring_it_back(spec, cut, made):
    batch = cut(spec, (12, 5, 1))
    points = Points(batch.pos, torch.randn(18, 4, dtype=torch.float64), Clouds.from_batch(batch))
    down, up = made(lambda: TransitionDown(4, 8, 3)), made(lambda: TransitionUp(8, 4))
    fewer = down(points)
    assert torch.bincount(fewer.clouds.cloud_of).tolist() == [3, 2, 1]
    for row in range(3):
        near = (batch.pos[:12] - fewer.pos[row]).norm(dim=1).argsort()[:3]
        torch.testing.assert_close(fewer.x[row], down.map(points.x)[near].amax(0), rtol=1e-10, atol=1e-10)
    back = up(fewer, points)
    assert back.clouds is points.clouds
    mapped, distance = up.fewer(fewer.x[:3]), torch.cdist(batch.pos[:12], fewer.pos[:3])
    weight = 1 / distance.square().clamp(min=1e-10)
    expected = up.more(points.x)[:12] + weight / weight.sum(1, keepdim=True) @ mapped
    torch.testing.assert_close(back.x[:12], expected, rtol=1e-8, atol=1e-8)
    torch.testing.assert_close(back.x[17], up.more(points.x)[17] + up.fewer(fewer.x)[5], rtol=1e-8, atol=1e-8)


def test_stages_are_those_of_the_paper(spec, cut, made):
    model = made(lambda: PointTransformer(spec, 2, num_neighbors=4))
    batch = cut(spec, (64, 16))
    stages = model._stages(Points(batch.pos, batch.x_dense, Clouds.from_batch(batch)))
    assert [tuple(stage.x.shape) for stage in stages] == [(80, 2), (20, 4), (5, 8), (2, 16), (2, 32)]
    expected = model.last(torch.stack([stages[-1].x[0], stages[-1].x[1]]))  # one point of each is left
    torch.testing.assert_close(model(batch).graph, expected, rtol=1e-10, atol=1e-10)


def test_an_offset_of_the_whole_cloud_moves_the_features_alone(parts_spec, cut, made):
    """Attention sees differences of positions; positions enter the first map."""
    model, batch = made(lambda: PointTransformer(parts_spec, 4)), cut(parts_spec, (9, 7))
    with torch.no_grad():
        model.first.linear.weight[:, :3] = 0
    before = model(batch).node
    batch.pos = batch.pos + 3
    torch.testing.assert_close(model(batch).node, before, rtol=1e-8, atol=1e-8)
