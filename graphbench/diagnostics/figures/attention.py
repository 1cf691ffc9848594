"""Attention as matrices, and as weights on the drawing of the graph; one row per layer, one column per head."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import matplotlib as mpl
import numpy as np
import torch
from matplotlib.axes import Axes
from matplotlib.cm import ScalarMappable
from matplotlib.colors import Colormap, LinearSegmentedColormap, PowerNorm
from matplotlib.figure import Figure
from matplotlib.ticker import FixedLocator, MaxNLocator

from graphbench.diagnostics.figures.graphs import GraphDrawing, painted
from graphbench.diagnostics.maps import AttentionMap

#: ColorBrewer's YlOrBr, ordered by lightness for any colour vision, from white (zero) to a brown on which black letters
#: are still readable.
_COLOURS: Colormap = LinearSegmentedColormap.from_list(
    "attention", ["white", *mpl.colormaps["YlOrBr"](np.linspace(0.08, 0.72, 15))]
)
_PANEL = 1.75
#: A graph with more tokens than this has numbers only on some ticks.
_MAX_LABELS = 20
_SETTINGS: dict[Any, Any] = {"font.family": "DejaVu Sans", "font.size": 7.5, "axes.linewidth": 0.5}


def matrix_figure(maps: Sequence[AttentionMap], labels: Sequence[str], title: str) -> Figure:
    """Draw the matrices of all layers and heads of one graph on one scale.

    Above each are the mean entropy of its rows in nats, the share of exact zeros and the mean row sum. All maps have
    the same number of heads; nodes are named by their labels, extra tokens +0, +1, ...
    """
    scale = _scale(torch.stack([layer.weights.max() for layer in maps]))
    with mpl.rc_context(_SETTINGS):
        figure, panels = _panels(maps, title, _PANEL * 1.1)
        for place, (row, layer) in enumerate(zip(panels, maps, strict=True)):
            for number, axes in enumerate(row):
                axes.imshow(layer.weights[number].numpy(), cmap=_COLOURS, norm=scale, interpolation="nearest")
                axes.set_title(
                    f"entropy {layer.entropy[number]:.2f}   zeros {layer.zeros[number]:.0%}   "
                    f"sum {layer.row_sum[number]:.2f}",
                    fontsize=6.5, pad=3,
                )  # fmt: skip
                _label_tokens(axes, labels, layer.weights.shape[-1], below=place == len(maps) - 1, beside=number == 0)
        _colour_bar(figure, panels, scale, "attention weight (row: query, column: key)")
    return figure


def drawing_figure(maps: Sequence[AttentionMap], drawing: GraphDrawing, title: str) -> Figure:
    """Draw the graph once per layer and head, nodes and lines coloured by attention.

    A node's colour is the attention that it receives, averaged over all querying nodes; a line's is the mean weight
    between its ends in both directions.
    """
    of_nodes, of_lines = [layer.received for layer in maps], [layer.between(drawing.pairs) for layer in maps]
    node_scale = _scale(torch.cat([values.flatten() for values in of_nodes]))
    line_scale = _scale(torch.cat([values.flatten() for values in of_lines]))
    with mpl.rc_context(_SETTINGS):
        figure, panels = _panels(maps, title, _PANEL * drawing.aspect + 0.1)
        for row, nodes, lines in zip(panels, of_nodes, of_lines, strict=True):
            for number, axes in enumerate(row):
                drawing.paint(
                    axes, painted(nodes[number], node_scale, _COLOURS), painted(lines[number], line_scale, _COLOURS)
                )
                axes.set(xticks=[], yticks=[])
                axes.spines[:].set_visible(False)  # not `axis("off")`, which hides the names of layers and heads
        _colour_bar(figure, panels, node_scale, "nodes: attention received (mean over rows)")
        if drawing.pairs.numel():
            _colour_bar(figure, panels, line_scale, "lines: weight between ends (mean of both ways)")
    return figure


def _panels(maps: Sequence[AttentionMap], title: str, height: float) -> tuple[Figure, np.ndarray]:
    """Create a figure and its axes `[layers, heads]`, with layers and heads named along the border."""
    rows, columns = len(maps), len(maps[0].heads)
    size = (max(columns * _PANEL + 1.4, 4.4), max(rows * height + 0.8, 2.6))
    figure = Figure(figsize=size, dpi=110, layout="constrained")
    panels = figure.subplots(rows, columns, squeeze=False)
    figure.suptitle(title, fontsize=9, fontweight="bold")
    for layer, row in zip(maps, panels, strict=True):
        row[0].set_ylabel(f"layer {layer.layer}", fontsize=8.5, fontweight="bold")
    for head, axes in zip(maps[0].heads, panels[-1], strict=True):
        axes.set_xlabel(f"head {head}", fontsize=8.5, fontweight="bold")
    return figure, panels


def _label_tokens(axes: Axes, labels: Sequence[str], size: int, below: bool, beside: bool) -> None:
    """Name tokens at the border of the figure, and draw only ticks elsewhere."""
    names = [*labels, *(f"+{extra}" for extra in range(size - len(labels)))]
    places = list(range(size)) if size <= _MAX_LABELS else MaxNLocator(8, integer=True).tick_values(0, size - 1)
    shown = [int(place) for place in places if 0 <= place < size]
    axes.xaxis.set_major_locator(FixedLocator(shown))
    axes.yaxis.set_major_locator(FixedLocator(shown))
    axes.set_xticklabels([names[place] for place in shown] if below else [], rotation=90)
    axes.set_yticklabels([names[place] for place in shown] if beside else [])
    axes.tick_params(length=1.5, pad=1.5, width=0.5, labelsize=5)


def _scale(values: torch.Tensor) -> PowerNorm:
    """Scale from 0 to the largest value; the square root keeps small weights visible next to large ones."""
    largest = float(values.max()) if values.numel() else 0.0
    return PowerNorm(0.5, vmin=0.0, vmax=largest if largest > 0 else 1.0)


def _colour_bar(figure: Figure, panels: np.ndarray, scale: PowerNorm, label: str) -> None:
    bar = figure.colorbar(ScalarMappable(scale, _COLOURS), ax=panels, shrink=0.9, aspect=30, pad=0.015)
    bar.set_label(label, fontsize=7)
    bar.ax.tick_params(labelsize=6)
