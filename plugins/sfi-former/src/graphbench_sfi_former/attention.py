"""Sparse-flow attention: exact and fused, or composed of its parts with any solver of the flow.

SFi-Former (Li et al., 2025, sections 3.1 to 3.3): per head R = softmax(-Q K^T / sqrt d) and
F = softmax(Q~ K~^T / sqrt d); every row z of the attention matrix solves

    min_z 1/2 sum_i r_i z_i^2 + penalty sum_i f_i |z_i| + alpha/2 (sum_i z_i - 1)^2

(equation 11; the hard constraint sum_i z_i = 1 of equation 7 without alpha), and the output is Z V.

Precision of the exact solver, against exact arithmetic on the same Q, K, Q~, K~ and V: with logits of a standard
deviation up to 200, masks, ties and alpha from 1e-3 on or None, the greatest error of the output and of each gradient
is below 2e-2 (float32) and 1e-6 (float64) of the greatest entry of that tensor; where keys are tied, so that terms of a
gradient cancel, of the greatest sum of the absolute values of an entry's terms (`tests/test_precision.py`). Typical
errors are 1e-6 and 1e-12. Beyond, flows still sum to what they should and everything is finite: derivatives that the
dtype cannot hold are reduced, those of one row by one factor.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Literal

import torch
from torch import Tensor
from torch.nn import functional

from graphbench.errors import BadInput, check_range
from graphbench_sfi_former.arguments import per_matrix, solving_dtype
from graphbench_sfi_former.blockwise import blockwise_attention
from graphbench_sfi_former.masking import KeyMask, check_mask

#: `(resistance, friction, penalty, alpha, mask) -> flow`, as `sparse_flow` or a partial `sparse_flow_proximal`.
Solver = Callable[[Tensor, Tensor, "float | Tensor", "float | Tensor | None", "Tensor | None"], Tensor]


@torch.compiler.disable
def sparse_flow_attention(
    query: Tensor,
    key: Tensor,
    friction_query: Tensor,
    friction_key: Tensor,
    value: Tensor,
    penalty: float | Tensor,
    alpha: float | Tensor | None = None,
    mask: Tensor | None = None,
    *,
    dropout: float = 0.0,
    solver: Literal["exact"] | Solver = "exact",
) -> Tensor:
    """Attention by sparse flows, Z V with Z as in the module's docstring.

    The exact solver is fused, forward and backward: blocks of rows go from the projections to the output in buffers
    that stay in the cache. Unless a problem is so small that it is one block, no `[N, K]` tensor is kept for the
    backward pass, which computes the two softmaxes again. On a CPU with Numba kernels take sixteen rows at a time from
    the projections to the output (see `native`), and keep no `[N, K]` tensor at all. Rows whose numbers the dtype
    cannot hold, because logits span tens or hundreds, are found by their condition and solved in float64 logarithms
    (see `rows`, `steep`). The precision is that of the module's docstring.

    Args:
        query: Q `[..., N, d]`; the leading dimensions are mostly `[B, H]`.
        key: K `[..., K, d]`.
        friction_query: Q~ `[..., N, d~]`.
        friction_key: K~ `[..., K, d~]`.
        value: V `[..., K, d_v]`.
        penalty: weight of the friction, non-negative: a number, or a tensor that broadcasts to `[..., 1, 1]`, such as
            1 / (number of nodes) of each graph.
        alpha: weight of the unit-inflow term, positive, of the same kinds; None for rows that sum to one.
        mask: boolean, broadcastable to `[..., N, K]`; True where a key is allowed. Rows without a key give 0.
        dropout: probability with which an attention weight is dropped, the others growing by 1 / (1 - dropout). The
            draws follow torch's global CPU generator. Pass 0 in evaluation.
        solver: "exact"; or any solver of the flow, with which the attention is composed unfused: `sparse_flow`, or
            `functools.partial(sparse_flow_proximal, num_steps=20)`.

    Returns:
        Output `[..., N, d_v]` in the dtype of `value`; half precision is computed in float32.

    Raises:
        BadInput: shapes that do not fit, an unknown solver, or values as in `sparse_flow`.

    Examples:
        >>> import torch
        >>> from graphbench_sfi_former import sparse_flow_attention
        >>> query, key, friction_query, friction_key, value = torch.randn(5, 2, 6, 4)  # 2 heads, 6 nodes, width 4
        >>> sparse_flow_attention(query, key, friction_query, friction_key, value, penalty=1 / 6).shape
        torch.Size([2, 6, 4])
    """
    lead = _check_shapes(query, key, friction_query, friction_key, value)
    check_range("dropout", dropout, at_least=0, below=1)
    if callable(solver):
        flow = sparse_flow_weights(query, key, friction_query, friction_key, penalty, alpha, mask, solver)
        with torch.autocast(query.device.type, enabled=False):
            return (functional.dropout(flow, dropout) @ value.to(flow.dtype)).to(value.dtype)
    if solver != "exact":
        raise BadInput(f"solver must be 'exact' or a function that solves for the flow, but is {solver!r}.")
    return _fused((query, key, friction_query, friction_key, value), penalty, alpha, mask, dropout, lead)


def _fused(
    projections: tuple[Tensor, ...],
    penalty: float | Tensor,
    alpha: float | Tensor | None,
    mask: Tensor | None,
    dropout: float,
    lead: tuple[int, ...],
) -> Tensor:
    """The exact solver on Q, K, Q~, K~ and V, whose leading dimensions are `lead`."""
    query, key, *_, value = projections
    if 0 in query.shape[:-1]:  # no rows: nothing to solve, but gradients of zero for all
        return value.new_zeros(*query.shape[:-1], value.shape[-1]) + sum(x.sum() for x in projections) * 0
    dtype = solving_dtype(*projections)
    output = blockwise_attention(
        *(x.to(dtype) for x in projections),
        per_matrix("penalty", penalty, lead, query.device, positive=False),
        None if alpha is None else per_matrix("alpha", alpha, lead, query.device, positive=True),
        None if mask is None else KeyMask(mask, lead, query.shape[-2], key.shape[-2]),
        (dropout, int(torch.randint(2**62, ()))) if dropout else None,
        torch.is_grad_enabled(),
    )
    return output.to(value.dtype)


def sparse_flow_weights(
    query: Tensor,
    key: Tensor,
    friction_query: Tensor,
    friction_key: Tensor,
    penalty: float | Tensor,
    alpha: float | Tensor | None = None,
    mask: Tensor | None = None,
    solver: Literal["exact"] | Solver = "exact",
) -> Tensor:
    """The attention matrix Z `[..., N, K]` itself, for traces and for solvers that cannot be fused.

    Arguments as in `sparse_flow_attention`, whose result with unit vectors for values this is by the exact solver.

    Raises:
        BadInput: shapes that do not fit, or values as in `sparse_flow`.

    Examples:
        >>> query, key, friction_query, friction_key = torch.randn(4, 2, 6, 4)
        >>> weights = sparse_flow_weights(query, key, friction_query, friction_key, penalty=1 / 6)
        >>> weights.shape, bool((weights >= 0).all())
        (torch.Size([2, 6, 6]), True)
    """
    _check_shapes(query, key, friction_query, friction_key, key)
    dtype = solving_dtype(query, key, friction_query, friction_key)
    if not callable(solver):
        units = torch.eye(key.shape[-2], dtype=dtype, device=key.device).expand(*key.shape[:-1], key.shape[-2])
        return sparse_flow_attention(
            query, key, friction_query, friction_key, units, penalty, alpha, mask, solver=solver
        )
    if mask is not None:
        check_mask(mask, (*query.shape[:-1], key.shape[-2]))
    resistance = _softmax_of_scores(-query.to(dtype), key.to(dtype), mask)
    friction = _softmax_of_scores(friction_query.to(dtype), friction_key.to(dtype), mask)
    return solver(resistance, friction, penalty, alpha, mask)


def flow_resistance(query: Tensor, key: Tensor, mask: Tensor | None = None) -> Tensor:
    """R = softmax(-Q K^T / sqrt d) `[..., N, K]`, for flows whose frictions come from elsewhere.

    Args:
        query: Q `[..., N, d]`.
        key: K `[..., K, d]`.
        mask: boolean, broadcastable to `[..., N, K]`; True where a key is allowed.

    Returns:
        In float32, or float64 if the inputs are; half precision cannot hold a flow.

    Raises:
        BadInput: a mask that is not boolean or does not fit.

    Examples:
        >>> flow_resistance(torch.zeros(2, 4), torch.zeros(2, 4))
        tensor([[0.5000, 0.5000],
                [0.5000, 0.5000]])
    """
    if mask is not None:
        check_mask(mask, (*query.shape[:-1], key.shape[-2]))
    dtype = solving_dtype(query, key)
    return _softmax_of_scores(-query.to(dtype), key.to(dtype), mask)


def _softmax_of_scores(query: Tensor, key: Tensor, mask: Tensor | None) -> Tensor:
    with torch.autocast(query.device.type, enabled=False):
        scores = query @ key.transpose(-1, -2) * query.shape[-1] ** -0.5
        if mask is not None:  # finite, so that rows without a key stay free of NaN
            scores = scores.masked_fill(~mask, torch.finfo(scores.dtype).min)
        return scores.softmax(-1)


def _check_shapes(
    query: Tensor, key: Tensor, friction_query: Tensor, friction_key: Tensor, value: Tensor
) -> tuple[int, ...]:
    """Leading dimensions; raises `BadInput` where the shapes do not belong together."""
    tensors = (query, key, friction_query, friction_key, value)
    if all(x.dim() >= 2 for x in tensors) and len({x.shape[:-2] for x in tensors}) == 1:
        same_rows = query.shape[-2] == friction_query.shape[-2]
        same_keys = key.shape[-2] == friction_key.shape[-2] == value.shape[-2] > 0
        same_widths = query.shape[-1] == key.shape[-1] and friction_query.shape[-1] == friction_key.shape[-1]
        if same_rows and same_keys and same_widths:
            return tuple(query.shape[:-2])
    shapes = ", ".join(str(tuple(x.shape)) for x in tensors)
    raise BadInput(
        "query [..., N, d], key [..., K, d], friction_query [..., N, d'], friction_key [..., K, d'] and "
        f"value [..., K, d_v] must share their leading dimensions, N, K, d and d', but have shapes {shapes}."
    )
