"""The gap between training and unseen graphs."""

from __future__ import annotations

import pandas as pd
from matplotlib.ticker import MaxNLocator

from graphbench.report.figures import RULE, Style, draw_mean, legend, panel_axes, svg
from graphbench.report.groups import Group
from graphbench.report.scores import ResultTable
from graphbench.report.sections import Panel, Section


def gap_section(table: ResultTable, name: str) -> Section | None:
    """The gap in the benchmark's metric: over epochs to the validation split, in words to the test split.

    None where nobody measured one.
    """
    section = Section(
        name,
        "Gap between training and unseen graphs",
        f"How much worse {table.metric} is on validation graphs than on a fixed part of the training graphs, both "
        "scored in evaluation mode; above zero the model is better on what it has seen. Bands are one standard "
        "deviation (n – 1) over seeds. The gap in the loss is in the run folder.",
    )
    found = {number: frame for number, group in enumerate(table.groups) if len(frame := _gaps(group, table.metric))}
    validated = {n: part for n, frame in found.items() if len(part := frame[frame["split"] == "val"])}
    if validated:
        section.panels.append(_gap_panel(validated, table, name))
        section.legend = legend({number: table.groups[number].label for number in validated}, f"{name}-legend")
    for number, frame in found.items():
        tested = frame[frame["split"] == "test"]
        if len(tested):
            section.notes.append(_test_gap(tested, table.groups[number], table.metric))
    return section if section.panels or section.notes else None


def _gaps(group: Group, metric: str) -> pd.DataFrame:
    """Rows of the metric from all runs of a group, with the number of the run; empty without any."""
    tables = [run.gap.assign(run=number) for number, run in enumerate(group.runs) if len(run.gap)]
    rows = pd.concat(tables).dropna(subset=["epoch", "gap"]) if tables else pd.DataFrame({"measure": []})
    return rows[rows["measure"] == metric]


def _gap_panel(frames: dict[int, pd.DataFrame], table: ResultTable, name: str) -> Panel:
    with panel_axes() as (figure, axes):
        axes.axhline(0, color=RULE, linewidth=1.2)
        for number, frame in frames.items():
            over = frame.groupby("epoch")["gap"].agg(["mean", "std", "count"])
            over = over[over["count"] == frame["run"].nunique()]  # as far as every seed went
            draw_mean(axes, over["mean"], over["std"], Style(number))
        axes.set_title(f"Gap in {table.metric}")
        axes.set_xlabel("finished epochs")
        axes.set_ylabel(table.unit or "larger is worse")
        axes.xaxis.set_major_locator(MaxNLocator("auto", integer=True, min_n_ticks=1))
        labels = ", ".join(table.groups[number].label for number in frames)
        return Panel(svg(figure, f"Gap in {table.metric} over epochs of {labels}", name))


def _test_gap(frame: pd.DataFrame, group: Group, metric: str) -> str:
    """One sentence; of every run its last comparison with the test split."""
    last = frame.groupby("run").last()
    spread = f" ± {last['gap'].std(ddof=1):.4f} over {len(last)} runs" if len(last) > 1 else ""
    return (
        f"{group.label}, best checkpoint: {metric} {last['train'].mean():.4f} on the training graphs, "
        f"{last['unseen'].mean():.4f} on the test split, gap {last['gap'].mean():.4f}{spread}."
    )
