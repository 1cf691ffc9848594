"""The pairs of nodes that a batch has fields of."""

from __future__ import annotations

import torch
from torch import Tensor

from graphbench.contracts import GraphBatch


def node_pairs(batch: GraphBatch, num_pairs: int) -> tuple[Tensor, Tensor]:
    """Both nodes of every pair of nodes of one graph, in the order of the axis "pair": `i * n + j` within a graph.

    They are counted, not divided: compiled code divides by the sizes of graphs in lanes that hold no pair, too, where
    these are 0.

    Args:
        batch: the graphs.
        num_pairs: P, the sum of n^2 over the graphs; given, so that nothing waits for the device.

    Returns:
        Nodes i and nodes j `[P]`, numbers among all nodes of the batch.

    Examples:
        >>> from graphbench.testing import tiny_spec, tiny_table
        >>> first, second = node_pairs(tiny_table(tiny_spec(), sizes=[1, 2]).batch([0, 1]), 5)
        >>> first.tolist(), second.tolist()
        ([0, 1, 1, 2, 2], [0, 1, 2, 1, 2])
    """
    sizes = batch.ptr.diff()[batch.batch]
    nodes = torch.arange(sizes.shape[0], device=sizes.device)
    first = torch.repeat_interleave(nodes, sizes, output_size=num_pairs)
    before = sizes.cumsum(0) - sizes  # pairs of the nodes before
    place = torch.arange(num_pairs, device=sizes.device) - before[first]
    return first, batch.ptr[batch.batch[first]] + place
