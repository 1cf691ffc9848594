"""Shortest-path distances of all node pairs and the first edges of one shortest path each."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from scipy.sparse import csr_matrix
from torch import Tensor

from graphbench.contracts import Column, Encoded, Encoding, GraphBatch, GraphTable
from graphbench.contracts.table import PAIR, pointer
from graphbench.encodings._dense import SizeBlock, few_threads, size_blocks
from graphbench.encodings._options import check_at_least
from graphbench.errors import BadInput

#: Distance of a pair that no path joins, while distances are computed.
_NEVER = np.iinfo(np.int32).max // 2


class ShortestPaths(Encoding):
    """Number of edges on a shortest path i -> j for every ordered node pair, and optionally that path's first edges.

    Paths follow the direction of the edges. Stored distances are `0 .. max_distance`, larger ones are stored as
    `max_distance`, pairs that no path joins as `unreachable = max_distance + 1`: an embedding needs `num_distances`
    rows. Of all shortest paths the one is taken that, edge by edge from i on, uses the edge of lowest number.

    Fields: `shortest_path_distance [pairs]` (pair `i * n + j` of a graph); with edges also `shortest_path_edges
    [pairs, with_edges]`, int32: numbers of the edges *within their graph*, -1 after the end of the path and where
    there is none. A batch leaves them so; `path_edges_in_batch` turns them into rows of its `edge_index`.

    Args:
        max_distance: largest distance told apart.
        with_edges: edges stored for every pair (Graphormer and DeepGraph average the first 5).

    Raises:
        BadInput: an option is out of range, or an edge names a node that its graph does not have.
    """

    def __init__(self, max_distance: int = 20, with_edges: int = 0) -> None:
        self.max_distance = check_at_least(1, self.name, "max_distance", max_distance)
        self.with_edges = check_at_least(0, self.name, "with_edges", with_edges)
        if max_distance >= torch.iinfo(torch.int16).max:
            raise BadInput(f"{self.name}: max_distance must be below {torch.iinfo(torch.int16).max}: {max_distance}.")

    @property
    def unreachable(self) -> int:
        """Stored distance of a pair that no path joins."""
        return self.max_distance + 1

    @property
    def num_distances(self) -> int:
        """Number of different stored distances."""
        return self.max_distance + 2

    def parameters(self) -> dict[str, Any]:
        """Every option that changes the result."""
        return {"max_distance": self.max_distance, "with_edges": self.with_edges}

    @property
    def layout(self) -> Mapping[str, Column]:
        """One row a node pair."""
        layout = {"shortest_path_distance": Column(PAIR)}
        return layout | ({"shortest_path_edges": Column(PAIR)} if self.with_edges else {})

    def compute(self, graphs: GraphTable) -> Encoded:
        """Breadth-first search from all nodes of a block at once: one sparse product a level."""
        ptr = pointer(graphs.num_nodes**2)
        pairs = int(ptr[-1])
        dtype = torch.uint8 if self.unreachable <= torch.iinfo(torch.uint8).max else torch.int16
        columns = {"shortest_path_distance": torch.empty(pairs, dtype=dtype)}
        if self.with_edges:
            columns["shortest_path_edges"] = torch.empty(pairs, self.with_edges, dtype=torch.int32)
        with few_threads(graphs):
            for block in size_blocks(graphs):
                rows = block.rows(ptr, block.num_nodes**2)
                distance = _distances(block)
                stored = np.where(distance == _NEVER, self.unreachable, distance.clip(max=self.max_distance))
                columns["shortest_path_distance"][rows] = torch.from_numpy(stored).flatten().to(dtype)
                if self.with_edges:
                    columns["shortest_path_edges"][rows] = _first_edges(block, distance, self.with_edges)
        return Encoded(columns)


def _distances(block: SizeBlock) -> NDArray[np.int32]:
    """Distance from every node of the block to every node of its graph `[b * n, n]`; `_NEVER` where no path leads.

    Row i of `A @ reached` counts the neighbours of i from which j was reached within the last level.
    """
    nodes = len(block) * block.num_nodes
    ends = (block.source.numpy(), block.target.numpy())
    adjacency = csr_matrix((np.ones(len(ends[0]), dtype=np.float32), ends), shape=(nodes, nodes))
    reached = np.tile(np.eye(block.num_nodes, dtype=np.float32), (len(block), 1))
    distance = np.where(reached > 0, 0, _NEVER).astype(np.int32)
    level = 0
    while reached.any():
        level += 1
        fresh = (adjacency @ reached > 0) & (distance == _NEVER)
        distance[fresh] = level
        reached = fresh.astype(np.float32)
    return distance


def _first_edges(block: SizeBlock, distance: NDArray[np.int32], count: int) -> Tensor:
    """First `count` edges of the chosen shortest paths, numbered within their graph `[b * n * n, count]`."""
    step = _next_edge(block, distance)
    heads = np.append(block.target.numpy(), 0)
    numbers = np.append(block.edge.numpy(), -1).astype(np.int32)
    at = np.broadcast_to(np.arange(len(distance))[:, None], distance.shape)
    goal = np.arange(block.num_nodes)
    path = np.empty((*distance.shape, count), dtype=np.int32)
    for hop in range(count):
        edge = step[at, goal]
        path[:, :, hop] = numbers[edge]
        at = np.where(edge < 0, at, heads[edge])
    return torch.from_numpy(path).flatten(0, 1)


def _next_edge(block: SizeBlock, distance: NDArray[np.int32]) -> NDArray[np.int64]:
    """Lowest edge of the block out of i on a shortest path i -> j, `[b * n, n]`; -1 where i = j or no path leads."""
    source, target = block.source.numpy(), block.target.numpy()
    by_source = np.argsort(source, kind="stable")
    out_degree = np.bincount(source, minlength=len(distance))
    first = np.cumsum(out_degree) - out_degree
    step = np.full(distance.shape, -1, dtype=np.int64)
    # Neighbours take their own edge; of parallel ones the lowest, which is assigned last.
    proper = np.flatnonzero(source != target)[::-1]
    step[source[proper], target[proper] % block.num_nodes] = proper
    # All other pairs try the edges out of i in order, until one leads closer to j.
    node, goal = np.nonzero((distance > 1) & (distance < _NEVER))
    place = 0
    while len(node):
        edge = by_source[first[node] + place]
        closer = distance[target[edge], goal] + 1 == distance[node, goal]
        step[node[closer], goal[closer]] = edge[closer]
        node, goal = node[~closer], goal[~closer]
        place += 1
    return step


def path_edges_in_batch(batch: GraphBatch) -> Tensor:
    """`shortest_path_edges` of a batch as columns of its `edge_index`, `[pairs, with_edges]`; -1 stays -1."""
    edges = batch.shortest_path_edges
    graphs = torch.arange(batch.num_graphs, device=edges.device)
    first_edge = torch.searchsorted(batch.batch[batch.edge_index[0]], graphs)
    offset = torch.repeat_interleave(first_edge, batch.pair_ptr.diff(), output_size=len(edges))
    return torch.where(edges < 0, edges, edges + offset[:, None])
