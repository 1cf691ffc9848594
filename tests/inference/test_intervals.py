"""Split-conformal intervals: coverage by simulation, ranks by counting."""

from __future__ import annotations

from fractions import Fraction

import numpy as np
import pytest
from scipy.stats import binom

from graphbench.errors import BadInput
from graphbench.inference.intervals import Intervals, conformal_rank, parse_coverage

SIMULATIONS = 4000
#: Probability that a correct implementation fails a bound.
RARE = 1e-6


@pytest.mark.parametrize(("rows", "coverage"), [(37, "0.9"), (19, "0.95"), (50, "0.5"), (10, "0.8")])
@pytest.mark.parametrize("law", ["skewed", "heavy"])
def test_new_rows_are_covered_as_often_as_the_theorem_says(rows, coverage, law):
    """Without ties the coverage is k / (n + 1) for any distribution and any model."""
    generator = np.random.default_rng(rows)
    noise = generator.exponential if law == "skewed" else lambda size: generator.standard_t(2, size)
    wanted, hits = parse_coverage(coverage), 0
    for _ in range(SIMULATIONS):
        x = generator.uniform(size=(rows + 1, 1))
        y = x**2 + (1 + 3 * x) * noise(size=(rows + 1, 1))
        predictions = 0.5 * x - 1  # a biased model that ignores the growing noise
        found = Intervals.fit(wanted, predictions[:-1], y[:-1], ["y"])
        bounds = found.columns(predictions[-1:])
        hits += int(bounds["y_low"][0] <= y[-1, 0] <= bounds["y_high"][0])
    exact = conformal_rank(rows, wanted) / (rows + 1)
    assert float(wanted) <= exact < float(wanted) + 1 / (rows + 1)
    assert binom.ppf(RARE, SIMULATIONS, exact) <= hits <= binom.isf(RARE, SIMULATIONS, exact)


def test_ties_only_raise_the_coverage():
    generator = np.random.default_rng(1)
    wanted = Fraction(3, 4)
    hits = 0
    for _ in range(SIMULATIONS):
        y = generator.integers(0, 3, size=(16, 1)).astype(float)
        bounds = Intervals.fit(wanted, np.zeros((15, 1)), y[:-1], ["y"]).columns(np.zeros((1, 1)))
        hits += int(bounds["y_low"][0] <= y[-1, 0] <= bounds["y_high"][0])
    assert hits >= binom.ppf(RARE, SIMULATIONS, float(wanted))


@pytest.mark.parametrize("text", ["0.55", "0.7", "0.9", "0.95", "0.999"])
def test_the_rank_is_the_first_that_suffices(text):
    """Computed in integers: a product such as 0.55 * 100 = 55.00000000000001 must not raise it."""
    digits = len(text) - 2
    numerator, denominator = int(text[2:]), 10**digits
    for rows in range(1, 300):
        rank = conformal_rank(rows, parse_coverage(text))
        assert rank * denominator >= numerator * (rows + 1) > (rank - 1) * denominator


def test_too_few_rows_are_refused_and_just_enough_are_not():
    for text, least in (("0.9", 9), ("0.95", 19), ("0.99", 99)):
        errors = np.arange(float(least))[:, None]
        found = Intervals.fit(parse_coverage(text), errors, np.zeros_like(errors), ["y"])
        assert found.half_widths == (least - 1.0,)
        with pytest.raises(BadInput, match=f"has {least - 1} rows .* 'y', and this coverage needs at least {least}"):
            Intervals.fit(parse_coverage(text), errors[1:], np.zeros_like(errors[1:]), ["y"])
    with pytest.raises(BadInput, match=r"8 rows allow at most 0.8888\.$"):
        Intervals.fit(Fraction(9, 10), np.zeros((8, 1)), np.zeros((8, 1)), ["y"])
    Intervals.fit(parse_coverage("0.8888"), np.zeros((8, 1)), np.zeros((8, 1)), ["y"])
    with pytest.raises(BadInput, match=r"has 0 rows .* at least 9\.$"):
        Intervals.fit(Fraction(9, 10), np.zeros((8, 1)), np.full((8, 1), np.nan), ["y"])


