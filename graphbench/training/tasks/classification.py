"""Classification of whole graphs, nodes or edges: one class each."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import ClassVar

import torch
from torch import Tensor
from torchmetrics import Metric
from torchmetrics.classification import BinaryAveragePrecision, MulticlassCohenKappa

from graphbench.contracts.spec import BenchmarkSpec
from graphbench.contracts.table import WEIGHT, GraphBatch
from graphbench.errors import BadInput, check_range
from graphbench.nn.heads import HeadConfig
from graphbench.training.tasks.base import Task
from graphbench.training.tasks.defined import Need
from graphbench.training.tasks.known import (
    KnownAccuracy,
    KnownAUROC,
    KnownF1Score,
    MatthewsCorrelation,
    PositiveF1Score,
)
from graphbench.training.tasks.losses import (
    ClassWeights,
    at_least_single,
    balanced_class_weights,
    check_class_weights,
    chosen_terms,
    class_terms,
    combine_classes,
)
from graphbench.training.tasks.metrics import CalibrationError, PartIoU, parts_of


class Classification(Task):
    """Cross-entropy, plain, weighted by rarity in the batch, or focal; two classes have one logit.

    Rows and classes may have weights (for classes see `weigh_classes`): the loss of n labelled rows is
    `sum(w_i w_c(i) l_i) / n`, so a row counts the same in every batch. Metrics count every row once.

    In training, labels may be smoothed (`smooth_labels`); losses in evaluation and metrics use the original labels.

    The focal loss of a row whose class has probability p is `-(1 - p)^2 log p` (Lin et al., "Focal loss for dense
    object detection", ICCV 2017, with gamma = 2).

    Examples:
        >>> import torch
        >>> from graphbench.testing import tiny_spec
        >>> task = GraphClassification(tiny_spec("graph-classification"), dim=8, head=HeadConfig())  # of 3 classes
        >>> task.weigh_classes("balanced")
        >>> task.set_class_weights(torch.tensor([0, 0, 1, 2]))
        >>> task.class_weights
        tensor([0.6667, 1.3333, 1.3333])
    """

    kind = "classification"
    losses = ("cross_entropy", "weighted_cross_entropy", "focal")
    comparable = True
    discrete = True
    #: Scores that compare classes are meaningless if only one class has rows.
    needs: ClassVar[Mapping[str, Need]] = {
        "class_accuracy": "contrast",
        "macro_F1": "contrast",
        "F1": "positive",
        "ECE": "rows",
    }
    #: Weight of each class in the loss `[C]`, saved in checkpoints; None unless `weigh_classes` requested weights.
    class_weights: Tensor | None

    def __init__(self, spec: BenchmarkSpec, dim: int, head: HeadConfig, edge_dim: int = 0) -> None:
        super().__init__(spec, dim, head)
        if spec.num_classes is None or spec.num_classes < 2:
            raise BadInput(f"{spec.name}: a classification needs num_classes >= 2, got {spec.num_classes}.")
        self.num_classes = spec.num_classes
        self.register_buffer("class_weights", None)
        self._wanted_weights: Sequence[float] | None = None
        self.label_smoothing = 0.0
        self.head = self.make_head(dim, spec.output_dim, head, edge_dim)

    def weigh_classes(self, wanted: ClassWeights) -> None:
        """Request weights of classes, which `set_class_weights` computes once the training targets are known.

        Args:
            wanted: "balanced" for `n / (C n_c)` for class c with n_c of n training rows; or a number for each class.

        Raises:
            BadInput: there are not as many numbers as classes, one is not positive, or the loss has its own weights.
        """
        if self.spec.loss == "weighted_cross_entropy":
            raise BadInput(
                "class_weights: the loss weighted_cross_entropy weighs classes itself, in each batch; choose "
                "--model.loss cross_entropy."
            )
        self._wanted_weights = check_class_weights(wanted, self.num_classes, of="class")
        # Ones until `set_class_weights`: a checkpoint needs the buffer to load into.
        self.class_weights = torch.ones(self.num_classes)

    def set_class_weights(self, targets: Tensor, weight: Tensor | None = None) -> None:
        """Set weights of classes with mean 1 over the training rows, if `weigh_classes` requested them.

        Targets are the classes of these rows `[rows]` or `[rows, 1]`, -1 without a label, weighted in the loss by
        `weight` `[rows]`.
        """
        if self.class_weights is None:
            return
        target = targets.reshape(-1).long()
        if self._wanted_weights is None:
            weights = balanced_class_weights(target, self.num_classes)
        else:
            weights = torch.tensor(self._wanted_weights, dtype=torch.float64)
        mask = target >= 0
        rows = weights[target[mask]]  # a mean of 1 over rows keeps the scale of the loss, and so good learning rates
        if weight is not None:
            rows = rows * weight.reshape(-1)[mask].double()
        self.class_weights.copy_(weights / rows.mean())

    def smooth_labels(self, amount: float) -> None:
        """Train on `1 - s + s / C` for the label's class and `s / C` for each other one of C classes, s the amount.

        This is torch's `CrossEntropyLoss(label_smoothing=s)` (Szegedy et al., "Rethinking the Inception architecture",
        CVPR 2016, section 7). If classes have weights, the whole row has the weight of its label's class.

        Raises:
            BadInput: s is not in [0, 1), or the loss is focal.
        """
        check_range("label_smoothing", amount, at_least=0, below=1)
        if amount and self.spec.loss == "focal":
            raise BadInput(
                "label_smoothing: the loss focal weighs a label by the probability of its class, which a smoothed one "
                "does not have; choose --model.loss cross_entropy."
            )
        self.label_smoothing = amount

    @property
    def groups(self) -> int:  # type: ignore[override]
        """The number of classes if each has its own term, else 1."""
        return self.num_classes if self.spec.loss == "weighted_cross_entropy" else 1

    def terms(self, output: Tensor, batch: GraphBatch) -> tuple[Tensor, Tensor]:
        """Sum the cross-entropy over all labels, or over those of each class, each row with its weights."""
        focus = 2.0 if self.spec.loss == "focal" else 0.0
        logits, target = at_least_single(output), batch.y.reshape(-1)
        weight = batch.get(WEIGHT)
        if self.chosen_loss is not None:
            mask = target >= 0
            if logits.shape[1] == 1:  # one logit for two classes
                logits = torch.cat([torch.zeros_like(logits), logits], 1)
            weights = None if weight is None else weight.reshape(-1)[mask]
            return chosen_terms(self.chosen_loss, logits[mask], target[mask], weights)
        # Losses in evaluation use the original labels, so that runs with and without smoothing are comparable.
        smoothing = self.label_smoothing if self.training else 0.0
        sums, counts = class_terms(logits, target, self.num_classes, focus, weight, smoothing)
        if self.class_weights is not None:
            # After summing, since all rows of a class have the same weight.
            sums = sums * self.class_weights.to(sums.dtype)
        if self.groups == 1:
            return sums.sum().reshape(1), counts.sum().reshape(1)
        return sums, counts

    def combine(self, sums: Tensor, counts: Tensor) -> Tensor:
        """Combine the terms into the specification's cross-entropy; classes are weighted by share of counted rows."""
        if self.groups == 1:
            return super().combine(sums, counts)
        return combine_classes(sums, counts, divide_by_weights=self.spec.output_dim > 1)

    def build_metrics(self) -> dict[str, Metric]:
        """Create plain accuracy, mean recall over classes, macro F1, and AUROC for two classes."""
        metrics: dict[str, Metric] = {
            "accuracy": KnownAccuracy(self.num_classes, average="micro"),
            "class_accuracy": KnownAccuracy(self.num_classes, average="macro"),
            "macro_F1": KnownF1Score(self.num_classes, average="macro"),
        }
        if self.num_classes == 2:
            metrics["AUROC"] = KnownAUROC()
        return metrics

    def named_metrics(self) -> dict[str, Metric]:
        """Create Matthews' correlation, Cohen's kappa and calibration error; AP and F1 of the second of two classes."""
        metrics: dict[str, Metric] = {
            "MCC": MatthewsCorrelation(self.num_classes),
            "kappa": MulticlassCohenKappa(self.num_classes),
            "ECE": CalibrationError(self.num_classes),
        }
        if self.num_classes == 2:
            metrics |= {"AP": BinaryAveragePrecision(), "F1": PositiveF1Score()}
        return metrics

    def compared(self, metric: Metric, predictions: Tensor, targets: Tensor) -> tuple[Tensor, Tensor]:
        """Return probabilities `[known, C]`, or those of the second class `[known]`, and classes of labelled rows."""
        binary = type(metric).__name__.startswith("Binary")
        mask = targets[:, 0] >= 0
        return predictions[mask, 1] if binary else predictions[mask], targets[mask, 0]

    def predict(self, output: Tensor, batch: GraphBatch) -> tuple[Tensor, Tensor]:
        """Return class probabilities `[rows, C]` and true classes `[rows, 1]`, -1 if a row has no label."""
        logits = at_least_single(output)
        if logits.shape[1] == 1:  # the softmax of these two is the sigmoid of the one
            logits = torch.cat((-logits, logits), 1) / 2
        truth = batch.get("y")  # None for predictions on a user's graphs
        truth = torch.full((len(logits), 1), -1, device=logits.device) if truth is None else truth.reshape(-1, 1)
        return logits.softmax(1), truth

    def known_targets(self, y: Tensor) -> Tensor:
        """Return classes `[rows, 1]` as numbers, NaN without a label."""
        classes = y.reshape(-1, 1)
        return torch.where(classes >= 0, classes.float(), torch.nan)


