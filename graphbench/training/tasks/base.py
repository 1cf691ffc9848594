"""Define the base class of all tasks: a head on a representation, a loss, and metrics."""

from __future__ import annotations

import re
from abc import abstractmethod
from collections.abc import Callable, Mapping
from typing import ClassVar

import torch
from torch import Tensor, nn
from torchmetrics import Metric

from graphbench.contracts.architecture import Representation
from graphbench.contracts.spec import BenchmarkSpec, Kind, Level
from graphbench.contracts.table import GraphBatch
from graphbench.errors import BadInput
from graphbench.nn.heads import EdgeHead, GraphHead, HeadConfig, NodeHead
from graphbench.training.tasks.defined import Need, TargetRange, TargetRanges, need_of


def target_labels(spec: BenchmarkSpec) -> tuple[str, ...]:
    """Return distinct names for logging each target's scores, without characters that trackers refuse.

    Examples:
        >>> import dataclasses
        >>> from graphbench.testing import tiny_spec
        >>> target_labels(dataclasses.replace(tiny_spec(), num_targets=2, target_names=("logS", "IC50 [nM]")))
        ('logS', 'IC50 _nM_')
    """
    names = spec.target_names if len(spec.target_names) == spec.num_targets else map(str, range(spec.num_targets))
    labels: list[str] = []
    for name in names:
        base = re.sub(r"[^\w\-. ]", "_", name).strip() or "target"
        candidates = (base, *(f"{base}_{number}" for number in range(2, len(labels) + 3)))
        labels.append(next(label for label in candidates if label not in labels))
    return tuple(labels)


