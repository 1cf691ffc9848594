"""Metrics that torchmetrics does not have as the benchmarks define them."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor
from torchmetrics import Metric
from torchmetrics.functional.classification import binary_auroc, binary_average_precision
from torchmetrics.utilities import dim_zero_cat


class _PerTask(Metric):
    """Unweighted mean over tasks of a ranking metric, as OGB and LRGB define it.

    Missing labels (NaN) are left out task by task; tasks without a positive or without a negative do not count.
    """

    higher_is_better = True
    is_differentiable = False
    full_state_update = False
    predictions: list[Tensor]
    targets: list[Tensor]

    def __init__(self, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self.add_state("predictions", default=[], dist_reduce_fx="cat")
        self.add_state("targets", default=[], dist_reduce_fx="cat")

    def update(self, predictions: Tensor, targets: Tensor) -> None:
        """Add scores `[rows, tasks]` (any monotone scale) and labels `[rows, tasks]` in {0, 1, NaN}."""
        self.predictions.append(predictions.detach().float())
        self.targets.append(targets.detach().float())

    def _one(self, scores: Tensor, labels: Tensor) -> Tensor:
        raise TypeError("abstract")

    def compute(self) -> Tensor:
        """The mean over tasks; NaN when no task has both a positive and a negative."""
        scores, labels = dim_zero_cat(self.predictions), dim_zero_cat(self.targets)
        values = []
        for task in range(labels.shape[1]):
            valid = ~labels[:, task].isnan()
            truth = labels[valid, task].long()
            if 0 < int(truth.sum()) < len(truth):
                values.append(self._one(scores[valid, task], truth))
        return torch.stack(values).mean() if values else torch.tensor(torch.nan)


class TaskAveragePrecision(_PerTask):
    """Average precision (AP), averaged over tasks."""

    def _one(self, scores: Tensor, labels: Tensor) -> Tensor:
        return binary_average_precision(scores, labels)


class TaskAUROC(_PerTask):
    """Area under the ROC curve, averaged over tasks."""

    def _one(self, scores: Tensor, labels: Tensor) -> Tensor:
        return binary_auroc(scores, labels)


class GraphMean(Metric):
    """Mean over graphs of the mean over a graph's items; graphs without an item do not count."""

    higher_is_better = True
    is_differentiable = False
    full_state_update = False
    total: Tensor
    graphs: Tensor

    def __init__(self, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self.add_state("total", default=torch.zeros((), dtype=torch.float64), dist_reduce_fx="sum")
        self.add_state("graphs", default=torch.zeros((), dtype=torch.int64), dist_reduce_fx="sum")

    def update(self, values: Tensor, graph: Tensor, num_graphs: int) -> None:
        """Add items `[items]` with the graph of each `[items]`; a graph must come in one update."""
        count = torch.bincount(graph, minlength=num_graphs)
        sums = torch.zeros(num_graphs, dtype=torch.float64, device=values.device)
        sums.index_add_(0, graph, values.detach().double())
        self.total += (sums / count.clamp(min=1)).sum()
        self.graphs += (count > 0).sum()

    def compute(self) -> Tensor:
        """The mean; NaN before any graph had an item."""
        return (self.total / self.graphs).float()
