"""Compute representations of all nodes of one large graph layer by layer, in blocks, like PyG's `BasicGNN.inference`.

Every node passes through the first layer, then every node through the second. Nothing is computed twice, and a block
reads only its edges and one row per neighbour. These rows are in unnamed memory-mapped files, which vanish with the
process.

Legend: N nodes of the whole graph, n of a batch, E its edges.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from graphbench.benchmarks.graphs.by_nodes.batches import Cutter, NodeParts, Piece, separate_nodes
from graphbench.benchmarks.graphs.by_nodes.incoming import IncomingEdges
from graphbench.contracts import GraphBatch, GraphTable, NodeStep
from graphbench.contracts.table import NODE
from graphbench.data.loader import GraphLoader
from graphbench.data.mapped import RESIDENT_LIMIT, map_new, trim_mapped

#: Field of a batch whose node representations have already been computed.
REPRESENTED = "represented"
#: Nodes whose predictions are computed at once, from their representations.
ROWS = 1 << 16
#: Numbers in the messages of a block: 16 MiB in float32, which the allocator keeps for the next one.
BLOCK = 1 << 22
_STATE = "state_"
_FIRST_WIDTH = 256  # assumed width of the output of the first step


@torch.no_grad()
def represent_nodes(
    table: GraphTable,
    edges: IncomingEdges,
    steps: Sequence[NodeStep],
    folder: Path,
    move: Callable[[GraphBatch], GraphBatch] = lambda batch: batch,
    block: int | None = None,
) -> Tensor:
    """Run steps one after the other, each over all nodes; the result is exact for any blocks.

    `table` has one graph, with targets. `folder` needs space for the two widest states of all nodes. `move` brings a
    batch to the device and precision of the model, and `block` is the count of numbers in the messages of a block,
    `BLOCK` by default.

    Returns:
        Nodes `[N, dim]`, memory-mapped.
    """
    num_nodes = edges.num_nodes
    states: dict[str, Tensor] = {}
    for number, step in enumerate(steps):
        # The first step sees no edges, so they do not limit its blocks either.
        cutter, ptr = (_with_sources(edges), edges.ptr) if number else (separate_nodes, np.zeros_like(edges.ptr))
        seen = _without_features(table) if number else table
        cut, new = NodeParts(seen, cutter, torch.arange(num_nodes)), dict[str, Tensor]()
        width = max((values[0].numel() for values in states.values()), default=_FIRST_WIDTH)
        for first, end in _blocks(ptr, max(1, (block or BLOCK) // width)):
            batch = cut(range(first, end))
            batch.ptr = torch.tensor([0, num_nodes])
            for name, values in states.items():  # they go to the device with the features
                batch[_STATE + name] = values.index_select(0, batch.node_id)
            batch = move(batch)
            for name, values in step(batch, {name: batch[_STATE + name] for name in states}).items():
                if name not in new:
                    new[name] = map_new(folder, torch.Size([num_nodes, *values.shape[1:]]), values.dtype)
                new[name][first:end] = values[: end - first]
            # States are read everywhere: released with the rest, they would be mapped again for each block.
            trim_mapped(RESIDENT_LIMIT + sum(values.nbytes for values in states.values()))
        states |= new
    return states["x"]


def _with_sources(edges: IncomingEdges) -> Cutter:
    """Cut a block of successive nodes with all edges to them.

    The source of each edge from another block gets a separate row: among the few edges of a block hardly any share a
    source, and finding those costs more than reading their states again.
    """

    def cut(nodes: Tensor) -> Piece:
        first, end = int(nodes[0]), int(nodes[-1]) + 1
        places = slice(edges.ptr[first], edges.ptr[end])
        sources = torch.from_numpy(edges.sources[places].astype(np.int64))
        elsewhere = (sources < first) | (sources >= end)
        others = sources[elsewhere]
        heads = sources - first
        heads[elsewhere] = torch.arange(len(nodes), len(nodes) + len(others))
        tails = np.repeat(np.arange(len(nodes)), np.diff(edges.ptr[first : end + 1]))
        numbers = torch.from_numpy(edges.numbers[places].astype(np.int64))
        return Piece(torch.cat([nodes, others]), numbers, torch.stack([heads, torch.from_numpy(tails)]), len(nodes))

    return cut


def _without_features(table: GraphTable) -> GraphTable:
    """Remove the features of nodes, which only the first step reads."""
    layout = {name: column for name, column in table.layout.items() if column.axis != NODE or name == "y"}
    return GraphTable({name: table.columns[name] for name in layout}, layout, table.ptr)


def _blocks(ptr: np.ndarray, limit: int) -> Iterator[tuple[int, int]]:
    """Yield first node and end of blocks with at most `limit` nodes and edges in total, or with one node."""
    cost, first = ptr + np.arange(len(ptr)), 0
    while first < len(ptr) - 1:
        end = max(first + 1, int(np.searchsorted(cost, cost[first] + limit, side="right")) - 1)
        yield first, end
        first = end


class RepresentedLoader(GraphLoader):
    """Batches of nodes without edges; the representations of all nodes are computed before the first batch.

    Args:
        table: table of one graph, with targets.
        batch_sampler: yields rows of `units`.
        units: nodes that are predicted.
        represent: returns nodes `[N, dim]` for the current weights.
    """

    def __init__(self, table: GraphTable, batch_sampler: Any, units: Tensor, represent: Callable[[], Tensor]) -> None:
        super().__init__(table, batch_sampler, cut=NodeParts(table, separate_nodes, units))
        self.represent = represent

    def __iter__(self) -> Iterator[GraphBatch]:
        # Not when the iterator is created: Lightning does that before callbacks swap weights (EMA).
        nodes = self.represent()
        for batch in super().__iter__():
            batch[REPRESENTED] = nodes.index_select(0, batch.node_id)
            yield batch
