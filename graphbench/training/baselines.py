"""Score baselines with the metrics of the network that they are compared with."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor
from torchmetrics import Metric

from graphbench.contracts.benchmark import Benchmark
from graphbench.training.module import BenchmarkModule
from graphbench.training.tasks.base import Task
from graphbench.training.tasks.scores import SplitScores


def baselines_of(module: BenchmarkModule, data: Benchmark, splits: Sequence[str]) -> dict[str, dict[str, Any]]:
    """Score the baselines of an open benchmark, fitted on its training split, on `splits` like the model.

    Returns:
        Name -> split -> metric as it is logged ("test/MAE") -> value, without undefined ones; empty for a task that
        does not compare predictions with targets. In addition to the splits, `seconds` and `note` of `Baseline` if it
        has them.
    """
    scores: dict[str, dict[str, Any]] = {
        name: {split: dict(values[split]) for split in splits} for name, values in data.baselines().items()
    }
    if not module.task.comparable:
        return scores
    for name, baseline in data.baseline_predictions().items():
        scored = scores.setdefault(name, {split: {} for split in splits})
        for split in splits:
            guesses = torch.from_numpy(baseline.predictions[split])
            targets = data.tables[split].columns["y"].reshape(len(guesses), -1)
            values, _ = scores_of_predictions(module.task, guesses, targets)
            scored[split] |= {f"{split}/{metric}": value for metric, value in values.items()}
        scored |= {} if baseline.seconds is None else {"seconds": baseline.seconds}
        scored |= {"note": baseline.note} if baseline.note else {}
    return scores


def is_higher_better(module: BenchmarkModule, name: str) -> bool:
    """Tell whether larger values of a logged score ("test/R2") are better; like the benchmark's metric if unknown.

    Examples:
        >>> from graphbench.contracts import Architecture
        >>> from graphbench.testing import tiny_spec
        >>> module = BenchmarkModule(tiny_spec(), lambda spec: Architecture(spec, 8), metrics=["R2"])
        >>> [is_higher_better(module, f"test/{name}") for name in ("MAE", "MAE/logS", "R2", "loss", "mine")]
        [False, False, True, False, False]
    """
    metric = name.partition("/")[2].partition("/")[0]
    if metric == "loss":
        return False
    scored = (module.task.target_metrics() | module.task.all_metrics()).get(metric)
    direction = None if metric == module.spec.metric else getattr(scored, "higher_is_better", None)
    return module.spec.higher_is_better if direction is None else bool(direction)


def scores_of_predictions(
    task: Task, predictions: Tensor, targets: Tensor, device: torch.device | None = None
) -> tuple[dict[str, float], dict[str, str]]:
    """Score predictions for which no loss can be computed; on their device unless another is given.

    Predictions `[rows, width]` are in the units of `Task.predict`, and a row of only NaN is not scored. Targets are
    numbers `[rows, T]`, NaN where unknown, or classes `[rows, 1]`, negative or NaN where unknown.

    Returns:
        Metric -> value, and metric -> the reason if it has none.
    """
    place = predictions.device if device is None else device
    predicted = ~predictions.isnan().all(1)
    predictions, targets = predictions[predicted], targets[predicted.to(targets.device)]
    scores = SplitScores(task, "test").to(place)
    for metric in scores.modules():
        if isinstance(metric, Metric):  # one process has all rows, and the others score nothing
            metric.distributed_available_fn = lambda: False
    if task.spec.num_classes is not None:
        targets = targets.nan_to_num(nan=-1).long()
    scores.add(task, predictions.to(place), targets.to(place))
    values = {key.partition("/")[2]: float(value) for key, value in scores.finish().items()}
    undefined = {key.partition("/")[2]: why for key, why in scores.undefined.items()}
    return {name: value for name, value in values.items() if not math.isnan(value)}, undefined
