"""Draw logged values over epochs: losses, metrics, learning rates, speed, and the gap to unseen graphs."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.ticker import MaxNLocator

from graphbench.report.figures import (
    RULE,
    Panel,
    Section,
    Style,
    draw_mean,
    legend,
    make_logarithmic,
    panel_axes,
    svg,
    thinned,
)
from graphbench.report.groups import Group
from graphbench.report.loading import Run
from graphbench.report.scores import ResultTable
from graphbench.runs.tables import show_number

#: Ratio of the largest to the smallest value above which an axis is logarithmic.
_DECADES = 30.0
#: Maximum number of series for which a panel has thin lines for single seeds.
_FEW = 4
_RATES = ("lr-", "lr/")
#: Prefixes of quantities whose axis starts at zero.
_FROM_ZERO = (*_RATES, "time/")
_SPLITS = {"train": "training", "val": "validation"}
#: Splits that training graphs may be compared with, and their names in titles.
_UNSEEN = {"val": "validation split", "test": "test split, looked at in training"}


@dataclass(frozen=True)
class _Series:
    """One logged quantity of one group, drawn in one style."""

    group: Group
    quantity: str
    style: Style

    @property
    def curves(self) -> list[pd.Series[float]]:
        return [run.curves[self.quantity] for run in self.group.runs if self.quantity in run.curves]


@dataclass(frozen=True)
class _Plot:
    """A panel to draw."""

    title: str
    unit: str
    series: Sequence[_Series]

    @property
    def is_empty(self) -> bool:
        """Return whether it would show nothing: a learning rate needs two points, since only its changes matter."""
        least = 2 if self.series[0].quantity.startswith(_RATES) else 1
        return all(len(curve) < least for series in self.series for curve in series.curves)


def learning_curves(table: ResultTable, name: str) -> Section:
    """Draw small multiples of the logged values of a benchmark's runs, without empty panels."""
    styles = {group: Style(n) for n, group in enumerate(table.groups) if any(run.curves for run in group.runs)}
    if not styles:
        return Section(name, "Learning curves", "No run has logged a finished epoch.")
    section = Section(name, "Learning curves", _intro(table))
    if len(table.groups) == 1:
        plots, labels = _single(table, table.groups[0]), dict(enumerate(_SPLITS.values()))
    else:
        plots, labels = _several(table, styles), {style.number: group.label for group, style in styles.items()}
    for number, plot in enumerate(plots):
        if not plot.is_empty:
            section.panels.append(_draw(plot, f"{name}-{number}", table.metric))
    section.legend = legend(labels, f"{name}-legend")
    return section


def _intro(table: ResultTable) -> str:
    several = any(group.several for group in table.groups)
    thin = ", thin lines single seeds" if len(table.groups) <= _FEW else ""
    seeds = (
        "Bold lines are means over seeds up to the last epoch that every seed reached, bands one standard deviation "
        f"(n – 1){thin}. " if several else ""
    )  # fmt: skip
    return (
        f"{seeds}Training scores are averaged over an epoch, while the model still changes and dropout is on; "
        "validation scores are from the end of the epoch. A ring marks the best epoch of a seed by validation "
        f"{table.chosen_by}: the checkpoint of the scores in the table."
    )


def _single(table: ResultTable, group: Group) -> list[_Plot]:
    """Plan the panels of one group: training and validation share a panel."""
    plots = [
        _Plot(title, unit, [_Series(group, f"{split}/{name}", Style(n)) for n, split in enumerate(_SPLITS)])
        for name, title, unit in _scores(table)
    ]
    return plots + [
        _Plot(title, unit, [_Series(group, name, Style(0))]) for name, title, unit in _rates_and_speed([group])
    ]


def _several(table: ResultTable, styles: Mapping[Group, Style]) -> list[_Plot]:
    """Plan the panels of several groups: one per quantity and split."""
    quantities = [
        (f"{split}/{name}", f"{words.capitalize()} {title}", unit)
        for name, title, unit in _scores(table)
        for split, words in _SPLITS.items()
    ]
    return [
        _Plot(title, unit, [_Series(group, name, style) for group, style in styles.items()])
        for name, title, unit in (*quantities, *_rates_and_speed(list(styles)))
    ]


