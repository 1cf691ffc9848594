"""Test models against the best one, paired by seeds and splits so that their common variation cancels.

Equations and sources:

- paired t test: t = mean(d) / sqrt(var(d) / n) with n - 1 degrees of freedom, d the differences of two models over the
  seeds that both have.
- Splits of one data set share training graphs, so their differences are not independent and the plain test is too
  optimistic. Nadeau and Bengio (2003), "Inference for the generalization error", use
  t = mean(d) / sqrt((1 / n + n_test / n_train) var(d)), n the number of splits. For K folds repeated R times, n is K R,
  with K R - 1 degrees of freedom (Bouckaert and Frank 2004, "Evaluating the replicability of significance tests").
  Validation graphs do not count as training graphs, so the correction is rather too large.
- Holm (1979): for m p-values in ascending order, number i (from 1) becomes the largest (m - j + 1) p_j over j <= i, at
  most 1.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from scipy import stats

from graphbench.report.groups import Group, replicate
from graphbench.report.loading import mapping

PAIRED, CORRECTED = "paired t test", "corrected resampled t test"


@dataclass(frozen=True)
class Comparison:
    """A model compared with the best one."""

    key: str  # split and metric, such as `test/MAE`
    pairs: int  # number of seeds, or of splits if several, that both models have; at least two
    over: str  # "seeds" or "splits"
    difference: float  # mean of this model's score minus that of the best
    sd: float  # standard deviation of the differences (n - 1)
    low: float  # lower end of the 95 % interval of the difference
    high: float  # upper end
    test: str  # name of the test
    p: float  # its two-sided p-value; NaN if all differences are equal
    wilcoxon: float  # p of Wilcoxon's signed-rank test, which assumes independent splits; NaN if all differences are 0
    holm: float = math.nan  # p for all comparisons of the table together

    @property
    def words(self) -> str:
        """Format p-value and test: `p = 0.012 (paired t test, n = 5)`."""
        return f"{show_p(self.p)} ({self.test}, n = {self.pairs})"


def show_p(p: float) -> str:
    """Format a p-value.

    Examples:
        >>> [show_p(p) for p in (0.04217, 0.5, 3e-9, math.nan)]
        ['p = 0.042', 'p = 0.5', 'p < 0.0001', 'p unknown']
    """
    if math.isnan(p):
        return "p unknown"
    return "p < 0.0001" if p < 1e-4 else f"p = {p:.2g}"


def compare(best: Group, other: Group, key: str) -> Comparison | None:
    """Compare a group with the best one by the score `key`; None for fewer than two pairs or a non-finite score."""
    first, second = _scores(best, key), _scores(other, key)
    by_split: dict[tuple[str, ...], list[float]] = {}
    for name, score in first.items():
        if name in second:
            by_split.setdefault(name[1:], []).append(second[name] - score)
    if len(by_split) > 1:  # seeds of one split are averaged: they are not additional splits
        return paired(key, "splits", [float(np.mean(each)) for each in by_split.values()], _test_ratio(best))
    return paired(key, "seeds", [difference for each in by_split.values() for difference in each])


def paired(key: str, over: str, differences: Sequence[float], ratio: float = 0.0) -> Comparison | None:
    """Test differences of pairs against 0; None for fewer than two pairs, or one that is not finite.

    `ratio` is the number of test graphs per training graph, for splits of one data set; 0 for independent pairs. `key`
    and `over` are those of `Comparison`.

    Examples:
        >>> test = paired("test/MAE", "seeds", [1.0, 2.0, 3.0])
        >>> test.difference, round(test.p, 6)  # t = 2 sqrt(3), 2 degrees of freedom: p = 1 - sqrt(6 / 7)
        (2.0, 0.07418)
    """
    values = np.asarray(differences, dtype=float)
    count = len(values)
    if count < 2 or not np.isfinite(values).all():
        return None
    mean, sd = float(values.mean()), float(values.std(ddof=1))
    if sd <= 1e-12 * np.abs(values).max():  # all equal up to rounding
        sd = 0.0
    error = math.sqrt(1 / count + ratio) * sd
    # Computed here, since scipy's paired test has no correction for splits that share training graphs.
    p = float(2 * stats.t.sf(abs(mean) / error, count - 1)) if error else math.nan
    reach = float(stats.t.ppf(0.975, count - 1)) * error
    wilcoxon = float(stats.wilcoxon(values).pvalue) if np.any(values) else math.nan
    test = CORRECTED if ratio else PAIRED
    return Comparison(key, count, over, mean, sd, mean - reach, mean + reach, test, p, wilcoxon)


def holm(values: Sequence[float]) -> list[float]:
    """Return Holm's p-values in the given order; NaN values stay NaN and do not count.

    Examples:
        >>> [round(p, 4) for p in holm([0.01, 0.04, 0.03])]
        [0.03, 0.06, 0.06]
    """
    ordered = sorted((p, place) for place, p in enumerate(values) if not math.isnan(p))
    adjusted, least = list(values), 0.0
    for number, (p, place) in enumerate(ordered):
        least = max(least, min(1.0, (len(ordered) - number) * p))
        adjusted[place] = least
    return adjusted


def _scores(group: Group, key: str) -> dict[tuple[str, ...], float]:
    """Return the score of every seed and split, averaged over repeated runs."""
    split, _, metric = key.partition("/")
    scores: dict[tuple[str, ...], list[float]] = {}
    for run in group.runs:
        if metric in run.scores(split):
            scores.setdefault(replicate(run), []).append(run.scores(split)[metric])
    return {name: float(np.mean(values)) for name, values in scores.items()}


def _test_ratio(group: Group) -> float:
    """Return the number of test graphs per training graph, averaged over runs; 0 if no run records its splits."""
    ratios = []
    for run in group.runs:
        sizes = {split: record.get("graphs") for split, record in mapping(run.data.get("splits")).items()}
        if sizes.get("train") and "test" in sizes:
            ratios.append(sizes["test"] / sizes["train"])
    return float(np.mean(ratios)) if ratios else 0.0
