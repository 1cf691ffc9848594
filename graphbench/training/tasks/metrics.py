"""Metrics that torchmetrics does not define in the way the benchmarks do."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Literal

import torch
from torch import Tensor
from torchmetrics.classification import MulticlassCalibrationError
from torchmetrics.functional.classification import binary_auroc, binary_average_precision
from torchmetrics.utilities import dim_zero_cat

from graphbench.contracts.devices import widest_dtype
from graphbench.errors import BadInput
from graphbench.training.tasks.defined import Need, OwnMetric
from graphbench.training.tasks.losses import at_least_single


class PerTarget(OwnMetric):
    """Unweighted mean over targets of a score per column, computed over its known rows.

    Targets with fewer than two known rows, or with only one value, have no such score and do not count.

    Args:
        score: `(predictions [rows], targets [rows]) -> scalar`; higher is better.
        alone: return the score of each target `[T]` instead of their mean, NaN if it has none.
        varied: the score compares ranks or slopes, so it is NaN for constant predictions.

    Examples:
        >>> from torchmetrics.functional.regression import r2_score
        >>> metric = PerTarget(r2_score)
        >>> truth = torch.tensor([[1.0, 5.0], [2.0, 5.0], [3.0, 5.0], [float("nan"), 5.0]])
        >>> metric.update(torch.tensor([[1.0, 0.0], [2.0, 0.0], [4.0, 0.0], [9.0, 0.0]]), truth)
        >>> metric.compute()  # 1 - 1 / 2 of the first; the second is constant
        tensor(0.5000)
    """

    takes_unknown = True
    higher_is_better = True
    predictions: list[Tensor]
    targets: list[Tensor]

    def __init__(
        self, score: Callable[[Tensor, Tensor], Any], alone: bool = False, varied: bool = False, **kwargs: Any
    ) -> None:
        super().__init__(**kwargs)
        self.score, self.alone, self.varied = score, alone, varied
        self.add_state("predictions", default=[], dist_reduce_fx="cat")
        self.add_state("targets", default=[], dist_reduce_fx="cat")

    def update(self, predictions: Tensor, targets: Tensor) -> None:
        """Add predictions and targets `[rows, T]`, NaN where unknown."""
        # Whole batches are stored, since ranks and correlations cannot be summed over batches.
        self.predictions.append(at_least_single(predictions.detach()))
        self.targets.append(at_least_single(targets.detach()))

    def defined(self, predictions: Tensor, truth: Tensor) -> bool:
        """Tell whether a column's known rows have a score."""
        return len(truth) > 1 and bool((truth != truth[0]).any())

    def compute(self) -> Tensor:
        """Return the mean over targets; NaN if none has a score."""
        if not len(self.targets):  # a list, or one tensor after a reduction over processes
            return torch.tensor(torch.nan)
        predictions, targets = dim_zero_cat(self.predictions), dim_zero_cat(self.targets)
        values = torch.stack([self._of(predictions[:, n], targets[:, n]) for n in range(targets.shape[1])])
        if self.alone:
            return values.float()
        counted = values[[self.defined(p, t[~t.isnan()]) for p, t in zip(predictions.T, targets.T, strict=True)]]
        return (counted.mean() if len(counted) else values.new_full((), torch.nan)).float()

    def _of(self, predictions: Tensor, targets: Tensor) -> Tensor:
        mask = ~targets.isnan()
        guesses, truth = predictions[mask], targets[mask]
        none = truth.new_full((), torch.nan)
        if not self.defined(guesses, truth) or (self.varied and bool((guesses == guesses[0]).all())):
            return none
        # Sums of squares cancel if the offset is large and the spread small, in float32 from 100 deviations on.
        wide = widest_dtype(truth.device)
        guesses, truth = guesses.to(wide), truth.to(wide)
        if not self.varied:  # these scores do not depend on a shift, but ranks of tiny numbers would become ties
            shift = truth.mean()
            guesses, truth = guesses - shift, truth - shift
        return torch.as_tensor(self.score(guesses, truth)).to(targets)


