"""The Chebyshev series against NumPy's Chebyshev polynomials and the paper's rates."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from numpy.polynomial.chebyshev import chebinterpolate, chebval
from quick import slow

from graphbench.errors import BadInput
from graphbench_linear_transformer import bounds
from graphbench_linear_transformer.constructions import (
    electric_flow,
    electric_flow_chebyshev,
    heat_kernel_chebyshev,
    resistive_embedding,
    resistive_embedding_chebyshev,
)
from graphbench_linear_transformer.constructions.chebyshev import heat_series, interpolated_series
from graphbench_linear_transformer.graphs import incidence_matrix

#: Numbers of layers at which a bound is checked, closer together if it falls faster.
DEPTHS = (1, 2, 3, 5, 8, 13, 21, 34, 60)
TIME = 0.5


def sized(form, graph):
    sizes = {"num_edges": graph.incidence.shape[1], "num_demands": 3} if form == "general" else {}
    return {"form": form} | sizes


def ends(graph):
    return {"lambda_min": graph.lambda_min, "lambda_max": graph.lambda_max}


#: Name -> (construction for a graph, function of an eigenvalue, bound).
MAPS = {
    "electric": (
        lambda g, n, form: electric_flow_chebyshev(num_layers=n, **sized(form, g), **ends(g)),
        lambda v: 1 / v,
        lambda g, n: bounds.electric_flow_chebyshev(n, **ends(g)),
    ),
    "resistive": (
        lambda g, n, form: resistive_embedding_chebyshev(num_layers=n, **sized(form, g), **ends(g)),
        lambda v: v**-0.5,
        lambda g, n: bounds.resistive_embedding_chebyshev(n, **ends(g)),
    ),
    "heat": (
        lambda g, n, form: heat_kernel_chebyshev(num_layers=n, time=TIME, lambda_max=g.lambda_max, **sized(form, g)),
        lambda v: np.exp(-TIME * v),
        lambda g, n: bounds.heat_kernel_chebyshev(n, TIME, g.lambda_max),
    ),
}


@pytest.mark.parametrize("form", ["general", "efficient"])
@pytest.mark.parametrize("name", MAPS)
@pytest.mark.parametrize("num_layers", [1, slow(2), 9, slow(25)])
def test_layers_sum_numpys_chebyshev_series(graph, name, num_layers, form):
    make, function, _ = MAPS[name]
    low, high = (0.0 if name == "heat" else graph.lambda_min), graph.lambda_max
    middle, half = (high + low) / 2, (high - low) / 2
    series = chebinterpolate(lambda x: function(middle + half * x), 900)[:num_layers]
    values = torch.from_numpy(chebval((graph.values.numpy() - middle) / half, series))
    expected = (graph.vectors * values) @ graph.vectors.mT @ graph.demands
    answer = make(graph, num_layers, form)(graph.incidence, graph.demands)
    torch.testing.assert_close(answer, expected, atol=1e-10, rtol=1e-9)


@pytest.mark.parametrize("name", MAPS)
def test_chebyshev_meets_its_bound_for_1_to_60_layers(graph, name):
    make, function, bound = MAPS[name]
    mapped = torch.from_numpy(function(graph.values.numpy()[1:]))
    exact = graph.vectors[:, 1:] @ torch.diag(mapped) @ graph.vectors[:, 1:].mT @ graph.demands
    for num_layers in DEPTHS:
        answer = make(graph, num_layers, "efficient")(graph.incidence, graph.demands)
        error = ((answer - exact).norm(dim=0) / graph.demands.norm(dim=0)).max().item()
        assert error <= bound(graph, num_layers) + 1e-12


@pytest.fixture
def path():
    """A path of 16 nodes: κ = 103, B, its exact eigenvalues, and demands along all eigenvectors."""
    incidence = incidence_matrix(torch.stack([torch.arange(15), torch.arange(1, 16)]), 16)
    values, vectors = torch.linalg.eigh(incidence @ incidence.mT)
    return incidence, values, vectors, vectors[:, 1:].sum(1, keepdim=True)


@pytest.mark.parametrize("power", [-1.0, -0.5])
def test_sqrt_kappa_layers_do_what_kappa_layers_did(path, power):
    incidence, values, vectors, demand = path
    exact = vectors[:, 1:] @ (values[1:, None] ** power)
    ends = {"lambda_min": float(values[1]), "lambda_max": float(values[-1])}
    fast = (electric_flow_chebyshev if power == -1 else resistive_embedding_chebyshev)(num_layers=60, **ends)
    slow = electric_flow if power == -1 else resistive_embedding
    slow = slow(num_layers=300, lambda_max=ends["lambda_max"], form="efficient")
    errors = [(model(incidence, demand) - exact).norm().item() for model in (fast, slow)]
    assert errors[0] < 0.02 * errors[1]


def test_error_falls_at_the_chebyshev_rate(path):
    incidence, values, vectors, demand = path
    exact = vectors[:, 1:] @ (1 / values[1:, None])
    ends = {"lambda_min": float(values[1]), "lambda_max": float(values[-1])}
    errors = [
        (electric_flow_chebyshev(num_layers=n, **ends)(incidence, demand) - exact).norm().item() for n in (20, 80)
    ]
    assert (errors[1] / errors[0]) ** (1 / 60) == pytest.approx(bounds.chebyshev_rate(*ends.values()), rel=0.02)


@pytest.mark.parametrize("name", ["electric", "resistive"])
def test_inverses_need_balanced_demands(graph, name):
    with pytest.raises(BadInput, match="must add up to 0"):
        MAPS[name][0](graph, 2, "efficient")(graph.incidence, graph.demands + 1)


def test_known_coefficients():
    """1/λ: `2 (-ρ)^l / sqrt(ab)`; e^(-sλ): as NumPy interpolates it."""
    low, high = 0.2, 7.0
    rate = bounds.chebyshev_rate(low, high)
    expected = 2 * (-rate) ** np.arange(30) / np.sqrt(low * high)
    expected[0] /= 2
    np.testing.assert_allclose(interpolated_series(lambda v: 1 / v, low, high, 30), expected, rtol=1e-9, atol=1e-14)
    heat = chebinterpolate(lambda x: np.exp(-3.5 * (x + 1)), 60)[:30]
    np.testing.assert_allclose(heat_series(1.0, high, 30), heat, atol=1e-14)


def test_badly_conditioned_series_is_still_exact_in_its_terms():
    rate = bounds.chebyshev_rate(1e-6, 1.0)
    series = interpolated_series(lambda v: 1 / v, 1e-6, 1.0, 60)
    np.testing.assert_allclose(np.abs(series[1:]), 2e3 * rate ** np.arange(1, 60), rtol=1e-9)


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: electric_flow_chebyshev(num_layers=3, lambda_min=2.0, lambda_max=2.0), "0 < lambda_min < lambda_max"),
        (lambda: electric_flow_chebyshev(num_layers=3, lambda_min=0.0, lambda_max=2.0), "0 < lambda_min < lambda_max"),
        (lambda: electric_flow_chebyshev(num_layers=0, lambda_min=1.0, lambda_max=2.0), "num_layers must be"),
        (lambda: electric_flow_chebyshev(num_layers=3, lambda_min=1e-14, lambda_max=2.0), "too large for a Chebyshev"),
        (lambda: heat_kernel_chebyshev(num_layers=3, time=1.0, lambda_max=-1.0), "lambda_max must be a positive"),
    ],
)
def test_bad_intervals_are_refused(call, message):
    with pytest.raises(BadInput, match=message):
        call()
