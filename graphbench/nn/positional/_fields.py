"""Fields of encodings that positional encoders read from a batch."""

from __future__ import annotations

import torch
from torch import Tensor
from torch_geometric.data import Data

from graphbench.contracts import Encoding
from graphbench.contracts.pyg import graphs_of_nodes
from graphbench.encodings import LapPE
from graphbench.errors import BadInput


def encoded_field(batch: Data, name: str, encoding: Encoding, dtype: torch.dtype | None = None) -> Tensor:
    """Return the field `name` that `encoding` adds to a batch, converted to `dtype`, that of the weights, if given.

    Batches stay in float32, whatever precision the model is trained in.
    """
    if name not in batch:
        raise BadInput(
            f"The batch has no {name!r}, which {encoding} computes. Request it before the data are prepared: "
            f"benchmark.require(model.required_encodings()); for other graphs call "
            f"graphbench.nn.add_encodings(batch, encoder)."
        )
    field: Tensor = batch[name]
    return field if dtype is None else field.to(dtype)


def valid_eigenvectors(batch: Data, encoding: LapPE) -> Tensor:
    """Mark the columns of `lap_pe_vectors` that contain eigenvectors, not padding: bool `[num_nodes, K]`."""
    graph_of, ptr = graphs_of_nodes(batch)
    available = ptr.diff() - int(encoding.skip_trivial)
    # A graph of n nodes has n eigenvectors, or n - 1 without the trivial one; other columns are zero.
    columns = torch.arange(encoding.num_eigenvectors, device=available.device)
    return columns < available[graph_of][:, None]