class Task(nn.Module):
    """Head, loss and metrics of one kind of benchmark.

    Subclasses set `losses`, the names of `BenchmarkSpec.loss` that they support, and build `self.head` in `__init__`
    from the specification, the width `dim` of the representation and the options of the head.

    Examples:
        >>> import torch
        >>> from graphbench.testing import tiny_spec
        >>> from graphbench.training.tasks import build_task
        >>> task = build_task(tiny_spec("graph-regression"), dim=8, head=HeadConfig())
        >>> isinstance(task, Task), task.losses
        (True, ('L1', 'MSE', 'Huber', 'Gaussian', 'Quantile'))
    """

    #: What the task predicts for, and the kind of prediction; code that depends on a task reads these, not its name.
    level: ClassVar[Level]
    kind: ClassVar[Kind]
    losses: tuple[str, ...] = ()
    head: nn.Module
    #: Weight of each target in the loss `[T]`; None for equal weights.
    target_weights: Tensor | None
    #: Number of terms of the loss.
    groups: int = 1
    #: Number of optimizer steps so far, which seeds the samples of a training loss.
    step: int = 0
    #: Whether predictions are compared with targets row by row, so that any metric can score them.
    comparable: bool = False
    #: Why loss or metrics of a training batch force a host-device sync, see `Architecture.waits_for_device`.
    waits_for_device: str = ""
    #: Names of the values that a loss learns for each target in addition to its prediction, see `spreads`.
    spread_names: tuple[str, ...] = ()
    #: What the targets must have for each metric to be defined; for other metrics see `need_of`.
    needs: ClassVar[Mapping[str, Need]] = {}
    #: Whether targets are numbers of classes.
    discrete: ClassVar[bool] = False

    def __init__(self, spec: BenchmarkSpec, dim: int, head: HeadConfig) -> None:
        super().__init__()
        if (spec.level, spec.kind) != (self.level, self.kind):
            raise BadInput(
                f"{type(self).__name__} is a {self.kind} of {self.level}s, but the specification of {spec.name} says "
                f"level {spec.level} and kind {spec.kind}."
            )
        if spec.loss not in self.losses:
            raise BadInput(
                f"{spec.name} has the loss {spec.loss!r}, but {spec.task} supports {', '.join(self.losses)}."
            )
        if spec.target_weights and self.kind not in ("regression", "multilabel"):
            raise BadInput(f"target_weights is for several numbers or labels; {spec.name} is {spec.task}.")
        weights = torch.tensor(spec.target_weights) if spec.target_weights else None
        self.register_buffer("target_weights", weights, persistent=False)
        self.spec = spec
        #: The user's loss, which replaces the specification's.
        self.chosen_loss: Callable[[Tensor, Tensor], Tensor] | None = None
        #: Metrics in addition to those of `build_metrics`, by name; cloned for every use.
        self.further: dict[str, Metric] = {}

    def make_head(self, dim: int, outputs: int, head: HeadConfig, edge_dim: int = 0) -> GraphHead | NodeHead | EdgeHead:
        """Create the head for the task's level; `edge_dim` is the width of edges in the representation."""
        if self.level == "edge":
            return EdgeHead(dim, outputs, head, self.spec, edge_dim)
        graphs = self.level == "graph"
        return GraphHead(dim, outputs, head, self.spec.graph.dense) if graphs else NodeHead(dim, outputs, head)

    def forward(self, representation: Representation, batch: GraphBatch) -> Tensor:
        """Compute the raw outputs of the head, one row per graph, node or edge: `[rows, outputs]`."""
        return self.head(representation, batch)

    @abstractmethod
    def terms(self, output: Tensor, batch: GraphBatch) -> tuple[Tensor, Tensor]:
        """Compute the terms of a batch's loss: sums over rows `[groups]`, and numbers of rows `[groups]`.

        Terms of several batches, or of parts of a batch on several processes, add up to the terms of all rows.
        """

    def combine(self, sums: Tensor, counts: Tensor) -> Tensor:
        """Combine the terms into the loss, a scalar linear in `sums`; 0 (with gradients) without rows.

        Examples:
            >>> import torch
            >>> from graphbench.training.tasks import build_task
            >>> from graphbench.testing import tiny_spec
            >>> task = build_task(tiny_spec("graph-regression"), dim=8, head=HeadConfig())
            >>> task.combine(torch.tensor([3.0]), torch.tensor([4]))
            tensor(0.7500)
        """
        return (sums / counts.to(sums.dtype).clamp(min=1)).sum()

    def loss(self, output: Tensor, batch: GraphBatch) -> Tensor:
        """Compute the training loss of a batch, a scalar."""
        return self.combine(*self.terms(output, batch))

    @abstractmethod
    def predict(self, output: Tensor, batch: GraphBatch) -> tuple[Tensor, Tensor]:
        """Return predictions `[rows, C]` and targets `[rows, T]` in the units of the specification."""

    def spreads(self, output: Tensor) -> Tensor:
        """Return the values of `spread_names` for each target `[rows, T * len(spread_names)]`, target after target."""
        return output[:, :0]

    def named_spreads(self, output: Tensor) -> dict[str, Tensor]:
        """Return `spreads` by name, `[rows, T]` each."""
        if not self.spread_names:
            return {}
        values = self.spreads(output).unflatten(1, (-1, len(self.spread_names)))
        return dict(zip(self.spread_names, values.unbind(2), strict=True))

    # -- metrics -------------------------------------------------------------------------------------------------

    @abstractmethod
    def build_metrics(self) -> dict[str, Metric]:
        """Create metrics by name, including the specification's metric."""

    def named_metrics(self) -> dict[str, Metric]:
        """Create the metrics that a user can choose by name."""
        return {}

    def target_metrics(self) -> dict[str, Metric]:
        """Create metrics by name whose value is one number for each of several targets `[T]`."""
        return {}

    def all_metrics(self) -> dict[str, Metric]:
        """Create all metrics by name: those of `build_metrics`, and `further` ones."""
        return self.build_metrics() | {name: metric.clone() for name, metric in self.further.items()}

    def score(self, metrics: Mapping[str, Metric], output: Tensor, batch: GraphBatch) -> None:
        """Add a batch to metrics of `all_metrics`: those of `build_metrics` by `update`, and `further` ones."""
        self.update({name: metric for name, metric in metrics.items() if name not in self.further}, output, batch)
        if further := {name: metric for name, metric in metrics.items() if name in self.further}:
            self.compare(further, *self.predict(output, batch))

    def update(self, metrics: Mapping[str, Metric], output: Tensor, batch: GraphBatch) -> None:
        """Add a batch to metrics of `build_metrics`."""
        self.compare(metrics, *self.predict(output, batch))

    def compare(self, metrics: Mapping[str, Metric], predictions: Tensor, targets: Tensor) -> None:
        """Add predictions and targets of `predict` to metrics.

        Metrics of `graphbench.training.tasks` handle unknown targets themselves, which `takes_unknown` indicates;
        those of torchmetrics get the output of `compared`.
        """
        for metric in metrics.values():
            if getattr(metric, "takes_unknown", False):
                metric.update(predictions, targets)
                continue
            # Selecting rows forces a sync, but metrics of torchmetrics cannot ignore rows.
            compared = self.compared(metric, predictions, targets)
            if len(compared[1]):  # torchmetrics accepts no empty batch
                try:
                    metric.update(*compared)
                except (ValueError, RuntimeError) as error:  # from its checks, such as of the number of classes
                    if isinstance(error, torch.OutOfMemoryError):
                        raise
                    reason = str(error).strip().partition("\n")[0]
                    name = type(metric).__name__
                    raise BadInput(f"metrics: {name} does not fit {self.spec.task}: {reason}") from error

    def compared(self, metric: Metric, predictions: Tensor, targets: Tensor) -> tuple[Tensor, Tensor]:
        """Convert predictions and targets of `predict` to arguments of a torchmetrics metric."""
        return predictions, targets

    def metric_units(self) -> str:
        """Describe the units of scores of several targets, or of one in log10; "" if there is one unit."""
        return ""

    # -- undefined metrics ---------------------------------------------------------------------------------------

    def known_targets(self, y: Tensor) -> Tensor | None:
        """Return the column `y` of a table or a batch, `[rows, T]` with NaN where unknown, or None."""
        return None

    def undefined(self, targets: TargetRange) -> dict[str, str]:
        """Return metrics of `all_metrics` that are undefined for these targets, with the reason."""
        reasons = {n: targets.missing(need_of(n, metric, self.needs)) for n, metric in self.all_metrics().items()}
        return {name: reason for name, reason in reasons.items() if reason}

    def ranges(self) -> TargetRanges:
        """Create the metric that accumulates the range of targets over batches."""
        return TargetRanges(self.spec.num_targets if self.spec.num_classes is None else 1, self.discrete)
