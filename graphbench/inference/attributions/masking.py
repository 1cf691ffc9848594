"""Masking: what a prediction loses when one node, or one line, has the features of the reference.

    M_i = F(h) - F(h with h_i = h'_i)

One part at a time, so that parts which stand in for each other get little, and parts that count only together get the
whole each: the sum of all M_i is F(h) - F(h') where F is additive, and not otherwise. The edges between two nodes, both
directions, are masked together, and each has an equal part of the value.
"""

from __future__ import annotations

import torch
from torch import Tensor

from graphbench.inference.attributions.question import Question, lines_of, spread_over_edges


def masking(question: Question) -> tuple[Tensor, Tensor | None]:
    """Values of the nodes `[n]` and of the directed edges `[m]`, None where the model reads no features of edges."""
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
