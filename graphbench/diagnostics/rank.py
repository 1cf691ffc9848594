"""Measure how many directions the tokens of a graph span.

Rank progression of token matrices by layer: "Sampling Foundational Transformer", figures 3 and 8. Rank collapse: Dong,
Cordonnier & Loukas, "Attention is not all you need: pure attention loses rank doubly exponentially with depth", 2021.

Legend: X the tokens of one graph `[n, d]`, sigma its singular values in descending order, T tokens of all graphs, G
graphs. Functions named `..._per_graph` accept the tokens `[T, d]` of many graphs one after another (or mixed) with the
graph of each, `batch [T]`, and `num_graphs`, G, in case the last graphs have no tokens. Their results for a graph do
not depend on the other graphs.
"""

from __future__ import annotations

from typing import Literal

import torch
from torch import Tensor

from graphbench.diagnostics.ragged import (
    Ragged,
    centred,
    checked_rows,
    norm_per_graph,
    result_dtype,
    single_graph,
    sum_per_graph,
)
from graphbench.errors import BadInput, check_choice


def singular_values_per_graph(tokens: Tensor, batch: Tensor, num_graphs: int | None = None) -> Tensor:
    """Compute singular values of each graph's tokens, descending, float64 `[G, r]`, `r` the largest of `min(n, d)`.

    A graph with fewer values has zeros after them; a graph with NaN or infinite tokens has NaN. The values of tokens
    coarser than float64 come from the smaller Gram matrix in double precision, with an absolute error of at most
    `sqrt(min(n, d) eps_64) sigma_1`, far below the rounding of the tokens themselves. float64 tokens get a full SVD.

    Examples:
        >>> tokens = torch.tensor([[2.0, 0.0], [0.0, 1.0], [1.0, 1.0]])
        >>> singular_values_per_graph(tokens, torch.tensor([0, 0, 1]))
        tensor([[2.0000, 1.0000],
                [1.4142, 0.0000]], dtype=torch.float64)
    """
    rows, numbers, count = _checked(tokens, batch, num_graphs)
    # Non-finite graphs are set to zero and marked at the end: LAPACK fails on a batch with one NaN.
    finite = sum_per_graph((~rows.isfinite()).sum(-1), numbers, count) == 0
    rows = torch.where(finite[numbers].unsqueeze(-1), rows, 0.0)
    ragged, dim = Ragged(numbers, count), rows.shape[1]
    side = min(int(ragged.sizes.max()), dim) if count else 0
    out = rows.new_zeros(count, side)
    for graphs, width in ragged.buckets(lambda n: n * max(n, dim)):
        index, mask = ragged.padded(graphs, width)
        dense = rows[index] * mask.unsqueeze(-1)
        exact = tokens.dtype == torch.float64
        values = torch.linalg.svdvals(dense) if exact else _singular_values_by_gram(dense)
        out[graphs, : values.shape[1]] = values
    out[~finite] = torch.nan
    return out


def _checked(tokens: Tensor, batch: Tensor, num_graphs: int | None) -> tuple[Tensor, Tensor, int]:
    if tokens.dim() != 2:
        raise BadInput(f"tokens must be a matrix [num_tokens, dim], got shape {list(tokens.shape)}.")
    return checked_rows(tokens, batch, num_graphs)


def _singular_values_by_gram(dense: Tensor) -> Tensor:
    """Return singular values of `[B, n, d]` matrices, descending, from the eigenvalues of the smaller Gram matrix."""
    side = dense if dense.shape[1] <= dense.shape[2] else dense.transpose(1, 2)
    squares = torch.linalg.eigvalsh(side @ side.transpose(1, 2)).flip(-1)
    # Squares below this are rounding errors of the largest one; their roots would count as directions.
    noise = squares[:, :1] * squares.shape[1] * torch.finfo(squares.dtype).eps
    return torch.where(squares > noise, squares, 0.0).sqrt()


