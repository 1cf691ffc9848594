"""Two documents in one graph, as graphs of their own (the two towers of Retrieval)."""

from __future__ import annotations

import copy

import torch
from torch import Tensor

from graphbench import BenchmarkSpec, GraphBatch
from graphbench_sft.inputs import TOWER


def has_towers(spec: BenchmarkSpec) -> bool:
    """Whether a categorical column of the nodes says to which of two documents they belong."""
    return TOWER in spec.node.names[: len(spec.node.vocabularies)]


def split_documents(batch: GraphBatch, spec: BenchmarkSpec) -> tuple[GraphBatch, Tensor]:
    """A batch of `2 num_graphs` documents: first and second of a graph one after the other; one may be empty.

    It has `x`, `x_dense` and `pos` where these exist, `batch`, `ptr`, `num_graphs` and `max_nodes`, and no edges.

    Args:
        batch: graphs whose column "tower" holds 0 or 1.
        spec: their description.

    Returns:
        The documents, and the row of `batch` behind each of their rows `[num_nodes]`.
    """
    document = 2 * batch.batch + batch.x[:, spec.node.names.index(TOWER)]
    document, order = document.sort(stable=True)
    documents = copy.copy(batch)
    for name in ("x", "x_dense", "pos"):
        if name in batch:
            documents[name] = batch[name][order]
    sizes = torch.bincount(document, minlength=2 * batch.num_graphs)
    documents.batch = document
    documents.ptr = torch.cat([sizes.new_zeros(1), sizes.cumsum(0)])
    documents.num_graphs, documents.max_nodes = 2 * batch.num_graphs, int(sizes.max())
    return documents, order
