"""Encode the features that a specification promises as vectors of the model's width."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal, get_args

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from graphbench.contracts import BenchmarkSpec, Features, GraphBatch, PositionalEncoder
from graphbench.contracts.trace import ReadsFeatures
from graphbench.errors import BadInput, check_choice
from graphbench.nn.ops import sum_rows

#: Encoding of categorical columns: embeddings with Xavier-uniform (OGB) or standard normal (PyTorch) initial values, or
#: one-hot columns and a linear map with bias (GraphGPS on PATTERN and CLUSTER).
Categorical = Literal["xavier_uniform", "normal", "one_hot"]
#: Columns above which no matrix of one-hot rows is built: 13,000 columns of 4,000 nodes take 0.8 GB in training. For
#: fewer columns sums keep their order, and recipes their results.
_MOST_ONE_HOT = 1_024


class FeatureEncoder(ReadsFeatures):
    """Sum one embedding per categorical column and a linear map of the dense columns.

    `out = sum_c E_c[x_c] + W x_dense + b`. With `categorical="one_hot"` all columns enter one linear map:
    `out = W [one_hot(x_1), ..., x_dense] + b`, which has `dim` more parameters (the bias).
    The embeddings of all columns are one table: OGB's atom encoder is the same map with its tables stacked.

    Args:
        features: vocabularies and dense width of a node or an edge; at least one of them.
        dim: width of the result.
        categorical: how categorical columns are encoded; it has no effect without such columns.
        one_hot_bias: whether the map of one-hot columns has the bias b.

    Raises:
        BadInput: there is nothing to encode, or `categorical` is unknown.

    Examples:
        >>> encoder = FeatureEncoder(Features(vocabularies=(5, 3), dense=2), dim=8)
        >>> encoder(torch.tensor([[4, 0], [1, 2]]), torch.randn(2, 2)).shape
        torch.Size([2, 8])
    """

    offsets: Tensor

    def __init__(
        self, features: Features, dim: int, categorical: Categorical = "xavier_uniform", one_hot_bias: bool = True
    ) -> None:
        super().__init__()
        check_choice("categorical", categorical, get_args(Categorical))
        if not features.vocabularies and not features.dense:
            raise BadInput("FeatureEncoder needs at least one categorical or dense column, but the features are empty.")
        sizes = features.vocabularies
        self.vocabularies, self.dense = sizes, features.dense
        self.one_hot = categorical == "one_hot" and bool(sizes)
        # Not in checkpoints: it follows from the specification.
        self.register_buffer("offsets", torch.tensor([0, *sizes[:-1]]).cumsum(0), persistent=False)
        self.table = None if self.one_hot or not sizes else nn.Parameter(torch.empty(sum(sizes), dim))
        dense_width = features.dense + (sum(sizes) if self.one_hot else 0)
        self.linear = nn.Linear(dense_width, dim, bias=one_hot_bias or not self.one_hot) if dense_width else None
        if self.table is not None:
            for rows in self.table.data.split(sizes):  # each as a separate table, since xavier depends on the size
                nn.init.xavier_uniform_(rows) if categorical == "xavier_uniform" else nn.init.normal_(rows)

    def forward(self, categories: Tensor | None, dense: Tensor | None) -> Tensor:
        """Encode rows of categories, int64 `[num_rows, columns]`, and dense columns `[num_rows, width]`."""
        parts = []
        if self.vocabularies:
            # One table for all columns needs a single gather and sum; a table per column would need one each.
            columns = _required(categories, "categorical", len(self.vocabularies))
            if self.one_hot and sum(self.vocabularies) > _MOST_ONE_HOT:
                return self._gathered(columns, dense)
            if self.one_hot:
                dense = self._with_one_hot(columns, dense)
            elif self.table is not None:
                parts.append(sum_rows(columns + self.offsets, self.table))
        if self.linear is not None:
            values = _required(dense, "dense", self.linear.in_features)
            parts.append(self.linear(values.to(self.linear.weight.dtype)))
        return parts[0] if len(parts) == 1 else parts[0] + parts[1]

    def _with_one_hot(self, columns: Tensor, dense: Tensor | None) -> Tensor:
        codes = [F.one_hot(column, size) for column, size in zip(columns.unbind(1), self.vocabularies, strict=True)]
        if self.dense:
            codes.append(_required(dense, "dense", self.dense))
        return torch.cat(codes, dim=1)

    def _gathered(self, columns: Tensor, dense: Tensor | None) -> Tensor:
        """Gather the weights that one-hot columns would select, without a matrix of these columns."""
        assert self.linear is not None
        weight, width = self.linear.weight, sum(self.vocabularies)
        encoded = sum_rows(columns + self.offsets, weight[:, :width].T.contiguous())
        if self.dense:
            encoded = encoded + F.linear(_required(dense, "dense", self.dense).to(weight.dtype), weight[:, width:])
        return encoded if self.linear.bias is None else encoded + self.linear.bias


class NodeEncoder(nn.Module):
    """Compute vectors of nodes: encoded features of width `dim - p` and positional features of total width `p`.

    If the nodes of a benchmark have only a position, `pos` is encoded as their features; nodes without any feature
    share one learned row.

    Args:
        spec: the benchmark's description.
        dim: width of the result.
        positional_encoders: their outputs are concatenated, in order, after the encoded features.
        categorical: how categorical columns are encoded.
        one_hot_bias: see `FeatureEncoder`.

    Raises:
        BadInput: the positional encoders leave no room for the features.

    Examples:
        >>> from graphbench.testing import tiny_spec, tiny_table
        >>> spec = tiny_spec()
        >>> batch = tiny_table(spec, sizes=[3, 4]).batch([0, 1])
        >>> NodeEncoder(spec, dim=8)(batch).shape
        torch.Size([7, 8])
    """

    def __init__(
        self,
        spec: BenchmarkSpec,
        dim: int,
        positional_encoders: Sequence[PositionalEncoder] = (),
        categorical: Categorical = "xavier_uniform",
        one_hot_bias: bool = True,
    ) -> None:
        super().__init__()
        width = dim - sum(encoder.dim for encoder in positional_encoders)
        if width <= 0:
            widths = [encoder.dim for encoder in positional_encoders]
            raise BadInput(f"Positional encoders of widths {widths} leave no room for features in a width of {dim}.")
        self.reads_position = spec.coordinates > 0 and not (spec.node.vocabularies or spec.node.dense)
        features = Features(dense=spec.coordinates) if self.reads_position else spec.node
        self.features = _encoder_or_row(features, width, categorical, one_hot_bias)
        self.positional = nn.ModuleList(positional_encoders)

    def forward(self, batch: GraphBatch) -> Tensor:
        """Return the vectors of all nodes `[num_nodes, dim]`."""
        return self.encode(batch.get("x"), batch.get("x_dense"), batch)

    def encode(self, x: Tensor | None, dense: Tensor | None, batch: GraphBatch) -> Tensor:
        """Encode like `forward`, with other features instead of the batch's."""
        if isinstance(self.features, SharedRow):
            encoded = self.features(batch.num_nodes)
        else:
            encoded = self.features(x, batch.pos if self.reads_position else dense)
        positions = [encoder(batch) for encoder in self.positional]
        if not torch.is_autocast_enabled(encoded.device.type):  # stored encodings are float32, whatever the weights are
            positions = [position.to(encoded.dtype) for position in positions]
        return torch.cat([encoded, *positions], dim=-1)


