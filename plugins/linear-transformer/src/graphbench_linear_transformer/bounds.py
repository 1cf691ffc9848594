"""Error bounds of the constructions, per unit of the demand's norm, as functions of the number of layers.

A bound is `inf` if the lemma makes no statement. All are for exact arithmetic: in float64 an error levels off near
`1e-16 * lambda_max / lambda_min` times the norm of the answer.

Legend: λmin the smallest non-zero and λmax the largest eigenvalue of the Laplacian, κ = λmax / λmin.
"""

from __future__ import annotations

import math

import numpy as np
from scipy.special import ive

#: Terms in the tail of the heat kernel's Chebyshev series; they decrease faster than geometrically.
_TAIL_TERMS = 200


def electric_flow(num_layers: int, step: float, lambda_min: float) -> float:
    """Bound gradient descent from 0: `‖(I - δL)^L L† ψ‖ <= (1 - δ λmin)^L / λmin`, for δ <= 1 / λmax."""
    return (1 - step * lambda_min) ** num_layers / lambda_min


def electric_flow_printed(num_layers: int, step: float, lambda_min: float) -> float:
    """Return the bound of Lemma 1 as printed: `exp(-δ L λmin / 2) / sqrt(λmin)`.

    It always bounds the energy norm `sqrt(e^T L e)` of the error e, but the Euclidean norm only if it is at least
    `electric_flow`: the proof's last line states `‖L† ψ‖² <= ‖ψ‖² / λmin`, which needs λmin >= 1.
    """
    return math.exp(-step * num_layers * lambda_min / 2) / math.sqrt(lambda_min)


def resistive_embedding(num_layers: int, lambda_min: float, lambda_max: float) -> float:
    """Return the bound of Lemma 2, with δ = 1 / λmax: `exp(-L λmin / λmax) / (λmin sqrt(L / λmax))`."""
    return math.exp(-num_layers * lambda_min / lambda_max) / (lambda_min * math.sqrt(num_layers / lambda_max))


def heat_kernel(num_layers: int, time: float, lambda_max: float) -> float:
    """Return the bound of Lemma 3: `2^(-L + 8 s λmax + 1)`, for 8 s λmax <= L."""
    if 8 * time * lambda_max > num_layers:
        return math.inf
    return 2.0 ** (-num_layers + 8 * time * lambda_max + 1)


def electric_flow_fast(num_layers: int, step: float, lambda_min: float) -> float:
    """Return the bound of Lemma 4, in the spectral norm: `exp(-δ 2^L λmin) / λmin`, for δ <= 1 / λmax."""
    return math.exp(-step * 2.0**num_layers * lambda_min) / lambda_min


def electric_flow_fast_layers(relative_error: float, step: float, lambda_min: float) -> int:
    """Count the layers of Lemma 4 for at most this relative error at every eigenvalue: `exp(-δ 2^L λmin)`."""
    # Capped at 1/2: log2 needs a positive number, and an error of 1 needs no layers.
    return max(1, math.ceil(math.log2(-math.log(min(relative_error, 0.5)) / (step * lambda_min))))


def heat_kernel_fast(num_layers: int, time: float, lambda_max: float) -> float:
    """Return the bound of Lemma 5, in the spectral norm: `3^(1 - L) s² λmax²`, for s λmax <= 3^L."""
    if time * lambda_max > 3.0**num_layers:
        return math.inf
    return 3.0 ** (1 - num_layers) * (time * lambda_max) ** 2


def chebyshev_rate(lambda_min: float, lambda_max: float) -> float:
    """Return `ρ = (sqrt κ - 1) / (sqrt κ + 1)`, the error factor per layer; that of gradient descent is `1 - 1 / κ`."""
    ratio = math.sqrt(lambda_max / lambda_min)
    return (ratio - 1) / (ratio + 1)


def electric_flow_chebyshev(num_layers: int, lambda_min: float, lambda_max: float) -> float:
    """Return the bound `2 ρ^L / λmin`.

    The series of 1/λ has the coefficients `2 (-ρ)^l / sqrt(λmin λmax)`; the omitted terms sum to
    `ρ^L (1 + 1 / sqrt κ) / λmin`.
    """
    return 2 * chebyshev_rate(lambda_min, lambda_max) ** num_layers / lambda_min


def resistive_embedding_chebyshev(num_layers: int, lambda_min: float, lambda_max: float) -> float:
    """Return the bound `2 ρ^L / sqrt(λmin)`.

    `λ^(-1/2) = 2/π ∫ dt / (λ + t²)`, and the remainder of every `1 / (λ + t²)` is below `2 ρ^L / (λmin + t²)`.
    """
    return 2 * chebyshev_rate(lambda_min, lambda_max) ** num_layers / math.sqrt(lambda_min)


def heat_kernel_chebyshev(num_layers: int, time: float, lambda_max: float) -> float:
    """Return `2 sum_(l >= L) e^(-a) I_l(a)` with a = s λmax / 2 and I_l the modified Bessel function, for L >= 1."""
    degrees = num_layers + np.arange(_TAIL_TERMS + math.ceil(time * lambda_max))
    return float(2 * ive(degrees, time * lambda_max / 2).sum())
