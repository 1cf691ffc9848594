"""Draw the figure of a table: printed and obtained values over its columns, as bars, or values that its runs logged.

The table file defines what is drawn:

    figure: {x: n, x_label: layers, y: log loss}       # curves: a row each, over the value `n` of `with` of columns
    figure: {y: seconds}                               # bars: a row each, and a panel for every column
    figure: {file: diagnostics/train_test_gap.csv, x: epoch, y: gap, where: {split: test}}

The last kind draws a column `y` of a file of each run over a column `x`, using rows in which the columns of `where`
have these values (`{metric}` is the cell's), with a panel for every column of the table or every value of the file's
column `panels`. If x is not the epoch, only rows of the last epoch are used. Means and deviations are over seeds.
"""

from __future__ import annotations

import io
from collections.abc import Mapping, Sequence
from pathlib import Path
from statistics import fmean, stdev

import matplotlib as mpl
from matplotlib.figure import Figure

from graphbench.diagnostics.figures.series import Series, bars_figure, curves_figure
from graphbench.experiments.reproduce.obtained import Obtained, finished_runs
from graphbench.experiments.reproduce.plan import Request, is_trained
from graphbench.experiments.reproduce.tables import Cell, Table
from graphbench.experiments.trainings import read_csv

_Panels = dict[str, list[Series]]


def draw(table: Table, values: Sequence[Obtained], request: Request, output: Path) -> str:
    """Return the figure of a table as SVG; "" if the table defines none, or there is no value yet."""
    what = table.figure
    if not what:
        return ""
    if what.get("file"):
        panels = _of_files(table, values, request, output)
    elif what.get("x"):
        panels = {"": _by_column(table, values)}
    else:
        panels = _bars(table, values)
    panels = {name: [one for one in series if not one.is_empty] for name, series in panels.items()}
    panels = {name: series for name, series in panels.items() if series}
    if not panels:
        return ""
    x, y = what.get("x_label", what.get("x", "")), what.get("y_label", what.get("y", ""))
    title = f"{table.paper}, {table.place}: {table.title}"
    return _svg(curves_figure(panels, x, y, title) if what.get("x") else bars_figure(panels, y, title), table.name)


def _svg(figure: Figure, name: str) -> str:
    """Render a figure, identical for equal values."""
    buffer = io.StringIO()
    # No random ids and no date, so that a repository shows a change only if values changed.
    with mpl.rc_context({"svg.fonttype": "none", "svg.hashsalt": name}):
        figure.savefig(buffer, format="svg", metadata={"Date": None})
    return buffer.getvalue()


def _rows(values: Sequence[Obtained]) -> dict[str, list[Obtained]]:
    """Group values by their row's name."""
    rows: dict[str, list[Obtained]] = {}
    for one in values:
        rows.setdefault(one.cell.row_name, []).append(one)
    return rows


def _series(name: str, values: Mapping[float, Obtained]) -> Series:
    return Series(
        name,
        {place: (one.mean, one.sd or 0.0) for place, one in values.items() if one.mean is not None},
        {place: one.cell.printed.value for place, one in values.items() if one.cell.printed.value is not None},
    )


def _by_column(table: Table, values: Sequence[Obtained]) -> list[Series]:
    """Return a series of each row over the columns' number that the figure specifies."""
    places = {key: float(column.filled[table.figure["x"]]) for key, column in table.columns.items()}
    return [_series(name, {places[one.cell.column]: one for one in row}) for name, row in _rows(values).items()]


def _bars(table: Table, values: Sequence[Obtained]) -> _Panels:
    """Return a bar for each row in the panel of each column."""
    panels: _Panels = {}
    for one in values:
        panels.setdefault(table.columns[one.cell.column].name, []).append(_series(one.cell.row_name, {0.0: one}))
    return panels


def _of_files(table: Table, values: Sequence[Obtained], request: Request, output: Path) -> _Panels:
    """Return a series for each row over a column of a file of its runs."""
    panels: _Panels = {}
    for one in values:
        if not is_trained(one.cell):
            continue
        by_panel: dict[str, dict[float, list[float]]] = {}
        for folder in finished_runs(one.cell, request, output).values():
            for panel, x, y in _points(table, one.cell, folder):
                by_panel.setdefault(panel, {}).setdefault(x, []).append(y)
        for panel, points in by_panel.items():
            spread = {x: (fmean(ys), stdev(ys) if len(ys) > 1 else 0.0) for x, ys in points.items()}
            panels.setdefault(panel, []).append(Series(one.cell.row_name, spread))
    return panels


def _points(table: Table, cell: Cell, folder: Path) -> list[tuple[str, float, float]]:
    """Return panel, x and y of the rows of a run's file that the figure uses."""
    what, column = table.figure, table.columns[cell.column]
    metric = cell.metric.partition("/")[2]
    wanted = {name: str(value).format(metric=metric) for name, value in (what.get("where") or {}).items()}
    x, y = what["x"], what["y"].format(metric=metric)
    rows = [row for row in read_csv(folder / what["file"]) if all(row.get(name) == wanted[name] for name in wanted)]
    rows = [row for row in rows if row.get(x) and row.get(y)]
    if x != "epoch" and rows:
        rows = [row for row in rows if row.get("epoch") == rows[-1].get("epoch")]
    by = what.get("panels")
    return [(row[by] if by else column.name, float(row[x]), float(row[y]) * column.scale) for row in rows]
