"""Say in a few sentences what a table of results shows, how sure that is, and what was not looked at."""

from __future__ import annotations

import math

from graphbench.report.curves import looked_at_test
from graphbench.report.scores import Quantity, ResultTable, Row
from graphbench.report.significance import show_p
from graphbench.runs.tables import SCORED

#: p-value above which a difference may be chance.
_SURE = 0.05


def verdict(table: ResultTable) -> list[str]:
    """Return sentences for the top of the page: the best model, the baselines, how sure, what is missing."""
    quantity = _compared_by(table)
    if quantity is None:
        return ["No model has a score yet."]
    return [
        _best(table, quantity),
        *_beside_others(table),
        *_beside_baselines(table, quantity),
        *_gaps(table, quantity),
    ]


def _compared_by(table: ResultTable) -> Quantity | None:
    """Return the test score if the best model has one, else its validation score; None without a finite one."""
    for split in ("test", "val"):
        score = table.best.scores.get(f"{split}/{table.metric}")
        if score is not None and math.isfinite(score.mean):
            return next(one for one in table.quantities if one.key == f"{split}/{table.metric}")
    return None


def _best(table: ResultTable, quantity: Quantity) -> str:
    best = table.best
    text = best.show(quantity) + (f" {quantity.unit}" if quantity.unit else "")
    if len(table.groups) == 1:
        return f"{best.label} has a {quantity.title} of {text}."
    equal = [row for row in table.rows if row.kind == "model" and row is not best and _ties(row, best, table)]
    if equal:
        names = ", ".join(row.label for row in equal)
        return f"{best.label} ties with {names} in validation {table.metric}; its {quantity.title} is {text}."
    models = f"{len(table.groups)} models"
    return f"{best.label} has the best validation {table.metric} of {models}; its {quantity.title} is {text}."


def _ties(row: Row, best: Row, table: ResultTable) -> bool:
    """Tell whether two models show the same validation score."""
    quantity = next((one for one in table.quantities if one.key == f"val/{table.metric}"), None)
    return quantity is not None and quantity.key in row.scores and row.show(quantity) == best.show(quantity)


def _beside_others(table: ResultTable) -> list[str]:
    """Say which differences to the best model may be chance."""
    pairs = [(row.label, row.comparison) for row in table.comparisons if row.comparison is not None]
    if not pairs:
        return []
    values = [(label, one.p if math.isnan(one.holm) else one.holm) for label, one in pairs]
    open_ones = [f"{label} ({show_p(p)})" for label, p in values if not p < _SURE]
    over = f"{pairs[0][1].pairs} {pairs[0][1].over}"
    if not open_ones:
        return [f"Over {over}, no other model's difference to it looks like chance (p below {_SURE} after Holm)."]
    return [f"Over {over}, the difference to it may be chance for {', '.join(open_ones)}."]


def _beside_baselines(table: ResultTable, quantity: Quantity) -> list[str]:
    """Hold the best model against the best baseline of the same split."""
    sign = -1 if table.higher_is_better else 1
    scored = [row for row in table.rows if row.kind == "baseline" and quantity.key in row.scores]
    scored = [row for row in scored if math.isfinite(row.scores[quantity.key].mean)]
    if not scored or table.higher_is_better is None:
        return []
    model, rival = table.best.scores[quantity.key], min(scored, key=lambda row: sign * row.scores[quantity.key].mean)
    other = rival.scores[quantity.key].mean
    beside = f"{rival.label}, the best baseline ({rival.show(quantity)})"
    if table.best.show(quantity).partition(" ")[0] == rival.show(quantity).partition(" ")[0]:
        return [f"It ties with {beside}."]
    better = sign * model.mean < sign * other
    share = abs(model.mean - other) / abs(other) if other else math.inf
    by = f"{share:.1%} " if math.isfinite(share) else ""
    return [f"It is {by}{'better' if better else 'worse'} than {beside}."]


def _gaps(table: ResultTable, quantity: Quantity) -> list[str]:
    """Name what nobody has looked at."""
    gaps = []
    if quantity.key.startswith("val/"):
        gaps.append("the test split (graphbench test --run FOLDER)")
    if not any(row.kind == "baseline" for row in table.rows):
        gaps.append("baselines")
    single = [group.label for group in table.groups if len(group.runs) == 1]
    if single:
        whose = "" if len(single) == len(table.groups) else f" of {', '.join(single)}"
        gaps.append(f"how much the score{whose} changes with the seed (graphbench sweep --seeds 3)")
    sentences = [f"Not looked at: {'; '.join(gaps)}."] if gaps else []
    looked = [group.label for group in table.groups if looked_at_test(group)]
    if looked:
        sentences.append(f"The {SCORED['test']} split was looked at while {', '.join(looked)} trained.")
    return sentences
