"""Summarise in a few sentences what a table of results shows, how sure that is, and what is missing."""

from __future__ import annotations

import math
from collections.abc import Sequence

from graphbench.report.curves import looked_at_test
from graphbench.report.scores import Quantity, ResultTable, Row
from graphbench.report.significance import show_p
from graphbench.runs.tables import SCORED

#: Number of models that a sentence names; the table shows all.
_NAMED = 12
#: p-value above which a difference may be chance.
_SURE = 0.05


def verdict(table: ResultTable) -> list[str]:
    """Return sentences for the top of the page: the best model, baselines, significance, and what is missing."""
    quantity = _compared_by(table)
    if quantity is None:
        return ["No model has a score."]
    return [
        _best(table, quantity),
        *_beside_others(table),
        *_beside_baselines(table, quantity),
        *_gaps(table),
    ]


def _named(models: Sequence[str]) -> str:
    """List models, and count those after the first ones of a long list."""
    return ", ".join([*models[:_NAMED], *([f"{len(models) - _NAMED} more"] if len(models) > _NAMED else [])])


def _compared_by(table: ResultTable) -> Quantity | None:
    """Return the test score if the best model has one, else its validation score; None without a finite one."""
    for split in ("test", "val"):
        if table.best.is_finite(f"{split}/{table.metric}"):
            return table.quantity(f"{split}/{table.metric}")
    return None


def _best(table: ResultTable, quantity: Quantity) -> str:
    best = table.best
    text = best.show(quantity) + (f" {quantity.unit}" if quantity.unit else "")
    scored = _validated(table)
    if not scored and len(table.groups) > 1:
        return f"No model has a validation {table.metric} to be chosen by; the table has each {quantity.title}."
    rest = [row.label for row in table.models if row not in scored] if len(table.groups) > 1 else []
    without = f" Without a finite validation {table.metric}: {_named(rest)}." if rest else ""
    val = table.quantity(f"val/{table.metric}")
    equal = [row.label for row in scored if val and row is not best and _mean(row, val) == _mean(best, val)]
    if equal:
        first = f"{best.label} ties with {_named(equal)} in validation {table.metric}; its"
    elif len(scored) > 1:
        first = f"{best.label} has the best validation {table.metric} of {len(scored)} models; its"
    else:
        return f"{best.label} has a {quantity.title} of {text}.{without}"
    return f"{first} {quantity.title} is {text}.{without}"


def _mean(row: Row, quantity: Quantity) -> str:
    """Return the mean as the table shows it, which decides ties, without the deviation and the number of runs."""
    return row.show(quantity).partition(" ")[0]


def _validated(table: ResultTable) -> list[Row]:
    """Return models with a finite validation score."""
    return [row for row in table.models if row.is_finite(f"val/{table.metric}")]


def _beside_others(table: ResultTable) -> list[str]:
    """Describe which differences to the best model may be chance."""
    pairs = [(row.label, row.comparison) for row in table.comparisons if row.comparison is not None]
    if not pairs:
        return []
    values = [(label, one.p if math.isnan(one.holm) else one.holm) for label, one in pairs]
    open_ones = [f"{label} ({show_p(p)})" for label, p in values if not p < _SURE]
    counts = sorted({one.pairs for _, one in pairs})
    over = f"{' to '.join(map(str, dict.fromkeys([counts[0], counts[-1]])))} {pairs[0][1].over}"
    compared = [label for label, _ in pairs]
    left = [row.label for row in table.models if row is not table.best and row.label not in compared]
    rest = f" Not compared, with fewer than two scores in common: {_named(left)}." if left else ""
    if open_ones:
        return [f"Over {over}, the difference to it may be chance for {_named(open_ones)}.{rest}"]
    whose = "no difference to it" if left else "no other model's difference to it"
    of = f" for {_named(compared)}" if left else ""
    return [f"Over {over}, {whose} looks like chance{of} (p below {_SURE} after Holm).{rest}"]


def _beside_baselines(table: ResultTable, quantity: Quantity) -> list[str]:
    """Compare the best model with the best baseline on the same split."""
    if len(table.groups) > 1 and not _validated(table):
        return []
    sign = -1 if table.higher_is_better else 1
    scored = [row for row in table.rows if row.kind == "baseline" and quantity.key in row.scores]
    scored = [row for row in scored if math.isfinite(row.scores[quantity.key].mean)]
    if not scored or table.higher_is_better is None:
        return []
    model, rival = table.best.scores[quantity.key], min(scored, key=lambda row: sign * row.scores[quantity.key].mean)
    other = rival.scores[quantity.key].mean
    beside = f"{rival.label}, the best baseline ({rival.show(quantity)})"
    if _mean(table.best, quantity) == _mean(rival, quantity):
        return [f"{table.best.label} ties with {beside}."]
    better = sign * model.mean < sign * other
    share = abs(model.mean - other) / abs(other) if other else math.inf
    by = f"{share:.1%} " if math.isfinite(share) else ""
    return [f"{table.best.label} is {by}{'better' if better else 'worse'} than {beside}."]


def _gaps(table: ResultTable) -> list[str]:
    """Name what is missing."""
    gaps = []
    untested = [row.label for row in _validated(table) if f"test/{table.metric}" not in row.scores]
    if untested:
        tested = any(f"test/{table.metric}" in row.scores for row in table.models)
        whose = f" by {_named(untested)}" if tested else ""
        gaps.append(f"the test split{whose} (graphbench test --run FOLDER)")
    if not any(row.kind == "baseline" for row in table.rows):
        gaps.append("baselines")
    single = [group.label for group in table.groups if len(group.runs) == 1]
    if single:
        whose = "" if len(single) == len(table.groups) else f" of {_named(single)}"
        gaps.append(f"how much the score{whose} changes with the seed (graphbench sweep --seeds 0-2)")
    sentences = [f"Not looked at: {'; '.join(gaps)}."] if gaps else []
    looked = [group.label for group in table.groups if looked_at_test(group)]
    if looked:
        sentences.append(f"The {SCORED['test']} split was looked at while {_named(looked)} trained.")
    return sentences