class RelativeAbsoluteError(PerTarget):
    """Mean over targets of RAE: the MAE divided by that of predicting the mean of the scored targets.

    Examples:
        >>> metric = RelativeAbsoluteError()
        >>> metric.update(torch.tensor([[1.0], [2.0], [4.0]]), torch.tensor([[1.0], [2.0], [3.0]]))
        >>> metric.compute()  # 1 / 3 over 2 / 3
        tensor(0.5000)
    """

    higher_is_better = False

    def __init__(self, **kwargs: Any) -> None:
        super().__init__(_relative_absolute_error, **kwargs)


def _relative_absolute_error(predictions: Tensor, targets: Tensor) -> Tensor:
    return (predictions - targets).abs().mean() / (targets - targets.mean()).abs().mean()


class PerLabel(PerTarget):
    """Like `PerTarget`, for yes-or-no labels: `score` gets probabilities and labels 0 or 1 (int64).

    Labels without a row of each value do not count, as OGB and LRGB define AP and AUROC, unless `need` requires less.

    Args:
        score: `(probabilities [rows], labels [rows]) -> scalar`; higher is better.
        need: what a label must have to count, see `defined.Need`.
        alone: see `PerTarget`.

    Examples:
        >>> metric = PerLabel(binary_auroc)
        >>> metric.update(torch.tensor([[0.1, 0.5], [0.9, 0.5]]), torch.tensor([[0.0, 0.0], [1.0, 0.0]]))
        >>> metric.compute()  # the second label has no positive
        tensor(1.)
    """

    def __init__(
        self, score: Callable[[Tensor, Tensor], Any], need: Need = "contrast", alone: bool = False, **kwargs: Any
    ) -> None:
        super().__init__(score, alone, **kwargs)
        self.need = need

    def update(self, predictions: Tensor, targets: Tensor) -> None:
        """Add probabilities and labels `[rows, T]`, NaN where unknown."""
        super().update(predictions, targets.float())

    def defined(self, predictions: Tensor, truth: Tensor) -> bool:
        """Tell whether a label has the values that its score needs."""
        positive = int(truth.sum())
        return {"contrast": 0 < positive < len(truth), "positive": positive > 0, "rows": len(truth) > 0}[self.need]

    def _of(self, predictions: Tensor, targets: Tensor) -> Tensor:
        mask = ~targets.isnan()
        guesses, truth = predictions[mask], targets[mask].long()
        if not self.defined(guesses, truth):
            return targets.new_full((), torch.nan)
        return self.score(guesses, truth).to(targets)


def ranks(values: Tensor) -> Tensor:
    """Return numbers in [0, 1] in the same order and with the same ties as the values `[rows]`.

    torchmetrics applies a sigmoid in float32 to anything else, which makes ties of large values.

    Examples:
        >>> ranks(torch.tensor([30.0, -2.0, 25.0, -2.0]))
        tensor([1.0000, 0.0000, 0.5000, 0.0000], dtype=torch.float64)
    """
    distinct, order = values.unique(return_inverse=True)
    return order.to(widest_dtype(values.device)) / max(1, len(distinct) - 1)


def _average_precision(predictions: Tensor, labels: Tensor) -> Tensor:
    return binary_average_precision(ranks(predictions), labels)


def _auroc(predictions: Tensor, labels: Tensor) -> Tensor:
    return binary_auroc(ranks(predictions), labels)


class TaskAveragePrecision(PerLabel):
    """Average precision (AP), averaged over tasks as OGB and LRGB define it."""

    def __init__(self, **kwargs: Any) -> None:
        super().__init__(_average_precision, **kwargs)


class TaskAUROC(PerLabel):
    """Area under the ROC curve, averaged over tasks."""

    def __init__(self, **kwargs: Any) -> None:
        super().__init__(_auroc, **kwargs)


class AllLabels(PerLabel):
    """Like `PerLabel`, for all known labels as if they were one label."""

    def update(self, predictions: Tensor, targets: Tensor) -> None:
        """Add predictions and labels `[rows, T]`, NaN where unknown."""
        super().update(predictions.reshape(-1, 1), targets.reshape(-1, 1))


def label_accuracy(probabilities: Tensor, labels: Tensor) -> Tensor:
    """Compute the share of correct labels at the threshold 1/2, `[rows]` each.

    Examples:
        >>> label_accuracy(torch.tensor([0.9, 0.2]), torch.tensor([1, 1]))
        tensor(0.5000)
    """
    return ((probabilities > 0.5) == (labels == 1)).float().mean()


