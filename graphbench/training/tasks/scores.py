"""Loss and metrics that are accumulated over a split."""

from __future__ import annotations

import warnings
from dataclasses import replace
from typing import Any, cast

import torch
from torch import Tensor, nn
from torchmetrics import Metric

from graphbench.contracts.devices import widest_dtype
from graphbench.contracts.spec import SPLITS
from graphbench.contracts.table import GraphBatch
from graphbench.errors import BadInput
from graphbench.training.distributed import agree_on_rows
from graphbench.training.tasks.base import Task, target_labels
from graphbench.training.tasks.defined import NOT_FINITE, BrokenPredictions, OwnMetric, need_of, why_not_a_number


class SplitLoss(OwnMetric):
    """The loss over all rows of a split, independent of how they are batched.

    Sums are compensated (Kahan 1965), because not every device has float64.
    """

    higher_is_better = False
    sums: Tensor
    lost: Tensor
    counts: Tensor

    def __init__(self, task: Task) -> None:
        super().__init__()
        self._combine = task.combine  # not the task: a module of a module would be saved twice
        self.add_state("sums", default=torch.zeros(task.groups), dist_reduce_fx="sum")
        self.add_state("lost", default=torch.zeros(task.groups), dist_reduce_fx="sum")
        self.add_state("counts", default=torch.zeros(task.groups, dtype=torch.int64), dist_reduce_fx="sum")

    def update(self, sums: Tensor, counts: Tensor) -> None:
        """Add the terms of a batch, both `[groups]`."""
        # The compensation is the rounding error of all parts so far; the order of these lines is the algorithm.
        part = sums.float() - self.lost
        total = self.sums + part
        self.lost = (total - self.sums) - part
        self.sums = total
        self.counts = self.counts + counts

    def compute(self) -> Tensor:
        """Return the loss; NaN before any row."""
        sums, lost, counts = (state.cpu() for state in (self.sums, self.lost, self.counts))
        loss = self._combine(sums.double() - lost, counts) if counts.any() else torch.tensor(torch.nan)
        return loss.float().to(self.sums.device)


def gives_each(metric: Metric) -> bool:
    """Tell whether a torchmetrics metric is configured to return a number for each class or label."""
    is_theirs = type(metric).__module__.partition(".")[0] == "torchmetrics"  # a subclass may select one of the numbers
    return is_theirs and getattr(metric, "average", "macro") in (None, "none")


def _single(name: str, value: Tensor) -> Tensor:
    """Return the value of a score, which must be a single number."""
    if not isinstance(value, Tensor) or value.numel() != 1:
        count = f"{value.numel()} numbers" if isinstance(value, Tensor) else f"a {type(value).__name__}"
        raise BadInput(f"metrics: {name} gives {count} instead of one number, as tables, curves and trackers need.")
    return value.reshape(())


