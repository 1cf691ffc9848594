"""Sets of classes: coverage by simulation, thresholds by counting."""

from __future__ import annotations

from fractions import Fraction

import numpy as np
import pytest
from scipy.stats import binom

from graphbench.errors import BadInput
from graphbench.inference.class_sets import ClassSets
from graphbench.inference.intervals import conformal_rank

SIMULATIONS = 2000
#: Probability that a correct implementation fails a bound.
RARE = 1e-6


def draw(generator, rows, classes=3):
    """Draw one rare and two common classes, and an overconfident model that underrates the rare one."""
    truth = generator.choice(classes, size=rows, p=[0.1, 0.4, 0.5])
    logits = generator.normal(size=(rows, classes))
    logits[np.arange(rows), truth] += 0.7
    logits[:, 0] -= 1
    weights = np.exp(3 * logits)
    return weights / weights.sum(1, keepdims=True), truth[:, None]


@pytest.mark.parametrize(("rows", "coverage"), [(39, Fraction(9, 10)), (57, Fraction(3, 4))])
def test_the_true_class_is_in_the_set_as_often_as_the_theorem_says(rows, coverage):
    """Without ties the coverage is k / (n + 1) for any model."""
    generator, hits = np.random.default_rng(rows), 0
    for _ in range(SIMULATIONS):
        probabilities, truth = draw(generator, rows + 1)
        sets = ClassSets.fit(coverage, probabilities[:-1], truth[:-1], "kind", "abc")
        hits += int(sets.covers(probabilities[-1:], truth[-1:])[0, 0])
    exact = conformal_rank(rows, coverage) / (rows + 1)
    assert float(coverage) <= exact < float(coverage) + 1 / (rows + 1)
    assert binom.ppf(RARE, SIMULATIONS, exact) <= hits <= binom.isf(RARE, SIMULATIONS, exact)


def test_by_class_each_class_is_covered_and_otherwise_a_rare_one_is_not():
    generator = np.random.default_rng(0)
    coverage, new = Fraction(9, 10), draw(generator, 40_000)
    for by_class in (False, True):
        shares = []
        for _ in range(40):
            sets = ClassSets.fit(coverage, *draw(generator, 600), "kind", "abc", by_class)
            covered = sets.covers(*new)[:, 0]
            shares.append([covered[new[1][:, 0] == number].mean() for number in range(3)])
        means = np.mean(shares, 0)
        assert (np.abs(means - 0.9) < 0.02).all() == by_class


def test_thresholds_are_those_of_the_rank():
    """Nine rows and 0.8 give k = 8: the second smallest probability of the true class."""
    probabilities = np.linspace(0.1, 0.9, 9)
    sets = ClassSets.fit(Fraction(8, 10), np.stack([probabilities, 1 - probabilities], 1), np.zeros((9, 1)), "y", "ab")
    assert sets.thresholds == pytest.approx((0.2, 0.2))
    assert sets.rows == (9, 9)
    new = np.array([[0.5, 0.5], [0.95, 0.05], [0.2, 0.8], [0.19, 0.81]])
    assert sets.members(new).tolist() == [[True, True], [True, False], [True, True], [False, True]]
    assert sets.columns(new)["set_y"].tolist() == ["a | b", "a", "a | b", "b"]


def test_unknown_classes_do_not_count_and_too_few_rows_are_named():
    probabilities = np.full((12, 2), 0.5)
    truth = np.array([0] * 9 + [1, -1, -1])[:, None]
    assert ClassSets.fit(Fraction(9, 10), probabilities, truth, "y", "ab").rows == (10, 10)
    assert np.isnan(
        ClassSets.fit(Fraction(9, 10), probabilities, truth, "y", "ab").covers(probabilities, truth)[-2:]
    ).all()
    with pytest.raises(BadInput, match="'y=b'"):
        ClassSets.fit(Fraction(9, 10), probabilities, truth, "y", "ab", by_class=True)
    with pytest.raises(BadInput, match="at least 19"):
        ClassSets.fit(Fraction(95, 100), probabilities, truth, "y", "ab")
