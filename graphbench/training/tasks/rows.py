"""Identify the graph, node or edge of each row of a task's predictions."""

from __future__ import annotations

import torch
from torch import Tensor

from graphbench.contracts.spec import Level
from graphbench.contracts.table import ENDS, GraphBatch

#: Prefix of the entries of `predict_step` with a task's spreads.
SPREAD = "spread of "
#: The entry of `predict_step` with the head's output.
OUTPUT = "output"


def rows_of(level: Level, batch: GraphBatch) -> dict[str, Tensor]:
    """Return graph, node or edge of each prediction of a batch, `[rows]` each, depending on the task's level.

    `graph` is the number in the table; `node`, or `source` and `destination` of an edge, or `head` and `tail` of a
    pair, are numbers within that graph.

    Examples:
        >>> from graphbench.contracts import GraphTable
        >>> path = {"num_nodes": 2, "edge_index": torch.tensor([[0], [1]])}
        >>> rows_of("node", GraphTable.from_graphs([path, path]).batch([1, 0]))
        {'graph': tensor([1, 1, 0, 0]), 'node': tensor([0, 1, 0, 1])}
    """
    if level == "graph":
        return {"graph": batch.graph_id}
    names: tuple[str, ...]
    if level == "pair":
        names, nodes = ("head", "tail"), batch.contact_index
    elif level == "edge":
        names, nodes = ENDS, batch.edge_index.t()
    else:
        names, nodes = ("node",), torch.arange(batch.batch.shape[0], device=batch.batch.device)[:, None]
    graph = batch.batch[nodes[:, 0]]
    # Parts of one large graph have their own node numbers; `node_id` has the numbers in the whole graph.
    within = nodes - batch.ptr[graph][:, None] if "node_id" not in batch else batch.node_id[:, None]
    return {"graph": batch.graph_id[graph]} | dict(zip(names, within.unbind(1), strict=True))
