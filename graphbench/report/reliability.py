"""Whether probabilities are shares: reliability diagram and expected calibration error on the test split."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from scipy.stats import beta

from graphbench.report.figures import RULE, Style, panel_axes, shorten, svg
from graphbench.report.loading import is_number
from graphbench.report.predictions import REGRESSION, choices_of, scored_runs
from graphbench.report.scores import ResultTable
from graphbench.report.sections import Panel, Section

_BINS = 15


@dataclass(frozen=True)
class Reliability:
    """Probabilities in bins of equal width, without the empty ones.

    Args:
        confidence: mean probability of each bin.
        share: how many of each bin were right.
        count: how many there are.

    Examples:
        >>> found = Reliability.of(np.array([0.61, 0.62, 0.95]), np.array([True, False, True]))
        >>> found.count.tolist(), found.share.tolist(), round(found.error, 4)
        ([2, 1], [0.5, 1.0], 0.0933)
    """

    confidence: np.ndarray
    share: np.ndarray
    count: np.ndarray

    @classmethod
    def of(cls, confidence: np.ndarray, right: np.ndarray, bins: int = _BINS) -> Reliability:
        """That of probabilities `[n]`, and whether what they are of came true `[n]`."""
        place = np.digitize(confidence, np.linspace(0, 1, bins + 1)[1:-1])
        count = np.bincount(place, minlength=bins)
        kept = count > 0
        means = [np.bincount(place, values, bins)[kept] / count[kept] for values in (confidence, right.astype(float))]
        return cls(means[0], means[1], count[kept])

    @property
    def error(self) -> float:
        """Expected calibration error: mean over all n of |share - confidence| of their bin (Guo et al. 2017)."""
        return float((self.count * np.abs(self.share - self.confidence)).sum() / self.count.sum())

    @property
    def bounds(self) -> tuple[np.ndarray, np.ndarray]:
        """Ends of the 95 % confidence interval of each share (Clopper & Pearson 1934)."""
        hits = self.share * self.count
        low = np.where(hits > 0, beta.ppf(0.025, np.maximum(hits, 1e-9), self.count - hits + 1), 0.0)
        missed = self.count - hits
        high = np.where(missed > 0, beta.ppf(0.975, hits + 1, np.maximum(missed, 1e-9)), 1.0)
        return low, high


def reliability_section(table: ResultTable, name: str) -> Section | None:
    """A reliability diagram for the runs that were tested and have probabilities; None for regressions."""
    if table.metric in REGRESSION:
        return None
    section = Section(
        name, "Are probabilities shares?",
        "Test predictions by the probability that the model gives its answer (of labels: a yes), and how many of them "
        "come true, with 95 % confidence intervals. On the line a probability of 80 % is right in 80 of 100 rows; "
        "below it the model is too sure. ECE is the mean distance from the line.",
    )  # fmt: skip
    for number, group, run in scored_runs(table):
        assert run.predictions is not None
        found = choices_of(run.predictions)
        if found is None:
            continue
        reliability = Reliability.of(*found[:2])
        style, title = Style(number), shorten(group.label)
        with panel_axes((3.7, 3.5)) as (figure, axes):
            axes.axline((0, 0), slope=1, color=RULE, linewidth=1.2)
            low, high = reliability.bounds
            ends = np.abs(np.stack((reliability.share - low, high - reliability.share)))
            axes.errorbar(
                reliability.confidence, reliability.share, ends, color=style.colour, marker=style.marker, linestyle="",
                capsize=2, elinewidth=1,
            )  # fmt: skip
            axes.set_xlim(0, 1.02)
            axes.set_ylim(-0.02, 1.02)
            axes.set_aspect("equal")
            axes.set_title(title)
            axes.set_xlabel("probability")
            axes.set_ylabel("share that comes true")
            drawn = svg(figure, f"Reliability of {title}: ECE {reliability.error:.4f}", f"{name}-{number}")
        total = int(reliability.count.sum())
        caption = f"Seed {run.seed}, {total:,} predictions, ECE {reliability.error:.4f} in {_BINS} bins."
        if is_number(temperature := run.results.get("temperature")):
            caption += f" Calibrated on the validation split: temperature {temperature:.4g}."
        section.panels.append(Panel(drawn, caption))
    return section if section.panels else None
