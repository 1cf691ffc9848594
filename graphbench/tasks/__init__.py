"""One file per task; `build_task` picks the one a specification names."""

from __future__ import annotations

from graphbench.contracts.spec import BenchmarkSpec
from graphbench.errors import BadInput
from graphbench.nn.heads import HeadConfig
from graphbench.tasks.base import Task as Task
from graphbench.tasks.classification import GraphClassification, NodeClassification
from graphbench.tasks.link_ranking import LinkRanking
from graphbench.tasks.map_recovery import MapRecovery
from graphbench.tasks.multilabel import GraphMultilabel
from graphbench.tasks.regression import GraphRegression

__all__ = [
    "TASKS",
    "GraphClassification",
    "GraphMultilabel",
    "GraphRegression",
    "LinkRanking",
    "MapRecovery",
    "NodeClassification",
    "Task",
    "build_task",
]

TASKS: dict[str, type[Task]] = {
    "graph-regression": GraphRegression,
    "graph-classification": GraphClassification,
    "graph-multilabel": GraphMultilabel,
    "node-classification": NodeClassification,
    "link-ranking": LinkRanking,
    "map-recovery": MapRecovery,
}


def build_task(spec: BenchmarkSpec, dim: int, head: HeadConfig) -> Task:
    """The task of `spec` on a representation of width `dim`.

    Raises:
        BadInput: the specification names a task, a loss or a metric that does not exist.

    Examples:
        >>> import torch
        >>> from graphbench.testing import tiny_spec
        >>> build_task(tiny_spec("graph-classification"), dim=8, head=HeadConfig()).head.mlp(torch.randn(5, 8)).shape
        torch.Size([5, 3])
    """
    if spec.task not in TASKS:
        raise BadInput(f"{spec.name} names the task {spec.task!r}; known: {', '.join(TASKS)}.")
    task = TASKS[spec.task](spec, dim, head)
    if spec.metric not in (known := task.build_metrics()):
        raise BadInput(f"{spec.name} asks for the metric {spec.metric!r}, but {spec.task} knows {', '.join(known)}.")
    return task
