"""Draw the attributions of nodes and edges on the graph."""

from __future__ import annotations

from typing import Any

import matplotlib as mpl
from matplotlib.cm import ScalarMappable
from matplotlib.colors import Colormap, LinearSegmentedColormap, Normalize
from matplotlib.figure import Figure
from torch import Tensor

from graphbench.diagnostics.figures.graphs import GraphDrawing, painted

#: ColorBrewer's PuOr, whose two sides are distinguishable with any colour vision: purple subtracts, orange adds. Its
#: ends are omitted, so that black letters remain readable.
_COLOURS: Colormap = LinearSegmentedColormap.from_list(
    "attribution", [mpl.colormaps["PuOr_r"](place) for place in (0.22, 0.36, 0.5, 0.66, 0.8)]
)
_SETTINGS: dict[Any, Any] = {"font.family": "DejaVu Sans", "font.size": 8, "axes.linewidth": 0.5}
_WIDTH = 4.6


def attribution_figure(
    drawing: GraphDrawing, nodes: Tensor, lines: Tensor | None, title: str, unit: str, method: str
) -> Figure:
    """Draw a graph with its nodes and lines coloured by attribution, on one scale around zero.

    The scale ends at the largest absolute value on both sides, so that zero is its pale middle for any signs.
    `nodes [num_nodes]` and `lines`, one for each of `drawing.pairs` or None, are attributions in `unit`.
    """
    largest = max(float(values.abs().max()) for values in (nodes, lines) if values is not None and values.numel())
    scale = Normalize(-largest or -1.0, largest or 1.0)
    neutral = [(0.88, 0.88, 0.88)] * drawing.pairs.shape[1]
    with mpl.rc_context(_SETTINGS):
        figure = Figure(figsize=(_WIDTH, _WIDTH * drawing.aspect + 1.1), dpi=130, layout="constrained")
        axes = figure.subplots()
        drawing.paint(
            axes, painted(nodes, scale, _COLOURS), neutral if lines is None else painted(lines, scale, _COLOURS)
        )
        axes.set_axis_off()
        figure.suptitle(title, fontsize=9, fontweight="bold", wrap=True)
        bar = figure.colorbar(ScalarMappable(scale, _COLOURS), ax=axes, orientation="horizontal", shrink=0.75, pad=0.03)
        bar.set_label(f"adds to the prediction{f' [{unit}]' if unit else ''}, {method}", fontsize=7.5)
        bar.ax.tick_params(labelsize=7, width=0.5)
    return figure
