"""Attention capacity: how much attention to different substructures can change what a layer returns.

DeepGraph (Zhao et al., ICLR 2023), Definition 1 and Appendix G. With U = H W^V W^O (rows u_i, no bias), patterns e_i,

    F_H = max_{C_1, C_2} ||C_1^T E^T U - C_2^T E^T U||_F,   columns of C_1 and C_2 in the simplex of the m patterns.

Rows of the output decouple, and each is a convex function on a product of two simplices, whose maximum is at a vertex:

    F_H = sqrt(n) max_{i,j} ||e_i^T U - e_j^T U||_2

exactly, without optimisation. Biases of W^V and W^O cancel here but not in the normalisers, so values have none.

The printed normaliser, the sum of all ||u_i||, makes F shrink as 1 / sqrt(n) and cannot give the values of the paper's
Figure 1; the Frobenius norm of U, with which F does not scale with n, can. It is the default.

Legend: n nodes, m patterns, H heads, G graphs, T nodes of all graphs.
"""

from __future__ import annotations

from typing import Literal

import torch
from torch import Tensor

from graphbench.contracts.devices import as_double
from graphbench.diagnostics.diameter import diameters
from graphbench.diagnostics.patterns import Patterns
from graphbench.diagnostics.ragged import (
    Ragged,
    checked_rows,
    mean_per_graph,
    result_dtype,
    single_graph,
    sum_per_graph,
)
from graphbench.errors import BadInput, check_choice

Normalizer = Literal["frobenius", "sum"]


def attention_capacity(
    values: Tensor,
    patterns: Tensor,
    normalize: Normalizer | None = "frobenius",
    node_mask: Tensor | None = None,
    pattern_mask: Tensor | None = None,
) -> Tensor:
    """Compute the attention capacity of one graph, or of padded graphs.

    Args:
        values: U `[n, dim]`, rows `h_i^T W^V W^O` without bias; any leading dimensions (graphs, heads) are broadcast
            against those of `patterns`.
        patterns: E^T `[m, n]`, rows non-negative and summing to one; the same leading dimensions.
        normalize: divide by `||U||_F` ("frobenius"), by `sum_i ||u_i||` ("sum", as printed), or not at all (None).
        node_mask: mask of nodes that are not padding `[..., n]`.
        pattern_mask: mask of patterns that are not padding `[..., m]`.

    Returns:
        F for the leading dimensions: a scalar for one graph. 0 if all values are zero, NaN without patterns.

    Raises:
        BadInput: shapes disagree, a row of `patterns` is negative, does not sum to one or has weight on padding.

    Examples:
        >>> values, patterns = torch.eye(2), torch.eye(2)
        >>> attention_capacity(values, patterns)  # sqrt(2) |e_1 - e_2| / |I|_F
        tensor(1.4142)
    """
    if values.dim() < 2 or patterns.dim() < 2 or values.shape[-2] != patterns.shape[-1]:
        raise BadInput(
            f"values must be [..., n, dim] and patterns [..., m, n], got {list(values.shape)} and "
            f"{list(patterns.shape)}."
        )
    u, e = as_double(values), as_double(patterns)
    nodes = torch.ones(u.shape[:-1], dtype=torch.bool, device=u.device) if node_mask is None else node_mask.to(u.device)
    rows = torch.ones(e.shape[:-1], dtype=torch.bool, device=e.device) if pattern_mask is None else pattern_mask
    # Padding is set to zero, not removed: graphs and heads keep one shape for broadcasting. It may be NaN.
    rows = rows.to(e.device)
    u, e = u.where(nodes.unsqueeze(-1), 0.0), e.where(rows.unsqueeze(-1), 0.0)
    _check_patterns(e, nodes, rows, patterns.dtype)
    mixed = e @ u
    lead = mixed.shape[:-2]
    real = rows.expand(mixed.shape[:-1]).reshape(-1, mixed.shape[-2])
    group = torch.arange(len(real), device=u.device).unsqueeze(1).expand_as(real)[real]
    diameter = diameters(mixed.reshape(-1, *mixed.shape[-2:])[real], group, len(real)).reshape(lead)
    diameter = torch.where(real.any(1).reshape(lead), diameter, torch.nan)
    lengths = u.norm(dim=-1)
    scale = _scale(lengths.norm(dim=-1), lengths.sum(-1), normalize)
    return _normalized(nodes.sum(-1).double().sqrt() * diameter, scale).to(result_dtype(values))


def _check_patterns(patterns: Tensor, nodes: Tensor, rows: Tensor, dtype: torch.dtype) -> None:
    """Raise unless every real row is a distribution over real nodes."""
    tolerance = max(1e-4, 4 * torch.finfo(dtype).eps if dtype.is_floating_point else 0.0)
    on_nodes = (patterns * nodes.unsqueeze(-2)).sum(-1)
    wrong = ~((on_nodes - 1).abs() <= tolerance) & rows  # also NaN
    if bool(wrong.any()) or bool((patterns < 0).any()):
        raise BadInput(
            "Every row of patterns must be non-negative and sum to one over the nodes that are not padding, got sums "
            f"from {float(on_nodes.min()):.4g} to {float(on_nodes.max()):.4g} and a smallest weight of "
            f"{float(patterns.min()):.4g}. `pattern_matrix` creates uniform patterns."
        )


