"""Compute the result table of one benchmark: a row per group of runs, and the baselines among them."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace

import numpy as np

from graphbench.report.figures import with_unit
from graphbench.report.groups import Group, replicate
from graphbench.report.loading import Run, is_number
from graphbench.report.significance import Comparison, compare, holm
from graphbench.runs.tables import SCORED

#: Quantities other than scores.
_MEASURED = ("parameters", "fit_seconds", "graphs_per_s", "peak_memory_mb")
_SPEED = "time/graphs_per_s"


@dataclass(frozen=True)
class Score:
    """One quantity over the runs of a group."""

    values: tuple[float, ...]  # of the runs that have it
    runs: int  # number of runs in the group
    undefined: int = 0  # number of runs whose targets or predictions do not define it

    @property
    def broken(self) -> int:
        """Count values that are NaN or infinite."""
        return sum(not math.isfinite(value) for value in self.values)

    @property
    def mean(self) -> float:
        """Return the mean, for any order of the values, so that equal models tie; NaN if one is not finite.

        >>> Score((0.1, 0.2, 0.3), 3).mean == Score((0.3, 0.2, 0.1), 3).mean
        True
        """  # a mean without diverged runs would be too good
        return math.fsum(self.values) / len(self.values) if self.values and not self.broken else math.nan

    @property
    def sd(self) -> float:
        """Return the standard deviation (n - 1); NaN for fewer than two values or if one is not finite."""
        return float(np.std(self.values, ddof=1)) if len(self.values) > 1 and not self.broken else math.nan


@dataclass(frozen=True)
class Quantity:
    """A column of the table."""

    key: str  # stable name, used in table.csv
    title: str  # heading
    unit: str = ""  # of the displayed numbers, or ""
    absent: str = "unknown"  # text of a cell when no run has the quantity
    scale: float = 1.0  # factor from the stored number to the displayed one
    digits: int | None = None  # displayed decimals; None for as many as the number needs
    counted: bool = False  # an integer, shown without a deviation if all runs agree
    further: bool = False  # a metric other than the benchmark's

    @property
    def heading(self) -> str:
        """Return the title with the unit."""
        return with_unit(self.title, self.unit)

    def show(self, score: Score) -> str:
        """Format mean ± standard deviation, and the number of runs if some lack a score."""
        if not score.values:
            return "undefined" if score.undefined else self.absent
        if score.broken:
            return f"not finite ({score.broken} of {_runs(score.runs)})"
        text = self.number(score.mean, score.mean)
        if len(score.values) > 1 and not (self.counted and score.sd == 0):
            text += f" ± {self.number(score.sd, score.mean)}"
        return text if len(score.values) == score.runs else f"{text} ({len(score.values)} of {_runs(score.runs)})"

    def number(self, value: float, beside: float) -> str:
        """Format a number with as many decimals as `beside` needs."""
        digits = self.digits if self.digits is not None else _digits(beside * self.scale)
        return f"{value * self.scale:,.{digits}f}" if digits <= 4 else f"{value * self.scale:.3g}"


def _runs(count: int) -> str:
    return "1 run" if count == 1 else f"{count} runs"


def _digits(value: float) -> int:
    """Return decimals for four significant digits, as in `graphbench test`; 5 (powers) for tiny and huge ones."""
    if value == 0 or not math.isfinite(value):
        return 4
    if abs(value) < 1e-3 or abs(value) >= 1e6:
        return 5
    return min(4, max(0, 3 - math.floor(math.log10(abs(value)))))


@dataclass(frozen=True, eq=False)
class Row:
    """One line of the table."""

    label: str  # name of the group or the baseline
    seeds: str  # of the runs, with their splits
    best_epochs: str  # of the runs, with the epochs of each fit
    scores: dict[str, Score]  # key of a quantity -> its values
    group: Group | None = None  # the runs; None for a baseline
    #: with the best model; None for itself, for baselines, and for fewer than two pairs.
    comparison: Comparison | None = None

    @property
    def kind(self) -> str:
        """Return "model" or "baseline"."""
        return "baseline" if self.group is None else "model"

    def is_finite(self, key: str) -> bool:
        """Return whether the row has a score in every run that recorded one, none of them NaN or infinite."""
        return key in self.scores and math.isfinite(self.scores[key].mean)

    def show(self, quantity: Quantity) -> str:
        """Return the text of a cell; a dash for quantities that a baseline cannot have."""
        if quantity.key in self.scores:
            return quantity.show(self.scores[quantity.key])
        return quantity.absent if self.kind == "model" else "–"


@dataclass(frozen=True)
class ResultTable:
    """All rows of one benchmark, best validation score first."""

    benchmark: str  # its name, plus options of its data if it has several tables
    metric: str  # its metric; "" if no run names it
    higher_is_better: bool | None  # None if no run states it
    unit: str  # of the metric and of other errors in it
    quantities: tuple[Quantity, ...]  # columns
    rows: tuple[Row, ...]  # groups and baselines; those without a validation score last

    @property
    def groups(self) -> list[Group]:
        """Return groups in the order of their rows."""
        return [row.group for row in self.rows if row.group is not None]

    @property
    def models(self) -> list[Row]:
        """Return the rows of groups, without baselines."""
        return [row for row in self.rows if row.group is not None]

    @property
    def best(self) -> Row:
        """Return the model with the best validation score."""
        return self.models[0]

    def quantity(self, key: str) -> Quantity | None:
        """Return the column with a key, if there is one."""
        return next((quantity for quantity in self.quantities if quantity.key == key), None)

    @property
    def better(self) -> str:
        """Return `lower is better`, `higher is better` or nothing."""
        return "" if self.higher_is_better is None else f"{'higher' if self.higher_is_better else 'lower'} is better"

    @property
    def basis(self) -> str:
        """Describe which checkpoints the scores are from, and how models are ordered."""
        text = (
            f"Scores are from the checkpoint with the best validation {self.chosen_by}; models are ordered by "
            f"{f'validation {self.metric}' if self.metric else 'that score'}."
        )
        val, test = f"val/{self.metric}", f"test/{self.metric}"
        if any(test in row.scores and val not in row.scores for row in self.models):
            text += " Without validation they are from the last checkpoint."
        return text

    @property
    def chosen_by(self) -> str:
        """Name the score that selected the checkpoints: the metric of all runs, or `score` if they name several."""
        return self.metric if not self.other_choices and self.metric else "score"

    @property
    def other_choices(self) -> dict[str, str]:
        """Return label -> metric of the groups whose checkpoints were selected by a metric other than the table's."""
        metrics = {group.label: str(group.runs[0].results.get("metric") or self.metric) for group in self.groups}
        return {label: metric for label, metric in metrics.items() if metric != self.metric}

    @property
    def comparisons(self) -> list[Row]:
        """Return rows that are compared with the best model."""
        return [row for row in self.rows if row.comparison is not None]

    @property
    def over(self) -> str:
        """Name the runs that ± is computed over."""
        return "seeds" if all(len(group.splits) == 1 for group in self.groups) else "seeds and splits"

    @property
    def main(self) -> list[Quantity]:
        """Return columns of the benchmark's metric, size, time and memory; all metrics if no run names it."""
        return [quantity for quantity in self.quantities if not quantity.further or not self.metric]

    @property
    def further(self) -> list[Quantity]:
        """Return columns of other metrics."""
        return [quantity for quantity in self.quantities if quantity not in self.main]

    def header(self) -> list[str]:
        """Return headings of all columns."""
        headings = ["model", "seeds", "best epoch", *(quantity.heading for quantity in self.quantities)]
        if self.comparisons:
            headings += [f"{self._compared.title} less that of the best", "paired test against the best"]
        return headings

    def lines(self) -> list[list[str]]:
        """Return the text of all cells."""
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
        """Return the column that models are compared by."""
        key = next(row.comparison.key for row in self.rows if row.comparison is not None)
        return next(quantity for quantity in self.quantities if quantity.key == key)

    def _beside_best(self, row: Row) -> list[str]:
        """Return the cells of difference and test; "best" and a dash for the best model."""
        if not self.comparisons:
            return []
        if row.comparison is None:
            return ["best" if row is self.best else "–", "–"]
        number = self.show_number(row.comparison.difference)
        sign = "" if number.startswith("-") else "+"
        return [f"{sign}{number} ± {self.show_number(row.comparison.sd)}", row.comparison.words]

    def show_number(self, value: float) -> str:
        """Format a difference with the decimals of the best score."""
        quantity = self._compared
        return quantity.number(value, self.best.scores[quantity.key].mean)


