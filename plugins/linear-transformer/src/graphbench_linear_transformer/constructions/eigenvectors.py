"""Lemma 6 and Corollary 7: subspace iteration, with Gram-Schmidt by attention."""

from __future__ import annotations

from collections.abc import Callable

from graphbench.errors import BadInput, check_range
from graphbench_linear_transformer.constructions._models import (
    Form,
    IncidenceConstruction,
    LayerWeights,
    Limit,
    blocks,
    check_options,
    check_positive,
)


def top_eigenvectors(
    *, num_layers: int, k: int, form: Form = "efficient", num_edges: int | None = None
) -> IncidenceConstruction:
    """Build Lemma 6: subspace iteration for the k largest eigenvectors; call `model(incidence, initial) -> [n, k]`.

    Alternate one layer Φ+ = LΦ (`V_ΦΦ = I, QK_BB = I, R_ΦΦ = -I`) and k layers of Gram-Schmidt: layer i subtracts from
    column i its components along the columns after it (`V_ΦΦ = -A` with A_ii = 1, `QK_ΦΦ = H` with H_jj = 1 for j > i),
    for i = k, ..., 1. Columns have unit norm after every layer (6). The last column converges to the largest
    eigenvector, the one before it to the second largest, as `torch.linalg.eigh` orders them.

    Args:
        num_layers: L; k + 1 layers are one step of subspace iteration.
        k: columns, fewer than nodes: L has rank n - 1.
        form: see `Form`.
        num_edges: largest number of columns of B, for the general form only.

    Raises:
        BadInput: k is not positive; when called, k is not below the number of nodes.
    """

    def check(num_nodes: int, columns: int) -> None:
        _check_columns(k, columns)
        if k >= num_nodes:
            raise BadInput(f"The Laplacian of {num_nodes} nodes has rank at most {num_nodes - 1}; k = {k} is too many.")

    return _subspace_iteration(num_layers, k, form, num_edges, value=1.0, residual=-1.0, check=check)


def bottom_eigenvectors(
    *, num_layers: int, k: int, shift: float, form: Form = "efficient", num_edges: int | None = None
) -> IncidenceConstruction:
    """Build Corollary 7: the k smallest eigenvectors; call `model(incidence, initial) -> [n, k]`.

    As `top_eigenvectors` with μI - L for L: `V_ΦΦ = -I, R_ΦΦ = (μ - 1) I`. The last column converges to the smallest
    eigenvector, the constant, the one before it to the second smallest.

    Args:
        num_layers: L; k + 1 layers are one step of subspace iteration.
        k: columns, at most as many as nodes.
        shift: μ >= λmax.
        form: see `Form`.
        num_edges: largest number of columns of B, for the general form only.

    Raises:
        BadInput: k or the shift is not positive; when called, k exceeds the number of nodes.
    """
    check_positive("shift", shift)

    def check(num_nodes: int, columns: int) -> None:
        _check_columns(k, columns)
        if k > num_nodes:
            raise BadInput(f"{num_nodes} nodes have {num_nodes} eigenvectors; k = {k} is too many.")

    limit = float(shift), f"shift={shift:g}"
    return _subspace_iteration(num_layers, k, form, num_edges, value=-1.0, residual=shift - 1, check=check, limit=limit)


def _subspace_iteration(
    num_layers: int,
    k: int,
    form: Form,
    num_edges: int | None,
    value: float,
    residual: float,
    check: Callable[[int, int], None],
    limit: Limit | None = None,
) -> IncidenceConstruction:
    """Alternate `Φ+ = value LΦ + (1 + residual) Φ` and Gram-Schmidt, for `num_layers` layers in total."""
    check_options(num_layers, form)
    check_range("k", k, at_least=1, whole=True)
    diagonal = [(column, column) for column in range(k)]
    product = LayerWeights(
        value=blocks(k, dict.fromkeys(diagonal, value)),
        residual=blocks(k, dict.fromkeys(diagonal, residual)),
        incidence=1.0,
    )
    # Unit columns, kept by (6), make φ_j φ_j^T a projection. The layer of the last column subtracts nothing.
    orthogonal = [
        LayerWeights(
            value=blocks(k, {(column, column): -1.0}),
            residual=blocks(k, {}),
            features=blocks(k, dict.fromkeys(diagonal[column + 1 :], 1.0)),
        )
        for column in reversed(range(k))
    ]
    cycle = [product, *orthogonal]
    weights = [cycle[layer % (k + 1)] for layer in range(num_layers)]
    sizes: dict[str, int | None] = {"num_edges": num_edges}
    return IncidenceConstruction(weights, form, None, sizes, feature_norm="columns", limit=limit, check=check)


def _check_columns(k: int, columns: int) -> None:
    if columns != k:
        raise BadInput(f"The construction was made for k = {k} columns, but the initial features have {columns}.")
