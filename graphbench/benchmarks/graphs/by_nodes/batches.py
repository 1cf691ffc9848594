"""Batches of one graph whose nodes are split: all of it, or parts that loaders of PyG cut out of it.

Legend: N nodes, E directed edges of the whole graph.
"""

from __future__ import annotations

import copy
import zlib
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
import torch
import torch_geometric.typing as installed
from torch import Tensor
from torch_geometric.data import Data
from torch_geometric.loader import ClusterData, ClusterLoader, NeighborLoader, RandomNodeLoader
from torch_geometric.utils import is_undirected

from graphbench.contracts import GraphBatch, GraphTable
from graphbench.contracts.table import EDGE, GRAPH, NODE
from graphbench.errors import BadInput

SAMPLERS = ("full", "neighbors", "clusters", "random")
#: Samplers whose batches hold every neighbour that counts.
EXACT_SAMPLERS = ("full", "neighbors")
_TARGETS, _NUMBER, _ASKED = "y", "node_id", "asked"
#: The store keeps the smallest type that fits; batches have one.
_WHOLE_NUMBERS = (torch.uint8, torch.int8, torch.int16, torch.int32)
_WAY_OUT = (
    "Install pyg-lib as PyG's installation guide says, or compile torch-scatter and torch-sparse "
    "(pip install --no-build-isolation torch-scatter torch-sparse), or take data.sampler random, which needs neither, "
    "or full"
)


@dataclass(frozen=True)
class Piece:
    """A part of the graph.

    Args:
        nodes: their numbers in the whole graph `[n]`.
        edges: rows of its edges in the whole graph `[e]`.
        edge_index: ends of its edges among `nodes` `[2, e]`.
        asked: how many nodes, the first ones, the batch is about; the others are their surroundings.
    """

    nodes: Tensor
    edges: Tensor
    edge_index: Tensor
    asked: int


#: Rows of what is shared out (nodes or clusters) -> a part of the graph.
Cutter = Callable[[Tensor], Piece]


def check_sampler(sampler: str) -> None:
    """Refuse a sampler that lacks a library.

    Raises:
        BadInput: says what to install, and what works without it.
    """
    if sampler == "neighbors" and not (installed.WITH_PYG_LIB or installed.WITH_TORCH_SPARSE):
        raise BadInput(f"data.sampler neighbors: PyG samples neighbours by pyg-lib or torch-sparse. {_WAY_OUT}.")
    if sampler == "clusters" and not has_metis():
        raise BadInput(
            f"data.sampler clusters: PyG finds clusters by the METIS of pyg-lib or torch-sparse. {_WAY_OUT}."
        )


def has_metis() -> bool:
    """Whether PyG can cut a graph into clusters; torch-sparse may have been compiled without METIS."""
    if installed.WITH_METIS:
        return True
    if not installed.WITH_TORCH_SPARSE:
        return False
    try:
        torch.ops.torch_sparse.partition(torch.tensor([0, 1, 2]), torch.tensor([1, 0]), None, 2, False)
    except (AttributeError, RuntimeError):
        return False
    return True


def _whole(table: GraphTable) -> Data:
    """Structure alone: nodes and edges with their numbers, under names by which PyG knows one from the other."""
    return Data(
        edge_index=table.columns["edge_index"].to(torch.int64).t().contiguous(),
        node_id=torch.arange(int(table.ptr[NODE][-1])),
        edge_id=torch.arange(int(table.ptr[EDGE][-1])),
        num_nodes=int(table.ptr[NODE][-1]),
    )


def neighbors(table: GraphTable, num_neighbors: Sequence[int], seed: int) -> Cutter:
    """Nodes and some of their neighbours, hop by hop (GraphSAGE; Hamilton et al. 2017), by PyG's `NeighborLoader`.

    The random numbers of a batch depend on the seed and on its nodes in their order, which another epoch shuffles anew;
    no global generator moves.

    Args:
        table: of one graph.
        num_neighbors: at most so many of each node in every hop; -1 for all.
        seed: of the sampling.
    """
    loader = NeighborLoader(_whole(table), num_neighbors=list(num_neighbors))

    def cut(nodes: Tensor) -> Piece:
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(zlib.crc32(nodes.numpy().tobytes(), seed & 0xFFFFFFFF))
            found = loader(nodes)
        return Piece(found.n_id, found.e_id, found.edge_index, len(nodes))

    return cut


def random_parts(table: GraphTable) -> Cutter:
    """The nodes that are given and all edges among them, by PyG's `RandomNodeLoader`."""
    loader = RandomNodeLoader(_whole(table), num_parts=1)
    return lambda nodes: _all_asked(loader.collate_fn(nodes))


