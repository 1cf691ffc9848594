"""Scaling to unit length, with nothing done to what is zero: padding and empty graphs stay exactly zero."""

from __future__ import annotations

import torch
from torch import Tensor


def nonzero(length: Tensor) -> Tensor:
    """Lengths to divide by: 1 stands for 0, so that 0 / 0 is 0 and its gradient finite."""
    return torch.where(length > 0, length, torch.ones_like(length))


def unit_columns(features: Tensor) -> Tensor:
    """Every column over the nodes `[..., n, m]` with Euclidean length 1: `normalize` of equation (6)."""
    return features / nonzero(torch.linalg.vector_norm(features, dim=-2, keepdim=True))


def unit_frobenius(matrix: Tensor) -> Tensor:
    """The whole matrix `[..., n, m]` with Frobenius norm 1 (section 3.5 of the paper)."""
    return matrix / nonzero(torch.linalg.vector_norm(matrix, dim=(-2, -1), keepdim=True))


def inverse_root(degree: Tensor) -> Tensor:
    """`degree ** -0.5`, and 0 where the degree is 0."""
    return torch.where(degree > 0, nonzero(degree).rsqrt(), torch.zeros_like(degree))


def root(square: Tensor) -> Tensor:
    """`square ** 0.5`, with gradient 0 where the square is not positive."""
    return torch.where(square > 0, nonzero(square).sqrt(), torch.zeros_like(square))
