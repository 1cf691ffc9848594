"""What was obtained for the cells of a table, beside what is printed."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import fmean, stdev
from typing import Any

from graphbench.experiments import provenance, read_csv, results
from graphbench.experiments.records import Record, record_of
from graphbench.experiments.reproduce.plan import Request, altering, is_trained, job_of
from graphbench.experiments.reproduce.recipes import (
    Length,
    benchmark_of,
    expected,
    fact,
    flat,
    length_of,
    setting,
    settings,
)
from graphbench.experiments.reproduce.scripts import script_of
from graphbench.experiments.reproduce.tables import Cell, Column, Printed, Table
from graphbench.files.safe_yaml import load_yaml
from graphbench.registry.expected import stands_for
from graphbench.runs import RunFolder
from graphbench.runs.differences import NOTHING, Difference, differing

#: Options of the data without which no training set is redrawn.
_OF_REDRAWN = ("data.source", "data.ring_term", "data.constants")
#: Counts the trainable parameters of what a command line builds.
Count = Callable[[Sequence[str]], int]
#: Returns every option of a command line, defaults included, as plain values.
Resolve = Callable[[Sequence[str]], Mapping[str, Any]]


@dataclass(frozen=True)
class Obtained:
    """A cell and what was obtained for it.

    Args:
        cell: the cell.
        seeds: those that are finished.
        mean: of the scores in the unit of the table; None where nothing was obtained.
        sd: their standard deviation (n - 1); None for fewer than two.
        text: what was obtained where it is no number.
        parameters: of the model.
        epochs: of the runs.
        steps: of the runs.
        full: whether all of them were as long as the recipe says; None where nothing was trained.
        data: where the graphs are from.
        hardware: what they were trained on.
        commit: of the code.
        better: `higher` or `lower`.
        data_wanted: where the graphs of the printed score are from; "" where the recipe does not say.
        diverged: seeds whose loss or gradients stopped being finite.
        altered: options that decide the score and that the runs gave other values than the recipe, in words.
    """

    cell: Cell
    seeds: tuple[int, ...] = ()
    mean: float | None = None
    sd: float | None = None
    text: str = ""
    parameters: int | None = None
    epochs: int | None = None
    steps: int | None = None
    full: bool | None = None
    data: str = ""
    hardware: str = ""
    commit: str = ""
    better: str = ""
    data_wanted: str = ""
    diverged: tuple[int, ...] = ()
    altered: tuple[str, ...] = ()

    @property
    def verdict(self) -> str:
        """Met or not, or why that cannot be said."""
        printed = self.cell.printed
        if self.diverged and printed.value is not None:
            return f"not met: {len(self.diverged)} of {len(self.diverged) + len(self.seeds)} diverged"
        if self.text and self.mean is None and printed.text:
            return "met" if self.text == printed.text else "not met"
        if self.mean is None or printed.value is None:
            return ""
        if self.cell.way != "recipe":
            if self.cell.differs:
                return f"not comparable: {self.cell.differs}"
            return "met" if abs(self.mean - printed.value) <= printed.unit * (1 + 1e-9) else "not met"
        reasons = [] if self.full or self.altered else ["shorter than the recipe"]
        reasons += [f"altered: {one}" for one in self.altered]
        reasons += [self.cell.differs] if self.cell.differs else []
        reasons += [] if stands_for(self.data, self.data_wanted) else [f"{self.data} data"]
        if reasons:
            return f"not comparable: {', '.join(reasons)}"
        return met(self.mean, self.sd, printed, self.better)


def met(mean: float, sd: float | None, printed: Printed, better: str) -> str:
    """Whether a mean lies within two standard deviations of a printed value, which is rounded to its last digit.

    The printed deviation counts; where none is printed, that over the seeds. What rounds to the printed value meets it
    whatever the spread.

    Examples:
        >>> met(0.078, None, Printed.read("0.070 ± 0.004"), "lower")
        'met'
        >>> met(0.079, None, Printed.read("0.070 ± 0.004"), "lower")
        'not met'
        >>> met(0.060, None, Printed.read("0.070 ± 0.004"), "lower")
        'better'
        >>> met(0.0707, 0.0001, Printed.read("0.070"), "lower")
        'met'
        >>> met(0.0703, None, Printed.read("0.070"), "lower")
        'met'
        >>> met(0.079, None, Printed.read("0.070"), "lower")
        'no spread is known: 0.009 worse'
    """
    assert printed.value is not None
    spread = printed.sd if printed.sd is not None else sd
    gain = (mean - printed.value) * (-1 if better == "lower" else 1)
    if not math.isfinite(mean):
        return "not met"
    if spread is None and abs(gain) > printed.unit * (1 + 1e-9):
        return f"no spread is known: {abs(gain):.3g} {'better' if gain >= 0 else 'worse'}"
    if abs(gain) <= (2 * (spread or 0.0) + printed.unit) * (1 + 1e-9):
        return "met"
    return "better" if gain > 0 else "not met"


def _score(folder: Path, metric: str) -> float | None:
    """A score of a run by its logged name, or the mean of a column of a diagnostic; None where there is none."""
    if metric.startswith("diagnostics/"):
        file, _, column = metric.partition("#")
        rows = read_csv(folder / file) if (folder / file).is_file() else []
        last = [row for row in rows if row.get("epoch") == rows[-1].get("epoch")]
        values = [float(row[column]) for row in last if row.get(column)]
        return fmean(values) if values else None
    value = results(folder).get(metric.partition("/")[0], {}).get(metric)
    return None if value is None else float(value)


def alterations(folder: Path, cell: Cell, resolve: Resolve) -> tuple[str, ...]:
    """Hold the configuration in the folder of a run against the recipe of a cell and the cell's own options.

    Args:
        folder: of the run.
        cell: what the run is to be of.
        resolve: gives all options of a command line.

    Returns:
        What decides the score and differs, in words, and what was changed while the run was continued.
    """
    path = RunFolder(folder).config
    if not path.is_file():
        return ("its configuration is gone",)
    content = load_yaml(path.read_text(encoding="utf-8"))
    configs = [word for name in cell.recipe for word in ("--config", name)]
    wanted = resolve([*configs, *cell.options])
    found = differing(wanted, content)
    others = tuple(f"{one.option}." for one in found)  # another class has other options
    found += [one for one in _lacking(wanted, content, cell) if not one.option.startswith(others)]
    found = [one for one in found if one.decides_score]
    if cell.after:  # where the weights of the training before lie
        found = [one for one in found if one.option != "model.init_from"]
    if results(folder).get("data") == "redrawn":  # which says as much
        found = [one for one in found if one.option not in _OF_REDRAWN]
    return (*map(str, found), *((content.get("expected") or {}).get("resumed") or ()))


def _lacking(wanted: Mapping[str, Any], content: Mapping[str, Any], cell: Cell) -> list[Difference]:
    """Options that a recipe sets today and that a run does not have, being older than the option."""
    every, had = dict(flat(wanted)), dict(flat(content))
    names = [name for name, _ in flat(settings(cell.recipe)) if name in every and name not in had]
    return [Difference(name, every[name], NOTHING) for name in names]


def _is_whole(length: Length, stored: Mapping[str, Any], altered: Sequence[str]) -> bool:
    """Whether a run is that of its recipe and was as long."""
    ended = bool(stored.get("ended_by_rate")) or length.reached(stored.get("epochs"), stored.get("steps"))
    return not altered and ended


def trained(cell: Cell, column: Column, request: Request, output: Path, resolve: Resolve) -> Obtained:
    """The scores of the finished runs of a cell."""
    folders: dict[int, Path] = {}
    jobs = {seed: job_of(cell, seed, request, output) for seed in request.seeds}
    for seed, job in jobs.items():
        chosen = job.chosen(output)
        if chosen is not None and chosen.is_finished(output):
            folders[seed] = chosen.folder(output)
    diverged = tuple(seed for seed, job in jobs.items() if job.diverged(output))
    found = {seed: _score(folder, cell.metric) for seed, folder in folders.items()}
    scores = {seed: score for seed, score in found.items() if score is not None}
    if not scores:
        return Obtained(cell, text="diverged" if diverged else "", diverged=diverged)
    values = [score * column.scale for score in scores.values()]
    rows = [results(folders[seed]) for seed in scores]
    length = length_of(cell)
    altered = {seed: _altered(folders[seed], cell, request, resolve) for seed in scores}
    origins = [provenance(folders[seed]) for seed in scores]
    origin = origins[0]
    return Obtained(
        cell,
        tuple(scores),
        fmean(values),
        stdev(values) if len(values) > 1 else None,
        parameters=rows[0].get("parameters"),
        epochs=min((row["epochs"] for row in rows if row.get("epochs") is not None), default=None),
        steps=min((row["steps"] for row in rows if row.get("steps") is not None), default=None),
        full=request.scale == "full"
        and all(_is_whole(length, results(folders[seed]), altered[seed]) for seed in scores),
        data=" and ".join(sorted({str(row.get("data", "")) for row in rows})),
        hardware=str(origin["hardware"]),
        commit=", ".join(dict.fromkeys(one[:7] for row in origins for one in str(row["commit"]).split(", "))),
        better=column.better or ("higher" if rows[0].get("higher_is_better") else "lower"),
        data_wanted=expected(cell.recipe).data or "",
        diverged=diverged,
        altered=tuple(dict.fromkeys(one for told in altered.values() for one in told)),
    )


def _altered(folder: Path, cell: Cell, request: Request, resolve: Resolve) -> tuple[str, ...]:
    """As `alterations`; a smoke test is no training and is held against nothing."""
    return () if request.scale == "smoke" else alterations(folder, cell, resolve)


def _looked_up(cell: Cell, column: Column) -> Obtained:
    """An option of the recipe, or a field of the benchmark's specification."""
    value = setting(cell.recipe, cell.what) if cell.way == "setting" else None
    if cell.way == "fact":
        value = fact(column.benchmark or benchmark_of(cell.recipe), cell.what)
    if value is None:
        return Obtained(cell)
    if isinstance(value, (int, float)) and not isinstance(value, bool):
        return Obtained(cell, mean=float(value) * column.scale)
    return Obtained(cell, text=str(value))


