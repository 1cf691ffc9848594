"""Several yes-or-no labels per graph or node, some of them possibly unknown."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import ClassVar

import torch
from torch import Tensor
from torch.nn import functional as F
from torchmetrics import Metric

from graphbench.contracts.spec import BenchmarkSpec
from graphbench.contracts.table import WEIGHT, GraphBatch
from graphbench.errors import BadInput
from graphbench.nn.heads import HeadConfig
from graphbench.training.tasks.base import Task
from graphbench.training.tasks.defined import Need
from graphbench.training.tasks.losses import (
    ClassWeights,
    at_least_single,
    cell_weights,
    check_class_weights,
    chosen_terms,
    focal,
    label_weights,
    masked_terms,
)
from graphbench.training.tasks.metrics import (
    AllLabels,
    PerLabel,
    TaskAUROC,
    TaskAveragePrecision,
    label_accuracy,
    label_f1,
    label_mcc,
)

#: Value of an unknown label in torchmetrics metrics.
UNKNOWN = -1


class Multilabel(Task):
    """Binary cross-entropy over known labels, plain or focal; AP and AUROC as unweighted means over labels."""

    kind = "multilabel"
    losses = ("BCE", "focal")
    comparable = True
    discrete = True
    needs: ClassVar[Mapping[str, Need]] = {
        "AP": "contrast", "AUROC": "contrast", "MCC": "contrast", "macro_F1": "positive", "micro_F1": "positive",
        "accuracy": "rows",
    }  # fmt: skip
    #: Weights of 0 and 1 for each label in the loss `[2, T]`; None unless `weigh_classes` requested weights.
    class_weights: Tensor | None

    def __init__(self, spec: BenchmarkSpec, dim: int, head: HeadConfig) -> None:
        super().__init__(spec, dim, head)
        self.register_buffer("class_weights", None)
        self._wanted_weights: Sequence[float] | None = None
        self.head = self.make_head(dim, spec.output_dim, head)

    def weigh_classes(self, wanted: ClassWeights) -> None:
        """Request weights of 0 and 1 for each label, which `set_class_weights` computes from the training targets.

        Args:
            wanted: "balanced", so that 0s and 1s of a label have equal total weight; or for each label the weight of a
                1 relative to a 0, torch's `pos_weight`.

        Raises:
            BadInput: there are not as many numbers as labels, or one is not positive.
        """
        self._wanted_weights = check_class_weights(wanted, self.spec.num_targets, of="label")
        self.class_weights = torch.ones(2, self.spec.num_targets)

    def set_class_weights(self, targets: Tensor, weight: Tensor | None = None) -> None:
        """Set weights with mean 1 over the known training rows of each label, if any were requested.

        Targets are the labels of these rows `[rows, T]`, NaN where unknown, weighted in the loss by `weight` `[rows]`.
        """
        if self.class_weights is not None:
            self.class_weights.copy_(label_weights(self.known_targets(targets), self._wanted_weights, weight))

    def terms(self, output: Tensor, batch: GraphBatch) -> tuple[Tensor, Tensor]:
        """Sum the binary cross-entropy over known labels, each row and label with its weight."""
        mask, logits = ~batch.y.isnan(), at_least_single(output)
        weight = cell_weights(batch.get(WEIGHT), self.target_weights, logits)
        if self.chosen_loss is not None:
            weights = None if weight is None else weight[mask]
            return chosen_terms(self.chosen_loss, logits[mask], batch.y[mask].to(logits.dtype), weights)
        # Unknown labels also get a number: NaN would pass the mask in the gradient.
        truth = torch.where(mask, batch.y, 0.0).to(logits.dtype)
        values = F.binary_cross_entropy_with_logits(logits, truth, reduction="none")
        values = focal(values) if self.spec.loss == "focal" else values
        if self.class_weights is not None:
            no, yes = self.class_weights.to(values.dtype)
            values = values * torch.lerp(no.expand_as(values), yes.expand_as(values), truth)
        return masked_terms(values if weight is None else values * weight, mask)

    def known_targets(self, y: Tensor) -> Tensor:
        """Return labels `[rows, T]`."""
        return y.reshape(-1, self.spec.num_targets)

    def build_metrics(self) -> dict[str, Metric]:
        """Create AP and AUROC, averaged over labels that have both values."""
        return {"AP": TaskAveragePrecision(), "AUROC": TaskAUROC()}

    def target_metrics(self) -> dict[str, Metric]:
        """Create AP and AUROC of each label."""
        return {"AP": TaskAveragePrecision(alone=True), "AUROC": TaskAUROC(alone=True)}

    def named_metrics(self) -> dict[str, Metric]:
        """Create label means of Matthews' correlation, F1 and accuracy, and F1 of all labels, at the threshold 1/2.

        The correlation counts labels with both values, F1 those with a positive row, accuracy those with a known row.
        """
        return {
            "MCC": PerLabel(label_mcc),
            "macro_F1": PerLabel(label_f1, "positive"),
            "micro_F1": AllLabels(label_f1, "positive"),
            "accuracy": PerLabel(label_accuracy, "rows"),
        }

    def compared(self, metric: Metric, predictions: Tensor, targets: Tensor) -> tuple[Tensor, Tensor]:
        """Return probabilities and labels `[rows, T]`, -1 where unknown.

        Raises:
            BadInput: a label is unknown, and the metric would treat -1 as a label.
        """
        unknown = targets.isnan()
        if getattr(metric, "ignore_index", None) != UNKNOWN and bool(unknown.any()):
            raise BadInput(f"metrics: some labels are unknown; give {type(metric).__name__} ignore_index: {UNKNOWN}.")
        return predictions, torch.where(unknown, UNKNOWN, targets).long()

    def predict(self, output: Tensor, batch: GraphBatch) -> tuple[Tensor, Tensor]:
        """Return probabilities and labels (NaN where unknown), both `[rows, T]`."""
        # Not `sigmoid`, whose last bit depends on the position in the batch: AUROC and AP would lose ties.
        logits = at_least_single(output)
        return torch.stack((-logits, logits), -1).div(2).softmax(-1)[..., 1], batch.y


class GraphMultilabel(Multilabel):
    """Labels of graphs.

    Examples:
        >>> from graphbench.testing import tiny_spec
        >>> task = GraphMultilabel(tiny_spec("graph-multilabel"), dim=8, head=HeadConfig())
        >>> sorted(task.build_metrics())
        ['AP', 'AUROC']
    """

    level = "graph"


class NodeMultilabel(Multilabel):
    """Labels of nodes; a node whose labels are all unknown does not count.

    Examples:
        >>> from graphbench.contracts import Representation
        >>> from graphbench.testing import tiny_spec
        >>> task = NodeMultilabel(tiny_spec("node-multilabel"), dim=8, head=HeadConfig())
        >>> task(Representation(node=torch.ones(5, 8)), GraphBatch()).shape  # a logit per label
        torch.Size([5, 3])
    """

    level = "node"
