"""Join many graphs into one with sorted neighbours, adjacency bits and randomly renumbered nodes; sets of nodes."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from graphbench.contracts import GraphTable
from graphbench.contracts.table import pointer
from graphbench.encodings.substructures.hashing import mix, structure_hash
from graphbench.errors import BadInput


def ragged_arange(lengths: Tensor) -> tuple[Tensor, Tensor]:
    """Enumerate the items of ragged rows: row of each item and its place in the row, both `[sum(lengths)]`."""
    total = int(lengths.sum())
    row = torch.repeat_interleave(torch.arange(len(lengths)), lengths, output_size=total)
    starts = lengths.cumsum(0) - lengths
    return row, torch.arange(total) - starts.index_select(0, row)


@dataclass
class FlatGraphs:
    """G simple undirected graphs with N nodes in total, as one disconnected graph.

    Nodes are renumbered at random *within their graph*, seeded by the graph's structure. Searches may then rely on node
    numbers (start at the smallest, grow upwards, ...) without the cuts favouring low original numbers.

    Args:
        ptr: first node of each graph `[G + 1]`.
        graph: graph of each node `[N]`.
        original: the node's number within its graph before renumbering `[N]`.
        seed: random bits of each graph `[G]`.
        start: first neighbour of each node `[N + 1]`.
        neighbour: neighbours of all nodes, ascending within a node `[2 * edges]`.
        bits: adjacency as 64-bit words `[N, words]`: bit b of word w of node v says whether v is adjacent to the
            node with number `64 w + b` within the graph.
    """

    ptr: Tensor
    graph: Tensor
    original: Tensor
    seed: Tensor
    start: Tensor
    neighbour: Tensor
    bits: Tensor

    @classmethod
    def from_table(cls, graphs: GraphTable, seed: int) -> FlatGraphs:
        """Build from a table, with undirected edges and without duplicates and self-loops.

        Raises:
            BadInput: an edge refers to a node outside its graph.
        """
        ptr, total = graphs.ptr["node"], int(graphs.ptr["node"][-1])
        graph = torch.repeat_interleave(torch.arange(len(graphs)), ptr.diff(), output_size=total)
        keys = _simple_edges(graphs, total)
        edges = torch.stack((keys // max(total, 1), keys % max(total, 1)))
        # Hashed from simple edges: parallel edges and loops must not change what a cap cuts.
        seeds = mix(structure_hash(edges, graph, ptr), seed)
        # Sorting by (graph, random number) puts the nodes of each graph into a random order.
        local = torch.arange(total) - ptr[graph]
        by_chance = mix(local, seeds[graph]).argsort()
        node_at = by_chance[graph[by_chance].argsort(stable=True)]
        place = torch.empty_like(node_at).scatter_(0, node_at, torch.arange(total))
        source, neighbour = torch.stack((place[edges[0]], place[edges[1]])).unbind()
        order = (source * max(total, 1) + neighbour).argsort()
        source, neighbour = source[order], neighbour[order]
        start = pointer(torch.bincount(source, minlength=total))
        bits = _adjacency_bits(source, neighbour - ptr[graph[neighbour]], total, ptr.diff())
        return cls(ptr, graph, local[node_at], seeds, start, neighbour, bits)

    @property
    def num_nodes(self) -> int:
        """Total number of nodes."""
        return len(self.graph)

    @property
    def degree(self) -> Tensor:
        """Number of neighbours of each node `[N]`."""
        return self.start.diff()

    def by_original_number(self) -> Tensor:
        """Return the nodes of each graph in their original order `[N]`."""
        return (self.ptr[self.graph] + self.original).argsort()

    def expand(self, nodes: Tensor) -> tuple[Tensor, Tensor]:
        """Gather all neighbours of `nodes [R]`: the row of each, and the neighbour, both `[sum of degrees]`."""
        first = self.start.index_select(0, nodes)
        row, place = ragged_arange(self.start.index_select(0, nodes + 1) - first)
        return row, self.neighbour.index_select(0, first.index_select(0, row) + place)

    def later_neighbours(self, nodes: Tensor, place: Tensor) -> tuple[Tensor, Tensor]:
        """List the places in `neighbour` of `nodes [R]` after `place [R]`: row and place, both `[C]`."""
        row, step = ragged_arange(self.start.index_select(0, nodes + 1) - place - 1)
        return row, place.index_select(0, row) + 1 + step

    def has_bit(self, words: Tensor, row: Tensor, node: Tensor) -> Tensor:
        """Test whether `node [C]` is in the set `words[row]` `[C]`, for `words [R, words]` and `row [C]`."""
        number = node - self.ptr.index_select(0, self.graph.index_select(0, node))
        width = words.shape[1]
        if width > 1:
            row = row * width + (number >> 6)
        # `>>` copies the sign of a word, which `& 1` removes.
        return ((words.reshape(-1).index_select(0, row) >> (number & 63)) & 1).bool()

    def bit_of(self, node: Tensor) -> Tensor:
        """Write the sets `{node}` as words `[R, words]` for `node [R]`."""
        number = node - self.ptr[self.graph[node]]
        words = torch.zeros(len(node), self.bits.shape[1], dtype=torch.int64)
        return words.scatter_(1, (number >> 6)[:, None], torch.ones_like(node)[:, None] << (number & 63)[:, None])


def _simple_edges(graphs: GraphTable, total: int) -> Tensor:
    """Return both directions of every edge once, without self-loops, as sorted keys `source * total + target`."""
    local = graphs.columns["edge_index"].to(torch.int64).reshape(-1, 2)
    graph = torch.repeat_interleave(torch.arange(len(graphs)), graphs.num_edges, output_size=len(local))
    if len(local) and (int(local.min()) < 0 or bool((local >= graphs.num_nodes[graph, None]).any())):
        raise BadInput("edge_index must contain node numbers from 0 to num_nodes - 1 of each graph.")
    source, target = (local + graphs.ptr["node"][graph, None]).unbind(1)
    keys = torch.cat((source * total + target, target * total + source))
    return keys[torch.cat((source, target)) != torch.cat((target, source))].unique()


def _adjacency_bits(source: Tensor, number: Tensor, total: int, sizes: Tensor) -> Tensor:
    """Return the adjacency as words `[total, words]`; every (source, number) occurs once, so adding bits sets them."""
    width = (int(sizes.max()) + 63) // 64 if total else 1
    words = torch.zeros(total * width, dtype=torch.int64)
    words.index_add_(0, source * width + (number >> 6), torch.ones_like(number) << (number & 63))
    return words.reshape(total, width)


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
        """Build sets of original node numbers from rows of distinct nodes `[R, size]`."""
        # Short rows are sorted several times faster as 32-bit numbers.
        original = graphs.original.to(torch.int32)[rows].sort(1).values
        return cls(graphs.graph[rows[:, 0]], torch.full((len(rows),), rows.shape[1]), original.reshape(-1))

    def take(self, index: Tensor) -> NodeSets:
        """Select the sets `index [T]`, in this order."""
        size = self.size.index_select(0, index)
        row, place = ragged_arange(size)
        first = pointer(self.size).index_select(0, index)
        return NodeSets(
            self.graph.index_select(0, index), size, self.nodes.index_select(0, first.index_select(0, row) + place)
        )

    def renumbered(self, graphs: FlatGraphs) -> NodeSets:
        """Return the same sets with the nodes' original numbers within their graph, ascending within a set."""
        row, _ = ragged_arange(self.size)
        # One sort of both numbers in 64 bits, instead of one sort per set.
        keys = (row << 32 | graphs.original.index_select(0, self.nodes)).sort().values
        return NodeSets(self.graph, self.size, keys & 0xFFFFFFFF)