def obtain(
    table: Table, cells: Sequence[Cell], request: Request, output: Path, count: Count, resolve: Resolve
) -> list[Obtained]:
    """What is there for each cell.

    Args:
        table: of the cells.
        cells: some or all of its cells.
        request: how runs were asked for.
        output: where they lie.
        count: counts parameters; called for cells of the way `count` alone.
        resolve: gives all options of a command line; called for cells with finished runs.
    """
    found = []
    for cell in cells:
        column = table.columns[cell.column]
        if is_trained(cell):
            found.append(trained(cell, column, request, output, resolve))
        elif cell.way == "count":
            configs = [word for name in cell.recipe for word in ("--config", name)]
            number = count([*configs, *cell.options])
            found.append(Obtained(cell, mean=float(number), parameters=number))
        elif cell.way in ("setting", "fact"):
            found.append(_looked_up(cell, column))
        elif (script := script_of(table, cell)) is not None:
            found.append(Obtained(cell, mean=script.value(cell, output), full=True))
        else:
            found.append(Obtained(cell))
    return found


def records_of(
    table: Table, cells: Iterable[Cell], request: Request, output: Path, resolve: Resolve
) -> dict[str, Record]:
    """Records of the finished runs behind cells, by the names of their files. A smoke test leaves none.

    Args:
        table: of the cells.
        cells: some or all of its cells.
        request: how runs were asked for.
        output: where they lie.
        resolve: gives all options of a command line.
    """
    found: dict[str, Record] = {}
    if request.scale == "smoke":
        return found
    given = altering(request.extra)
    for cell in filter(is_trained, cells):
        length = length_of(cell)
        for seed in request.seeds:
            job = job_of(cell, seed, request, output)
            chosen = job.chosen(output)
            if chosen is None or not chosen.is_finished(output):
                continue
            folder = chosen.folder(output)
            altered = alterations(folder, cell, resolve)
            told = {
                "experiment": f"{table.paper}: {table.title}",
                "name": cell.row_name,
                "column": cell.column_name,
                "options": (*cell.options, *given),
                "full": _is_whole(length, results(folder), altered),
                "altered": altered,
                "benchmark": benchmark_of(cell.recipe),
            }
            found[f"{folder.name}.json"] = record_of(chosen, folder, told)
    return found
