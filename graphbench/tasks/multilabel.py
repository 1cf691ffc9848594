"""Several yes-or-no labels per graph, some of them possibly unknown."""

from __future__ import annotations

import torch
from torch import Tensor
from torch.nn import functional as F
from torchmetrics import Metric

from graphbench.contracts.architecture import Representation
from graphbench.contracts.spec import BenchmarkSpec
from graphbench.contracts.table import GraphBatch
from graphbench.nn.heads import GraphHead, HeadConfig
from graphbench.tasks.base import Task
from graphbench.tasks.losses import at_least_single, masked_terms
from graphbench.tasks.metrics import TaskAUROC, TaskAveragePrecision


class GraphMultilabel(Task):
    """Binary cross-entropy over known labels; AP and AUROC as unweighted means over labels.

    Examples:
        >>> import torch
        >>> from graphbench.testing import tiny_spec
        >>> task = GraphMultilabel(tiny_spec("graph-multilabel"), dim=8, head=HeadConfig())
        >>> sorted(task.build_metrics())
        ['AP', 'AUROC']
    """

    losses = ("BCE",)

    def __init__(self, spec: BenchmarkSpec, dim: int, head: HeadConfig) -> None:
        super().__init__(spec, dim, head)
        self.head = GraphHead(dim, spec.output_dim, head)

    def forward(self, representation: Representation, batch: GraphBatch) -> Tensor:
        """Logits `[num_graphs, T]`."""
        return self.head(representation, batch)

    def terms(self, output: Tensor, batch: GraphBatch) -> tuple[Tensor, Tensor]:
        """Binary cross-entropy, summed over the labels that are known."""
        known, logits = ~batch.y.isnan(), at_least_single(output)
        truth = torch.where(known, batch.y, 0.0).to(logits.dtype)
        return masked_terms(F.binary_cross_entropy_with_logits(logits, truth, reduction="none"), known)

    def build_metrics(self) -> dict[str, Metric]:
        """AP and AUROC, averaged over labels that have both values."""
        return {"AP": TaskAveragePrecision(), "AUROC": TaskAUROC()}

    def predict(self, output: Tensor, batch: GraphBatch) -> tuple[Tensor, Tensor]:
        """Probabilities and labels (NaN where unknown), both `[num_graphs, T]`."""
        return output.float().sigmoid(), batch.y
