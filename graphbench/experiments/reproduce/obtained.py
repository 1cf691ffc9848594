"""Collect the scores for the cells of a table, and compare them with the printed values."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from statistics import fmean, stdev
from typing import Any

from graphbench.data.files.foreign import load_yaml
from graphbench.experiments import Training, provenance, read_csv, results
from graphbench.experiments.control import words_of
from graphbench.experiments.records import Record, record_of
from graphbench.experiments.reproduce.plan import Request, altering, is_trained, job_of, scaled
from graphbench.experiments.reproduce.printed import Printed
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
from graphbench.experiments.reproduce.tables import COSTS, Cell, Column, Table
from graphbench.registry.expected import stands_for
from graphbench.runs import RunFolder
from graphbench.runs.differences import NOTHING, Difference, differing

#: Options of the data that a redrawn training set needs.
_REDRAWN = ("data.source", "data.ring_term", "data.constants")
#: Count the trainable parameters of the model that a command line builds.
Count = Callable[[Sequence[str]], int]
#: Return every option of a command line, including defaults, as plain values.
Resolve = Callable[[Sequence[str]], Mapping[str, Any]]


@dataclass(frozen=True)
class Obtained:
    """The value obtained for a cell."""

    cell: Cell
    seeds: tuple[int, ...] = ()  # of finished runs
    mean: float | None = None  # of the scores in the unit of the table; None without a score
    sd: float | None = None  # their standard deviation (n - 1); None for fewer than two
    text: str = ""  # the value if it is not a number
    parameters: int | None = None  # of the model
    epochs: int | None = None  # of the runs
    steps: int | None = None  # of the runs
    full: bool | None = None  # whether all runs have the length of the recipe; None without runs
    data: str = ""  # origin of the graphs
    hardware: str = ""  # of the runs
    commit: str = ""  # of the code
    better: str = ""  # `higher` or `lower`
    data_wanted: str = ""  # origin of the graphs of the printed score; "" if the recipe does not state it
    diverged: tuple[int, ...] = ()  # seeds whose loss or gradients stopped being finite
    altered: tuple[str, ...] = ()  # descriptions of options that decide the score and differ from the recipe

    @property
    def verdict(self) -> str:
        """Return whether the printed value is met, or why the two are not comparable."""
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
            # Half of the last printed digit, plus a tolerance for float arithmetic.
            return "met" if abs(self.mean - printed.value) <= printed.unit * (1 + 1e-9) else "not met"
        reasons = [] if self.full or self.altered else ["shorter than the recipe"]
        reasons += [f"altered: {one}" for one in self.altered]
        reasons += [self.cell.differs] if self.cell.differs else []
        reasons += [] if stands_for(self.data, self.data_wanted) else [f"{self.data} data"]
        if reasons:
            return f"not comparable: {', '.join(reasons)}"
        return met(self.mean, self.sd, printed, self.better)


def met(mean: float, sd: float | None, printed: Printed, better: str) -> str:
    """Return whether a mean is within two standard deviations of the numbers that round to a printed value.

    The deviation is the printed one, else that over seeds. A mean that rounds to the printed value meets it for any
    spread.

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
    """Return a score of a run by its logged name, the mean of a column of a diagnostic, or a cost, if there is one."""
    if metric.startswith("diagnostics/"):
        file, _, column = metric.partition("#")
        rows = read_csv(folder / file) if (folder / file).is_file() else []
        last = [row for row in rows if row.get("epoch") == rows[-1].get("epoch")]
        values = [float(row[column]) for row in last if row.get(column)]
        return fmean(values) if values else None
    stored = results(folder)
    if metric in COSTS:
        seconds, steps = stored.get("fit_seconds"), stored.get("steps")
        value = stored.get("peak_memory_mb") if metric == COSTS[1] else seconds / steps if seconds and steps else None
    else:
        value = stored.get(metric.partition("/")[0], {}).get(metric)
    return None if value is None else float(value)


def alterations(folder: Path, cell: Cell, request: Request, resolve: Resolve) -> tuple[str, ...]:
    """Describe how the configuration of a run differs from the recipe and options of a cell.

    These are options that decide the score, and those that were changed when the run resumed. What `--scale short`
    shortens, including the schedule, is not an alteration but a shorter recipe.
    """
    path = RunFolder(folder).config
    if not path.is_file():
        return ("its configuration is gone",)
    content = load_yaml(path.read_text(encoding="utf-8"))
    shorter = scaled(cell, replace(request, offline=False)) if request.scale == "short" else ()
    wanted = resolve(words_of(cell.recipe, [*cell.options, *shorter]))
    differences = differing(wanted, content)
    others = tuple(f"{one.option}." for one in differences)  # a different class has different options
    differences += [one for one in _lacking(wanted, content, cell) if not one.option.startswith(others)]
    ignored = ["model.init_from"] if cell.after else []  # a path to the weights of the earlier training
    ignored += _REDRAWN if results(folder).get("data") == "redrawn" else ()  # shown as the kind of its data
    differences = [one for one in differences if one.decides_score and one.option not in ignored]
    return (*map(str, differences), *((content.get("expected") or {}).get("resumed") or ()))


