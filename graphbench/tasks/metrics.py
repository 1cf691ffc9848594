"""Metrics that torchmetrics does not have as the benchmarks define them."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Literal

import torch
from torch import Tensor
from torchmetrics import Metric
from torchmetrics.functional.classification import binary_auroc, binary_average_precision
from torchmetrics.utilities import dim_zero_cat

from graphbench.errors import BadInput


class PerTarget(Metric):
    """Unweighted mean over targets of a score of one column, each over its known rows.

    Targets with fewer than two known rows, or all of one value, have no such score and do not count.

    Args:
        score: `(predictions [rows], targets [rows]) -> scalar`; more of it is better.

    Examples:
        >>> from torchmetrics.functional.regression import r2_score
        >>> metric = PerTarget(r2_score)
        >>> truth = torch.tensor([[1.0, 5.0], [2.0, 5.0], [3.0, 5.0], [float("nan"), 5.0]])
        >>> metric.update(torch.tensor([[1.0, 0.0], [2.0, 0.0], [4.0, 0.0], [9.0, 0.0]]), truth)
        >>> metric.compute()  # 1 - 1 / 2 of the first; the second is constant
        tensor(0.5000)
    """

    higher_is_better = True
    is_differentiable = False
    full_state_update = False
    predictions: list[Tensor]
    targets: list[Tensor]

    def __init__(self, score: Callable[[Tensor, Tensor], Any], **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self.score = score
        self.add_state("predictions", default=[], dist_reduce_fx="cat")
        self.add_state("targets", default=[], dist_reduce_fx="cat")

    def update(self, predictions: Tensor, targets: Tensor) -> None:
        """Add predictions and targets `[rows, T]`, NaN where unknown."""
        self.predictions.append(predictions.detach().float())
        self.targets.append(targets.detach().float())

    def compute(self) -> Tensor:
        """The mean over targets; NaN when none has a score."""
        predictions, targets = dim_zero_cat(self.predictions), dim_zero_cat(self.targets)
        values = []
        for column in range(targets.shape[1]):
            known = ~targets[:, column].isnan()
            truth = targets[known, column]
            if len(truth) > 1 and bool((truth != truth[0]).any()):
                values.append(self.score(predictions[known, column], truth))
        return torch.stack(values).mean() if values else torch.tensor(torch.nan)


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
        sums = torch.zeros(num_graphs, dtype=torch.float64, device=values.device)
        count = sums.index_add(0, graph, torch.ones_like(graph, dtype=torch.float64))
        sums.index_add_(0, graph, values.detach().double())
        self.total += (sums / count.clamp(min=1)).sum()
        self.graphs += (count > 0).sum()

    def compute(self) -> Tensor:
        """The mean; NaN before any graph had an item."""
        return (self.total / self.graphs).float()


class PartIoU(Metric):
    """Intersection over union of the parts of shapes, as ShapeNetPart is scored (Qi et al., PointNet, CVPR 2017).

    A point gets the highest-scored part of its shape's category. The IoU of a part is the number of points that have it
    by prediction and by truth, over the number that have it by either; 1 where neither has any. A shape's IoU is the
    mean over all parts of its category.

    Args:
        parts: parts of each category; they are numbered category after category.
        average: `instance`: the mean over shapes; `class`: the mean over categories of the mean over their shapes, of
            the categories that have any.
    """

    higher_is_better = True
    is_differentiable = False
    full_state_update = False
    total: Tensor
    shapes: Tensor
    owns: Tensor

    def __init__(self, parts: Sequence[int], average: Literal["instance", "class"] = "instance", **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self.average, self.num_parts = average, sum(parts)
        owner = torch.repeat_interleave(torch.arange(len(parts)), torch.tensor(parts))
        #: Which parts a category has, bool `[categories, parts]`.
        self.register_buffer("owns", owner == torch.arange(len(parts))[:, None], persistent=False)
        self.add_state("total", default=torch.zeros(len(parts), dtype=torch.float64), dist_reduce_fx="sum")
        self.add_state("shapes", default=torch.zeros(len(parts), dtype=torch.int64), dist_reduce_fx="sum")

    def update(self, scores: Tensor, target: Tensor, shape: Tensor, category: Tensor) -> None:
        """Add whole shapes.

        Args:
            scores: of every part at every point `[points, parts]`, any monotone scale.
            target: true part of each point `[points]`.
            shape: shape of each point `[points]`, in 0 .. S - 1.
            category: category of each shape `[S]`.
        """
        owns = self.owns.to(category.device)[category]
        predicted = scores.detach().masked_fill(~owns[shape], -torch.inf).argmax(1)
        none = torch.zeros(len(category) * self.num_parts, dtype=torch.long, device=target.device)
        true_part, predicted_part = shape * self.num_parts + target, shape * self.num_parts + predicted
        both = none.index_add(0, true_part, (predicted == target).long())
        by_either = none.index_add(0, torch.cat([true_part, predicted_part]), none.new_ones(2 * len(target))) - both
        ratio = torch.where(by_either > 0, both.double() / by_either.clamp(min=1), 1.0).reshape(owns.shape)
        value = (ratio * owns).sum(1) / owns.sum(1)
        self.total.index_add_(0, category, value)
        self.shapes.index_add_(0, category, torch.ones_like(category))

    def compute(self) -> Tensor:
        """The average; NaN before any shape came."""
        if self.average == "instance":
            return (self.total.sum() / self.shapes.sum()).float()
        seen = self.shapes > 0
        return (self.total[seen] / self.shapes[seen]).mean().float()


def parts_of(description: str) -> tuple[int, ...]:
    """Parts of each category out of a specification's `extra["parts"]`, such as "4 2 2".

    Raises:
        BadInput: these are no numbers of at least 1.
    """
    parts = description.split()
    if not parts or not all(part.isdecimal() and int(part) > 0 for part in parts):
        raise BadInput(f'extra["parts"] must be the number of parts of each category ("4 2 2"), got {description!r}.')
    return tuple(map(int, parts))


class ValueMean(Metric):
    """The mean of all values, NaN if one of them is; torchmetrics would look for such values, so a step would wait.

    Examples:
        >>> metric = ValueMean()
        >>> metric.update(torch.tensor([1.0, 2.0]))
        >>> metric.update(torch.tensor([6.0]))
        >>> metric.compute()
        tensor(3.)
    """

    higher_is_better = None
    is_differentiable = False
    full_state_update = False
    total: Tensor
    values: Tensor

    def __init__(self, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self.add_state("total", default=torch.zeros((), dtype=torch.float64), dist_reduce_fx="sum")
        self.add_state("values", default=torch.zeros((), dtype=torch.int64), dist_reduce_fx="sum")

    def update(self, values: Tensor) -> None:
        """Add values of any shape."""
        self.total += values.detach().double().sum()
        self.values += values.numel()

    def compute(self) -> Tensor:
        """The mean; NaN before any value."""
        return (self.total / self.values).float()


class LogMean(ValueMean):
    """Natural logarithm of the mean of all values."""

    def compute(self) -> Tensor:
        """The logarithm; minus infinity for a mean of 0, NaN before any value."""
        return super().compute().log()
