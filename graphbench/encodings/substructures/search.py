"""Search for substructures of many graphs at once: induced paths, chordless cycles, induced stars and neighbourhoods.

All searches grow partial matches one node at a time, with every partial match of every graph as one row of a tensor,
and use one bit of a precomputed set to test whether a new node touches nodes that it must not. Limits (`Caps`) bound
dense graphs by random subsets that favour no node number, and count the graphs that they cut.
"""

from __future__ import annotations

import logging
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field

import torch
from torch import Tensor

from graphbench.encodings.substructures.flat import FlatGraphs, NodeSets, ragged_arange
from graphbench.encodings.substructures.hashing import below, mix
from graphbench.encodings.substructures.vocabulary import Kind, Pattern

logger = logging.getLogger(__name__)

Matches = dict[Pattern, Tensor]


@dataclass
class Caps:
    """Limits per graph, and the number of graphs that reached each of them.

    Random subsets at both limits are fair. Write M_l for the partial matches of a graph after growth step l and
    K_l <= M_l for those kept, chosen uniformly. Every match grows from exactly one chain of partial matches, so with
    the weight W = prod_l M_l / K_l of the run, E[W 1{match kept}] = 1 for *every* match (the telescoping argument of
    Knuth, "Estimating the efficiency of backtrack programs", 1975). All matches kept in one run share one W: an
    average over them is fair up to the correlation of W with the kept matches. If only the last limit cuts, W is
    constant and the subset is exactly uniform. In both cases node numbers have no influence (see `FlatGraphs`).

    Args:
        max_per_pattern: matches kept per graph and pattern; None for all.
        max_partial: partial matches kept per graph after each growth step; None for all.
        cut: limit -> number of graphs that reached it.
    """

    max_per_pattern: int | None
    max_partial: int | None
    cut: Counter[str] = field(default_factory=Counter)

    def limit_matches(self, graphs: FlatGraphs, pattern: Pattern, nodes: Tensor) -> Tensor:
        """Keep at most `max_per_pattern` rows of `nodes [R, size]` per graph."""
        keep, over = _random_subset(graphs, nodes, self.max_per_pattern, salt=1)
        self.cut[pattern.name] += over
        return nodes if keep is None else nodes[keep]

    def partial_subset(self, graphs: FlatGraphs, family: str, nodes: Tensor) -> Tensor | None:
        """Choose at most `max_partial` rows of `nodes [R, size]` per graph; return their numbers, None for all."""
        keep, over = _random_subset(graphs, nodes, self.max_partial, salt=2)
        self.cut[f"unfinished {family} of {nodes.shape[1]} nodes"] += over
        return keep

    def report(self, num_graphs: int) -> None:
        """Log one warning about everything that was cut, if anything."""
        cut = {name: count for name, count in self.cut.items() if count}
        if not cut:
            return
        limits = f"max_per_pattern={self.max_per_pattern}, max_partial={self.max_partial}"
        counts = ", ".join(f"{name} in {count}" for name, count in cut.items())
        logger.warning("Substructures were cut at random (%s) in some of %d graphs: %s.", limits, num_graphs, counts)


def _random_subset(graphs: FlatGraphs, nodes: Tensor, limit: int | None, salt: int) -> tuple[Tensor | None, int]:
    """Draw at most `limit` rows per graph uniformly, in unchanged order; also count the graphs that had more.

    Rows `nodes [R, size]` of one graph are consecutive, and all are distinct; None keeps all. `salt` identifies the
    purpose of the draw.
    """
    if limit is None or len(nodes) <= limit:
        return None, 0
    graph = graphs.graph.index_select(0, nodes[:, 0])
    counts = torch.bincount(graph, minlength=len(graphs.seed))
    over = counts > limit
    if not bool(over.any()):
        return None, 0
    # Only graphs over the limit need hashes and a sort.
    affected = over[graph]
    rows = affected.nonzero().squeeze(1)
    draw = _row_hash(graphs, nodes[rows], salt)
    # Sort by (graph, random number): the graph's place among the affected ones in the upper bits, 40 random bits below.
    place = over.cumsum(0) - 1
    by_chance = ((place[graph[rows]] << 40) | (draw & ((1 << 40) - 1))).argsort()
    _, rank = ragged_arange(counts[over])
    keep = ~affected
    keep[rows[by_chance[rank < limit]]] = True
    return keep.nonzero().squeeze(1), int(over.sum())


