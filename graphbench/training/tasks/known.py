"""Metrics that mask rows without a target instead of removing them.

To remove them, the host must read their number, which is a host-device sync in every training step.
"""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor
from torchmetrics import MeanAbsoluteError, MeanSquaredError
from torchmetrics.classification import BinaryAUROC, MulticlassAccuracy, MulticlassF1Score, MulticlassMatthewsCorrCoef
from torchmetrics.functional.classification import binary_auroc
from torchmetrics.utilities import dim_zero_cat

from graphbench.training.tasks.defined import OwnMetric
from graphbench.training.tasks.losses import at_least_single
from graphbench.training.tasks.metrics import matthews


class KnownMeanAbsoluteError(MeanAbsoluteError):
    """The mean of `|p - t|` over known targets; NaN targets are masked, without a host-device sync.

    Examples:
        >>> metric = KnownMeanAbsoluteError()
        >>> metric.update(torch.tensor([1.0, 2.0, 9.0]), torch.tensor([2.0, 4.0, float("nan")]))
        >>> metric.compute()
        tensor(1.5000)
    """

    takes_unknown = True

    def update(self, preds: Tensor, target: Tensor) -> None:
        """Add predictions and targets of the same shape."""
        error, mask = _known_errors(preds, target)
        self.sum_abs_error += error.abs().sum()
        self.total += mask.sum()


class KnownMeanSquaredError(MeanSquaredError):
    """Like `KnownMeanAbsoluteError`, for `(p - t)^2`, or the root of that mean.

    Examples:
        >>> metric = KnownMeanSquaredError(squared=False)
        >>> metric.update(torch.tensor([1.0, 2.0, 9.0]), torch.tensor([8.0, 3.0, float("nan")]))
        >>> metric.compute()
        tensor(5.)
    """

    takes_unknown = True

    def update(self, preds: Tensor, target: Tensor) -> None:
        """Add predictions and targets of the same shape."""
        error, mask = _known_errors(preds, target)
        self.sum_squared_error += error.square().sum()
        self.total += mask.sum()


class TargetErrors(OwnMetric):
    """Mean absolute error of each target `[T]`, or (squared) the root of its mean squared error; NaN without a row.

    Examples:
        >>> metric = TargetErrors(2)
        >>> metric.update(torch.tensor([[1.0, 5.0], [2.0, 5.0]]), torch.tensor([[2.0, 5.0], [4.0, float("nan")]]))
        >>> metric.compute()
        tensor([1.5000, 0.0000])
    """

    takes_unknown = True
    higher_is_better = False
    sums: Tensor
    rows: Tensor

    def __init__(self, targets: int, squared: bool = False) -> None:
        super().__init__()
        self.squared = squared
        # float64, see `TargetRanges`
        self.add_state("sums", default=torch.zeros(targets, dtype=torch.float64), dist_reduce_fx="sum")
        self.add_state("rows", default=torch.zeros(targets, dtype=torch.int64), dist_reduce_fx="sum")

    def update(self, preds: Tensor, target: Tensor) -> None:
        """Add predictions and targets `[rows, T]`, NaN where unknown."""
        error, mask = _known_errors(preds, target)
        self.sums = self.sums + (error.square() if self.squared else error.abs()).sum(0)
        self.rows = self.rows + mask.sum(0)

    def compute(self) -> Tensor:
        """Return the errors `[T]`."""
        means = self.sums / self.rows
        return (means.sqrt() if self.squared else means).float()


class ScaledError(TargetErrors):
    """The mean over targets of their errors, each divided by the target's standard deviation in training.

    Targets count equally whatever their unit; those without a known row do not count. Predictions and targets
    `[rows, T]` first go through `transform`; `deviations` returns the deviations `[T]` of targets after it.

    Examples:
        >>> metric = ScaledError(lambda: torch.tensor([1.0, 100.0]), 2)
        >>> metric.update(torch.tensor([[1.0, 500.0]]), torch.tensor([[2.0, 800.0]]))
        >>> metric.compute()  # (1 / 1 + 300 / 100) / 2
        tensor(2.)
    """

    def __init__(
        self,
        deviations: Callable[[], Tensor],
        targets: int,
        squared: bool = False,
        transform: Callable[[Tensor], Tensor] | None = None,
    ) -> None:
        super().__init__(targets, squared)
        # Called in `compute`: they are learned from the training targets after the metric is created.
        self._deviations, self._transform = deviations, transform

    def update(self, preds: Tensor, target: Tensor) -> None:
        """Add predictions and targets `[rows, T]`, NaN where unknown."""
        if self._transform is not None:
            preds, target = self._transform(preds), self._transform(target)
        super().update(preds, target)

    def compute(self) -> Tensor:
        """Return the mean; NaN if no target has a known row."""
        scaled = super().compute() / self._deviations().to(self.rows.device).float()
        return scaled[self.rows > 0].mean()


def _known_errors(preds: Tensor, target: Tensor) -> tuple[Tensor, Tensor]:
    """Return differences, 0 where the target is NaN, and the mask of known targets."""
    mask = ~target.isnan()
    # `where` after the difference: NaN times a mask of 0 would still be NaN.
    return torch.where(mask, preds - target, 0.0), mask


