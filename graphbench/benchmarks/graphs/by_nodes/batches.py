"""Batch one graph whose nodes are split: the whole graph, or parts of it.

Legend: N nodes, E directed edges of the whole graph.
"""

from __future__ import annotations

import copy
import zlib
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from graphbench.benchmarks.graphs.by_nodes.incoming import IncomingEdges
from graphbench.contracts import GraphBatch, GraphTable
from graphbench.contracts.table import EDGE, GRAPH, NODE
from graphbench.errors import BadInput

SAMPLERS = ("full", "neighbors", "clusters", "random")
#: Samplers whose batches contain all neighbours, or can.
EXACT_SAMPLERS = ("full", "neighbors", "layers")
_TARGETS, _NUMBER, _PREDICTED = "y", "node_id", "asked"


@dataclass(frozen=True)
class Piece:
    """A part of the graph.

    Args:
        nodes: numbers of its nodes in the whole graph `[n]`.
        edges: numbers of its edges in the whole graph `[e]`.
        edge_index: ends of its edges among `nodes` `[2, e]`.
        num_predicted: number of leading nodes that are predicted; the others are their neighbourhood.
    """

    nodes: Tensor
    edges: Tensor
    edge_index: Tensor
    num_predicted: int


#: Maps numbers of nodes or clusters to a part of the graph.
Cutter = Callable[[Tensor], Piece]


class _Numbers:
    """Numbers of nodes within a part: 0, 1, ... in order of first occurrence."""

    def __init__(self, num_nodes: int) -> None:
        # Stores number + 1: zeros take no memory until they are written, however many nodes the whole graph has.
        self._known = np.zeros(num_nodes, dtype=np.int32)
        self.count = 0

    def add(self, nodes: np.ndarray) -> None:
        """Assign numbers to new, distinct nodes."""
        self._known[nodes] = np.arange(self.count + 1, self.count + 1 + len(nodes))
        self.count += len(nodes)

    def __call__(self, nodes: np.ndarray) -> np.ndarray:
        """Return the number of each node, -1 if it is not in the part."""
        return self._known[nodes].astype(np.int64) - 1


def neighbors(edges: IncomingEdges, num_neighbors: Sequence[int], seed: int) -> Cutter:
    """Cut nodes with some of their neighbours, hop by hop (GraphSAGE; Hamilton et al. 2017).

    Each node is expanded once, in the hop that first reaches it, as in PyG's `NeighborLoader`. The random numbers of a
    batch depend on the seed and on its nodes in order, which each epoch reshuffles. `num_neighbors` is the maximum per
    node in every hop, -1 for all.
    """

    def cut(nodes: Tensor) -> Piece:
        rng = np.random.default_rng([seed & 0xFFFFFFFF, zlib.crc32(nodes.numpy().tobytes())])
        number_of, hops = _Numbers(edges.num_nodes), [nodes.numpy()]
        number_of.add(hops[0])
        rows, heads, tails = [], [], []
        for limit in num_neighbors:
            places, row = edges.sample(hops[-1], limit, rng)
            sources = edges.sources[places]
            first = number_of.count - len(hops[-1])
            hops.append(np.unique(sources[number_of(sources) < 0]))
            number_of.add(hops[-1])
            rows.append(edges.numbers[places])
            heads.append(number_of(sources))
            tails.append(first + row)
        ends = np.stack([np.concatenate(heads), np.concatenate(tails)])
        return Piece(_tensor(np.concatenate(hops)), _tensor(np.concatenate(rows)), _tensor(ends), len(nodes))

    return cut


def random_parts(edges: IncomingEdges) -> Cutter:
    """Cut given nodes with all edges among them."""

    def cut(nodes: Tensor) -> Piece:
        number_of = _Numbers(edges.num_nodes)
        number_of.add(nodes.numpy())
        places, row = edges.of(nodes.numpy())
        heads = number_of(edges.sources[places])
        inside = heads >= 0
        ends = np.stack([heads[inside], row[inside]])
        return Piece(nodes, _tensor(edges.numbers[places[inside]]), _tensor(ends), len(nodes))

    return cut


def separate_nodes(nodes: Tensor) -> Piece:
    """Cut nodes without any edge."""
    nothing = nodes.new_zeros(2, 0)
    return Piece(nodes, nothing[0], nothing, len(nodes))


def clusters(edges: IncomingEdges, nodes: np.ndarray, ptr: np.ndarray) -> Cutter:
    """Join clusters with all edges among them (Cluster-GCN; Chiang et al. 2019).

    Args:
        edges: edges of the whole graph.
        nodes: nodes of all clusters, one after the other `[N]`.
        ptr: position of the first node of each cluster `[clusters + 1]`.
    """
    within = random_parts(edges)
    return lambda numbers: within(
        torch.cat([_tensor(nodes[ptr[number] : ptr[number + 1]]) for number in numbers.tolist()])
    )


