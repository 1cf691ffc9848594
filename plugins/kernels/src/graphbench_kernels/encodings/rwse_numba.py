"""Random walks along the edges of graphs, in loops that Numba compiles.

Only imported by `loops`, if `runs_numba` is true. Every graph is processed separately.

Legend: n nodes of a graph, A its adjacency, d_i the edges that start at node i, M = D^-1 A the walk.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from llvmlite import ir
from numba import types
from numba.core import cgutils
from numba.extending import intrinsic
from numpy.typing import NDArray

from graphbench_kernels.running import cpu_kernel

Integers = NDArray[np.int64]
Numbers = NDArray[np.float64]

#: Numbers of a vector, and vectors of a row of walks that are processed together.
_LANES, _VECTORS = 8, 4
_PANEL = _LANES * _VECTORS
_VECTOR = ir.VectorType(ir.DoubleType(), _LANES)


@cpu_kernel
def find_undirected(
    first: int,
    last: int,
    node_ptr: Integers,
    edge_ptr: Integers,
    edges: Integers,
    most_nodes: int,
    undirected: NDArray[np.bool_],
) -> None:
    """Determine for some graphs whether they have as many edges i -> j as j -> i, for all i and j.

    Args:
        first: number of the first graph.
        last: end of the graphs (exclusive).
        node_ptr: start of the nodes of each graph `[G + 1]`.
        edge_ptr: start of the edges of each graph `[G + 1]`.
        edges: source and target of each edge, numbered within graphs `[E, 2]`.
        most_nodes: graphs with more nodes are skipped.
        undirected: `[G]`.
    """
    for graph in range(first, last):
        n = node_ptr[graph + 1] - node_ptr[graph]
        undirected[graph] = n <= most_nodes
        if n > most_nodes:
            continue
        here = edges[edge_ptr[graph] : edge_ptr[graph + 1]]
        count = np.zeros((n, n), np.int32)
        for edge in range(len(here)):
            count[here[edge, 0], here[edge, 1]] += 1
        for edge in range(len(here)):
            if count[here[edge, 0], here[edge, 1]] != count[here[edge, 1], here[edge, 0]]:
                undirected[graph] = False
                break


@cpu_kernel
def walk_along_edges(
    first: int,
    last: int,
    chosen: Integers,
    undirected: NDArray[np.bool_],
    node_ptr: Integers,
    edge_ptr: Integers,
    edges: Integers,
    rwse: NDArray[np.float32],
) -> None:
    """Fill `rwse[i, k - 1]` with `(M^k)_ii` of some graphs: columns of `M^a = M M^(a-1)`, a sum over edges per row.

    Undirected graphs need half as many steps. A walk and its reverse have probabilities in the ratio of the degrees at
    their ends, `d_i M^a_ij = d_j M^a_ji`, so columns of two powers give the return probability after both:

        (M^(a+b))_jj = sum_i M^a_ji M^b_ij = sum_i d_i M^a_ij M^b_ij / d_j,    b = a - 1 and b = a

    Args:
        first: number of the first item of `chosen`.
        last: end of the items (exclusive).
        chosen: numbers of graphs.
        undirected: see `find_undirected`.
        node_ptr: start of the nodes of each graph `[G + 1]`.
        edge_ptr: start of the edges of each graph `[G + 1]`.
        edges: source and target of each edge, numbered within graphs `[E, 2]`.
        rwse: `[N, num_steps]`.
    """
    num_steps, sums = rwse.shape[1], np.empty((2, _PANEL))  # of the equation, over i
    for item in range(first, last):
        graph = chosen[item]
        start, n = node_ptr[graph], node_ptr[graph + 1] - node_ptr[graph]
        begins, targets = _by_source(edges[edge_ptr[graph] : edge_ptr[graph + 1]], n)
        before, power = np.empty((n, _PANEL)), np.empty((n, _PANEL))
        powers_per_step = 2 if undirected[graph] else 1  # powers whose diagonals a step gives
        # Columns of M^a depend only on those of M^(a-1): a panel of them goes through all steps in the cache.
        for left in range(0, n, _PANEL):
            right = min(left + _PANEL, n)
            before[:] = 0.0
            for node in range(left, right):
                before[node, node - left] = 1.0
            for step in range(0, num_steps, powers_per_step):
                sums[:] = 0.0
                for node in range(n):
                    begin, end = begins[node], begins[node + 1]
                    _walk_on(before, targets, begin, end, node, power, sums)  # type: ignore[call-arg]
                for node in range(left, right):
                    degree = max(begins[node + 1] - begins[node], 1)
                    if powers_per_step == 1:
                        rwse[start + node, step] = power[node, node - left]
                    for late in range(min(2, num_steps - step) if powers_per_step == 2 else 0):
                        rwse[start + node, step + late] = sums[late, node - left] / degree
                before, power = power, before


@cpu_kernel
def _by_source(edges: Integers, num_nodes: int) -> Any:
    """Sort edges by source: first edge of each node `[n + 1]`, and the targets in that order."""
    begins, targets = np.zeros(num_nodes + 1, np.int64), np.empty(len(edges), np.int64)
    for edge in range(len(edges)):
        begins[edges[edge, 0] + 1] += 1
    for node in range(num_nodes):
        begins[node + 1] += begins[node]
    free = begins.copy()
    for edge in range(len(edges)):
        source = edges[edge, 0]
        targets[free[source]] = edges[edge, 1]
        free[source] += 1
    return begins, targets


@intrinsic
def _walk_on(
    typing_context: Any, before: Any, targets: Any, begin: Any, end: Any, node: Any, power: Any, sums: Any
) -> Any:
    """Write row i of M P, P = `before [n, _PANEL]`, to `power[i]`: the mean of the rows of P that edges lead to.

    Adds `d_i (M P)_ic P_ic` to `sums[0, c]` and `d_i (M P)_ic^2` to `sums[1, c]`. Uses custom vector instructions: in
    loops over edges and columns Numba keeps the sum of a row in memory, which takes twice the time.
    """

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        begin, end, node = arguments[2:5]
        integer, number = begin.type, ir.DoubleType()

        def start_of(argument: int) -> Any:
            return context.make_array(signature.args[argument])(context, builder, arguments[argument]).data

        def row(start: Any, of: Any) -> list[Any]:
            first = builder.bitcast(builder.gep(start, [builder.mul(of, integer(_PANEL))]), _VECTOR.as_pointer())
            return [builder.gep(first, [integer(part)]) for part in range(_VECTORS)]

        def load(place: Any) -> Any:
            return builder.load(place, align=8)

        def everywhere(value: Any) -> Any:
            vector = _VECTOR(ir.Undefined)
            for lane in range(_LANES):
                vector = builder.insert_element(vector, value, ir.IntType(32)(lane))
            return vector

        from_rows, numbers, to_rows, of_sums = (start_of(argument) for argument in (0, 1, 5, 6))
        totals = [cgutils.alloca_once(builder, _VECTOR) for _ in range(_VECTORS)]
        for total in totals:
            builder.store(_VECTOR([0.0] * _LANES), total)
        with cgutils.for_range_slice(builder, begin, end, integer(1)) as (edge, _):
            target = builder.load(builder.gep(numbers, [edge]))
            for total, part in zip(totals, row(from_rows, target), strict=True):
                builder.store(builder.fadd(builder.load(total), load(part)), total)
        degree = builder.sitofp(builder.sub(end, begin), number)
        without = builder.fcmp_ordered("==", degree, number(0.0))
        shares = everywhere(builder.fdiv(number(1.0), builder.select(without, number(1.0), degree)))
        places = (row(from_rows, node), row(to_rows, node), row(of_sums, integer(0)), row(of_sums, integer(1)))
        for total, values, to, odd, even in zip(totals, *places, strict=True):
            added = builder.load(total)  # d_i times the mean
            mean = builder.fmul(added, shares)
            builder.store(mean, to, align=8)
            for held, factor in ((odd, load(values)), (even, mean)):
                builder.store(builder.fadd(load(held), builder.fmul(added, factor)), held, align=8)
        return context.get_dummy_value()

    integers = (types.int64, types.int64, types.int64)
    return types.void(before, targets, *integers, power, sums), generate
