"""Build tables of graphs from arrays of columns."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np
import torch
from torch import Tensor

from graphbench.contracts import Column, GraphTable
from graphbench.contracts.table import EDGE, EDGE_INDEX, NODE, pointer


def make_table(
    columns: Mapping[str, tuple[Tensor | np.ndarray, str]],
    num_nodes: Tensor | np.ndarray | Sequence[int],
    num_edges: Tensor | np.ndarray | Sequence[int] | None = None,
) -> GraphTable:
    """Build a table of G graphs.

    Args:
        columns: name -> rows of all graphs, one after the other, and their axis; `edge_index` numbers nodes within
            their graph.
        num_nodes: per graph `[G]`.
        num_edges: per graph `[G]`; None for graphs without edges, which get an empty `edge_index`.

    Examples:
        >>> make_table({"x": (np.array([[5], [6], [7]]), "node")}, np.array([1, 2])).batch([1]).x
        tensor([[6],
                [7]])
    """
    nodes = torch.as_tensor(num_nodes)
    if num_edges is None:
        num_edges = torch.zeros_like(nodes)
        columns = {**columns, "edge_index": (torch.zeros(0, 2, dtype=torch.uint8), EDGE)}
    tensors = {name: torch.as_tensor(values) for name, (values, _) in columns.items()}
    layout = {name: EDGE_INDEX if name == "edge_index" else Column(axis) for name, (_, axis) in columns.items()}
    return GraphTable(tensors, layout, {NODE: pointer(nodes), EDGE: pointer(torch.as_tensor(num_edges))})
