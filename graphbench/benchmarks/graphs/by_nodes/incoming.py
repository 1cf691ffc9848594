"""Index the edges of one large graph by their targets, on disk, and look up or sample those of some nodes.

A batch of a large graph needs the edges that lead to its nodes. In `edge_index` they may be anywhere. Sorted by target
(like the columns of a sparse CSC matrix) the edges of a node are adjacent. A part of the graph then reads only its
edges, from memory maps that may be larger than memory.

Legend: N nodes, E directed edges of the whole graph, F nodes whose edges are requested, e edges found.
"""

from __future__ import annotations

from dataclasses import dataclass
from itertools import pairwise

import numpy as np
from torch import Tensor

from graphbench.data.entry import Entry, EntryWriter

#: Number of edges sorted at a time: about 1 GB of memory.
_BLOCK = 1 << 25


@dataclass(frozen=True)
class IncomingEdges:
    """The edges of a graph, starting with those to node 0.

    Args:
        ptr: position of the first edge to each node `[N + 1]`.
        sources: the node where each edge begins `[E]`.
        numbers: the row of each edge in `edge_index` `[E]`.
    """

    ptr: np.ndarray
    sources: np.ndarray
    numbers: np.ndarray

    @classmethod
    def of_entry(cls, entry: Entry) -> IncomingEdges:
        """Open what `write_incoming` has stored; large arrays are memory-mapped."""
        return cls(*(entry.arrays[name] for name in ("ptr", "sources", "numbers")))

    @property
    def num_nodes(self) -> int:
        """Return the number of nodes of the whole graph, N."""
        return len(self.ptr) - 1

    def of(self, nodes: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Find all edges to some nodes.

        Args:
            nodes: `[F]`.

        Returns:
            Positions of the edges in `sources` and `numbers` `[e]`, and the row of `nodes` that each leads to `[e]`.

        Examples:
            >>> edges = IncomingEdges(np.array([0, 2, 3]), np.array([0, 1, 0]), np.arange(3))
            >>> edges.of(np.array([1, 0]))
            (array([2, 0, 1]), array([0, 1, 1]))
        """
        first, count = self.ptr[nodes], self.ptr[nodes + 1] - self.ptr[nodes]
        row = np.repeat(np.arange(len(nodes)), count)
        within = np.arange(len(row)) - np.repeat(np.cumsum(count) - count, count)
        return first[row] + within, row

    def sample(self, nodes: np.ndarray, limit: int, rng: np.random.Generator) -> tuple[np.ndarray, np.ndarray]:
        """Draw up to `limit` edges to each of some nodes, uniformly without replacement.

        Args:
            nodes: `[F]`.
            limit: maximum per node; -1 for all.
            rng: random generator.

        Returns:
            As from `of`, starting with all edges of nodes with few neighbours.
        """
        if limit < 0:
            return self.of(nodes)
        degree = self.ptr[nodes + 1] - self.ptr[nodes]
        few, many = np.flatnonzero(degree <= limit), np.flatnonzero(degree > limit)
        places, row = self.of(nodes[few])
        drawn = self.ptr[nodes[many], None] + draw_distinct(degree[many], limit, rng)
        return np.concatenate([places, drawn.reshape(-1)]), np.concatenate([few[row], np.repeat(many, limit)])


def draw_distinct(sizes: np.ndarray, count: int, rng: np.random.Generator) -> np.ndarray:
    """Draw `count` distinct numbers below each of `sizes [rows]` (all >= `count`), every set with equal probability.

    Floyd's algorithm (Bentley and Floyd, "Programming Pearls: a sample of brilliance", 1987), for all rows at once: for
    `top = size - count, ..., size - 1`, draw a number from 0 to `top`; if it was drawn before, use `top` instead.

    Returns:
        `[rows, count]`.

    Examples:
        >>> sorted(draw_distinct(np.array([3]), 3, np.random.default_rng(0))[0].tolist())
        [0, 1, 2]
    """
    drawn = np.empty((len(sizes), count), dtype=np.int64)
    for column in range(count):
        top = sizes - count + column
        number = rng.integers(top + 1)
        repeated = (drawn[:, :column] == number[:, None]).any(1)
        drawn[:, column] = np.where(repeated, top, number)
    return drawn


def write_incoming(writer: EntryWriter, edge_index: Tensor, num_nodes: int, block: int = _BLOCK) -> None:
    """Store the edges by target, see `IncomingEdges`; edges to one node keep their order.

    Sources and targets `[E, 2]` may be memory-mapped; `block` edges, and those of one node, are in memory at a time.
    """
    sources, targets = edge_index[:, 0].numpy(), edge_index[:, 1].numpy()
    starts = range(0, len(targets), block)
    counts = np.zeros(num_nodes, dtype=np.int64)
    for start in starts:
        counts += np.bincount(targets[start : start + block], minlength=num_nodes)
    ptr = np.concatenate([[0], np.cumsum(counts)])
    writer.append("ptr", ptr)
    writer.append("sources", sources[:0])  # even for a graph without edges
    numbers = np.int32 if len(targets) <= np.iinfo(np.int32).max else np.int64
    writer.append("numbers", np.empty(0, dtype=numbers))
    # Nodes with about `block` edges at a time: the first node of each turn, and N.
    firsts = np.unique(np.append(np.searchsorted(ptr, np.arange(0, len(targets), block)), num_nodes))
    for first, end in pairwise(firsts.tolist()):
        rows = []
        for start in starts:
            part = targets[start : start + block]
            rows.append(start + np.flatnonzero((part >= first) & (part < end)))
        chosen = np.concatenate(rows)
        chosen = chosen[np.argsort(targets[chosen], kind="stable")]
        writer.append("sources", sources[chosen])
        writer.append("numbers", chosen.astype(numbers))
