"""Describe attention matrices: entropy, exact zeros and row sums of each head.

Every function accepts matrices in two forms: a list with one `[H, n_g, k_g]` tensor per graph, as in
`LayerTrace.attention`, or a padded tensor `[G, H, N, K]` with masks of the rows `[G, N]` and columns `[G, K]` that are
not padding. Rows are queries, and need not sum to one; negative weights and other shapes raise `BadInput`. A head that
contains NaN has the result NaN.

Legend: G graphs, H heads, n queries and k keys of a graph.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import torch
from torch import Tensor

from graphbench.contracts.devices import as_double
from graphbench.errors import BadInput

Attention = Sequence[Tensor] | Tensor


def _per_head(
    measure: Callable[[Tensor], tuple[Tensor, Tensor]], attention: Attention, *masks: Tensor | None
) -> Tensor:
    """Return the mean of a measure over the rows of each head that count, float64 `[G, H]`; NaN if none counts.

    For a matrix `[H, n, k]` the measure returns the value of each row and whether it counts, both `[H, n]`.
    """
    means = []
    for matrix in _matrices(attention, *masks):
        # One at a time: matrices of all graphs in double precision would need twice the memory of the recording.
        values, counted = measure(as_double(matrix))
        means.append(torch.where(counted, values, 0.0).sum(1) / counted.sum(1))
    if isinstance(attention, Tensor) and not means:
        return as_double(attention.new_empty(attention.shape[:2]))
    return torch.stack(means)


def _matrices(attention: Attention, row_mask: Tensor | None, column_mask: Tensor | None) -> list[Tensor]:
    """Return the matrix of each graph without padding."""
    if isinstance(attention, Tensor):
        attention = _unpadded(attention, row_mask, column_mask)
    elif row_mask is not None or column_mask is not None:
        raise BadInput("Masks need a padded attention tensor; a list of matrices has no padding.")
    elif not attention or any(matrix.dim() != 3 or len(matrix) != len(attention[0]) for matrix in attention):
        raise BadInput(
            "attention must be a list of [heads, queries, keys] matrices with equally many heads, got shapes "
            f"{[list(matrix.shape) for matrix in attention]}."
        )
    lowest = [matrix.nan_to_num(nan=0.0).amin() for matrix in attention if matrix.numel()]
    if lowest and (least := float(torch.stack(lowest).amin())) < 0:  # one host-device sync for all
        raise BadInput(f"Attention weights must be non-negative, got {least:.4g}.")
    return list(attention)


def _unpadded(attention: Tensor, row_mask: Tensor | None, column_mask: Tensor | None) -> list[Tensor]:
    if attention.dim() != 4:
        raise BadInput(f"Padded attention must be [graphs, heads, queries, keys], got {list(attention.shape)}.")
    graphs, _, queries, keys = attention.shape
    rows = attention.new_ones(graphs, queries, dtype=torch.bool) if row_mask is None else row_mask
    columns = attention.new_ones(graphs, keys, dtype=torch.bool) if column_mask is None else column_mask
    if rows.shape != (graphs, queries) or columns.shape != (graphs, keys):
        raise BadInput(
            f"Masks must be [{graphs}, {queries}] and [{graphs}, {keys}], got {list(rows.shape)} and "
            f"{list(columns.shape)}."
        )
    return [matrix[:, row][:, :, column] for matrix, row, column in zip(attention, rows, columns, strict=True)]


def attention_entropy(
    attention: Sequence[Tensor] | Tensor, row_mask: Tensor | None = None, column_mask: Tensor | None = None
) -> Tensor:
    """Compute the mean entropy of the rows of each head, in nats, float64 `[G, H]`.

    `H(p) = -sum_j p_j log p_j` of `p = a / sum_j a_j`, which ignores the total weight of a row (see
    `attention_row_sum`). It is between 0 (one key) and log k (all keys equal). Rows of zeros have no entropy and are
    skipped; a head with only such rows has NaN.

    Examples:
        >>> attention_entropy([torch.tensor([[[1.0, 0.0], [0.5, 0.5]]])])
        tensor([[0.3466]], dtype=torch.float64)
    """

    def entropy(matrix: Tensor) -> tuple[Tensor, Tensor]:
        total = matrix.sum(2)
        # H(a / s) = (sum_j -a_j log a_j) / s + log s; rounding makes that of a single key negative
        return (torch.special.entr(matrix).sum(2) / total + total.log()).clamp(min=0.0), total != 0  # so NaN counts

    return _per_head(entropy, attention, row_mask, column_mask)


def attention_zeros(
    attention: Sequence[Tensor] | Tensor, row_mask: Tensor | None = None, column_mask: Tensor | None = None
) -> Tensor:
    """Compute the share of weights of each head that are exactly zero, float64 `[G, H]`.

    Sparse flows (SFi-Former) reach zero; softmax does so only by underflow. Keys that a layer masks also count.

    Examples:
        >>> attention_zeros([torch.tensor([[[1.0, 0.0], [0.5, 0.5]]])])
        tensor([[0.2500]], dtype=torch.float64)
    """

    def share(matrix: Tensor) -> tuple[Tensor, Tensor]:
        zeros = torch.where(matrix.isnan(), matrix, (matrix == 0).double()).mean(2)
        return zeros, torch.full_like(zeros, matrix.shape[2] > 0, dtype=torch.bool)  # without keys there is no share

    return _per_head(share, attention, row_mask, column_mask)


def attention_row_sum(
    attention: Sequence[Tensor] | Tensor, row_mask: Tensor | None = None, column_mask: Tensor | None = None
) -> Tensor:
    """Compute the mean row sum of each head, float64 `[G, H]`: 1 for softmax, less if attention leaks or is penalised.

    Examples:
        >>> attention_row_sum([torch.tensor([[[1.0, 0.0], [0.25, 0.25]]])])
        tensor([[0.7500]], dtype=torch.float64)
    """
    return _per_head(
        lambda matrix: (matrix.sum(2), matrix.new_ones(matrix.shape[:2], dtype=torch.bool)),
        attention,
        row_mask,
        column_mask,
    )