class SplitScores(nn.Module):
    """Metrics and mean loss of one split.

    In training, only the score that selects the model is computed: it is for monitoring, not for reporting. In
    evaluation each of several targets has separate scores, such as `val/MAE/logS`, and so has each class in
    torchmetrics metrics with `average: none`.
    """

    def __init__(self, task: Task, split: str) -> None:
        super().__init__()
        self.split = split
        metrics = task.all_metrics()
        alone = task.target_metrics() if task.spec.num_targets > 1 else {}
        alone |= {name: metrics.pop(name) for name, metric in list(metrics.items()) if gives_each(metric)}
        if split == "train":
            metrics, alone = {task.spec.metric: metrics[task.spec.metric]}, {}
        self.metrics = nn.ModuleDict(metrics)
        #: Metrics whose value is a vector, with one number per target or class.
        self.alone = nn.ModuleDict(alone)
        self.targets = target_labels(task.spec)
        self.are_classes = task.spec.num_classes is not None
        if self.are_classes:
            self.targets = target_labels(replace(task.spec, num_classes=None, num_targets=task.spec.num_classes or 1))
        self.loss = SplitLoss(task)
        self.ranges = task.ranges()
        self.broken = BrokenPredictions(len(self.ranges.rows))
        self.needs = {name: need_of(name, metric, task.needs) for name, metric in metrics.items()}
        self.alone_needs = {name: need_of(name, metric, task.needs) for name, metric in alone.items()}
        self.has_targets = task.known_targets(torch.zeros(1, task.spec.num_targets)) is not None
        self.has_loss = True
        #: Logged name -> why it has no value.
        self.undefined: dict[str, str] = {}

    @property
    def names(self) -> tuple[str, ...]:
        """Return the logged names: the loss and every metric, such as `val/loss`."""
        of_targets = (f"{name}/{target}" for name in self.alone for target in self.targets)
        return tuple(f"{self.split}/{name}" for name in ("loss", *self.metrics, *of_targets))

    def _apply(self, fn: Any, recurse: bool = True) -> SplitScores:
        """Move to a device; sums keep their dtypes when weights get a lower precision, which would round them.

        torchmetrics ensures this for `module.bfloat16()`, but not for `module.to(torch.bfloat16)`, as Lightning calls.
        """
        states = [
            (metric, name, default, getattr(metric, name))
            for metric in self.modules()
            if isinstance(metric, Metric)
            for name, default in metric._defaults.items()
            if isinstance(default, Tensor)
        ]
        super()._apply(fn, recurse)
        for metric, name, default, state in states:
            moved = getattr(metric, name)
            # On an Apple GPU float64 becomes float32, see `OwnMetric`.
            if moved.dtype != state.dtype and state.dtype.itemsize <= widest_dtype(moved.device).itemsize:
                metric._defaults[name] = default.to(moved.device)
                setattr(metric, name, state.to(moved.device))
        return self

    def update(self, task: Task, output: Tensor, batch: GraphBatch) -> tuple[Tensor, Tensor]:
        """Add a batch and its raw `output`; return the terms of its loss."""
        scored = output.detach()
        if self.split != "train":
            # In float32 the probability of every logit above 17 is 1, and AUROC and AP would count ties.
            scored = scored.to(widest_dtype(scored.device))
        task.score(cast(dict[str, Metric], dict(self.metrics.items())), scored, batch)
        if len(self.alone):
            task.compare(cast(dict[str, Metric], dict(self.alone.items())), *task.predict(scored, batch))
        truth = task.known_targets(batch.y) if "y" in batch else None
        if truth is not None:
            self.ranges.update(truth)
        # Further outputs that a loss learns with each prediction may have any value.
        self.broken.update(output.detach() if truth is None else output.detach()[:, : task.spec.output_dim], truth)
        sums, counts = task.terms(output, batch)
        self.loss.update(sums.detach(), counts)
        return sums, counts

    def add(self, task: Task, predictions: Tensor, targets: Tensor) -> None:
        """Add predictions that are not from a head, in the units of `Task.predict`; they have no loss."""
        self.has_loss = False
        for metrics in (self.metrics, self.alone):
            task.compare(cast(dict[str, Metric], dict(metrics.items())), predictions, targets)
        if (truth := task.known_targets(targets)) is not None:
            self.ranges.update(truth)
        self.broken.update(predictions, truth)

    def reset(self) -> None:
        """Clear the accumulated states, for the next loop of any kind."""
        # A loop in inference mode would leave states to which others, over gloo or with gradients, may not add.
        with torch.inference_mode(False):
            self._reset()

    def _reset(self) -> None:
        for metric in (self.loss, self.ranges, self.broken, *self.metrics.values(), *self.alone.values()):
            cast(Metric, metric).reset()

    def finish(self) -> dict[str, Tensor]:
        """Return values by logged name, reduced over ranks by torchmetrics, and reset.

        A score that the targets or predictions do not define is NaN, and `undefined` says why.
        """
        with warnings.catch_warnings():
            # Metrics without rows warn; they are computed anyway, since every process must participate.
            warnings.simplefilter("ignore", UserWarning)
            values = self._finish()
        self.reset()
        device = self.loss.sums.device
        return {f"{self.split}/{name}": value.to(device) for name, value in values.items()}

    def _finish(self) -> dict[str, Tensor]:
        self.undefined = {}
        agree_on_rows(metric for metric in self.modules() if isinstance(metric, Metric))
        # On every process and in the same order: computing is a collective.
        values = {"loss": self.loss.compute()} if self.has_loss else {}
        loss = float(values.get("loss", 0.0))
        targets = self.ranges.result() if self.has_targets else None
        broken = [NOT_FINITE if count else "" for count in self.broken.compute().reshape(-1).tolist()]
        for name, metric in self.metrics.items():
            reason = ("" if targets is None else targets.missing(self.needs[name])) or max(broken)
            values[name] = torch.tensor(torch.nan) if reason else _single(name, cast(Metric, metric).compute())
            reason = reason or why_not_a_number(float(values[name]), loss)
            if reason:
                self.undefined[f"{self.split}/{name}"] = reason
        for name, metric in self.alone.items():
            of_targets = cast(Metric, metric).compute()
            if not isinstance(of_targets, Tensor) or of_targets.shape != (len(self.targets),):
                of_targets = _single(name, of_targets).expand(len(self.targets))
            for number, (target, value) in enumerate(zip(self.targets, of_targets, strict=True)):
                reason = max(broken) if self.are_classes else broken[number]
                values[f"{name}/{target}"] = value.new_full((), torch.nan) if reason else value
                if reason or value.isnan():
                    ranges = None if targets is None or self.are_classes else targets.column(number)
                    why = None if ranges is None else ranges.missing(self.alone_needs[name])
                    self.undefined[f"{self.split}/{name}/{target}"] = (
                        why or reason or why_not_a_number(float(value), loss)
                    )
        return values


class Scores(nn.ModuleList):
    """The scores of all three splits."""

    def __init__(self, task: Task) -> None:
        super().__init__(SplitScores(task, split) for split in SPLITS)

    def of(self, split: str) -> SplitScores:
        """Return the scores of `split`: train, val or test."""
        return cast(SplitScores, self[SPLITS.index(split)])

    def reset(self) -> None:
        """Clear the accumulated states of all splits."""
        for split in SPLITS:
            self.of(split).reset()

    @property
    def while_training(self) -> tuple[str, ...]:
        """Names that a training run logs, such as `train/loss` and `val/MAE`, which callbacks can monitor."""
        return (*self.of("train").names, *self.of("val").names)
