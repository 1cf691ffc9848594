"""How far the other models are from the best one, with intervals and tests."""

from __future__ import annotations

import math

from matplotlib.ticker import MaxNLocator

from graphbench.report.figures import INK, Style, panel_axes, shorten, svg
from graphbench.report.scores import ResultTable, Row
from graphbench.report.sections import Panel, Section
from graphbench.report.significance import CORRECTED, show_p
from graphbench.runs.tables import SCORED


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
