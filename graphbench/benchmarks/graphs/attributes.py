"""The attributes of one `Data` object or mapping as arrays: edges in `adj_t` and sparse features included."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import scipy.sparse
import torch
from torch_geometric.data import Data, HeteroData

from graphbench.benchmarks.graphs.raw import as_array
from graphbench.errors import BadInput

#: Attributes of a `Data` object that are structure, not columns.
STRUCTURE = (
    "edge_index", "num_nodes", "batch", "ptr", "edge_label_index", "edge_label", "pos_edge_label_index",
    "pos_edge_label", "neg_edge_label_index", "neg_edge_label",
)  # fmt: skip
EXPECTED = "expected PyG's Data objects, mappings with an edge_index, or networkx graphs"
#: What `HeteroData.to_homogeneous()` leaves: types as numbers, and beside the attributes what they are called.
TYPES = {"node": "node_type", "edge": "edge_type"}
_SPARSE = (torch.sparse_coo, torch.sparse_csr, torch.sparse_csc)


def hetero_refusal(place: str) -> BadInput:
    """The error for a `HeteroData`."""
    return BadInput(
        f"{place} is a HeteroData: turn it into a Data with its method to_homogeneous() first, whose node_type and "
        "edge_type are read as features."
    )


def attributes_of(graph: Any, place: str) -> dict[str, Any]:
    """Everything that a graph holds, with `edge_index` an array and `num_nodes` a number.

    Args:
        graph: a `Data` object or a mapping.
        place: where it stands, for messages.

    Raises:
        BadInput: it is something else, or its edges or number of nodes cannot be told.
    """
    if isinstance(graph, HeteroData):
        raise hetero_refusal(place)
    if isinstance(graph, Data):
        values = {str(key): value for key, value in graph.to_dict().items() if value is not None}
        if graph.num_nodes is not None:
            values["num_nodes"] = graph.num_nodes
        values |= _named_types(graph, values)
    elif isinstance(graph, Mapping):
        values = {str(key): value for key, value in graph.items() if value is not None}
    else:
        raise BadInput(f"{place} is a {type(graph).__name__}; {EXPECTED}.")
    values = _from_adjacency(values, place)
    for key, value in values.items():
        if not key.startswith("adj") and (_is_sparse(value) or scipy.sparse.issparse(value)):
            values[key] = value.to_dense() if isinstance(value, torch.Tensor) else value.toarray()
    edges = as_array(values.get("edge_index"))
    if edges is None or edges.ndim != 2 or edges.shape[0] != 2:
        shape = "it has none" if edges is None else f"its shape is {list(edges.shape)}"
        raise BadInput(f"{place}: edge_index must be [2, edges], but {shape}.")
    if edges.dtype.kind not in "iu" and edges.size:
        raise BadInput(f"{place}: edge_index must hold integers, but is {edges.dtype}.")
    if "num_nodes" not in values:
        x = as_array(values.get("x"))
        if x is None:
            raise BadInput(f"{place} has neither x nor num_nodes, so that its nodes cannot be counted.")
        values["num_nodes"] = len(x)
    return values | {"edge_index": edges}


def _is_sparse(value: Any) -> bool:
    return isinstance(value, torch.Tensor) and value.layout in _SPARSE


def _from_adjacency(values: dict[str, Any], place: str) -> dict[str, Any]:
    """`edge_index` out of `adj_t`, whose rows are the edges' ends and whose columns are their beginnings.

    Its values are `edge_weight` where they are numbers, `edge_attr` where they are rows of them.

    Raises:
        BadInput: it is no square matrix.
    """
    adjacency = values.get("adj_t")
    if adjacency is None or "edge_index" in values:
        return values
    if scipy.sparse.issparse(adjacency):
        found = adjacency.tocoo()
        row, column, weight = found.row, found.col, found.data
    elif _is_sparse(adjacency) and adjacency.layout != torch.sparse_coo and adjacency.dim() == 3:
        row, column, weight = _compressed(adjacency)
    elif _is_sparse(adjacency):
        found = adjacency.to_sparse_coo()
        row, column, weight = (part.numpy() for part in (*found._indices()[:2], found._values()))
    elif hasattr(adjacency, "coo") and hasattr(adjacency, "sparse_sizes"):  # torch_sparse's SparseTensor
        row, column, weight = (None if part is None else part.numpy() for part in adjacency.coo())
    else:
        raise BadInput(f"{place}: adj_t is a {type(adjacency).__name__}; expected a sparse matrix, as PyG makes it.")
    size = tuple(adjacency.sparse_sizes() if hasattr(adjacency, "sparse_sizes") else adjacency.shape)[:2]
    if size[0] != size[1]:
        raise BadInput(f"{place}: adj_t must be square, but its shape is {list(size)}.")
    found = {key: value for key, value in values.items() if key != "adj_t"}
    found["edge_index"] = np.stack([column, row]).astype(np.int64)
    found.setdefault("num_nodes", int(size[0]))
    if weight is not None:
        found.setdefault("edge_weight" if weight.ndim == 1 else "edge_attr", weight)
    return found


def _compressed(adjacency: torch.Tensor) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Rows, columns and values of a matrix in CSR or CSC whose entries are rows of numbers."""
    by_row = adjacency.layout == torch.sparse_csr
    pointer = adjacency.crow_indices() if by_row else adjacency.ccol_indices()
    other = adjacency.col_indices() if by_row else adjacency.row_indices()
    major = torch.repeat_interleave(torch.arange(len(pointer) - 1), pointer.diff())
    row, column = (major, other) if by_row else (other, major)
    return row.numpy(), column.numpy(), adjacency.values().numpy()


def _named_types(graph: Data, values: Mapping[str, Any]) -> dict[str, Any]:
    """Types of nodes and edges as words, where `to_homogeneous()` has kept their names."""
    found: dict[str, Any] = {}
    beside = graph._store.__dict__ | graph.__dict__
    for level, key in TYPES.items():
        names, numbers = beside.get(f"_{level}_type_names"), as_array(values.get(key))
        if not isinstance(names, list | tuple) or numbers is None or numbers.dtype.kind not in "iu":
            continue
        words = np.array([name if isinstance(name, str) else " ".join(name) for name in names], dtype=object)
        if not numbers.size or (numbers.min() >= 0 and numbers.max() < len(words)):
            found[key] = words[numbers]
    return found
