"""Draw the diagnostics' measures by layer and epoch, and embed the pictures that they stored in a run folder."""

from __future__ import annotations

import base64
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pandas as pd
from markupsafe import Markup
from matplotlib.axes import Axes
from matplotlib.ticker import FixedLocator, Locator, MaxNLocator

from graphbench.report.figures import Panel, Section, Style, legend, make_logarithmic, panel_axes, shorten, svg
from graphbench.report.groups import Group
from graphbench.report.loading import Run
from graphbench.report.scores import ResultTable


@dataclass(frozen=True)
class _Diagnostic:
    """Texts for the table of one diagnostic."""

    title: str  # heading
    intro: str  # the measured quantity
    depth: str  # the thing that a layer number counts
    main: tuple[str, ...]  # measures outside the fold; the first one also by layer and epoch


_DIAGNOSTICS = {
    "attention_capacity": _Diagnostic(
        "Attention capacity by layer",
        "How much attention to substructures can still change in a layer (attention capacity over the Frobenius norm "
        "of the values), on fixed probe graphs.",
        "attention layer",
        ("capacity", "token_capacity", "entropy", "zeros"),
    ),
    "rank_progression": _Diagnostic(
        "Rank of the node tokens by depth",
        "How many directions the node tokens span: depth l is the input of attention layer l, the last depth the "
        "model's output; on fixed probe graphs.",
        "depth",
        ("effective_rank", "stable_rank", "numerical_rank", "similarity"),
    ),
    "range": _Diagnostic(
        "Range of information by depth",
        "How far information travels: the Jacobian of a node's representation with respect to the input at each "
        "other node, by the distance between the two, on fixed probe graphs. Range is the mean distance weighted by "
        "it; if all nodes had equal influence it would be their mean distance, which depends only on the graphs. "
        "Shares by distance are those of the model's output.",
        "depth",
        ("range", "uniform_range", "influence", "unreachable"),
    ),
    "gradients": _Diagnostic(
        "Gradients and weights by depth",
        "How strongly the loss depends on the input of attention layer l (Frobenius norm of its gradient over the "
        "tokens of a graph; the last depth is the model's output), and the largest ratio of singular values among "
        "the layer's weight matrices; on fixed probe graphs.",
        "depth",
        ("gradient_norm", "condition"),
    ),
}

#: Table and measure of each panel of "What happens with depth".
_DEPTH = (
    ("attention_capacity", "capacity"),
    ("rank_progression", "effective_rank"),
    ("range", "range"),
    ("gradients", "gradient_norm"),
    ("gradients", "condition"),
)
#: Measures whose axis is logarithmic, since they grow or fade by factors from layer to layer.
_BY_FACTORS = ("gradient_norm", "condition")

#: Measure -> title of its panel and label of its axis.
_MEASURES = {
    "capacity": ("Attention capacity", "capacity / ‖values‖"),
    "token_capacity": ("Capacity of extra tokens", "capacity / ‖values‖"),
    "capacity_bound": ("Upper bound of capacity", "bound / ‖values‖"),
    "spread": ("Spread of tokens entering", "Frobenius norm"),
    "value_gain": ("Gain of the values", "ratio of spreads"),
    "alpha": ("Factor alpha of the spread", "ratio of spreads"),
    "lambda": ("Factor lambda of the spread", "ratio of spreads"),
    "gamma": ("Factor gamma of the spread", "ratio of spreads"),
    "entropy": ("Entropy of attention", "nats, mean over queries"),
    "zeros": ("Zeros in attention", "share of weights"),
    "row_sum": ("Row sums of attention", "mean over queries"),
    "effective_rank": ("Effective rank", "directions"),
    "stable_rank": ("Stable rank", "directions"),
    "numerical_rank": ("Numerical rank", "directions"),
    "similarity": ("Similarity of tokens", "mean cosine"),
    "residual": ("Distance to rank one", "relative"),
    "dirichlet_energy": ("Dirichlet energy", "relative"),
    "range": ("Range", "edges"),
    "uniform_range": ("Range at equal influence", "edges"),
    "influence": ("Influence of all nodes", "entries of the Jacobian"),
    "unreachable": ("From nodes without a path", "share of influence"),
    "gradient_norm": ("Gradient of the loss", "Frobenius norm"),
    "condition": ("Condition of the weights", "ratio of singular values"),
    "share_beyond": ("From nodes farther than that", "share of influence"),
}
#: Measures of a distance, which is the axis of a separate panel.
_OF_DISTANCE = re.compile(r"share_(\d+)")
_HOW_TO_READ = (
    "Lines show the last measured epoch of every seed, with one standard deviation over seeds if there are several, "
    "dotted lines the model before training; maps show the epochs that every seed reached (0 is before training), "
    "means over seeds. Values of single heads are in the run folder."
)
#: Spread of a measure, relative to its largest value, below which a sentence replaces the figure.
_CONSTANT = 1e-6
#: Larger pictures are only listed: base64 adds a third, and a page must open on a phone.
_LARGEST_BYTES = 2_000_000
_KINDS = {".png": ("image/png", b"\x89PNG\r\n\x1a\n"), ".svg": ("image/svg+xml", b"<svg")}


