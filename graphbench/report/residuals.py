"""Errors of a regression on the test split, and how many of its intervals hold the truth."""

from __future__ import annotations

import numpy as np
from scipy.stats import binomtest

from graphbench.report.figures import INK, RULE, Style, panel_axes, shorten, svg
from graphbench.report.groups import Group
from graphbench.report.loading import Run, is_number
from graphbench.report.predictions import REGRESSION, Target, scored_runs, targets_of
from graphbench.report.scores import ResultTable
from graphbench.report.sections import Panel, Section

#: More points than these are drawn as an image, which stays small.
_MANY_POINTS = 1500


def residual_section(table: ResultTable, name: str) -> Section | None:
    """Residuals of every target of the runs that were tested and have predictions; None for other tasks."""
    if table.metric not in REGRESSION:
        return None
    section = Section(
        name, "Residuals on the test split",
        "Predicted less true, over the prediction. Around the line at zero without a slope or a fan, the errors are "
        "alike everywhere; thin lines are the ends of intervals, where predictions have some.",
    )  # fmt: skip
    for number, group, run in scored_runs(table):
        assert run.predictions is not None
        for place, target in enumerate(targets_of(run.predictions)):
            section.panels.append(_panel(target, group, run, table.unit, Style(number), f"{name}-{number}-{place}"))
            if target.low is not None:
                section.notes.append(_coverage(target, group, run))
    return section if section.panels else None


def _panel(target: Target, group: Group, run: Run, unit: str, style: Style, name: str) -> Panel:
    errors = target.residuals
    title = f"{shorten(group.label)}{f': {target.name}' if target.name else ''}"
    with panel_axes() as (figure, axes):
        axes.axhline(0, color=RULE, linewidth=1.2)
        if target.low is not None and target.high is not None:
            order = np.argsort(target.predicted)
            for end in (target.low, target.high):
                axes.plot(target.predicted[order], (target.predicted - end)[order], color=INK, linewidth=0.8)
        axes.plot(
            target.predicted, errors, linestyle="", marker=style.marker, markersize=3.2, markeredgewidth=0,
            color=style.colour, alpha=0.45, rasterized=len(errors) > _MANY_POINTS,
        )  # fmt: skip
        axes.set_title(title)
        axes.set_xlabel(f"predicted{f' [{unit}]' if unit else ''}")
        axes.set_ylabel(f"predicted less true{f' [{unit}]' if unit else ''}")
        figure_text = svg(figure, f"Residuals over predictions, {title}", name)
    spread = f", standard deviation {errors.std(ddof=1):.4g}" if len(errors) > 1 else ""
    rows = "1 row" if len(errors) == 1 else f"{len(errors):,} rows"
    return Panel(figure_text, f"Seed {run.seed}, {rows}: mean {errors.mean():.4g}{spread}.")


def _coverage(target: Target, group: Group, run: Run) -> str:
    """How many intervals hold the truth, beside what they state."""
    assert target.low is not None
    assert target.high is not None
    who = f"{group.label}, seed {run.seed}{f', {target.label}' if target.label else ''}"
    inside = int(((target.low <= target.true) & (target.true <= target.high)).sum())
    ends = binomtest(inside, len(target.true)).proportion_ci(0.95, "exact")
    told = (
        f"{inside:,} of {len(target.true):,} known test targets lie in their intervals, "
        f"{inside / len(target.true):.1%} (95 % confidence: {ends.low:.1%} to {ends.high:.1%})"
    )
    stated = run.results.get("intervals")
    stated = stated if isinstance(stated, dict) else {}
    widths = stated.get("half_widths")
    width = widths.get(target.label) if isinstance(widths, dict) else None
    half = float(np.median(target.high - target.low)) / 2
    if not is_number(stated.get("coverage")) or not is_number(width) or not np.isclose(half, width, rtol=1e-3):
        return f"{who}: {told}; the run does not say which coverage they state."
    return f"{who}: {told}; they state {stated['coverage']:.4g}."
