"""Maps with batch norm, against PyTorch's convolutions and norms of points."""

from __future__ import annotations

import torch
from torch import nn
from torch.nn import functional as F

from graphbench_point_clouds.layers import LastMaps, PointMap, point_maps


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


def test_widths_and_biases_are_those_asked_for():
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
        last.maps[1].norm.bias.fill_(100)  # nothing is zero but what is dropped
    dropped = (last(torch.randn(50, 8)) == 0).double().mean().item()
    assert 0.48 < dropped < 0.52
    assert (last.eval()(torch.randn(50, 8)) > 0).all()
