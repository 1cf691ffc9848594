"""Compare models: scores of every seed side by side, differences to the best model, and ranks over benchmarks.

Equations and sources of the tests over several benchmarks, each counted as one observation: Demsar (2006), "Statistical
Comparisons of Classifiers over Multiple Data Sets":

- the rank of a model is its position by test score on a benchmark, starting at 1 for the best; equal scores share the
  mean of their positions, and ranks are averaged over benchmarks;
- Friedman's test checks whether all models have the same mean rank (three models or more);
- Wilcoxon's signed-rank test compares two models by the ranks of their differences over benchmarks: each model with the
  one with the best mean rank, with Holm's correction. Benchmarks differ in their units, so differences are relative to
  the mean of both scores.
"""

from __future__ import annotations

import json
import math
from collections.abc import Sequence

import numpy as np
from matplotlib.axes import Axes
from matplotlib.ticker import MaxNLocator
from scipy import stats

from graphbench.report.figures import INK, Panel, Section, Style, panel_axes, svg, with_unit
from graphbench.report.scores import ResultTable, Row, Score
from graphbench.report.significance import CORRECTED, holm, show_p
from graphbench.runs.tables import SCORED


def score_panels(table: ResultTable, name: str) -> list[Panel]:
    """Draw the score of every seed, one panel per split with at least two rows."""
    panels = []
    for split, title in SCORED.items():
        key = f"{split}/{table.metric}"
        rows = [row for row in table.rows if key in row.scores and not row.scores[key].broken]
        if len(rows) > 1:
            panels.append(_score_panel(table, rows[::-1], key, title, f"{name}-{split}"))
    return panels


def _score_panel(table: ResultTable, rows: Sequence[Row], key: str, title: str, name: str) -> Panel:
    models = table.models
    x = with_unit(table.metric, table.unit) + (f", {table.better}" if table.better else "")
    with panel_axes(f"{title.capitalize()} {table.metric}", x, rows=[row.label for row in rows]) as (figure, axes):
        for height, row in enumerate(rows):
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
        _clip(axes, [row.scores[key] for row in rows], [row.scores[key] for row in rows if row in models])
        axes.xaxis.set_major_locator(MaxNLocator(4))
        return Panel(svg(figure, f"{title} {table.metric} of {', '.join(row.label for row in rows[::-1])}", name))


def _clip(axes: Axes, scores: Sequence[Score], models: Sequence[Score]) -> None:
    """Limit the axis to about three times the range of the models; replace scores outside with an arrow and a number.

    Otherwise a weak baseline would squeeze all models into one point. `scores[n]` is drawn at height n.
    """
    ends = [end for score in (models if len(models) > 1 else scores) for end in _extent(score)]
    # At least a twentieth of the largest value, in case all models agree.
    room = 2 * max(max(ends) - min(ends), 0.05 * abs(max(ends, key=abs)))
    near = [end for score in scores for end in _extent(score) if min(ends) - room <= end <= max(ends) + room]
    margin = 0.08 * (max(near) - min(near) or room or 1.0)
    low, high = min(near) - margin, max(near) + margin
    axes.set_xlim(low, high)
    for height, score in enumerate(scores):
        for value in score.values:
            if value > high:
                axes.text(high, height, f"{value:.4g} →", ha="right", va="center")
            elif value < low:
                axes.text(low, height, f"← {value:.4g}", ha="left", va="center")


def _extent(score: Score) -> list[float]:
    """List all values, and the ends of mean ± standard deviation."""
    return [*score.values, *([score.mean - score.sd, score.mean + score.sd] if len(score.values) > 1 else [])]


def comparison_section(table: ResultTable, name: str) -> Section | None:
    """Compare models with the one with the best validation score; None if no two share two seeds or splits."""
    rows = table.comparisons
    if not rows:
        return None
    intro = (
        f"Every model compared with {table.best.label}, which has the best validation score, on seeds and splits that "
        "both have. Lines are 95 % intervals of the mean difference."
    )
    if any(row.comparison is not None and row.comparison.test == CORRECTED for row in rows):
        intro += (
            " Splits of one data set share training graphs: the corrected test accounts for that, Wilcoxon's does not. "
            "Seeds on one split are averaged first."
        )
    section = Section(name, "Differences to the best model", intro)
    section.panels.append(_difference_panel(table, name))
    section.notes += [_describe_difference(table, row) for row in rows]
    if len(rows) > 1:
        section.notes.append(
            "Holm's p-values are for all comparisons of the table together, the others for each separately."
        )
    return section


def _difference_panel(table: ResultTable, name: str) -> Panel:
    rows, models = table.comparisons[::-1], table.models
    split, _, metric = next(row.comparison.key for row in rows if row.comparison is not None).partition("/")
    x = with_unit(f"{metric} less that of the best", table.unit)
    with panel_axes(f"{SCORED[split].capitalize()} {metric}", x, rows=[row.label for row in rows]) as (figure, axes):
        for height, row in enumerate(rows):
            comparison, style = row.comparison, Style(models.index(row))
            assert comparison is not None
            error = comparison.high - comparison.difference
            axes.errorbar(comparison.difference, height, xerr=error, color=style.colour, marker=style.marker, capsize=3)
        axes.axvline(0, color=INK, linewidth=1)
        axes.xaxis.set_major_locator(MaxNLocator(4))
        labels = ", ".join(row.label for row in rows[::-1])
        return Panel(svg(figure, f"Difference in {SCORED[split]} {metric} to {table.best.label} of {labels}", name))


