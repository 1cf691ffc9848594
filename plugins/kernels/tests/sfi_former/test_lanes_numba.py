"""Arithmetic on sixteen rows in parallel."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from graphbench.contracts.kernels import runs_numba

pytestmark = pytest.mark.skipif(not runs_numba(torch.zeros(1)), reason="kernels in Numba do not run here")

#: With the exponent from which powers are normal numbers.
DTYPES = [(np.float32, -126), (np.float64, -1022)]


def compiled(function):
    """Compile without a cache on disk, unlike kernels."""
    from numba import njit

    return njit(error_model="numpy")(function)


@pytest.mark.parametrize(("dtype", "lowest"), DTYPES)
def test_powers_of_two_are_right_to_within_rounding(dtype, lowest):
    from graphbench_kernels.lanes_numba import powers_of_two
    from graphbench_kernels.sfi_former.lanes_numba import LANES, over_keys

    def power(desk):
        for column, values in enumerate(powers_of_two(desk.column(0)), 1):
            desk.put_column(column, values)
        return (desk.column(1),)

    take = over_keys(power, (), (0,))

    @compiled
    def run(work, count, rows):
        take(work, 0, count, rows)

    for count in (1, 2, 251):
        scores = np.linspace(lowest + 1, 60, count * LANES, dtype=dtype)
        work = np.concatenate((scores, np.zeros(2 * count * LANES + LANES, dtype)))
        run(work, count, 3 * count * LANES)
        powers, inverses = work[count * LANES : 3 * count * LANES].reshape(2, -1)
        exact = np.exp2(scores.astype(np.longdouble))
        assert np.abs(powers / exact - 1).max() < 1.5 * np.finfo(dtype).eps
        assert np.abs(inverses * exact - 1).max() < 1.5 * np.finfo(dtype).eps
        np.testing.assert_allclose(work[-LANES:], exact.reshape(count, LANES).sum(0), rtol=10 * np.finfo(dtype).eps)


@pytest.mark.parametrize(("dtype", "_"), DTYPES)
def test_answers_and_choices_go_lane_by_lane_and_keep_what_is_no_number(dtype, _):
    from graphbench_kernels.lanes_numba import choose, larger, root, smaller
    from graphbench_kernels.sfi_former.lanes_numba import LANES, in_all_rows

    @in_all_rows
    def ask(desk):
        x, bound = desk.row(0), desk.row(1)
        desk.put_row(2, larger(x, bound))
        desk.put_row(3, smaller(x, bound))
        desk.put_row(4, choose((x >= 0.0) & ~(x > bound), root(x), 7.0))
        desk.put_row(5, (1.0 - x) / bound)
        return x > 100.0

    @compiled
    def run(work):
        return ask(work, 0)

    for most in (50, 200):
        x = np.linspace(-3, most, LANES).astype(dtype)
        x[5] = np.nan
        work = np.concatenate((x, np.full(5 * LANES, 20, dtype)))
        assert run(work) == (most > 100)
        rows, valid = work.reshape(6, LANES), np.arange(LANES) != 5
        np.testing.assert_array_equal(rows[2][valid], np.maximum(x, 20)[valid])
        np.testing.assert_array_equal(rows[3][valid], np.minimum(x, 20)[valid])
        with np.errstate(invalid="ignore"):
            np.testing.assert_allclose(rows[4], np.where((x >= 0) & (x <= 20), np.sqrt(x), 7), rtol=1e-6)
        np.testing.assert_allclose(rows[5], (1 - x) / 20, rtol=1e-6, equal_nan=True)
        assert np.isnan(rows[5][5])
