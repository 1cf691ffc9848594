"""Store splits of nodes: graphs once, and the targets of each split."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import torch

from graphbench.contracts import GraphTable
from graphbench.data.entry import Entry, EntryWriter, digest
from graphbench.data.tables import read_table, write_table

SHARED = "graphs"  # name in an entry of what all splits have in common
_TARGETS = "y"


def keep_targets(table: GraphTable, rows: np.ndarray) -> GraphTable:
    """Keep the targets of some nodes, numbered through all graphs; others get -1 (classes) or NaN (numbers).

    Examples:
        >>> path = {"num_nodes": 3, "edge_index": torch.tensor([[0, 1], [1, 2]]), "y": torch.tensor([1, 0, 1])}
        >>> keep_targets(GraphTable.from_graphs([path]), np.array([1, 2])).columns["y"]
        tensor([-1,  0,  1])
    """
    targets = table.columns[_TARGETS]
    chosen = torch.from_numpy(rows)
    masked = torch.full_like(targets, torch.nan if targets.is_floating_point() else -1)
    masked[chosen] = targets[chosen]
    return table.with_columns({_TARGETS: masked}, {_TARGETS: table.layout[_TARGETS]})


def write_shared(writer: EntryWriter, splits: Mapping[str, GraphTable]) -> None:
    """Store the graphs of tables that differ in their targets alone once, and the targets of every split."""
    for split, table in splits.items():
        if SHARED not in writer.meta.get("splits", {}):
            write_table(writer, SHARED, _with(table, [name for name in table.columns if name != _TARGETS]))
        write_table(writer, split, _with(table, [_TARGETS]))


def _with(table: GraphTable, names: list[str]) -> GraphTable:
    return GraphTable({n: table.columns[n] for n in names}, {n: table.layout[n] for n in names}, table.ptr)


def open_shared(entry: Entry, split: str, shared: GraphTable) -> GraphTable:
    """Open a split of `write_shared`: the shared graphs, which may have encodings, with its targets."""
    targets = read_table(entry, split)
    return shared.with_columns(targets.columns, targets.layout)


def with_shared_content(fingerprint: Mapping[str, Any], shared: str) -> dict[str, Any]:
    """Add the checksum of the shared graphs to the splits of a fingerprint, which cover targets alone."""
    splits = fingerprint["splits"]
    joined = {
        name: one | {"content": digest({"own": one["content"], "shared": shared})} for name, one in splits.items()
    }
    return {**fingerprint, "splits": joined}
