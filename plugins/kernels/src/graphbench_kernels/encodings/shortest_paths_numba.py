"""Breadth-first searches from and to every node of many graphs, in loops that Numba compiles.

Only imported by `loops`, if `runs_numba` is true. Every graph is searched separately, so results do not depend on
other graphs.

Legend: the arrays of a table concatenate graphs; graph g has nodes `node_ptr[g] .. node_ptr[g + 1]`, edges and pairs
accordingly, and edges number nodes from 0.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from graphbench_kernels.running import cpu_kernel

Integers = NDArray[np.int64]
Distances = NDArray[np.int32]
Numbers = NDArray[np.float64]

#: Numbers of paths above this are scaled down; only their ratios within a level matter.
_MANY_PATHS = 2.0**900
_SMALLEST = np.finfo(np.float64).tiny


@cpu_kernel
def from_every_node(
    first: int,
    last: int,
    node_ptr: Integers,
    edge_ptr: Integers,
    pair_ptr: Integers,
    edges: Integers,
    never: int,
    distance: Distances,
) -> None:
    """Fill `distance[i, j]`, the number of edges on a shortest path i -> j, of graphs `first .. last`.

    Args:
        first: number of the first graph.
        last: end of the graphs (exclusive).
        node_ptr: start of the nodes of each graph `[G + 1]`.
        edge_ptr: start of the edges of each graph `[G + 1]`.
        pair_ptr: start of the pairs of each graph `[G + 1]`.
        edges: source and target of each edge `[E, 2]`.
        never: distance of unconnected pairs.
        distance: `[pairs]`.
    """
    for graph in range(first, last):
        n = node_ptr[graph + 1] - node_ptr[graph]
        here = edges[edge_ptr[graph] : edge_ptr[graph + 1]]
        starts, _, targets = _by_end(here, 0, n)
        queue = np.empty(n, np.int64)
        for source in range(n):
            begin = pair_ptr[graph] + source * n
            row = distance[begin : begin + n]
            row[:] = never
            row[source] = 0
            queue[0] = source
            done, reached = 0, 1
            while done < reached < n:
                node = queue[done]
                done += 1
                for place in range(starts[node], starts[node + 1]):
                    new = targets[place]
                    if row[new] == never:
                        row[new] = row[node] + 1
                        queue[reached] = new
                        reached += 1


@cpu_kernel
def to_every_node(
    first: int,
    last: int,
    node_ptr: Integers,
    edge_ptr: Integers,
    pair_ptr: Integers,
    edges: Integers,
    never: int,
    distance: Distances,
    paths: Numbers,
    steps: Integers,
) -> None:
    """Compute the same, with numbers of shortest paths, and of their first edges.

    Args:
        first: see `from_every_node`, like all arguments down to `distance`.
        last: see `from_every_node`.
        node_ptr: see `from_every_node`.
        edge_ptr: see `from_every_node`.
        pair_ptr: see `from_every_node`.
        edges: see `from_every_node`.
        never: see `from_every_node`.
        distance: see `from_every_node`.
        paths: number of shortest paths i -> j, comparable among those of one j and one distance `[pairs]`.
        steps: number of edges of each graph that start shortest paths, each counted for all j `[G]`.
    """
    for graph in range(first, last):
        n = node_ptr[graph + 1] - node_ptr[graph]
        here = edges[edge_ptr[graph] : edge_ptr[graph + 1]]
        # From each goal against the edges, since the first edge of a path is needed, not its last.
        starts, _, sources = _by_end(here, 1, n)
        queue, away, number = np.empty(n, np.int64), np.empty(n, np.int32), np.empty(n)
        begun = 0
        for goal in range(n):
            away[:] = never
            number[:] = 0.0
            away[goal], number[goal], queue[0] = 0, 1.0, goal
            done, reached = 0, 1
            while done < reached:
                level = reached
                while done < level:
                    node = queue[done]
                    done += 1
                    for place in range(starts[node], starts[node + 1]):
                        new = sources[place]
                        if away[new] == never:
                            away[new] = away[node] + 1
                            queue[reached] = new
                            reached += 1
                        leads = away[new] == away[node] + 1
                        number[new] += number[node] if leads else 0.0
                        begun += leads
                _scale_down(number, queue[level:reached])
            for node in range(n):
                pair = pair_ptr[graph] + node * n + goal
                distance[pair], paths[pair] = away[node], number[node]
        steps[graph] = begun


@cpu_kernel
def list_steps(
    first: int,
    last: int,
    node_ptr: Integers,
    edge_ptr: Integers,
    pair_ptr: Integers,
    edges: Integers,
    distance: Distances,
    paths: Numbers,
    step_ptr: Integers,
    edge: NDArray[np.int32],
    goal: NDArray[np.int32],
    weight: NDArray[np.float32],
) -> None:
    """List the edges that start shortest paths, by pair and then by number, with the share of the paths of each.

    Args:
        first: see `from_every_node`, like all arguments down to `edges`.
        last: see `from_every_node`.
        node_ptr: see `from_every_node`.
        edge_ptr: see `from_every_node`.
        pair_ptr: see `from_every_node`.
        edges: see `from_every_node`.
        distance: from `to_every_node`.
        paths: from `to_every_node`.
        step_ptr: start of the steps of each graph `[G + 1]`.
        edge: output for numbers of edges `[steps]`.
        goal: output for the final nodes of paths `[steps]`.
        weight: output for shares `[steps]`.
    """
    for graph in range(first, last):
        n, begin = node_ptr[graph + 1] - node_ptr[graph], pair_ptr[graph]
        here = edges[edge_ptr[graph] : edge_ptr[graph + 1]]
        starts, order, targets = _by_end(here, 0, n)
        chosen, shares = np.empty(len(here) + 1, np.int64), np.empty(len(here) + 1)
        written = step_ptr[graph]
        for source in range(n):
            for end in range(n):
                closer = distance[begin + source * n + end] - 1
                count, total = 0, 0.0
                for place in range(starts[source], starts[source + 1]):  # without a branch, which CPUs cannot predict
                    onward = begin + targets[place] * n + end
                    chosen[count], shares[count] = order[place], paths[onward]
                    leads = distance[onward] == closer
                    total += paths[onward] if leads else 0.0
                    count += leads
                for step in range(count):
                    edge[written], goal[written], weight[written] = chosen[step], end, shares[step] / total
                    written += 1


@cpu_kernel
def _by_end(edges: Integers, end: int, num_nodes: int) -> Any:
    """Group edges by one of their ends: start of those of each node `[n + 1]`, their numbers, their other ends."""
    starts, order = np.zeros(num_nodes + 1, np.int64), np.empty(len(edges), np.int64)
    for number in range(len(edges)):
        starts[edges[number, end] + 1] += 1
    for node in range(num_nodes):
        starts[node + 1] += starts[node]
    free, others = starts.copy(), np.empty(len(edges), np.int64)
    for number in range(len(edges)):
        node = edges[number, end]
        order[free[node]], others[free[node]] = number, edges[number, 1 - end]
        free[node] += 1
    return starts, order, others


@cpu_kernel
def _scale_down(number: Numbers, nodes: Integers) -> None:
    """Divide numbers of paths that grow too large by a power of two, which keeps ratios exact; none becomes 0."""
    largest = 0.0
    for node in nodes:
        largest = max(largest, number[node])
    if largest > _MANY_PATHS:
        for node in nodes:
            number[node] = max(number[node] / _MANY_PATHS, _SMALLEST)