class GraphClassification(Classification):
    """One class per graph.

    Examples:
        >>> import torch
        >>> from graphbench.contracts import Representation
        >>> from graphbench.testing import tiny_spec
        >>> task = GraphClassification(tiny_spec("graph-classification"), dim=8, head=HeadConfig())
        >>> representation = Representation(node=torch.ones(3, 8), graph=torch.ones(2, 8))
        >>> task(representation, GraphBatch(num_graphs=2)).shape  # a logit per class
        torch.Size([2, 3])
    """

    level = "graph"


class NodeClassification(Classification):
    """One class per node; nodes of the class -1 have no label, so neither loss nor metrics count them.

    If the specification's `extra["parts"]` says how many parts each category of graphs has (column 0 of `x`), the
    classes are parts, and the IoU of parts is also scored: `instance_IoU` and `class_IoU`.

    Examples:
        >>> import torch
        >>> from graphbench.contracts import Representation
        >>> from graphbench.testing import tiny_spec
        >>> task = NodeClassification(tiny_spec("node-classification"), dim=8, head=HeadConfig())
        >>> task(Representation(node=torch.ones(5, 8)), GraphBatch()).shape  # a logit per class
        torch.Size([5, 4])
    """

    level = "node"

    def __init__(self, spec: BenchmarkSpec, dim: int, head: HeadConfig) -> None:
        super().__init__(spec, dim, head)
        self.parts = parts_of(spec.extra["parts"]) if "parts" in spec.extra else ()
        if self.parts and (sum(self.parts) != self.num_classes or spec.node.vocabularies[:1] != (len(self.parts),)):
            raise BadInput(
                f"{spec.name}: extra['parts'] names {len(self.parts)} categories with {sum(self.parts)} parts, but "
                f"there are {self.num_classes} classes, and node vocabularies {spec.node.vocabularies}."
            )

    def build_metrics(self) -> dict[str, Metric]:
        """Create the metrics of classes, and those of parts if there are any."""
        metrics = super().build_metrics()
        if self.parts:
            metrics["instance_IoU"] = PartIoU(self.parts, average="instance")
            metrics["class_IoU"] = PartIoU(self.parts, average="class")
        return metrics

    def update(self, metrics: Mapping[str, Metric], output: Tensor, batch: GraphBatch) -> None:
        """Add a batch; the IoU of parts reads whole graphs with their categories."""
        super().update({k: v for k, v in metrics.items() if not isinstance(v, PartIoU)}, output, batch)
        for metric in metrics.values():
            if isinstance(metric, PartIoU):
                metric.update(output, batch.y.reshape(-1), batch.batch, batch.x[batch.ptr[:-1], 0])


class EdgeClassification(Classification):
    """One class per directed edge; edges of the class -1 have no label, so neither loss nor metrics count them.

    Two classes are also scored by the F1 of the second one, as in TSP.

    Examples:
        >>> import torch
        >>> from graphbench.contracts import Representation
        >>> from graphbench.testing import tiny_spec, tiny_table
        >>> spec = tiny_spec("edge-classification")
        >>> task, batch = EdgeClassification(spec, dim=8, head=HeadConfig()), tiny_table(spec, sizes=[5]).batch([0])
        >>> task(Representation(node=torch.ones(5, 8)), batch).shape == (batch.edge_index.shape[1], 1)
        True
    """

    level = "edge"

    def build_metrics(self) -> dict[str, Metric]:
        """Create the metrics of classes, and F1 of the second of two classes."""
        metrics = super().build_metrics()
        return metrics | {"F1": PositiveF1Score()} if self.num_classes == 2 else metrics

    def named_metrics(self) -> dict[str, Metric]:
        """Create the named metrics of classes that are not always scored."""
        return {name: metric for name, metric in super().named_metrics().items() if name != "F1"}
