"""The gap between training and unseen graphs."""

from __future__ import annotations

import pandas as pd
from matplotlib.ticker import MaxNLocator

from graphbench.report.figures import RULE, Style, draw_mean, legend, panel_axes, svg
from graphbench.report.groups import Group
from graphbench.report.scores import ResultTable
from graphbench.report.sections import Panel, Section

#: Splits that a training may be compared with, as a panel's title calls them.
_SPLITS = {"val": "validation split", "test": "test split, looked at in training"}


def gap_section(table: ResultTable, name: str) -> Section | None:
    """The gap in the benchmark's metric: over epochs to the splits looked at in training, in words to the test split.

    None where nobody measured one.
    """
    section = Section(
        name,
        "Gap between training and unseen graphs",
        f"How much worse {table.metric} is on unseen graphs than on a fixed part of the training graphs, both "
        "scored in evaluation mode; above zero the model is better on what it has seen. Bands are one standard "
        "deviation (n – 1) over seeds. The gap in the loss is in the run folder.",
    )
    found = {number: frame for number, group in enumerate(table.groups) if len(frame := _gaps(group, table.metric))}
    for split, told in _SPLITS.items():
        frames = {n: part for n, frame in found.items() if len(part := _part(frame, split, "fit"))}
        if frames:
            section.panels.append(_gap_panel(frames, table, told, f"{name}-{split}"))
            section.legend = legend({number: table.groups[number].label for number in found}, f"{name}-legend")
    section.notes += [
        _test_gap(tested, table.groups[number], table.metric)
        for number, frame in found.items()
        if len(tested := _part(frame, "test", "test"))
    ]
    return section if section.panels or section.notes else None


def looked_at_test(group: Group) -> bool:
    """Whether some run of a group scored the test split while it was training."""
    return any(len(run.gap) and len(_part(run.gap, "test", "fit")) for run in group.runs)


def _part(frame: pd.DataFrame, split: str, stage: str) -> pd.DataFrame:
    """Rows of a split from the training ("fit") or from a test of a checkpoint ("test")."""
    return frame[(frame["split"] == split) & (frame["stage"] == stage)]


def _gaps(group: Group, metric: str) -> pd.DataFrame:
    """Rows of the metric from all runs of a group, with the number of the run; empty without any."""
    tables = [run.gap.assign(run=number) for number, run in enumerate(group.runs) if len(run.gap)]
    rows = pd.concat(tables).dropna(subset=["epoch", "gap"]) if tables else pd.DataFrame({"measure": []})
    return rows[rows["measure"] == metric]


def _gap_panel(frames: dict[int, pd.DataFrame], table: ResultTable, told: str, name: str) -> Panel:
    with panel_axes() as (figure, axes):
        axes.axhline(0, color=RULE, linewidth=1.2)
        for number, frame in frames.items():
            over = frame.groupby("epoch")["gap"].agg(["mean", "std", "count"])
            over = over[over["count"] == frame["run"].nunique()]  # as far as every seed went
            draw_mean(axes, over["mean"], over["std"], Style(number))
        axes.set_title(f"Gap in {table.metric} to the {told}")
        axes.set_xlabel("finished epochs")
        axes.set_ylabel(table.unit or "larger is worse")
        axes.xaxis.set_major_locator(MaxNLocator("auto", integer=True, min_n_ticks=1))
        labels = ", ".join(table.groups[number].label for number in frames)
        return Panel(svg(figure, f"Gap in {table.metric} to the {told} over epochs of {labels}", name))


def _test_gap(frame: pd.DataFrame, group: Group, metric: str) -> str:
    """One sentence; of every run its last comparison with the test split."""
    last = frame.groupby("run").last()
    spread = f" ± {last['gap'].std(ddof=1):.4f} over {len(last)} runs" if len(last) > 1 else ""
    epochs = sorted({int(epoch) for epoch in last["epoch"] if epoch})  # tables of older versions say 0
    scored = f"checkpoint{'s' * (len(last) > 1)}"
    if epochs:
        scored += f" of epoch{'s' * (len(epochs) > 1)} {', '.join(map(str, epochs))}"
    return (
        f"{group.label}, tested {scored}: {metric} {last['train'].mean():.4f} on the training graphs, "
        f"{last['unseen'].mean():.4f} on the test split, gap {last['gap'].mean():.4f}{spread}."
    )
