"""Hours that a training costs, estimated from what steps of the same model on the same batches took in records."""

from __future__ import annotations

import copy
import json
import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from math import ceil
from statistics import fmean, median
from typing import Any

from graphbench.errors import GraphbenchError
from graphbench.experiments.records import Record
from graphbench.experiments.reproduce.recipes import benchmark_of, fact, flat, length_of, settings
from graphbench.experiments.reproduce.tables import Cell
from graphbench.experiments.trainings import assign

#: Options that decide what a step costs; of an optimizer its class does, of the data all but where and how many.
_COSTS = re.compile(
    r"data(\..*)?|model\.(architecture|head)(\..*)?|model\.optimizer|trainer\.(precision|accumulate_grad_batches)"
)
_BESIDE = re.compile(
    r"data\.(.*\.)?(root|store|split_dir|source|seed|sizes|train_fraction|steps_per_epoch|num_workers|centred)"
    r"|model\.architecture\.init"
)
_DEPTH = "model.architecture.num_layers"


@dataclass(frozen=True)
class Step:
    """What decides the cost of a step: the options but for the depth, and the depth."""

    options: str
    depth: int | None


def _all(recipe: Sequence[str], options: Iterable[str]) -> dict[str, Any]:
    """Options of a recipe by their dotted names without `init_args`."""
    content: dict[str, Any] = copy.deepcopy(dict(settings(recipe)))
    found = dict(flat(content))
    for option in options:
        given: dict[str, Any] = {}
        assign(given, option.removeprefix("--"))
        found |= dict(flat(given))
    return found


def step_of(recipe: Sequence[str], options: Iterable[str]) -> Step:
    """What decides the cost of a step of a recipe with further options.

    Raises:
        GraphbenchError: a configuration is not installed.

    Examples:
        >>> one, other = (step_of(["quickstart"], [f"--model.optimizer.lr={lr}"]) for lr in (0.1, 0.2))
        >>> one == other, one == step_of(["quickstart"], ["--data.batch_size=7"])
        (True, False)
    """
    found = _all(recipe, options)
    depth = found.pop(_DEPTH, None)
    kept = {name: value for name, value in found.items() if _COSTS.fullmatch(name) and not _BESIDE.fullmatch(name)}
    return Step(json.dumps(kept, sort_keys=True, default=str), depth)


class Costs:
    """Measured seconds of steps and of whole trainings.

    Args:
        records: of finished runs; those of scripts and of altered recipes are left out, since they do not say all that
            was trained.
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
            except GraphbenchError:
                continue
            if steps:
                self._seconds.setdefault(step.options, {}).setdefault(step.depth, []).append(one.seconds / steps)
            if one.full:
                self._whole.setdefault(step, []).append(one.seconds)

    def hours(self, cell: Cell) -> float | None:
        """Hours of a core that one training of a cell costs; None where nothing measured says so.

        It is what whole trainings of it took, else its steps times what a step took. A depth that was not measured
        lies on the line through at least two that were.
        """
        step = step_of(cell.recipe, cell.options)
        if step in self._whole:
            return median(self._whole[step]) / 3600
        seconds, steps = self._step(step), _steps(cell)
        return None if seconds is None or steps is None else seconds * steps / 3600

    def _step(self, step: Step) -> float | None:
        """Seconds of a step."""
        by_depth = self._seconds.get(step.options, {})
        if step.depth in by_depth:
            return median(by_depth[step.depth])
        points = [(depth, median(seconds)) for depth, seconds in by_depth.items() if isinstance(depth, int)]
        return line_at(points, step.depth) if isinstance(step.depth, int) else None


def line_at(points: Sequence[tuple[int, float]], at: int) -> float | None:
    """Value at a place of the line through points by least squares; None for fewer than two, or where it is below 0.

    Examples:
        >>> line_at([(1, 0.2), (3, 0.6)], 9)
        1.8
        >>> line_at([(1, 0.2)], 9) is None
        True
    """
    if len(points) < 2:
        return None
    middle, height = fmean(x for x, _ in points), fmean(y for _, y in points)
    rise = sum((x - middle) * (y - height) for x, y in points) / sum((x - middle) ** 2 for x, _ in points)
    value = height + rise * (at - middle)
    return round(value, 12) if value > 0 else None


def _steps(cell: Cell) -> int | None:
    """Steps of a training; None where its rate ends it, or its length or the size of its data is not known."""
    length = length_of(cell)
    if length.steps is not None:
        return length.steps
    if length.epochs is None or _all(cell.recipe, cell.options).get("model.schedule.stop_below"):
        return None
    each = _steps_of_epoch(cell.recipe, cell.options)
    return None if each is None else length.epochs * each


def _steps_of_epoch(recipe: Sequence[str], options: Iterable[str]) -> int | None:
    """Optimizer steps of an epoch; None where the size of the data or of a batch is not known."""
    found = _all(recipe, options)
    sizes = found.get("data.sizes") or fact(benchmark_of(recipe), "split_sizes")
    batch = found.get("data.batch_size")
    if not sizes or not batch:
        return None
    graphs = sizes[0] * float(found.get("data.train_fraction") or 1)
    return ceil(graphs / int(batch) / int(found.get("trainer.accumulate_grad_batches") or 1))
