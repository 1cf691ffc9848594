"""Explicit limits for dense graphs: random subsets that favour no node number, and a record of who was cut."""

from __future__ import annotations

import logging
from collections import Counter
from dataclasses import dataclass, field

import torch
from torch import Tensor

from graphbench.encodings.substructures.flat import FlatGraphs, ragged_arange
from graphbench.encodings.substructures.hashing import mix
from graphbench.encodings.substructures.vocabulary import Pattern

_log = logging.getLogger(__name__)


@dataclass
class Caps:
    """Limits per graph, and how many graphs met each of them.

    Why random subsets at both limits are fair. Write M_l for the partial matches of a graph after growth step l and
    K_l <= M_l for those kept, chosen uniformly. Every match grows from exactly one chain of partial matches, so with
    the weight W = prod_l M_l / K_l of the run, E[W 1{match kept}] = 1 for *every* match (the telescoping argument of
    Knuth, "Estimating the efficiency of backtrack programs", 1975). All matches kept in one run share one W: an
    average over them is fair up to the correlation of W with what was kept. Where only the last limit cuts, W is a
    constant and the subset is exactly uniform. In both cases node numbers play no part (see `FlatGraphs`).

    Args:
        max_per_pattern: matches kept per graph and pattern; None for all.
        max_partial: partial matches kept per graph after each growth step; None for all.
        cut: limit -> number of graphs that met it.
    """

    max_per_pattern: int | None
    max_partial: int | None
    cut: Counter[str] = field(default_factory=Counter)

    def limit_matches(self, graphs: FlatGraphs, pattern: Pattern, nodes: Tensor) -> Tensor:
        """At most `max_per_pattern` rows of `nodes [R, size]` per graph."""
        keep, over = _random_subset(graphs, nodes, self.max_per_pattern, salt=1)
        self.cut[pattern.name] += over
        return nodes if keep is None else nodes[keep]

    def partial_subset(self, graphs: FlatGraphs, family: str, nodes: Tensor) -> Tensor | None:
        """Which rows of `nodes [R, size]` stay when at most `max_partial` do per graph: `[kept]`, None for all."""
        keep, over = _random_subset(graphs, nodes, self.max_partial, salt=2)
        self.cut[f"unfinished {family} of {nodes.shape[1]} nodes"] += over
        return keep

    def report(self, num_graphs: int) -> None:
        """Log what was cut, as one warning; silent when nothing was."""
        cut = {name: count for name, count in self.cut.items() if count}
        if not cut:
            return
        limits = f"max_per_pattern={self.max_per_pattern}, max_partial={self.max_partial}"
        counts = ", ".join(f"{name} in {count}" for name, count in cut.items())
        _log.warning("Substructures were cut at random (%s) in some of %d graphs: %s.", limits, num_graphs, counts)


def _random_subset(graphs: FlatGraphs, nodes: Tensor, limit: int | None, salt: int) -> tuple[Tensor | None, int]:
    """Uniform subset of at most `limit` rows per graph, in unchanged order, and how many graphs had more.

    Args:
        graphs: the graphs.
        nodes: `[R, size]`, rows of one graph side by side, all rows distinct.
        limit: rows to keep per graph; None keeps all.
        salt: purpose of the draw.
    """
    if limit is None or len(nodes) <= limit:
        return None, 0
    graph = graphs.graph.index_select(0, nodes[:, 0])
    counts = torch.bincount(graph, minlength=len(graphs.seed))
    over = counts > limit
    if not bool(over.any()):
        return None, 0
    affected = over[graph]
    rows = affected.nonzero().squeeze(1)
    draw = _row_hash(graphs, nodes[rows], salt)
    # Sort by (graph, random number): the graph's place among those affected in the upper bits, 40 random bits below.
    place = over.cumsum(0) - 1
    by_chance = ((place[graph[rows]] << 40) | (draw & ((1 << 40) - 1))).argsort()
    _, rank = ragged_arange(counts[over])
    keep = ~affected
    keep[rows[by_chance[rank < limit]]] = True
    return keep.nonzero().squeeze(1), int(over.sum())


def _row_hash(graphs: FlatGraphs, nodes: Tensor, salt: int) -> Tensor:
    """Random bits `[R]` of rows of nodes `[R, size]`, the same in every chunk."""
    graph = graphs.graph[nodes[:, 0]]
    first = graphs.ptr[graph]
    total = mix(graphs.seed[graph], salt)
    for column in nodes.unbind(1):
        total = mix(column - first, total)
    return total
