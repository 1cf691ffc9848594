"""The result table of one benchmark: one row per group of runs, and the baselines among them."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace

import numpy as np

from graphbench.report.groups import Group, replicate
from graphbench.report.loading import Run, is_number
from graphbench.report.significance import Comparison, compare, holm
from graphbench.runs.tables import SCORED


@dataclass(frozen=True)
class Score:
    """One quantity over the runs of a group.

    Args:
        values: of the runs that have it.
        runs: of the group.
        undefined: runs whose targets or predictions do not define it.
    """

    values: tuple[float, ...]
    runs: int
    undefined: int = 0

    @property
    def broken(self) -> int:
        """Values that are NaN or infinite."""
        return sum(not math.isfinite(value) for value in self.values)

    @property
    def mean(self) -> float:
        """Mean; NaN without values, and where one is not finite: a mean that leaves diverged runs out would flatter."""
        return float(np.mean(self.values)) if self.values and not self.broken else math.nan

    @property
    def sd(self) -> float:
        """Standard deviation of the sample, with n - 1; NaN for fewer than two values or where one is not finite."""
        return float(np.std(self.values, ddof=1)) if len(self.values) > 1 and not self.broken else math.nan


@dataclass(frozen=True)
class Quantity:
    """A column of the table.

    Args:
        key: stable name, used in table.csv.
        title: heading.
        unit: of the numbers shown, "" where there is none.
        absent: what a cell says when no run has the quantity.
        scale: the number shown is the stored one times this.
        digits: decimals shown; None for as many as the number needs.
        counted: a whole number that is shown alone where all runs agree.
        further: a metric beside the benchmark's own.
    """

    key: str
    title: str
    unit: str = ""
    absent: str = "unknown"
    scale: float = 1.0
    digits: int | None = None
    counted: bool = False
    further: bool = False

    @property
    def heading(self) -> str:
        """Title with the unit."""
        return f"{self.title} [{self.unit}]" if self.unit else self.title

    def show(self, score: Score) -> str:
        """Mean ± standard deviation, and from how many runs where not from all."""
        if not score.values:
            return "undefined" if score.undefined else self.absent
        if score.broken:
            return f"not finite ({score.broken} of {_runs(score.runs)})"
        text = self.number(score.mean, score.mean)
        if len(score.values) > 1 and not (self.counted and score.sd == 0):
            text += f" ± {self.number(score.sd, score.mean)}"
        return text if len(score.values) == score.runs else f"{text} ({len(score.values)} of {_runs(score.runs)})"

    def number(self, value: float, beside: float) -> str:
        """A number with as many decimals as the one it stands beside needs."""
        digits = self.digits if self.digits is not None else _digits(beside * self.scale)
        return f"{value * self.scale:,.{digits}f}" if digits <= 4 else f"{value * self.scale:.3g}"


def _runs(count: int) -> str:
    return "1 run" if count == 1 else f"{count} runs"


def _digits(value: float) -> int:
    """Decimals for four significant digits, as in `graphbench test`; five (so: powers) for tiny and huge numbers."""
    if value == 0 or not math.isfinite(value):
        return 4
    if abs(value) < 1e-3 or abs(value) >= 1e6:
        return 5
    return min(4, max(0, 3 - math.floor(math.log10(abs(value)))))


@dataclass(frozen=True, eq=False)
class Row:
    """One line of the table.

    Args:
        label: name of the group or the baseline.
        kind: "model" or "baseline".
        seeds: of the runs.
        best_epochs: of the runs, with the epochs each had in all.
        scores: key of a quantity -> its values.
        group: the runs; None for a baseline.
        comparison: with the best model; None for itself, for baselines, and where there are fewer than two pairs.
    """

    label: str
    kind: str
    seeds: str
    best_epochs: str
    scores: dict[str, Score]
    group: Group | None = None
    comparison: Comparison | None = None

    def show(self, quantity: Quantity) -> str:
        """Text of a cell; what a baseline cannot have is a dash."""
        if quantity.key in self.scores:
            return quantity.show(self.scores[quantity.key])
        return quantity.absent if self.kind == "model" else "–"


@dataclass(frozen=True)
class ResultTable:
    """All rows of one benchmark, best validation score first.

    Args:
        benchmark: its name, with that of its data where there are several.
        metric: its own metric, "" where no run says.
        higher_is_better: whether more of the metric is better; None where no run says.
        unit: of the metric and of other errors in it.
        quantities: columns.
        rows: groups and baselines; those without a validation score last.
    """

    benchmark: str
    metric: str
    higher_is_better: bool | None
    unit: str
    quantities: tuple[Quantity, ...]
    rows: tuple[Row, ...]

    @property
    def groups(self) -> list[Group]:
        """Groups in the order of their rows."""
        return [row.group for row in self.rows if row.group is not None]

    @property
    def best(self) -> Row:
        """The model with the best validation score."""
        return next(row for row in self.rows if row.kind == "model")

    @property
    def better(self) -> str:
        """`lower is better`, `higher is better` or nothing."""
        return "" if self.higher_is_better is None else f"{'higher' if self.higher_is_better else 'lower'} is better"

    @property
    def comparisons(self) -> list[Row]:
        """Rows that are compared with the best model."""
        return [row for row in self.rows if row.comparison is not None]

    @property
    def over(self) -> str:
        """What ± is over."""
        return "seeds" if all(len(group.splits) == 1 for group in self.groups) else "seeds and splits"

    @property
    def main(self) -> list[Quantity]:
        """The benchmark's own metric, size, time and memory; all metrics where no run says which is its own."""
        return [quantity for quantity in self.quantities if not quantity.further or not self.metric]

    @property
    def further(self) -> list[Quantity]:
        """Other metrics."""
        return [quantity for quantity in self.quantities if quantity not in self.main]

    def header(self) -> list[str]:
        """Headings of all columns."""
        headings = ["model", "seeds", "best epoch", *(quantity.heading for quantity in self.quantities)]
        if self.comparisons:
            headings += [f"{self._compared.title} less that of the best", "paired test against the best"]
        return headings

    def lines(self) -> list[list[str]]:
        """Text of all cells."""
        return [
            [
                f"{row.label} (baseline)" if row.kind == "baseline" else row.label,
                row.seeds,
                row.best_epochs,
                *(row.show(quantity) for quantity in self.quantities),
                *self._beside_best(row),
            ]
            for row in self.rows
        ]

    @property
    def _compared(self) -> Quantity:
        """The column that models are compared by."""
        key = next(row.comparison.key for row in self.rows if row.comparison is not None)
        return next(quantity for quantity in self.quantities if quantity.key == key)

    def _beside_best(self, row: Row) -> list[str]:
        """Difference and test; "best" and a dash for the best model."""
        if not self.comparisons:
            return []
        if row.comparison is None:
            return ["best" if row is self.best else "–", "–"]
        return [self.show_difference(row.comparison), row.comparison.words]

    def show_difference(self, comparison: Comparison) -> str:
        """`+0.0120 ± 0.0034`, with the decimals of the scores."""
        number = self.show_number(comparison.difference)
        return f"{'' if number.startswith('-') else '+'}{number} ± {self.show_number(comparison.sd)}"

    def show_number(self, value: float) -> str:
        """A difference with the decimals that the best score has."""
        quantity = self._compared
        return quantity.number(value, self.best.scores[quantity.key].mean)


