"""Recovery of a map: as many numbers per node as the benchmark has columns, up to scale (or signs)."""

from __future__ import annotations

from collections.abc import Mapping

import torch
from torch import Tensor, nn
from torchmetrics import Metric

from graphbench.contracts.architecture import Representation
from graphbench.contracts.spec import BenchmarkSpec
from graphbench.contracts.table import GraphBatch
from graphbench.nn.heads import HeadConfig, NodeHead
from graphbench.training.tasks.base import Task
from graphbench.training.tasks.losses import (
    at_least_single,
    column_map_errors,
    normalise_map,
    normalised_map_errors,
    sign_invariant_errors,
)
from graphbench.training.tasks.metrics import LogMean, ValueMean

#: Numbers of leading eigenvectors over which the paper averages.
_AVERAGED = (5, 10)
_ERRORS = {
    "normalised_MSE": normalised_map_errors, "column_MSE": column_map_errors, "eigenvector": sign_invariant_errors,
}  # fmt: skip


class MapRecovery(Task):
    """Map recovery as in "Graph Transformers Dream of Electric Flow" (arXiv 2410.16699), sections 3.5 and 4.1.

    * `normalised_MSE`: mean over graphs of `‖ Φ / ‖Φ‖_F - T / ‖T‖_F ‖²_F`, on which the authors' code trains.
    * `column_MSE`: mean over graphs and columns i of `‖ φ_i / ‖φ_i‖ - t_i / ‖t_i‖ ‖²`, which the paper prints.
    * `eigenvector`: mean over graphs and columns i of `min over signs of ‖ ±φ_i - v_i ‖²`, columns of unit length.

    The metrics are the loss ("MSE"), its natural logarithm ("log_loss"), and for eigenvectors the loss of every column,
    "loss_1", "loss_2", ..., and the means "loss_1-5" and "loss_1-10" if there are enough columns.

    A representation as wide as the targets is the prediction itself: the linear transformer returns the map. Any other
    width gets a head.

    Examples:
        >>> import torch
        >>> from graphbench.testing import tiny_spec
        >>> spec = tiny_spec("map-recovery")
        >>> task = MapRecovery(spec, dim=spec.num_targets, head=HeadConfig())
        >>> answer = torch.ones(5, spec.num_targets)
        >>> task(Representation(node=answer), GraphBatch()).shape  # as wide as the targets: no head
        torch.Size([5, 1])
    """

    level, kind = "node", "recovery"
    losses = ("normalised_MSE", "column_MSE", "eigenvector")

    def __init__(self, spec: BenchmarkSpec, dim: int, head: HeadConfig) -> None:
        super().__init__(spec, dim, head)
        self.head = nn.Identity() if dim == spec.num_targets else NodeHead(dim, spec.num_targets, head)

    def forward(self, representation: Representation, batch: GraphBatch) -> Tensor:
        """Return the map `[num_nodes, num_targets]`, up to scale."""
        return representation.node if isinstance(self.head, nn.Identity) else self.head(representation, batch)

    def errors(self, output: Tensor, batch: GraphBatch) -> Tensor:
        """Return squared errors: one per graph `[num_graphs]`, or per graph and column `[num_graphs, num_targets]`."""
        output = at_least_single(output)
        return _ERRORS[self.spec.loss](output, batch.y.to(output.dtype), batch.batch, batch.num_graphs)

    def terms(self, output: Tensor, batch: GraphBatch) -> tuple[Tensor, Tensor]:
        """Compute the sum and the number of the errors."""
        errors = self.errors(output, batch)
        return errors.sum().reshape(1), torch.full((1,), errors.numel(), device=errors.device)

    def build_metrics(self) -> dict[str, Metric]:
        """Create means over graphs, see the class."""
        metrics: dict[str, Metric] = {"log_loss": LogMean(), "MSE": ValueMean()}
        if self.spec.loss == "eigenvector":
            metrics |= {f"loss_{i + 1}": ValueMean() for i in range(self.spec.num_targets)}
            metrics |= {f"loss_1-{last}": ValueMean() for last in _AVERAGED if last <= self.spec.num_targets}
        return metrics

    def update(self, metrics: Mapping[str, Metric], output: Tensor, batch: GraphBatch) -> None:
        """Add the graphs of a batch."""
        errors = self.errors(output, batch)
        for name, metric in metrics.items():
            first, _, last = name.removeprefix("loss_").partition("-")  # "loss_3" or "loss_1-5", counted from 1
            columns = errors[:, int(first) - 1 : int(last or first)] if first.isdecimal() else errors
            metric.update(columns)

    def predict(self, output: Tensor, batch: GraphBatch) -> tuple[Tensor, Tensor]:
        """Return the predicted and the true map `[num_nodes, num_targets]`, both normalised as in the loss."""
        by_column = self.spec.loss != "normalised_MSE"
        target = batch.y.to(output.dtype)
        graphs = batch.batch, batch.num_graphs, by_column
        return normalise_map(output, *graphs), normalise_map(target, *graphs)
