"""Intervals and class sets against crepes on random cases, and the exact rank if crepes' is rounded up."""

from __future__ import annotations

from fractions import Fraction

import numpy as np
import pytest

from graphbench.inference import distance_bins
from graphbench.inference.class_sets import ClassSets
from graphbench.inference.distance_bins import DistanceBins
from graphbench.inference.intervals import Intervals, conformal_rank

crepes = pytest.importorskip("crepes", reason="needs crepes, which `make env` installs")

#: (n + 1) c is not whole for the rows below: at whole numbers rounding may change crepes' rank.
COVERAGES = ("0.51", "0.803", "0.9037")
SEEDS = range(5)


def regression(seed, rows=173):
    generator = np.random.default_rng(seed)
    predictions, targets = generator.standard_normal((2, rows, 1))
    return predictions, targets, generator.uniform(0.1, 2, (rows, 1)), generator.uniform(size=rows)


@pytest.mark.parametrize("seed", SEEDS)
@pytest.mark.parametrize("coverage", COVERAGES)
@pytest.mark.parametrize("by_spread", [False, True])
@pytest.mark.parametrize("by_distance", [False, True])
def test_intervals_are_those_of_crepes(by_spread, by_distance, coverage, seed, monkeypatch):
    monkeypatch.setattr(distance_bins, "_MIN_ROWS", 30)
    wanted = Fraction(coverage)
    predictions, targets, spreads, distances = regression(seed)
    new, _, new_spreads, new_distances = regression(seed + 1000, rows=50)

    def fit(rows, words="the rows"):
        options = {"spreads": spreads[rows], "floors": (0.1,)} if by_spread else {}
        return Intervals.fit(wanted, predictions[rows], targets[rows], ["y"], rows=words, **options)

    if by_distance:
        ours = DistanceBins.fit(wanted, distances, fit)
        found = ours.columns(new, new_spreads, new_distances)
        bins, new_bins = (np.searchsorted(ours.edges, values) for values in (distances, new_distances))
    else:
        found, bins, new_bins = fit(slice(None)).columns(new, new_spreads), None, None
    sigmas, new_sigmas = (spreads[:, 0] + 0.1, new_spreads[:, 0] + 0.1) if by_spread else (None, None)
    theirs = crepes.ConformalRegressor().fit((targets - predictions)[:, 0], sigmas=sigmas, bins=bins)
    expected = theirs.predict_int(new[:, 0], sigmas=new_sigmas, bins=new_bins, confidence=float(wanted))
    np.testing.assert_allclose(np.stack([found["y_low"], found["y_high"]], 1), expected, rtol=1e-12, atol=1e-12)


@pytest.mark.parametrize("coverage", COVERAGES)
@pytest.mark.parametrize("by_class", [False, True])
def test_sets_are_those_of_crepes(by_class, coverage):
    """The p value of a class is (1 + scores at least as large) / (n + 1), and a set has the classes with p >= 1 - c."""
    wanted = Fraction(coverage)
    for seed in SEEDS:
        generator = np.random.default_rng(seed)
        probabilities, new = (generator.dirichlet(np.ones(3), rows) for rows in (173, 50))
        truth = np.array([generator.choice(3, p=row) for row in probabilities])
        ours = ClassSets.fit(wanted, probabilities, truth[:, None].astype(float), "y", "abc", by_class=by_class)
        scores, new_scores = 1 - probabilities[np.arange(len(truth)), truth], 1 - new
        columns = []
        for number in range(3):
            of_class = scores[truth == number] if by_class else scores
            theirs = crepes.ConformalClassifier().fit(of_class)
            columns.append(theirs.predict_p(new_scores[:, number], smoothing=False) >= 1 - float(wanted))
        np.testing.assert_array_equal(ours.members(new), np.stack(columns, 1))


def test_a_whole_rank_is_not_rounded_up():
    """With 99 rows, rank 90 covers 0.9; (1 - 0.9) * 100 is below 10 in floats, so crepes may use rank 91."""
    errors = np.arange(1.0, 100.0)
    ours = Intervals.fit(Fraction("0.9"), np.zeros((99, 1)), errors[:, None], ["y"]).half_widths[0]
    theirs = crepes.ConformalRegressor().fit(errors).predict_int(np.zeros(1), confidence=0.9)[0, 1]
    assert ours == conformal_rank(99, Fraction("0.9")) == 90
    assert theirs in (90, 91)
