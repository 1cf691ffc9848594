"""What a page is made of: sections of panels, before anything is HTML."""

from __future__ import annotations

from dataclasses import dataclass, field

from markupsafe import Markup

from graphbench.report.figures import LegendEntry


@dataclass(frozen=True)
class Panel:
    """One figure.

    Args:
        figure: an SVG or IMG element.
        caption: below it, "" for none.
    """

    figure: Markup
    caption: str = ""


@dataclass
class Section:
    """Panels that share a legend.

    Args:
        name: anchor in the page.
        title: heading.
        intro: how to read the panels.
        legend: of the series in all panels.
        lines: a table, header first; none where empty.
        panels: shown at once.
        wide: panels are pictures with small print: two in a row on a desktop instead of three.
        more_title: of what is folded away.
        more: panels that are folded away.
        notes: sentences below the panels.
    """

    name: str
    title: str
    intro: str
    legend: list[LegendEntry] = field(default_factory=list)
    lines: list[list[str]] = field(default_factory=list)
    panels: list[Panel] = field(default_factory=list)
    wide: bool = False
    more_title: str = "Further measures"
    more: list[Panel] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)