#: Fold and seed of a split -> scores of a baseline on it.
_BySplit = dict[tuple[str, ...], dict[str, float]]


def result_table(groups: Sequence[Group], name: str) -> ResultTable:
    """Compute the table, called `name`, of groups on the same data, best validation score first."""
    runs = [run for group in groups for run in group.runs]
    metric = next((str(run.results["metric"]) for run in runs if run.results.get("metric")), "")
    higher = next((bool(run.results["higher_is_better"]) for run in runs if "higher_is_better" in run.results), None)
    unit = next((str(run.results["unit"]) for run in runs if run.results.get("unit")), "")
    sign = -1 if higher else 1

    def rank(row: Row) -> float:  # infinite last: with NaN the order would be arbitrary
        key = f"val/{metric}"
        return sign * row.scores[key].mean if row.is_finite(key) else math.inf

    models = _compare_to_best(sorted((_row(group, metric) for group in groups), key=rank), metric)
    rows = sorted([*models, *_baselines(groups)], key=rank)
    return ResultTable(name, metric, higher, unit, _quantities(runs, metric, unit), tuple(rows))


def _row(group: Group, metric: str) -> Row:
    names = dict.fromkeys(f"{split}/{name}" for run in group.runs for split in SCORED for name in run.scores(split))
    names |= dict.fromkeys(name for run in group.runs for name in run.undefined)
    if metric and any(run.diverged for run in group.runs):
        names |= {f"val/{metric}": None}
    count = len(group.runs)
    scores = {}
    for key in names:
        values = tuple(value for run in group.runs if (value := _score(run, key)) is not None)
        scores[key] = Score(values, count, sum(key in run.undefined for run in group.runs))
    for key in _MEASURED:
        scores[key] = Score(tuple(_measured(group.runs, key)), count)
    return Row(group.label, group.replicates, _best_epochs(group), scores, group)