def distinct(sets: NodeSets) -> NodeSets:
    """Drop every set that equals an earlier set of its graph."""
    row, _ = ragged_arange(sets.size)
    digest = torch.zeros(len(sets.size), dtype=torch.int64).index_add_(0, row, mix(sets.nodes))
    # By graph, then digest. Stable, so that the earliest of equal sets comes first and is kept.
    order = digest.argsort(stable=True)
    order = order[sets.graph[order].argsort(stable=True)]
    ordered = sets.take(order)
    same = torch.zeros(len(order), dtype=torch.bool)
    same[1:] = (ordered.graph[1:] == ordered.graph[:-1]) & (ordered.size[1:] == ordered.size[:-1])
    # Equal digests do not imply equal sets: compare the members with those of the previous set.
    row, place = ragged_arange(ordered.size)
    start = pointer(ordered.size)
    compared = same[row]
    row, place = row[compared], place[compared]
    differs = ordered.nodes[start[row] + place] != ordered.nodes[start[row - 1] + place]
    same[row[differs]] = False
    return sets.take(order[~same].sort().values)


def concatenate(parts: Sequence[NodeSets]) -> tuple[NodeSets, Tensor]:
    """Join the sets of several patterns, by graph, then pattern: the sets and the pattern of each `[S]`."""
    graph, size, nodes = (torch.cat([getattr(part, name) for part in parts]) for name in ("graph", "size", "nodes"))
    pattern = torch.repeat_interleave(torch.arange(len(parts)), torch.tensor([len(part.size) for part in parts]))
    order = graph.argsort(stable=True)
    return NodeSets(graph, size, nodes).take(order), pattern.index_select(0, order)
