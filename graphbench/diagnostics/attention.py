"""Describe attention matrices: entropy, exact zeros and row sums of each head.

Every function takes matrices in either form: a list with one `[H, n_g, k_g]` tensor per graph, as
`LayerTrace.attention` has it, or a padded tensor `[G, H, N, K]` with masks of the rows `[G, N]` and columns `[G, K]`
that are no padding. Rows are queries, and need not sum to one; a negative weight is `BadInput`, as are other shapes.

Legend: G graphs, H heads, n queries and k keys of a graph.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from graphbench.diagnostics.ragged import as_double
from graphbench.errors import BadInput


@dataclass
class _Rows:
    """Every row of every matrix, one after the other."""

    weights: Tensor  # float64 `[entries]`
    keys: Tensor  # keys of each row `[R]`; rows are ordered by graph, head, query
    queries: Tensor  # queries of each graph `[G]`
    heads: int  # H

    def sums(self, entries: Tensor) -> Tensor:
        """Sum of `entries` over each row `[R]`."""
        row = torch.repeat_interleave(torch.arange(len(self.keys), device=entries.device), self.keys)
        return entries.new_zeros(len(self.keys)).index_add_(0, row, entries)

    def means(self, of_rows: Tensor, counted: Tensor) -> Tensor:
        """Mean over the counted rows of each head `[G, H]`; NaN where there is none."""
        matrix = torch.arange(len(self.queries) * self.heads, device=of_rows.device)
        matrix = torch.repeat_interleave(matrix, self.queries.repeat_interleave(self.heads))
        total = of_rows.new_zeros(2, len(self.queries) * self.heads)
        total.index_add_(1, matrix, torch.stack((torch.where(counted, of_rows, 0.0), counted.to(of_rows.dtype))))
        return (total[0] / total[1]).reshape(len(self.queries), self.heads)


def _rows(attention: Sequence[Tensor] | Tensor, row_mask: Tensor | None, column_mask: Tensor | None) -> _Rows:
    if isinstance(attention, Tensor):
        return _padded_rows(attention, row_mask, column_mask)
    if row_mask is not None or column_mask is not None:
        raise BadInput("Masks go with a padded attention tensor; a list of matrices has no padding.")
    if not attention or any(matrix.dim() != 3 or len(matrix) != len(attention[0]) for matrix in attention):
        raise BadInput(
            "attention must be a list of [heads, queries, keys] matrices with equally many heads, got shapes "
            f"{[list(matrix.shape) for matrix in attention]}."
        )
    heads, device = len(attention[0]), attention[0].device
    queries = torch.tensor([matrix.shape[1] for matrix in attention], device=device)
    keys = torch.tensor([matrix.shape[2] for matrix in attention], device=device).repeat_interleave(queries * heads)
    return _checked(_Rows(torch.cat([as_double(matrix).flatten() for matrix in attention]), keys, queries, heads))


def _padded_rows(attention: Tensor, row_mask: Tensor | None, column_mask: Tensor | None) -> _Rows:
    if attention.dim() != 4:
        raise BadInput(f"Padded attention must be [graphs, heads, queries, keys], got {list(attention.shape)}.")
    graphs, heads, most_queries, most_keys = attention.shape
    rows = attention.new_ones(graphs, most_queries, dtype=torch.bool) if row_mask is None else row_mask
    columns = attention.new_ones(graphs, most_keys, dtype=torch.bool) if column_mask is None else column_mask
    if rows.shape != (graphs, most_queries) or columns.shape != (graphs, most_keys):
        raise BadInput(
            f"Masks must be [{graphs}, {most_queries}] and [{graphs}, {most_keys}], got {list(rows.shape)} and "
            f"{list(columns.shape)}."
        )
    real = rows[:, None, :, None] & columns[:, None, None, :]
    keys = columns.sum(1).repeat_interleave(rows.sum(1) * heads)
    return _checked(_Rows(as_double(attention[real.expand_as(attention)]), keys, rows.sum(1), heads))


def _checked(rows: _Rows) -> _Rows:
    if bool((rows.weights < 0).any()):
        raise BadInput(f"Attention weights must be non-negative, got {float(rows.weights.min()):.4g}.")
    device = rows.weights.device
    return _Rows(rows.weights, rows.keys.to(device), rows.queries.to(device), rows.heads)


def attention_entropy(
    attention: Sequence[Tensor] | Tensor, row_mask: Tensor | None = None, column_mask: Tensor | None = None
) -> Tensor:
    """Mean entropy of the rows of each head, in nats, float64 `[G, H]`.

    `H(p) = -sum_j p_j log p_j` of `p = a / sum_j a_j`, which leaves out how much a row gives away in all (see
    `attention_row_sum`). Between 0 (one key) and log k (all keys alike). Rows of zeros have no entropy and are left
    out; a head with nothing else has NaN.

    Examples:
        >>> attention_entropy([torch.tensor([[[1.0, 0.0], [0.5, 0.5]]])])
        tensor([[0.3466]], dtype=torch.float64)
    """
    rows = _rows(attention, row_mask, column_mask)
    total = rows.sums(rows.weights)
    # H(a / s) = (sum_j -a_j log a_j) / s + log s
    entropy = rows.sums(torch.special.entr(rows.weights)) / total + total.log()
    return rows.means(entropy.clamp(min=0.0), total > 0)  # rounding takes that of a single key below zero


def attention_zeros(
    attention: Sequence[Tensor] | Tensor, row_mask: Tensor | None = None, column_mask: Tensor | None = None
) -> Tensor:
    """Share of weights of each head that are exactly zero, float64 `[G, H]`.

    Sparse flows (SFi-Former) reach zero; softmax does so only by underflow. Keys that a layer masks out count too.

    Examples:
        >>> attention_zeros([torch.tensor([[[1.0, 0.0], [0.5, 0.5]]])])
        tensor([[0.2500]], dtype=torch.float64)
    """
    rows = _rows(attention, row_mask, column_mask)
    share = rows.sums((rows.weights == 0).double()) / rows.keys
    return rows.means(share, rows.keys > 0)


def attention_row_sum(
    attention: Sequence[Tensor] | Tensor, row_mask: Tensor | None = None, column_mask: Tensor | None = None
) -> Tensor:
    """Mean row sum of each head, float64 `[G, H]`: 1 for softmax, less where attention leaks or is penalised.

    Examples:
        >>> attention_row_sum([torch.tensor([[[1.0, 0.0], [0.25, 0.25]]])])
        tensor([[0.7500]], dtype=torch.float64)
    """
    rows = _rows(attention, row_mask, column_mask)
    total = rows.sums(rows.weights)
    return rows.means(total, torch.ones_like(total, dtype=torch.bool))
