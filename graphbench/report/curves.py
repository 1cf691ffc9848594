"""Draw what was logged over epochs: losses, metrics, learning rates, speed, and the gap to unseen graphs."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.ticker import FuncFormatter, MaxNLocator, NullFormatter

from graphbench.report.figures import RULE, Panel, Section, Style, draw_mean, legend, panel_axes, svg
from graphbench.report.groups import Group
from graphbench.report.loading import Run
from graphbench.report.scores import ResultTable

#: A logarithmic axis where the largest value is more than this many times the smallest.
_DECADES = 30.0
#: Panels of more series have no thin lines for single seeds.
_FEW = 4
_RATES = ("lr-", "lr/")
#: Quantities whose axis begins at zero.
_FROM_ZERO = (*_RATES, "time/")


@dataclass(frozen=True)
class _Series:
    """One quantity of one group, drawn in one style."""

    group: Group
    quantity: str
    style: Style


@dataclass(frozen=True)
class _Plot:
    """A panel before it is drawn."""

    title: str
    unit: str
    series: Sequence[_Series]


def learning_curves(table: ResultTable, name: str) -> Section:
    """Small multiples of what the runs of a benchmark logged; no panel where nobody logged a quantity."""
    styles = {group: Style(n) for n, group in enumerate(table.groups) if any(run.curves for run in group.runs)}
    if not styles:
        return Section(name, "Learning curves", "No run has logged a finished epoch.")
    section = Section(name, "Learning curves", _intro(table))
    plots = _single(table, next(iter(styles))) if len(table.groups) == 1 else _several(table, styles)
    for number, plot in enumerate(plots):
        if any(_is_curve(plot, curve) for series in plot.series for curve in _values(series)):
            section.panels.append(_draw(plot, f"{name}-{number}", table.metric))
    labels = (
        dict(enumerate(_BOTH.values())) if len(table.groups) == 1 else {s.number: g.label for g, s in styles.items()}
    )
    section.legend = legend(labels, f"{name}-legend")
    return section


def _is_curve(plot: _Plot, values: pd.Series[float]) -> bool:
    """Whether there is something to draw: of a rate, which only its course tells, two points at least."""
    return len(values) > 1 or not plot.series[0].quantity.startswith(_RATES)


_BOTH = {"train": "training", "val": "validation"}


def _single(table: ResultTable, group: Group) -> list[_Plot]:
    """One group: training and validation share a panel."""
    plots = [
        _Plot(title, unit, [_Series(group, f"{split}/{name}", Style(n)) for n, split in enumerate(_BOTH)])
        for name, title, unit in _scores(table)
    ]
    return plots + [_Plot(title, unit, [_Series(group, name, Style(0))]) for name, title, unit in _of_training([group])]


def _several(table: ResultTable, styles: Mapping[Group, Style]) -> list[_Plot]:
    """Several groups: a panel per quantity and split."""
    wanted = [
        (f"{split}/{name}", f"{name_of_split.capitalize()} {title}", unit)
        for name, title, unit in _scores(table)
        for split, name_of_split in _BOTH.items()
    ]
    return [
        _Plot(title, unit, [_Series(group, name, style) for group, style in styles.items()])
        for name, title, unit in (*wanted, *_of_training(list(styles)))
    ]


def _scores(table: ResultTable) -> list[tuple[str, str, str]]:
    """Name, title and unit of the loss and the benchmark's metric; once where the loss is the metric.

    A benchmark whose metric no run says yet, because no fit has finished, shows all that is logged.
    """
    runs = [run for group in table.groups for run in group.runs]
    logged = dict.fromkeys(name[4:] for run in runs for name in run.curves if name.startswith("val/"))
    names = [table.metric] if table.metric else [name for name in logged if name != "loss"]
    if table.metric and all(_same(run, "loss", table.metric) for run in runs):
        return [(table.metric, f"{table.metric} (the loss)", table.unit)]
    return [("loss", "loss", ""), *((name, name, table.unit) for name in names)]


def _same(run: Run, one: str, other: str) -> bool:
    """Whether two scores were equal whenever they were logged."""
    pairs = [(run.curves.get(f"{split}/{one}"), run.curves.get(f"{split}/{other}")) for split in _BOTH]
    return all(
        a is not None and b is not None and len(a) == len(b) and np.allclose(a, b, equal_nan=True) for a, b in pairs
    )


def _of_training(groups: Sequence[Group]) -> list[tuple[str, str, str]]:
    """Logged name, title and unit of every learning rate, then of the speed."""
    names = dict.fromkeys(n for group in groups for run in group.runs for n in run.curves if n.startswith(_RATES))
    rates = [(n, "Learning rate" if len(names) == 1 else f"Learning rate of {n[3:]}", "") for n in names]
    return [*rates, ("time/graphs_per_s", "Training speed", "graphs/s")]


def _intro(table: ResultTable) -> str:
    several = any(group.several for group in table.groups)
    thin = ", thin lines single seeds" if len(table.groups) <= _FEW else ""
    seeds = (
        "Bold lines are means over seeds up to the last epoch that every seed reached, bands one standard deviation "
        f"(n – 1){thin}. " if several else ""
    )  # fmt: skip
    return (
        f"{seeds}Training scores are averaged over an epoch, while the model still moves and with its dropout on; "
        "validation scores are of the model at the end of the epoch. A ring is the best epoch of a seed by validation "
        f"{table.metric or 'score'}: the checkpoint whose scores are in the table."
    )


def _values(series: _Series) -> list[pd.Series[float]]:
    return [run.curves[series.quantity] for run in series.group.runs if series.quantity in run.curves]


def _draw(plot: _Plot, name: str, metric: str) -> Panel:
    with panel_axes() as (figure, axes):
        for series in plot.series:
            _draw_series(axes, series, single_seeds=len(plot.series) <= _FEW)
            if series.quantity in (f"val/{metric}", "val/loss"):
                for run in series.group.runs:
                    _mark_best(axes, run, series)
        axes.set_title(plot.title[:1].upper() + plot.title[1:])
        axes.set_xlabel("finished epochs")
        if plot.unit:
            axes.set_ylabel(plot.unit)
        axes.xaxis.set_major_locator(MaxNLocator("auto", integer=True, min_n_ticks=1))
        if plot.series[0].quantity.startswith(_FROM_ZERO):
            axes.set_ylim(bottom=0)
        elif _spans_decades([value for series in plot.series for curve in _values(series) for value in curve]):
            _make_logarithmic(axes)
        labels = ", ".join(dict.fromkeys(series.group.label for series in plot.series))
        return Panel(svg(figure, f"{plot.title} over epochs of {labels}", name))


def _draw_series(axes: Axes, series: _Series, single_seeds: bool) -> None:
    """Thin lines for single seeds, and their mean with its band; one bold line for a single run."""
    curves = _values(series)
    if len(curves) > 1 and single_seeds:
        for curve in curves:
            axes.plot(curve.index, curve, color=series.style.colour, linewidth=0.7, alpha=0.45)
    if curves:
        together = pd.concat(curves, axis=1, join="inner").sort_index()
        mean, sd = together.mean(axis=1, skipna=False), together.std(axis=1, ddof=1, skipna=False)
        draw_mean(axes, mean, sd, series.style)


def _mark_best(axes: Axes, run: Run, series: _Series) -> None:
    curve, best = run.curves.get(series.quantity), run.best_epoch
    if curve is not None and best is not None and best in curve.index:
        axes.plot(
            best, curve[best], marker="o", markersize=9, linestyle="",
            markerfacecolor="none", markeredgewidth=1.6, markeredgecolor=series.style.colour,
        )  # fmt: skip


def _spans_decades(values: Sequence[float]) -> bool:
    finite = np.array([value for value in values if math.isfinite(value)])
    return bool(len(finite) and finite.min() > 0 and finite.max() > _DECADES * finite.min())


def _make_logarithmic(axes: Axes) -> None:
    """A logarithmic axis with plain numbers."""
    axes.set_yscale("log")
    axes.yaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:g}"))
    axes.yaxis.set_minor_formatter(NullFormatter())
    axes.set_ylabel(f"{axes.get_ylabel()} (logarithmic)".strip())


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
