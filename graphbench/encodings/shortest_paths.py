"""Encode pairs of nodes by shortest-path distances, and by the first edges of shortest paths."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Literal, get_args

import numpy as np
import torch
from numpy.typing import NDArray
from scipy.sparse import csr_matrix
from torch import Tensor

from graphbench.contracts import Column, Encoded, Encoding, GraphTable
from graphbench.contracts.kernels import operation
from graphbench.contracts.table import EDGE, NODE, PAIR, pointer
from graphbench.encodings._dense import SizeBlock, as_table, as_tensors, few_threads, size_blocks
from graphbench.errors import BadInput, check_choice, check_range

#: Which of several shortest paths of a pair count, see `ShortestPaths`.
Ties = Literal["all", "one"]
#: Distance of a pair without a path, while distances are computed.
# Half of the range, so that the sum of two does not overflow.
_NEVER = np.iinfo(np.int32).max // 2
#: Numbers of paths above this are scaled down; only their ratios within a level matter.
_MANY_PATHS = 2.0**900
#: Most entries of a table of edges and goals that are compared at once.
_COMPARED = 1 << 22
#: Types of edges, goals and weights.
_STEP_TYPES = torch.int32, torch.int32, torch.float32


class ShortestPaths(Encoding):
    """Number of edges on a shortest path i -> j for every ordered node pair, and optionally the paths' first edges.

    Paths follow the direction of the edges. Stored distances are `0 .. max_distance`. Larger distances are stored as
    `max_distance`, and pairs without a path as `unreachable = max_distance + 1`: an embedding needs `num_distances`
    rows.

    Fields: `shortest_path_distance [pairs]` (pair `i * n + j` of a graph). With edges there is also one row per first
    edge of each pair's shortest paths, sorted by pair:

    - `path_step_edge [steps]`: the edge e = (i, k);
    - `path_step_goal [steps]`: the node j;
    - `path_step_weight [steps]`: `sigma_kj / sigma_ij`, with sigma the number of shortest paths: the share of those
      from i to j that begin with e.

    The rest of such a path is a shortest path of the pair (k, j), so the steps describe all shortest paths of any
    length, and nothing depends on how nodes or edges are numbered. Parallel edges count as separate paths; pairs with
    i = j or without a path have no step. A pair of a molecule has little more than one step; in dense graphs a pair at
    distance 2 has one step per common neighbour of its nodes.

    With `ties="one"` the steps are those of one path per pair, as in Graphormer's released code: the path that the
    Floyd-Warshall algorithm finds first. Its largest inner node has the smallest possible number, and the same holds
    for the two parts around that node. It depends on how nodes are numbered; parallel edges share its weight.

    Args:
        max_distance: largest distance that is stored.
        with_edges: store the steps (Graphormer and DeepGraph read them).
        ties: all or one, with edges.

    Raises:
        BadInput: an option is out of range, or an edge refers to a node that its graph does not have.

    Examples:
        In a square two paths lead from node 0 to the opposite node 2.

        >>> square = torch.tensor([[0, 1, 2, 3, 1, 2, 3, 0], [1, 2, 3, 0, 0, 1, 2, 3]])
        >>> encoding = ShortestPaths(with_edges=True)
        >>> graphs = GraphTable.from_graphs([{"num_nodes": 4, "edge_index": square}])
        >>> columns = encoding.compute(graphs).columns
        >>> columns["shortest_path_distance"].reshape(4, 4)[0].tolist()
        [0, 1, 2, 1]
        >>> steps = [columns[f"path_step_{name}"][:4].tolist() for name in ("edge", "goal", "weight")]
        >>> for edge, goal, weight in zip(*steps, strict=True):
        ...     print(f"from node {square[0, edge]} to node {goal}: edge {edge} begins {weight:.0%}")
        from node 0 to node 1: edge 0 begins 100%
        from node 0 to node 2: edge 0 begins 50%
        from node 0 to node 2: edge 7 begins 50%
        from node 0 to node 3: edge 7 begins 100%
    """

    #: 2: all shortest paths count, not only the one with the lowest edge numbers.
    version = 2

    def __init__(self, max_distance: int = 20, with_edges: bool = False, ties: Ties = "all") -> None:
        # Distances are stored as int16.
        most = torch.iinfo(torch.int16).max
        check_range(f"{self.name}: max_distance", max_distance, at_least=1, below=most, whole=True)
        check_choice(f"{self.name}: ties", ties, get_args(Ties))
        self.max_distance, self.with_edges, self.ties = int(max_distance), with_edges, ties
        if not isinstance(with_edges, bool):
            raise BadInput(
                f"{self.name}: with_edges must be true or false, but got {with_edges!r}. The steps describe shortest "
                "paths of any length; an option of the model says how many edges are read."
            )
        if ties == "one" and not with_edges:
            raise BadInput(f"{self.name}: ties=one chooses among edges, which are not stored. Give with_edges=true.")

    @property
    def unreachable(self) -> int:
        """Stored distance of a pair without a path."""
        return self.max_distance + 1

    @property
    def num_distances(self) -> int:
        """Number of different stored distances."""
        return self.max_distance + 2

    def parameters(self) -> dict[str, Any]:
        """Return every option that changes the result."""
        options = {"max_distance": self.max_distance, "with_edges": self.with_edges}
        return options if self.ties == "all" else options | {"ties": self.ties}

    @property
    def layout(self) -> Mapping[str, Column]:
        """Return the layout: one row per node pair; the steps are on a separate axis, "path_step"."""
        layout = {"shortest_path_distance": Column(PAIR)}
        steps = {
            "path_step_edge": Column("path_step", index_of=EDGE),
            "path_step_goal": Column("path_step", index_of=NODE),
            "path_step_weight": Column("path_step"),
        }
        return layout | (steps if self.with_edges else {})

    def memory(self, num_nodes: int, num_edges: int) -> int:
        """Count the matrices of a search; with edges also lists of two steps per pair, while they are sorted."""
        return 8 * num_nodes**2 * (22 if self.with_edges else 3)

    def compute(self, graphs: GraphTable) -> Encoded:
        """Search breadth-first from every node."""
        distance, counts, edge, goal, weight = shortest_paths(*as_tensors(graphs), self.max_distance, self.with_edges)
        columns = {"shortest_path_distance": distance}
        if not self.with_edges:
            return Encoded(columns)
        if self.ties == "one":
            counts, edge, goal, weight = _one_path(graphs, counts, edge, goal)
        columns |= {"path_step_edge": edge, "path_step_goal": goal, "path_step_weight": weight}
        return Encoded(columns, {"path_step": pointer(counts)})


@operation("graphbench")
def shortest_paths(
    node_ptr: Tensor, edge_ptr: Tensor, edges: Tensor, max_distance: int, with_steps: bool
) -> tuple[Tensor, Tensor, Tensor, Tensor, Tensor]:
    """Compute distances of all node pairs, and the first edges of shortest paths, as described by `ShortestPaths`.

    The arguments come from `as_tensors`. Distances above `max_distance` are stored as `max_distance`, and those of
    pairs without a path as `max_distance + 1`. Without `with_steps` the last four tensors are empty, or zeros.

    Returns:
        Distances `[pairs]`, uint8 or int16; number of steps of each graph, int64 `[G]`; and for each step the number of
        its edge and of the paths' last node, within the graph, int32, and the share of the paths, float32.

    Examples:
        >>> path = torch.tensor([[0, 1], [1, 2]])
        >>> shortest_paths(torch.tensor([0, 3]), torch.tensor([0, 2]), path, 5, False)[0].view(3, 3)
        tensor([[0, 1, 2],
                [6, 0, 1],
                [6, 6, 0]], dtype=torch.uint8)
    """
    graphs = as_table(node_ptr, edge_ptr, edges)
    dtype = torch.uint8 if max_distance < torch.iinfo(torch.uint8).max else torch.int16
    stored = torch.empty(int((graphs.num_nodes**2).sum()), dtype=dtype)
    ptr = pointer(graphs.num_nodes**2)
    lists, numbers = [[torch.empty(0, dtype=t) for t in _STEP_TYPES]], [torch.empty(0, dtype=torch.int64)]
    with few_threads(graphs):
        for block in size_blocks(graphs):
            distance, paths = _search(block, with_steps)
            bounded = np.where(distance == _NEVER, max_distance + 1, np.minimum(distance, max_distance))
            stored[block.rows(ptr, block.num_nodes**2)] = torch.from_numpy(bounded).flatten().to(dtype)
            if paths is not None:
                graph, *listed = _steps_of(block, distance, paths)
                numbers.append(graph)
                lists.append([x.to(t) for x, t in zip(listed, _STEP_TYPES, strict=True)])
    # Blocks are sorted by size; the table needs graph after graph.
    graph = torch.cat(numbers)
    order = graph.argsort(stable=True)
    counts = torch.bincount(graph, minlength=len(graphs))
    edge, goal, weight = (torch.cat(parts)[order] for parts in zip(*lists, strict=True))
    return stored, counts, edge, goal, weight


def _search(block: SizeBlock, count: bool) -> tuple[NDArray[np.int32], NDArray[np.float64] | None]:
    """Find distances from every node of the block to every node of its graph, and numbers of shortest paths.

    Row i of `A @ reached` counts the neighbours of i from which j was reached on the last level, or with `count`
    the shortest paths through them.

    Returns:
        Distances `[b * n, n]`, `_NEVER` without a path; with `count` also numbers of paths `[b * n, n]`, 0 without a
        path, which are comparable among pairs with the same goal and distance.
    """
    nodes = len(block) * block.num_nodes
    ends = (block.source.numpy(), block.target.numpy())
    # Without counts only the sign matters, and sums of positive numbers never round to 0.
    dtype = np.float64 if count else np.float32
    adjacency = csr_matrix((np.ones(len(ends[0]), dtype=dtype), ends), shape=(nodes, nodes))
    reached = np.tile(np.eye(block.num_nodes, dtype=dtype), (len(block), 1))
    distance = np.where(reached > 0, 0, _NEVER).astype(np.int32)
    paths = reached.copy() if count else None
    level = 0
    while reached.any():
        level += 1
        counts = adjacency @ reached
        # First reached on this level, so every counted path is a shortest one.
        fresh = (counts > 0) & (distance == _NEVER)
        distance[fresh] = level
        if paths is None:
            reached = fresh.astype(dtype)
            continue
        reached = np.where(fresh, counts, 0.0)
        if reached.max(initial=0.0) > _MANY_PATHS:
            # A power of two keeps ratios exact; none may vanish.
            reached = np.where(fresh, np.maximum(reached / _MANY_PATHS, np.finfo(dtype).tiny), 0.0)
        paths[fresh] = reached[fresh]
    return distance, paths


def _steps_of(block: SizeBlock, distance: NDArray[np.int32], paths: NDArray[np.float64]) -> tuple[Tensor, ...]:
    """List graph, edge, goal and weight: edge (i, k) begins a shortest path i -> j if k is closer to j than i is."""
    source, target, n = block.source.numpy(), block.target.numpy(), block.num_nodes
    edges, goals = [np.empty(0, dtype=np.int64)], [np.empty(0, dtype=np.int64)]
    for first in range(0, len(source), max(1, _COMPARED // n)):
        part = slice(first, first + max(1, _COMPARED // n))
        # If neither end reaches the goal, both distances are equal: `_NEVER` needs no mask.
        edge, goal = np.nonzero(distance[source[part]] == distance[target[part]] + 1)
        edges.append(edge + first)
        goals.append(goal)
    edge, goal = np.concatenate(edges), np.concatenate(goals)
    pair = source[edge] * n + goal
    order = np.argsort(pair, kind="stable")  # by pair, and within a pair in the order of the graph's edges
    edge, goal, pair = edge[order], goal[order], pair[order]
    onward = paths[target[edge], goal]
    # sigma_ij is the sum of sigma_kj over the first steps, so their common scale cancels.
    weight = onward / np.bincount(pair, onward, minlength=1)[pair]
    graph, number = block.graphs[torch.from_numpy(pair // n**2)], block.edge[torch.from_numpy(edge)]
    return graph, number, torch.from_numpy(goal), torch.from_numpy(weight)


def _one_path(graphs: GraphTable, counts: Tensor, edge: Tensor, goal: Tensor) -> tuple[Tensor, ...]:
    """Keep the steps of one shortest path per pair; the rest of the path is the path of the next pair.

    Args:
        graphs: the table.
        counts: steps of each graph `[G]`.
        edge: number of each step's edge within its graph `[steps]`.
        goal: last node of its paths, within the graph `[steps]`.

    Returns:
        The same for the remaining steps, and their weights.
    """
    graph = torch.repeat_interleave(torch.arange(len(graphs)), counts)
    source, target = graphs.columns["edge_index"][graphs.ptr[EDGE][graph] + edge].unbind(1)
    pair = pointer(graphs.num_nodes**2)[graph] + source * graphs.num_nodes[graph] + goal
    chosen = _next_nodes(graphs)[pair] == target
    number = torch.bincount(pair[chosen], minlength=1)  # of parallel edges
    weight = 1 / number[pair[chosen]].to(_STEP_TYPES[2])
    return torch.bincount(graph[chosen], minlength=len(graphs)), edge[chosen], goal[chosen], weight


def _next_nodes(graphs: GraphTable) -> Tensor:
    """Return the node after i on the Floyd-Warshall path i -> j, for every pair; -1 if it has no edge.

    For k in order, `path(i, j)` becomes `path(i, k)` and `path(k, j)` if that is shorter: `n^3` steps.
    """
    ptr = pointer(graphs.num_nodes**2)
    next_node = torch.empty(int(ptr[-1]), dtype=torch.int64)
    for block in size_blocks(graphs):
        joined, numbers = block.adjacency() > 0, torch.arange(block.num_nodes)
        distance = torch.where(joined, 1, _NEVER)
        distance.diagonal(dim1=1, dim2=2).zero_()
        following = torch.where(joined, numbers, -1)
        for k in range(block.num_nodes):
            through = distance[:, :, k, None] + distance[:, None, k]
            # Strictly shorter: of paths of equal length the first one found is kept.
            shorter = through < distance
            distance = torch.where(shorter, through, distance)
            following = torch.where(shorter, following[:, :, k, None], following)
        next_node[block.rows(ptr, block.num_nodes**2)] = following.flatten()
    return next_node
