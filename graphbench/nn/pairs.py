"""Pairs of nodes of one graph, and the first steps of the shortest paths between them.

Legend: P node pairs, K steps of all pairs, H heads.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

from graphbench.contracts import GraphBatch
from graphbench.nn.convolution import count_nodes


def node_pairs(batch: GraphBatch, num_pairs: int) -> tuple[Tensor, Tensor]:
    """Return both nodes of every pair within a graph `[P]`, in the order of the axis "pair", `i * n + j` in a graph.

    Positions are counted, without division: compiled code would also divide in lanes without a pair, where graph sizes
    are 0. P, the sum of n^2 over the graphs, is an argument so that nothing waits for the device.

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


class PathSteps:
    """The K first steps of all shortest paths in a batch, see `ShortestPaths`; sorted by pair, else in any order."""

    def __init__(self, batch: GraphBatch) -> None:
        source, target = batch.edge_index[:, batch.path_step_edge]
        graph = batch.path_step_batch
        size, start = batch.ptr.diff()[graph], batch.ptr[graph]
        pair = batch.pair_ptr[graph] + (source - start) * size + batch.path_step_goal - start
        pair, order = pair.sort()
        self.pair, self.edge, self.weight = pair, batch.path_step_edge[order], batch.path_step_weight[order]
        # After a step from i to j the path from j to the same goal remains: its pair is `(j - i) n` places further.
        #: Pair of the path that remains after the step `[K]`.
        self.following = pair + ((target - source) * size)[order]
        #: Steps of each pair `[P]`, and the first of them `[P]`.
        self.number = count_nodes(pair, batch.shortest_path_distance.shape[0])
        self.first = self.number.cumsum(0) - self.number

    def mean_over(self, rows: Tensor, num_rows: int) -> Callable[[Tensor], Tensor]:
        """Return the map from `values [R, H]` to their weighted mean at `rows [K]` over each pair's steps `[P, H]`."""
        forward = _Bags(rows, self.first, self.weight)
        rows, order = rows.sort()
        # The gradient of a row is also a weighted sum, over the steps that read it, which sorting makes adjacent.
        number = count_nodes(rows, num_rows)
        back = _Bags(self.pair[order], number.cumsum(0) - number, self.weight[order])
        return lambda values: _WeightedSums.apply(values, forward, back)

    def lengths(self, limit: int) -> Tensor:
        """Return the number of edges of each pair's shortest paths, which are equally long, at most `limit`: `[P]`."""
        onward = torch.cat([self.following, self.following.new_zeros(1)])  # the last one is for pairs without a step
        at = torch.arange(self.number.shape[0], device=self.number.device)
        length = torch.zeros_like(at)
        for _ in range(limit):
            # All pairs take a step at once; those that have arrived, or have no path, do not move.
            goes_on = self.number[at] > 0
            length += goes_on
            at = torch.where(goes_on, onward[self.first[at]], at)
        return length


class _WeightedSums(torch.autograd.Function):
    """`out_p = sum w_s values[rows_s]` over the steps s of pair p, and back by the same kernel along sorted rows.

    The backward pass of `embedding_bag` sorts the rows each time, which costs more than the rest of a hop.
    """

    generate_vmap_rule = True

    @staticmethod
    def forward(values: Tensor, there: _Bags, back: _Bags) -> Tensor:
        return there.sums(values)

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Tensor, _Bags, _Bags], output: Tensor) -> None:
        ctx.back = inputs[2]

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> tuple[Tensor, None, None]:
        return ctx.back.sums(grads[0]), None, None


@dataclass(frozen=True)
class _Bags:
    """Rows that are summed with weights, bag by bag."""

    rows: Tensor  # [K], those of a bag together
    first: Tensor  # [B], of each bag
    weight: Tensor  # [K]

    def sums(self, values: Tensor) -> Tensor:
        """Return the sum of each bag `[B, H]` of `values [R, H]`; 0 for an empty bag."""
        return F.embedding_bag(
            self.rows, values, self.first, mode="sum", per_sample_weights=self.weight.to(values.dtype)
        )
