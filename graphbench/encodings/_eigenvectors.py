"""One agreed eigenbasis per matrix, whatever the linear-algebra library returned.

An eigenvector is defined up to its sign, a degenerate eigenspace up to a rotation. What a library returns there
depends on the last bit of its arithmetic, even on the memory address of the matrix: molecules, full of symmetric
groups, would get another basis whenever they share a chunk with other graphs. Here the basis is a function of the
eigenspaces alone, up to rounding.
"""

from __future__ import annotations

import torch
from torch import Tensor

#: Eigenvalues closer than this part of the largest one share an eigenspace. Rounding parts equal ones by some 1e-13 of
#: it. A connected graph of n nodes has no eigenvalue between 0 and 4 / n^2 (Mohar 1991) and none above n, so that up
#: to the 2,048 nodes of a dense matrix nothing but eigenvectors of 0 ever joins those of 0.
SAME_VALUE = 1e-11
#: Entries that differ by less tie; the first of them leads.
TIE = 1e-6


def smallest_eigenpairs(matrices: Tensor, count: int) -> tuple[Tensor, Tensor]:
    """The `count` smallest eigenvalues and orthonormal eigenvectors of positive semi-definite matrices.

    Each eigenspace gets the pivoted Cholesky factor of its projector P as basis: the pivot is the node with the
    largest P_ii (the first of equals), its vector P e_i / sqrt(P_ii), which is then projected out of P. So a vector
    leans on one node as far as its eigenspace allows and is positive there; a simple eigenvector has its largest
    entry positive. The basis depends on the order of nodes only where nodes are symmetric.

    Args:
        matrices: symmetric, float64 `[b, n, n]`.
        count: at most n.

    Returns:
        Eigenvalues `[b, count]`, ascending, those within rounding of 0 set to 0; eigenvectors `[b, n, count]`.
    """
    values, vectors = torch.linalg.eigh(matrices)
    largest = values[:, -1:]
    joined = torch.zeros_like(values, dtype=torch.bool)
    joined[:, 1:] = values.diff(dim=1) <= SAME_VALUE * largest
    _agree_on_bases(vectors, joined, count)
    rounding = matrices.shape[-1] * torch.finfo(matrices.dtype).eps * largest
    values = torch.where(values <= rounding, 0.0, values)[:, :count]
    return values, vectors[:, :, :count]


def _agree_on_bases(vectors: Tensor, joined: Tensor, count: int) -> None:
    """Rotate, in place, every eigenspace that starts before column `count` to its agreed basis.

    `joined [b, n]` is True where a column shares the eigenspace of the column before it.
    """
    space = (~joined).cumsum(1) - 1
    multiplicity = torch.zeros_like(space).scatter_add_(1, space, torch.ones_like(space))
    starts = (~joined).nonzero()
    starts = starts[starts[:, 1] < count]
    sizes = multiplicity[starts[:, 0], space[starts[:, 0], starts[:, 1]]]
    rows = torch.arange(vectors.shape[1])[None, :, None]
    for size in sizes.unique().tolist():
        graph, first = starts[sizes == size].unbind(1)
        columns = first[:, None, None] + torch.arange(size)
        where = (graph[:, None, None], rows, columns)
        vectors[where] = pivoted_basis(vectors[where], min(size, count))


def pivoted_basis(basis: Tensor, count: int) -> Tensor:
    """Agreed orthonormal bases of the spaces that `basis [c, n, m]` spans; the first `count` columns are final."""
    remaining, result = basis.clone(), basis.clone()
    spaces = torch.arange(len(basis))
    for column in range(count):
        weight = remaining.square().sum(-1)
        pivot = (weight >= weight.amax(1, keepdim=True) - TIE).int().argmax(1)
        lead = remaining[spaces, pivot]
        lead = lead / lead.norm(dim=1, keepdim=True)
        result[:, :, column] = (remaining * lead[:, None, :]).sum(-1)
        remaining -= result[:, :, column, None] * lead[:, None, :]
    return result
