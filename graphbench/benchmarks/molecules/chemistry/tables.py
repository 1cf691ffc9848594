"""Convert arrays of molecules to a `GraphTable`, and store text beside the graphs as ragged bytes."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from itertools import pairwise

import numpy as np
import torch
from torch import Tensor

from graphbench.benchmarks.molecules.chemistry.reading import MoleculeArrays
from graphbench.benchmarks.tables import make_table
from graphbench.contracts import Column, GraphTable
from graphbench.contracts.table import EDGE, GRAPH, NODE, WEIGHT, pointer
from graphbench.data.columns import exact_numbers, split_bounds

#: Text columns of the molecule benchmarks.
TEXTS = ("smiles", "id")


def to_table(arrays: MoleculeArrays) -> GraphTable:
    """Make a table of `x`, `edge_index` and `edge_attr` of all readable molecules, in the narrow dtypes to store."""
    columns = {"x": (arrays.x, NODE), "edge_index": (arrays.edge_index, EDGE), "edge_attr": (arrays.edge_attr, EDGE)}
    return make_table(columns, arrays.num_nodes, arrays.num_edges)


def with_targets(table: GraphTable, y: np.ndarray, exact: bool = False) -> GraphTable:
    """Add `y`: real targets `[G, T]` or `[G]` as float32 (with `exact`, as float64 if necessary), classes as int64."""
    if np.issubdtype(y.dtype, np.integer):
        y = y.astype(np.int64)
    else:
        y = exact_numbers(y) if exact else y.astype(np.float32)
    return table.with_columns({"y": torch.from_numpy(y).reshape(len(table), -1)}, {"y": Column(GRAPH)})


def with_bounds(table: GraphTable, y: np.ndarray, signs: np.ndarray) -> GraphTable:
    """Add targets of which some are bounds: `y` is NaN there, and `y_lower` or `y_upper` hold the number.

    `y` and `signs` are those of `split_bounds`.
    """
    columns = {name: torch.from_numpy(part) for name, part in split_bounds(y, signs).items()}
    return table.with_columns(columns, {name: Column(GRAPH) for name in columns})


def with_weights(table: GraphTable, weights: np.ndarray) -> GraphTable:
    """Add `weight` to a table, float32 `[G]`."""
    return table.with_columns({WEIGHT: torch.from_numpy(weights).float()}, {WEIGHT: Column(GRAPH)})


def with_text(table: GraphTable, texts: Mapping[str, Sequence[str]]) -> GraphTable:
    """Add one string per graph under each name: UTF-8 bytes `[bytes]` on an axis of the same name."""
    columns: dict[str, Tensor] = {}
    ptr: dict[str, Tensor] = {}
    for name, strings in texts.items():
        encoded = [text.encode("utf-8") for text in strings]
        columns[name] = torch.from_numpy(np.frombuffer(b"".join(encoded), dtype=np.uint8).copy())
        ptr[name] = pointer(torch.tensor([len(part) for part in encoded], dtype=torch.int64))
    return table.with_columns(columns, {name: Column(name) for name in texts}, ptr)


def read_text(table: GraphTable, name: str) -> list[str]:
    """Return the strings that `with_text` stored under `name`."""
    data, ptr = table.columns[name].numpy().tobytes(), table.ptr[name].tolist()
    return [data[start:stop].decode("utf-8") for start, stop in pairwise(ptr)]


def subset(table: GraphTable, rows: np.ndarray | Tensor) -> GraphTable:
    """Copy the chosen graphs into a table whose graphs are numbered from 0."""
    chosen = table.select(torch.as_tensor(rows))
    chosen.graph_ids = None
    return chosen


def join_tables(tables: Sequence[GraphTable]) -> GraphTable:
    """Join tables of the same columns, graphs of the first in front."""
    first = tables[0]
    columns = {name: torch.cat([table.columns[name] for table in tables]) for name in first.columns}
    counts = {axis: torch.cat([table.ptr[axis].diff() for table in tables]) for axis in first.ptr}
    return GraphTable(columns, dict(first.layout), {axis: pointer(count) for axis, count in counts.items()})


def without(table: GraphTable, names: Iterable[str]) -> GraphTable:
    """Drop text columns, so that batches do not carry them."""
    dropped = set(names)
    return GraphTable(
        {name: tensor for name, tensor in table.columns.items() if name not in dropped},
        {name: column for name, column in table.layout.items() if name not in dropped},
        {axis: ptr for axis, ptr in table.ptr.items() if axis not in dropped},
        table.graph_ids,
    )
