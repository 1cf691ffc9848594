"""Attribute a prediction to the nodes and edges of one graph with one of several methods."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal, get_args

from torch import Tensor

from graphbench.contracts import GraphBatch
from graphbench.errors import check_choice, check_range
from graphbench.inference import TrainingFacts
from graphbench.inference.attributions.integrated import integrated_gradients
from graphbench.inference.attributions.masking import masking
from graphbench.inference.attributions.myerson import myerson
from graphbench.inference.attributions.question import Question
from graphbench.training.module import BenchmarkModule

Method = Literal["integrated_gradients", "masking", "myerson"]


@dataclass(frozen=True)
class Attribution:
    """Contributions of a graph's nodes and edges to a prediction, relative to training's average node and edge.

    Args:
        nodes: of each node `[num_nodes]`, float64.
        edges: of each directed edge `[num_edges]`; None if the model reads no features of edges, and for Myerson
            values, whose nodes include what their edges add.
        prediction: in the unit of the target; a logit for classes.
        at_reference: the prediction for the graph if all nodes and edges have the mean features.
        errors: standard errors of `nodes` for Myerson values; 0 if these are exact.
        orders: random orders that Myerson values were computed with; 0 if they are exact.
    """

    nodes: Tensor
    edges: Tensor | None
    prediction: float
    at_reference: float
    errors: Tensor | None = None
    orders: int = 0

    @property
    def gap(self) -> float:
        """Return the difference between `prediction - at_reference` and the sum of the attributions.

        For integrated gradients it is the error of the quadrature; for masking, what parts contribute only together or
        redundantly; for Myerson values, what disconnected parts of a graph contribute only together.
        """
        total = float(self.nodes.sum()) + (0.0 if self.edges is None else float(self.edges.sum()))
        return self.prediction - self.at_reference - total


def attribute(
    module: BenchmarkModule,
    copies: Callable[[int], GraphBatch],
    facts: TrainingFacts,
    target: int | None = None,
    method: Method = "integrated_gradients",
    steps: int = 64,
    samples: int = 200,
    node: int | None = None,
) -> Attribution:
    """Compute attributions of the prediction for one graph, or for one of its nodes.

    Args:
        module: a trained model of a task about graphs or nodes.
        copies: creates a batch of this many copies of the graph, on the module's device.
        facts: the means of the training part, the reference for attributions.
        target: column of the prediction; for classes, the most probable one if None.
        method: integrated_gradients, masking or myerson.
        steps: for integrated gradients: nodes of the quadrature; more make the sum more exact.
        samples: for Myerson values: random orders, at least 2, if the graph is too large for exact ones.
        node: for a task about nodes: the node whose prediction is explained.

    Raises:
        BadInput: the model reads no features with a graphbench encoder, its task is not about graphs or nodes, the
            training means of its features are unknown, or the graph is too large for Myerson values.
        MissingExtra: integrated gradients need captum, which is not installed.

    Examples:
        A model that sums its nodes attributes to each its difference from the average node.

        >>> from types import SimpleNamespace
        >>> from graphbench.contracts import Architecture, Representation
        >>> from graphbench.nn import NodeEncoder
        >>> from graphbench.testing import tiny_spec, tiny_table
        >>> class Sum(Architecture):
        ...     def __init__(self, spec):
        ...         super().__init__(spec, 8)
        ...         self.encoder = NodeEncoder(spec, 8)
        ...     def forward(self, batch):
        ...         return Representation(self.encoder(batch))
        >>> spec = tiny_spec("graph-regression", "categorical")
        >>> table, module = tiny_table(spec, sizes=[4, 3]), BenchmarkModule(spec, Sum)
        >>> facts = TrainingFacts.of(table, SimpleNamespace(spec=spec))
        >>> found = attribute(module, lambda count: table.batch([0] * count), facts, target=0, method="masking")
        >>> found.nodes.shape, found.edges
        (torch.Size([4]), None)
    """
    check_choice("--method", method, get_args(Method))
    check_range("steps", steps, at_least=2, whole=True)
    check_range("samples", samples, at_least=2, whole=True)
    question = Question(module, copies, facts, target, node)
    if method == "myerson":
        values = myerson(question, samples)
        return Attribution(values.nodes, None, question.prediction, question.at_reference, values.errors, values.orders)
    nodes, edges = integrated_gradients(question, steps) if method == "integrated_gradients" else masking(question)
    return Attribution(nodes, edges, question.prediction, question.at_reference)