def clusters(table: GraphTable, num_parts: int) -> Cutter:
    """Clusters by their numbers, joined with the edges among them (Cluster-GCN; Chiang et al. 2019), by PyG.

    Args:
        table: of one graph.
        num_parts: clusters that METIS makes.

    Raises:
        BadInput: an edge has no reverse one, which METIS needs.
    """
    whole = _whole(table)
    if not is_undirected(whole.edge_index, num_nodes=whole.num_nodes):
        raise BadInput("data.sampler clusters: METIS needs edges in both directions. Take data.sampler random.")
    loader = ClusterLoader(ClusterData(whole, num_parts, log=False))
    return lambda numbers: _all_asked(loader._collate(numbers))


def _all_asked(part: Data) -> Piece:
    return Piece(part.node_id, part.edge_id, part.edge_index, len(part.node_id))


def refuse_other_rows(table: GraphTable, sampler: str) -> None:
    """Parts have rows of nodes and edges, and nothing else.

    Raises:
        BadInput: an encoding has rows of something else.
    """
    for name, column in table.layout.items():
        if column.axis not in (NODE, EDGE, GRAPH) or (column.index_of is not None and name != "edge_index"):
            raise BadInput(
                f"data.sampler {sampler}: {name} has a row for each {column.axis}, which parts of a graph cannot take "
                "over. Take data.sampler full, or a model without that encoding."
            )


class NodeParts:
    """Batches that are parts of one graph.

    A batch has one graph, and beside the usual fields `node_id [num_nodes]`, numbers in the whole graph, and `asked
    [num_nodes]`, which nodes it is about: the others have no target here.

    Args:
        table: of one graph, with targets.
        cutter: what cuts it.
        units: nodes or clusters that are shared out, `[units]`.
    """

    def __init__(self, table: GraphTable, cutter: Cutter, units: Tensor) -> None:
        self.table, self.cutter, self.units = table, cutter, units

    def __call__(self, rows: Sequence[int]) -> GraphBatch:
        """The part around some of the units."""
        piece = self.cutter(self.units[torch.as_tensor(rows, dtype=torch.int64)])
        batch = GraphBatch(edge_index=piece.edge_index)
        chosen = {NODE: piece.nodes, EDGE: piece.edges}
        for name, column in self.table.layout.items():
            if name != "edge_index":
                values = self.table.columns[name]
                values = values[chosen[column.axis]] if column.axis in chosen else values
                whole = not values.is_floating_point() and values.dtype != torch.bool
                batch[name] = (
                    values.to(torch.int64)
                    if whole
                    else values.float()
                    if values.is_floating_point() and name != _TARGETS
                    else values
                )
        count = len(piece.nodes)
        batch[_ASKED] = torch.arange(count) < piece.asked
        batch[_TARGETS] = only(batch[_TARGETS], batch[_ASKED])
        batch[_NUMBER] = piece.nodes
        batch.batch, batch.ptr = torch.zeros(count, dtype=torch.int64), torch.tensor([0, count])
        batch.graph_id = torch.zeros(1, dtype=torch.int64)
        batch.num_nodes, batch.num_graphs, batch.max_nodes = count, 1, count
        return batch


class WholeGraph:
    """The whole graph as the one batch; what does not change is gathered once.

    Args:
        gathered: the graph with everything but targets, which splits may share.
        targets: of all nodes, -1 or NaN where they are not known `[N, T]`.
    """

    def __init__(self, gathered: GraphBatch, targets: Tensor) -> None:
        self.gathered, self.targets = gathered, targets

    def __call__(self, rows: Sequence[int]) -> GraphBatch:
        """The graph; there is one row."""
        batch = copy.copy(self.gathered)
        batch[_TARGETS] = self.targets
        return batch


def only(targets: Tensor, rows: Tensor) -> Tensor:
    """Targets of some nodes; the others have -1 (classes) or NaN (numbers).

    Args:
        targets: `[N, T]`.
        rows: which ones `[N]`, yes or no.

    Examples:
        >>> only(torch.tensor([[2], [1]]), torch.tensor([True, False])).tolist()
        [[2], [-1]]
    """
    return torch.where(rows[:, None], targets, torch.nan if targets.is_floating_point() else -1)


def known(targets: Tensor) -> Tensor:
    """Nodes that have a target, or one of several `[known]`, ascending."""
    there = ~targets.isnan() if targets.is_floating_point() else targets >= 0
    return there.any(1).nonzero()[:, 0]


def share_of(targets: Tensor, rank: int, world_size: int) -> Tensor:
    """Targets `[N, T]` that one of several processes counts: every known one is with one of them."""
    mine = torch.zeros(len(targets), dtype=torch.bool)
    mine[known(targets)[rank::world_size]] = True
    return only(targets, mine)


def nodes_per_part(num_nodes: int, num_parts: int) -> int:
    """Nodes of each of the random parts; the last one has fewer."""
    return int(np.ceil(num_nodes / num_parts))
