"""Attention over all nodes of each graph in time and memory linear in the nodes.

Legend: T nodes of all graphs, B graphs, n nodes of a graph, N nodes of the largest graph, H heads, m width of queries
and keys, d width of values.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import Tensor

from graphbench.errors import check_range
from graphbench.nn import DenseLayout


def check_width(hidden_dim: int) -> None:
    """Check that normalised queries and keys have more than one component.

    A single component is 1 or -1, and a query whose keys are all its opposite has weights that sum to 0.

    Raises:
        BadInput: `hidden_dim` is not at least 2.

    Examples:
        >>> check_width(1)
        Traceback (most recent call last):
        graphbench.errors.BadInput: hidden_dim must be an integer of at least 2, but got 1.
    """
    check_range("hidden_dim", hidden_dim, at_least=2, whole=True)


def linear_attention(
    q: Tensor, k: Tensor, v: Tensor, layout: DenseLayout, loop: float = 0.0, uniform: float = 0.0
) -> Tensor:
    """Compute `out_i = sum_j w_ij v_j / sum_j w_ij` with `w_ij = (q_i . k_j + uniform) / n + loop [i = j]`.

    The sum over j of `k_j (v_j, 1)^T` is computed once for each graph and head, without a matrix of pairs. Means
    instead of sums keep numbers at the same scale for any graph size. Half precision is computed in float32, without
    autocast: a mean over many nodes would lose more digits than bfloat16 has.

    Args:
        q: queries `[T, H, m]`.
        k: keys `[T, H, m]`.
        v: values `[T, H, d]`.
        layout: layout of the nodes in padded graphs.
        loop: weight of a node with itself, added to the kernel.
        uniform: weight of all pairs, added to the kernel.

    Returns:
        Mixed values `[T, H, d]` in the precision of `v`.

    Examples:
        >>> layout = DenseLayout.from_batch(torch.tensor([0, 0, 1]))
        >>> values = torch.tensor([[[1.0]], [[3.0]], [[5.0]]])
        >>> linear_attention(torch.ones(3, 1, 2), torch.ones(3, 1, 2), values, layout).flatten()
        tensor([2., 2., 5.])
    """
    precision = torch.promote_types(v.dtype, torch.float32)
    num_heads, width = k.shape[1:]
    with torch.autocast(v.device.type, enabled=False):
        # The column of ones accumulates the denominator. It is zero at padding, so no sum below includes padding.
        values = torch.cat([v, torch.ones_like(v[..., :1])], dim=-1).to(precision)
        joined = torch.cat([q.to(precision), k.to(precision), values], dim=-1).flatten(1)
        parts = []
        for block, dense in zip(layout.blocks, layout.to_blocks(joined), strict=True):
            queries, keys, rows = dense.unflatten(-1, (num_heads, -1)).split([width, width, values.shape[-1]], dim=-1)
            size = block.layout.ptr.diff().clamp(min=1).view(-1, 1, 1, 1).to(precision)
            # Multiply keys and values first: [m, d + 1] numbers per head instead of [n, n].
            mixed = torch.einsum("bnhm,bhmd->bnhd", queries, torch.einsum("bnhm,bnhd->bhmd", keys, rows) / size)
            if uniform:
                mixed = mixed + rows.sum(1, keepdim=True) * (uniform / size)
            # Rows contain the column of ones, so both additions increase numerator and denominator.
            if loop:
                mixed = mixed + loop * rows
            parts.append(mixed.flatten(2))
        mixed = layout.from_blocks(parts).unflatten(-1, (num_heads, -1))
        return (mixed[..., :-1] / mixed[..., -1:]).to(v.dtype)


class PairWeights(Sequence[Tensor]):
    """Weights of all pairs of nodes `[H, n, n]` of each graph, for traces; rows are queries.

    They are computed when they are read: those of a large graph do not fit into memory, and most diagnostics of a
    trace need only its tokens.

    Args:
        q: queries `[T, H, m]`.
        k: keys `[T, H, m]`.
        layout: layout of the nodes in padded graphs.
        weigh: returns the weights `[H, n, n]` from queries and keys `[n, H, m]` of a graph.
    """

    def __init__(self, q: Tensor, k: Tensor, layout: DenseLayout, weigh: Callable[[Tensor, Tensor], Tensor]) -> None:
        sizes = layout.ptr.diff().tolist()
        self._queries, self._keys, self._weigh = q.detach().split(sizes), k.detach().split(sizes), weigh

    def __len__(self) -> int:
        return len(self._queries)

    def __getitem__(self, graph: Any) -> Any:
        return self._weigh(self._queries[graph], self._keys[graph])


def attention_matrices(
    q: Tensor, k: Tensor, layout: DenseLayout, loop: float = 0.0, uniform: float = 0.0
) -> PairWeights:
    """Return the weights of `linear_attention` for traces, `[H, n, n]` for each graph; rows are queries.

    Args:
        q: queries `[T, H, m]`.
        k: keys `[T, H, m]`.
        layout: layout of the nodes in padded graphs.
        loop: as in `linear_attention`.
        uniform: as in `linear_attention`.

    Examples:
        >>> layout = DenseLayout.from_batch(torch.tensor([0, 0]))
        >>> list(attention_matrices(torch.ones(2, 1, 2), torch.ones(2, 1, 2), layout))
        [tensor([[[0.5000, 0.5000],
                 [0.5000, 0.5000]]])]
    """

    def weigh(queries: Tensor, keys: Tensor) -> Tensor:
        weights = (torch.einsum("ihm,jhm->hij", queries, keys) + uniform) / max(1, len(queries))
        weights = weights + loop * torch.eye(len(queries), dtype=weights.dtype, device=weights.device)
        return weights / weights.sum(-1, keepdim=True)

    return PairWeights(q, k, layout, weigh)


def unit_norm(x: Tensor, graph_of: Tensor, num_graphs: int) -> Tensor:
    """Scale rows `[T, H, m]` to Frobenius norm 1 for each graph, over all heads.

    Half precision becomes float32, which can represent the squared sum of a large graph; zeros stay zeros.

    Args:
        x: rows of all heads.
        graph_of: graph of each row `[T]`.
        num_graphs: graphs B.

    Examples:
        >>> unit_norm(torch.tensor([[[3.0]], [[4.0]], [[2.0]]]), torch.tensor([0, 0, 1]), 2).flatten()
        tensor([0.6000, 0.8000, 1.0000])
    """
    with torch.autocast(x.device.type, enabled=False):
        x = x.to(torch.promote_types(x.dtype, torch.float32))
        squares = x.square().sum((1, 2))
        # Per graph (the authors have only one): a norm over a batch would let graphs scale each other.
        total = squares.new_zeros(num_graphs).index_add(0, graph_of, squares)
        return x * total.clamp(min=torch.finfo(x.dtype).tiny).rsqrt()[graph_of, None, None]
