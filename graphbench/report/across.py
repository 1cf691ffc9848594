"""Models over several benchmarks: ranks, and tests that take each benchmark as one observation.

Equations and sources: Demsar (2006), "Statistical Comparisons of Classifiers over Multiple Data Sets":

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
from scipy import stats

from graphbench.report.scores import ResultTable, Row
from graphbench.report.sections import Section
from graphbench.report.significance import holm, show_p


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
