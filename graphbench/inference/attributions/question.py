"""One number that a model predicts for one graph, as a function of the encoded feature vectors."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import torch
from torch import Tensor

from graphbench.contracts import GraphBatch
from graphbench.diagnostics.encoders import recorded, replaced
from graphbench.errors import BadInput, check_range
from graphbench.inference import TrainingFacts
from graphbench.inference.attributions.reference import reference_of
from graphbench.training.module import BenchmarkModule
from graphbench.training.tasks.regression import Regression

#: Rows of nodes and edges that pass through a model at once, and the maximum number of copies of a graph.
_ROWS, _COPIES = 8192, 128


def explained(module: BenchmarkModule, batch: GraphBatch, node: int | None = None) -> Tensor:
    """Return the values to attribute `[num_graphs, C]`: regressions in the unit of their targets, else logits.

    If nodes are predicted, the batch has copies of one graph, and `node` is the number of the node in each copy.
    """
    output = module(batch).float()
    if isinstance(module.task, Regression):
        output = module.task.centre(output)
    return output if node is None else output.unflatten(0, (batch.num_graphs, -1))[:, node]


class Question:
    """Function to explain: F(h) with h the vectors of nodes and edges, relative to the reference h'.

    Args:
        module: a trained model of a task about graphs or nodes; in evaluation mode from now on.
        copies: creates a batch of this many copies of the graph, on the module's device.
        facts: the means of the training part.
        target: column of the prediction; for classes, the most probable one if None.
        node: for a task about nodes: the node whose prediction is explained.

    Raises:
        BadInput: the model reads no features with a graphbench encoder, its task is not about graphs or nodes, or a
            mean is unknown.
    """

    def __init__(
        self,
        module: BenchmarkModule,
        copies: Callable[[int], GraphBatch],
        facts: TrainingFacts,
        target: int | None = None,
        node: int | None = None,
    ) -> None:
        _check_task(module, node)
        self.module, self.copies, self.node = module.eval(), copies, node
        #: A batch of only this graph.
        self.graph = copies(1)
        if node is not None:
            check_range("--node", node, at_least=0, below=self.num_nodes, whole=True)
        with torch.no_grad(), recorded(module, self.graph) as calls:
            prediction = explained(module, self.graph, node)[0]
        if not calls:
            raise BadInput(
                f"{type(module.architecture).__name__} on {module.spec.name} cannot be explained: it reads no features "
                "of nodes or edges with graphbench.nn.FeatureEncoder."
            )
        self.kinds = [call.kind for call in calls]
        #: h and h' for each call of an encoder `[rows, dim]`.
        self.vectors = [call.output.float() for call in calls]
        self.reference = [reference_of(call, facts).float() for call in calls]
        self.column = _column(prediction, target)
        self.prediction = float(prediction[self.column])
        with torch.no_grad():
            self.at_reference = float(self.answers(*(value[None] for value in self.reference))[0, self.column])

    @property
    def num_nodes(self) -> int:
        """Number of nodes n of the graph."""
        return int(self.graph.num_nodes or 0)

    @property
    def num_edges(self) -> int:
        """Number of directed edges m of the graph."""
        return int(self.graph.edge_index.shape[1])

    @property
    def at_once(self) -> int:
        """Number of copies of the graph that pass through the model at once."""
        return max(1, min(_COPIES, _ROWS // max(self.num_nodes + self.num_edges, 1)))

    def answers(self, *outputs: Tensor) -> Tensor:
        """Return predictions `[copies, C]` for encoder outputs `[copies, rows, dim]`."""
        batch = self.copies(len(outputs[0]))
        with replaced(self.module, batch, [output.flatten(0, 1) for output in outputs]):
            return explained(self.module, batch, self.node)

    def masked(self, nodes: Tensor, edges: Tensor) -> Tensor:
        """Return F `[k]` if nodes `[k, n]` and edges `[k, m]` keep their vectors; others have the reference's."""
        parts = zip(nodes.split(self.at_once), edges.split(self.at_once), strict=True)
        values = [self._masked(*part) for part in parts]
        return torch.cat(values) if values else torch.zeros(0, dtype=torch.float64)

    @torch.no_grad()
    def _masked(self, nodes: Tensor, edges: Tensor) -> Tensor:
        outputs = []
        for kind, vectors, reference in zip(self.kinds, self.vectors, self.reference, strict=True):
            mask = (nodes if kind == "node" else edges).to(vectors.device)
            outputs.append(torch.where(mask[:, :, None], vectors, reference))
        return self.answers(*outputs)[:, self.column].cpu().double()


def _check_task(module: BenchmarkModule, node: int | None) -> None:
    """Refuse tasks about things other than graphs and nodes, and tasks about nodes without a node."""
    spec = module.spec
    if spec.level not in ("graph", "node") or spec.kind == "recovery":
        raise BadInput(f"{spec.name} cannot be explained: {spec.task} is not about graphs or nodes.")
    if (spec.level == "node") != (node is not None):
        advice = "name the node to explain" if node is None else "it has no prediction of single nodes"
        raise BadInput(f"--node: {spec.name} is {spec.task}; {advice}.")


def _column(prediction: Tensor, target: int | None) -> int:
    """Return the column to explain; two classes share one logit."""
    if len(prediction) == 1:
        return 0
    return int(prediction.argmax()) if target is None else target


def lines_of(edge_index: Tensor) -> tuple[Tensor, int]:
    """Return the line of each directed edge `[m]`, shared by all edges of the same two nodes, and the number of lines.

    Examples:
        >>> lines_of(torch.tensor([[0, 1, 1, 2], [1, 0, 2, 1]]))
        (tensor([0, 0, 1, 1]), 2)
    """
    pairs, line = edge_index.cpu().sort(0).values.unique(dim=1, return_inverse=True)
    return line, pairs.shape[1]


def spread_over_edges(values: Sequence[float] | Tensor, line: Tensor) -> Tensor:
    """Spread the value of each line `[lines]` in equal parts over its edges `[m]`."""
    per_line = torch.as_tensor(values, dtype=torch.float64)
    return per_line[line] / line.bincount(minlength=len(per_line))[line]
