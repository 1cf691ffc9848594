"""Induced paths, chordless cycles and induced stars of many graphs at once.

All searches grow partial matches one node at a time, every partial match of every graph as one row of a tensor, and
test a new node against the nodes it must not touch with one bit of a precomputed set.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from graphbench.encodings.substructures.caps import Caps
from graphbench.encodings.substructures.flat import FlatGraphs
from graphbench.encodings.substructures.vocabulary import Kind, Pattern

Matches = dict[Pattern, Tensor]


def paths_and_cycles(graphs: FlatGraphs, paths: Sequence[int], cycles: Sequence[int], caps: Caps) -> Matches:
    """Induced paths and chordless cycles, each once.

    A row is an induced path v_1 .. v_k, found from both of its ends. A neighbour w of v_k that touches none of
    v_2 .. v_{k-1} prolongs the path when it does not touch v_1 either, and else closes a chordless cycle of k + 1
    nodes. Kept are paths with v_1 < v_k, and cycles where v_1 is the smallest node and v_2 < w.

    Args:
        graphs: the graphs.
        paths: nodes of the wanted paths, each at least 2.
        cycles: nodes of the wanted cycles, each at least 3.
        caps: limits.

    Returns:
        pattern -> nodes of its matches `[R, size]`.
    """
    found: Matches = {}
    longest_path, longest = max(paths, default=0), max((*paths, *cycles), default=0)
    source = torch.repeat_interleave(torch.arange(graphs.num_nodes), graphs.degree)
    nodes = torch.stack((source, graphs.neighbour), 1)
    # What the next node must not be: v_1, v_2, or a neighbour of v_2 .. v_{k-1} (which are all other nodes, too).
    blocked = graphs.bit_of(nodes[:, 0]) | graphs.bit_of(nodes[:, 1])
    for size in range(2, longest + 1):
        if size in paths:
            pattern = Pattern(Kind.PATH, size)
            found[pattern] = caps.limit_matches(graphs, pattern, nodes[nodes[:, 0] < nodes[:, -1]])
        if size == longest:
            break
        keep = caps.partial_subset(graphs, "paths", nodes)
        if keep is not None:
            nodes, blocked = nodes[keep], blocked[keep]
        row, new = graphs.expand(nodes[:, -1])
        row, new = _where(~graphs.has_bit(blocked, row, new), row, new)
        first = nodes[:, 0].index_select(0, row)
        closes = graphs.has_bit(graphs.bits, first, new)
        if size + 1 in cycles:
            pattern = Pattern(Kind.CYCLE, size + 1)
            closed = _cycles_once(nodes, *_where(closes, row, new))
            found[pattern] = caps.limit_matches(graphs, pattern, closed)
        # From the longest wanted path on, one direction is enough: cycles are grown from their smallest node.
        row, new = _where(~closes if size + 1 < longest_path else ~closes & (new > first), row, new)
        blocked = (blocked | graphs.bits.index_select(0, nodes[:, -1])).index_select(0, row)
        nodes = torch.cat((nodes.index_select(0, row), new[:, None]), 1)
    return found


def stars(graphs: FlatGraphs, leaves: Sequence[int], caps: Caps) -> Matches:
    """Induced stars: a centre and neighbours of it that are pairwise non-adjacent.

    A row is a centre with leaves l_1 < l_2 < ..; it grows by every later neighbour of the centre that no leaf touches.

    Args:
        graphs: the graphs.
        leaves: leaves of the wanted stars, each at least 2.
        caps: limits.

    Returns:
        pattern -> centre and leaves of its matches `[R, 1 + leaves]`.
    """
    found: Matches = {}
    centre = torch.repeat_interleave(torch.arange(graphs.num_nodes), graphs.degree)
    nodes = torch.stack((centre, graphs.neighbour), 1)
    place = torch.arange(len(centre))
    blocked = graphs.bits.index_select(0, graphs.neighbour)
    for size in range(2, max(leaves, default=1) + 1):
        keep = caps.partial_subset(graphs, "stars", nodes)
        if keep is not None:
            nodes, place, blocked = nodes[keep], place[keep], blocked[keep]
        row, place = graphs.later_neighbours(nodes[:, 0], place)
        new = graphs.neighbour.index_select(0, place)
        row, new, place = _where(~graphs.has_bit(blocked, row, new), row, new, place)
        nodes = torch.cat((nodes.index_select(0, row), new[:, None]), 1)
        blocked = blocked.index_select(0, row) | graphs.bits.index_select(0, new)
        if size in leaves:
            pattern = Pattern(Kind.STAR, size)
            found[pattern] = caps.limit_matches(graphs, pattern, nodes)
    return found


def _where(mask: Tensor, *tensors: Tensor) -> tuple[Tensor, ...]:
    """The rows of each tensor where `mask` holds."""
    index = mask.nonzero().squeeze(1)
    return tuple(tensor.index_select(0, index) for tensor in tensors)


def _cycles_once(nodes: Tensor, row: Tensor, new: Tensor) -> Tensor:
    """Of all the ways to write each cycle, the one that starts at its smallest node: `[cycles, size]`."""
    cycle = torch.cat((nodes.index_select(0, row), new[:, None]), 1)
    smallest = cycle[:, 0] == cycle.amin(1) if len(cycle) else torch.ones(0, dtype=torch.bool)
    return cycle[smallest & (cycle[:, 1] < new)]