def result_table(groups: Sequence[Group], name: str = "") -> ResultTable:
    """The table of groups of one benchmark, with the best validation score first.

    Args:
        groups: on the same data.
        name: of the table; that of the benchmark if empty.
    """
    runs = [run for group in groups for run in group.runs]
    metric = next((str(run.results["metric"]) for run in runs if run.results.get("metric")), "")
    higher = next((bool(run.results["higher_is_better"]) for run in runs if "higher_is_better" in run.results), None)
    unit = next((str(run.results["unit"]) for run in runs if run.results.get("unit")), "")
    rows = [_row(group) for group in groups]
    sign = -1 if higher else 1

    def rank(row: Row) -> float:
        mean = row.scores[f"val/{metric}"].mean if f"val/{metric}" in row.scores else math.nan
        return sign * mean if math.isfinite(mean) else math.inf

    everything = sorted([*_compared(sorted(rows, key=rank), metric), *_baselines(groups)], key=rank)
    columns = _quantities(runs, metric, unit)
    return ResultTable(name or groups[0].benchmark, metric, higher, unit, columns, tuple(everything))


def _compared(rows: Sequence[Row], metric: str) -> list[Row]:
    """Rows of models, all but the first with a comparison by test score, or by validation score before a test."""
    best = rows[0]
    keys = [key for split in ("test", "val") if (key := f"{split}/{metric}") in best.scores]
    if not keys or best.group is None or not math.isfinite(best.scores[keys[0]].mean):
        return list(rows)
    found = [compare(best.group, row.group, keys[0]) if row.group is not None else None for row in rows[1:]]
    adjusted = iter(holm([comparison.p for comparison in found if comparison is not None]))
    told = [None if comparison is None else replace(comparison, holm=next(adjusted)) for comparison in found]
    return [best, *(replace(row, comparison=comparison) for row, comparison in zip(rows[1:], told, strict=True))]


