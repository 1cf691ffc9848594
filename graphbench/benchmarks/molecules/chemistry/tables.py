"""From arrays of molecules to a `GraphTable`, and text kept beside the graphs as ragged bytes."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from itertools import pairwise

import numpy as np
import torch
from torch import Tensor

from graphbench.benchmarks.molecules.chemistry.reading import MoleculeArrays
from graphbench.contracts import Column, GraphTable
from graphbench.contracts.table import EDGE, EDGE_INDEX, GRAPH, NODE, WEIGHT, pointer
from graphbench.data.columns import exact_numbers

#: Text columns of the molecule benchmarks.
TEXTS = ("smiles", "id")


def to_table(arrays: MoleculeArrays) -> GraphTable:
    """Columns `x`, `edge_index` and `edge_attr` of all readable molecules, in the narrow types they are stored in."""
    ptr = {NODE: pointer(torch.from_numpy(arrays.num_nodes)), EDGE: pointer(torch.from_numpy(arrays.num_edges))}
    columns = {name: torch.from_numpy(getattr(arrays, name)) for name in ("x", "edge_index", "edge_attr")}
    layout = {"x": Column(NODE), "edge_index": EDGE_INDEX, "edge_attr": Column(EDGE)}
    return GraphTable(columns, layout, ptr)


def with_targets(table: GraphTable, y: np.ndarray, exact: bool = False) -> GraphTable:
    """A table that has `y` too: real targets `[G, T]` or `[G]` as float32, classes as int64.

    Args:
        table: of molecules.
        y: targets.
        exact: keep float64 where float32 cannot hold the spread of a target.
    """
    y = (
        y.astype(np.int64)
        if np.issubdtype(y.dtype, np.integer)
        else exact_numbers(y)
        if exact
        else y.astype(np.float32)
    )
    return table.with_columns({"y": torch.from_numpy(y).reshape(len(table), -1)}, {"y": Column(GRAPH)})


def with_weights(table: GraphTable, weights: np.ndarray) -> GraphTable:
    """A table that has `weight` too, float32 `[G]`."""
    return table.with_columns({WEIGHT: torch.from_numpy(weights).float()}, {WEIGHT: Column(GRAPH)})


def with_text(table: GraphTable, texts: Mapping[str, Sequence[str]]) -> GraphTable:
    """A table that has one string per graph under each name: UTF-8 bytes `[bytes]` on an axis of the same name."""
    columns: dict[str, Tensor] = {}
    ptr: dict[str, Tensor] = {}
    for name, strings in texts.items():
        encoded = [text.encode("utf-8") for text in strings]
        columns[name] = torch.from_numpy(np.frombuffer(b"".join(encoded), dtype=np.uint8).copy())
        ptr[name] = pointer(torch.tensor([len(part) for part in encoded], dtype=torch.int64))
    return table.with_columns(columns, {name: Column(name) for name in texts}, ptr)


def read_text(table: GraphTable, name: str) -> list[str]:
    """The strings that `with_text` stored under `name`."""
    data, ptr = table.columns[name].numpy().tobytes(), table.ptr[name].tolist()
    return [data[start:stop].decode("utf-8") for start, stop in pairwise(ptr)]


def subset(table: GraphTable, rows: np.ndarray | Tensor) -> GraphTable:
    """The chosen graphs, copied, as a table of its own whose graphs are numbered from 0."""
    chosen = table.select(torch.as_tensor(rows))
    chosen.graph_ids = None
    return chosen


def without(table: GraphTable, names: Iterable[str]) -> GraphTable:
    """The same graphs without some text columns, so that batches do not carry them."""
    dropped = set(names)
    return GraphTable(
        {name: tensor for name, tensor in table.columns.items() if name not in dropped},
        {name: column for name, column in table.layout.items() if name not in dropped},
        {axis: ptr for axis, ptr in table.ptr.items() if axis not in dropped},
        table.graph_ids,
    )
