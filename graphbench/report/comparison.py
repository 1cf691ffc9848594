"""Compare models: scores of every seed side by side, differences to the best model, and ranks over benchmarks.

Equations and sources of the tests over several benchmarks, each of which counts as one observation: Demsar (2006),
"Statistical Comparisons of Classifiers over Multiple Data Sets":

- the rank of a model is its place by test score on a benchmark, from 1 for the best; equal scores share the mean of
  their places, and ranks are averaged over benchmarks;
- Friedman's test asks whether all models have one mean rank (three models or more);
- Wilcoxon's signed-rank test compares two models by the ranks of their differences over benchmarks: each model with the
  one of the best mean rank, with Holm's correction. Benchmarks differ in their units, so that differences are relative
  to the mean of both scores.
"""

from __future__ import annotations

import json
import math
from collections.abc import Sequence

import numpy as np
from matplotlib.axes import Axes
from matplotlib.ticker import MaxNLocator
from scipy import stats

from graphbench.report.figures import INK, Panel, Section, Style, panel_axes, shorten, svg
from graphbench.report.scores import ResultTable, Row, Score
from graphbench.report.significance import CORRECTED, holm, show_p
from graphbench.runs.tables import SCORED


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


def comparison_section(table: ResultTable, name: str) -> Section | None:
    """Differences to the model with the best validation score; None where no two models share two seeds or splits."""
    rows = table.comparisons
    if not rows:
        return None
    best = table.best.label
    intro = (
        f"Every model beside {best}, which has the best validation score, on the seeds and splits that both have. "
        "Lines are 95 % intervals of the mean difference."
    )
    if any(row.comparison is not None and row.comparison.test == CORRECTED for row in rows):
        intro += (
            " Splits of one data set share training graphs: the corrected test counts that, Wilcoxon's does not. Seeds "
            "of one split are averaged first."
        )
    section = Section(name, "Differences to the best model", intro)
    section.panels.append(_panel(table, rows, name))
    section.notes += [_sentence(table, row, best) for row in rows]
    if len(rows) > 1:
        section.notes.append(
            f"Holm's p-values are for all {len(rows)} comparisons together, the others for each alone."
        )
    return section


def _panel(table: ResultTable, rows: list[Row], name: str) -> Panel:
    models = [row for row in table.rows if row.kind == "model"]
    split, _, metric = next(row.comparison.key for row in rows if row.comparison is not None).partition("/")
    with panel_axes((3.7, 0.9 + 0.3 * len(rows))) as (figure, axes):
        for height, row in enumerate(reversed(rows)):
            found, style = row.comparison, Style(models.index(row))
            assert found is not None
            reach = found.high - found.difference
            axes.errorbar(found.difference, height, xerr=reach, color=style.colour, marker=style.marker, capsize=3)
        axes.axvline(0, color=INK, linewidth=1)
        axes.set_yticks(range(len(rows)), [shorten(row.label) for row in reversed(rows)])
        axes.set_ylim(-0.6, len(rows) - 0.4)
        axes.grid(False, axis="y")
        axes.xaxis.set_major_locator(MaxNLocator(4))
        axes.set_title(f"{SCORED[split].capitalize()} {metric}")
        unit = f" [{table.unit}]" if table.unit else ""
        axes.set_xlabel(f"{metric} less that of the best{unit}")
        told = f"Difference in {SCORED[split]} {metric} to {table.best.label} of {', '.join(r.label for r in rows)}"
        return Panel(svg(figure, told, name))


def _sentence(table: ResultTable, row: Row, best: str) -> str:
    """Effect, interval, number of pairs, and both tests."""
    found = row.comparison
    assert found is not None
    split, _, metric = found.key.partition("/")
    number, low, high = map(table.show_number, (abs(found.difference), found.low, found.high))
    unit = f" {table.unit}" if table.unit and metric in ("MAE", "RMSE") else ""
    interval = f"95 % interval of the difference {low} to {high}, n = {found.pairs} {found.over}"
    tests = f"{found.test} {show_p(found.p)}"
    if not math.isnan(found.wilcoxon):
        tests += f", Wilcoxon's signed-rank test {show_p(found.wilcoxon)}"
    if len(table.comparisons) > 1 and not math.isnan(found.holm):
        tests += f"; after Holm {show_p(found.holm)}"
    where = f"{SCORED[split]} {metric}"
    return f"{row.label}: {where} {number}{unit} {_than(table, found.difference)} {best} ({interval}); {tests}."