class _Means(NamedTuple):
    """Mean and standard deviation (n - 1) of one measure over the runs of a group: columns `mean` and `std`."""

    epochs: pd.DataFrame  # by epoch and layer, for epochs that all runs have
    last: pd.DataFrame  # by layer, each run in its own last epoch


#: Number of a group -> one measure of it.
_Frames = Mapping[int, _Means]


def diagnostic_sections(table: ResultTable, name: str) -> list[Section]:
    """Build a section for every table by layer and epoch that a run has, including those of plug-ins."""
    stems = dict.fromkeys(stem for group in table.groups for run in group.runs for stem in run.layers)
    sections = [_layer_section(table.groups, stem, f"{name}-{number}") for number, stem in enumerate(stems)]
    several = len({stem for stem, _ in _DEPTH} & set(stems)) > 1
    return ([_depth_section(table.groups, f"{name}-depth")] if several else []) + sections


def _depth_section(groups: Sequence[Group], name: str) -> Section:
    """Draw the main measures of several tables by layer, side by side."""
    intro = "Capacity, rank, range, gradients and condition of the weights by layer, if measured."
    section = Section(name, "What happens with depth", f"{intro} {_HOW_TO_READ}")
    shown: dict[int, str] = {}
    for stem, measure in _DEPTH:
        by_group = {number: over_seeds(group, stem) for number, group in enumerate(groups)}
        frames = {number: means[measure] for number, means in by_group.items() if measure in means}
        if frames:
            section.panels.append(_by_layer(frames, groups, measure, _DIAGNOSTICS[stem].depth, f"{name}-{measure}"))
            shown |= {number: groups[number].label for number in frames}
    section.legend = legend(shown, f"{name}-legend")
    return section


def _layer_section(groups: Sequence[Group], stem: str, name: str) -> Section:
    """Draw every measure in one table, except those of single heads."""
    title = stem.replace("_", " ").capitalize()
    texts = _DIAGNOSTICS.get(stem, _Diagnostic(title, f"From diagnostics/{stem}.csv.", "layer", ()))
    section = Section(name, texts.title, f"{texts.intro} {_HOW_TO_READ}")
    by_group = {number: means for number, group in enumerate(groups) if (means := over_seeds(group, stem))}
    of_groups = dict.fromkeys(measure for means in by_group.values() for measure in means)
    measures = [measure for measure in of_groups if not _OF_DISTANCE.fullmatch(measure)]
    main = [measure for measure in texts.main if measure in measures] or list(measures)
    for place, measure in enumerate([*main, *(measure for measure in measures if measure not in main)]):
        frames = {number: means[measure] for number, means in by_group.items() if measure in means}
        constant = _constant(frames)
        if constant is not None:
            section.notes.append(f"{_titles(measure)[0]}: {constant:.3g} in every layer, epoch and run.")
            continue
        panels = section.panels if measure in main else section.more
        panels.append(_by_layer(frames, groups, measure, texts.depth, f"{name}-{place}"))
        if measure == main[0]:
            panels += _heatmaps(frames, groups, measure, texts.depth, f"{name}-{place}")
    section.panels += _by_distance(by_group, groups, texts.depth, f"{name}-distance")
    section.legend = legend({number: groups[number].label for number in by_group}, f"{name}-legend")
    absent = [group.label for number, group in enumerate(groups) if number not in by_group]
    if absent:
        section.notes.append(f"Nothing was measured for {', '.join(absent)}.")
    return section


def _titles(measure: str) -> tuple[str, str]:
    return _MEASURES.get(measure, (measure.replace("_", " ").capitalize(), ""))


