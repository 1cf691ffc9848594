"""What is added up over a split: its loss and its metrics."""

from __future__ import annotations

from typing import cast

import torch
from torch import Tensor, nn
from torchmetrics import Metric

from graphbench.contracts.spec import SPLITS
from graphbench.contracts.table import GraphBatch
from graphbench.tasks.base import Task


class SplitLoss(Metric):
    """The loss over all rows of a split, whatever batches they came in.

    Sums are compensated (Kahan 1965), because float64 is not to be had on every device.

    Args:
        task: whose loss it is.
    """

    higher_is_better = False
    is_differentiable = False
    full_state_update = False
    sums: Tensor
    lost: Tensor
    counts: Tensor

    def __init__(self, task: Task) -> None:
        super().__init__()
        self._combine = task.combine
        self.add_state("sums", default=torch.zeros(task.groups), dist_reduce_fx="sum")
        self.add_state("lost", default=torch.zeros(task.groups), dist_reduce_fx="sum")
        self.add_state("counts", default=torch.zeros(task.groups, dtype=torch.int64), dist_reduce_fx="sum")

    def update(self, sums: Tensor, counts: Tensor) -> None:
        """Add the terms of a batch, both `[groups]`."""
        part = sums.float() - self.lost
        total = self.sums + part
        self.lost = (total - self.sums) - part
        self.sums = total
        self.counts = self.counts + counts

    def compute(self) -> Tensor:
        """The loss; NaN before any row."""
        sums, lost, counts = (state.cpu() for state in (self.sums, self.lost, self.counts))
        loss = self._combine(sums.double() - lost, counts) if counts.any() else torch.tensor(torch.nan)
        return loss.float().to(self.sums.device)


class SplitScores(nn.Module):
    """Metrics and mean loss of one split.

    While training, only the score that selects the model is tracked: it is for watching, not for reporting.

    Args:
        task: builds the metrics.
        split: train, val or test; the prefix of the logged names.
    """

    def __init__(self, task: Task, split: str) -> None:
        super().__init__()
        self.split = split
        metrics = task.all_metrics()
        if split == "train":
            metrics = {task.spec.metric: metrics[task.spec.metric]}
        self.metrics = nn.ModuleDict(metrics)
        self.loss = SplitLoss(task)

    @property
    def names(self) -> tuple[str, ...]:
        """What is logged: the loss and every metric, as `val/loss`."""
        return (f"{self.split}/loss", *(f"{self.split}/{name}" for name in self.metrics))

    def update(self, task: Task, output: Tensor, batch: GraphBatch) -> tuple[Tensor, Tensor]:
        """Add a batch and its raw `output`; returns the terms of its loss."""
        task.score(cast(dict[str, Metric], dict(self.metrics.items())), output.detach(), batch)
        sums, counts = task.terms(output, batch)
        self.loss.update(sums.detach(), counts)
        return sums, counts

    def reset(self) -> None:
        """Forget what was added."""
        self.loss.reset()
        for metric in self.metrics.values():
            cast(Metric, metric).reset()

    def finish(self) -> dict[str, Tensor]:
        """Values by logged name, reduced over ranks by torchmetrics; starts afresh."""
        values = {f"{self.split}/loss": self.loss.compute()}
        self.loss.reset()
        for name, metric in self.metrics.items():
            values[f"{self.split}/{name}"] = cast(Metric, metric).compute()
            cast(Metric, metric).reset()
        return values


class Scores(nn.ModuleList):
    """The scores of all three splits.

    Args:
        task: builds the metrics.
    """

    def __init__(self, task: Task) -> None:
        super().__init__(SplitScores(task, split) for split in SPLITS)

    def of(self, split: str) -> SplitScores:
        """Those of `split`: train, val or test."""
        return cast(SplitScores, self[SPLITS.index(split)])

    @property
    def while_training(self) -> tuple[str, ...]:
        """Names that a training logs, such as `train/loss` and `val/MAE`: what a callback can watch."""
        return (*self.of("train").names, *self.of("val").names)