def label_f1(probabilities: Tensor, labels: Tensor) -> Tensor:
    """Compute `2 TP / (2 TP + FP + FN)` at the threshold 1/2.

    Examples:
        >>> label_f1(torch.tensor([0.9, 0.2, 0.8]), torch.tensor([1, 1, 0]))
        tensor(0.5000)
    """
    chosen, true = probabilities > 0.5, labels == 1
    return 2 * (chosen & true).sum() / (chosen.sum() + true.sum())


def label_mcc(probabilities: Tensor, labels: Tensor) -> Tensor:
    """Compute Matthews' correlation at the threshold 1/2; 0 for predictions of one value, as in scikit-learn.

    Examples:
        >>> label_mcc(torch.tensor([0.9, 0.2, 0.8]), torch.tensor([1, 0, 1]))
        tensor(1.)
    """
    chosen, true = (probabilities > 0.5).long(), (labels == 1).long()
    return matthews(torch.bincount(2 * true + chosen, minlength=4).reshape(2, 2))


def matthews(confusion: Tensor) -> Tensor:
    """Compute Matthews' correlation of a confusion matrix `[C, C]` (Gorodkin, 2004); 0 for predictions of one class.

    In that case torchmetrics returns numbers other than 0, some above 0.4.
    """
    # Squares of integer counts would overflow from 2^31.5 rows on, and float32 would round them.
    counts = confusion.cpu().double()
    true, chosen, rows, right = counts.sum(1), counts.sum(0), counts.sum(), counts.diagonal().sum()
    spread = (rows.square() - true.square().sum()) * (rows.square() - chosen.square().sum())
    value = (right * rows - (true * chosen).sum()) / spread.sqrt()
    return torch.where(spread > 0, value, 0.0).float().to(confusion.device)


def calibration_error(confidence: Tensor, correct: Tensor, bins: int = 15) -> Tensor:
    """Compute the expected calibration error: the mean over all n of |accuracy - mean confidence| of their bin.

    Bin m of M contains confidences in `((m - 1) / M, m / M]` (Guo et al., "On calibration of modern neural networks",
    ICML 2017, section 2); torchmetrics uses a separate bin for confidences of exactly 1. Confidences are probabilities
    `[n]`, and `correct` says whether each prediction is right `[n]`, in any dtype.

    Examples:
        >>> calibration_error(torch.tensor([0.95, 1.0]), torch.tensor([1, 0]))  # one bin
        tensor(0.4750)
        >>> calibration_error(torch.tensor([0.64, 2 / 3]), torch.tensor([0, 1]))  # one bin, up to 10 / 15
        tensor(0.1533)
    """
    # Divided, as confidences are: steps of `linspace` are rounded, and 2 / 3 would be beyond its edge 10 / 15.
    edges = torch.arange(1, bins, dtype=confidence.dtype, device=confidence.device) / bins
    place = torch.bucketize(confidence.contiguous(), edges)
    gaps = confidence.new_zeros(bins).index_add(0, place, correct.to(confidence.dtype) - confidence)
    return gaps.abs().sum() / len(confidence)


class CalibrationError(MulticlassCalibrationError):
    """`calibration_error` of the predicted class."""

    def compute(self) -> Tensor:
        """Return the error; NaN before any row."""
        if not len(self.confidences):
            return torch.tensor(torch.nan)
        return calibration_error(dim_zero_cat(self.confidences), dim_zero_cat(self.accuracies), self.n_bins)