def _scores(table: ResultTable) -> list[tuple[str, str, str]]:
    """List name, title and unit of the loss and the benchmark's metric; once if the loss is the metric.

    Before a fit has finished, no run names its metric, so all logged scores are listed.
    """
    runs = [run for group in table.groups for run in group.runs]
    logged = dict.fromkeys(name[4:] for run in runs for name in run.curves if name.startswith("val/"))
    names = [table.metric] if table.metric else [name for name in logged if name != "loss"]
    if table.metric and all(_is_loss(run, table.metric) for run in runs):
        return [(table.metric, f"{table.metric} (the loss)", table.unit)]
    return [("loss", "loss", ""), *((name, name, table.unit) for name in names)]


def _is_loss(run: Run, metric: str) -> bool:
    """Return whether a metric was equal to the loss whenever both were logged."""
    pairs = [(run.curves.get(f"{split}/loss"), run.curves.get(f"{split}/{metric}")) for split in _SPLITS]
    return all(
        a is not None and b is not None and len(a) == len(b) and np.allclose(a, b, atol=0, equal_nan=True)
        for a, b in pairs
    )


def _rates_and_speed(groups: Sequence[Group]) -> list[tuple[str, str, str]]:
    """List logged name, title and unit of every learning rate, then of the training speed."""
    names = dict.fromkeys(n for group in groups for run in group.runs for n in run.curves if n.startswith(_RATES))
    rates = [(n, "Learning rate" if len(names) == 1 else f"Learning rate of {n[3:]}", "") for n in names]
    return [*rates, ("time/graphs_per_s", "Training speed", "graphs/s")]


def _draw(plot: _Plot, name: str, metric: str) -> Panel:
    with panel_axes(plot.title[:1].upper() + plot.title[1:], "finished epochs", plot.unit) as (figure, axes):
        for series in plot.series:
            _draw_series(axes, series, single_seeds=len(plot.series) <= _FEW)
            if series.quantity in (f"val/{metric}", "val/loss"):
                for run in series.group.runs:
                    _mark_best(axes, run, series)
        axes.xaxis.set_major_locator(MaxNLocator("auto", integer=True, min_n_ticks=1))
        if plot.series[0].quantity.startswith(_FROM_ZERO):
            axes.set_ylim(bottom=0)
        # Only if all values are positive: a logarithmic axis has no zero.
        elif _spans_decades(np.concatenate([curve for series in plot.series for curve in series.curves])):
            make_logarithmic(axes)
            axes.set_ylabel(f"{plot.unit} (logarithmic)".strip())
        labels = ", ".join(dict.fromkeys(series.group.label for series in plot.series))
        return Panel(svg(figure, f"{plot.title} over epochs of {labels}", name))


def _draw_series(axes: Axes, series: _Series, single_seeds: bool) -> None:
    """Draw the mean of all seeds with its band, over thin lines for single seeds if there are several."""
    curves = series.curves
    if len(curves) > 1 and single_seeds:
        for curve in map(thinned, curves):
            axes.plot(curve.index, curve, color=series.style.colour, linewidth=0.7, alpha=0.45)
    if curves:
        # the mean stops at the shortest seed, since a mean over fewer seeds would jump
        seeds = pd.concat(curves, axis=1, join="inner").sort_index()
        draw_mean(axes, seeds.mean(axis=1, skipna=False), seeds.std(axis=1, ddof=1, skipna=False), series.style)


def _mark_best(axes: Axes, run: Run, series: _Series) -> None:
    curve, best = run.curves.get(series.quantity), _best_place(run)
    if curve is not None and best is not None and best in curve.index:
        axes.plot(
            best, curve[best], marker="o", markersize=9, linestyle="",
            markerfacecolor="none", markeredgewidth=1.6, markeredgecolor=series.style.colour,
        )  # fmt: skip


def _best_place(run: Run) -> float | None:
    """Return the finished epochs at the best checkpoint: of the validations in its epoch, that with its score."""
    metric, best = str(run.results.get("metric")), run.best_epoch
    curve, score = run.curves.get(f"val/{metric}"), run.scores("val").get(metric)
    if curve is None or best is None or score is None:
        return best
    within = curve[(curve.index > best - 1) & (curve.index <= best)].dropna()
    return float(within.index[int((within - score).abs().argmin())]) if len(within) > 1 else best


