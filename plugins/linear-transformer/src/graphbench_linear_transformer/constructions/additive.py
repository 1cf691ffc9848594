"""Lemmas 1 to 3: one step of gradient descent, or one term of a power series, per layer."""

from __future__ import annotations

import math

from graphbench_linear_transformer.constructions._models import (
    Form,
    IncidenceConstruction,
    LayerWeights,
    blocks,
    check_options,
    check_positive,
    gradient_step,
)

#: Positions of the feature blocks.
_LAMBDA, _PHI = 0, 1


def electric_flow(
    *,
    num_layers: int,
    step: float | None = None,
    lambda_max: float | None = None,
    form: Form = "efficient",
    num_edges: int | None = None,
    num_demands: int | None = None,
) -> IncidenceConstruction:
    """Build Lemma 1: L† Ψ by gradient descent, one step per layer; call `model(incidence, demands) -> [n, k]`.

    `V_ΦΦ = -δI, QK_BB = I, R_ΦΛ = δI`, so Φ+ = Φ - δ(LΦ - Ψ).

    Args:
        num_layers: L.
        step: δ <= 1 / λmax.
        lambda_max: λmax, instead of the step: δ = 1 / λmax.
        form: see `Form`.
        num_edges: largest number of columns of B, for the general form only.
        num_demands: k, for the general form only.

    Raises:
        BadInput: not exactly one of `step` and `lambda_max` is given, or a number is not positive.
    """
    step, limit = gradient_step(step, lambda_max)
    weights = LayerWeights(
        value=blocks(2, {(_PHI, _PHI): -step}), residual=blocks(2, {(_PHI, _LAMBDA): step}), incidence=1.0
    )
    return IncidenceConstruction(
        [weights] * num_layers,
        form,
        2,
        {"num_edges": num_edges, "num_demands": num_demands},
        balanced=True,
        limit=limit,
    )


def resistive_embedding(
    *,
    num_layers: int,
    lambda_max: float | None = None,
    step: float | None = None,
    form: Form = "efficient",
    num_edges: int | None = None,
    num_demands: int | None = None,
) -> IncidenceConstruction:
    """Build Lemma 2: sqrt(L†) Ψ by its power series, one term per layer; call `model(incidence, demands) -> [n, k]`.

    `V_ΛΛ = -δI, QK_BB = I, R_ΦΛ = α_l I` with `α_l = sqrt(δ) C(2l, l) / 4^l`, so Λ = (I - δL)^l Ψ and Φ = sum α_l Λ_l.

    Args:
        num_layers: L.
        lambda_max: λmax, or a number above it; δ = 1 / λmax.
        step: δ itself, instead of `lambda_max`.
        form: see `Form`.
        num_edges: largest number of columns of B, for the general form only.
        num_demands: k, for the general form only.

    Raises:
        BadInput: not exactly one of `step` and `lambda_max` is given, or a number is not positive.
    """
    step, limit = gradient_step(step, lambda_max)
    check_options(num_layers, form)
    # From their ratio (2l - 1) / 2l: C(2l, l) and 4^l overflow float64 from l = 512 on.
    alphas = [math.sqrt(step)]
    for term in range(1, num_layers):
        alphas.append(alphas[-1] * (2 * term - 1) / (2 * term))
    weights = [
        LayerWeights(
            value=blocks(2, {(_LAMBDA, _LAMBDA): -step}), residual=blocks(2, {(_PHI, _LAMBDA): alpha}), incidence=1.0
        )
        for alpha in alphas
    ]
    return IncidenceConstruction(
        weights, form, 2, {"num_edges": num_edges, "num_demands": num_demands}, balanced=True, limit=limit
    )


def heat_kernel(
    *,
    num_layers: int,
    time: float,
    form: Form = "efficient",
    num_edges: int | None = None,
    num_demands: int | None = None,
) -> IncidenceConstruction:
    """Build Lemma 3: e^(-sL) Ψ by its power series, one term per layer; call `model(incidence, demands) -> [n, k]`.

    `V_ΛΛ = I, QK_BB = I, R_ΛΛ = -I, R_ΦΛ = α_l I` with `α_l = (-s)^l / l!`, so Λ = L^l Ψ and Φ = sum α_l Λ_l. Λ grows
    like λmax^l: float32 overflows if λmax^L exceeds 1e38.

    Args:
        num_layers: L; the bound needs L >= 8 s λmax.
        time: s > 0.
        form: see `Form`.
        num_edges: largest number of columns of B, for the general form only.
        num_demands: k, for the general form only.

    Raises:
        BadInput: the time is not positive.
    """
    check_positive("time", time)
    check_options(num_layers, form)
    # From their ratio -s / l, as l! overflows float64 from l = 171 on.
    alphas = [1.0]
    for term in range(1, num_layers):
        alphas.append(-alphas[-1] * time / term)
    weights = [
        LayerWeights(
            value=blocks(2, {(_LAMBDA, _LAMBDA): 1.0}),
            residual=blocks(2, {(_LAMBDA, _LAMBDA): -1.0, (_PHI, _LAMBDA): alpha}),
            incidence=1.0,
        )
        for alpha in alphas
    ]
    return IncidenceConstruction(weights, form, 2, {"num_edges": num_edges, "num_demands": num_demands})