def _score(run: Run, key: str) -> float | None:
    """Return a score; NaN in validation for a diverged run, so that the mean of the others is not too good."""
    split, _, name = key.partition("/")
    return run.scores(split).get(name, math.nan if split == "val" and run.diverged else None)


def _best_epochs(group: Group) -> str:
    """Format finished epochs at the best checkpoint of every seed, and of the whole fit: `2, 6 of 8`."""
    best = ["–" if run.best_epoch is None else str(run.best_epoch) for run in group.runs]
    totals = [str(run.results.get("epochs", "?")) for run in group.runs]
    if set(best) == {"–"}:
        return "unknown"
    if len(set(totals)) == 1:
        return f"{', '.join(best)} of {totals[0]}"
    return ", ".join(f"{epoch} of {total}" for epoch, total in zip(best, totals, strict=True))


def _measured(runs: Sequence[Run], key: str) -> list[float]:
    """Return a quantity other than a score, from the runs that have it."""
    if key == "graphs_per_s":  # the median over epochs, since the first one also warms up
        return [float(run.curves[_SPEED].median()) for run in runs if _SPEED in run.curves]
    return [float(run.results[key]) for run in runs if is_number(run.results.get(key))]


def _compare_to_best(rows: Sequence[Row], metric: str) -> list[Row]:
    """Compare all rows with the first one by test score, or before a test by validation score, which selected it."""
    best = rows[0]
    keys = [key for split in ("test", "val") if (key := f"{split}/{metric}") in best.scores]
    if best.group is None or not best.is_finite(f"val/{metric}") or not best.is_finite(keys[0]):
        return list(rows)
    comparisons = [compare(best.group, row.group, keys[0]) if row.group is not None else None for row in rows[1:]]
    # Holm corrects for the comparisons of this table together.
    adjusted = iter(holm([comparison.p for comparison in comparisons if comparison is not None]))
    return [best, *(
        replace(row, comparison=None if comparison is None else replace(comparison, holm=next(adjusted)))
        for row, comparison in zip(rows[1:], comparisons, strict=True)
    )]  # fmt: skip


