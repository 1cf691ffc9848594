"""Sums of maxima and their helpers in kernels, against NumPy in float64."""

import numpy as np
import pytest

pytest.importorskip("numba")

from graphbench_kernels.models.maxout_tiles_numba import no_number, share_gradients, sums_of_maxima
from graphbench_kernels.products_numba import LANES, add_product
from graphbench_kernels.running import cpu_kernel

ROWS, DTYPES = [0, 1, 4, 7, 18], [np.float32, np.float64]


@cpu_kernel
def call_sums(a, b, out, rows, columns, count, factor):
    sums_of_maxima(a, 0, count, b, 0, columns, out, 0, columns, rows, columns, count, factor)


@cpu_kernel
def call_shares(a, b, g, of_a, of_b, rows, columns, count):
    share_gradients(a, 0, columns, b, 0, columns, g, 0, count, of_a, of_b, rows, columns, count)


@cpu_kernel
def call_add(a, b, out, rows, columns, count):
    add_product(a, 0, 1, rows, b, 0, columns, out, 0, columns, rows, columns, count)


@cpu_kernel
def call_no_number(a, start, count):
    return no_number(a, start, count)


def draw(*shape, dtype, seed):
    return np.random.default_rng(seed).standard_normal(shape).round(1).astype(dtype)


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("rows", ROWS)
@pytest.mark.parametrize("columns", [LANES, 2 * LANES, 5 * LANES])
@pytest.mark.parametrize("count", [0, 1, 9])
def test_sums_of_maxima(dtype, rows, columns, count):
    a, b = draw(rows, count, dtype=dtype, seed=0), draw(count, columns, dtype=dtype, seed=1)
    out = np.full((rows + 1, columns), 7, dtype)
    call_sums(a.ravel(), b.ravel(), out.ravel(), rows, columns, count, dtype(0.5))
    expected = 0.5 * np.maximum(a[:, :, None], b[None]).astype(np.float64).sum(1)
    np.testing.assert_allclose(out[:rows], expected, rtol=1e-5, atol=1e-5)
    assert (out[rows:] == 7).all(), "what lies behind is left alone"


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("rows", ROWS)
@pytest.mark.parametrize("columns", [LANES, 3 * LANES])
@pytest.mark.parametrize("count", [0, 1, 9])
def test_gradients_are_shared_where_numbers_are_equal(dtype, rows, columns, count):
    a, b = draw(rows, columns, dtype=dtype, seed=0), draw(count, columns, dtype=dtype, seed=1)
    g, of_a, of_b = draw(rows, count, dtype=dtype, seed=2), np.full_like(a, 7), np.ones_like(b)
    call_shares(a.ravel(), b.ravel(), g.ravel(), of_a.ravel(), of_b.ravel(), rows, columns, count)
    own, other = a[:, None], b[None]
    assert rows * count < 30 or (own == other).any()
    shares = (2.0 * (own > other) + (own == other)) * g[:, :, None].astype(np.float64)
    np.testing.assert_allclose(of_a, shares.sum(1), rtol=1e-5, atol=1e-5)
    np.testing.assert_allclose(of_b, 1 + shares.sum(0), rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("rows", ROWS)
@pytest.mark.parametrize("columns", [LANES, 3 * LANES])
def test_products_are_added(dtype, rows, columns):
    a, b = draw(11, rows, dtype=dtype, seed=0), draw(11, columns, dtype=dtype, seed=1)
    out = np.full((rows + 1, columns), 7, dtype)
    call_add(a.ravel(), b.ravel(), out.ravel(), rows, columns, 11)
    expected = 7 + a.T.astype(np.float64) @ b.astype(np.float64)
    np.testing.assert_allclose(out[:rows], expected, rtol=1e-5, atol=1e-5)
    assert (out[rows:] == 7).all()


def test_what_is_no_number_is_found():
    a = np.array([np.nan, 1.0, np.inf, -np.inf, 2.0, np.nan])
    assert call_no_number(a, 1, 4) == 0
    assert np.isnan(call_no_number(a, 1, 5))
    assert np.isnan(call_no_number(a, 0, 2))
