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
from graphbench.experiments.reproduce.plan import Request, is_trained, job_of
from graphbench.experiments.reproduce.recipes import Length, benchmark_of, expected, fact, length_of, setting
from graphbench.experiments.reproduce.tables import Cell, Column, Printed, Table

#: Options that leave out a part of every epoch.
_CUTS = ("--trainer.limit_train_batches", "--trainer.overfit_batches", "--trainer.fast_dev_run")
#: Counts the trainable parameters of what a command line builds.
Count = Callable[[Sequence[str]], int]


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
            return "met" if abs(self.mean - printed.value) <= printed.unit * (1 + 1e-9) else "not met"
        reasons = [] if self.full else ["shorter than the recipe"]
        reasons += [f"{self.data} data"] if self.data_wanted and self.data != self.data_wanted else []
        if reasons:
            return f"not comparable: {', '.join(reasons)}"
        return met(self.mean, self.sd, printed, self.better)


def met(mean: float, sd: float | None, printed: Printed, better: str) -> str:
    """Whether a mean lies within two standard deviations of a printed value.

    The printed deviation counts; where none is printed, that over the seeds.

    Examples:
        >>> met(0.078, None, Printed.read("0.070 ± 0.004"), "lower")
        'met'
        >>> met(0.079, None, Printed.read("0.070 ± 0.004"), "lower")
        'not met'
        >>> met(0.060, None, Printed.read("0.070 ± 0.004"), "lower")
        'better'
        >>> met(0.079, None, Printed.read("0.070"), "lower")
        'no spread is known: 0.009 worse'
    """
    assert printed.value is not None
    spread = printed.sd if printed.sd is not None else sd
    gain = (mean - printed.value) * (-1 if better == "lower" else 1)
    if not math.isfinite(mean):
        return "not met"
    if spread is None:
        return f"no spread is known: {abs(gain):.3g} {'better' if gain >= 0 else 'worse'}"
    if abs(gain) <= 2 * spread * (1 + 1e-9):
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


def _is_whole(length: Length, stored: Mapping[str, Any], request: Request) -> bool:
    """Whether a run was as long as its recipe says; epochs that were cut to some batches are not."""
    cut = any(word.startswith(_CUTS) for word in request.extra)
    return not cut and length.reached(stored.get("epochs"), stored.get("steps"))


def trained(cell: Cell, column: Column, request: Request, output: Path) -> Obtained:
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
    origin = provenance(folders[next(iter(scores))])
    return Obtained(
        cell,
        tuple(scores),
        fmean(values),
        stdev(values) if len(values) > 1 else None,
        parameters=rows[0].get("parameters"),
        epochs=min((row["epochs"] for row in rows if row.get("epochs") is not None), default=None),
        steps=min((row["steps"] for row in rows if row.get("steps") is not None), default=None),
        full=all(_is_whole(length, row, request) for row in rows),
        data=" and ".join(sorted({str(row.get("data", "")) for row in rows})),
        hardware=str(origin["hardware"]),
        commit=str(origin["commit"])[:7],
        better=column.better or ("higher" if rows[0].get("higher_is_better") else "lower"),
        data_wanted=expected(cell.recipe).data or "",
        diverged=diverged,
    )


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


def obtain(table: Table, cells: Sequence[Cell], request: Request, output: Path, count: Count) -> list[Obtained]:
    """What is there for each cell.

    Args:
        table: of the cells.
        cells: some or all of its cells.
        request: how runs were asked for.
        output: where they lie.
        count: counts parameters; called for cells of the way `count` alone.
    """
    found = []
    for cell in cells:
        column = table.columns[cell.column]
        if is_trained(cell):
            found.append(trained(cell, column, request, output))
        elif cell.way == "count":
            configs = [word for name in cell.recipe for word in ("--config", name)]
            number = count([*configs, *cell.options])
            found.append(Obtained(cell, mean=float(number), parameters=number))
        elif cell.way in ("setting", "fact"):
            found.append(_looked_up(cell, column))
        else:
            found.append(Obtained(cell))
    return found


def records_of(table: Table, cells: Iterable[Cell], request: Request, output: Path) -> dict[str, Record]:
    """Records of the finished runs behind cells, by the names of their files. A smoke test leaves none.

    Args:
        table: of the cells.
        cells: some or all of its cells.
        request: how runs were asked for.
        output: where they lie.
    """
    found: dict[str, Record] = {}
    if request.scale == "smoke":
        return found
    given = [word for word in request.extra if not word.startswith("--trainer.")]  # those may make another model
    for cell in filter(is_trained, cells):
        length = length_of(cell)
        for seed in request.seeds:
            job = job_of(cell, seed, request, output)
            chosen = job.chosen(output)
            if chosen is None or not chosen.is_finished(output):
                continue
            folder = chosen.folder(output)
            told = {
                "experiment": f"{table.paper}: {table.title}",
                "name": cell.row_name,
                "column": cell.column_name,
                "options": (*cell.options, *given),
                "full": _is_whole(length, results(folder), request),
                "benchmark": benchmark_of(cell.recipe),
            }
            found[f"{folder.name}.json"] = record_of(chosen, folder, told)
    return found
