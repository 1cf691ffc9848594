"""Draw the trials of a study: scores by trial, and the importance of options."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import accumulate
from typing import Literal

from matplotlib.ticker import MaxNLocator

from graphbench.report.figures import INK, PALETTE, Panel, Section, panel_axes, svg
from graphbench.report.groups import short_names
from graphbench.runs.tables import show_number

State = Literal["finished", "pruned", "failed", "running"]
#: Largest number of options in the figure of importances.
_SHOWN = 12


@dataclass(frozen=True)
class Attempt:
    """One trial."""

    number: int  # from 0
    state: State  # its outcome
    score: float | None  # best validation score; for a pruned trial the last one; None without any
    options: Mapping[str, str]  # as on the command line
    problem: str = ""  # reason of a failure


@dataclass(frozen=True)
class Tuning:
    """A study."""

    metric: str  # logged name of the score
    higher_is_better: bool  # whether the best score is the largest
    attempts: Sequence[Attempt]  # by number
    best: int  # number of the best attempt
    importances: Mapping[str, float]  # option -> share of the scores' variance; empty if unknown


def best_so_far(tuning: Tuning) -> list[tuple[int, float]]:
    """Return the number of every finished trial, and the best score up to then.

    Examples:
        >>> attempts = [Attempt(n, "finished", score, {}) for n, score in enumerate([0.5, 0.7, 0.4])]
        >>> best_so_far(Tuning("val/MAE", False, attempts, 2, {}))
        [(0, 0.5), (1, 0.5), (2, 0.4)]
    """
    finished = [(a.number, a.score) for a in tuning.attempts if a.state == "finished" and a.score is not None]
    best = accumulate((score for _, score in finished), max if tuning.higher_is_better else min)
    return [(number, score) for (number, _), score in zip(finished, best, strict=True)]


def tuning_section(tuning: Tuning) -> Section:
    """Draw the trials, and describe the best one."""
    section = Section(
        "tuning",
        "Tuning",
        f"Trials are compared by {tuning.metric} of their best epoch, and nothing else: no trial has used the "
        "test split. The score of the best trial is optimistic, because it was selected by that score.",
    )
    section.panels.append(_history(tuning))
    if tuning.importances:
        section.panels.append(_importance(tuning))
    else:
        section.notes.append("Importances are unknown: they need at least two finished trials with different scores.")
    best = next(attempt for attempt in tuning.attempts if attempt.number == tuning.best)
    shown = "no score" if best.score is None else show_number(best.score)
    options = ", ".join(f"{option} {value}" for option, value in best.options.items())
    section.notes.append(f"Best trial: {best.number} of {len(tuning.attempts)}, {tuning.metric} {shown}: {options}.")
    counts = Counter(attempt.state for attempt in tuning.attempts)
    section.notes.append(", ".join(f"{count} {state}" for state, count in counts.items()).capitalize() + ".")
    problems = Counter(attempt.problem for attempt in tuning.attempts if attempt.problem)
    section.notes += [f"{count} failed: {problem}" for problem, count in problems.most_common(5)]
    return section


def _history(tuning: Tuning) -> Panel:
    """Draw scores by trial, and the best so far."""
    with panel_axes(tuning.metric, "trial") as (figure, axes):
        for state, marker, colour in (("finished", "o", PALETTE[0]), ("pruned", "x", PALETTE[6])):
            shown = [(a.number, a.score) for a in tuning.attempts if a.state == state and a.score is not None]
            if shown:
                axes.plot(*zip(*shown, strict=True), linestyle="", marker=marker, color=colour, label=state)
        numbers, scores = zip(*best_so_far(tuning), strict=True)
        axes.step(numbers, scores, where="post", color=INK, linewidth=1, label="best so far")
        axes.xaxis.set_major_locator(MaxNLocator(5, integer=True))
        axes.legend(frameon=False, fontsize=8)
        return Panel(svg(figure, f"{tuning.metric} of every trial", "tuning-history"))


def _importance(tuning: Tuning) -> Panel:
    """Draw options by the share of the variance that they explain."""
    shown = sorted(tuning.importances.items(), key=lambda item: item[1])[-_SHOWN:]
    labels = short_names([option for option, _ in shown])
    with panel_axes("Importance", "share of the variance of the score", rows=labels) as (figure, axes):
        axes.barh(range(len(shown)), [share for _, share in shown], color=PALETTE[0], height=0.6)
        axes.set_xlim(0, 1)
        shares = ", ".join(f"{option} {share:.2f}" for option, share in reversed(shown))
        return Panel(svg(figure, f"Importance: {shares}", "tuning-importance"), "fANOVA over the finished trials.")
