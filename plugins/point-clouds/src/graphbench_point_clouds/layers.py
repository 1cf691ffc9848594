"""Maps of points with batch norm, which PointNet calls shared multi-layer perceptrons.

Legend: T points of all clouds, B clouds.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise

import torch.nn.functional as F
from torch import Tensor, nn

from graphbench.nn import BatchNorm


class PointMap(nn.Module):
    """`act(BatchNorm(W x + b))` on the last dimension, the statistics over all others.

    Args:
        in_dim: width of what comes.
        dim: width of what goes.
        slope: of LeakyReLU on negative numbers; 0 for ReLU.
        bias: whether there is a b, which the norm makes superfluous and some papers have all the same.

    Examples:
        >>> import torch
        >>> PointMap(3, 8)(torch.randn(5, 4, 3)).shape
        torch.Size([5, 4, 8])
    """

    def __init__(self, in_dim: int, dim: int, slope: float = 0.0, bias: bool = True) -> None:
        super().__init__()
        self.linear = nn.Linear(in_dim, dim, bias=bias)
        self.norm = BatchNorm(dim)
        self.slope = slope

    def forward(self, x: Tensor, dropout: float = 0.0) -> Tensor:
        """`[..., in_dim]` to `[..., dim]`; with dropout of what is mapped, before its norm."""
        return self.activated(F.dropout(self.linear(x), dropout, self.training))

    def activated(self, x: Tensor) -> Tensor:
        """Norm and activation of what is mapped already."""
        return F.leaky_relu(self.norm(x.flatten(0, -2)), self.slope).view(x.shape)


def point_maps(widths: Sequence[int], slope: float = 0.0, bias: bool = True) -> nn.Sequential:
    """One `PointMap` from each width to the next."""
    return nn.Sequential(*(PointMap(a, b, slope, bias) for a, b in pairwise(widths)))


class LastMaps(nn.Module):
    """Maps with dropout behind each of them: what a published network has between its features and its classes.

    Args:
        widths: of the input and after each map.
        dropouts: probability behind each map.
        slope: of LeakyReLU on negative numbers.
        biases: whether each map has a bias.
        before_norm: dropout on what W maps, before its norm, and not behind the activation.
    """

    def __init__(
        self,
        widths: Sequence[int],
        dropouts: Sequence[float],
        slope: float = 0.0,
        biases: Sequence[bool] | None = None,
        before_norm: bool = False,
    ) -> None:
        super().__init__()
        given = biases if biases is not None else [True] * len(dropouts)
        self.maps = nn.ModuleList(
            PointMap(a, b, slope, bias) for (a, b), bias in zip(pairwise(widths), given, strict=True)
        )
        self.dropouts, self.before_norm = tuple(dropouts), before_norm

    def forward(self, x: Tensor) -> Tensor:
        """`[rows, widths[0]]` to `[rows, widths[-1]]`."""
        for layer, dropout in zip(self.maps, self.dropouts, strict=True):
            x = layer(x, dropout) if self.before_norm else F.dropout(layer(x), dropout, self.training)
        return x
