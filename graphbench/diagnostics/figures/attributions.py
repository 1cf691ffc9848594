"""Draw the attributions of nodes and edges on the graph."""

from __future__ import annotations

from typing import Any

import matplotlib as mpl
from matplotlib.cm import ScalarMappable
from matplotlib.colors import Colormap, LinearSegmentedColormap, Normalize
from matplotlib.figure import Figure
from torch import Tensor

from graphbench.diagnostics.figures.graphs import Colour, GraphDrawing

#: ColorBrewer's PuOr, whose two sides every colour vision tells apart: purple takes away, orange adds. Its ends are
#: left out, so that black letters can be read on it.
_COLOURS: Colormap = LinearSegmentedColormap.from_list(
    "attribution", [mpl.colormaps["PuOr_r"](place) for place in (0.22, 0.36, 0.5, 0.66, 0.8)]
)
_SETTINGS: dict[Any, Any] = {"font.family": "DejaVu Sans", "font.size": 8, "axes.linewidth": 0.5}
_WIDTH = 4.6


def attribution_figure(
    drawing: GraphDrawing, nodes: Tensor, lines: Tensor | None, title: str, unit: str, method: str
) -> Figure:
    """One graph with its nodes and lines in the colours of their attributions, on one scale around zero.

    The scale ends at the largest absolute value on both sides, so that zero is its pale middle whatever the signs are.

    Args:
        drawing: of the graph.
        nodes: attribution of each node `[num_nodes]`.
        lines: of each of `drawing.pairs` `[pairs]`; None where edges have none.
        title: of the figure.
        unit: of the attributions, for the colour bar.
        method: that found them, for the colour bar.
    """
    largest = max(float(values.abs().max()) for values in (nodes, lines) if values is not None and values.numel())
    scale = Normalize(-largest or -1.0, largest or 1.0)
    neutral = [(0.88, 0.88, 0.88)] * drawing.pairs.shape[1]
    with mpl.rc_context(_SETTINGS):
        figure = Figure(figsize=(_WIDTH, _WIDTH * drawing.aspect + 1.1), dpi=130, layout="constrained")
        axes = figure.subplots()
        drawing.paint(axes, _painted(nodes, scale), neutral if lines is None else _painted(lines, scale))
        axes.set_xticks([])
        axes.set_yticks([])
        for spine in axes.spines.values():
            spine.set_visible(False)
        figure.suptitle(title, fontsize=9, fontweight="bold", wrap=True)
        bar = figure.colorbar(ScalarMappable(scale, _COLOURS), ax=axes, orientation="horizontal", shrink=0.75, pad=0.03)
        bar.set_label(f"adds to the prediction{f' [{unit}]' if unit else ''}, {method}", fontsize=7.5)
        bar.ax.tick_params(labelsize=7, width=0.5)
    return figure


def _painted(values: Tensor, scale: Normalize) -> list[Colour]:
    return [tuple(map(float, colour[:3])) for colour in _COLOURS(scale(values.numpy()))]  # type: ignore[misc]
