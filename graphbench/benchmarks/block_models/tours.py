"""Find provably shortest tours through points of the plane with SciPy's linear and integer programming (HiGHS).

The linear program has a variable for each pair of points, two edges at every point, and a cut `x(delta(S)) >= 2` for
every set S of points that its solution leaves less than twice (Dantzig, Fulkerson and Johnson, "Solution of a
large-scale traveling-salesman problem", 1954). Its value L is at most the length of any tour, and a tour through an
edge of reduced cost r is at least `L + r` long. The integer program therefore needs only the edges with r at most
`U - L`, where U is the length of any tour, such as one found first among fewer edges.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from scipy import sparse
from scipy.optimize import Bounds, LinearConstraint, linprog, milp
from scipy.sparse.csgraph import breadth_first_order, connected_components, maximum_flow
from scipy.spatial import KDTree

from graphbench.errors import BadInput

#: Neighbours per point whose edges start the linear program; other edges enter by their reduced costs.
_NEIGHBOURS = 8
_TINY = 1e-6  # treated as zero in lengths and shares of an edge; HiGHS works to 1e-7
#: Reduced costs of the first integer program, as a share of the bound; random points have gaps of this size.
_FIRST_GAP = 4e-3
_SCALE = 1 << 20  # converts shares of an edge to integer capacities


def shortest_tour(points: np.ndarray) -> np.ndarray:
    """Return the order of the points along a shortest closed tour `[n]`, starting at point 0.

    Lengths are Euclidean, compared to 1e-6. The time grows quickly with the number of points.

    Examples:
        >>> shortest_tour(np.array([[0.0, 0.0], [1.0, 1.0], [1.0, 0.0], [0.0, 1.0]])).tolist()
        [0, 2, 1, 3]
    """
    points = np.asarray(points, dtype=np.float64)
    if points.ndim != 2 or len(points) < 3 or not np.isfinite(points).all():
        raise BadInput(f"A tour needs three or more finite points [n, 2], but got an array {list(points.shape)}.")
    problem = _Problem(points)
    bound, reduced = problem.relax()
    gap, tour = _FIRST_GAP * bound, None
    while tour is None:  # first find a nearly shortest tour
        tour = problem.solve(np.flatnonzero(reduced <= gap + _TINY), _FIRST_GAP)
        gap *= 2
    gap = float(problem.lengths[tour].sum()) - bound
    shortest = problem.solve(np.flatnonzero(reduced <= gap + _TINY), 0.0)
    return _in_order(problem.ends[tour if shortest is None else shortest], len(points))


class _Problem:
    """Store all pairs of points, and the tour inequalities that solutions of linear programs have violated."""

    def __init__(self, points: np.ndarray) -> None:
        self.points = points
        self.ends = np.stack(np.triu_indices(len(points), 1), axis=1)
        self.lengths = np.linalg.norm(points[self.ends[:, 0]] - points[self.ends[:, 1]], axis=1)
        self.cuts: list[np.ndarray] = []
        self.least: list[float] = []

    def relax(self) -> tuple[float, np.ndarray]:
        """Return the value of the linear program, and the reduced cost of every pair `[pairs]`."""
        active = self._near()
        while True:
            result = linprog(
                self.lengths[active],
                A_ub=-self._cut_rows(active) if self.cuts else None,
                b_ub=-np.array(self.least) if self.cuts else None,
                A_eq=self._degree_rows(active),
                b_eq=np.full(len(self.points), 2.0),
                bounds=(0, 1),
                method="highs-ds",
            )
            if result.status == 2:  # infeasible on these pairs, since a cut may have none of them
                active = np.arange(len(self.ends))
                continue
            if self._separate(active, result.x):
                continue
            reduced = self._reduced(result)
            missing = np.setdiff1d(np.flatnonzero(reduced < -_TINY), active)
            if not missing.size:
                # By complementary slackness they are 0 up to rounding, and the integer program must include them.
                reduced[active[result.x > _TINY]] = 0.0
                return float(result.fun), reduced
            active = np.union1d(active, missing)

    def solve(self, chosen: np.ndarray, tolerance: float) -> np.ndarray | None:
        """Return the rows of a tour among some pairs, shortest up to a relative tolerance; None if there is none."""
        n = len(self.points)
        while True:
            rows = sparse.vstack([self._degree_rows(chosen), self._cut_rows(chosen)])
            result = milp(
                self.lengths[chosen],
                integrality=np.ones(len(chosen)),
                bounds=Bounds(0, 1),
                constraints=LinearConstraint(rows, [2.0] * n + self.least, [2.0] * n + [np.inf] * len(self.cuts)),
                options={"mip_rel_gap": tolerance},
            )
            if result.x is None:
                return None
            tour = chosen[result.x > 0.5]
            if not self._cut_parts(tour):
                return tour

    def _near(self) -> np.ndarray:
        """Return the rows of the pairs of near neighbours."""
        n = len(self.points)
        near = KDTree(self.points).query(self.points, min(n, _NEIGHBOURS + 1))[1]
        pairs = np.stack([np.repeat(np.arange(n), near.shape[1]), near.reshape(-1)], axis=1)
        low, high = np.sort(pairs[pairs[:, 0] != pairs[:, 1]], axis=1).T
        return np.unique(low * (2 * n - low - 1) // 2 + high - low - 1)

    def _degree_rows(self, chosen: np.ndarray) -> sparse.csr_array:
        numbers = np.tile(np.arange(len(chosen)), 2)
        entries = (self.ends[chosen].T.reshape(-1), numbers)
        return sparse.csr_array((np.ones(len(numbers)), entries), shape=(len(self.points), len(chosen)))

    def _cut_rows(self, chosen: np.ndarray) -> sparse.csr_array:
        if not self.cuts:
            return sparse.csr_array((0, len(chosen)))
        return sparse.csr_array(np.stack([cut[chosen] for cut in self.cuts]).astype(np.float64))

    def _reduced(self, result: Any) -> np.ndarray:
        """Return the reduced cost of every pair from the dual values of points and cuts."""
        duals = result.eqlin.marginals
        reduced = self.lengths - duals[self.ends[:, 0]] - duals[self.ends[:, 1]]
        for cut, value in zip(self.cuts, result.ineqlin.marginals if self.cuts else (), strict=True):
            if value:
                reduced += value * cut
        return np.asarray(reduced)

    # -- inequalities --------------------------------------------------------------------------------------------

    def _leaving(self, inside: np.ndarray) -> np.ndarray:
        """Return the pairs with one end in a set of points `[pairs]`."""
        return np.asarray(inside[self.ends[:, 0]] != inside[self.ends[:, 1]])

    def _add(self, cut: np.ndarray, least: float) -> None:
        self.cuts.append(cut.astype(np.int8))
        self.least.append(least)

    def _cut_parts(self, rows: np.ndarray) -> bool:
        """Add cuts if the pairs do not connect all points; return whether any were added."""
        count, part = self._parts(rows)
        for number in range(count if count > 1 else 0):
            self._add(self._leaving(part == number), 2.0)
        return count > 1

    def _parts(self, rows: np.ndarray) -> tuple[int, np.ndarray]:
        n = len(self.points)
        graph = sparse.csr_array((np.ones(len(rows)), self.ends[rows].T), shape=(n, n))
        return connected_components(graph, directed=False)  # type: ignore[no-any-return]

    def _separate(self, active: np.ndarray, x: np.ndarray) -> bool:
        """Add inequalities that a solution violates; return whether there were any."""
        used = x > _TINY
        if self._cut_parts(active[used]):
            return True
        before = len(self.cuts)
        self._cut_blossoms(active, x)
        if len(self.cuts) == before:
            self._cut_flows(active[used], x[used])
        return len(self.cuts) > before

    def _cut_blossoms(self, active: np.ndarray, x: np.ndarray) -> None:
        """Add `x(delta(H) - T) + |T| - x(T) >= 1` with |T| odd (Edmonds 1965), H joined by shares of edges."""
        shares, whole = (x > _TINY) & (x < 1 - _TINY), active[x >= 1 - _TINY]
        values = np.zeros(len(self.lengths))
        values[active] = x
        count, part = self._parts(active[shares])
        for number in np.flatnonzero(np.bincount(part, minlength=count) > 2):
            leaving = self._leaving(part == number)
            teeth = whole[leaving[whole]]
            if len(teeth) % 2 and values[leaving].sum() - 2 * values[teeth].sum() + len(teeth) < 1 - 1e-4:
                cut = leaving.astype(np.int8)
                cut[teeth] = -1
                self._add(cut, 1.0 - len(teeth))

    def _cut_flows(self, used: np.ndarray, x: np.ndarray) -> None:
        """Add `x(delta(S)) >= 2` for sets S on the side of point 0 of a small cut."""
        n = len(self.points)
        low, high = self.ends[used].T
        capacity = np.round(x * _SCALE).astype(np.int32)  # SciPy's maximum flow accepts only integers
        both = (np.concatenate([low, high]), np.concatenate([high, low]))
        graph = sparse.csr_array((np.concatenate([capacity, capacity]), both), shape=(n, n))
        sides: list[np.ndarray] = []
        for sink in range(1, n):
            # Skip a sink that is already cut off by an earlier side, which saves most of the flows.
            if any(not inside[sink] for inside in sides):
                continue
            flow = maximum_flow(graph, 0, sink)
            if flow.flow_value < (2 - 1e-3) * _SCALE:
                residual = graph - flow.flow
                residual.data[residual.data < 0] = 0
                residual.eliminate_zeros()
                inside = np.zeros(n, dtype=bool)
                inside[breadth_first_order(residual, 0, return_predecessors=False)] = True
                sides.append(inside)
                self._add(self._leaving(inside), 2.0)


def _in_order(ends: np.ndarray, n: int) -> np.ndarray:
    """Return the points of a closed tour in order, from 0 towards the smaller of its neighbours."""
    near: list[list[int]] = [[] for _ in range(n)]
    for low, high in ends.tolist():
        near[low].append(high)
        near[high].append(low)
    order = [0, min(near[0])]
    while len(order) < n:
        one, other = near[order[-1]]
        order.append(other if one == order[-2] else one)
    return np.array(order)
