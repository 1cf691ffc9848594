"""Determine which scores are defined for the known targets of a split, and explain why others are not."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

import torch
from torch import Tensor
from torchmetrics import Metric

from graphbench.contracts.devices import is_apple

#: Requirement of a score: a known target ("rows"), a column with two different known values ("contrast"), or a column
#: with a row of class 1 ("positive").
Need = Literal["rows", "contrast", "positive"]
#: Parts of the class names of torchmetrics whose scores compare classes or explain a variance.
_CONTRASTS = (
    "AUROC", "AveragePrecision", "Kappa", "Matthews", "F1Score", "FBeta", "Recall", "Sensitivity", "Specificity",
    "R2", "Pearson", "Spearman", "Kendall", "Concordance", "ExplainedVariance", "RelativeSquared",
)  # fmt: skip


#: Reason why the score of NaN or infinite predictions is undefined.
NOT_FINITE = "predictions are not finite"


@dataclass(frozen=True)
class TargetRange:
    """Number and range of the known targets in each of T columns.

    Examples:
        >>> TargetRange.of(torch.tensor([[0.0, 5.0], [1.0, 5.0], [float("nan"), 5.0]]))
        TargetRange(rows=(2, 3), low=(0.0, 5.0), high=(1.0, 5.0), discrete=False)
    """

    rows: tuple[int, ...]  # number of known targets in each column
    low: tuple[float, ...]  # the smallest of them; infinite if none is known
    high: tuple[float, ...]  # the largest
    discrete: bool = False  # whether targets are class numbers

    def column(self, number: int) -> TargetRange:
        """Return the range of one column."""
        return TargetRange((self.rows[number],), (self.low[number],), (self.high[number],), self.discrete)

    @classmethod
    def of(cls, targets: Tensor, discrete: bool = False) -> TargetRange:
        """Return the range of targets `[rows, T]`, NaN where unknown."""
        metric = TargetRanges(targets.shape[1], discrete)
        metric.update(targets)
        return metric.result()

    def missing(self, need: Need) -> str:
        """Return why a score with this need is undefined; "" if it is defined.

        Examples:
            >>> TargetRange((6,), (0.0,), (0.0,), discrete=True).missing("contrast")
            'all 6 known targets are of class 0'
            >>> TargetRange((6,), (0.0,), (0.0,), discrete=True).missing("rows")
            ''
        """
        total = sum(self.rows)
        if not total:
            return "no target is known"
        if need == "contrast" and not any(low < high for low, high in zip(self.low, self.high, strict=True)):
            if len(self.rows) > 1:
                return "no target has two different known values"
            value = f"of class {self.low[0]:g}" if self.discrete else f"{self.low[0]:.6g}"
            return f"all {total} known targets are {value}" if total > 1 else f"its one known target is {value}"
        if need == "positive" and not any(high >= 1 for high in self.high):
            return f"all {total} known labels are 0"
        return ""


class OwnMetric(Metric):
    """Base class of metrics without gradients, whose batches are added independently of each other."""

    is_differentiable = False
    full_state_update = False

    def _apply(self, fn: Any, exclude_state: Sequence[str] = "") -> OwnMetric:
        """Move to a device; states in float64 are first converted if the device does not support it."""
        if is_apple(fn(torch.empty(0)).device):
            for name, default in self._defaults.items():
                if isinstance(default, Tensor) and default.dtype == torch.float64:
                    self._defaults[name] = default.float()
                    setattr(self, name, getattr(self, name).float())
        super()._apply(fn, exclude_state)
        return self


class TargetRanges(OwnMetric):
    """Accumulate a `TargetRange` over batches and processes, without a host-device sync."""

    rows: Tensor
    low: Tensor
    high: Tensor

    def __init__(self, columns: int, discrete: bool = False) -> None:
        super().__init__()
        self.discrete = discrete
        self.add_state("rows", default=torch.zeros(columns, dtype=torch.int64), dist_reduce_fx="sum")
        # Always float64, as targets may be: a process without rows would otherwise send another dtype than the others.
        most = torch.full((columns,), torch.inf, dtype=torch.float64)
        self.add_state("low", default=most, dist_reduce_fx="min")
        self.add_state("high", default=-most, dist_reduce_fx="max")

    def update(self, targets: Tensor) -> None:
        """Add targets `[rows, T]`, NaN where unknown."""
        if not len(targets):  # `amin` of no rows is an error
            return
        mask = ~targets.isnan()
        self.rows = self.rows + mask.sum(0)
        self.low = torch.minimum(self.low, torch.where(mask, targets, torch.inf).amin(0))
        self.high = torch.maximum(self.high, torch.where(mask, targets, -torch.inf).amax(0))

    def compute(self) -> Tensor:
        """Return known rows, smallest and largest values `[3, T]`, float64 on the CPU."""
        return torch.stack([state.cpu().double() for state in (self.rows, self.low, self.high)])

    def result(self) -> TargetRange:
        """Return the accumulated range."""
        rows, low, high = self.compute().tolist()
        return TargetRange(tuple(map(int, rows)), tuple(low), tuple(high), discrete=self.discrete)


class BrokenPredictions(OwnMetric):
    """Count predictions that are not finite although the target is known, over batches and processes.

    Scores that sort predictions treat NaN as the largest number, and so are finite themselves. Predictions with
    `columns` columns are counted by column, others all together.

    Examples:
        >>> metric = BrokenPredictions(2)
        >>> targets = torch.tensor([[0.0, 1.0], [0.0, torch.nan]])
        >>> metric.update(torch.tensor([[1.0, torch.nan], [2.0, torch.inf]]), targets)
        >>> metric.compute()
        tensor([0, 1])
    """

    count: Tensor

    def __init__(self, columns: int) -> None:
        super().__init__()
        self.add_state("count", default=torch.zeros(columns, dtype=torch.int64), dist_reduce_fx="sum")

    def update(self, predictions: Tensor, known: Tensor | None) -> None:
        """Add predictions or outputs `[rows, C]`, and targets `[rows, C]` or `[rows, 1]`, NaN where unknown."""
        broken = ~predictions.isfinite()
        broken = broken if known is None else broken & ~known.isnan()
        self.count = self.count + (broken.sum(0) if broken.shape[1] == len(self.count) else broken.sum())

    def compute(self) -> Tensor:
        """Return the counts `[columns]`."""
        return self.count


def need_of(name: str, metric: Metric, needs: Mapping[str, Need]) -> Need:
    """Return the need of a metric: that of its name in `needs`, else that of its torchmetrics class."""
    if name in needs:
        return needs[name]
    return "contrast" if any(part in type(metric).__name__ for part in _CONTRASTS) else "rows"


def why_not_a_number(value: float, loss: float) -> str:
    """Return why a score is NaN although its targets define it; "" if it is not NaN."""
    if not math.isnan(value):
        return ""
    return NOT_FINITE if not math.isfinite(loss) else "predictions are all equal"
