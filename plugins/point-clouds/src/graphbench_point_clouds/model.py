"""The base of all point-cloud models: inputs, checks of the benchmark, maps of points and two kinds of output.

Legend: T points of all clouds, B clouds, c coordinates.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from graphbench import Architecture, BenchmarkSpec, GraphBatch, Representation
from graphbench.errors import BadInput
from graphbench.nn import BatchNorm
from graphbench_point_clouds.clouds import Clouds, cloud_order, of_one_size


@dataclass(frozen=True)
class Points:
    """Points of all clouds of a batch, or a sample of them.

    Args:
        pos: `[T, c]`, in the precision of the data.
        x: features in the precision of the weights `[T, f]`; f may be 0.
        clouds: their clouds.
        penalties: scalars that the model adds to the training loss, collected in the forward pass.
    """

    pos: Tensor
    x: Tensor
    clouds: Clouds
    penalties: list[Tensor] = field(default_factory=list)

    @property
    def features(self) -> Tensor:
        """Concatenated positions and features `[T, c + f]`."""
        return torch.cat([self.pos.to(self.x.dtype), self.x], dim=1)


class PointCloudModel(Architecture):
    """Base of the architectures of this package, with one output network for cloud tasks and one for point tasks.

    Subclasses build the network selected by `of_clouds`, and implement `represent_clouds` and `represent_points`.

    Inputs are positions; with `use_features` also the dense features and, in cloud tasks, the categories. In point
    tasks the categories enter the last maps as one-hot columns, as in published networks that find the parts of a shape
    of known category. Edges are ignored.

    Args:
        spec: the benchmark's description.
        cloud_dim: width of the representation of clouds, in cloud tasks.
        point_dim: width of the representation of points, in point tasks.
        use_features: read features in addition to positions.

    Raises:
        BadInput: nodes have no position.
    """

    def __init__(self, spec: BenchmarkSpec, cloud_dim: int, point_dim: int, use_features: bool) -> None:
        of_clouds = spec.level == "graph"
        super().__init__(spec, cloud_dim if of_clouds else point_dim)
        self.of_clouds = of_clouds
        if not spec.coordinates:
            raise BadInput(
                f"{type(self).__name__} reads point clouds, and the nodes of {spec.name} have no position. Use "
                "ModelNet40, ShapeNetPart, Solids or your own clouds, or an architecture for graphs."
            )
        self.coordinates, self.use_features = spec.coordinates, use_features
        codes = sum(spec.node.vocabularies)
        #: Width of the features that enter with the positions.
        self.feature_dim = (spec.node.dense + (codes if self.of_clouds else 0)) if use_features else 0
        #: Width of the one-hot columns that enter the last maps.
        self.category_dim = 0 if self.of_clouds else codes

    def precompute(self, batch: GraphBatch, generator: torch.Generator | None = None) -> dict[str, Any]:
        """Group clouds by size if sizes differ; points that are sampled on the device are grouped there."""
        return {} if of_one_size(batch) else cloud_order(batch)

    def forward(self, batch: GraphBatch) -> Representation:
        """Return points `[num_nodes, dim]`; in cloud tasks they share the rows of `graph [num_graphs, dim]`."""
        dtype = next(self.parameters()).dtype
        columns = [batch.x_dense.to(dtype)] if self.use_features and self.spec.node.dense else []
        codes = self._one_hot(batch, dtype)
        if self.of_clouds and self.use_features:
            columns += codes
        # Sort points by all inputs of the network: ties in distances then do not depend on the numbering.
        keys = [column for part in (batch.pos, *columns) for column in part.unbind(1)]
        x = torch.cat(columns, dim=1) if columns else batch.pos.new_empty(batch.num_nodes, 0, dtype=dtype)
        points = self.prepare(Points(batch.pos, x, Clouds.from_batch(batch, keys)))
        if self.of_clouds:
            graph = self.represent_clouds(points)
            representation = Representation(node=graph.index_select(0, batch.batch), graph=graph)
        else:
            categories = torch.cat(codes, dim=1) if codes else x[:, :0]
            representation = Representation(node=self.represent_points(points, categories))
        # `replace` passes on the same list, so it contains the penalties of every stage.
        if self.training and points.penalties:
            representation.penalty = torch.stack(points.penalties).sum()
        return representation

    def prepare(self, points: Points) -> Points:
        """Return the input of the network; models that first rotate the points override this."""
        return points

    @abstractmethod
    def represent_clouds(self, points: Points) -> Tensor:
        """Represent clouds `[B, dim]`."""

    @abstractmethod
    def represent_points(self, points: Points, categories: Tensor) -> Tensor:
        """Represent points `[T, dim]`.

        Args:
            points: points of all clouds.
            categories: one-hot columns for the last maps `[T, category_dim]`, of width 0 without categories.
        """

    def _one_hot(self, batch: GraphBatch, dtype: torch.dtype) -> list[Tensor]:
        """Encode each categorical column as one-hot columns `[T, size]`."""
        if not self.spec.node.vocabularies:
            return []
        columns = zip(batch.x.unbind(1), self.spec.node.vocabularies, strict=True)
        return [F.one_hot(column, size).to(dtype) for column, size in columns]


class PointMap(nn.Module):
    """`act(BatchNorm(W x + b))` on the last dimension, with statistics over all others.

    Args:
        in_dim: input width.
        dim: output width.
        slope: slope of LeakyReLU on negative numbers; 0 for ReLU.
        bias: include b, which is redundant with the norm but part of some papers.

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
        """Map `[..., in_dim]` to `[..., dim]`, with dropout between W and the norm."""
        return self.activate(F.dropout(self.linear(x), dropout, self.training))

    def activate(self, x: Tensor) -> Tensor:
        """Apply only norm and activation."""
        # Clouds are never padded, so every row of the statistics is a point or an edge.
        return F.leaky_relu(self.norm(x.flatten(0, -2)), self.slope).view(x.shape)


def point_maps(widths: Sequence[int], slope: float = 0.0, bias: bool = True) -> nn.Sequential:
    """Create a `PointMap` from each width to the next."""
    return nn.Sequential(*(PointMap(a, b, slope, bias) for a, b in pairwise(widths)))


class LastMaps(nn.Module):
    """Maps with dropout after each of them, between the features and the classes of a published network.

    Args:
        widths: widths of the input and after each map.
        dropouts: probability after each map.
        slope: slope of LeakyReLU on negative numbers.
        biases: true for maps with a bias.
        before_norm: dropout between W and the norm instead of after the activation.
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
        with_bias = biases if biases is not None else [True] * len(dropouts)
        self.maps = nn.ModuleList(
            PointMap(a, b, slope, bias) for (a, b), bias in zip(pairwise(widths), with_bias, strict=True)
        )
        self.dropouts, self.before_norm = tuple(dropouts), before_norm

    def forward(self, x: Tensor) -> Tensor:
        """Map `[rows, widths[0]]` to `[rows, widths[-1]]`."""
        for layer, dropout in zip(self.maps, self.dropouts, strict=True):
            x = layer(x, dropout) if self.before_norm else F.dropout(layer(x), dropout, self.training)
        return x
