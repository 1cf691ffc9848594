"""Draw small figures as inline SVG with the page's colours, and collect them in panels and sections.

Series differ in colour (Okabe and Ito's palette, safe for any colour vision), line style and marker; no figure relies
only on colour. Text stays text.
"""

from __future__ import annotations

import io
import math
import re
import warnings
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any, Literal
from xml.etree import ElementTree as ET

import matplotlib as mpl
import numpy as np
import pandas as pd
from markupsafe import Markup
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.ticker import FuncFormatter, LogFormatter

#: Placeholders that `svg` replaces with the page's colours: series, then ink and rules.
PALETTE = ("#0072b2", "#d55e00", "#009e73", "#cc79a7", "#e69f00", "#56b4e9", "#6f6f6f")
INK, RULE = "#000001", "#000002"
_PAGE_COLOURS = {colour: f"var(--series-{number})" for number, colour in enumerate(PALETTE)} | {
    INK: "currentColor",
    RULE: "var(--rule)",
}
_LINES: tuple[Literal["-", "--", "-.", ":"], ...] = ("-", "--", "-.", ":")
_MARKERS = ("o", "s", "^", "D", "v", "P", "X", "<", ">")

#: Control characters that labels may contain but XML may not.
_NO_XML = re.compile(rb"[\x00-\x08\x0b\x0c\x0e-\x1f]")

_LONGEST_LABEL = 22
#: Number of stretches of a long curve, about one for each point of the width of a panel.
_STRETCHES = 200

_SETTINGS: dict[Any, Any] = {
    "svg.fonttype": "none", "text.parse_math": False,  # labels contain names of options, with their _ and $
    "text.color": INK, "axes.labelcolor": INK, "xtick.labelcolor": INK, "ytick.labelcolor": INK,
    "axes.edgecolor": RULE, "grid.color": RULE, "xtick.color": RULE, "ytick.color": RULE,
    "axes.linewidth": 0.8, "grid.linewidth": 0.6, "lines.linewidth": 1.6, "lines.markersize": 4.5,
    "axes.spines.top": False, "axes.spines.right": False, "axes.grid": True, "axes.axisbelow": True,
    "axes.titlesize": 10, "axes.titleweight": "bold", "axes.titlelocation": "left",
    "axes.formatter.use_mathtext": False, "axes.unicode_minus": True,
    "font.family": "DejaVu Sans", "font.size": 9, "figure.constrained_layout.use": True,
}  # fmt: skip


@dataclass(frozen=True)
class Style:
    """Colour, line and marker of series `number` (from 0) in every figure of a page."""

    number: int

    @property
    def colour(self) -> str:
        """Return its colour in the palette."""
        return PALETTE[self.number % len(PALETTE)]

    @property
    def line(self) -> Literal["-", "--", "-.", ":"]:
        """Return its line style."""
        return _LINES[self.number % len(_LINES)]

    @property
    def marker(self) -> str:
        """Return its marker."""
        return _MARKERS[self.number % len(_MARKERS)]


@dataclass(frozen=True)
class LegendEntry:
    """Label of a series with its line and marker, in the legend shared by all panels of a section."""

    label: str
    swatch: Markup


@contextmanager
def panel_axes(
    title: str = "", x: str = "", y: str = "", size: tuple[float, float] = (3.7, 2.6), rows: Sequence[str] = ()
) -> Iterator[tuple[Figure, Axes]]:
    """Yield a figure with one panel and the page's settings; matplotlib's global settings are unchanged.

    The size is in inches, which the page scales to its column. `rows` are labels of horizontal rows at heights 0, 1,
    ...; if given, their number decides the height.
    """
    with mpl.rc_context(_SETTINGS):
        figure = Figure(figsize=(3.7, 0.9 + 0.3 * len(rows)) if rows else size)
        axes = figure.add_subplot()
        axes.set(title=title, xlabel=x, ylabel=y)
        if rows:
            axes.set_yticks(range(len(rows)), [shorten(label) for label in rows])
            axes.set_ylim(-0.6, len(rows) - 0.4)
            axes.grid(False, axis="y")
        yield figure, axes


def shorten(label: str) -> str:
    """Cut the middle of a long label, since labels of one architecture differ at the end."""
    half = _LONGEST_LABEL // 2
    return label if len(label) <= _LONGEST_LABEL else f"{label[:half]}…{label[1 - half :]}"


def with_unit(text: str, unit: str) -> str:
    """Append a unit in brackets if there is one."""
    return f"{text} [{unit}]" if unit else text


def make_logarithmic(axes: Axes) -> None:
    """Make the vertical axis logarithmic; labels are plain numbers, also between powers on a short axis."""
    axes.set_yscale("log")
    axes.yaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:g}"))
    axes.yaxis.set_minor_formatter(LogFormatter(minor_thresholds=(1.0, 0.4)))  # else formulas


def _stretches(count: int) -> np.ndarray:
    """Return the number of the stretch of every point of a curve; each point is one in a short curve."""
    return np.arange(count) * min(count, _STRETCHES) // max(count, 1)


