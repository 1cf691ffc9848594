"""Ragged sets of nodes: what every search returns."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from graphbench.contracts.table import pointer
from graphbench.encodings.substructures.flat import FlatGraphs, ragged_arange
from graphbench.encodings.substructures.hashing import mix


@dataclass
class NodeSets:
    """Ragged sets of nodes.

    Args:
        graph: graph of each set `[S]`.
        size: nodes of each set `[S]`.
        nodes: members of all sets, ascending within a set `[sum(size)]`.
    """

    graph: Tensor
    size: Tensor
    nodes: Tensor

    @classmethod
    def from_rows(cls, graphs: FlatGraphs, rows: Tensor) -> NodeSets:
        """Sets with the nodes' original numbers within their graph out of rows of distinct nodes `[R, size]`."""
        # Short rows sort several times faster as 32-bit numbers.
        original = graphs.original.to(torch.int32)[rows].sort(1).values
        return cls(graphs.graph[rows[:, 0]], torch.full((len(rows),), rows.shape[1]), original.reshape(-1))

    def take(self, index: Tensor) -> NodeSets:
        """The sets `index [T]`, in this order."""
        size = self.size.index_select(0, index)
        row, place = ragged_arange(size)
        first = pointer(self.size).index_select(0, index)
        return NodeSets(
            self.graph.index_select(0, index), size, self.nodes.index_select(0, first.index_select(0, row) + place)
        )

    def renumbered(self, graphs: FlatGraphs) -> NodeSets:
        """The same sets with the nodes' original numbers within their graph, ascending within a set."""
        row, _ = ragged_arange(self.size)
        keys = (row << 32 | graphs.original.index_select(0, self.nodes)).sort().values
        return NodeSets(self.graph, self.size, keys & 0xFFFFFFFF)


def distinct(sets: NodeSets) -> NodeSets:
    """Drop every set that equals an earlier set of its graph."""
    row, _ = ragged_arange(sets.size)
    digest = torch.zeros(len(sets.size), dtype=torch.int64).index_add_(0, row, mix(sets.nodes))
    order = digest.argsort(stable=True)
    order = order[sets.graph[order].argsort(stable=True)]
    ordered = sets.take(order)
    same = torch.zeros(len(order), dtype=torch.bool)
    same[1:] = (ordered.graph[1:] == ordered.graph[:-1]) & (ordered.size[1:] == ordered.size[:-1])
    # Equal digests are not yet equal sets: compare the members with those of the set before.
    row, place = ragged_arange(ordered.size)
    start = pointer(ordered.size)
    compared = same[row]
    row, place = row[compared], place[compared]
    differs = ordered.nodes[start[row] + place] != ordered.nodes[start[row - 1] + place]
    same[row[differs]] = False
    return sets.take(order[~same].sort().values)


def concatenate(parts: Sequence[NodeSets]) -> tuple[NodeSets, Tensor]:
    """Sets of several patterns sorted by graph, then pattern: the sets and the pattern of each `[S]`."""
    graph, size, nodes = (torch.cat([getattr(part, name) for part in parts]) for name in ("graph", "size", "nodes"))
    pattern = torch.repeat_interleave(torch.arange(len(parts)), torch.tensor([len(part.size) for part in parts]))
    order = graph.argsort(stable=True)
    return NodeSets(graph, size, nodes).take(order), pattern.index_select(0, order)
