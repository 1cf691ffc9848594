"""DGCNN against explicit convolutions over edges."""

from __future__ import annotations

import torch
from torch.nn import functional as F

from graphbench_point_clouds import DGCNN
from graphbench_point_clouds.dgcnn import EdgeConv, EdgeTNet

H, K = 5, 4


def mapped(x, layer, slope=0.2):
    y = F.linear(x, layer.linear.weight, layer.linear.bias)
    norm = layer.norm
    shape = y.shape
    y = F.batch_norm(y.flatten(0, -2), norm.running_mean, norm.running_var, norm.weight, norm.bias).view(shape)
    return torch.where(y > 0, y, slope * y)


def edge_conv(x, layer, near):
    edges = torch.cat([x[near] - x[:, None], x[:, None].expand(-1, near.shape[1], -1)], dim=-1)
    for part in (layer.first, *layer.further):
        edges = mapped(edges, part)
    return edges.amax(1)


def neighbours(x, k=K):
    return torch.cdist(x, x).argsort(dim=1, stable=True)[:, torch.arange(k) % min(k, len(x))]


def clouds_of(batch):
    return [slice(int(a), int(b)) for a, b in zip(batch.ptr[:-1], batch.ptr[1:], strict=True)]


def test_a_convolution_over_edges_is_one_map_of_differences_and_points(made):
    layer = made(lambda: EdgeConv(3, (8, 6)))
    x, near = torch.randn(9, 3, dtype=torch.float64), torch.randint(9, (9, 5))
    torch.testing.assert_close(layer(x, near), edge_conv(x, layer, near), rtol=1e-10, atol=1e-10)


def test_classes_follow_the_published_network(spec, cut, made):
    """Neighbours are those of the positions, then those of the features of each layer."""
    model, batch = made(lambda: DGCNN(spec, H, num_neighbors=K)), cut(spec, (9, 3, 9))
    found = model(batch).graph
    for cloud, rows in enumerate(clouds_of(batch)):
        x, states = batch.pos[rows], []
        for layer in model.layers:
            x = edge_conv(x, layer, neighbours(x))
            states.append(x)
        x = mapped(torch.cat(states, dim=1), model.embed)
        x = torch.cat([x.amax(0), x.mean(0)])[None]
        for layer in model.last.maps:
            x = mapped(x, layer)
        torch.testing.assert_close(found[cloud], x[0], rtol=1e-9, atol=1e-9)


def test_parts_follow_the_published_network(parts_spec, cut, made):
    model = made(lambda: DGCNN(parts_spec, H, num_neighbors=K))
    batch = cut(parts_spec, (9, 3, 9))
    found = model(batch).node
    for rows in clouds_of(batch):
        x, net, states = batch.pos[rows], model.align_input, []
        pooled = mapped(edge_conv(x, net.edges, neighbours(x)), net.points).amax(0, keepdim=True)
        for layer in net.cloud_maps:
            pooled = mapped(pooled, layer)
        x = x @ (net.out(pooled).view(3, 3) + torch.eye(3, dtype=torch.float64))
        for layer in model.layers:
            x = edge_conv(x, layer, neighbours(x))
            states.append(x)
        x = torch.cat(states, dim=1)
        shared = mapped(x, model.embed).amax(0).expand(len(x), -1)
        category = mapped(F.one_hot(batch.x[rows, 0], 16).double(), model.category_map)
        x = torch.cat([shared, x, category], dim=1)
        for layer in model.last.maps:
            x = mapped(x, layer)
        torch.testing.assert_close(found[rows], x, rtol=1e-9, atol=1e-9)


def test_an_alignment_starts_as_the_identity(spec, cut):
    torch.manual_seed(0)
    from graphbench_point_clouds.clouds import Clouds

    batch = cut(spec)
    net = EdgeTNet(3, 4).double().eval()
    found = net(batch.pos, torch.zeros(batch.num_nodes, 1, dtype=torch.int64), Clouds.from_batch(batch))
    assert torch.equal(found, torch.eye(3, dtype=torch.float64).expand(4, 3, 3))
