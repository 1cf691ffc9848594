"""Norms and roots that preserve zeros, so padding and empty graphs stay exactly zero; row sums of |M B_0|."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable

#: Numbers in a temporary block of columns of M B_0: 4 MB in float32.
_BLOCK_NUMBERS = 2**20


def nonzero(length: Tensor) -> Tensor:
    """Replace lengths of 0 with 1, so that 0 / 0 is 0 and its gradient finite."""
    return torch.where(length > 0, length, torch.ones_like(length))


def unit_columns(features: Tensor) -> Tensor:
    """Scale every column over the nodes `[..., n, m]` to Euclidean length 1: `normalize` of equation (6)."""
    return features / nonzero(torch.linalg.vector_norm(features, dim=-2, keepdim=True))


def unit_frobenius(matrix: Tensor) -> Tensor:
    """Scale the matrix `[..., n, m]` to Frobenius norm 1 (section 3.5 of the paper)."""
    return matrix / nonzero(torch.linalg.vector_norm(matrix, dim=(-2, -1), keepdim=True))


def inverse_root(degree: Tensor) -> Tensor:
    """Compute `degree ** -0.5`, and 0 where the degree is 0."""
    # `nonzero` also inside: rsqrt(0) has an infinite gradient, which `where` would turn into NaN.
    return torch.where(degree > 0, nonzero(degree).rsqrt(), torch.zeros_like(degree))


def root(square: Tensor) -> Tensor:
    """Compute `square ** 0.5`, with gradient 0 where the square is not positive."""
    return torch.where(square > 0, nonzero(square).sqrt(), torch.zeros_like(square))


class AbsoluteSums(torch.autograd.Function):
    """`sum_e |w_e| |M_{i,head(e)} - M_{i,tail(e)}|`, `[..., n]`, one block of edges at a time, forward and backward."""

    @staticmethod
    def forward(ctx: Any, left: Tensor, weight: Tensor, tail: Tensor, head: Tensor) -> Tensor:
        """Compute sums `[..., n]` from M `[..., n, n]` and the edges' weights, tails and heads `[d]`."""
        ctx.save_for_backward(left, weight, tail, head)
        n = left.shape[-1]
        # One row per column of M over all graphs, in the numbering of `head` and `tail`.
        columns = left.mT.reshape(-1, n)
        total = columns.new_zeros(columns.shape[0] // max(n, 1), n)
        for start, stop in _blocks(len(weight), n):
            entries = (columns[head[start:stop]] - columns[tail[start:stop]]).abs_()
            total.index_add_(0, head[start:stop] // n, entries.mul_(weight[start:stop, None].abs()))
        return total.view(left.shape[:-1])

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor, Tensor, None, None]:
        """Compute gradients of M and the weights, recomputing the columns of M B_0."""
        left, weight, tail, head = ctx.saved_tensors
        n = left.shape[-1]
        columns, grad = left.mT.reshape(-1, n), grad.reshape(-1, n)
        grad_columns, grad_weight = torch.zeros_like(columns), torch.empty_like(weight)
        for start, stop in _blocks(len(weight), n):
            to, away, part = head[start:stop], tail[start:stop], weight[start:stop]
            entries = columns[to] - columns[away]
            pulled = grad[to // n]
            grad_weight[start:stop] = (entries.abs() * pulled).sum(-1) * part.sign()
            pulled = pulled * entries.sign_() * part[:, None].abs()
            grad_columns.index_add_(0, to, pulled).index_add_(0, away, pulled, alpha=-1)
        return grad_columns.view(left.mT.shape).mT, grad_weight, None, None


def _blocks(num_edges: int, num_nodes: int) -> list[tuple[int, int]]:
    size = max(1, _BLOCK_NUMBERS // max(num_nodes, 1))
    return [(start, min(start + size, num_edges)) for start in range(0, num_edges, size)]
