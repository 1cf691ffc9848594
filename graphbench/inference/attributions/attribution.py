"""Attribute a prediction to the nodes and edges of one graph, by one of several methods."""

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
    """Contributions of a graph's nodes and edges to a prediction, measured from training's average node and edge.

    Args:
        nodes: of each node `[num_nodes]`, float64.
        edges: of each directed edge `[num_edges]`; None where the model reads no features of edges, and for Myerson
            values, where nodes get what their edges add.
        prediction: in the unit of the target; a logit for classes.
        at_reference: the prediction of the graph when all nodes and edges have the mean features.
        errors: standard errors of `nodes`, of Myerson values; 0 where these are exact.
        orders: random orders that Myerson values were drawn with; 0 where they are exact.
    """

    nodes: Tensor
    edges: Tensor | None
    prediction: float
    at_reference: float
    errors: Tensor | None = None
    orders: int = 0

    @property
    def gap(self) -> float:
        """Return how far the attributions are from summing to `prediction - at_reference`.

        Of integrated gradients it is what the quadrature missed; of masking what parts say only together, or each as
        well as another; of Myerson values what parts of a graph that no edges join say only together.
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
    """Attributions of the prediction of one graph, or of one of its nodes.

    Args:
        module: a trained model of a task about graphs or nodes.
        copies: makes a batch of so many copies of the graph, on the module's device.
        facts: the means of the training part, which attributions are measured from.
        target: column of the prediction; of classes the most probable one if None.
        method: integrated_gradients, masking or myerson.
        steps: of integrated gradients: nodes of the quadrature; more make the sum more exact.
        samples: of Myerson values: random orders, at least 2, where the graph is too large for exact ones.
        node: of a task about nodes, whose prediction is explained.

    Raises:
        BadInput: the model reads no features by an encoder of graphbench, its task is about other things, the training
            means of its features are not known, or the graph is too large for Myerson values.
        MissingExtra: integrated gradients need captum, which is not installed.

    Examples:
        A model that adds up its nodes gives each what it is more than the average node.

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
