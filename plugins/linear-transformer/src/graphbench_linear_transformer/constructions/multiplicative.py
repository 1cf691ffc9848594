"""Lemmas 4 and 5: each layer multiplies the polynomials of the previous one."""

from __future__ import annotations

from torch import Tensor

from graphbench_linear_transformer.constructions._models import (
    Form,
    LaplacianConstruction,
    LayerWeights,
    blocks,
    check_options,
    check_positive,
    gradient_step,
)


def electric_flow_fast(
    *,
    num_layers: int,
    step: float | None = None,
    lambda_max: float | None = None,
    form: Form = "efficient",
    num_nodes: int | None = None,
) -> LaplacianConstruction:
    """Build Lemma 4: L† with 2^L terms of its power series; call `model(laplacian) -> [n, n]`.

    Blocks (Γ, Λ, Φ), Z_0^T = [I^ - δL, I, δI^] with I^ = I - 11^T / n. `V_ΓΓ = V_ΦΦ = I, QK_ΛΓ = I, R_ΓΓ = -I`, so
    Γ+ = Γ² and Φ+ = (I + Γ) Φ: after L layers Φ = δ sum_(j < 2^L) Γ_0^j.

    Args:
        num_layers: L.
        step: δ <= 1 / λmax.
        lambda_max: λmax, instead of the step: δ = 1 / λmax.
        form: see `Form`.
        num_nodes: n, for the general form only.

    Raises:
        BadInput: not exactly one of `step` and `lambda_max` is given, or a number is not positive.
    """
    delta, limit = gradient_step(step, lambda_max)
    weights = LayerWeights(
        value=blocks(3, {(0, 0): 1.0, (2, 2): 1.0}),
        residual=blocks(3, {(0, 0): -1.0}),
        features=blocks(3, {(1, 0): 1.0}),
    )

    # Γ_0 has eigenvalue 1 on the constants of further components, so the sum would grow like 2^L: hence `connected`.
    def read_in(laplacian: Tensor, identity: Tensor, projection: Tensor) -> list[Tensor]:
        return [projection - delta * laplacian, identity, delta * projection]

    return LaplacianConstruction(
        weights, num_layers, form, {"num_nodes": num_nodes}, read_in, lambda parts: parts[2], limit, connected=True
    )


def heat_kernel_fast(
    *, num_layers: int, time: float, form: Form = "efficient", centred: bool = True, num_nodes: int | None = None
) -> LaplacianConstruction:
    """Build Lemma 5: e^(-sL) as (1 - sL/N)^N with N = 3^L; call `model(laplacian) -> [n, n]`.

    As printed: Z_0^T = I - 3^(-L) s L, `V = QK = I, R = -I`, so Z+ = Z³. In float64 that Z_0 loses L as 3^L grows:
    rounding of 1e-16 in Z_0 becomes 3^L 1e-16 in Z_L, more than the bound from 17 layers on. The centred form instead
    stores Y = Z - I and the identity, Z_0^T = [-3^(-L) s L, I], with `V_YY = I, QK_YY = I, QK_IY = 3I, R_YY = 2I`:
    Y+ = 3Y + 3Y² + Y³ is the same map, exact to rounding for any L, and the answer is the sum of both blocks.

    Args:
        num_layers: L, with 3^L >= s λmax.
        time: s > 0.
        form: see `Form`.
        num_nodes: n, for the general form only.
        centred: False for the weights as printed.

    Raises:
        BadInput: the time is not positive.
    """
    check_positive("time", time)
    check_options(num_layers, form)
    short = time * 3.0**-num_layers
    limit = 1 / short, f"time={time:g} in {num_layers} layers (3^L >= s λmax)"
    if not centred:
        printed = LayerWeights(value=((1.0,),), residual=((-1.0,),), features=((1.0,),))
        return LaplacianConstruction(
            printed,
            num_layers,
            form,
            {"num_nodes": num_nodes},
            lambda laplacian, identity, _: [identity - short * laplacian],
            _first,
            limit,
        )
    weights = LayerWeights(
        value=blocks(2, {(0, 0): 1.0}),
        residual=blocks(2, {(0, 0): 2.0}),
        features=blocks(2, {(0, 0): 1.0, (1, 0): 3.0}),
    )
    return LaplacianConstruction(
        weights,
        num_layers,
        form,
        {"num_nodes": num_nodes},
        lambda laplacian, identity, _: [-short * laplacian, identity],
        lambda parts: parts[0] + parts[1],
        limit,
    )


def _first(parts: list[Tensor]) -> Tensor:
    return parts[0]