def _spans_decades(values: np.ndarray) -> bool:
    finite = values[np.isfinite(values)]
    return bool(len(finite) and finite.min() > 0 and finite.max() > _DECADES * finite.min())


def gap_section(table: ResultTable, name: str) -> Section | None:
    """Draw the gap in the metric to splits scored in training, and state that to the test split; None without any."""
    section = Section(
        name,
        "Gap between training and unseen graphs",
        f"How much worse {table.metric} is on unseen graphs than on a fixed part of the training graphs, both "
        "scored in evaluation mode; above zero the model is better on seen graphs. Bands are one standard "
        "deviation (n – 1) over seeds. The gap in the loss is in the run folder.",
    )
    gaps = {number: frame for number, group in enumerate(table.groups) if len(frame := _gaps(group, table.metric))}
    for split, words in _UNSEEN.items():
        frames = {number: part for number, frame in gaps.items() if len(part := _select(frame, split, "fit"))}
        if frames:
            section.panels.append(_gap_panel(frames, table, words, f"{name}-{split}"))
            section.legend = legend({number: table.groups[number].label for number in gaps}, f"{name}-legend")
    section.notes += [
        _describe_gap(tested, table.groups[number], table.metric)
        for number, frame in gaps.items()
        if len(tested := _select(frame, "test", "test"))
    ]
    return section if section.panels or section.notes else None


def looked_at_test(group: Group) -> bool:
    """Return whether a run of a group scored the test split during training."""
    return any(len(run.gap) and len(_select(run.gap, "test", "fit")) for run in group.runs)


def _select(frame: pd.DataFrame, split: str, stage: str) -> pd.DataFrame:
    """Select rows of a split from the training ("fit") or from a test of a checkpoint ("test")."""
    return frame[(frame["split"] == split) & (frame["stage"] == stage)]


def _gaps(group: Group, metric: str) -> pd.DataFrame:
    """Concatenate the rows of a metric from all runs of a group, with the number of the run."""
    tables = [run.gap.assign(run=number) for number, run in enumerate(group.runs) if len(run.gap)]
    rows = pd.concat(tables).dropna(subset=["epoch", "gap"]) if tables else pd.DataFrame({"measure": []})
    return rows[rows["measure"] == metric]


def _gap_panel(frames: Mapping[int, pd.DataFrame], table: ResultTable, split: str, name: str) -> Panel:
    title = f"Gap in {table.metric} to the {split}"
    with panel_axes(title, "finished epochs", table.unit or "larger is worse") as (figure, axes):
        axes.axhline(0, color=RULE, linewidth=1.2)
        for number, frame in frames.items():
            epochs = frame.groupby(_places(frame))["gap"].agg(["mean", "std", "count"])
            epochs = epochs[epochs["count"] == frame["run"].nunique()]  # a mean over fewer seeds would jump
            draw_mean(axes, epochs["mean"], epochs["std"], Style(number))
        axes.xaxis.set_major_locator(MaxNLocator("auto", integer=True, min_n_ticks=1))
        labels = ", ".join(table.groups[number].label for number in frames)
        return Panel(svg(figure, f"{title} over epochs of {labels}", name))


def _places(frame: pd.DataFrame) -> pd.Series[float]:
    """Return the finished epochs of each row; by steps if a run has several validations in an epoch."""
    if "step" not in frame or not frame.duplicated(["run", "epoch"]).any():
        return frame["epoch"]
    steps = pd.to_numeric(frame["step"], errors="coerce")
    return steps / (steps / frame["epoch"]).groupby(frame["run"]).transform("max")


def _describe_gap(frame: pd.DataFrame, group: Group, metric: str) -> str:
    """Describe the last comparison of every run with the test split."""
    last = frame.groupby("run").last()
    spread = f" ± {last['gap'].std(ddof=1):.2g} over {len(last)} runs" if len(last) > 1 else ""
    epochs = sorted({int(epoch) for epoch in last["epoch"] if epoch})  # older versions wrote 0
    scored = f"checkpoint{'s' * (len(last) > 1)}"
    if epochs:
        scored += f" of epoch{'s' * (len(epochs) > 1)} {', '.join(map(str, epochs))}"
    return (
        f"{group.label}, tested {scored}: {metric} {show_number(last['train'].mean())} on the training graphs, "
        f"{show_number(last['unseen'].mean())} on the test split, gap {show_number(last['gap'].mean())}{spread}."
    )
