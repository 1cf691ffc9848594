"""Scores seed by seed, and predictions against the truth."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pandas as pd
from markupsafe import Markup
from matplotlib.axes import Axes
from matplotlib.ticker import MaxNLocator

from graphbench.report.figures import INK, RULE, Style, panel_axes, shorten, svg
from graphbench.report.loading import Run
from graphbench.report.predictions import target_columns
from graphbench.report.scores import ResultTable, Row, Score
from graphbench.report.sections import Panel, Section
from graphbench.runs.tables import SCORED

#: Metrics whose predictions are quantities that can be drawn against the truth.
_ERRORS = ("MAE", "RMSE")
#: More points than these are drawn as an image, which stays small.
_MANY_POINTS = 1500


def score_panels(table: ResultTable, name: str) -> list[Panel]:
    """One panel per split with the score of every seed, for tables with something to compare."""
    panels = []
    for split, title in SCORED.items():
        key = f"{split}/{table.metric}"
        rows = [row for row in table.rows if key in row.scores and not row.scores[key].broken]
        if len(rows) > 1:
            panels.append(_score_panel(table, rows, key, title, f"{name}-{split}"))
    return panels


def _score_panel(table: ResultTable, rows: Sequence[Row], key: str, title: str, name: str) -> Panel:
    with panel_axes((3.7, 0.9 + 0.3 * len(rows))) as (figure, axes):
        models = [row for row in table.rows if row.kind == "model"]
        for height, row in enumerate(reversed(rows)):
            score = row.scores[key]
            style = Style(models.index(row)) if row in models else None
            colour = style.colour if style else INK
            if len(score.values) > 1:
                axes.errorbar(score.mean, height, xerr=score.sd, color=colour, marker="|", markersize=13, capsize=3)
            axes.plot(
                score.values, [height] * len(score.values), color=colour, linestyle="",
                marker=style.marker if style else "d", markerfacecolor=colour if style else "none",
                alpha=0.75 if len(score.values) > 1 else 1.0,
            )  # fmt: skip
        _point_outside(
            axes, [row.scores[key] for row in reversed(rows)], [row.scores[key] for row in models if row in rows]
        )
        axes.set_yticks(range(len(rows)), [shorten(row.label) for row in reversed(rows)])
        axes.set_ylim(-0.6, len(rows) - 0.4)
        axes.grid(False, axis="y")
        axes.xaxis.set_major_locator(MaxNLocator(4))
        axes.set_title(f"{title.capitalize()} {table.metric}")
        axes.set_xlabel(
            f"{table.metric}{f' [{table.unit}]' if table.unit else ''}{f', {table.better}' if table.better else ''}"
        )
        return Panel(svg(figure, f"{title} {table.metric} of {', '.join(row.label for row in rows)}", name))


def _point_outside(axes: Axes, scores: Sequence[Score], models: Sequence[Score]) -> None:
    """Keep the models apart: scores far from all of theirs become an arrow with a number at the edge.

    Args:
        axes: whose height n belongs to score n.
        scores: all of them.
        models: those that must be kept apart; with one or none, all scores are shown.
    """
    seen = [edge for score in (models if len(models) > 1 else scores) for edge in _extent(score)]
    room = 2 * max(max(seen) - min(seen), 0.05 * abs(max(seen, key=abs)))
    near = [edge for score in scores for edge in _extent(score) if min(seen) - room <= edge <= max(seen) + room]
    margin = 0.08 * (max(near) - min(near) or room or 1.0)
    low, high = min(near) - margin, max(near) + margin
    axes.set_xlim(low, high)
    for height, score in enumerate(scores):
        for value in score.values:
            if not low <= value <= high:
                edge, side = (high, "right") if value > high else (low, "left")
                arrow = f"{value:.4g} →" if side == "right" else f"← {value:.4g}"
                axes.text(edge, height, arrow, ha=side, va="center")


def _extent(score: Score) -> list[float]:
    """All values, and the ends of mean ± standard deviation."""
    ends = [score.mean - score.sd, score.mean + score.sd] if len(score.values) > 1 else []
    return [*score.values, *ends]


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