def _tensor(values: np.ndarray) -> Tensor:
    return torch.from_numpy(values.astype(np.int64))


def check_layout(table: GraphTable, sampler: str) -> None:
    """Refuse encodings with rows for anything but nodes and edges, which parts cannot contain."""
    for name, column in table.layout.items():
        if column.axis not in (NODE, EDGE, GRAPH) or (column.index_of is not None and name != "edge_index"):
            raise BadInput(
                f"data.sampler {sampler}: {name} has a row for each {column.axis}, which parts of a graph cannot "
                "have. Use data.sampler full, or a model without that encoding."
            )


class NodeParts:
    """Cut batches that are parts of one graph.

    In addition to the usual fields, a batch has `node_id [num_nodes]`, node numbers in the whole graph, and the mask
    `asked [num_nodes]` of the nodes that are predicted: the others have no target here.

    Args:
        table: table of one graph, with targets.
        cutter: cuts a part.
        units: numbers of nodes or clusters `[units]`.
    """

    def __init__(self, table: GraphTable, cutter: Cutter, units: Tensor) -> None:
        self.table, self.cutter, self.units = table, cutter, units

    def __call__(self, rows: Sequence[int]) -> GraphBatch:
        """Return the part around some of the units."""
        piece = self.cutter(self.units[torch.as_tensor(rows, dtype=torch.int64)])
        batch = GraphBatch(edge_index=piece.edge_index)
        chosen = {NODE: piece.nodes, EDGE: piece.edges}
        for name, column in self.table.layout.items():
            if name != "edge_index":
                values = self.table.columns[name]
                values = values.index_select(0, chosen[column.axis]) if column.axis in chosen else values
                if values.is_floating_point():
                    batch[name] = values if name == _TARGETS else values.float()
                else:
                    batch[name] = values if values.dtype == torch.bool else values.to(torch.int64)
        count = len(piece.nodes)
        batch[_PREDICTED] = torch.arange(count) < piece.num_predicted
        batch[_TARGETS] = mask_targets(batch[_TARGETS], batch[_PREDICTED])
        batch[_NUMBER] = piece.nodes
        batch.batch, batch.ptr = torch.zeros(count, dtype=torch.int64), torch.tensor([0, count])
        batch.graph_id = torch.zeros(1, dtype=torch.int64)
        batch.num_nodes, batch.num_graphs, batch.max_nodes = count, 1, count
        return batch


class WholeGraph:
    """Return the whole graph as the one batch.

    Args:
        gathered: the graph without targets, which splits may share.
        targets: targets of all nodes `[N, T]`, -1 or NaN for those of other splits.
        mine: mask of the nodes of this process `[N]`; None for a single process. All processes compute all nodes.
    """

    def __init__(self, gathered: GraphBatch, targets: Tensor, mine: Tensor | None = None) -> None:
        self.gathered, self.mine = gathered, mine
        self.targets = targets if mine is None else mask_targets(targets, mine)

    def __call__(self, rows: Sequence[int]) -> GraphBatch:
        """Return the graph; there is only one row."""
        batch = copy.copy(self.gathered)
        batch[_TARGETS] = self.targets
        if self.mine is not None:
            batch[_PREDICTED] = self.mine
        return batch


def mask_targets(targets: Tensor, mask: Tensor) -> Tensor:
    """Keep the targets `[N, T]` of the nodes in the mask `[N]`; the others get -1 (classes) or NaN (numbers).

    Examples:
        >>> mask_targets(torch.tensor([[2], [1]]), torch.tensor([True, False])).tolist()
        [[2], [-1]]
    """
    return torch.where(mask[:, None], targets, torch.nan if targets.is_floating_point() else -1)


def labelled_nodes(targets: Tensor) -> Tensor:
    """Return the nodes with at least one target, in ascending order."""
    present = ~targets.isnan() if targets.is_floating_point() else targets >= 0
    return present.any(1).nonzero()[:, 0]


def nodes_of_rank(targets: Tensor, rank: int, world_size: int) -> Tensor:
    """Return the mask `[N]` of the nodes that a process scores and predicts; every node belongs to one process.

    Examples:
        >>> [nodes_of_rank(torch.tensor([[-1], [2], [0]]), rank, 2).tolist() for rank in (0, 1)]
        [[True, True, False], [False, False, True]]
    """
    labelled = torch.zeros(len(targets), dtype=torch.bool)
    labelled[labelled_nodes(targets)] = True
    mine = torch.zeros_like(labelled)
    # Nodes with a target first, so that each process gets equally many.
    mine[torch.cat([labelled.nonzero()[:, 0], (~labelled).nonzero()[:, 0]])[rank::world_size]] = True
    return mine
