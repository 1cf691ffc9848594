"""Draw predictions of regressions against true values, and their residuals and intervals."""

from __future__ import annotations

import numpy as np
import pandas as pd
from markupsafe import Markup
from matplotlib.axes import Axes
from scipy.stats import binomtest

from graphbench.report.figures import INK, RULE, Panel, Section, Style, panel_axes, shorten, svg
from graphbench.report.groups import Group
from graphbench.report.loading import Run, is_number
from graphbench.report.predictions import REGRESSION, Target, scored_runs, target_columns, targets_of
from graphbench.report.scores import ResultTable

#: Metrics whose predictions are quantities that can be drawn against the truth.
_ERRORS = ("MAE", "RMSE")
#: More points than these are drawn as an image, which stays small.
_MANY_POINTS = 1500


def prediction_section(table: ResultTable, name: str) -> Section | None:
    """Predicted against true targets of the test split, for regression runs that were tested and have predictions."""
    section = Section(
        name, "Predictions on the test split",
        "Every point is a graph of the test split, predicted by the best checkpoint of one seed; on the line, "
        "prediction and truth are equal.",
    )  # fmt: skip
    if table.metric not in _ERRORS:
        return None
    for number, group in enumerate(table.groups):
        with_file = [run for run in group.runs if run.predictions is not None]
        tested = [run for run in with_file if run.scores("test")]
        if with_file and not tested:
            section.notes.append(
                f"{group.label}: there are test predictions, but `graphbench test` has not scored the run, so they are "
                "not shown."
            )
        if tested:
            _add_run(section, table, tested[0], group.label, Style(number), f"{name}-{number}")
    return section if section.panels or section.notes else None


def _add_run(section: Section, table: ResultTable, run: Run, label: str, style: Style, name: str) -> None:
    """One panel per target of one run."""
    frame = run.predictions
    assert frame is not None
    errors = []
    for place, (target, predicted, true) in enumerate(target_columns(frame)):
        known = frame[[predicted, true]].apply(pd.to_numeric, errors="coerce").dropna()
        if known.empty:
            continue
        errors.append((known[predicted] - known[true]).to_numpy(float))
        title = f"{shorten(label)}{f': {target}' if target else ''}"
        figure = _scatter(known[true], known[predicted], title, table.unit, style, f"{name}-{place}")
        mae = np.abs(errors[-1]).mean()
        count = "1 graph" if len(known) == 1 else f"{len(known):,} graphs"
        caption = f"Seed {run.seed}, {count}, MAE {mae:.4f} from these points."
        section.panels.append(Panel(figure, caption))
    if not errors:
        section.notes.append(f"{label}: predictions-test.csv holds no pairs of a prediction and a known target.")
        return
    every = np.concatenate(errors)
    found = {"MAE": np.abs(every).mean(), "RMSE": np.sqrt((every**2).mean())}[table.metric]
    stored = run.scores("test").get(table.metric)
    if stored is not None and not np.isclose(found, stored, rtol=1e-3):
        section.notes.append(
            f"{label}, seed {run.seed}: predictions-test.csv gives a test {table.metric} of {found:.4f}, but the run's "
            f"is {stored:.4f}: the file is from another checkpoint."
        )


def _scatter(
    true: pd.Series[float], predicted: pd.Series[float], title: str, unit: str, style: Style, name: str
) -> Markup:
    with panel_axes((3.7, 3.5)) as (figure, axes):
        _diagonal(axes, np.concatenate([true, predicted]))
        axes.plot(
            true, predicted, linestyle="", marker=style.marker, markersize=3.2, markeredgewidth=0,
            color=style.colour, alpha=0.45, rasterized=len(true) > _MANY_POINTS,
        )  # fmt: skip
        axes.set_title(title)
        axes.set_xlabel(f"true{f' [{unit}]' if unit else ''}")
        axes.set_ylabel(f"predicted{f' [{unit}]' if unit else ''}")
        return svg(figure, f"Predicted against true targets, {title}", name)


def _diagonal(axes: Axes, values: np.ndarray) -> None:
    """Equal axes with room around the finite values, and the line of perfect predictions."""
    finite = values[np.isfinite(values)]
    low, high = (finite.min(), finite.max()) if len(finite) else (0.0, 1.0)
    room = 0.04 * (high - low) or 1.0
    axes.set_xlim(low - room, high + room)
    axes.set_ylim(low - room, high + room)
    axes.set_aspect("equal")
    axes.axline((low, low), slope=1, color=RULE, linewidth=1.2)


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
