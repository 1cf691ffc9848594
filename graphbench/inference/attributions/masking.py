"""Masking: how much a prediction changes if one node, or one line, has the features of the reference.

    M_i = F(h) - F(h with h_i = h'_i)

It masks one part at a time, so redundant parts get little, and parts that count only together each get the whole
effect: the sum of all M_i is F(h) - F(h') if F is additive, and not otherwise. The edges between two nodes, in both
directions, are masked together, and each gets an equal share of the value.
"""

from __future__ import annotations

import torch
from torch import Tensor

from graphbench.inference.attributions.question import Question, lines_of, spread_over_edges


def masking(question: Question) -> tuple[Tensor, Tensor | None]:
    """Return values of the nodes `[n]` and of the directed edges `[m]`, None if the model reads no edge features."""
    num_nodes, num_edges = question.num_nodes, question.num_edges
    nodes = torch.zeros(num_nodes, dtype=torch.float64)
    if "node" in question.kinds:
        mask = ~torch.eye(num_nodes, dtype=torch.bool)
        nodes = question.prediction - question.masked(mask, torch.ones(num_nodes, num_edges, dtype=torch.bool))
    if "edge" not in question.kinds:
        return nodes, None
    line, count = lines_of(question.graph.edge_index)
    mask = line[None] != torch.arange(count)[:, None]
    values = question.prediction - question.masked(torch.ones(count, num_nodes, dtype=torch.bool), mask)
    return nodes, spread_over_edges(values, line)
