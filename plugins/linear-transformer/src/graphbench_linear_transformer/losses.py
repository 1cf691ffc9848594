"""Losses that do not ask for what is arbitrary: the sign of an eigenvector."""

from __future__ import annotations

import torch
from torch import Tensor

from graphbench.errors import BadInput


def sign_invariant_errors(predicted: Tensor, target: Tensor, graph_of: Tensor, num_graphs: int) -> Tensor:
    """`min(‖φ_i - v_i‖², ‖φ_i + v_i‖²)` of every column i of every graph (section 4.1 of arXiv 2410.16699).

    Args:
        predicted: φ `[num_nodes, c]`, the nodes of all graphs one after the other.
        target: v `[num_nodes, c]`.
        graph_of: graph of each node `[num_nodes]`.
        num_graphs: G.

    Returns:
        `[num_graphs, c]`.

    Raises:
        BadInput: the shapes do not fit.

    Examples:
        >>> vector = torch.tensor([[0.6], [0.8]])
        >>> sign_invariant_errors(-vector, vector, torch.tensor([0, 0]), num_graphs=1)
        tensor([[0.]])
    """
    if predicted.shape != target.shape or predicted.dim() != 2 or graph_of.shape != predicted.shape[:1]:
        raise BadInput(
            f"Expected predictions and targets [num_nodes, c] and graph_of [num_nodes], but got "
            f"{list(predicted.shape)}, {list(target.shape)} and {list(graph_of.shape)}."
        )
    squares = torch.cat([(predicted - target).square(), (predicted + target).square()], dim=1)
    same, opposite = squares.new_zeros(num_graphs, squares.shape[1]).index_add(0, graph_of, squares).chunk(2, dim=1)
    return torch.minimum(same, opposite)


def eigenvector_loss(predicted: Tensor, target: Tensor, graph_of: Tensor, num_graphs: int) -> Tensor:
    """Mean over graphs of the sum over columns of `sign_invariant_errors`: what the authors pre-train on.

    Examples:
        >>> vector = torch.tensor([[0.6], [0.8]])
        >>> eigenvector_loss(torch.zeros(2, 1), vector, torch.tensor([0, 0]), num_graphs=1)  # |v|^2
        tensor(1.)
    """
    return sign_invariant_errors(predicted, target, graph_of, num_graphs).sum(1).mean()