def over_seeds(group: Group, stem: str) -> dict[str, _Means]:
    """Average each measure over the group's runs, ignoring values that are not finite."""
    tables = [_finite(run.layers[stem]).assign(run=n) for n, run in enumerate(group.runs) if stem in run.layers]
    rows = pd.concat(tables) if tables else pd.DataFrame({"measure": []})
    means = {}
    for measure, part in rows[~rows["measure"].astype(str).str.contains(r"_head\d+$")].groupby("measure", sort=False):
        epochs = part.groupby(["epoch", "layer"])["value"].agg(["mean", "std", "count"])
        last = part[part["epoch"] == part.groupby("run")["epoch"].transform("max")]
        by_layer = last.groupby("layer")["value"].agg(["mean", "std"])
        means[str(measure)] = _Means(epochs[epochs["count"] == part["run"].nunique()], by_layer)
    return means


def _finite(table: pd.DataFrame) -> pd.DataFrame:
    return table[np.isfinite(table[["epoch", "layer", "value"]]).all(axis=1)]


def _constant(frames: _Frames) -> float | None:
    """Return the value that a measure has everywhere; None if it varies."""
    values = np.concatenate([table["mean"].to_numpy(float) for means in frames.values() for table in means])
    return float(values[0]) if np.ptp(values) <= _CONSTANT * np.abs(values).max() else None


def _by_layer(frames: _Frames, groups: Sequence[Group], measure: str, depth: str, name: str) -> Panel:
    """Draw the last epoch of each group over layers, and its model before training."""
    title, axis = _titles(measure)
    with panel_axes(title, depth, axis) as (figure, axes):
        for number, means in frames.items():
            measured = means.epochs.index.unique("epoch")
            trained = 0 in measured and len(measured) > 1
            _draw_course(
                axes, Style(number), means.last, means.epochs.xs(0, level="epoch")["mean"] if trained else None
            )
        if measure in _BY_FACTORS and all((means.last["mean"] > 0).all() for means in frames.values()):
            make_logarithmic(axes)
        axes.xaxis.set_major_locator(MaxNLocator("auto", integer=True, min_n_ticks=1))
        labels = ", ".join(groups[number].label for number in frames)
        return Panel(svg(figure, f"{title} by {depth} of {labels}", name))


def _draw_course(axes: Axes, style: Style, rows: pd.DataFrame, before: pd.Series[float] | None) -> None:
    """Draw means with their deviations, and the model before training as a dotted line."""
    deviations = rows["std"].fillna(0.0)  # that of one seed is NaN
    look: dict[str, Any] = {"color": style.colour, "linestyle": style.line, "marker": style.marker, "capsize": 2.5}
    axes.errorbar(rows.index, rows["mean"], yerr=deviations, **look)
    if before is not None and len(before):
        axes.plot(before.index, before, color=style.colour, linestyle=":", linewidth=1.3)


def _heatmaps(frames: _Frames, groups: Sequence[Group], measure: str, depth: str, name: str) -> list[Panel]:
    """Draw a map of layer and epoch for each group with at least two of both, all with one colour scale."""
    maps = {number: means.epochs["mean"].unstack("epoch").sort_index(axis=1) for number, means in frames.items()}
    maps = {number: map_ for number, map_ in maps.items() if min(map_.shape) > 1}
    if not maps:
        return []
    low, high = (pick([pick(map_.to_numpy()) for map_ in maps.values()]) for pick in (np.nanmin, np.nanmax))
    title, axis = _titles(measure)
    panels = []
    for number, map_ in maps.items():
        label = groups[number].label
        description = f"{title} by {depth} and epoch of {label}"
        labels = (f"{title}: {shorten(label)}", "finished epochs", depth, axis)
        panels.append(_map(map_, labels, (low, high), description, f"{name}-map-{number}"))
    return panels


def _map(
    values: pd.DataFrame, labels: tuple[str, str, str, str], limits: tuple[float, float], description: str, name: str
) -> Panel:
    """Draw a table with numbers as rows and columns; labels are for title, columns, rows and colours."""
    title, columns, rows, colours = labels
    with panel_axes(title, columns, rows) as (figure, axes):
        axes.grid(False)
        # an image, since thousands of vector cells would slow the page down
        image = axes.pcolormesh(
            _edges(values.columns.to_numpy(float)), _edges(values.index.to_numpy(float)), values.to_numpy(),
            vmin=limits[0], vmax=limits[1], cmap="cividis", rasterized=True,
        )  # fmt: skip
        bar = figure.colorbar(image, ax=axes, label=colours)
        bar.outline.set_visible(False)  # type: ignore[operator]
        bar.solids.set_rasterized(True)  # type: ignore[union-attr]
        axes.yaxis.set_major_locator(_ticks(values.index))
        axes.xaxis.set_major_locator(_ticks(values.columns))
        return Panel(svg(figure, description, name))


