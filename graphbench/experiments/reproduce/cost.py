"""Estimate the hours of a training from the recorded time of steps of the same model on the same batches."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from math import ceil
from statistics import linear_regression, median
from typing import Any

from graphbench.errors import GraphbenchError
from graphbench.experiments.records import Record
from graphbench.experiments.reproduce.recipes import benchmark_of, fact, flat, length_of, settings
from graphbench.experiments.reproduce.tables import Cell
from graphbench.experiments.trainings import assign

#: Options that decide the cost of a step; for an optimizer, only its class.
_COSTLY = re.compile(
    r"data(\..*)?|model\.(architecture|head)(\..*)?|model\.optimizer|trainer\.(precision|accumulate_grad_batches)"
)
#: Exceptions that do not: paths, and the number of graphs.
_FREE = re.compile(
    r"data\.(.*\.)?(root|store|split_dir|source|seed|sizes|train_fraction|steps_per_epoch|num_workers|centred)"
    r"|data\.(.*\.)?(pin_memory|copy_stream)"
    r"|model\.architecture\.init"
)
_DEPTH = "model.architecture.num_layers"


@dataclass(frozen=True)
class Step:
    """Options that decide the cost of a step, without the depth, and the depth."""

    options: str
    depth: int | None


def _options(recipe: Sequence[str], options: Iterable[str]) -> dict[str, Any]:
    """Return all options of a recipe plus additional ones, by dotted names without `init_args`."""
    values = dict(flat(settings(recipe)))
    for option in options:
        content: dict[str, Any] = {}
        assign(content, option.removeprefix("--"))
        values |= dict(flat(content))
    return values


def step_of(recipe: Sequence[str], options: Iterable[str]) -> Step:
    """Return the part of a recipe and additional options that decides the cost of a step.

    Raises:
        GraphbenchError: a configuration is not installed.

    Examples:
        >>> one, other = (step_of(["quickstart"], [f"--model.optimizer.lr={lr}"]) for lr in (0.1, 0.2))
        >>> one == other, one == step_of(["quickstart"], ["--data.batch_size=7"])
        (True, False)
    """
    flat = _options(recipe, options)
    depth = flat.pop(_DEPTH, None)
    costly = {name: value for name, value in flat.items() if _COSTLY.fullmatch(name) and not _FREE.fullmatch(name)}
    return Step(json.dumps(costly, sort_keys=True, default=str), depth)


class Costs:
    """Measured seconds of steps and of whole trainings, from the records of finished runs.

    Records of scripts and altered recipes are skipped, since their options are incomplete.
    """

    def __init__(self, records: Iterable[Record]) -> None:
        self._seconds: dict[str, dict[int | None, list[float]]] = {}
        self._whole: dict[Step, list[float]] = {}
        for one in records:
            if not one.seconds or one.altered:
                continue
            try:
                step = step_of(one.recipe, one.options)
                steps = one.steps or (one.epochs or 0) * (_steps_of_epoch(one.recipe, one.options) or 0)
            except GraphbenchError:  # from a script, whose recipe is not an installed configuration
                continue
            if steps:
                self._seconds.setdefault(step.options, {}).setdefault(step.depth, []).append(one.seconds / steps)
            if one.full:
                self._whole.setdefault(step, []).append(one.seconds)

    def hours(self, cell: Cell) -> float | None:
        """Estimate the core hours of one training of a cell, if there are measurements.

        The estimate is the median of whole trainings, else the number of steps times the seconds of a step. A depth
        without measurements is interpolated linearly from at least two others.
        """
        step = step_of(cell.recipe, cell.options)
        if step in self._whole:
            return median(self._whole[step]) / 3600
        seconds, steps = self._step(step), _steps(cell)
        return None if seconds is None or steps is None else seconds * steps / 3600

    def _step(self, step: Step) -> float | None:
        """Estimate the seconds of a step."""
        by_depth = self._seconds.get(step.options, {})
        if step.depth in by_depth:
            return median(by_depth[step.depth])
        points = [(depth, median(seconds)) for depth, seconds in by_depth.items() if isinstance(depth, int)]
        return line_at(points, step.depth) if isinstance(step.depth, int) else None


def line_at(points: Sequence[tuple[int, float]], at: int) -> float | None:
    """Evaluate the least-squares line through points; None for fewer than two points or a value below 0.

    Examples:
        >>> line_at([(1, 0.2), (3, 0.6)], 9)
        1.8
        >>> line_at([(1, 0.2)], 9) is None
        True
    """
    if len(points) < 2:
        return None
    slope, intercept = linear_regression(*zip(*points, strict=True))
    value = round(slope * at + intercept, 12)
    return value if value > 0 else None


def _steps(cell: Cell) -> int | None:
    """Return the steps of a training; None if its rate ends it, or its length or the size of its data is unknown."""
    length = length_of(cell)
    if length.steps is not None:
        return length.steps
    if length.epochs is None or _options(cell.recipe, cell.options).get("model.schedule.stop_below"):
        return None
    each = _steps_of_epoch(cell.recipe, cell.options)
    return None if each is None else length.epochs * each


def _steps_of_epoch(recipe: Sequence[str], options: Iterable[str]) -> int | None:
    """Return the optimizer steps of an epoch; None if the size of the data or of a batch is unknown."""
    flat = _options(recipe, options)
    sizes = flat.get("data.sizes") or fact(benchmark_of(recipe), "split_sizes")
    batch = flat.get("data.batch_size")
    if not sizes or not batch:
        return None
    graphs = sizes[0] * float(flat.get("data.train_fraction") or 1)
    return ceil(graphs / int(batch) / int(flat.get("trainer.accumulate_grad_batches") or 1))