def _row_hash(graphs: FlatGraphs, nodes: Tensor, salt: int) -> Tensor:
    """Return random bits `[R]` for rows of nodes `[R, size]`, the same in every chunk."""
    graph = graphs.graph[nodes[:, 0]]
    first = graphs.ptr[graph]
    total = mix(graphs.seed[graph], salt)
    for column in nodes.unbind(1):
        total = mix(column - first, total)
    return total


def paths_and_cycles(graphs: FlatGraphs, paths: Sequence[int], cycles: Sequence[int], caps: Caps) -> Matches:
    """Find induced paths and chordless cycles, each once.

    A row is an induced path v_1 .. v_k, found from both of its ends. A neighbour w of v_k that touches none of v_2 ..
    v_{k-1} extends the path if it does not touch v_1 either; otherwise it closes a chordless cycle of k + 1 nodes.
    The result has paths with v_1 < v_k, and cycles in which v_1 is the smallest node and v_2 < w. `paths` and `cycles`
    are the wanted numbers of nodes, from 2 and 3 up.

    Returns:
        Pattern -> nodes of its matches `[R, size]`.
    """
    matches: Matches = {}
    longest_path, longest = max(paths, default=0), max((*paths, *cycles), default=0)
    source = torch.repeat_interleave(torch.arange(graphs.num_nodes), graphs.degree)
    nodes = torch.stack((source, graphs.neighbour), 1)
    # Nodes that the next one must not be: v_1, v_2, or a neighbour of v_2 .. v_{k-1} (which includes the others).
    blocked = graphs.bit_of(nodes[:, 0]) | graphs.bit_of(nodes[:, 1])
    for size in range(2, longest + 1):
        if size in paths:
            pattern = Pattern(Kind.PATH, size)
            matches[pattern] = caps.limit_matches(graphs, pattern, nodes[nodes[:, 0] < nodes[:, -1]])
        # No wanted path or cycle is longer.
        if size == longest:
            break
        keep = caps.partial_subset(graphs, "paths", nodes)
        if keep is not None:
            nodes, blocked = nodes[keep], blocked[keep]
        row, new = graphs.expand(nodes[:, -1])
        row, new = _select(~graphs.has_bit(blocked, row, new), row, new)
        first = nodes[:, 0].index_select(0, row)
        closes = graphs.has_bit(graphs.bits, first, new)
        if size + 1 in cycles:
            pattern = Pattern(Kind.CYCLE, size + 1)
            closed = _cycles_once(nodes, *_select(closes, row, new))
            matches[pattern] = caps.limit_matches(graphs, pattern, closed)
        # From the longest wanted path on, one direction is enough: cycles grow from their smallest node.
        row, new = _select(~closes if size + 1 < longest_path else ~closes & (new > first), row, new)
        blocked = (blocked | graphs.bits.index_select(0, nodes[:, -1])).index_select(0, row)
        nodes = torch.cat((nodes.index_select(0, row), new[:, None]), 1)
    return matches


def stars(graphs: FlatGraphs, leaves: Sequence[int], caps: Caps) -> Matches:
    """Find induced stars: a centre and pairwise non-adjacent neighbours of it.

    A row is a centre with leaves l_1 < l_2 < ..; it grows by every later neighbour of the centre that no leaf touches.
    The result is pattern -> centre and leaves of its matches `[R, 1 + leaves]`.
    """
    matches: Matches = {}
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
        row, new, place = _select(~graphs.has_bit(blocked, row, new), row, new, place)
        nodes = torch.cat((nodes.index_select(0, row), new[:, None]), 1)
        blocked = blocked.index_select(0, row) | graphs.bits.index_select(0, new)
        if size in leaves:
            pattern = Pattern(Kind.STAR, size)
            matches[pattern] = caps.limit_matches(graphs, pattern, nodes)
    return matches


