"""Raw features of nodes, for models whose first layer reads them before any map.

Legend: T nodes of all graphs of a batch.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from graphbench import BenchmarkSpec, GraphBatch, PositionalEncoder


class InputFeatures(nn.Module):
    """Concatenate all inputs of a node: one-hot columns, dense columns, then outputs of positional encoders.

    `graphbench.nn.NodeEncoder` maps features to the width of a model; here they keep their width `dim`, for dropout on
    the features and for convolutions that read them. Nodes without features use their coordinates. Nodes without any
    input get one column of ones, whose map is a learned row shared by all nodes.

    Args:
        spec: the benchmark's description.
        positional_encoders: their outputs are concatenated to the features.

    Examples:
        >>> from graphbench.testing import tiny_spec, tiny_table
        >>> spec = tiny_spec()
        >>> spec.node.vocabularies, spec.node.dense
        ((5, 3), 2)
        >>> inputs = InputFeatures(spec)
        >>> inputs.dim, inputs(tiny_table(spec, sizes=[3, 4]).batch([0, 1]), torch.float32).shape
        (10, torch.Size([7, 10]))
    """

    def __init__(self, spec: BenchmarkSpec, positional_encoders: Sequence[PositionalEncoder] = ()) -> None:
        super().__init__()
        self.vocabularies = spec.node.vocabularies
        self.reads_position = spec.coordinates > 0 and not (spec.node.vocabularies or spec.node.dense)
        self.dense = spec.coordinates if self.reads_position else spec.node.dense
        self.positional = nn.ModuleList(positional_encoders)
        width = sum(self.vocabularies) + self.dense + sum(encoder.dim for encoder in positional_encoders)
        self.constant = width == 0
        self.dim = max(1, width)

    def forward(self, batch: GraphBatch, dtype: torch.dtype) -> Tensor:
        """Return the features of all nodes `[T, dim]` in the given precision."""
        if self.constant:
            return torch.ones(batch.batch.shape[0], 1, dtype=dtype, device=batch.batch.device)
        parts: list[Tensor] = []
        if self.vocabularies:
            columns = zip(batch.x.unbind(1), self.vocabularies, strict=True)
            parts.extend(F.one_hot(column, size).to(dtype) for column, size in columns)
        if self.dense:
            parts.append(batch.pos if self.reads_position else batch.x_dense)
        parts.extend(encoder(batch) for encoder in self.positional)
        return torch.cat([part.to(dtype) for part in parts], dim=-1)
