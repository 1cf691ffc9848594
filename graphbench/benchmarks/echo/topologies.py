"""Sample graphs of a given diameter from ECHO's six families, and measure distances in them."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
from scipy.sparse import coo_array
from scipy.sparse.csgraph import connected_components

#: Diameters of the graphs, smallest and largest.
DIAMETERS = (17, 40)
SHORTEST = 8  # diameter that graphs of every family can have, even grids with eight rows
_SHORTCUT = 0.2  # probability that a node of a line has a further edge
_REACH = (2, 6)  # how far along the line that edge leads
_REMOVED = 0.2  # probability that an edge of a grid is removed
_EXPONENT = 3  # exponent of the degree in the preferential attachment of trees
# chosen here, see `ECHOSynth`
_ROWS = (3, 8)  # rows of a grid
_NODES = (1.5, 3.0)  # nodes of a caterpillar, lobster or tree, in diameters


def sample_topology(family: str, diameter: int, rng: np.random.Generator) -> tuple[int, np.ndarray]:
    """Sample a connected graph of one of `FAMILIES` that has exactly this diameter, at least `SHORTEST`.

    Returns:
        The number of nodes n, and each edge once `[m, 2]`; nodes are numbered at random.

    Examples:
        >>> nodes, edges = sample_topology("ladder", 17, np.random.default_rng(0))
        >>> nodes, len(edges), int(measure(nodes, edges)[0].max())
        (34, 49, 17)
    """
    nodes, edges = _SAMPLERS[family](diameter, rng)
    return nodes, rng.permutation(nodes)[edges]


def measure(nodes: int, edges: np.ndarray, source: int = 0) -> tuple[np.ndarray, np.ndarray]:
    """Compute eccentricities, and distances from `source`, in a graph given by edges `[m, 2]`, each listed once.

    After t steps, row v of a bit matrix has the nodes within t hops of v. The eccentricity of v is the first t for
    which its row is full, and its distance from the source is the first t for which it has the source's bit.

    Returns:
        Eccentricities and distances in hops, int64 `[n]` each; -1 if a node is not reached.

    Examples:
        >>> measure(3, np.array([[0, 1], [1, 2]]), source=2)
        (array([2, 1, 2]), array([2, 1, 0]))
    """
    node = np.arange(nodes)
    begin = np.concatenate([node, edges[:, 0], edges[:, 1]])
    end = np.concatenate([node, edges[:, 1], edges[:, 0]])
    end = end[np.argsort(begin, kind="stable")]
    first = np.searchsorted(np.sort(begin), node)
    words = -(-nodes // 64)
    reached = np.zeros((nodes, words), dtype=np.uint64)
    reached[node, node // 64] = np.uint64(1) << (node % 64).astype(np.uint64)
    full = np.bitwise_or.reduce(reached, axis=0)
    mask = reached[source, source // 64]
    eccentricity, distance = np.full(nodes, -1), np.full(nodes, -1)
    for step in range(nodes):
        eccentricity[(eccentricity < 0) & (reached == full).all(axis=1)] = step
        distance[(distance < 0) & ((reached[:, source // 64] & mask) != 0)] = step
        if (eccentricity >= 0).all():
            break
        reached = np.bitwise_or.reduceat(reached[end], first, axis=0)
    return eccentricity, distance


def _line(diameter: int, rng: np.random.Generator) -> tuple[int, np.ndarray]:
    """Sample a path on which some nodes, at random, have another edge to a node further along."""
    most = diameter * _REACH[1] + 1  # every step of a path covers at most this many places
    node = np.arange(most)
    further = node + rng.integers(_REACH[0], _REACH[1] + 1, most)
    shortcuts = np.stack([node, further], axis=1)[rng.random(most) < _SHORTCUT]
    every = np.concatenate([np.stack([node[:-1], node[1:]], axis=1), shortcuts])
    nodes = diameter + 1
    while True:
        edges = every[every[:, 1] < nodes]
        lacking = diameter - int(measure(nodes, edges)[0].max())
        if lacking == 0:
            return nodes, edges
        nodes += lacking  # a node at the end raises the diameter by at most one, so no diameter is skipped


def _ladder(diameter: int, rng: np.random.Generator) -> tuple[int, np.ndarray]:
    """Join two paths of `diameter` nodes by all rungs."""
    return _grid_edges(2, diameter)


def _grid(diameter: int, rng: np.random.Generator) -> tuple[int, np.ndarray]:
    """Sample rectangular grids without some random edges until the largest component of one has the diameter."""
    while True:
        rows = int(rng.integers(_ROWS[0], _ROWS[1] + 1))
        most = diameter - rows + 2  # a whole grid's diameter is rows + columns - 2
        nodes, edges = _grid_edges(rows, int(rng.integers(max(most - rows, 1), most + 1)))
        edges = edges[rng.random(len(edges)) >= _REMOVED]
        graph = coo_array((np.ones(len(edges)), tuple(edges.T)), shape=(nodes, nodes))
        _, component = connected_components(graph, directed=False)
        largest = component == np.bincount(component).argmax()
        nodes, edges = int(largest.sum()), (largest.cumsum() - 1)[edges[largest[edges[:, 0]]]]
        if measure(nodes, edges)[0].max() == diameter:
            return nodes, edges


def _grid_edges(rows: int, columns: int) -> tuple[int, np.ndarray]:
    """Return the number of nodes and all edges of a rectangular grid, whose nodes are numbered column by column."""
    number = np.arange(rows * columns).reshape(columns, rows)
    along = np.stack([number[:-1], number[1:]], axis=-1).reshape(-1, 2)
    across = np.stack([number[:, :-1], number[:, 1:]], axis=-1).reshape(-1, 2)
    return rows * columns, np.concatenate([along, across])


def _grown(depth: int, exponent: int) -> Callable[[int, np.random.Generator], tuple[int, np.ndarray]]:
    """Return a sampler of trees that grow on a path of the diameter's length without lengthening any path beyond it.

    Args:
        depth: maximum distance of a node from the path.
        exponent: a new node joins node i with a probability proportional to `degree_i ** exponent`.
    """

    def sample(diameter: int, rng: np.random.Generator) -> tuple[int, np.ndarray]:
        low, high = (round(factor * diameter) for factor in _NODES)
        nodes = int(rng.integers(low, high + 1))
        path = np.arange(diameter + 1)
        degree, room = np.zeros(nodes), np.zeros(nodes, dtype=np.int64)
        degree[: diameter + 1] = 2
        # Maximum depth of a branch at each node: no longer than the distance to an end of the path.
        room[: diameter + 1] = np.minimum(np.minimum(path, diameter - path), depth)
        edges = [np.stack([path[:-1], path[1:]], axis=1)]
        for node in range(diameter + 1, nodes):
            weight = np.where(room[:node] > 0, degree[:node] ** exponent, 0.0).cumsum()
            parent = int(np.searchsorted(weight, rng.random() * weight[-1], side="right"))
            edges.append(np.array([[parent, node]]))
            degree[parent] += 1
            degree[node], room[node] = 1, room[parent] - 1
        return nodes, np.concatenate(edges)

    return sample


_SAMPLERS: dict[str, Callable[[int, np.random.Generator], tuple[int, np.ndarray]]] = {
    "line": _line,
    "ladder": _ladder,
    "grid": _grid,
    "tree": _grown(DIAMETERS[1], _EXPONENT),
    "caterpillar": _grown(1, 0),
    "lobster": _grown(2, 0),
}
#: Names of the six families.
FAMILIES = tuple(_SAMPLERS)