def attention_capacity_per_graph(
    values: Tensor, patterns: Patterns, normalize: Normalizer | None = "frobenius"
) -> Tensor:
    """Compute `attention_capacity` of each graph of a batch, for any number of patterns.

    Values are `[T, dim]`, or `[T, H, dim]` for each head separately; nodes are ordered by graph. The sum over heads is
    the capacity of a layer whose heads share their attention matrix.

    Returns:
        `[G]`, or `[G, H]`; NaN for a graph without patterns.

    Raises:
        BadInput: `values` does not have the nodes of `patterns`.

    Examples:
        >>> numbers = torch.tensor([0, 1])
        >>> patterns = Patterns.uniform(numbers, numbers, torch.tensor([0, 0]), torch.tensor([2]))
        >>> attention_capacity_per_graph(torch.eye(2), patterns)
        tensor([1.4142])
    """
    if values.dim() not in (2, 3) or len(values) != int(patterns.num_nodes.sum()):
        raise BadInput(
            f"values must be [T, dim] or [T, H, dim] with T = {int(patterns.num_nodes.sum())} nodes of the patterns' "
            f"graphs, got {list(values.shape)}."
        )
    u = as_double(values)
    patterns = patterns if patterns.node.device == u.device else patterns.to(u.device)
    count, graph = patterns.num_graphs, patterns.graph_of_node
    mixed = patterns.apply(_rotated(u, graph, count))
    diameter = _diameters_of_heads(mixed, patterns.batch, count)
    diameter = torch.where((patterns.counts > 0).reshape(-1, *[1] * (u.dim() - 2)), diameter, torch.nan)
    lengths = u.norm(dim=-1)
    scale = _scale(
        sum_per_graph(lengths.square(), graph, count).sqrt(), sum_per_graph(lengths, graph, count), normalize
    )
    # Rows of the output are equal at the maximum, so its norm is that of one row times sqrt(n).
    root = patterns.num_nodes.double().sqrt().reshape(-1, *[1] * (u.dim() - 2))
    return _normalized(root * diameter, scale).to(result_dtype(values))


def _rotated(values: Tensor, graph: Tensor, count: int) -> Tensor:
    """Return the values in coordinates of their span if all graphs have fewer nodes than the width of the values.

    `U^T = Q R` gives `U = R^T Q^T`: distances between mixtures of rows are those of rows of `R^T`, which is narrower.
    """
    ragged = Ragged(graph, count)
    most = int(ragged.sizes.max()) if count else 0
    if not 0 < most < values.shape[-1] or int(ragged.sizes.min()) == 0:
        return values
    index, real = ragged.padded(torch.arange(count, device=values.device), most)
    dense = values.reshape(len(values), -1, values.shape[-1])[index]  # [G, n, H, dim]
    triangle = torch.linalg.qr(dense.permute(0, 2, 3, 1), mode="r").R
    return triangle.permute(0, 3, 1, 2)[real].reshape(*values.shape[:-1], most)


def token_capacity(values: Tensor, normalize: Literal["mean"] | None = "mean") -> Tensor:
    """Compute the capacity of tokens that represent substructures: `max_{i,j} ||u_i - u_j||` over the mean `||u_i||`.

    Values are `[m, dim]`; `normalize=None` returns the maximum itself. Appendix G; for comparison with
    `attention_capacity` of the nodes.

    Examples:
        >>> token_capacity(torch.tensor([[3.0, 0.0], [0.0, 4.0]]))  # 5 over a mean length of 3.5
        tensor(1.4286)
    """
    return token_capacity_per_graph(values, single_graph(values), normalize, 1)[0]


def token_capacity_per_graph(
    values: Tensor, batch: Tensor, normalize: Literal["mean"] | None = "mean", num_graphs: int | None = None
) -> Tensor:
    """Compute `token_capacity` of each graph: `[G]`, or `[G, H]` for `[m, H, dim]`; NaN without such tokens.

    `batch [m]` is the graph of each token; `num_graphs` is G, including graphs without such tokens.

    Raises:
        BadInput: the normaliser is unknown.

    Examples:
        >>> token_capacity_per_graph(torch.tensor([[3.0, 0.0], [0.0, 4.0], [1.0, 1.0]]), torch.tensor([0, 0, 1]))
        tensor([1.4286, 0.0000])
    """
    check_choice("normalize", normalize, ("mean", None))
    u, numbers, count = checked_rows(values, batch, num_graphs, "values")
    diameter = _diameters_of_heads(u, numbers, count)
    some = torch.bincount(numbers, minlength=count) > 0
    diameter = torch.where(some.reshape(-1, *[1] * (u.dim() - 2)), diameter, torch.nan)
    scale = mean_per_graph(u.norm(dim=-1), numbers, count) if normalize else None
    return _normalized(diameter, scale).to(result_dtype(values))


def _diameters_of_heads(points: Tensor, batch: Tensor, count: int) -> Tensor:
    """Return diameters `[G]` of `[S, dim]` or `[G, H]` of `[S, H, dim]`, with each head as a separate set."""
    if points.dim() == 2:
        return diameters(points, batch, count)
    heads = points.shape[1]
    group = batch.unsqueeze(1) * heads + torch.arange(heads, device=batch.device)
    return diameters(points.flatten(0, 1), group.flatten(), count * heads).reshape(count, heads)


def _scale(frobenius: Tensor, total: Tensor, normalize: Normalizer | None) -> Tensor | None:
    """Return the normaliser, from `||U||_F` and `sum_i ||u_i||`."""
    scales = {"frobenius": frobenius, "sum": total, None: None}
    check_choice("normalize", normalize, scales)
    return scales[normalize]


def _normalized(capacity: Tensor, scale: Tensor | None) -> Tensor:
    """Return the capacity over its normaliser; 0 if all values are zero."""
    if scale is None:
        return capacity
    return torch.where(scale == 0, capacity, capacity / scale)  # NaN if a value is, also one that no pattern reads
