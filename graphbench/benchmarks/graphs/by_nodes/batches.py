"""Batch one graph whose nodes are split: all of it, or parts that loaders of PyG cut.

Legend: N nodes, E directed edges of the whole graph.
"""

from __future__ import annotations

import copy
import zlib
from collections.abc import Callable, Sequence
from dataclasses import dataclass

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
#: Samplers whose batches hold all neighbours, or can.
EXACT_SAMPLERS = ("full", "neighbors")
_TARGETS, _NUMBER, _PREDICTED = "y", "node_id", "asked"
_WAY_OUT = (
    "Install pyg-lib as PyG's installation guide says, or compile torch-scatter and torch-sparse "
    "(pip install --no-build-isolation torch-scatter torch-sparse), or take data.sampler random, which needs neither, "
    "or full"
)


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


#: Numbers of nodes or clusters -> a part of the graph.
Cutter = Callable[[Tensor], Piece]


def check_sampler(sampler: str) -> None:
    """Refuse a sampler that lacks a library."""
    if sampler == "neighbors" and not (installed.WITH_PYG_LIB or installed.WITH_TORCH_SPARSE):
        raise BadInput(f"data.sampler neighbors: PyG samples neighbours by pyg-lib or torch-sparse. {_WAY_OUT}.")
    if sampler == "clusters" and not has_metis():
        raise BadInput(
            f"data.sampler clusters: PyG finds clusters by the METIS of pyg-lib or torch-sparse. {_WAY_OUT}."
        )


def has_metis() -> bool:
    """Return whether PyG can cut a graph into clusters; torch-sparse may have been compiled without METIS."""
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
    """Build a graph of numbered nodes and edges, under names by which PyG tells one from the other."""
    return Data(
        edge_index=table.columns["edge_index"].to(torch.int64).t().contiguous(),
        node_id=torch.arange(int(table.ptr[NODE][-1])),
        edge_id=torch.arange(int(table.ptr[EDGE][-1])),
        num_nodes=int(table.ptr[NODE][-1]),
    )


def neighbors(table: GraphTable, num_neighbors: Sequence[int], seed: int) -> Cutter:
    """Cut nodes with some of their neighbours, hop by hop (GraphSAGE; Hamilton et al. 2017), by PyG's `NeighborLoader`.

    The random numbers of a batch depend on the seed and on its nodes in their order, which another epoch shuffles anew;
    the global generator does not move. `num_neighbors` is the maximum of each node in every hop, -1 for all.
    """
    loader = NeighborLoader(_whole(table), num_neighbors=list(num_neighbors))

    def cut(nodes: Tensor) -> Piece:
        # PyG's sampler takes no generator, and reads the global one.
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(zlib.crc32(nodes.numpy().tobytes(), seed & 0xFFFFFFFF))
            part = loader(nodes)
        return Piece(part.n_id, part.e_id, part.edge_index, len(nodes))

    return cut


def random_parts(table: GraphTable) -> Cutter:
    """Cut given nodes with all edges among them, by PyG's `RandomNodeLoader`."""
    loader = RandomNodeLoader(_whole(table), num_parts=1)
    return lambda nodes: _predict_all(loader.collate_fn(nodes))


def clusters(table: GraphTable, num_parts: int) -> Cutter:
    """Cut `num_parts` clusters by METIS, and join some with the edges among them (Cluster-GCN; Chiang et al. 2019).

    Raises:
        BadInput: an edge has no reverse one, which METIS needs.
    """
    whole = _whole(table)
    if not is_undirected(whole.edge_index, num_nodes=whole.num_nodes):
        raise BadInput("data.sampler clusters: METIS needs edges in both directions. Take data.sampler random.")
    loader = ClusterLoader(ClusterData(whole, num_parts, log=False))
    return lambda numbers: _predict_all(loader._collate(numbers))


def _predict_all(part: Data) -> Piece:
    return Piece(part.node_id, part.edge_id, part.edge_index, len(part.node_id))


def check_layout(table: GraphTable, sampler: str) -> None:
    """Refuse encodings with rows of anything but nodes and edges, which parts cannot take over."""
    for name, column in table.layout.items():
        if column.axis not in (NODE, EDGE, GRAPH) or (column.index_of is not None and name != "edge_index"):
            raise BadInput(
                f"data.sampler {sampler}: {name} has a row for each {column.axis}, which parts of a graph cannot take "
                "over. Take data.sampler full, or a model without that encoding."
            )


class NodeParts:
    """Cut batches that are parts of one graph.

    Beside the usual fields, a batch has `node_id [num_nodes]`, numbers in the whole graph, and the mask `asked
    [num_nodes]` of the nodes that are predicted: the others have no target here.

    Args:
        table: of one graph, with targets.
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
                values = values[chosen[column.axis]] if column.axis in chosen else values
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
        gathered: the graph with everything but targets, which splits may share.
        targets: of all nodes `[N, T]`, -1 or NaN for those of other splits.
    """

    def __init__(self, gathered: GraphBatch, targets: Tensor) -> None:
        self.gathered, self.targets = gathered, targets

    def __call__(self, rows: Sequence[int]) -> GraphBatch:
        """Return the graph; there is one row."""
        batch = copy.copy(self.gathered)
        batch[_TARGETS] = self.targets
        return batch


def mask_targets(targets: Tensor, mask: Tensor) -> Tensor:
    """Keep the targets `[N, T]` of the nodes in the mask `[N]`; the others get -1 (classes) or NaN (numbers).

    Examples:
        >>> mask_targets(torch.tensor([[2], [1]]), torch.tensor([True, False])).tolist()
        [[2], [-1]]
    """
    return torch.where(mask[:, None], targets, torch.nan if targets.is_floating_point() else -1)


def labelled_nodes(targets: Tensor) -> Tensor:
    """Return the nodes with at least one target, ascending."""
    present = ~targets.isnan() if targets.is_floating_point() else targets >= 0
    return present.any(1).nonzero()[:, 0]


def targets_of_rank(targets: Tensor, rank: int, world_size: int) -> Tensor:
    """Return the targets `[N, T]` that one of several processes counts; every target belongs to one process."""
    mine = torch.zeros(len(targets), dtype=torch.bool)
    mine[labelled_nodes(targets)[rank::world_size]] = True
    return mask_targets(targets, mine)
