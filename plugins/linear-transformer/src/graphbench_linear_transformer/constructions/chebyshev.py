"""Chebyshev series of functions of the Laplacian, one term per layer of equation (7).

With X = (L - m) / h, m and h the middle and half width of the interval of the eigenvalues, the polynomials
T_(l+1) = 2 X T_l - T_(l-1) are between -1 and 1 on it, and f(L) = sum c_l T_l(X). For a function that is analytic
around the interval the partial sums are within a small factor of the best polynomial of their degree (Trefethen,
"Approximation Theory and Approximation Practice", chapters 8 and 16).
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
from scipy.fft import dct
from scipy.special import ive

from graphbench.errors import BadInput, check_range
from graphbench_linear_transformer.constructions._models import (
    Form,
    IncidenceConstruction,
    LayerWeights,
    blocks,
    check_options,
    check_positive,
)

#: Maximum number of interpolation points; enough for κ up to about 1e8.
_MAX_POINTS = 2**18
#: Feature blocks: the current polynomial, the previous one, the sum.
_CURRENT, _BEFORE, _SUM = 0, 1, 2


def electric_flow_chebyshev(
    *,
    num_layers: int,
    lambda_min: float,
    lambda_max: float,
    form: Form = "efficient",
    num_edges: int | None = None,
    num_demands: int | None = None,
) -> IncidenceConstruction:
    """Build L† Ψ by the Chebyshev series of 1/λ, one term per layer; call `model(incidence, demands) -> [n, k]`.

    Error at most `2 ρ^L / λmin`, ρ = (sqrt κ - 1) / (sqrt κ + 1): sqrt(κ) layers replace κ of Lemma 1.

    Args:
        num_layers: L.
        lambda_min: λmin, or a positive number below it.
        lambda_max: λmax, or a number above it.
        form: see `Form`.
        num_edges: largest number of columns of B, for the general form only.
        num_demands: k, for the general form only.

    Raises:
        BadInput: 0 < lambda_min < lambda_max does not hold.
    """
    series = interpolated_series(lambda value: 1 / value, lambda_min, lambda_max, num_layers)
    return _series(series, lambda_min, lambda_max, form, (num_edges, num_demands), balanced=True)


def resistive_embedding_chebyshev(
    *,
    num_layers: int,
    lambda_min: float,
    lambda_max: float,
    form: Form = "efficient",
    num_edges: int | None = None,
    num_demands: int | None = None,
) -> IncidenceConstruction:
    """Build sqrt(L†) Ψ by the Chebyshev series of λ^(-1/2); call `model(incidence, demands) -> [n, k]`.

    Error at most `2 ρ^L / sqrt(λmin)`; options as in `electric_flow_chebyshev`.
    """
    series = interpolated_series(lambda value: value**-0.5, lambda_min, lambda_max, num_layers)
    return _series(series, lambda_min, lambda_max, form, (num_edges, num_demands), balanced=True)


def heat_kernel_chebyshev(
    *,
    num_layers: int,
    time: float,
    lambda_max: float,
    form: Form = "efficient",
    num_edges: int | None = None,
    num_demands: int | None = None,
) -> IncidenceConstruction:
    """Build e^(-sL) Ψ by its Chebyshev series on [0, λmax]; call `model(incidence, demands) -> [n, k]`.

    Its error decreases from about sqrt(s λmax) layers on, compared with 8 s λmax for Lemma 3, and no term grows.

    Args:
        num_layers: L.
        time: s > 0.
        lambda_max: λmax, or a number above it.
        form: see `Form`.
        num_edges: largest number of columns of B, for the general form only.
        num_demands: k, for the general form only.

    Raises:
        BadInput: the time or `lambda_max` is not positive.
    """
    check_positive("time", time)
    check_positive("lambda_max", lambda_max)
    check_options(num_layers, form)
    coefficients = heat_series(time, lambda_max, num_layers)
    return _series(coefficients, 0.0, lambda_max, form, (num_edges, num_demands), balanced=False)


def _series(
    coefficients: list[float], low: float, high: float, form: Form, sizes: tuple[int | None, int | None], balanced: bool
) -> IncidenceConstruction:
    layers, limit = series_layers(coefficients, low, high), (high, f"lambda_max={high:g}")
    named = {"num_edges": sizes[0], "num_demands": sizes[1]}
    return IncidenceConstruction(layers, form, 3, named, balanced=balanced, limit=limit)


def interpolated_series(
    function: Callable[[np.ndarray], np.ndarray], low: float, high: float, num_terms: int
) -> list[float]:
    """Return the first Chebyshev coefficients of a function on [low, high], up to rounding.

    The function is interpolated at increasingly many Chebyshev points until the last coefficients are rounding errors.

    Args:
        function: maps eigenvalues to values.
        low: left end, positive.
        high: right end, above it.
        num_terms: coefficients to return.

    Raises:
        BadInput: the interval is empty or not positive, or so wide that the series would need too many terms.
    """
    if not 0 < low < high:
        raise BadInput(f"Expected 0 < lambda_min < lambda_max, but got {low} and {high}.")
    check_range("num_layers", num_terms, at_least=1, whole=True)
    points = 64
    while points <= _MAX_POINTS:
        angles = np.pi * (np.arange(points) + 0.5) / points
        values = function(low + (high - low) * np.cos(angles / 2) ** 2)  # no cancellation near the lower end
        coefficients = dct(values) / points
        # A cosine transform doubles the constant term.
        coefficients[0] /= 2
        rounding = 8 * np.finfo(float).eps * np.abs(values).max()
        if points >= 2 * num_terms and np.abs(coefficients[-points // 8 :]).max() < rounding:
            return [float(value) for value in coefficients[:num_terms]]
        points *= 2
    raise BadInput(f"lambda_max / lambda_min = {high / low:.3g} is too large for a Chebyshev series.")


def heat_series(time: float, high: float, num_terms: int) -> list[float]:
    """Expand `e^(-time λ)` on [0, high] in Chebyshev polynomials: `c_l = 2 (-1)^l e^(-a) I_l(a)`, a = time high / 2."""
    degrees = np.arange(num_terms)
    # `ive` computes e^(-a) I_l(a) directly: I_0 by itself overflows beyond a = 713.
    coefficients = 2.0 * (-1.0) ** degrees * ive(degrees, time * high / 2)
    coefficients[0] /= 2
    return [float(value) for value in coefficients]


def series_layers(coefficients: list[float], low: float, high: float) -> list[LayerWeights]:
    """Create one layer per coefficient, on the blocks (T_l, T_(l-1), sum) with Z_0^T = [B, Ψ, 0, 0].

    `V_TT = s/h, R_TT = -s m/h - 1, R_TT' = -1, R_T'T = 1, R_T'T' = -1, R_ΣT = c_l` with s = 2, but s = 1 and
    R_TT' = 0 in the first layer. Layers whose terms are below rounding do nothing: on the constant vector, whose
    eigenvalue 0 is outside the interval, T_l grows as fast as c_l decreases, and would continue to grow.
    """
    middle, half = (high + low) / 2, (high - low) / 2
    num_layers = len(coefficients)
    smallest = np.finfo(float).eps * max(map(abs, coefficients))
    while abs(coefficients[-1]) < smallest:
        coefficients = coefficients[:-1]
    layers: list[LayerWeights] = []
    for term, coefficient in enumerate(coefficients):
        factor = 2.0 if term else 1.0
        # A layer adds the result of its weights to Z, so the diagonal is the recurrence minus 1.
        residual = {
            (_CURRENT, _CURRENT): -factor * middle / half - 1,
            (_CURRENT, _BEFORE): -1.0 if term else 0.0,
            (_BEFORE, _CURRENT): 1.0,
            (_BEFORE, _BEFORE): -1.0,
            (_SUM, _CURRENT): coefficient,
        }
        value = blocks(3, {(_CURRENT, _CURRENT): factor / half})
        layers.append(LayerWeights(value=value, residual=blocks(3, residual), incidence=1.0))
    idle = LayerWeights(value=blocks(3, {}), residual=blocks(3, {}))
    return layers + [idle] * (num_layers - len(layers))
