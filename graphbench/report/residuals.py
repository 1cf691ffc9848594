"""Draw predictions of regressions against true values, and their residuals and intervals."""

from __future__ import annotations

import numpy as np
from matplotlib.axes import Axes
from scipy.stats import binomtest

from graphbench.report.figures import INK, RULE, Panel, Section, Style, panel_axes, shorten, svg, with_unit
from graphbench.report.groups import Group
from graphbench.report.loading import Run, is_number, mapping
from graphbench.report.predictions import REGRESSION, Target, scored_runs, targets_of
from graphbench.report.scores import ResultTable
from graphbench.runs.tables import show_number

#: Number of points above which they are drawn as an image, to keep the page small.
_MANY_POINTS = 1500


def prediction_section(table: ResultTable, name: str) -> Section | None:
    """Draw predicted against true targets of the test split for tested runs; None if the metric is not an error."""
    if table.metric not in ("MAE", "RMSE"):
        return None
    section = Section(
        name, "Predictions on the test split",
        "Every point is a graph of the test split, predicted by the best checkpoint of one seed; on the line, "
        "prediction and truth are equal.",
    )  # fmt: skip
    for group in table.groups:
        with_file = [run for run in group.runs if run.predictions is not None]
        if with_file and not any(run.scores("test") for run in with_file):
            section.notes.append(
                f"{group.label}: there are test predictions, but `graphbench test` has not scored the run, so they are "
                "not shown."
            )
    for number, group, run, frame in scored_runs(table):
        targets = targets_of(frame)
        for place, target in enumerate(targets):
            section.panels.append(
                _prediction_panel(target, group, run, table.unit, Style(number), f"{name}-{number}-{place}")
            )
        if not targets:
            section.notes.append(
                f"{group.label}: predictions-test.csv has no pairs of a prediction and a known target."
            )
            continue
        errors = np.concatenate([target.residuals for target in targets])
        score = {"MAE": np.abs(errors).mean(), "RMSE": np.sqrt((errors**2).mean())}[table.metric]
        stored = run.scores("test").get(table.metric)
        if stored is not None and not np.isclose(score, stored, rtol=1e-3, atol=0):
            section.notes.append(
                f"{group.label}, seed {run.seed}: predictions-test.csv gives a test {table.metric} of "
                f"{show_number(score)}, but the run's is {show_number(stored)}: the file is from another checkpoint."
            )
    return section if section.panels or section.notes else None


def _prediction_panel(target: Target, group: Group, run: Run, unit: str, style: Style, name: str) -> Panel:
    title = f"{shorten(group.label)}{f': {target.name}' if target.name else ''}"
    values = np.concatenate([target.true, target.predicted])
    finite = values[np.isfinite(values)]
    low, high = (finite.min(), finite.max()) if len(finite) else (0.0, 1.0)
    room = 0.04 * (high - low) or 1.0
    with panel_axes(title, with_unit("true", unit), with_unit("predicted", unit), (3.7, 3.5)) as (figure, axes):
        axes.set_xlim(low - room, high + room)
        axes.set_ylim(low - room, high + room)
        axes.set_aspect("equal")
        axes.axline((low, low), slope=1, color=RULE, linewidth=1.2)
        _scatter(axes, target.true, target.predicted, style)
        drawing = svg(figure, f"Predicted against true targets, {title}", name)
    count = "1 graph" if len(target.true) == 1 else f"{len(target.true):,} graphs"
    mae = np.abs(target.residuals).mean()
    return Panel(drawing, f"Seed {run.seed}, {count}, MAE {show_number(float(mae))} from these points.")


def _scatter(axes: Axes, x: np.ndarray, y: np.ndarray, style: Style) -> None:
    axes.plot(
        x, y, linestyle="", marker=style.marker, markersize=3.2, markeredgewidth=0, color=style.colour, alpha=0.45,
        rasterized=len(x) > _MANY_POINTS,
    )  # fmt: skip


def residual_section(table: ResultTable, name: str) -> Section | None:
    """Draw the residuals of every target of tested runs; None for other tasks."""
    if table.metric not in REGRESSION:
        return None
    section = Section(
        name, "Residuals on the test split",
        "Predicted minus true, over the prediction. Points around zero without a slope or a fan mean similar errors "
        "everywhere; thin lines are the ends of intervals, if predictions have them.",
    )  # fmt: skip
    for number, group, run, frame in scored_runs(table):
        for place, target in enumerate(targets_of(frame)):
            section.panels.append(
                _residual_panel(target, group, run, table.unit, Style(number), f"{name}-{number}-{place}")
            )
            if target.low is not None:
                section.notes.append(_coverage(target, group, run))
    return section if section.panels else None


def _residual_panel(target: Target, group: Group, run: Run, unit: str, style: Style, name: str) -> Panel:
    errors = target.residuals
    title = f"{shorten(group.label)}{f': {target.name}' if target.name else ''}"
    with panel_axes(title, with_unit("predicted", unit), with_unit("predicted less true", unit)) as (figure, axes):
        axes.axhline(0, color=RULE, linewidth=1.2)
        if target.low is not None and target.high is not None:
            # Sorted, the ends of intervals form two lines.
            order = np.argsort(target.predicted)
            for end in (target.low, target.high):
                axes.plot(target.predicted[order], (target.predicted - end)[order], color=INK, linewidth=0.8)
        _scatter(axes, target.predicted, errors, style)
        drawing = svg(figure, f"Residuals over predictions, {title}", name)
    spread = f", standard deviation {errors.std(ddof=1):.4g}" if len(errors) > 1 else ""
    rows = "1 row" if len(errors) == 1 else f"{len(errors):,} rows"
    return Panel(drawing, f"Seed {run.seed}, {rows}: mean {errors.mean():.4g}{spread}.")


def _coverage(target: Target, group: Group, run: Run) -> str:
    """Count the intervals that contain the true value, and compare with their stated coverage."""
    assert target.low is not None
    assert target.high is not None
    inside = int(((target.low <= target.true) & (target.true <= target.high)).sum())
    ends = binomtest(inside, len(target.true)).proportion_ci(0.95, "exact")
    counts = (
        f"{group.label}, seed {run.seed}{f', {target.label}' if target.label else ''}: {inside:,} of "
        f"{len(target.true):,} known test targets are in their intervals, {inside / len(target.true):.1%} (95 % "
        f"confidence: {ends.low:.1%} to {ends.high:.1%})"
    )
    stated = mapping(run.results.get("intervals"))
    width = mapping(stated.get("half_widths")).get(target.label)
    logged = target.label in (stated.get("log10") or ())
    if stated.get("by") and is_number(stated.get("coverage")):  # widths differ from row to row
        return f"{counts}; they state {stated['coverage']:.4g}, by {' and '.join(map(str, stated['by']))}."
    half = float(np.median(np.log10(target.high / target.low) if logged else target.high - target.low)) / 2
    if not is_number(stated.get("coverage")) or not is_number(width) or not np.isclose(half, width, rtol=1e-3, atol=0):
        return f"{counts}; the run does not record their stated coverage."
    return f"{counts}; they state {stated['coverage']:.4g}."