def thinned(curve: pd.Series[float]) -> pd.Series[float]:
    """Keep the smallest and the largest value of every stretch of a long curve; one without numbers stays a gap.

    A stretch is about as wide as the line, so the drawing looks the same, and a page over thousands of epochs can
    still be opened.
    """
    stretch, values = _stretches(len(curve)), curve.to_numpy()
    places: set[int] = set()
    for rows in np.split(np.arange(len(curve)), np.flatnonzero(np.diff(stretch)) + 1):
        finite = rows[np.isfinite(values[rows])]
        places |= {finite[values[finite].argmin()], finite[values[finite].argmax()]} if len(finite) else set(rows[:1])
    return curve.iloc[sorted(places)]


def draw_mean(axes: Axes, mean: pd.Series[float], sd: pd.Series[float], style: Style) -> None:
    """Draw a line over epochs with about eight markers, and a band of one standard deviation if it is finite."""
    stretch = _stretches(len(mean))
    low, high = (mean - sd).groupby(stretch).min(), (mean + sd).groupby(stretch).max()
    places = mean.index.to_series().groupby(stretch).mean()
    axes.fill_between(places, low, high, color=style.colour, alpha=0.12, linewidth=0)
    mean = thinned(mean)
    axes.plot(
        mean.index, mean, color=style.colour, linestyle=style.line, marker=style.marker,
        markevery=max(1, math.ceil(len(mean) / 8)),
    )  # fmt: skip


def legend(labels: Mapping[int, str], name: str) -> list[LegendEntry]:
    """Draw the line and marker of each series, by number, next to its label; `name` is unique in the page."""
    entries = []
    for number, label in labels.items():
        style = Style(number)
        with mpl.rc_context({**_SETTINGS, "figure.constrained_layout.use": False}):
            figure = Figure(figsize=(0.5, 0.16))
            figure.add_artist(Line2D([0.05, 0.95], [0.5, 0.5], color=style.colour, linestyle=style.line))
            figure.add_artist(Line2D([0.5], [0.5], color=style.colour, marker=style.marker, linestyle=""))
        entries.append(LegendEntry(label, svg(figure, "", f"{name}-{number}")))
    return entries


def svg(figure: Figure, description: str, name: str) -> Markup:
    """Render a figure in this module's colours as an SVG element for an HTML page.

    The description is for screen readers, "" for a figure that only repeats text; `name`, unique in the page, is a
    prefix of identifiers.
    """
    buffer = io.BytesIO()
    figure.patch.set_visible(False)
    for axes in figure.axes:
        axes.patch.set_visible(False)
    # With a fixed salt, the identifiers of a figure are the same in every run.
    with mpl.rc_context({**_SETTINGS, "svg.hashsalt": name}), warnings.catch_warnings():
        warnings.filterwarnings("ignore", message="Glyph .* missing from")  # browsers have their own fonts
        figure.savefig(buffer, format="svg", dpi=200)
    return embedded(buffer.getvalue(), description, name)


def embedded(drawing: bytes, description: str, name: str) -> Markup:
    """Convert an SVG file in this module's colours to an element for an HTML page; arguments as in `svg`."""
    root = ET.fromstring(_NO_XML.sub(b"", drawing))
    _embed(root, name)
    root.attrib.update({"role": "img", "aria-label": description} if description else {"aria-hidden": "true"})
    return Markup(ET.tostring(root, encoding="unicode"))  # ElementTree has escaped all text


def _embed(root: ET.Element, name: str) -> None:
    """Drop size, metadata, styles and namespaces, make identifiers unique in the page, and use the page's colours."""
    for parent in list(root.iter()):
        for child in [child for child in parent if child.tag.rpartition("}")[2] in ("metadata", "style")]:
            parent.remove(child)
    for size in ("width", "height"):  # the view box remains, so that the page decides the size
        root.attrib.pop(size, None)
    for element in root.iter():
        # HTML knows SVG elements without a namespace.
        element.tag = element.tag.rpartition("}")[2]
        attributes = dict(element.attrib)
        element.attrib.clear()
        for key, value in attributes.items():
            element.attrib[key.rpartition("}")[2]] = _attribute(key, value, name)
        if element.tag == "g":
            element.attrib.pop("id", None)  # nothing refers to groups


def _attribute(key: str, value: str, name: str) -> str:
    if key == "id":
        return f"{name}-{value}"
    if key.endswith("href") and value.startswith("#"):
        return f"#{name}-{value[1:]}"
    if key == "d":  # a hundredth of a point; matplotlib writes six decimals, a third of a page
        return re.sub(r"(\.\d\d)\d+", r"\1", value)
    if key in ("style", "fill"):
        value = re.sub("#[0-9a-fA-F]{6}", lambda colour: _PAGE_COLOURS.get(colour[0].lower(), colour[0]), value)
    return value.replace("url(#", f"url(#{name}-")


@dataclass(frozen=True)
class Panel:
    """A figure as an SVG or IMG element, with an optional caption."""

    figure: Markup
    caption: str = ""


@dataclass
class Section:
    """Panels that share a legend."""

    name: str  # anchor in the page
    title: str  # heading
    intro: str  # how to read the panels
    legend: list[LegendEntry] = field(default_factory=list)  # for the series in all panels
    lines: list[list[str]] = field(default_factory=list)  # rows of a table, header first
    panels: list[Panel] = field(default_factory=list)  # shown at once
    wide: bool = False  # show two panels in a row on a desktop instead of three
    more: list[Panel] = field(default_factory=list)  # panels in a collapsed section
    notes: list[str] = field(default_factory=list)  # sentences below the panels
