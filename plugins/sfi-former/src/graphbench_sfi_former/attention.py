"""Sparse-flow attention: from projections to the output, exact, in plain torch, block after block of rows.

SFi-Former (Li et al., 2025, sections 3.1 to 3.3): per head R = softmax(-Q K^T / sqrt d) and
F = softmax(Q~ K~^T / sqrt d); every row z of the attention matrix solves

    min_z 1/2 sum_i r_i z_i^2 + penalty sum_i f_i |z_i| + alpha/2 (sum_i z_i - 1)^2

(equation 11; the hard constraint sum_i z_i = 1 of equation 7 without alpha), and the output is Z V. In the notation of
`sparse_flow`, weights S_i = unit / r_i are ordinary attention, softmax(Q K^T / sqrt d).

Precision of the exact solver, against exact arithmetic on the same Q, K, Q~, K~ and V: with logits of a standard
deviation up to 200, masks, ties and alpha from 1e-3 on or None, the greatest error of the output and of each gradient
is below 2e-2 (float32) and 1e-6 (float64) of the greatest entry of that tensor; where keys are tied, so that terms of a
gradient cancel, of the greatest sum of the absolute values of an entry's terms (`tests/test_precision.py`). Typical
errors are 1e-6 and 1e-12. Beyond, flows still sum to what they should and everything is finite: derivatives that the
dtype cannot hold are reduced, those of one row by one factor.

Legend: M matrices (graphs times heads), N queries, K keys, d head width; m and n: those of a block.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, nullcontext
from typing import Any, Literal

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable
from torch.nn import functional

from graphbench.errors import BadInput, check_range
from graphbench_sfi_former.blocks import attend_rows, blocks
from graphbench_sfi_former.logarithms import SteepGradients, gradient_of_queries, solve_steep, steep_gradients
from graphbench_sfi_former.ops import Block, Operands
from graphbench_sfi_former.sparse_flow import check_mask, per_matrix, solving_dtype

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

    The exact solver takes block after block of rows from the projections to the output, in tensors that stay in the
    cache. It keeps no `[N, K]` tensor for the backward pass, which computes the two softmaxes again (`blocks`); a
    kernel may do the same (`ops`). Rows whose numbers the dtype cannot hold, because logits span tens or hundreds, are
    found by their condition and solved in float64 logarithms (`logarithms`). The precision is that of the module's
    docstring. There are second derivatives, but for rows solved in logarithms.

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
    return _exact((query, key, friction_query, friction_key, value), penalty, alpha, mask, dropout, lead)


def _exact(
    projections: tuple[Tensor, ...],
    penalty: float | Tensor,
    alpha: float | Tensor | None,
    mask: Tensor | None,
    dropout: float,
    lead: tuple[int, ...],
) -> Tensor:
    """Run the exact solver on Q, K, Q~, K~ and V, whose leading dimensions are `lead`."""
    query, key, *_, value = projections
    if 0 in query.shape[:-1]:  # no rows: nothing to solve, but gradients of zero for all
        return value.new_zeros(*query.shape[:-1], value.shape[-1]) + sum(x.sum() for x in projections) * 0
    dtype = solving_dtype(*projections)
    with without_autocast(query.device):
        operands = (
            *(x.to(dtype).reshape(-1, *x.shape[-2:]).contiguous() for x in projections),
            per_matrix("penalty", penalty, lead, query.device, positive=False),
            None if alpha is None else per_matrix("alpha", alpha, lead, query.device, positive=True),
            *_masks(mask, lead, query.shape[-2], key.shape[-2]),
            dropout,
            int(torch.randint(2**62, ())) if dropout else 0,
        )
        output, steep = attend_rows(*operands)
        if bool(steep.any()):
            output = output.masked_fill(steep[..., None], 0.0) + _SteepRows.apply(steep, operands[7:], *operands[:7])
    return output.view(*query.shape[:-1], value.shape[-1]).to(value.dtype)


class _SteepRows(torch.autograd.Function):
    """Output `[M, N, d_v]` of the steep rows, and 0 in all others."""

    @staticmethod
    def forward(ctx: Any, steep: Tensor, options: tuple[Any, ...], *tensors: Tensor) -> Tensor:
        """`options` are masks, numbers of masks, dropout and its seed, as in `attend_rows`."""
        operands = Operands(*tensors)
        output = operands.query.new_zeros(*steep.shape, operands.value.shape[-1])
        ctx.levels = []
        for at, part, allowed, rows, keep in _steep_blocks(steep, options, operands):
            level, flow = solve_steep(part, allowed, rows)
            ctx.levels.append(level)
            spread = _spread(part, rows, flow if keep is None else flow * keep)
            output[at].view(-1, output.shape[-1])[rows] = (spread @ part.value).flatten(0, 1)[rows]
        ctx.save_for_backward(steep, *tensors)
        ctx.options = options
        return output

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, upstream: Tensor) -> tuple[Tensor | None, ...]:
        """Gradients of the seven tensors."""
        steep, *tensors = ctx.saved_tensors
        operands = Operands(*tensors)
        grads = Operands(*(None if x is None else x.new_zeros(x.shape) for x in tensors))  # type: ignore[arg-type]
        with without_autocast(upstream.device):  # a backward pass may run inside of one
            found = zip(_steep_blocks(steep, ctx.options, operands), ctx.levels, strict=True)
            for (at, part, allowed, rows, keep), level in found:
                own = steep_gradients(part, allowed, rows, level, upstream[at], keep)
                _add_gradients(grads.cut(at), part, rows, own, upstream[at])
        for grad in grads[5:]:
            if grad is not None:
                grad.clamp_(torch.finfo(upstream.dtype).min, torch.finfo(upstream.dtype).max)
        return (None, None, *grads)


def _add_gradients(grads: Operands, part: Operands, rows: Tensor, own: SteepGradients, upstream: Tensor) -> None:
    """Add what steep rows of a block give to the gradients of the block."""
    for queries, keys, by_score, of_query, of_key in (
        (part.query, part.key, own.scores, grads.query, grads.key),
        (part.friction_query, part.friction_key, own.friction_scores, grads.friction_query, grads.friction_key),
    ):
        root = keys.shape[-1] ** -0.5
        of_key.baddbmm_(_spread(part, rows, by_score).transpose(1, 2), queries, alpha=root)
        exact = gradient_of_queries(by_score, keys, rows, queries.shape[1]) * root
        of_query.view(-1, keys.shape[-1])[rows] = exact.to(of_query.dtype)
    grads.value.baddbmm_(_spread(part, rows, own.flow).transpose(1, 2), upstream)
    matrices = rows // part.query.shape[1]
    grads.penalty.view(-1).index_add_(0, matrices, own.penalty.view(-1))
    if grads.alpha is not None and part.alpha is not None:
        grads.alpha.view(-1).index_add_(0, matrices, own.leak.view(-1) / part.alpha.view(-1)[matrices])


def _steep_blocks(
    steep: Tensor, options: tuple[Any, ...], operands: Operands
) -> Iterator[tuple[Block, Operands, Tensor | None, Tensor, Tensor | None]]:
    """Blocks with steep rows: where, operands, masks, numbers of the rows, and their factors of dropout `[R, K]`."""
    masks, mask_of, dropout, seed = options
    generator = torch.Generator(steep.device).manual_seed(seed + 1)
    for at, allowed, _ in blocks(operands, masks, mask_of, 0.0, 0):
        rows = steep[at].flatten().nonzero().view(-1)
        if len(rows):
            keep = None
            if dropout:
                keep = operands.query.new_empty(len(rows), operands.key.shape[1])
                keep.bernoulli_(1 - dropout, generator=generator).div_(1 - dropout)
            yield at, operands.cut(at), allowed, rows, keep


def _spread(part: Operands, rows: Tensor, values: Tensor) -> Tensor:
    """Values of rows `[R, K]` in their places, and 0 elsewhere `[m, n, K]`, in the dtype of the attention."""
    (m, n, _), num_keys = part.query.shape, part.key.shape[1]
    return part.query.new_zeros(m * n, num_keys).index_copy_(0, rows, values.to(part.query.dtype)).view(m, n, num_keys)


def _masks(
    mask: Tensor | None, lead: tuple[int, ...], num_rows: int, num_keys: int
) -> tuple[Tensor, Tensor] | tuple[None, None]:
    """Return the different masks `[L, N or 1, K]`, and the number of the one that each of the M matrices has, `[M]`."""
    if mask is None:
        return None, None
    check_mask(mask, (*lead, num_rows, num_keys))
    lead = lead or (1,)
    given = mask[(None,) * (len(lead) + 2 - mask.dim())]
    own_lead = given.shape[:-2]
    numbers = torch.arange(math.prod(own_lead), device=mask.device).view(own_lead)
    own = given.expand(*given.shape[:-1], num_keys).flatten(0, -3)
    return own.contiguous(), numbers.expand(lead).reshape(-1)


def without_autocast(device: torch.device) -> AbstractContextManager[Any]:
    """Return a context without autocast; where there is none, one that takes no time."""
    if torch.is_autocast_enabled(device.type):
        return torch.autocast(device.type, enabled=False)
    return nullcontext()


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
    """Compute the attention matrix Z `[..., N, K]` itself, for traces and for solvers that cannot be fused.

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
