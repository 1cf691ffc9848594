"""Scores of models without a network, by the metrics of the network that stands beside them."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torchmetrics import Metric

from graphbench.contracts.benchmark import Benchmark
from graphbench.tasks.scores import SplitScores
from graphbench.training.module import BenchmarkModule


def baselines_of(
    module: BenchmarkModule, data: Benchmark, splits: Sequence[str]
) -> dict[str, dict[str, dict[str, float]]]:
    """Baselines of a benchmark, fitted on its training split and scored as the model is.

    Args:
        module: the model, whose task scores.
        data: the benchmark, open.
        splits: those to score.

    Returns:
        Name -> split -> metric as it is logged ("test/MAE") -> value, without those that are undefined; none for a task
        that does not compare predictions with targets.
    """
    found = {name: {split: dict(values[split]) for split in splits} for name, values in data.baselines().items()}
    if not module.task.comparable:
        return found
    for name, predictions in data.baseline_predictions().items():
        scored = found.setdefault(name, {split: {} for split in splits})
        for split in splits:
            guesses = torch.from_numpy(predictions[split])
            targets = data.tables[split].columns["y"].reshape(len(guesses), -1)
            scores = SplitScores(module.task, split)
            for metric in scores.modules():
                if isinstance(metric, Metric):  # one process has all rows: the others do not score baselines
                    metric.distributed_available_fn = lambda: False
            scores.add(module.task, guesses, targets if targets.is_floating_point() else targets.long())
            scored[split] |= {key: float(value) for key, value in scores.finish().items() if not value.isnan()}
    return found