def _lacking(wanted: Mapping[str, Any], content: Mapping[str, Any], cell: Cell) -> list[Difference]:
    """List options that a recipe sets now and that a run lacks because it is older than the option."""
    every, present = dict(flat(wanted)), dict(flat(content))
    names = [name for name, _ in flat(settings(cell.recipe)) if name in every and name not in present]
    return [Difference(name, every[name], NOTHING) for name in names]


def _is_whole(length: Length, folder: Path, altered: Sequence[str]) -> bool:
    """Return whether a run is that of its recipe, at full length."""
    stored = results(folder)
    ended = bool(stored.get("ended_by_rate")) or length.reached(stored.get("epochs"), stored.get("steps"))
    return not altered and ended


def finished_trainings(cell: Cell, request: Request, output: Path) -> dict[int, Training]:
    """Return seed -> training of a cell whose run is finished."""
    chosen = ((seed, job_of(cell, seed, request, output).chosen(output)) for seed in request.seeds)
    return {seed: one for seed, one in chosen if one is not None and one.is_finished(output)}


def finished_runs(cell: Cell, request: Request, output: Path) -> dict[int, Path]:
    """Return seed -> folder of the finished runs of a cell."""
    return {seed: one.folder(output) for seed, one in finished_trainings(cell, request, output).items()}


def trained(cell: Cell, column: Column, request: Request, output: Path, resolve: Resolve) -> Obtained:
    """Collect the scores of the finished runs of a cell."""
    folders = finished_runs(cell, request, output)
    diverged = tuple(seed for seed in request.seeds if job_of(cell, seed, request, output).diverged(output))
    smoke = request.scale == "smoke"  # a smoke test is not comparable with the recipe, and has no test score
    metric = cell.metric.replace("test/", "val/") if smoke else cell.metric
    scores = {seed: score for seed, folder in folders.items() if (score := _score(folder, metric)) is not None}
    if not scores:
        return Obtained(cell, text="diverged" if diverged else "", diverged=diverged)
    values = [score * column.scale for score in scores.values()]
    rows = [results(folders[seed]) for seed in scores]
    length = length_of(cell)
    altered = {seed: () if smoke else alterations(folders[seed], cell, request, resolve) for seed in scores}
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
        full=request.scale == "full" and all(_is_whole(length, folders[seed], altered[seed]) for seed in scores),
        data=" and ".join(sorted({str(row.get("data", "")) for row in rows})),
        hardware=str(origin["hardware"]),
        commit=", ".join(dict.fromkeys(one[:7] for row in origins for one in str(row["commit"]).split(", "))),
        better=column.better or ("higher" if rows[0].get("higher_is_better") else "lower"),
        data_wanted=expected(cell.recipe).data or "",
        diverged=diverged,
        altered=tuple(dict.fromkeys(one for changes in altered.values() for one in changes)),
    )


def _look_up(cell: Cell, column: Column) -> Obtained:
    """Look up an option of the recipe, or a field of the benchmark's specification."""
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
    """Collect the value of each cell from the runs in `output`, by counting parameters, or by looking it up."""
    values = []
    for cell in cells:
        column = table.columns[cell.column]
        if is_trained(cell):
            values.append(trained(cell, column, request, output, resolve))
        elif cell.way == "count":
            number = count(words_of(cell.recipe, cell.options))
            values.append(Obtained(cell, mean=float(number), parameters=number))
        elif cell.way in ("setting", "fact"):
            values.append(_look_up(cell, column))
        elif (script := script_of(table, cell)) is not None:
            values.append(Obtained(cell, mean=script.value(cell, output), full=True))
        else:
            values.append(Obtained(cell))
    return values


def records_of(
    table: Table, cells: Iterable[Cell], request: Request, output: Path, resolve: Resolve
) -> dict[str, Record]:
    """Return records of the finished runs behind cells, by the names of their files; none for smoke tests."""
    records: dict[str, Record] = {}
    if request.scale == "smoke":
        return records
    extra = altering(request.extra)
    for cell in filter(is_trained, cells):
        for training in finished_trainings(cell, request, output).values():
            folder = training.folder(output)
            altered = alterations(folder, cell, request, resolve)
            fields = {
                "experiment": f"{table.paper}: {table.title}", "name": cell.row_name, "column": cell.column_name,
                "options": (*cell.options, *extra), "full": _is_whole(length_of(cell), folder, altered),
                "altered": altered, "benchmark": benchmark_of(cell.recipe),
            }  # fmt: skip
            records[f"{folder.name}.json"] = record_of(training, folder, fields)
    return records