def numerical_rank(tokens: Tensor, rtol: float | None = None) -> Tensor:
    """Count singular values above a tolerance: `#{k : sigma_k > rtol sigma_1}`, int64 scalar.

    Args:
        tokens: X `[n, d]`.
        rtol: relative tolerance; by default `max(n, d) eps`, as in `torch.linalg.matrix_rank`, with the `eps` of
            float64 for float64 tokens and of float32 for all others. Half-precision tokens count as exact numbers, so
            their own rounding adds rank; set `rtol` to ignore it.

    Examples:
        >>> numerical_rank(torch.tensor([[2.0, 0.0], [0.0, 1.0]]))
        tensor(2)
    """
    return numerical_rank_per_graph(tokens, single_graph(tokens), rtol, num_graphs=1)[0]


def numerical_rank_per_graph(
    tokens: Tensor, batch: Tensor, rtol: float | None = None, num_graphs: int | None = None
) -> Tensor:
    """Compute `numerical_rank` of each graph, int64 `[G]`, with the tolerance for the graph's size.

    Examples:
        >>> tokens = torch.tensor([[2.0, 0.0], [0.0, 1.0], [1.0, 1.0]])
        >>> numerical_rank_per_graph(tokens, torch.tensor([0, 0, 1]))
        tensor([2, 1])
    """
    singular = singular_values_per_graph(tokens, batch, num_graphs)
    sizes = torch.bincount(batch.to(singular.device), minlength=len(singular))
    return rank_of_singular_values(singular, default_rtol(tokens, sizes) if rtol is None else rtol)


def default_rtol(tokens: Tensor, sizes: Tensor) -> Tensor:
    """Return `max(n, d) eps` of graphs with n = `sizes [G]` tokens, float64 `[G]`."""
    return sizes.clamp(min=tokens.shape[1]).double() * torch.finfo(result_dtype(tokens)).eps


def rank_of_singular_values(singular: Tensor, rtol: Tensor | float) -> Tensor:
    """Return numerical ranks, int64 `[G]`, of singular values `[G, r]`; `rtol` is one number or one per graph `[G]`."""
    threshold = singular[:, :1] * torch.as_tensor(rtol, device=singular.device).reshape(-1, 1)
    return (singular > threshold).sum(-1)


def stable_rank(tokens: Tensor) -> Tensor:
    """Compute the stable rank `||X||_F^2 / ||X||_2^2 = sum_k sigma_k^2 / sigma_1^2`, 1 to the rank; NaN if X is zero.

    Examples:
        >>> stable_rank(torch.tensor([[2.0, 0.0], [0.0, 1.0]]))
        tensor(1.2500)
    """
    return stable_rank_per_graph(tokens, single_graph(tokens), 1)[0]


def stable_rank_per_graph(tokens: Tensor, batch: Tensor, num_graphs: int | None = None) -> Tensor:
    """Compute `stable_rank` of each graph `[G]`; NaN for a graph without tokens.

    Examples:
        >>> tokens = torch.tensor([[2.0, 0.0], [0.0, 1.0], [1.0, 1.0]])
        >>> stable_rank_per_graph(tokens, torch.tensor([0, 0, 1]))
        tensor([1.2500, 1.0000])
    """
    return stable_rank_of_singular_values(singular_values_per_graph(tokens, batch, num_graphs)).to(result_dtype(tokens))


def stable_rank_of_singular_values(singular: Tensor) -> Tensor:
    """Return the stable rank `[G]` of singular values `[G, r]`."""
    if not singular.shape[1]:  # no graph has a token
        return singular.new_full((len(singular),), torch.nan)
    return (singular / singular[:, :1]).square().sum(-1)


