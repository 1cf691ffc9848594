"""Locate the loss of attention capacity: the upper bounds of DeepGraph's Theorems 1 and 2, factor by factor.

For layers `H'_i = (H_i + A_i H_i W_i - 1 b_i^T) D_i` followed by `H_{i+1} = FFN(H'_i)`, with W = W^V W^O, the diagonal
map D of a normaliser and `P = I - 1 1^T / n`, the theorems (Zhao et al., ICLR 2023, Appendix A) chain

    F_l <= sqrt(2n) ||P_m E^T||_2 ||P U_l||_F                          U_l = H_l W_l
        <= sqrt(2n) ||P_m E^T||_2 ||W_l||_2 ||P H_1||_F prod_{i<l} alpha_i lambda_i gamma_i

    alpha_i  = ||P X_i||_F / ||X_i||_F,   X_i = (P H_i + A_i P H_i W_i - 1 b_i^T) D_i
    lambda_i = ||X_i||_F / ||P H_i||_F
    gamma_i  = ||D'_i||_2 (1 + ||W_i^F1||_2 ||W_i^F2||_2)

Attention whose rows sum to one can only lose: alpha <= 1. The paper assumes lambda = 1, as norms and initial values are
meant to ensure; here it is measured. The paper prints sqrt(2m) for the constant. That is an error of its proof: the
transposed difference of two coefficient matrices is n x m, its row sums are at most 2 and its column sums at most n, so
its spectral norm is at most sqrt(2n); with sqrt(2m) the bound is false for graphs with many more nodes than patterns.

Legend: n nodes, m patterns, H heads, T tokens of all graphs, G graphs, dim width.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from graphbench.contracts.devices import as_double
from graphbench.diagnostics.ragged import (
    checked_rows,
    mean_per_graph,
    norm_per_graph,
    ratio,
    result_dtype,
    single_graph,
    spread_per_graph,
)
from graphbench.errors import BadInput


@dataclass
class DecayFactors:
    """Factors by which attention changes the spread of a graph's tokens, float64 `[G]` each.

    Args:
        alpha: share of X that is spread: `||P X|| / ||X||`; what global attention loses. NaN if X is zero.
        lam: lambda, growth of the norm: `||X|| / ||P H||`; NaN if the tokens are all equal (a graph with one node).
        spread: `||P X||`, which is `alpha lambda ||P H||` and the spread after attention.

    Examples:
        >>> DecayFactors(alpha=torch.tensor([0.5]), lam=torch.tensor([2.0]), spread=torch.tensor([3.0])).lam
        tensor([2.])
    """

    alpha: Tensor
    lam: Tensor
    spread: Tensor


def decay_factors(
    tokens: Tensor,
    values: Tensor,
    attention: Tensor,
    residual: float = 1.0,
    scale: Tensor | None = None,
    bias: Tensor | None = None,
) -> DecayFactors:
    """Compute the factors alpha and lambda of Theorem 1 for one graph, see `decay_factors_per_graph`.

    Tokens are `[n, dim]`, their values `[n, dim]`, or `[n, H, dim]` by head, and attention `[n, n]` or `[H, n, n]`.

    Examples:
        >>> uniform = torch.full((2, 2), 0.5)
        >>> found = decay_factors(torch.eye(2), torch.eye(2), uniform)
        >>> found.alpha, found.lam  # uniform attention adds no spread to the residual, and no norm: its mean is 0
        (tensor([1.], dtype=torch.float64), tensor([1.], dtype=torch.float64))
    """
    values = values.unsqueeze(1) if values.dim() == 2 else values
    attention = attention.unsqueeze(0) if attention.dim() == 2 else attention
    batch = single_graph(tokens)
    return decay_factors_per_graph(tokens, values, [attention], batch, residual=residual, scale=scale, bias=bias)


def decay_factors_per_graph(
    tokens: Tensor,
    values: Tensor,
    attention: Sequence[Tensor],
    batch: Tensor,
    columns: Sequence[Tensor] | None = None,
    node: Tensor | None = None,
    residual: float = 1.0,
    scale: Tensor | None = None,
    bias: Tensor | None = None,
) -> DecayFactors:
    """Compute the factors alpha and lambda of Theorem 1 for each graph, `[G]`.

    Without `scale` and `bias` they are those of the residual sum before a normaliser. Attention with row sums other
    than one also moves the mean, and its alpha can exceed 1: leaky attention injects rank. A spread is zero if tokens
    are equal up to rounding; a factor that would divide by it is NaN.

    Args:
        tokens: H `[T, dim]`, ordered by graph.
        values: by head `[T, H, dim]`.
        attention: one `[H, n_g, n_g]` (or `[H, n_g, k_g]`) per graph, as in `LayerTrace`.
        batch: graph of each token, ascending `[T]`.
        columns: for sampled attention, the token of its graph for each column, one `[k_g]` per graph.
        node: which tokens are nodes `[T]`; the spread is over nodes, while all tokens are attended to.
        residual: weight of the residual branch.
        scale: diagonal of D `[dim]`.
        bias: b `[dim]`.

    Raises:
        BadInput: shapes do not match.

    Examples:
        >>> tokens, batch = torch.tensor([[1.0], [0.0], [2.0], [2.0]]), torch.tensor([0, 0, 1, 1])
        >>> matrices = [torch.full((1, 2, 2), 0.5)] * 2
        >>> decay_factors_per_graph(tokens, tokens[:, None], matrices, batch).lam  # the second graph has no spread
        tensor([1., nan], dtype=torch.float64)
    """
    if values.dim() != 3 or values.shape[::2] != tokens.shape:
        raise BadInput(
            f"values must be [{len(tokens)}, heads, {tokens.shape[-1]}] for tokens {list(tokens.shape)}, got "
            f"{list(values.shape)}."
        )
    h, numbers, count = checked_rows(tokens, batch, len(attention))
    u = as_double(values)
    chosen = torch.ones_like(numbers, dtype=torch.bool) if node is None else node.to(h.device)
    centre_h, entering = _centred_on_nodes(h, numbers, chosen, count, result_dtype(tokens))
    centre_u, _ = _centred_on_nodes(u, numbers, chosen, count, result_dtype(values))
    by_graph = torch.bincount(numbers, minlength=count).tolist()
    factor = 1.0 if scale is None else as_double(scale)
    shift = 0.0 if bias is None else as_double(bias)
    # X of the theorem mixes only the spread of nodes; `full` is the layer's actual output, including the mean.
    x = (residual * centre_h + _mix(attention, centre_u, by_graph, columns) - shift) * factor
    full = (residual * h + _mix(attention, u, by_graph, columns)) * factor
    _, spread = spread_per_graph(full[chosen], numbers[chosen], count, result_dtype(tokens))
    size = norm_per_graph(x[chosen], numbers[chosen], count)
    return DecayFactors(ratio(spread, size), ratio(size, entering), spread)


def _centred_on_nodes(
    rows: Tensor, numbers: Tensor, nodes: Tensor, num_graphs: int, dtype: torch.dtype
) -> tuple[Tensor, Tensor]:
    """Return every row minus the mean of its graph's nodes, and the spread of these nodes."""
    centre = rows - mean_per_graph(rows[nodes], numbers[nodes], num_graphs)[numbers]
    centre[nodes], spread = spread_per_graph(rows[nodes], numbers[nodes], num_graphs, dtype)
    return centre, spread


