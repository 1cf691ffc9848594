"""The base of all models of point clouds: inputs, checks of the benchmark, maps of points and the two kinds of ends.

Legend: T points of all clouds, B clouds, c coordinates.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass, field
from itertools import pairwise

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from graphbench import Architecture, BenchmarkSpec, GraphBatch, Representation
from graphbench.errors import BadInput
from graphbench.nn import BatchNorm
from graphbench_point_clouds.clouds import Clouds


@dataclass(frozen=True)
class Points:
    """Points of all clouds of a batch, or a sample of them.

    Args:
        pos: `[T, c]`, in the precision of the data.
        x: features in the precision of the weights `[T, f]`; f may be 0.
        clouds: their clouds.
        penalties: scalars that the model adds to the training loss, collected on the way.
    """

    pos: Tensor
    x: Tensor
    clouds: Clouds
    penalties: list[Tensor] = field(default_factory=list)

    @property
    def features(self) -> Tensor:
        """Positions and features side by side `[T, c + f]`."""
        return torch.cat([self.pos.to(self.x.dtype), self.x], dim=1)


class PointCloudModel(Architecture):
    """Base of the architectures of this package: one end for tasks of clouds, another for tasks of points.

    Subclasses have `of_clouds` to decide which end they build, and implement `represent_clouds` and `represent_points`.

    What is read: positions; with `use_features` also the dense features, and in tasks of clouds the categories, beside
    them. In tasks of points the categories enter the last maps as one-hot columns, as the published networks take the
    category of a shape whose parts they find. Edges are not read.

    Args:
        spec: the benchmark's description.
        cloud_dim: width of the representation of clouds, in tasks of clouds.
        point_dim: width of that of points, in the others.
        use_features: read features beside the positions.

    Raises:
        BadInput: nodes have no position.
    """

    waits_for_device = "sizes of clouds are read where they differ"

    def __init__(self, spec: BenchmarkSpec, cloud_dim: int, point_dim: int, use_features: bool) -> None:
        of_clouds = spec.level == "graph"
        super().__init__(spec, cloud_dim if of_clouds else point_dim)
        self.of_clouds = of_clouds
        if not spec.coordinates:
            raise BadInput(
                f"{type(self).__name__} reads point clouds, and the nodes of {spec.name} have no position. Take "
                "ModelNet40, ShapeNetPart, Solids or your own clouds, or an architecture for graphs."
            )
        self.coordinates, self.use_features = spec.coordinates, use_features
        codes = sum(spec.node.vocabularies)
        #: Width of the features that enter beside the positions.
        self.feature_dim = (spec.node.dense + (codes if self.of_clouds else 0)) if use_features else 0
        #: Width of the one-hot columns that enter the last maps.
        self.category_dim = 0 if self.of_clouds else codes

    def forward(self, batch: GraphBatch) -> Representation:
        """Points `[num_nodes, dim]`; in tasks of clouds those of `graph [num_graphs, dim]` that all points share."""
        dtype = next(self.parameters()).dtype
        columns = [batch.x_dense.to(dtype)] if self.use_features and self.spec.node.dense else []
        codes = self._one_hot(batch, dtype)
        if self.of_clouds and self.use_features:
            columns += codes
        keys = [column for part in (batch.pos, *columns) for column in part.unbind(1)]
        x = torch.cat(columns, dim=1) if columns else batch.pos.new_empty(batch.num_nodes, 0, dtype=dtype)
        points = self.placed(Points(batch.pos, x, Clouds.from_batch(batch, keys)))
        if self.of_clouds:
            graph = self.represent_clouds(points)
            representation = Representation(node=graph.index_select(0, batch.batch), graph=graph)
        else:
            categories = torch.cat(codes, dim=1) if codes else x[:, :0]
            representation = Representation(node=self.represent_points(points, categories))
        if self.training and points.penalties:
            representation.penalty = torch.stack(points.penalties).sum()
        return representation

    def placed(self, points: Points) -> Points:
        """The points as the network reads them; a model that turns them first says how."""
        return points

    @abstractmethod
    def represent_clouds(self, points: Points) -> Tensor:
        """`[B, dim]`."""

    @abstractmethod
    def represent_points(self, points: Points, categories: Tensor) -> Tensor:
        """`[T, dim]`.

        Args:
            points: of all clouds.
            categories: one-hot columns for the last maps `[T, category_dim]`, a width of 0 where there are none.
        """

    def _one_hot(self, batch: GraphBatch, dtype: torch.dtype) -> list[Tensor]:
        """One-hot columns `[T, size]`, one tensor for each categorical column."""
        if not self.spec.node.vocabularies:
            return []
        columns = zip(batch.x.unbind(1), self.spec.node.vocabularies, strict=True)
        return [F.one_hot(column, size).to(dtype) for column, size in columns]


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
