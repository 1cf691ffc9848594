"""Exact sparse-flow attention from projections to the output, in plain torch, by blocks of rows.

SFi-Former (Li et al., 2025, sections 3.1 to 3.3): per head R = softmax(-Q K^T / sqrt d) and
F = softmax(Q~ K~^T / sqrt d); every row z of the attention matrix solves

    min_z 1/2 sum_i r_i z_i^2 + penalty sum_i f_i |z_i| + alpha/2 (sum_i z_i - 1)^2

(equation 11; without alpha the hard constraint sum_i z_i = 1 of equation 7), and the output is Z V. In the notation of
`sparse_flow`, weights S_i = unit / r_i are ordinary attention, softmax(Q K^T / sqrt d).

Precision of the exact solver, compared with exact arithmetic on the same Q, K, Q~, K~ and V, for logits of a standard
deviation up to 200, masks, ties, and alpha of at least 1e-3 or None: the largest error of the output and of each
gradient is below 2e-2 (float32) and 1e-6 (float64) relative to the largest entry of that tensor. If keys are tied and
terms of a gradient cancel, it is relative to the largest sum of absolute terms of an entry (`tests/test_precision.py`).
Typical errors are 1e-6 and 1e-12. Outside this range flows still have the right sums and everything is finite:
derivatives outside the range of the dtype are reduced, those of a row by one factor.

In a flow over a given graph (`sparse_flow_edges`) the edges into a node are a row, and no nodes x nodes tensor is
built.

Legend: M matrices (graphs times heads), N queries, K keys, d head width; m and n: those of a block.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any, Literal, cast

import torch
from torch import Tensor
from torch.nn import functional

from graphbench.contracts.devices import is_apple, widest_dtype
from graphbench.contracts.kernels import in_program, one_operation
from graphbench.errors import BadInput, check_range
from graphbench_sfi_former.blocks import attend_rows
from graphbench_sfi_former.sparse_flow import check_mask, per_matrix, solving_dtype, sparse_flow, weights_in_program
from graphbench_sfi_former.steep import SteepRows, without_autocast

#: `(resistance, friction, penalty, alpha, mask) -> flow`, as `sparse_flow` or a partial `sparse_flow_proximal`.
Solver = Callable[[Tensor, Tensor, "float | Tensor", "float | Tensor | None", "Tensor | None"], Tensor]


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
    """Compute attention with sparse flows: return Z V with Z as in the module's docstring.

    The exact solver processes blocks of rows from the projections to the output, in tensors that fit the cache. It
    keeps no `[N, K]` tensor for the backward pass, which recomputes the two softmaxes (`blocks`); a kernel may do the
    same. Rows whose numbers the dtype cannot represent, because logits span tens or hundreds, are detected by their
    condition and solved in float64 logarithms (`steep`). For precision see the module's docstring. Second derivatives
    exist except for rows solved in logarithms.

    Args:
        query: Q `[..., N, d]`; the leading dimensions are usually `[B, H]`.
        key: K `[..., K, d]`.
        friction_query: Q~ `[..., N, d~]`.
        friction_key: K~ `[..., K, d~]`.
        value: V `[..., K, d_v]`.
        penalty: weight of the friction, non-negative: a number, or a tensor that broadcasts to `[..., 1, 1]`, such as
            1 / (number of nodes) of each graph.
        alpha: weight of the unit-inflow term, positive, same types as `penalty`; None for rows that sum to one.
        mask: boolean, broadcastable to `[..., N, K]`; True where a key is allowed. Rows without a key give 0.
        dropout: probability of dropping an attention weight; the others are scaled by 1 / (1 - dropout). Draws use
            torch's global CPU generator. Pass 0 in evaluation.
        solver: "exact"; or any solver of the flow, for unfused attention: `sparse_flow`, or
            `functools.partial(sparse_flow_proximal, num_steps=20)`.

    Returns:
        Output `[..., N, d_v]` in the dtype of `value`; half precision is computed in float32.

    Raises:
        BadInput: shapes do not match, the solver is unknown, or as in `sparse_flow`.

    Examples:
        >>> import torch
        >>> from graphbench_sfi_former import sparse_flow_attention
        >>> query, key, friction_query, friction_key, value = torch.randn(5, 2, 6, 4)  # 2 heads, 6 nodes, width 4
        >>> sparse_flow_attention(query, key, friction_query, friction_key, value, penalty=1 / 6).shape
        torch.Size([2, 6, 4])
    """
    check_range("dropout", dropout, at_least=0, below=1)
    if callable(solver):
        _check_shapes(query, key, friction_query, friction_key, value)
        flow = sparse_flow_weights(query, key, friction_query, friction_key, penalty, alpha, mask, solver)
        with torch.autocast(query.device.type, enabled=False):
            return (functional.dropout(flow, dropout) @ value.to(flow.dtype)).to(value.dtype)
    if solver != "exact":
        raise BadInput(f"solver must be 'exact' or a function that solves for the flow, but is {solver!r}.")
    projections = (query, key, friction_query, friction_key, value)
    # A seed rather than a dropout mask: the backward pass redraws the mask, so nothing of size [N, K] is kept.
    seed = torch.randint(2**62, ()) if dropout else None
    if in_program():
        weights = weights_in_program(query.device, penalty, alpha)
        return _attend_in_program(*projections, *weights, mask, dropout, seed)
    return _exact(projections, penalty, alpha, mask, dropout, seed)


@one_operation(
    "graphbench_sfi_former", lambda q, k, of_q, of_k, value, *_: value.new_empty(*q.shape[:-1], value.shape[-1])
)
def _attend_in_program(
    query: Tensor,
    key: Tensor,
    friction_query: Tensor,
    friction_key: Tensor,
    value: Tensor,
    penalty: Tensor,
    alpha: Tensor | None,
    mask: Tensor | None,
    dropout: float,
    seed: Tensor | None,
) -> Tensor:
    """`_exact`."""
    return _exact((query, key, friction_query, friction_key, value), penalty, alpha, mask, dropout, seed)


def _exact(
    projections: tuple[Tensor, ...],
    penalty: float | Tensor,
    alpha: float | Tensor | None,
    mask: Tensor | None,
    dropout: float,
    seed: Tensor | None,
) -> Tensor:
    """Run the exact solver on Q, K, Q~, K~ and V, with a seed for dropout."""
    query, key, *_, value = projections
    lead = _check_shapes(*projections)
    if 0 in query.shape[:-1]:  # no rows: nothing to solve, but all gradients must be zero
        return value.new_zeros(*query.shape[:-1], value.shape[-1]) + sum(x.sum() for x in projections) * 0
    dtype = solving_dtype(*projections)
    with without_autocast(query.device):
        operands = (
            *(x.to(dtype).reshape(-1, *x.shape[-2:]).contiguous() for x in projections),
            per_matrix("penalty", penalty, lead, query.device, positive=False),
            None if alpha is None else per_matrix("alpha", alpha, lead, query.device, positive=True),
            *_masks(mask, lead, query.shape[-2], key.shape[-2]),
            dropout,
            0 if seed is None else int(seed),
        )
        output, steep = attend_rows(*operands)
        # The only host-device sync of the solver: the number of steep rows determines the shapes below.
        if bool(steep.any()):
            output = output.masked_fill(steep[..., None], 0.0) + _attend_steep_rows(steep, *operands)
    return output.view(*query.shape[:-1], value.shape[-1]).to(value.dtype)


def _attend_steep_rows(steep: Tensor, *operands: Any) -> Tensor:
    """Attend in the steep rows, on the CPU if the device has no float64; arguments as in `attend_rows`."""
    if not is_apple(steep.device):
        return cast("Tensor", SteepRows.apply(steep, operands[7:], *operands[:7]))
    steep_here, *here = (x.cpu() if isinstance(x, Tensor) else x for x in (steep, *operands))
    weights = (x if x is None else x.double() for x in here[5:7])
    output: Tensor = SteepRows.apply(steep_here, tuple(here[7:]), *here[:5], *weights)
    return output.to(steep.device)


def _masks(
    mask: Tensor | None, lead: tuple[int, ...], num_rows: int, num_keys: int
) -> tuple[Tensor, Tensor] | tuple[None, None]:
    """Return the distinct masks `[L, N or 1, K]`, and for each of the M matrices the index of its mask `[M]`."""
    if mask is None:
        return None, None
    check_mask(mask, (*lead, num_rows, num_keys))
    lead = lead or (1,)
    given = mask[(None,) * (len(lead) + 2 - mask.dim())]
    mask_lead = given.shape[:-2]
    # Heads usually share one mask: an index per matrix is expanded instead of copying the mask for each head.
    numbers = torch.arange(math.prod(mask_lead), device=mask.device).view(mask_lead)
    masks = given.expand(*given.shape[:-1], num_keys).flatten(0, -3)
    return masks.contiguous(), numbers.expand(lead).reshape(-1)


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

    Arguments as in `sparse_flow_attention`. With the exact solver this is its output for unit vectors as values.

    Raises:
        BadInput: shapes do not match, or as in `sparse_flow`.

    Examples:
        >>> query, key, friction_query, friction_key = torch.randn(4, 2, 6, 4)
        >>> weights = sparse_flow_weights(query, key, friction_query, friction_key, penalty=1 / 6)
        >>> weights.shape, bool((weights >= 0).all())
        (torch.Size([2, 6, 6]), True)
    """
    _check_shapes(query, key, friction_query, friction_key, key)
    dtype = solving_dtype(query, key, friction_query, friction_key)
    if not callable(solver):
        # Z I = Z, so the weights come from the same solver as the output, steep rows included.
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
    """Compute R = softmax(-Q K^T / sqrt d) `[..., N, K]`, for flows with frictions from another source.

    Args:
        query: Q `[..., N, d]`.
        key: K `[..., K, d]`.
        mask: boolean, broadcastable to `[..., N, K]`; True where a key is allowed.

    Returns:
        Resistances in float32, or float64 if the inputs are; half precision is too coarse for a flow.

    Raises:
        BadInput: the mask is not boolean or does not match.

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
        if mask is not None:  # finite, so that rows without a key have no NaN
            scores = scores.masked_fill(~mask, torch.finfo(scores.dtype).min)
        return scores.softmax(-1)


def _check_shapes(
    query: Tensor, key: Tensor, friction_query: Tensor, friction_key: Tensor, value: Tensor
) -> tuple[int, ...]:
    """Return the leading dimensions; raise `BadInput` if the shapes do not match."""
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


# -- flows over the edges of a graph


def sparse_flow_edges(
    resistance: Tensor,
    friction: Tensor,
    target: Tensor,
    num_nodes: int,
    penalty: float | Tensor,
    alpha: float | None = None,
) -> Tensor:
    """Compute the flow of least energy into every node over the edges of a graph, exactly.

    Uses `sparse_flow` (SFi-Former, equations 7 and 11). Node i receives flow from the sources of its incoming edges: a
    row of the matrix is the set of edges with one target. Edges are arbitrary: those of the graph, loops, shortcuts, or
    virtual nodes (`with_virtual_nodes`). Nodes of similar degree are solved together, their rows padded to at most
    twice their length.

    Args:
        resistance: r `[E, ...]`, positive, floating point; further dimensions, such as heads, are solved in parallel.
        friction: f `[E, ...]`, non-negative, floating point.
        target: target node of each edge, int64 `[E]`, in any order.
        num_nodes: number of nodes.
        penalty: weight of the friction, non-negative: a number, or one per node `[num_nodes]`.
        alpha: weight of the unit-inflow term, positive; None for the hard constraint.

    Returns:
        Flow `[E, ...]` in the dtype of `resistance`, with the precision of `sparse_flow`.

    Raises:
        BadInput: invalid shapes, dtypes or values.

    Examples:
        >>> import torch
        >>> from graphbench_sfi_former import sparse_flow_edges
        >>> friction, target = torch.tensor([0.0, 0.5, 0.5]), torch.tensor([0, 0, 1])
        >>> sparse_flow_edges(torch.ones(3), friction, target, num_nodes=2, penalty=1.0)
        tensor([0.7500, 0.2500, 1.0000])
    """
    _check_edges(resistance, friction, target, num_nodes, penalty, alpha)
    if resistance.numel() == 0:
        return resistance * friction
    shape, width = resistance.shape, math.prod(resistance.shape[1:])
    links, tolls = (x.reshape(-1, width) for x in (resistance, friction))
    wide = widest_dtype(links.device)
    weights = torch.as_tensor(penalty, dtype=wide, device=links.device).expand(num_nodes)
    # The edges into node i are order[first[i] : first[i] + degree[i]].
    order = target.argsort(stable=True)
    degree = target.bincount(minlength=num_nodes)
    first = degree.cumsum(0) - degree
    edges, flows = [], []
    # Nodes are grouped by powers of two of their degree: at most log2(max degree) + 2 calls of the solver.
    for size in degree[degree > 0].to(wide).log2().ceil().unique().exp2().long().tolist():
        nodes = ((degree <= size) & (2 * degree > size)).nonzero().view(-1)
        place = torch.arange(size, device=target.device)
        mask = place < degree[nodes, None]
        # Places beyond a node's degree read other nodes' edges, which the mask hides; the last would be out of range.
        incoming = order[(first[nodes, None] + place).clamp_max(len(order) - 1)]
        r, f = (x[incoming].movedim(-1, 1) for x in (links, tolls))  # [nodes, width, size]
        flow = sparse_flow(r, f, weights[nodes, None, None], alpha, mask[:, None])
        edges.append(incoming[mask])
        flows.append(flow.movedim(1, -1)[mask])
    return torch.empty_like(links).index_copy(0, torch.cat(edges), torch.cat(flows)).reshape(shape)


def with_virtual_nodes(edge_index: Tensor, graph_of: Tensor, num_graphs: int, num_virtual: int = 1) -> Tensor:
    """Return the edges of a batch and those of virtual nodes, each joined to all nodes of its graph in both directions.

    Virtual node v of graph g has number `T + g * num_virtual + v`, after the T nodes.

    Args:
        edge_index: `[2, E]`.
        graph_of: graph of each node `[T]`.
        num_graphs: number of graphs.
        num_virtual: virtual nodes of each graph.

    Returns:
        `[2, E + 2 T num_virtual]`.

    Examples:
        >>> with_virtual_nodes(torch.tensor([[0], [1]]), torch.tensor([0, 0]), num_graphs=1)  # node 2 is virtual
        tensor([[0, 0, 1, 2, 2],
                [1, 2, 2, 0, 1]])
    """
    num_nodes = graph_of.shape[0]
    node = torch.arange(num_nodes, device=graph_of.device).repeat_interleave(num_virtual)
    first = num_nodes + graph_of.repeat_interleave(num_virtual) * num_virtual
    virtual = first + torch.arange(num_virtual, device=graph_of.device).repeat(num_nodes)
    joined = torch.stack((node, virtual))
    return torch.cat((edge_index, joined, joined.flip(0)), dim=1)


def _check_edges(
    resistance: Tensor, friction: Tensor, target: Tensor, num_nodes: int, penalty: float | Tensor, alpha: float | None
) -> None:
    if resistance.shape != friction.shape or resistance.dim() < 1 or target.shape != resistance.shape[:1]:
        raise BadInput(
            "resistance and friction must have one shape [E, ...] and target [E], but have "
            f"{tuple(resistance.shape)}, {tuple(friction.shape)} and {tuple(target.shape)}."
        )
    if target.numel() and not 0 <= int(target.min()) <= int(target.max()) < num_nodes:
        raise BadInput(f"target must be in 0 .. {num_nodes - 1}, but is in {int(target.min())} .. {int(target.max())}.")
    for name, tensor in (("resistance", resistance), ("friction", friction)):
        if not tensor.is_floating_point():
            raise BadInput(f"{name} must be a floating-point tensor, but has dtype {tensor.dtype}.")
    number = torch.as_tensor(penalty)
    if number.dim() and number.shape != (num_nodes,):
        raise BadInput(f"penalty must be a number or one per node [{num_nodes}], but has shape {tuple(number.shape)}.")
    for name, tensor in (("friction", friction), ("penalty", number), ("resistance", resistance)):
        if not bool((tensor >= 0).all()):
            raise BadInput(f"{name} must be non-negative, but its least value is {float(tensor.min())}.")
    if alpha is not None and not 0 < alpha < math.inf:
        raise BadInput(f"alpha must be positive and finite, or None for the hard constraint, but is {alpha}.")
