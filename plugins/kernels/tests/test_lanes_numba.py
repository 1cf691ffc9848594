"""Arithmetic on sixteen numbers at a time, against NumPy's."""

from __future__ import annotations

import numpy as np
import pytest

pytest.importorskip("numba")

from llvmlite import ir
from numba import njit, types
from numba.extending import intrinsic

from graphbench_kernels.lanes_numba import (
    Lanes,
    choose,
    larger,
    largest,
    powers_of_two,
    root,
    smaller,
    total,
    transpose,
)
from graphbench_kernels.products_numba import LANES

#: With the exponent from which powers are normal numbers.
DTYPES = [(np.float32, -126), (np.float64, -1022)]


def compiled(function):
    """Compile without a cache on disk, unlike kernels."""
    return njit(error_model="numpy", fastmath={"reassoc", "nsz", "contract"})(function)


def applied(formula, x, count):
    """Return `count` times LANES numbers from a formula of LANES numbers; single results fill all lanes."""

    @intrinsic
    def instruction(typing_context, x, out):
        def generate(context, builder, signature, arguments):
            arrays = zip(signature.args, arguments, strict=True)
            start, end = (context.make_array(kind)(context, builder, given).data for kind, given in arrays)
            vector = ir.VectorType(start.type.pointee, LANES)
            align = vector.element.get_abi_size(context.target_data)
            value = builder.load(builder.bitcast(start, vector.as_pointer()), align=align)
            for number, found in enumerate(formula(Lanes(builder, value))):
                for lane in range(LANES):
                    at = builder.gep(end, [ir.IntType(64)(number * LANES + lane)])
                    single = not isinstance(found, Lanes)
                    one = found if single else builder.extract_element(found.value, ir.IntType(32)(lane))
                    builder.store(one, at)
            return context.get_dummy_value()

        return types.void(x, out), generate

    @compiled
    def run(x, out):
        instruction(x, out)

    out = np.empty(count * LANES, x.dtype)
    run(x, out)
    return out.reshape(count, LANES)


@pytest.mark.parametrize(("dtype", "lowest"), DTYPES)
def test_powers_of_two_are_right_to_within_rounding(dtype, lowest):
    for begin in np.linspace(lowest + 1, 50, 40):
        x = np.linspace(begin, begin + 10, LANES, dtype=dtype)
        powers, inverses = applied(powers_of_two, x, 2)
        exact = np.exp2(x.astype(np.longdouble))
        assert np.abs(powers / exact - 1).max() < 1.5 * np.finfo(dtype).eps
        assert np.abs(inverses * exact - 1).max() < 1.5 * np.finfo(dtype).eps


@pytest.mark.parametrize(("dtype", "_"), DTYPES)
def test_answers_and_choices_go_lane_by_lane_and_keep_what_is_no_number(dtype, _):
    def formula(x):
        allowed = (x >= 0.0) & ~(x > 20.0)
        return larger(x, 20.0), smaller(x, 20.0), choose(allowed, root(x), 7.0), (1.0 - x) / x.same(20.0)

    x = np.linspace(-3, 50, LANES).astype(dtype)
    x[5] = np.nan
    most, least, roots, shares = applied(formula, x, 4)
    valid = np.arange(LANES) != 5
    np.testing.assert_array_equal(most[valid], np.maximum(x, 20)[valid])
    np.testing.assert_array_equal(least[valid], np.minimum(x, 20)[valid])
    with np.errstate(invalid="ignore"):
        np.testing.assert_allclose(roots, np.where((x >= 0) & (x <= 20), np.sqrt(x), 7), rtol=1e-6)
    np.testing.assert_allclose(shares, (1 - x) / 20, rtol=1e-6, equal_nan=True)


@pytest.mark.parametrize(("dtype", "_"), DTYPES)
def test_all_lanes_are_joined(dtype, _):
    x = np.random.default_rng(0).standard_normal(LANES).astype(dtype)
    for shift in range(LANES):  # the largest in each lane
        turned = np.roll(x, shift)
        top, sums = applied(lambda x: (largest(x), total(x)), turned, 2)
        assert (top == x.max()).all()
        np.testing.assert_allclose(sums, x.astype(np.float64).sum(), rtol=8 * np.finfo(dtype).eps * np.abs(x).sum())
    x[3] = np.nan
    assert np.isnan(applied(lambda x: (total(x),), x, 1)).all()


@pytest.mark.parametrize(("dtype", "_"), DTYPES)
def test_transposed(dtype, _):
    @compiled
    def within(work, apart, target):
        transpose(work, 3, apart, work, target, LANES)

    @compiled
    def across(x, out):
        transpose(x, 1, 2 * LANES, out, 2, LANES + 5)

    numbers = np.arange(2 * LANES * LANES, dtype=dtype)
    expected = numbers.reshape(LANES, 2 * LANES)[:, :LANES].T
    work = np.concatenate((np.zeros(3, dtype), numbers, np.zeros(LANES * LANES, dtype)))
    within(work, 2 * LANES, 3 + len(numbers))
    np.testing.assert_array_equal(work[-LANES * LANES :].reshape(LANES, LANES), expected)
    out = np.full(2 + LANES * (LANES + 5), -1, dtype)
    across(np.concatenate((np.zeros(1, dtype), numbers)), out)
    found = out[2:].reshape(LANES, LANES + 5)
    np.testing.assert_array_equal(found[:, :LANES], expected)
    assert (found[:, LANES:] == -1).all(), "what lies between is left alone"
