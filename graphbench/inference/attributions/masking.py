"""Masking: how much a prediction changes if one node, or one line, has the features of the reference.

    M_i = F(h) - F(h with h_i = h'_i)

It masks one part at a time, so redundant parts get little, and parts that count only together each get the whole
effect: the sum of all M_i is F(h) - F(h') if F is additive, and not otherwise. The edges between two nodes, in both
directions, are masked together, and each gets an equal share of the value.
"""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor

from graphbench.data.progress import progress
from graphbench.inference.attributions.question import Question, lines_of, spread_over_edges


def masking(question: Question) -> tuple[Tensor, Tensor | None]:
    """Return values of the nodes `[n]` and of the directed edges `[m]`, None if the model reads no edge features."""
    every_node, every_edge = torch.arange(question.num_nodes), torch.ones(question.num_edges, dtype=torch.bool)
    nodes = torch.zeros(question.num_nodes, dtype=torch.float64)
    if "node" in question.kinds:

        def without_nodes(part: Tensor) -> tuple[Tensor, Tensor]:
            return part[:, None] != every_node, every_edge.expand(len(part), -1)

        nodes = _losses(question, question.num_nodes, "nodes", without_nodes)
    if "edge" not in question.kinds:
        return nodes, None
    line, count = lines_of(question.graph.edge_index)

    def without_lines(part: Tensor) -> tuple[Tensor, Tensor]:
        return torch.ones(len(part), len(every_node), dtype=torch.bool), part[:, None] != line

    return nodes, spread_over_edges(_losses(question, count, "lines", without_lines), line)


def _losses(question: Question, count: int, what: str, masks: Callable[[Tensor], tuple[Tensor, Tensor]]) -> Tensor:
    """Return what the prediction loses without each of `count` parts, from masks of nodes and edges without some."""
    values = [torch.zeros(0, dtype=torch.float64)]
    with progress("Masking", count, what) as advance:
        # Masks of a few parts at a time: those of all take memory with the square of a graph's size.
        for part in torch.arange(count).split(question.at_once) if count else ():
            values.append(question.prediction - question.masked(*masks(part)))
            advance(len(part))
    return torch.cat(values)