def _than(table: ResultTable, difference: float) -> str:
    """`worse than`, or `above` where nobody says which is better."""
    if difference == 0:
        return "from"
    if table.higher_is_better is None:
        return "above" if difference > 0 else "below"
    return "worse than" if (difference > 0) != table.higher_is_better else "better than"


def across_section(tables: Sequence[ResultTable]) -> Section | None:
    """Mean ranks and tests over the benchmarks on which all compared models were scored.

    Args:
        tables: one per benchmark.

    Returns:
        None where fewer than two models were tested on two benchmarks or more.
    """
    models, scores = common_scores(tables)
    if len(models) < 2 or len(tables) < 2:
        return None
    ranks = stats.rankdata(scores, axis=0).mean(1)
    order = np.argsort(ranks, kind="stable")
    best, others = int(order[0]), [int(number) for number in order[1:]]
    count = scores.shape[1]
    section = Section(
        "across",
        "All benchmarks together",
        f"Mean rank by test score over {count} benchmarks, 1 for the best. Each benchmark is one observation, so that "
        "few benchmarks can show little, whatever the number of seeds.",
    )
    section.notes.append("; ".join(f"{models[number]} {ranks[number]:.2f}" for number in order) + ".")
    if len(models) > 2:
        section.notes.append(f"Friedman's test of equal mean ranks: {show_p(friedman(scores))}.")
    found = [signed_rank(scores[number], scores[best]) for number in others]
    for number, p, corrected in zip(others, found, holm(found), strict=True):
        told = f"; after Holm {show_p(corrected)}" if len(others) > 1 else ""
        section.notes.append(
            f"{models[number]} beside {models[best]}: Wilcoxon's signed-rank test over benchmarks {show_p(p)}{told}."
        )
    return section


def common_scores(tables: Sequence[ResultTable]) -> tuple[list[str], np.ndarray]:
    """Models with a finite test score in every table, and these scores `[models, tables]`, less being better.

    A model is known again by its architecture and options, since its label names the data where they differ.
    """
    columns: list[dict[tuple[str, str], float]] = []
    for table in tables:
        key, sign = f"test/{table.metric}", -1 if table.higher_is_better else 1
        rows = [row for row in table.rows if row.group is not None and key in row.scores]
        means = {_model(row): sign * row.scores[key].mean for row in rows}
        columns.append({model: mean for model, mean in means.items() if math.isfinite(mean)})
    models = [model for model in columns[0] if all(model in column for column in columns)]
    names = [name for name, _ in models]
    labels = [f"{name} {names[: place + 1].count(name)}" if names.count(name) > 1 else name
              for place, name in enumerate(names)]  # fmt: skip
    return labels, np.array([[column[model] for column in columns] for model in models]).reshape(
        len(models), len(tables)
    )


def _model(row: Row) -> tuple[str, str]:
    """Architecture, and all that a configuration says of the model."""
    assert row.group is not None
    run = row.group.runs[0]
    return run.architecture, json.dumps(run.config.get("model"), sort_keys=True, default=str)


def friedman(scores: np.ndarray) -> float:
    """Return p of Friedman's test of `[models, benchmarks]`; NaN where all ranks are equal."""
    with np.errstate(invalid="ignore", divide="ignore"):
        return float(stats.friedmanchisquare(*scores).pvalue)


def signed_rank(one: np.ndarray, other: np.ndarray) -> float:
    """Return p of Wilcoxon's signed-rank test of relative differences `[benchmarks]`; NaN where all are 0."""
    size = (np.abs(one) + np.abs(other)) / 2
    relative = np.divide(one - other, size, out=np.zeros_like(size), where=size > 0)
    return float(stats.wilcoxon(relative).pvalue) if np.any(relative) else math.nan
