"""Splits of nodes: all splits hold the same graphs, stored and encoded once, and know targets of different nodes."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import torch

from graphbench.contracts import GraphTable
from graphbench.data.entry import Entry, EntryWriter, digest
from graphbench.data.tables import read_table, write_table

#: Under which name an entry holds what all splits have in common.
SHARED = "graphs"
_TARGETS = "y"


def known_in(table: GraphTable, rows: np.ndarray) -> GraphTable:
    """The graphs with the targets of some nodes: all others have -1 (classes) or NaN (numbers).

    Args:
        table: graphs with the targets of all nodes.
        rows: nodes whose targets are known, numbered through all graphs.

    Examples:
        >>> path = {"num_nodes": 3, "edge_index": torch.tensor([[0, 1], [1, 2]]), "y": torch.tensor([1, 0, 1])}
        >>> known_in(GraphTable.from_graphs([path]), np.array([1, 2])).columns["y"]
        tensor([-1,  0,  1])
    """
    every = table.columns[_TARGETS]
    chosen = torch.from_numpy(rows)
    some = torch.full_like(every, torch.nan if every.is_floating_point() else -1)
    some[chosen] = every[chosen]
    return table.with_columns({_TARGETS: some}, {_TARGETS: table.layout[_TARGETS]})


def write_shared(writer: EntryWriter, splits: Mapping[str, GraphTable]) -> None:
    """Store graphs once, and the targets of every split.

    Args:
        writer: of the entry.
        splits: tables that differ in their targets alone.
    """
    for split, table in splits.items():
        if SHARED not in writer.meta.get("splits", {}):
            write_table(writer, SHARED, _with(table, [name for name in table.columns if name != _TARGETS]))
        write_table(writer, split, _with(table, [_TARGETS]))


def _with(table: GraphTable, names: list[str]) -> GraphTable:
    """The graphs with some of their columns."""
    return GraphTable({n: table.columns[n] for n in names}, {n: table.layout[n] for n in names}, table.ptr)


def open_shared(entry: Entry, split: str, shared: GraphTable) -> GraphTable:
    """A split of what `write_shared` stored.

    Args:
        entry: of the store.
        split: its name.
        shared: the graphs, with encodings where they are wanted.
    """
    own = read_table(entry, split)
    return shared.with_columns(own.columns, own.layout)


def with_shared_content(fingerprint: Mapping[str, Any], shared: str) -> dict[str, Any]:
    """A fingerprint whose splits are known by their targets and by the graphs that they share.

    Args:
        fingerprint: of a benchmark, its splits by their targets alone.
        shared: checksum of the graphs.
    """
    splits = fingerprint["splits"]
    joined = {
        name: one | {"content": digest({"own": one["content"], "shared": shared})} for name, one in splits.items()
    }
    return {**fingerprint, "splits": joined}
