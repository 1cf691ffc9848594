"""Intervals by distance to the training set: coverage in each bin by simulation, also under a shift."""

from __future__ import annotations

from fractions import Fraction

import numpy as np
import pytest
from scipy.stats import binom

from graphbench.errors import BadInput
from graphbench.inference import distance_bins
from graphbench.inference.class_sets import ClassSets
from graphbench.inference.distance_bins import DistanceBins, bin_edges
from graphbench.inference.intervals import Intervals, conformal_rank

#: Probability that a correct implementation fails a bound.
RARE = 1e-6
NINE = Fraction(9, 10)


def rows(generator, count, beta):
    """Draw distances from Beta(2, beta), and errors that grow with them; predictions are 0."""
    distances = generator.beta(2, beta, count)
    return distances, (0.1 + 2 * distances**2) * generator.standard_normal(count)


def fitted(distances, errors):
    zeros = np.zeros((len(errors), 1))
    fit = lambda chosen, words: Intervals.fit(NINE, zeros[chosen], errors[chosen, None], ["y"], rows=words)  # noqa: E731
    return DistanceBins.fit(NINE, distances, fit)


def test_every_bin_is_covered_under_a_shift_that_one_width_does_not_survive():
    """Each bin covers at most c + 1 / (m + 1) of farther rows, and each but the last at least c - (1 - c) / m."""
    generator, hits, counts, plain = np.random.default_rng(0), np.zeros(4), np.zeros(4), []
    m = 50
    for _ in range(400):
        distances, errors = rows(generator, 4 * m, beta=5)
        bins = fitted(distances, errors)
        new, far = rows(generator, 200, beta=2)
        inside = new <= distances.max()  # nothing is promised beyond the farthest validation row
        covered = bins.covers(np.zeros((200, 1)), far[:, None], None, new)[:, 0]
        width = Intervals.fit(NINE, np.zeros((4 * m, 1)), errors[:, None], ["y"]).half_widths[0]
        plain.append((np.abs(far) <= width).mean())
        for number, mask in enumerate(bins.masks(new)):
            hits[number] += covered[mask & inside].sum()
            counts[number] += (mask & inside).sum()
    shares = hits / counts
    assert (counts > 3000).all()
    assert np.mean(plain) < 0.8, "one width is too narrow for rows that are farther away"
    assert (shares[:3] > 0.9 - 0.1 / m - 0.01).all()
    assert (shares < 0.9 + 1 / (m + 1) + 0.02).all()
    assert shares[3] > 0.8, "in the last bin distances shift"


def test_exchangeable_rows_are_covered_in_each_bin():
    generator, simulations, m = np.random.default_rng(1), 4000, 50
    hits, counts = np.zeros(4), np.zeros(4)
    for _ in range(simulations):
        distances, errors = rows(generator, 4 * m + 1, beta=3)
        bins = fitted(distances[:-1], errors[:-1])
        place = int(np.flatnonzero([mask[0] for mask in bins.masks(distances[-1:])])[0])
        hits[place] += bins.covers(np.zeros((1, 1)), errors[-1:, None], None, distances[-1:])[0, 0]
        counts[place] += 1
    low, high = 0.9 - 0.1 / m, conformal_rank(m, NINE) / (m + 1) + 1 / m
    assert (binom.ppf(RARE, counts, low) <= hits).all()
    assert (hits <= binom.isf(RARE, counts, high)).all()


def test_edges_are_quantiles_and_ties_stay_together():
    assert bin_edges(np.arange(100) / 100, NINE) == (0.49,)
    assert bin_edges(np.arange(400)[::-1] / 400, NINE) == tuple((np.array([100, 200, 300]) - 1) / 400)
    tied = np.repeat([0.1, 0.2, 0.9], [20, 120, 60])
    assert bin_edges(tied, NINE) == (0.2,), "edges at 50 and 100 rows are equal; that at 150 is the maximum"
    between = np.concatenate([np.zeros(99), [0.2], np.linspace(0.3, 0.9, 100)])
    assert bin_edges(between, NINE) == (0.0, between[149]), "a bin from 0 to 0.2 would have one row"
    assert bin_edges(np.arange(450) / 450, Fraction(99, 100)) == (224 / 450,), "a bin needs 198 rows"
    for distances, coverage in (
        (np.arange(99) / 99, NINE),
        (np.full(500, 0.3), NINE),
        (np.arange(300) / 300, Fraction(99, 100)),
    ):
        with pytest.raises(BadInput, match="--interval-by distance"):
            bin_edges(distances, coverage)


def test_each_row_has_the_columns_of_its_bin(monkeypatch):
    monkeypatch.setattr(distance_bins, "_MIN_ROWS", 2)
    distances = np.array([0.1, 0.2, 0.5, 0.6])
    probabilities = np.array([[0.9, 0.1], [0.8, 0.2], [0.6, 0.4], [0.5, 0.5]])
    fit = lambda chosen, words: ClassSets.fit(Fraction(1, 2), probabilities[chosen], np.zeros((2, 1)), "y", "ab")  # noqa: E731
    bins = DistanceBins.fit(Fraction(1, 2), distances, fit)
    assert bins.edges == (0.2,)
    found = bins.columns(np.array([[0.7, 0.3], [0.7, 0.3]]), None, np.array([0.2, 0.3]))
    assert found["set_y"].tolist() == ["", "a"]  # thresholds 0.8 and 0.5
    assert found["distance_to_training"].tolist() == [0.2, 0.3]
    assert bins.record()["by"] == ["distance"]


def test_a_target_that_a_bin_lacks_is_named_with_its_distances():
    distances, errors = rows(np.random.default_rng(2), 200, beta=3)
    errors[np.argsort(distances)[:45]] = np.nan
    with pytest.raises(BadInput, match=r"bin of distances up to .* has 5 rows"):
        fitted(distances, errors)
