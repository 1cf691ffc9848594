"""The bounds are the printed ones; tests of the constructions check that these meet them."""

import math

import pytest

from graphbench_linear_transformer import bounds


def test_bounds_are_those_in_print():
    assert bounds.electric_flow_printed(10, 0.1, 4.0) == pytest.approx(math.exp(-2) / 2)
    assert bounds.resistive_embedding(9, 0.5, 4.0) == pytest.approx(math.exp(-9 / 8) / (0.5 * 1.5))
    assert bounds.heat_kernel(20, 0.5, 4.0) == 2**-3
    assert bounds.electric_flow_fast(3, 0.1, 0.5) == pytest.approx(2 * math.exp(-0.4))
    assert bounds.heat_kernel_fast(4, 2.0, 3.0) == pytest.approx(36 / 27)


def test_bounds_say_nothing_where_the_lemma_does_not():
    assert bounds.heat_kernel(10, 1.0, 2.0) == math.inf
    assert bounds.heat_kernel_fast(1, 1.0, 4.0) == math.inf


def test_chebyshev_rate_has_the_root_of_the_condition_number():
    assert bounds.chebyshev_rate(1.0, 9.0) == pytest.approx(0.5)
    assert bounds.electric_flow_chebyshev(3, 1.0, 9.0) == pytest.approx(0.25)
    assert bounds.resistive_embedding_chebyshev(3, 4.0, 36.0) == pytest.approx(0.125)


@pytest.mark.parametrize(("lambda_max", "first"), [(2.0, math.exp(-1) * 1.2660658777520084), (20_000.0, 0.0039894727)])
def test_heat_bound_is_the_whole_series_at_degree_zero(lambda_max, first):
    """`e^(-a) (I_0 + 2 I_1 + 2 I_2 + ...) = 1`, so from degree 1 on twice the sum is 1 - e^(-a) I_0."""
    assert bounds.heat_kernel_chebyshev(1, 1.0, lambda_max) == pytest.approx(1 - first)


def test_layers_of_lemma_4_are_the_fewest_whose_bound_holds():
    for step, lambda_min, share in ((0.2, 0.01, 1e-9), (0.05, 3.0, 1e-3)):
        count = bounds.electric_flow_fast_layers(share, step, lambda_min)
        assert bounds.electric_flow_fast(count, step, lambda_min) * lambda_min <= share
        assert bounds.electric_flow_fast(count - 1, step, lambda_min) * lambda_min > share
