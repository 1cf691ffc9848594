"""What all tasks share: a head on top of a representation, a loss, and metrics."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Mapping

from torch import Tensor, nn
from torchmetrics import Metric

from graphbench.contracts.architecture import Representation
from graphbench.contracts.spec import BenchmarkSpec
from graphbench.contracts.table import GraphBatch
from graphbench.errors import BadInput
from graphbench.nn.heads import HeadConfig


class Task(nn.Module):
    """Head, loss and metrics of one kind of benchmark.

    Subclasses set `losses` (the names of `BenchmarkSpec.loss` they know) and build `self.head` in `__init__`.

    Args:
        spec: the benchmark's description.
        dim: width of the representation.
        head: options of the head.
    """

    losses: tuple[str, ...] = ()
    head: nn.Module

    def __init__(self, spec: BenchmarkSpec, dim: int, head: HeadConfig) -> None:
        super().__init__()
        if spec.loss not in self.losses:
            raise BadInput(
                f"{spec.name} asks for the loss {spec.loss!r}, but {spec.task} knows {', '.join(self.losses)}."
            )
        self.spec = spec

    @abstractmethod
    def forward(self, representation: Representation, batch: GraphBatch) -> Tensor:
        """Raw outputs of the head, one row a graph or node: `[rows, output_dim]`."""

    @abstractmethod
    def loss(self, output: Tensor, batch: GraphBatch) -> Tensor:
        """The training loss of a batch, a scalar."""

    @abstractmethod
    def build_metrics(self) -> dict[str, Metric]:
        """Fresh metrics by name; the specification's own metric is among them."""

    @abstractmethod
    def predict(self, output: Tensor, batch: GraphBatch) -> tuple[Tensor, Tensor]:
        """Predictions `[rows, C]` and targets `[rows, T]` in the units of the specification."""

    def update(self, metrics: Mapping[str, Metric], output: Tensor, batch: GraphBatch) -> None:
        """Add a batch to every metric of `build_metrics`."""
        predictions, targets = self.predict(output, batch)
        for metric in metrics.values():
            metric.update(predictions, targets)

    def rows(self, batch: GraphBatch) -> int:
        """Labelled items in a batch: the weight of its loss in an average over a split."""
        return batch.num_graphs