def _quantities(runs: Sequence[Run], metric: str, unit: str) -> tuple[Quantity, ...]:
    """Validation and test score in the benchmark's metric, then other metrics, size, time and memory."""
    found = dict.fromkeys(name for run in runs for split in SCORED for name in run.scores(split) if name != "loss")
    found |= dict.fromkeys(name.partition("/")[2] for run in runs for name in run.undefined)
    names = [metric] * bool(metric) + [name for name in found if name != metric]
    looked = any(len(run.gap) and (run.gap["split"] == "test").any() for run in runs if not run.scores("test"))
    absent = {"val": "not scored", "test": "not recorded" if looked else "not looked at"}
    scores = [
        Quantity(
            f"{split}/{name}",
            f"{title} {name}",
            unit if name in ("MAE", "RMSE") else "",
            absent[split],
            further=name != metric,
        )
        for name in names
        for split, title in SCORED.items()
    ]
    return (
        *scores,
        Quantity("parameters", "parameters", digits=0, counted=True),
        _in_unit("fit_seconds", "fit time", runs, (("h", 7200, 1 / 3600), ("min", 120, 1 / 60), ("s", 0, 1))),
        Quantity("graphs_per_s", "training speed", "graphs/s", digits=0),
        _in_unit("peak_memory_mb", "peak memory", runs, (("GB", 10_000, 1e-3), ("MB", 0, 1))),
    )


def _in_unit(key: str, title: str, runs: Sequence[Run], units: Iterable[tuple[str, float, float]]) -> Quantity:
    """A quantity in the first unit whose threshold its largest value reaches."""
    values = [value for run in runs for value in _MEASURES[key](run) if math.isfinite(value)]
    largest = max(values, default=0.0)
    unit, scale = next((unit, scale) for unit, threshold, scale in units if largest >= threshold)
    return Quantity(key, title, unit, scale=scale, digits=0 if scale == 1 and largest >= 100 else 1)


def _stored(key: str) -> Callable[[Run], list[float]]:
    return lambda run: [float(run.results[key])] if is_number(run.results.get(key)) else []


def _speed(run: Run) -> list[float]:
    """Median over epochs: the first one also warms up."""
    speed = run.curves.get("time/graphs_per_s")
    return [] if speed is None else [float(speed.median())]


_MEASURES: dict[str, Callable[[Run], list[float]]] = {
    "parameters": _stored("parameters"),
    "fit_seconds": _stored("fit_seconds"),
    "graphs_per_s": _speed,
    "peak_memory_mb": _stored("peak_memory_mb"),
}


def _row(group: Group) -> Row:
    count = len(group.runs)
    names = dict.fromkeys(f"{split}/{name}" for run in group.runs for split in SCORED for name in run.scores(split))
    names |= dict.fromkeys(name for run in group.runs for name in run.undefined)
    scores = {}
    for key in names:
        split, _, name = key.partition("/")
        values = tuple(r.scores(split)[name] for r in group.runs if name in r.scores(split))
        scores[key] = Score(values, count, sum(key in run.undefined for run in group.runs))
    for key, measure in _MEASURES.items():
        scores[key] = Score(tuple(value for run in group.runs for value in measure(run)), count)
    return Row(group.label, "model", group.told, _best_epochs(group), scores, group)


def _best_epochs(group: Group) -> str:
    """`2, 6 of 8`: finished epochs at the best checkpoint of every seed, and of the whole fit."""
    best = ["–" if run.best_epoch is None else str(run.best_epoch) for run in group.runs]
    totals = list(dict.fromkeys(str(run.results.get("epochs", "?")) for run in group.runs))
    if set(best) == {"–"}:
        return "unknown"
    if len(totals) == 1:
        return f"{', '.join(best)} of {totals[0]}"
    return ", ".join(
        f"{epoch} of {run.results.get('epochs', '?')}" for epoch, run in zip(best, group.runs, strict=True)
    )


def _baselines(groups: Sequence[Group]) -> list[Row]:
    """One row per baseline, over all splits; one whose scores differ between groups (other data) has a row for each."""
    found: dict[str, list[tuple[str, _BySplit]]] = {}
    for group in groups:
        for name, versions in _baselines_of(group).items():
            known = found.setdefault(name, [])
            for version in versions:
                alike = [one for _, one in known if one.keys() & version.keys() and _agree(one, version)]
                if alike:
                    alike[0].update(version)
                else:
                    known.append((group.label, version))
    rows = []
    for name, known in found.items():
        for label, version in known:
            shown = name if len(known) == 1 else f"{name}, for {label}"
            keys = dict.fromkeys(key for scores in version.values() for key in scores)
            values = {key: tuple(scores[key] for scores in version.values() if key in scores) for key in keys}
            scores = {key: Score(found_values, len(version)) for key, found_values in values.items()}
            rows.append(Row(shown, "baseline", "–", "–", scores))
    return rows


#: Fold and seed of a split -> scores of a baseline on it.
_BySplit = dict[tuple[str, ...], dict[str, float]]


def _agree(one: _BySplit, other: _BySplit) -> bool:
    return all(one[split] == other[split] for split in one.keys() & other.keys())


def _baselines_of(group: Group) -> dict[str, list[_BySplit]]:
    """Scores of the baselines of a group by split; several versions where runs of one split do not agree."""
    found: dict[str, list[_BySplit]] = {}
    for run in group.runs:
        split = replicate(run)[1:]
        for name, scores in run.baselines.items():
            versions = found.setdefault(name, [])
            fitting = [version for version in versions if version.get(split, scores) == scores]
            if fitting:
                fitting[0][split] = scores
            else:
                versions.append({split: scores})
    return found