def _mix(attention: Sequence[Tensor], values: Tensor, sizes: Sequence[int], columns: Sequence[Tensor] | None) -> Tensor:
    """Compute `sum_h A_h V_h` `[T, dim]`, matrix by matrix, since there is one per graph."""
    parts = []
    for number, (matrix, of_graph) in enumerate(zip(attention, values.split(list(sizes)), strict=True)):
        keys = of_graph if columns is None else of_graph[columns[number].to(values.device)]
        if matrix.shape != (values.shape[1], len(of_graph), len(keys)):
            raise BadInput(
                f"The attention of graph {number} must be [{values.shape[1]}, {len(of_graph)}, {len(keys)}], got "
                f"{list(matrix.shape)}."
            )
        parts.append(torch.einsum("hqk,khd->qd", as_double(matrix), keys))
    return torch.cat(parts) if parts else values[:, 0]


def feed_forward_factor(weight_in: Tensor, weight_out: Tensor, scale: Tensor | None = None) -> Tensor:
    """Compute gamma of Theorem 2 from weights: `||D'||_2 (1 + ||W^F1||_2 ||W^F2||_2)`, float64 scalar.

    It bounds how much a feed-forward network with residual and a 1-Lipschitz activation can spread tokens. Weights are
    those of `nn.Linear` or transposed; `scale` is the diagonal of D' `[dim]`, ones by default.

    Examples:
        >>> feed_forward_factor(2 * torch.eye(3), 0.5 * torch.eye(3))
        tensor(2., dtype=torch.float64)
    """
    norms = [torch.linalg.matrix_norm(as_double(weight), 2) for weight in (weight_in, weight_out)]
    largest = 1.0 if scale is None else as_double(scale).abs().max()
    return largest * (1 + norms[0] * norms[1])


def capacity_bound(
    num_nodes: Tensor | int,
    pattern_norm: Tensor,
    spread: Tensor,
    value_norm: Tensor | float = 1.0,
    factors: Sequence[Tensor | float] = (),
) -> Tensor:
    """Compute the upper bound of attention capacity: `sqrt(2n) ||P_m E^T||_2 ||W_l||_2 ||P H_1||_F prod factors`.

    For Theorem 1 the factors are alpha_i lambda_i of the layers before l, for Theorem 2 alpha_i lambda_i gamma_i. With
    `spread` = `||P U_l||_F` and no arguments after it, it is the first line of the chain, which needs no weights.

    Args:
        num_nodes: n, of one graph or of each graph `[G]`.
        pattern_norm: `||P_m E^T||_2`, see `Patterns.centred_norm`.
        spread: `||P H_1||_F`, see `rank_one_residual(..., relative=False)`.
        value_norm: `||W_l||_2`, the largest singular value of W^V W^O of layer l.
        factors: of all layers before l.

    Examples:
        >>> capacity_bound(8, pattern_norm=torch.tensor(0.5), spread=torch.tensor(2.0))
        tensor(4., dtype=torch.float64)
    """
    bound = torch.as_tensor(2 * num_nodes, device=spread.device).double().sqrt() * pattern_norm * spread * value_norm
    for factor in factors:
        bound = bound * factor
    return bound