class GraphMean(OwnMetric):
    """Mean over graphs of the mean over a graph's items; graphs without items do not count."""

    higher_is_better = True
    total: Tensor
    graphs: Tensor

    def __init__(self, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self.add_state("total", default=torch.zeros((), dtype=torch.float64), dist_reduce_fx="sum")
        self.add_state("graphs", default=torch.zeros((), dtype=torch.int64), dist_reduce_fx="sum")

    def update(self, values: Tensor, graph: Tensor, num_graphs: int) -> None:
        """Add items `[items]` with the graph of each `[items]`; all items of a graph must be in one update."""
        # float64: a split has millions of pairs, and float32 counts to 2^24.
        dtype = self.total.dtype
        sums = torch.zeros(num_graphs, dtype=dtype, device=values.device)
        count = sums.index_add(0, graph, torch.ones_like(graph, dtype=dtype))
        sums.index_add_(0, graph, values.detach().to(dtype))
        self.total += (sums / count.clamp(min=1)).sum()
        self.graphs += (count > 0).sum()

    def compute(self) -> Tensor:
        """Return the mean; NaN before any graph had an item."""
        return (self.total / self.graphs).float()


class PartIoU(OwnMetric):
    """Intersection over union of the parts of shapes, as in ShapeNetPart (Qi et al., PointNet, CVPR 2017).

    A point is assigned the highest-scored part of its shape's category. The IoU of a part is the number of points with
    this part in both prediction and truth, divided by the number with it in either; 1 if there are none. A shape's IoU
    is the mean over all parts of its category.

    Args:
        parts: number of parts of each category; parts are numbered category after category.
        average: `instance`: the mean over shapes; `class`: the mean over categories that have shapes, of the mean over
            their shapes.
    """

    higher_is_better = True
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
        """Add whole shapes: scores of every part at every point `[points, parts]`, on any monotone scale.

        `target` and `shape` (0 .. S - 1) are given per point, `category` per shape `[S]`.
        """
        owns = self.owns.to(category.device)[category]
        # Only parts of the shape's own category compete, as in the published scores.
        predicted = scores.detach().masked_fill(~owns[shape], -torch.inf).argmax(1)
        # One sum counts the points of every pair of shape and part: a loop over parts would launch a kernel for each.
        none = torch.zeros(len(category) * self.num_parts, dtype=torch.long, device=target.device)
        true_part, predicted_part = shape * self.num_parts + target, shape * self.num_parts + predicted
        both = none.index_add(0, true_part, (predicted == target).long())
        by_either = none.index_add(0, torch.cat([true_part, predicted_part]), none.new_ones(2 * len(target))) - both
        ratio = torch.where(by_either > 0, both.to(self.total.dtype) / by_either.clamp(min=1), 1.0).reshape(owns.shape)
        value = (ratio * owns).sum(1) / owns.sum(1)
        self.total.index_add_(0, category, value)
        self.shapes.index_add_(0, category, torch.ones_like(category))

    def compute(self) -> Tensor:
        """Return the average; NaN before any shape."""
        if self.average == "instance":
            return (self.total.sum() / self.shapes.sum()).float()
        seen = self.shapes > 0
        return (self.total[seen] / self.shapes[seen]).mean().float()


def parts_of(description: str) -> tuple[int, ...]:
    """Parse the number of parts of each category from a specification's `extra["parts"]`, such as "4 2 2"."""
    parts = description.split()
    if not parts or not all(part.isdecimal() and int(part) > 0 for part in parts):
        raise BadInput(f'extra["parts"] must be the number of parts of each category ("4 2 2"), got {description!r}.')
    return tuple(map(int, parts))


class ValueMean(OwnMetric):
    """The mean of all values, NaN if one of them is; torchmetrics' version needs a host-device sync to check for NaN.

    Examples:
        >>> metric = ValueMean()
        >>> metric.update(torch.tensor([1.0, 2.0]))
        >>> metric.update(torch.tensor([6.0]))
        >>> metric.compute()
        tensor(3.)
    """

    higher_is_better = None
    total: Tensor
    values: Tensor

    def __init__(self, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self.add_state("total", default=torch.zeros((), dtype=torch.float64), dist_reduce_fx="sum")
        self.add_state("values", default=torch.zeros((), dtype=torch.int64), dist_reduce_fx="sum")

    def update(self, values: Tensor) -> None:
        """Add values of any shape."""
        self.total += values.detach().to(self.total.dtype).sum()
        self.values += values.numel()

    def compute(self) -> Tensor:
        """Return the mean; NaN before any value."""
        return (self.total / self.values).float()


class LogMean(ValueMean):
    """Natural logarithm of the mean of all values."""

    def compute(self) -> Tensor:
        """Return the logarithm; minus infinity for a mean of 0, NaN before any value."""
        return super().compute().log()
