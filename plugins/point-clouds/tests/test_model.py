"""Inputs and errors of point-cloud models, and a penalty in training."""

from __future__ import annotations

import pytest
import torch
from torch import nn
from torch.nn import functional as F

from graphbench import BenchmarkModule
from graphbench.errors import BadInput
from graphbench.nn import HeadConfig
from graphbench.testing import tiny_spec, tiny_table
from graphbench_point_clouds import DGCNN, PointNet
from graphbench_point_clouds.model import LastMaps, PointMap, point_maps

SMALL = {"hidden_dim": 6}


@pytest.mark.parametrize("kind", ["both", "categorical", "none"])
def test_nodes_without_a_position_are_refused_in_one_line(kind):
    with pytest.raises(BadInput, match=rf"^DGCNN reads point clouds, and the nodes of tiny-\S+-{kind} have no"):
        DGCNN(tiny_spec(kind=kind))


def test_points_of_a_classified_cloud_share_its_representation(spec, cut, made):
    batch = cut(spec)
    found = made(lambda: PointNet(spec, **SMALL))(batch)
    assert torch.equal(found.node, found.graph[batch.batch])


@pytest.mark.parametrize("used", [False, True])
def test_features_are_read_with_use_features(spec, cut, made, used):
    model = made(lambda: DGCNN(spec, **SMALL, use_features=used))
    batch = cut(spec)
    before = model(batch).graph
    batch.x_dense = batch.x_dense + 1
    assert torch.equal(model(batch).graph, before) is not used


def test_categories_enter_the_last_maps_of_points(parts_spec, cut, made):
    model = made(lambda: PointNet(parts_spec, **SMALL))
    batch = cut(parts_spec)
    before = model(batch).node
    batch.x = (batch.x + 1) % 16
    moved = model(batch).node
    assert not torch.isclose(moved, before).all(1).any()
    batch.x_dense = batch.x_dense + 1
    assert torch.equal(model(batch).node, moved)


def test_a_penalty_is_added_to_the_loss_in_training_alone(spec, cut):
    torch.manual_seed(0)
    factor = 0.5
    modules = []
    for orthogonality in (0.0, factor):
        torch.manual_seed(0)
        module = BenchmarkModule(
            spec,
            lambda seen, weight=orthogonality: PointNet(seen, **SMALL, dropout=0.0, orthogonality=weight),
            head=HeadConfig(num_layers=1),
        ).double()
        torch.nn.init.normal_(module.architecture.align_features.out.weight)
        module.log_dict = lambda *_, **__: None
        modules.append(module.train())
    batch, tensors = tiny_table(spec).batch(range(6)), []
    batch = batch.apply(lambda tensor: tensor.double() if tensor.is_floating_point() else tensor)
    modules[1].architecture.align_features.load_state_dict(modules[0].architecture.align_features.state_dict())
    modules[1].architecture.align_features.register_forward_hook(lambda _, __, out: tensors.append(out))
    losses = [module.training_step(batch, 0) for module in modules]
    (matrices,) = tensors
    excess = torch.eye(6, dtype=torch.float64) - matrices @ matrices.mT
    expected = factor * excess.square().sum((1, 2)).mean()
    torch.testing.assert_close(losses[1] - losses[0], expected, rtol=1e-9, atol=1e-9)
    assert expected > 0.1
    assert modules[1].eval().represent(batch).penalty is None


def test_a_map_of_points_is_a_convolution_of_width_one_and_a_norm_over_all_others():
    torch.manual_seed(0)
    layer = PointMap(3, 8, slope=0.2).double().train()
    convolution, norm = nn.Conv2d(3, 8, 1).double(), nn.BatchNorm2d(8).double().train()
    convolution.weight.data = layer.linear.weight.data[:, :, None, None]
    convolution.bias.data = layer.linear.bias.data
    x = torch.randn(4, 5, 6, 3, dtype=torch.float64)
    expected = F.leaky_relu(norm(convolution(x.flatten(0, 1).permute(2, 0, 1)[None])), 0.2)
    torch.testing.assert_close(layer(x), expected[0].permute(1, 2, 0).view(4, 5, 6, 8), rtol=1e-10, atol=1e-10)
    torch.testing.assert_close(layer.norm.running_var, norm.running_var, rtol=1e-10, atol=1e-10)


def test_widths_and_biases_follow_the_options():
    maps = point_maps((3, 8, 16), bias=False)
    assert [tuple(layer.linear.weight.shape) for layer in maps] == [(8, 3), (16, 8)]
    assert all(layer.linear.bias is None for layer in maps)
    last = LastMaps((8, 6, 4), (0.5, 0.0), 0.2, (False, True))
    assert [layer.linear.bias is None for layer in last.maps] == [True, False]


def test_dropout_can_stand_before_the_norm_of_its_map():
    torch.manual_seed(0)
    last = LastMaps((8, 6, 4), (0.0, 0.4), before_norm=True).double().train()
    x = torch.randn(50, 8, dtype=torch.float64)
    first, second = (nn.Linear(8, 6).double(), nn.Linear(6, 4).double())
    norms = (nn.BatchNorm1d(6).double(), nn.BatchNorm1d(4).double())
    for layer, linear in zip(last.maps, (first, second), strict=True):
        linear.load_state_dict(layer.linear.state_dict())
    torch.manual_seed(1)
    found = last(x)
    torch.manual_seed(1)
    expected = norms[0](first(x)).relu()
    expected = norms[1](F.dropout(second(expected), 0.4)).relu()
    torch.testing.assert_close(found, expected, rtol=1e-10, atol=1e-10)
    assert not torch.allclose(found, last.eval()(x))


def test_dropout_stands_behind_the_map_it_is_given_for():
    torch.manual_seed(0)
    last = LastMaps((8, 6, 400), (0.0, 0.5)).train()
    with torch.no_grad():
        last.maps[1].norm.bias.fill_(100)  # only dropped entries are zero
    dropped = (last(torch.randn(50, 8)) == 0).double().mean().item()
    assert 0.48 < dropped < 0.52
    assert (last.eval()(torch.randn(50, 8)) > 0).all()