def effective_rank(tokens: Tensor) -> Tensor:
    """Compute the effective rank `exp(-sum_k p_k log p_k)`, `p_k = sigma_k / sum_l sigma_l`; NaN if X is zero.

    Roy & Vetterli, "The effective rank: a measure of effective dimensionality", 2007. It is between 1 and the rank, and
    equal to the rank if all singular values are equal.

    Examples:
        >>> effective_rank(torch.tensor([[2.0, 0.0], [0.0, 1.0]]))
        tensor(1.8899)
    """
    return effective_rank_per_graph(tokens, single_graph(tokens), 1)[0]


def effective_rank_per_graph(tokens: Tensor, batch: Tensor, num_graphs: int | None = None) -> Tensor:
    """Compute `effective_rank` of each graph `[G]`; NaN for a graph without tokens.

    Examples:
        >>> tokens = torch.tensor([[2.0, 0.0], [0.0, 1.0], [1.0, 1.0]])
        >>> effective_rank_per_graph(tokens, torch.tensor([0, 0, 1]))
        tensor([1.8899, 1.0000])
    """
    singular = singular_values_per_graph(tokens, batch, num_graphs)
    return effective_rank_of_singular_values(singular).to(result_dtype(tokens))


def effective_rank_of_singular_values(singular: Tensor) -> Tensor:
    """Return the effective rank `[G]` of singular values `[G, r]`."""
    share = singular / singular.sum(-1, keepdim=True)
    # `entr(0)` is 0, where `-p log p` would be NaN.
    return torch.where(singular.sum(-1) > 0, torch.special.entr(share).sum(-1).exp(), torch.nan)


def rank_one_residual(
    tokens: Tensor, norm: Literal["frobenius", "composite"] = "frobenius", relative: bool = True
) -> Tensor:
    """Measure how far the tokens are from being all equal: `||X - 1 x^T||`, x the mean token.

    Matrices with equal rows are the rank-one subspace that pure attention collapses to (Dong et al. 2021, section 2).
    The mean is the nearest such matrix in the Frobenius norm, where this is also `||P H||_F` of DeepGraph's theorems.

    Args:
        tokens: X `[n, d]`.
        norm: "frobenius", or "composite" for the paper's `sqrt(||R||_1 ||R||_inf)` (largest column sum times largest
            row sum of absolute values).
        relative: divide by the same norm of X; NaN if X is zero.

    Examples:
        >>> rank_one_residual(torch.tensor([[2.0, 0.0], [0.0, 1.0]]))
        tensor(0.7071)
    """
    return rank_one_residual_per_graph(tokens, single_graph(tokens), norm, relative, 1)[0]


def rank_one_residual_per_graph(
    tokens: Tensor,
    batch: Tensor,
    norm: Literal["frobenius", "composite"] = "frobenius",
    relative: bool = True,
    num_graphs: int | None = None,
) -> Tensor:
    """Compute `rank_one_residual` of each graph `[G]`.

    Raises:
        BadInput: the norm is unknown.

    Examples:
        >>> tokens = torch.tensor([[2.0, 0.0], [0.0, 1.0], [1.0, 1.0]])
        >>> rank_one_residual_per_graph(tokens, torch.tensor([0, 0, 1]))
        tensor([0.7071, 0.0000])
    """
    norms = {"frobenius": norm_per_graph, "composite": _composite_norm}
    check_choice("norm", norm, norms)
    rows, numbers, count = _checked(tokens, batch, num_graphs)
    residual = norms[norm](centred(rows, numbers, count), numbers, count)
    if relative:
        residual = residual / norms[norm](rows, numbers, count)
    return residual.to(result_dtype(tokens))


def _composite_norm(rows: Tensor, batch: Tensor, num_graphs: int) -> Tensor:
    """Return `sqrt(||R||_1 ||R||_inf)` of each graph `[G]`."""
    columns = sum_per_graph(rows.abs(), batch, num_graphs).amax(-1)
    largest_row = rows.new_zeros(num_graphs).scatter_reduce_(0, batch, rows.abs().sum(-1), "amax")
    return (columns * largest_row).sqrt()
