"""Graph regression: L1 or squared error, MAE in the target's own units."""

from __future__ import annotations

from collections.abc import Mapping

import torch
from torch import Tensor
from torchmetrics import MeanAbsoluteError, MeanSquaredError, Metric

from graphbench.contracts.architecture import Representation
from graphbench.contracts.spec import BenchmarkSpec
from graphbench.contracts.table import GraphBatch
from graphbench.nn.heads import GraphHead, HeadConfig
from graphbench.tasks.base import Task
from graphbench.tasks.losses import at_least_single, masked_terms


class GraphRegression(Task):
    """One or several real targets per graph, NaN where unknown.

    The head's output is `(y - offset) / scale` per target; offset 0 and scale 1 unless `standardize` was called, so
    that losses are in scaled and metrics always in real units.

    Examples:
        >>> import torch
        >>> from graphbench.testing import tiny_spec
        >>> task = GraphRegression(tiny_spec(), dim=8, head=HeadConfig())
        >>> task.standardize(torch.tensor([[1.0, 5.0], [3.0, 5.0], [float("nan"), 5.0]]))
        >>> task.offset, task.scale
        (tensor([2., 5.]), tensor([1., 1.]))
    """

    losses = ("L1", "MSE")
    offset: Tensor
    scale: Tensor

    def __init__(self, spec: BenchmarkSpec, dim: int, head: HeadConfig) -> None:
        super().__init__(spec, dim, head)
        self.head = GraphHead(dim, spec.output_dim, head)
        self.register_buffer("offset", torch.zeros(spec.num_targets))
        self.register_buffer("scale", torch.ones(spec.num_targets))

    def standardize(self, targets: Tensor) -> None:
        """Take mean and standard deviation of the training targets `[graphs, T]`; a constant target keeps scale 1."""
        known = ~targets.isnan()
        count = known.sum(0).clamp(min=1)
        values = torch.where(known, targets, 0.0).double()
        mean = values.sum(0) / count
        deviation = (torch.where(known, values - mean, 0.0).square().sum(0) / count).sqrt()
        self.offset.copy_(mean)
        self.scale.copy_(torch.where(deviation > 0, deviation, 1.0))

    def forward(self, representation: Representation, batch: GraphBatch) -> Tensor:
        """Scaled predictions `[num_graphs, T]`."""
        return self.head(representation, batch)

    def terms(self, output: Tensor, batch: GraphBatch) -> tuple[Tensor, Tensor]:
        """Absolute or squared errors, summed over known targets."""
        target = (batch.y - self.offset) / self.scale
        known = ~target.isnan()
        difference = at_least_single(output) - torch.where(known, target, 0.0)
        return masked_terms(difference.abs() if self.spec.loss == "L1" else difference.square(), known)

    def build_metrics(self) -> dict[str, Metric]:
        """MAE and RMSE over all known targets."""
        return {"MAE": MeanAbsoluteError(), "RMSE": MeanSquaredError(squared=False)}

    def update(self, metrics: Mapping[str, Metric], output: Tensor, batch: GraphBatch) -> None:
        """Add the known targets of a batch."""
        predictions, targets = self.predict(output, batch)
        known = ~targets.isnan()
        for metric in metrics.values():
            metric.update(predictions[known], targets[known])

    def predict(self, output: Tensor, batch: GraphBatch) -> tuple[Tensor, Tensor]:
        """Predictions and targets in real units `[num_graphs, T]`."""
        return output.float() * self.scale + self.offset, batch.y
