"""One file per task; `build_task` selects the one that a specification names."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable, Sequence
from typing import Any

from graphbench import registry
from graphbench.contracts.spec import BenchmarkSpec
from graphbench.errors import BadInput
from graphbench.nn.heads import HeadConfig
from graphbench.training.tasks.base import Task
from graphbench.training.tasks.choices import Choice, further_metrics, import_loss, selecting, target_losses, with_loss
from graphbench.training.tasks.classification import (
    Classification,
    EdgeClassification,
    GraphClassification,
    NodeClassification,
)
from graphbench.training.tasks.link_ranking import LinkRanking
from graphbench.training.tasks.losses import ClassWeights
from graphbench.training.tasks.map_recovery import MapRecovery
from graphbench.training.tasks.multilabel import GraphMultilabel, Multilabel, NodeMultilabel
from graphbench.training.tasks.regression import EdgeRegression, GraphRegression, NodeRegression, Regression

__all__ = [
    "TASKS",
    "EdgeClassification",
    "EdgeRegression",
    "GraphClassification",
    "GraphMultilabel",
    "GraphRegression",
    "LinkRanking",
    "MapRecovery",
    "NodeClassification",
    "NodeMultilabel",
    "NodeRegression",
    "Task",
    "build_task",
    "task_class",
]

TASKS: dict[str, type[Task]] = {
    "graph-regression": GraphRegression,
    "graph-classification": GraphClassification,
    "graph-multilabel": GraphMultilabel,
    "node-classification": NodeClassification,
    "node-multilabel": NodeMultilabel,
    "node-regression": NodeRegression,
    "edge-classification": EdgeClassification,
    "edge-regression": EdgeRegression,
    "link-ranking": LinkRanking,
    "map-recovery": MapRecovery,
}


def task_class(spec: BenchmarkSpec) -> type[Task]:
    """Return the class of a specification's task: one of `TASKS`, or one registered by a distribution.

    Raises:
        BadInput: there is no task of that name.
        BrokenPlugin: a registered class cannot be imported or is not a task.

    Examples:
        >>> from graphbench.testing import tiny_spec
        >>> task_class(tiny_spec("node-regression")).__name__
        'NodeRegression'
    """
    if spec.task in TASKS:
        return TASKS[spec.task]
    registered = registry.records("tasks")
    if spec.task not in registered:
        raise BadInput(
            f"{spec.name} names the task {spec.task!r}; known: {', '.join([*TASKS, *registered])}. A custom class "
            "is found by its entry point in the group graphbench.tasks."
        )
    return registry.load("tasks", spec.task)


def build_task(
    spec: BenchmarkSpec,
    dim: int,
    head: HeadConfig,
    loss: str | None = None,
    metrics: Iterable[Choice] = (),
    select_by: str | None = None,
    class_weights: ClassWeights | None = None,
    quantiles: Sequence[float] | None = None,
    label_smoothing: float = 0.0,
    edge_dim: int = 0,
) -> Task:
    """Build the task of `spec` on a representation of width `dim`, and of width `edge_dim` for edges, 0 without.

    The options are those of `BenchmarkModule`: for `loss` see `with_loss`, for `metrics` `further_metrics`, for
    `select_by` `selecting`, for `class_weights` `Classification` and `Multilabel`, for `label_smoothing`
    `Classification`, for `quantiles` `QuantileSpread`. The task's specification contains the choices.

    Raises:
        BadInput: the specification names a task, a loss or a metric that does not exist; or weights of classes,
            smoothing or quantiles are invalid.
        UnknownName: a choice does not exist.

    Examples:
        >>> import torch
        >>> from graphbench.testing import tiny_spec
        >>> build_task(tiny_spec("graph-classification"), dim=8, head=HeadConfig()).head.mlp(torch.randn(5, 8)).shape
        torch.Size([5, 3])
        >>> build_task(tiny_spec(), 8, HeadConfig(), metrics=["R2"], select_by="R2").spec.metric
        'R2'
    """
    cls = task_class(spec)
    if quantiles is not None and not issubclass(cls, Regression):
        raise BadInput(f"quantiles is for regressions; {spec.name} is {spec.task}.")
    options: dict[str, Any] = {} if quantiles is None else {"quantiles": quantiles}
    if issubclass(cls, EdgeClassification | EdgeRegression):
        options["edge_dim"] = edge_dim
    task = cls(with_loss(spec, cls, loss), dim, head, **options)
    if loss is not None:
        _choose_loss(task, loss, weighed=class_weights is not None or bool(label_smoothing))
    chosen = [*metrics]
    # A benchmark may select by a metric that its task scores only on request. Only names are compared: `==` of a
    # torchmetrics object is another metric, which counts as true.
    chosen_names = {choice.casefold() for choice in chosen if isinstance(choice, str)}
    if spec.metric in task.named_metrics() and spec.metric.casefold() not in chosen_names:
        chosen.append(spec.metric)
    task.further = further_metrics(task, chosen)
    if spec.metric not in (available := task.all_metrics()):
        raise BadInput(f"{spec.name} has the metric {spec.metric!r}, but {spec.task} supports {', '.join(available)}.")
    task.spec = selecting(task.spec, task, select_by)
    if class_weights is not None:
        if not isinstance(task, Classification | Multilabel):
            raise BadInput(f"class_weights is for classes and labels; {spec.name} is {spec.task}.")
        task.weigh_classes(class_weights)
    if isinstance(task, Classification):
        task.smooth_labels(label_smoothing)
    elif label_smoothing:
        raise BadInput(f"label_smoothing is for classifications; {spec.name} is {spec.task}.")
    return task


def _choose_loss(task: Task, loss: str, weighed: bool) -> None:
    """Give a task losses of single targets, or the user's loss; `with_loss` has handled losses known by name."""
    if "=" in loss and isinstance(task, Regression):
        task.set_target_losses(target_losses(loss))
    elif "." in loss:
        if weighed:
            raise BadInput(f"class_weights and label_smoothing are for graphbench's losses, not --model.loss {loss}.")
        task.chosen_loss = import_loss(loss)
        task.waits_for_device = "rows whose targets are known are selected for a custom loss"
    else:
        return
    task.spec = dataclasses.replace(task.spec, loss=loss)
