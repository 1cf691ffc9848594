"""Paired tests of models against the best one: the same seeds and splits, so that what both share cancels.

Equations and sources:

- paired t test: t = mean(d) / sqrt(var(d) / n) with n - 1 degrees of freedom, d the differences of two models over the
  seeds that both have.
- Splits of one data set share training graphs, so their differences are not independent and the plain test finds too
  much. Nadeau and Bengio (2003), "Inference for the generalization error", take
  t = mean(d) / sqrt((1 / n + n_test / n_train) var(d)), n the number of splits.
- Holm (1979): of m p-values in ascending order, number i (from 1) becomes the largest (m - j + 1) p_j over j <= i, at
  most 1.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from scipy import stats

from graphbench.data.files.foreign import load_json
from graphbench.report.groups import Group, replicate

PAIRED, CORRECTED = "paired t test", "corrected resampled t test"


@dataclass(frozen=True)
class Comparison:
    """A model beside the best one.

    Args:
        key: what is compared, such as `test/MAE`.
        pairs: seeds, or splits where there are several, that both models have; at least two.
        over: "seeds" or "splits".
        difference: mean of this model's score less that of the best.
        sd: standard deviation of the differences (n - 1).
        low: lower end of the 95 % interval of the difference.
        high: upper end.
        test: name of the test.
        p: its two-sided p-value; NaN where all differences are equal.
        wilcoxon: that of Wilcoxon's signed-rank test; NaN where all differences are 0. It takes splits as independent.
        holm: p for all comparisons of the table together.
    """

    key: str
    pairs: int
    over: str
    difference: float
    sd: float
    low: float
    high: float
    test: str
    p: float
    wilcoxon: float
    holm: float = math.nan

    @property
    def words(self) -> str:
        """`p = 0.012 (paired t test, n = 5)`."""
        return f"{show_p(self.p)} ({self.test}, n = {self.pairs})"


def show_p(p: float) -> str:
    """`p = 0.012`.

    Examples:
        >>> [show_p(p) for p in (0.04217, 0.5, 3e-9, math.nan)]
        ['p = 0.042', 'p = 0.5', 'p < 0.0001', 'p unknown']
    """
    if math.isnan(p):
        return "p unknown"
    return "p < 0.0001" if p < 1e-4 else f"p = {p:.2g}"


def compare(best: Group, other: Group, key: str) -> Comparison | None:
    """Hold a group against the best one; None where fewer than two pairs exist or a score is not finite.

    Args:
        best: the group with the best validation score.
        other: another one.
        key: split and metric.
    """
    first, second = _scores(best, key), _scores(other, key)
    common = [name for name in first if name in second]
    by_split: dict[tuple[str, ...], list[float]] = {}
    for name in common:
        by_split.setdefault(name[1:], []).append(second[name] - first[name])
    if len(by_split) > 1:  # seeds of one split are no further splits
        ratio = _test_share(best)
        return paired(key, "splits", [float(np.mean(found)) for found in by_split.values()], ratio)
    return paired(key, "seeds", [second[name] - first[name] for name in common])


def paired(key: str, over: str, differences: Sequence[float], ratio: float = 0.0) -> Comparison | None:
    """Test differences of pairs against 0.

    Args:
        key: see `Comparison`.
        over: see `Comparison`.
        differences: one per pair.
        ratio: test graphs per training graph, for splits of one data set; 0 for independent pairs.

    Returns:
        None for fewer than two pairs, or one that is not finite.

    Examples:
        >>> found = paired("test/MAE", "seeds", [1.0, 2.0, 3.0])
        >>> found.difference, round(found.p, 6)  # t = 2 sqrt(3), 2 degrees of freedom: p = 1 - sqrt(6 / 7)
        (2.0, 0.07418)
    """
    values = np.asarray(differences, dtype=float)
    count = len(values)
    if count < 2 or not np.isfinite(values).all():
        return None
    mean, sd = float(values.mean()), float(values.std(ddof=1))
    if sd <= 1e-12 * np.abs(values).max():  # all equal but for rounding
        sd = 0.0
    error = math.sqrt(1 / count + ratio) * sd
    p = float(2 * stats.t.sf(abs(mean) / error, count - 1)) if error else math.nan
    reach = float(stats.t.ppf(0.975, count - 1)) * error
    wilcoxon = float(stats.wilcoxon(values).pvalue) if np.any(values) else math.nan
    test = CORRECTED if ratio else PAIRED
    return Comparison(key, count, over, mean, sd, mean - reach, mean + reach, test, p, wilcoxon)


def holm(values: Sequence[float]) -> list[float]:
    """Holm's p-values, in the given order; those that are NaN stay NaN and do not count.

    Examples:
        >>> [round(p, 4) for p in holm([0.01, 0.04, 0.03])]
        [0.03, 0.06, 0.06]
    """
    known = sorted((p, place) for place, p in enumerate(values) if not math.isnan(p))
    adjusted, least = list(values), 0.0
    for number, (p, place) in enumerate(known):
        least = max(least, min(1.0, (len(known) - number) * p))
        adjusted[place] = least
    return adjusted


def _scores(group: Group, key: str) -> dict[tuple[str, ...], float]:
    """Score of every seed and split; the mean where one was run more than once."""
    split, _, metric = key.partition("/")
    found: dict[tuple[str, ...], list[float]] = {}
    for run in group.runs:
        scores: Mapping[str, float] = run.scores(split)
        if metric in scores:
            found.setdefault(replicate(run), []).append(scores[metric])
    return {name: float(np.mean(values)) for name, values in found.items()}


def _test_share(group: Group) -> float:
    """Test graphs per training graph, a mean over runs; 0 where no run says."""
    found = []
    for run in group.runs:
        try:
            splits = load_json(run.folder.data)["splits"]
            found.append(splits["test"]["graphs"] / splits["train"]["graphs"])
        except (OSError, ValueError, KeyError, TypeError, ZeroDivisionError):  # a run of an earlier version
            continue
    return float(np.mean(found)) if found else 0.0
