"""What positional encoders read from a batch."""

from __future__ import annotations

import torch
from torch import Tensor

from graphbench.contracts import Encoding, GraphBatch
from graphbench.encodings import LapPE
from graphbench.errors import BadInput


def encoded_field(batch: GraphBatch, name: str, encoding: Encoding) -> Tensor:
    """Field `name` that `encoding` adds to a batch.

    Raises:
        BadInput: the batch does not have it.
    """
    if name not in batch:
        raise BadInput(
            f"The batch has no {name!r}, which {encoding} computes. Ask the data for it before they are prepared: "
            f"benchmark.require(model.required_encodings())."
        )
    return batch[name]


def valid_eigenvectors(batch: GraphBatch, encoding: LapPE) -> Tensor:
    """Which columns of `lap_pe_vectors` are eigenvectors, not filling, for every node: bool `[num_nodes, K]`."""
    available = batch.ptr.diff() - int(encoding.skip_trivial)
    columns = torch.arange(encoding.num_eigenvectors, device=available.device)
    return columns < available[batch.batch][:, None]
