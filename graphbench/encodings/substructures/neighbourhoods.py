"""Neighbourhoods of every node: k-hop balls and the nodes met by a random walk."""

from __future__ import annotations

import torch
from torch import Tensor

from graphbench.encodings.substructures.flat import FlatGraphs, ragged_arange
from graphbench.encodings.substructures.hashing import below, mix
from graphbench.encodings.substructures.sets import NodeSets


def hop_neighbourhoods(graphs: FlatGraphs, radius: int, max_size: int | None = None) -> tuple[NodeSets, int]:
    """Nodes within `radius` edges of each node, the node included: one set per node.

    Args:
        graphs: the graphs.
        radius: edges.
        max_size: larger balls are cut to this many nodes, nearest first and ties at random, so they stay connected.

    Returns:
        the sets, and in how many graphs a ball was cut.
    """
    total = graphs.num_nodes
    centre, node = torch.arange(total), torch.arange(total)
    distance = torch.zeros(total, dtype=torch.int64)
    for step in range(1, radius + 1):
        row, reached = graphs.expand(node)
        keys = torch.cat((centre, centre.index_select(0, row))) * total + torch.cat((node, reached))
        steps = torch.cat((distance, torch.full_like(reached, step)))
        # The smallest distance of each pair: distances in the lowest 8 bits, one pass over the sorted keys.
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
    kept = order[ragged_arange(size)[1] < max_size].sort().values
    cut = int(torch.unique(graphs.graph[size > max_size]).numel())
    return NodeSets(graphs.graph, size.clamp(max=max_size), node[kept]), cut


def walk_neighbourhoods(graphs: FlatGraphs, steps: int) -> NodeSets:
    """Distinct nodes of one uniform random walk from each node, the start included: one set per node.

    The walk goes to a uniformly random neighbour at each step (node2vec with p = q = 1); at an isolated node it stays.
    """
    here = torch.arange(graphs.num_nodes)
    draw = mix(here - graphs.ptr[graphs.graph], _purpose(graphs, here, 4))
    visited, degree = [here], graphs.degree
    neighbour = torch.cat((graphs.neighbour, here[:1]))  # one more, so that isolated nodes have something to look up
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
    """Random bits of the graph of each node `[R]`, for the purpose `salt`."""
    return mix(graphs.seed, salt)[graphs.graph[nodes]]
