"""Integrated gradients of a prediction, along the vectors that features become.

Sundararajan, Taly & Yan, "Axiomatic attribution for deep networks", ICML 2017, arXiv 1703.01365, equation 1:

    IG_i(h) = (h_i - h'_i) int_0^1 dF/dh_i (h' + a (h - h')) da

with h the outputs of the encoders of nodes and edges, h' = 0 (a node or an edge without features) and F the prediction.
Their sum over all i is F(h) - F(0): what the graph's structure says alone, without features, is in F(0). The integral
is taken by captum with Gauss-Legendre quadrature.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from graphbench.attributions.encoders import recorded, replaced
from graphbench.contracts import GraphBatch
from graphbench.errors import BadInput, MissingExtra, check_range
from graphbench.tasks.regression import Regression
from graphbench.training.module import BenchmarkModule

#: Copies of a graph that go through the model at once.
_AT_ONCE = 16


@dataclass(frozen=True)
class Attribution:
    """What nodes and edges of one graph add to a prediction.

    Args:
        nodes: of each node `[num_nodes]`.
        edges: of each directed edge `[num_edges]`; None where the model reads no features of edges.
        prediction: in the unit of the target; a logit for classes.
        without_features: the prediction of the graph when no node and edge has features.
    """

    nodes: Tensor
    edges: Tensor | None
    prediction: float
    without_features: float

    @property
    def gap(self) -> float:
        """What the integral missed: the attributions should sum to `prediction - without_features`."""
        total = self.nodes.sum() + (0.0 if self.edges is None else self.edges.sum())
        return self.prediction - self.without_features - float(total)


def explained(module: BenchmarkModule, batch: GraphBatch, node: int | None = None) -> Tensor:
    """What is attributed `[num_graphs, C]`: regressions in the unit of their targets, else logits.

    Args:
        module: of a task about graphs, or about nodes.
        batch: the graphs; where nodes are predicted, copies of one.
        node: which node of each copy.
    """
    output = module(batch).float()
    if isinstance(module.task, Regression):
        output = module.task.centre(output)
    return output if node is None else output.unflatten(0, (batch.num_graphs, -1))[:, node]


def attribute(
    module: BenchmarkModule,
    copies: Callable[[int], GraphBatch],
    target: int | None = None,
    steps: int = 64,
    node: int | None = None,
) -> Attribution:
    """Integrated gradients of the prediction of one graph, or of one of its nodes.

    Args:
        module: a trained model of a task about graphs or nodes.
        copies: makes a batch of so many copies of the graph, on the module's device.
        target: column of the prediction; of classes the most probable one if None.
        steps: nodes of the quadrature; more make the sum more exact.
        node: of a task about nodes, whose prediction is explained.

    Raises:
        BadInput: the model reads no features by an encoder of graphbench, or its task is about other things.
        MissingExtra: captum is not installed.
    """
    check_range("steps", steps, at_least=2, whole=True)
    _check_task(module, node)
    try:
        from captum.attr import IntegratedGradients
    except ImportError as error:
        raise MissingExtra("captum", "explain", "Explaining predictions") from error
    module.eval()
    one = copies(1)
    if node is not None:
        check_range("--node", node, at_least=0, below=int(one.num_nodes or 0), whole=True)
    with torch.no_grad(), recorded(module, one) as calls:
        prediction = explained(module, one, node)[0]
    if not calls:
        raise BadInput(
            f"{type(module.architecture).__name__} on {module.spec.name} cannot be explained: it reads no features of "
            "nodes or edges by graphbench.nn.FeatureEncoder."
        )
    column = _column(prediction, target)

    def forward(*outputs: Tensor) -> Any:
        """Predictions `[copies, C]` with encoder outputs `[copies, rows, dim]`."""
        batch = copies(len(outputs[0]))
        with replaced(module, batch, [output.flatten(0, 1) for output in outputs]):
            # Adds nothing, but gives a gradient to what an encoder returned and nothing read.
            nothing = 0.0 * torch.stack([output.flatten(1).sum(1) for output in outputs]).sum(0)
            return explained(module, batch, node) + nothing[:, None]

    inputs = tuple(call.output.float()[None] for call in calls)
    with torch.enable_grad():
        found = IntegratedGradients(forward).attribute(
            inputs, target=column, n_steps=steps, internal_batch_size=_AT_ONCE
        )
    with torch.no_grad():
        bare = forward(*(torch.zeros_like(value) for value in inputs))[0]
    rows = {kind: [part[0].sum(-1) for part, call in zip(found, calls, strict=True) if call.kind == kind]
            for kind in ("node", "edge")}  # fmt: skip
    nodes = sum(rows["node"], torch.zeros(int(one.num_nodes or 0), device=bare.device))
    edges = torch.stack(rows["edge"]).sum(0).detach().cpu() if rows["edge"] else None
    return Attribution(nodes.detach().cpu(), edges, float(prediction[column]), float(bare[column]))


def _check_task(module: BenchmarkModule, node: int | None) -> None:
    """Refuse tasks about other things than graphs and nodes, and those about nodes without one."""
    spec = module.spec
    if spec.level not in ("graph", "node") or spec.kind == "recovery":
        raise BadInput(f"{spec.name} cannot be explained: {spec.task} is not about graphs or nodes.")
    if (spec.level == "node") != (node is not None):
        told = "name the node to explain" if node is None else "it has no prediction of single nodes"
        raise BadInput(f"--node: {spec.name} is {spec.task}; {told}.")


def _column(prediction: Tensor, target: int | None) -> int:
    """The column to explain; two classes share one logit."""
    if len(prediction) == 1:
        return 0
    return int(prediction.argmax()) if target is None else target
