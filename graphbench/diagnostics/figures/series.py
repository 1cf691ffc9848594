"""Curves and bars of several models, with a paper's values next to those obtained here."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import matplotlib as mpl
import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import MaxNLocator

#: Okabe and Ito's palette, distinguishable with any colour vision.
_COLOURS = ("#0072b2", "#d55e00", "#009e73", "#cc79a7", "#e69f00", "#56b4e9", "#6f6f6f")
_MARKERS = ("o", "s", "^", "D", "v", "P", "X", "<", ">")
_SETTINGS: dict[Any, Any] = {
    "font.family": "DejaVu Sans", "font.size": 8, "axes.linewidth": 0.6, "axes.spines.top": False,
    "axes.spines.right": False, "text.parse_math": False,
}  # fmt: skip
_WIDTH, _HEIGHT, _BAR, _MAX_COLUMNS = 3.6, 2.7, 0.24, 3
#: A curve with more points than this has only a line.
_FEW = 12


@dataclass(frozen=True)
class Series:
    """Values of one model."""

    label: str  # of the model
    #: place -> mean and standard deviation (0 for one run).
    obtained: Mapping[float, tuple[float, float]] = field(default_factory=dict)
    printed: Mapping[float, float] = field(default_factory=dict)  # place -> value of the paper

    @property
    def is_empty(self) -> bool:
        """Return whether there is nothing to draw."""
        return not self.obtained and not self.printed


def curves_figure(panels: Mapping[str, Sequence[Series]], x: str, y: str, title: str) -> Figure:
    """Draw a panel of curves for each key: obtained ones as lines with a band of one deviation, printed ones dashed."""
    with mpl.rc_context(_SETTINGS):
        figure, places = _panels(len(panels), _HEIGHT, title)
        for axes, (name, series) in zip(places, panels.items(), strict=True):
            for number, one in enumerate(series):
                _curve(axes, one, number)
            axes.set(title=name, xlabel=x, ylabel=y)
            axes.xaxis.set_major_locator(MaxNLocator(6, integer=True))
        _legend(figure)
    return figure


def bars_figure(panels: Mapping[str, Sequence[Series]], y: str, title: str) -> Figure:
    """Draw a panel of horizontal bars for each key, first series on top; the frame of a bar is the printed value."""
    rows = max(map(len, panels.values()))
    with mpl.rc_context(_SETTINGS):
        figure, places = _panels(len(panels), 0.8 + _BAR * rows, title)
        for axes, (name, series) in zip(places, panels.items(), strict=True):
            for number, one in enumerate(series):
                for mean, deviation in one.obtained.values():
                    axes.barh(number, mean, 0.7, xerr=deviation or None, color=_COLOURS[0], capsize=2, label="obtained")
                for value in one.printed.values():
                    axes.barh(number, value, 0.7, fill=False, edgecolor="black", linestyle="--", label="printed")
            axes.set_yticks(range(len(series)), [one.label for one in series])
            axes.invert_yaxis()
            axes.set(title=name, xlabel=y)
        _legend(figure)
    return figure


def heatmap_figure(
    values: np.ndarray, rows: Sequence[object], columns: Sequence[object], y: str, x: str, title: str
) -> Figure:
    """Draw a table of numbers as colours with a scale; the first row is at the bottom, NaN stays blank."""
    with mpl.rc_context(_SETTINGS):
        figure = Figure(figsize=(_WIDTH * 1.4, _HEIGHT), layout="constrained")
        axes = figure.subplots()
        image = axes.imshow(values, aspect="auto", origin="lower", interpolation="nearest", cmap="viridis")
        for axis, labels in ((axes.xaxis, columns), (axes.yaxis, rows)):
            places = np.unique(np.linspace(0, len(labels) - 1, min(len(labels), 9)).round().astype(int))
            axis.set_ticks(places, [str(labels[place]) for place in places])
        axes.set(xlabel=x, ylabel=y, title=title)
        figure.colorbar(image, ax=axes)
        return figure


def _panels(count: int, height: float, title: str) -> tuple[Figure, Sequence[Axes]]:
    columns = min(count, _MAX_COLUMNS)
    rows = -(-count // columns)
    figure = Figure(figsize=(columns * _WIDTH + 1.6, rows * height + 0.5), dpi=110, layout="constrained")
    places = list(np.ravel(figure.subplots(rows, columns, squeeze=False)))
    for axes in places[count:]:
        axes.set_visible(False)
    figure.suptitle(title, fontsize=9, fontweight="bold", wrap=True)
    return figure, places[:count]


def _curve(axes: Axes, one: Series, number: int) -> None:
    colour, marker = _COLOURS[number % len(_COLOURS)], _MARKERS[number % len(_MARKERS)]
    if one.obtained:
        x = sorted(one.obtained)
        mean, deviation = np.array([one.obtained[place] for place in x]).T
        axes.fill_between(x, mean - deviation, mean + deviation, color=colour, alpha=0.15, linewidth=0)
        axes.plot(x, mean, color=colour, marker=marker if len(x) <= _FEW else None, markersize=4, label=one.label)
    if one.printed:
        x = sorted(one.printed)
        axes.plot(
            x, [one.printed[place] for place in x], color=colour, linestyle="--", marker=marker, markersize=4,
            markerfacecolor="none", label=f"{one.label}, printed",
        )  # fmt: skip


def _legend(figure: Figure) -> None:
    """Name every label once, next to the panels."""
    handles = {
        label: handle for place in figure.axes for handle, label in zip(*place.get_legend_handles_labels(), strict=True)
    }
    figure.legend(handles.values(), handles.keys(), loc="outside right center", frameon=False, fontsize=7)