def _quantities(runs: Sequence[Run], metric: str, unit: str) -> tuple[Quantity, ...]:
    """List validation and test score in the benchmark's metric, then other metrics, size, time and memory."""
    names = dict.fromkeys([metric] if metric else [])
    names |= dict.fromkeys(name for run in runs for split in SCORED for name in run.scores(split) if name != "loss")
    names |= dict.fromkeys(name.partition("/")[2] for run in runs for name in run.undefined)
    is_seen = any(len(run.gap) and (run.gap["split"] == "test").any() for run in runs if not run.scores("test"))
    absent = {"val": "not scored", "test": "not recorded" if is_seen else "not looked at"}
    units = {"MAE": unit, "RMSE": unit}
    return (
        *(
            Quantity(f"{split}/{name}", f"{title} {name}", units.get(name, ""), absent[split], further=name != metric)
            for name in names
            for split, title in SCORED.items()
        ),
        Quantity("parameters", "parameters", digits=0, counted=True),
        _in_unit("fit_seconds", "fit time", runs, (("h", 7200, 1 / 3600), ("min", 120, 1 / 60), ("s", 0, 1))),
        Quantity("graphs_per_s", "training speed", "graphs/s", digits=0),
        _in_unit("peak_memory_mb", "peak memory", runs, (("GB", 10_000, 1e-3), ("MB", 0, 1))),
    )


def _in_unit(key: str, title: str, runs: Sequence[Run], units: Iterable[tuple[str, float, float]]) -> Quantity:
    """Return a quantity in the first unit whose threshold its largest value reaches."""
    largest = max((value for value in _measured(runs, key) if math.isfinite(value)), default=0.0)
    unit, scale = next((unit, scale) for unit, threshold, scale in units if largest >= threshold)
    return Quantity(key, title, unit, scale=scale, digits=0 if scale == 1 and largest >= 100 else 1)


def _baselines(groups: Sequence[Group]) -> list[Row]:
    """Return one row per baseline, over all splits; several if its scores differ between groups due to their data."""
    rows = []
    for name, versions in _merge_versions(groups).items():
        for label, version in versions:
            title = name if len(versions) == 1 else f"{name}, for {label}"
            keys = dict.fromkeys(key for scores in version.values() for key in scores)
            values = {key: tuple(scores[key] for scores in version.values() if key in scores) for key in keys}
            scores_of = {key: Score(each, len(version)) for key, each in values.items()}
            rows.append(Row(title, "–", "–", scores_of | _seconds(groups, name)))
    return rows


def _merge_versions(groups: Sequence[Group]) -> dict[str, list[tuple[str, _BySplit]]]:
    """Return the versions of each baseline's scores over all groups, each with the label of its first group.

    Versions are merged if they share a split and agree on all that they share.
    """
    merged: dict[str, list[tuple[str, _BySplit]]] = {}
    for group in groups:
        for name, versions in _versions_of(group).items():
            earlier = merged.setdefault(name, [])
            for version in versions:
                shared = ((other, other.keys() & version.keys()) for _, other in earlier)
                alike = (other for other, splits in shared if splits and all(other[s] == version[s] for s in splits))
                if (other := next(alike, None)) is not None:
                    other.update(version)
                else:
                    earlier.append((group.label, version))
    return merged


def _versions_of(group: Group) -> dict[str, list[_BySplit]]:
    """Return each baseline's scores by split; several versions if runs of one split do not agree."""
    baselines: dict[str, list[_BySplit]] = {}
    for run in group.runs:
        split = replicate(run)[1:]
        for name, scores in run.baselines.items():
            versions = baselines.setdefault(name, [])
            fitting = (version for version in versions if version.get(split, scores) == scores)
            if (version := next(fitting, None)) is not None:
                version[split] = scores
            else:
                versions.append({split: scores})
    return baselines


def _seconds(groups: Sequence[Group], name: str) -> dict[str, Score]:
    """Return the cost of a baseline as the fit time; runs of one split share one fit."""
    stored = (run.baseline_seconds for group in groups for run in group.runs)
    seconds = tuple(dict.fromkeys(costs[name] for costs in stored if name in costs))
    return {"fit_seconds": Score(seconds, len(seconds))} if seconds else {}