def _describe_difference(table: ResultTable, row: Row) -> str:
    """Describe the size of a difference, its interval, the number of pairs, and p-values of both tests."""
    comparison = row.comparison
    assert comparison is not None
    split, _, metric = comparison.key.partition("/")
    number, low, high = map(table.show_number, (abs(comparison.difference), comparison.low, comparison.high))
    unit = f" {table.unit}" if table.unit and metric in ("MAE", "RMSE") else ""
    interval = f"95 % interval of the difference {low} to {high}, n = {comparison.pairs} {comparison.over}"
    tests = f"{comparison.test} {show_p(comparison.p)}"
    if not math.isnan(comparison.wilcoxon):
        tests += f", Wilcoxon's signed-rank test {show_p(comparison.wilcoxon)}"
    if len(table.comparisons) > 1 and not math.isnan(comparison.holm):
        tests += f"; after Holm {show_p(comparison.holm)}"
    if comparison.difference == 0:
        relation = "from"
    elif table.higher_is_better is None:
        relation = "above" if comparison.difference > 0 else "below"
    else:
        relation = "worse than" if (comparison.difference > 0) != table.higher_is_better else "better than"
    score = f"{SCORED[split]} {metric} {number}{unit} {relation} {table.best.label}"
    return f"{row.label}: {score} ({interval}); {tests}."


def across_section(tables: Sequence[ResultTable]) -> Section | None:
    """Rank models over all benchmarks and test the ranks; None for fewer than two models or benchmarks in common."""
    models, scores = common_scores(tables)
    if len(models) < 2 or len(tables) < 2:
        return None
    ranks = stats.rankdata(scores, axis=0).mean(1)
    order = np.argsort(ranks, kind="stable")
    best, others = int(order[0]), [int(number) for number in order[1:]]
    section = Section(
        "across",
        "All benchmarks together",
        f"Mean rank by test score over {len(tables)} benchmarks, 1 for the best. Each benchmark is one observation: "
        "few benchmarks can show little, whatever the number of seeds.",
    )
    section.notes.append("; ".join(f"{models[number]} {ranks[number]:.2f}" for number in order) + ".")
    if len(models) > 2:
        section.notes.append(f"Friedman's test of equal mean ranks: {show_p(friedman(scores))}.")
    p_values = [signed_rank(scores[number], scores[best]) for number in others]
    for number, p, corrected in zip(others, p_values, holm(p_values), strict=True):
        after = f"; after Holm {show_p(corrected)}" if len(others) > 1 else ""
        section.notes.append(
            f"{models[number]} and {models[best]}: Wilcoxon's signed-rank test over benchmarks {show_p(p)}{after}."
        )
    return section


def common_scores(tables: Sequence[ResultTable]) -> tuple[list[str], np.ndarray]:
    """Return models with a finite test score in every table, and these scores `[models, tables]`, lower is better.

    Models are matched by architecture and options, since their labels depend on the other rows of a table.
    """
    columns: list[dict[tuple[str, str], float]] = []
    for table in tables:
        key, sign = f"test/{table.metric}", -1 if table.higher_is_better else 1
        rows = [row for row in table.rows if row.group is not None and key in row.scores]
        means = {_model(row): sign * row.scores[key].mean for row in rows}
        columns.append({model: mean for model, mean in means.items() if math.isfinite(mean)})
    models = [model for model in columns[0] if all(model in column for column in columns)]
    names = [name for name, _ in models]
    # Models of one architecture are numbered: labels depend on the tables, and options are long.
    numbers = [names[:place].count(name) + 1 for place, name in enumerate(names)]
    labels = [f"{name} {n}" if names.count(name) > 1 else name for name, n in zip(names, numbers, strict=True)]
    scores = np.array([[column[model] for column in columns] for model in models])
    return labels, scores.reshape(len(models), len(tables))


def _model(row: Row) -> tuple[str, str]:
    """Return the architecture, and the configuration of the model as text."""
    assert row.group is not None
    run = row.group.runs[0]
    return run.architecture, json.dumps(run.config.get("model"), sort_keys=True, default=str)


def friedman(scores: np.ndarray) -> float:
    """Return p of Friedman's test of `[models, benchmarks]`; NaN if all ranks are equal."""
    with np.errstate(invalid="ignore", divide="ignore"):
        return float(stats.friedmanchisquare(*scores).pvalue)


def signed_rank(one: np.ndarray, other: np.ndarray) -> float:
    """Return p of Wilcoxon's signed-rank test of relative differences `[benchmarks]`; NaN if all are 0."""
    size = (np.abs(one) + np.abs(other)) / 2
    relative = np.divide(one - other, size, out=np.zeros_like(size), where=size > 0)
    return float(stats.wilcoxon(relative).pvalue) if np.any(relative) else math.nan
