"""Regression of graphs or nodes: L1, squared or Huber error, a variance or quantiles; MAE in the target's own units."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import torch
from torch import Tensor
from torch.nn import functional as F
from torchmetrics import MeanSquaredError, Metric
from torchmetrics.functional.regression import explained_variance, pearson_corrcoef, r2_score, spearman_corrcoef

from graphbench.contracts.architecture import Representation
from graphbench.contracts.spec import BenchmarkSpec
from graphbench.contracts.table import WEIGHT, GraphBatch
from graphbench.errors import BadInput
from graphbench.nn.heads import GraphHead, HeadConfig, NodeHead
from graphbench.tasks.base import Task
from graphbench.tasks.known import KnownMeanAbsoluteError, KnownMeanSquaredError
from graphbench.tasks.losses import at_least_single, masked_terms, weighted
from graphbench.tasks.metrics import PerTarget
from graphbench.tasks.spreads import LEVELS, GaussianSpread, QuantileSpread, Spread, quantile_levels


class Regression(Task):
    """One or several real targets per graph or node, NaN where unknown.

    The head's output is `(y - offset) / scale` per target; offset 0 and scale 1 unless `standardize` was called, so
    that losses are in scaled and metrics always in real units. The Huber loss of a scaled error e is `e^2 / 2` up to
    1 and `|e| - 1 / 2` above (Huber 1964). With the losses Gaussian and Quantile the head has several outputs for each
    target, predictions first, see `GaussianSpread` and `QuantileSpread`.

    Args:
        spec: the benchmark's description.
        dim: width of the representation.
        head: options of the head.
        quantiles: levels of the loss Quantile, 0.5 among them; 0.05, 0.5 and 0.95 if None.

    Raises:
        BadInput: there are levels for another loss, or they are none.
    """

    kind = "regression"
    losses = ("L1", "MSE", "Huber", "Gaussian", "Quantile")
    comparable = True
    #: Takes the width of the representation, the number of targets and the options of heads.
    head_class: type[GraphHead | NodeHead]
    offset: Tensor
    scale: Tensor

    def __init__(
        self, spec: BenchmarkSpec, dim: int, head: HeadConfig, quantiles: Sequence[float] | None = None
    ) -> None:
        super().__init__(spec, dim, head)
        if quantiles is not None and spec.loss != "Quantile":
            raise BadInput(f"quantiles is for the loss Quantile (--model.loss quantile), not for {spec.loss}.")
        self.spread = _spread(spec.loss, quantiles)
        self.spread_names = self.spread.names if self.spread else ()
        self.head = self.head_class(dim, spec.output_dim * (self.spread.outputs if self.spread else 1), head)
        self.register_buffer("offset", torch.zeros(spec.num_targets))
        self.register_buffer("scale", torch.ones(spec.num_targets))

    def standardize(self, targets: Tensor) -> None:
        """Take mean and standard deviation of the training targets `[rows, T]`; a constant target keeps scale 1."""
        known = ~targets.isnan()
        count = known.sum(0).clamp(min=1)
        values = torch.where(known, targets, 0.0).double()
        mean = values.sum(0) / count
        deviation = (torch.where(known, values - mean, 0.0).square().sum(0) / count).sqrt()
        self.offset.copy_(mean)
        self.scale.copy_(torch.where(deviation > 0, deviation, 1.0))

    def forward(self, representation: Representation, batch: GraphBatch) -> Tensor:
        """Scaled predictions `[rows, T]`, and behind them what else the loss needs."""
        output: Tensor = self.head(representation, batch)
        return output

    def terms(self, output: Tensor, batch: GraphBatch) -> tuple[Tensor, Tensor]:
        """Errors of the specification's loss, summed over known targets; each row with its weight."""
        target = (batch.y - self.offset) / self.scale
        known = ~target.isnan()
        target = torch.where(known, target, 0.0)
        difference = at_least_single(output[:, : self.spec.num_targets]) - target
        if self.spread is not None:
            errors = self.spread.errors(at_least_single(output), target)
        elif self.spec.loss == "Huber":
            errors = F.huber_loss(difference, torch.zeros_like(difference), reduction="none")
        else:
            errors = difference.abs() if self.spec.loss == "L1" else difference.square()
        return masked_terms(weighted(errors, batch.get(WEIGHT)), known)

    def build_metrics(self) -> dict[str, Metric]:
        """MAE and RMSE over all known targets."""
        return {"MAE": KnownMeanAbsoluteError(), "RMSE": KnownMeanSquaredError(squared=False)}

    def named_metrics(self) -> dict[str, Metric]:
        """Means over targets of the coefficient of determination, correlations and explained variance; the MSE."""
        return {
            "R2": PerTarget(r2_score),
            "Spearman": PerTarget(spearman_corrcoef),
            "Pearson": PerTarget(pearson_corrcoef),
            "explained_variance": PerTarget(explained_variance),
            "MSE": MeanSquaredError(),
        }

    def update(self, metrics: Mapping[str, Metric], output: Tensor, batch: GraphBatch) -> None:
        """Add the known targets of a batch."""
        predictions, targets = self.predict(output, batch)
        for metric in metrics.values():
            if isinstance(metric, (KnownMeanAbsoluteError, KnownMeanSquaredError)):
                metric.update(predictions, targets)
            else:  # of a class that extends this one
                metric.update(*self.compared(metric, predictions, targets))

    def compared(self, metric: Metric, predictions: Tensor, targets: Tensor) -> tuple[Tensor, Tensor]:
        """The known targets of all columns, one after the other `[known]`."""
        known = ~targets.isnan()
        return predictions[known], targets[known]

    def predict(self, output: Tensor, batch: GraphBatch) -> tuple[Tensor, Tensor]:
        """Predictions and targets in real units `[rows, T]`."""
        return self.centre(output), batch.y

    def centre(self, output: Tensor) -> Tensor:
        """Predictions in real units `[rows, T]`."""
        return output[:, : self.spec.num_targets].float() * self.scale + self.offset

    def spreads(self, output: Tensor) -> Tensor:
        """Standard deviations or quantiles in real units, see `Spread.values`."""
        return (
            super().spreads(output)
            if self.spread is None
            else self.spread.values(output.float(), self.offset, self.scale)
        )


def _spread(loss: str, quantiles: Sequence[float] | None) -> Spread | None:
    if loss == "Gaussian":
        return GaussianSpread()
    return QuantileSpread(quantile_levels(LEVELS if quantiles is None else quantiles)) if loss == "Quantile" else None


class GraphRegression(Regression):
    """One or several real targets per graph, NaN where unknown; see `Regression`.

    Examples:
        >>> import torch
        >>> from graphbench.testing import tiny_spec
        >>> task = GraphRegression(tiny_spec(), dim=8, head=HeadConfig())
        >>> task.standardize(torch.tensor([[1.0, 5.0], [3.0, 5.0], [float("nan"), 5.0]]))
        >>> task.offset, task.scale
        (tensor([2., 5.]), tensor([1., 1.]))
    """

    level = "graph"

    head_class = GraphHead  # pools the nodes of each graph


class NodeRegression(Regression):
    """One or several real targets per node, NaN where unknown; see `Regression`.

    Examples:
        >>> from graphbench.testing import tiny_spec
        >>> task = NodeRegression(tiny_spec("node-regression"), dim=8, head=HeadConfig())
        >>> task(Representation(node=torch.ones(5, 8)), GraphBatch()).shape  # a number per target
        torch.Size([5, 2])
    """

    level = "node"

    head_class = NodeHead
