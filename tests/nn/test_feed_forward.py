"""The feed-forward network of transformer layers compared with torch's own layers."""

import pytest
import torch
import torch.nn.functional as F
from torch import nn

from graphbench.errors import BadInput
from graphbench.nn import FeedForward


@pytest.mark.parametrize(("activation", "module"), [("relu", nn.ReLU), ("gelu", nn.GELU)])
def test_is_two_maps_around_the_activation(activation, module):
    network = FeedForward(4, 6, activation=activation).double()
    x = torch.randn(2, 3, 4, dtype=torch.float64)
    torch.testing.assert_close(network(x), nn.Sequential(network.expand, module(), network.contract)(x))
    assert sum(p.numel() for p in network.parameters()) == 2 * 4 * 6 + 6 + 4


@pytest.mark.parametrize(("inside", "expected"), [(None, 0.5), (0.25, 0.25)])
def test_dropout_inside_may_differ(inside, expected):
    """With identity maps, the share of zeros and the scale of the rest are those of both dropouts combined."""
    network = FeedForward(2_000, 2_000, 0.5, activation_dropout=inside)
    for linear in (network.expand, network.contract):
        nn.init.eye_(linear.weight)
        nn.init.zeros_(linear.bias)
    out = network(torch.ones(20, 2_000))
    kept = (1 - expected) * 0.5
    assert abs((out != 0).float().mean().item() - kept) < 0.02
    torch.testing.assert_close(out.max().item(), 1 / kept)
    torch.testing.assert_close(network.eval()(torch.ones(2_000)), F.relu(torch.ones(2_000)))


def test_an_unknown_activation_is_refused():
    with pytest.raises(BadInput, match="activation must be one of relu, gelu, but got 'swish'"):
        FeedForward(4, 6, activation="swish")