def test_targets_have_widths_of_their_own_and_unknown_ones_do_not_count():
    targets = np.zeros((30, 2), dtype=np.float32)
    targets[:10, 1] = np.nan
    predictions = np.stack((np.arange(30), -100 * np.arange(30)), 1).astype(np.float32)
    found = Intervals.fit(Fraction(1, 2), predictions, targets, ["a", "b"])
    assert found.rows == (30, 20)
    assert found.half_widths == (15.0, 2000.0)  # ranks 16 of 30 and 11 of 20
    columns = found.columns(np.array([[1.0, np.nan]]))
    assert list(columns) == ["a_low", "a_high", "b_low", "b_high"]
    assert [columns["a_low"][0], columns["a_high"][0]] == [-14.0, 16.0]
    assert np.isnan(columns["b_low"][0])


@pytest.mark.parametrize("text", ["0", "1", "90", "-0.1", "ninety", "nan", "1/0", ""])
def test_what_is_no_coverage_is_refused(text):
    with pytest.raises(BadInput, match=r"--interval .*: must be the coverage, a number above 0 and below 1"):
        parse_coverage(text)


def test_intervals_of_a_target_in_log10_are_those_of_its_logarithm():
    rng = np.random.default_rng(0)
    logs, truth = rng.normal(size=(40, 2)), rng.normal(size=(40, 2))
    logged = (True, False)
    predictions, y = (np.column_stack([10 ** one[:, 0], one[:, 1]]) for one in (logs, truth))
    found = Intervals.fit(Fraction(9, 10), predictions, y, ["a", "b"], logged)
    plain = Intervals.fit(Fraction(9, 10), logs, truth, ["a", "b"])
    assert found.half_widths == pytest.approx(plain.half_widths)
    for name, values in plain.columns(logs).items():
        assert found.columns(predictions)[name] == pytest.approx(10**values if name.startswith("a") else values)


def test_widths_that_follow_a_spread_are_covered_and_proportional_to_it():
    """Widths from a spread that follows the noise differ, but the coverage is the same."""
    generator, wanted, hits, rows = np.random.default_rng(5), Fraction(9, 10), 0, 39
    for _ in range(SIMULATIONS):
        spread = generator.uniform(0.1, 2, size=(rows + 1, 1))
        y = spread * generator.standard_t(3, size=(rows + 1, 1))
        found = Intervals.fit(wanted, 0 * y[:-1], y[:-1], ["y"], spreads=spread[:-1], floors=[0.05])
        hits += int(found.covers(0 * y[-1:], y[-1:], spread[-1:])[0, 0])
    exact = conformal_rank(rows, wanted) / (rows + 1)
    assert binom.ppf(RARE, SIMULATIONS, exact) <= hits <= binom.isf(RARE, SIMULATIONS, exact)
    low, high = found.bounds(np.array([[1.0], [1.0]]), np.array([[0.0], [1.0]]))
    assert (high - low)[1, 0] / (high - low)[0, 0] == pytest.approx(1.05 / 0.05)


def test_a_spread_of_a_logarithm_is_relative_to_the_prediction():
    predictions, y = np.array([[10.0], [100.0]] * 20), np.array([[20.0], [200.0]] * 20)
    found = Intervals.fit(Fraction(1, 2), predictions, y, ["y"], (True,), spreads=predictions, floors=[0.0])
    assert found.half_widths == pytest.approx((1.0,)), "log10(2) for a spread of 100 %"
    low, high = found.bounds(np.array([[7.0]]), np.array([[21.0]]))
    assert (low[0, 0], high[0, 0]) == pytest.approx((7 / 4, 28.0))


def test_unknown_targets_are_neither_covered_nor_missed():
    found = Intervals(Fraction(1, 2), ("a", "b"), (1.0, 2.0), (9, 9))
    covered = found.covers(np.zeros((2, 2)), np.array([[0.5, np.nan], [1.5, -2.0]]))
    np.testing.assert_array_equal(covered, [[1, np.nan], [0, 1]])