def _by_distance(
    by_group: Mapping[int, Mapping[str, _Means]], groups: Sequence[Group], depth: str, name: str
) -> list[Panel]:
    """Draw shares by distance: a curve of the last depth of each group, and a map of depths if there are several."""
    title, axis = "Influence by distance", "share of influence"
    tables = {}
    for number, means in by_group.items():
        shares = {int(match[1]): means[key] for key in means if (match := _OF_DISTANCE.fullmatch(key))}
        if shares:
            tables[number] = shares
    # The axis ends at the last distance from which anything arrives in any run.
    reached = [k for shares in tables.values() for k, one in shares.items() if float(one.last["mean"].max()) > 0]
    if not reached:
        return []
    reach = range(max(reached) + 1)
    with panel_axes(title, "distance in edges", axis) as (figure, axes):
        for number, shares in tables.items():
            last = max(max(one.last.index) for one in shares.values())
            places = [k for k in reach if k in shares and last in shares[k].last.index]
            rows = pd.DataFrame([shares[k].last.loc[last] for k in places], index=places)
            before = {k: shares[k].epochs["mean"].get((0, last)) for k in places}
            trained = len(shares[places[0]].epochs.index.unique("epoch")) > 1
            _draw_course(axes, Style(number), rows, pd.Series(before, dtype=float).dropna() if trained else None)
        axes.xaxis.set_major_locator(MaxNLocator("auto", integer=True, min_n_ticks=1))
        panels = [Panel(svg(figure, f"{title} of {', '.join(groups[number].label for number in tables)}", name))]
    for number, shares in tables.items():
        map_ = pd.DataFrame({k: shares[k].last["mean"] for k in reach if k in shares})
        if min(map_.shape) > 1:
            label = groups[number].label
            labels = (f"{title}: {shorten(label)}", "distance in edges", depth, axis)
            panels.append(_map(map_, labels, (0.0, 1.0), f"{title} and {depth} of {label}", f"{name}-map-{number}"))
    return panels


def _ticks(measured: pd.Index) -> Locator:
    """Put a tick at every measured value, or at round numbers if there are many."""
    return FixedLocator(list(measured)) if len(measured) <= 12 else MaxNLocator("auto", integer=True)


def _edges(centres: np.ndarray) -> np.ndarray:
    """Return the borders of cells halfway between their centres."""
    between = (centres[1:] + centres[:-1]) / 2
    return np.concatenate([[2 * centres[0] - between[0]], between, [2 * centres[-1] - between[-1]]])


def picture_section(runs: Sequence[Run], name: str) -> Section | None:
    """Embed the pictures of all runs, those with the same file name side by side; None without pictures."""
    intro = "Pictures that the runs' diagnostics drew, under their file names."
    section = Section(name, "Pictures", intro, wide=True)
    pictures = [(path.relative_to(run.folder.path).as_posix(), path, run) for run in runs for path in run.pictures]
    for place, path, run in sorted(pictures, key=lambda picture: picture[0]):
        fault = _fault(path)
        if fault:
            section.notes.append(f"{run.name}: {place} is not shown: {fault}.")
        else:
            section.panels.append(Panel(_embed(path, run), f"{run.name}, seed {run.seed}: {path.name}"))
    return section if section.panels or section.notes else None


def _fault(path: Path) -> str:
    """Return why a picture cannot be embedded; "" if it can."""
    signature = _KINDS[path.suffix][1]
    size = path.stat().st_size
    if size > _LARGEST_BYTES:
        return f"it has {size / 1e6:.1f} MB, more than the {_LARGEST_BYTES / 1e6:.0f} MB allowed"
    with path.open("rb") as file:
        start = file.read(4096)
    valid = start.startswith(signature) if path.suffix == ".png" else signature in start
    return "" if valid else f"it is not a {path.suffix[1:].upper()} file"


def _embed(path: Path, run: Run) -> Markup:
    """Return an IMG element: in it, browsers run no script of a picture and load nothing for it."""
    data = base64.b64encode(path.read_bytes()).decode("ascii")
    words = path.stem.replace("_", " ").replace("-", " ")
    return Markup('<img src="data:{};base64,{}" alt="{} of {}">').format(_KINDS[path.suffix][0], data, words, run.name)