class KnownAccuracy(MulticlassAccuracy):
    """Share of correct classes, over all labelled rows ("micro") or as the mean over classes ("macro").

    Rows of the class -1 have no label and are masked, not removed, so that a training step needs no sync.

    Examples:
        >>> metric = KnownAccuracy(num_classes=2, average="micro")
        >>> metric.update(torch.tensor([[0.9, 0.1], [0.8, 0.2], [0.3, 0.7]]), torch.tensor([0, 1, -1]))
        >>> metric.compute()
        tensor(0.5000)
    """

    takes_unknown = True

    def update(self, preds: Tensor, target: Tensor) -> None:
        """Add scores of every class `[rows, C]` and classes `[rows]` or `[rows, 1]`, -1 where there is no label."""
        _count(self, preds, target)


class KnownF1Score(MulticlassF1Score):
    """Like `KnownAccuracy`, for the harmonic mean of precision and recall.

    Examples:
        >>> metric = KnownF1Score(num_classes=2, average="macro")
        >>> metric.update(torch.tensor([[0.9, 0.1], [0.8, 0.2], [0.3, 0.7]]), torch.tensor([0, 1, -1]))
        >>> metric.compute()  # 2/3 of the first class, 0 of the second
        tensor(0.3333)
    """

    takes_unknown = True

    def update(self, preds: Tensor, target: Tensor) -> None:
        """Add scores of every class `[rows, C]` and classes `[rows]` or `[rows, 1]`, -1 where there is no label."""
        _count(self, preds, target)


class PositiveF1Score(KnownF1Score):
    """Harmonic mean of precision and recall of the second of two classes; rows of the class -1 do not count.

    Examples:
        >>> metric = PositiveF1Score()
        >>> metric.update(torch.tensor([[0.9, 0.1], [0.8, 0.2], [0.3, 0.7], [0.3, 0.7]]), torch.tensor([0, 1, 1, -1]))
        >>> metric.compute()  # precision 1, recall 1/2
        tensor(0.6667)
    """

    def __init__(self) -> None:
        super().__init__(num_classes=2, average="none")

    def compute(self) -> Tensor:
        """Return the score; 0 if no row of the class is found."""
        return super().compute()[1]


def _count(metric: KnownAccuracy | KnownF1Score, preds: Tensor, target: Tensor) -> None:
    """Add to true and false positives and negatives, of each class `[C]` or of all together."""
    target = target.reshape(-1)
    mask, chosen, true = target >= 0, preds.argmax(1), target.clamp(min=0)
    none = torch.zeros(preds.shape[1], dtype=torch.long, device=target.device)
    # Sums of integers do not depend on the order; `bincount` would read its length from the device.
    right = none.index_add(0, true, (mask & (chosen == true)).long())
    false_positive = none.index_add(0, chosen, mask.long()) - right
    false_negative = none.index_add(0, true, mask.long()) - right
    true_negative = mask.sum() - right - false_positive - false_negative
    counts = {"tp": right, "fp": false_positive, "tn": true_negative, "fn": false_negative}
    for name, values in counts.items():
        setattr(metric, name, getattr(metric, name) + (values.sum() if metric.average == "micro" else values))


class KnownAUROC(BinaryAUROC):
    """Area under the ROC curve of two classes; rows of the class -1 are removed when the area is computed.

    Examples:
        >>> metric = KnownAUROC()
        >>> metric.update(torch.tensor([0.1, 0.9, 0.4, 0.2]), torch.tensor([0, -1, 1, 1]))
        >>> metric.compute()
        tensor(1.)
    """

    takes_unknown = True
    preds: list[Tensor]
    target: list[Tensor]

    def update(self, preds: Tensor, target: Tensor) -> None:
        """Add probabilities `[rows, 2]` or of the second class `[rows]`, and classes `[rows]` or `[rows, 1]`."""
        self.preds.append(at_least_single((preds[:, 1] if preds.ndim == 2 else preds).detach()))
        self.target.append(target.detach().reshape(-1))

    def compute(self) -> Tensor:  # type: ignore[override]
        """Return the area; NaN if one of the classes has no row."""
        preds, target = dim_zero_cat(self.preds), dim_zero_cat(self.target)
        mask = target >= 0
        if len(target[mask].unique()) < 2:
            return torch.tensor(torch.nan, device=preds.device)
        return binary_auroc(preds[mask], target[mask]).float()


class MatthewsCorrelation(MulticlassMatthewsCorrCoef):
    """Matthews' correlation, see `metrics.matthews`: 0 if all rows are predicted to be of one class.

    Examples:
        >>> metric = MatthewsCorrelation(2)
        >>> metric.update(torch.tensor([[0.9, 0.1], [0.8, 0.2]]), torch.tensor([0, 1]))
        >>> metric.compute()
        tensor(0.)
    """

    def compute(self) -> Tensor:
        """Return the correlation."""
        return matthews(self.confmat)