class EdgeEncoder(nn.Module):
    """Compute vectors of directed edges; edges without features share one learned row of `dim` parameters.

    Args:
        spec: the benchmark's description.
        dim: width of the result.
        categorical: how categorical columns are encoded.
        use_features: read the edge features; False gives all edges the learned row.

    Examples:
        >>> from graphbench.testing import tiny_spec, tiny_table
        >>> spec = tiny_spec()
        >>> batch = tiny_table(spec, sizes=[3, 4]).batch([0, 1])
        >>> EdgeEncoder(spec, dim=8)(batch).shape == (batch.edge_index.shape[1], 8)
        True
    """

    def __init__(
        self, spec: BenchmarkSpec, dim: int, categorical: Categorical = "xavier_uniform", use_features: bool = True
    ) -> None:
        super().__init__()
        self.features = _encoder_or_row(spec.edge if use_features else Features(), dim, categorical)

    def forward(self, batch: GraphBatch) -> Tensor:
        """Return the vectors of all edges `[num_edges, dim]`."""
        if isinstance(self.features, SharedRow):
            return self.features(batch.edge_index.shape[1])
        return self.features(batch.get("edge_attr"), batch.get("edge_dense"))


class SharedRow(nn.Module):
    """One learned row with standard normal initial values, which replaces the features of all nodes or edges.

    Examples:
        >>> SharedRow(8)(3).shape
        torch.Size([3, 8])
    """

    def __init__(self, dim: int) -> None:
        super().__init__()
        self.row = nn.Parameter(torch.randn(dim))

    def forward(self, num_rows: int) -> Tensor:
        """Repeat the row `num_rows` times: `[num_rows, dim]`."""
        # A view that allocates no memory; its gradient is the sum over all rows.
        return self.row.expand(num_rows, -1)


def _encoder_or_row(
    features: Features, dim: int, categorical: Categorical, one_hot_bias: bool = True
) -> FeatureEncoder | SharedRow:
    if features.vocabularies or features.dense:
        return FeatureEncoder(features, dim, categorical, one_hot_bias)
    return SharedRow(dim)


def _required(columns: Tensor | None, kind: str, width: int) -> Tensor:
    """Return the tensor after checking that it exists and has the width of the specification."""
    if columns is None:
        raise BadInput(f"The specification promises {width} {kind} column(s), but the batch has none.")
    if columns.dim() != 2 or columns.shape[1] != width:
        raise BadInput(f"Expected {kind} features of shape [rows, {width}], but got {list(columns.shape)}.")
    return columns