def _select(mask: Tensor, *tensors: Tensor) -> tuple[Tensor, ...]:
    """Return the rows of each tensor where `mask` is True."""
    index = mask.nonzero().squeeze(1)
    return tuple(tensor.index_select(0, index) for tensor in tensors)


def _cycles_once(nodes: Tensor, row: Tensor, new: Tensor) -> Tensor:
    """Keep one row per cycle, the one that starts at the smallest node and has v_2 < w: `[cycles, size]`."""
    cycle = torch.cat((nodes.index_select(0, row), new[:, None]), 1)
    smallest = cycle[:, 0] == cycle.amin(1) if len(cycle) else torch.ones(0, dtype=torch.bool)
    return cycle[smallest & (cycle[:, 1] < new)]


def hop_neighbourhoods(graphs: FlatGraphs, radius: int, max_size: int | None = None) -> tuple[NodeSets, int]:
    """Find the nodes within `radius` edges of each node, including the node itself: one set per node.

    Larger balls are cut to `max_size` nodes, nearest first and ties at random, so they stay connected.

    Returns:
        The sets, and the number of graphs in which a ball was cut.
    """
    total = graphs.num_nodes
    centre, node = torch.arange(total), torch.arange(total)
    distance = torch.zeros(total, dtype=torch.int64)
    for step in range(1, radius + 1):
        row, reached = graphs.expand(node)
        keys = torch.cat((centre, centre.index_select(0, row))) * total + torch.cat((node, reached))
        steps = torch.cat((distance, torch.full_like(reached, step)))
        # The smallest distance of each pair: distances are the lowest 8 bits, so one pass over sorted keys finds it.
        keys = (keys << 8 | steps).unique()
        first = torch.ones_like(keys, dtype=torch.bool)
        first[1:] = (keys[1:] >> 8) != (keys[:-1] >> 8)
        keys = keys[first]
        distance, keys = keys & 255, keys >> 8
        centre, node = keys // max(total, 1), keys % max(total, 1)
    size = torch.bincount(centre, minlength=total)
    if max_size is None or not bool((size > max_size).any()):
        return NodeSets(graphs.graph, size, node), 0
    first_node = graphs.ptr[graphs.graph[centre]]
    chance = mix(node - first_node, mix(centre - first_node, _purpose(graphs, centre, 3)))
    order = ((distance << 40) | (chance & ((1 << 40) - 1))).argsort()
    order = order[centre[order].argsort(stable=True)]
    keep = order[ragged_arange(size)[1] < max_size].sort().values
    cut = int(torch.unique(graphs.graph[size > max_size]).numel())
    return NodeSets(graphs.graph, size.clamp(max=max_size), node[keep]), cut


def walk_neighbourhoods(graphs: FlatGraphs, steps: int) -> NodeSets:
    """Find the distinct nodes of one uniform random walk from each node, including the start: one set per node.

    Each step goes to a uniformly random neighbour (node2vec with p = q = 1); at an isolated node the walk stays.
    """
    here = torch.arange(graphs.num_nodes)
    draw = mix(here - graphs.ptr[graphs.graph], _purpose(graphs, here, 4))
    visited, degree = [here], graphs.degree
    neighbour = torch.cat((graphs.neighbour, here[:1]))  # one more entry, so that lookups of isolated nodes are valid
    for step in range(steps):
        choices = degree.index_select(0, here)
        pick = below(mix(draw, step), choices.clamp(min=1))
        here = torch.where(choices > 0, neighbour[graphs.start[here] + pick], here)
        visited.append(here)
    rows = torch.stack(visited, 1).sort(1).values
    new = torch.ones_like(rows, dtype=torch.bool)
    new[:, 1:] = rows[:, 1:] != rows[:, :-1]
    return NodeSets(graphs.graph, new.sum(1), rows[new])


def _purpose(graphs: FlatGraphs, nodes: Tensor, salt: int) -> Tensor:
    """Return random bits of the graph of each node `[R]`, for the purpose `salt`."""
    return mix(graphs.seed, salt)[graphs.graph[nodes]]
