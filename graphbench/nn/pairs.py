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
    """Both nodes of every pair of nodes of one graph `[P]`, in the order of the axis "pair", `i * n + j` in a graph.

    They are counted, not divided: compiled code divides by the sizes of graphs in lanes that hold no pair, too, where
    these are 0. P, the sum of n^2 over the graphs, is given so that nothing waits for the device.

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
    """The first steps of all shortest paths of a batch, see `ShortestPaths`; K of them, by pair, in any order."""

    def __init__(self, batch: GraphBatch) -> None:
        source, target = batch.edge_index[:, batch.path_step_edge]
        graph = batch.path_step_batch
        size, start = batch.ptr.diff()[graph], batch.ptr[graph]
        pair = batch.pair_ptr[graph] + (source - start) * size + batch.path_step_goal - start
        pair, order = pair.sort()
        self.pair, self.edge, self.weight = pair, batch.path_step_edge[order], batch.path_step_weight[order]
        # A step from i over j leaves the path from j to the same goal: a pair `(j - i) n` further on.
        #: Pair of what is left of the paths after the step `[K]`.
        self.following = pair + ((target - source) * size)[order]
        #: Steps of each pair `[P]`, and the first of them `[P]`.
        self.number = count_nodes(pair, batch.shortest_path_distance.shape[0])
        self.first = self.number.cumsum(0) - self.number

    def mean_over(self, rows: Tensor, num_rows: int) -> Callable[[Tensor], Tensor]:
        """Return the map from `values [R, H]` to their weighted mean at `rows [K]` over each pair's steps `[P, H]`."""
        forward = _Bags(rows, self.first, self.weight)
        rows, order = rows.sort()
        # The gradient of a row is a weighted sum, too: over the steps that read it, which sorting puts side by side.
        number = count_nodes(rows, num_rows)
        back = _Bags(self.pair[order], number.cumsum(0) - number, self.weight[order])
        return lambda values: _WeightedSums.apply(values, forward, back)

    def lengths(self, limit: int) -> Tensor:
        """Edges of the shortest paths of each pair, at most `limit` `[P]`: any of them, since all are as long."""
        onward = torch.cat([self.following, self.following.new_zeros(1)])  # the last one is for pairs without a step
        at = torch.arange(self.number.shape[0], device=self.number.device)
        length = torch.zeros_like(at)
        for _ in range(limit):
            # Every pair takes a step at once; those that have arrived, or never set out, stay where they are.
            goes_on = self.number[at] > 0
            length += goes_on
            at = torch.where(goes_on, onward[self.first[at]], at)
        return length


class _WeightedSums(torch.autograd.Function):
    """`out_p = sum w_s values[rows_s]` over the steps s of pair p, and back by the same kernel along sorted rows.

    The backward pass of `embedding_bag` sorts the rows each time, which costs more than all the rest of a hop.
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
        """Sum of each bag `[B, H]` of `values [R, H]`; 0 where it is empty."""
        return F.embedding_bag(
            self.rows, values, self.first, mode="sum", per_sample_weights=self.weight.to(values.dtype)
        )
