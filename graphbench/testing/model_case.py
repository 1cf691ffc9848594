"""Create the models that a contract tests, run them on tiny graphs in float64, and compare their outputs."""

from __future__ import annotations

import tempfile
from collections import Counter
from collections.abc import Mapping
from functools import partial
from itertools import product
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar, get_args
from unittest import SkipTest

import numpy as np
import torch
from torch import Tensor
from torch_geometric.data import Data

from graphbench.benchmarks.graphs.by_nodes.incoming import IncomingEdges
from graphbench.benchmarks.graphs.by_nodes.layers import represent_nodes
from graphbench.contracts import (
    Architecture,
    BenchmarkSpec,
    GraphBatch,
    GraphTable,
    NodeState,
    NodeStep,
    Representation,
)
from graphbench.contracts.spec import TaskName
from graphbench.errors import BadInput
from graphbench.testing.representations import by_graph, check_representation, parts
from graphbench.testing.tiny import FEATURE_KINDS, encode, tiny_spec, tiny_table

if TYPE_CHECKING:
    from graphbench.testing.precision import Precision


def all_specs() -> list[BenchmarkSpec]:
    """Return specifications of every task and every kind of features, the ordinary ones first."""
    return [tiny_spec(task, kind) for task in get_args(TaskName) for kind in FEATURE_KINDS]


def double_batch(table: GraphTable) -> GraphBatch:
    """Gather the whole table into a batch in float64."""
    return _as_double(table.batch(range(len(table))))


def _as_double(batch: GraphBatch) -> GraphBatch:
    double: GraphBatch = batch.apply(lambda tensor: tensor.double() if tensor.is_floating_point() else tensor)
    return double


def _precomputed_step(model: Architecture, step: NodeStep, batch: GraphBatch, state: NodeState) -> NodeState:
    return step(model.precomputed(batch), state)


def make_batch(model: Architecture, table: GraphTable) -> GraphBatch:
    """Gather the whole table with the encodings of a model, in float64."""
    return double_batch(encode(table, model.required_encodings()))


def loss_of(representation: Representation) -> Tensor:
    """Return a loss that depends on every number of the representation."""
    return torch.stack([tensor.float().square().mean() for tensor in parts(representation).values()]).sum()


def check_gradients(model: Architecture) -> None:
    """Fail if a parameter has a gradient that is not finite."""
    for name, parameter in model.named_parameters():
        assert parameter.grad is None or parameter.grad.isfinite().all(), f"the gradient of {name} is not finite"


class ModelCase:
    """Models of one architecture, and comparisons of their outputs; base class of `ArchitectureContract`."""

    #: The class under test.
    architecture: ClassVar[type[Architecture]]
    #: Options for its constructor; values that must not be shared between models belong in `make_model`.
    options: ClassVar[Mapping[str, Any]] = {}
    #: Specification to test on.
    spec: ClassVar[BenchmarkSpec | None] = None
    #: Why results may depend on node order and other graphs of a batch, if the published method is random; else "".
    random_method: ClassVar[str] = ""
    #: Relative and absolute tolerance of comparisons in float64.
    tolerance: ClassVar[float] = 1e-6

    def make_model(self, spec: BenchmarkSpec) -> Architecture:
        """Create a model; override it if keyword options are not enough."""
        return self.architecture(spec, **self.options)

    def taken_specifications(self, thorough: bool = False) -> dict[str, bool]:
        """Return whether the constructor accepts each tiny specification, by name; the resulting models must work.

        Each task and each kind of features is run once, since failures depend on one of the two, hardly ever on
        both; `thorough` runs every model.
        """
        taken, run = {}, Counter[str]()
        for task, kind in product(get_args(TaskName), FEATURE_KINDS):
            spec = tiny_spec(task, kind)
            model = self._try_model(spec)
            taken[spec.name] = model is not None
            if model is not None and (thorough or not (run[task] and run[kind])):
                run.update((task, kind))
                batch = make_batch(model, tiny_table(spec))
                check_representation(model(batch), batch, model.dim, model.edge_dim)
        return taken

    def _try_model(self, spec: BenchmarkSpec, seed: int = 0) -> Architecture | None:
        """Create a model in float64 and evaluation mode; None if it refuses the specification."""
        torch.manual_seed(seed)
        try:
            return self.make_model(spec).double().eval()
        except BadInput:
            return None

    def _model(self, seed: int = 0) -> Architecture:
        for spec in (self.spec,) if self.spec is not None else all_specs():
            model = self._try_model(spec, seed)
            if model is not None:
                return model
        raise AssertionError(f"{self.architecture.__name__} refuses every specification of this test with BadInput")

    def _train(self, precision: Precision) -> None:
        """Train on the specification of the other checks."""
        from graphbench.testing.precision import train_two_steps

        train_two_steps(self._model().spec, self.make_model, precision)

    def _skip_if_random(self) -> None:
        if self.random_method:
            raise SkipTest(self.random_method)

    def _assert_close(self, actual: Tensor, expected: Tensor, what: str) -> None:
        torch.testing.assert_close(
            actual, expected, rtol=self.tolerance, atol=self.tolerance, msg=lambda text: f"{what} differ.\n{text}"
        )

    def _assert_same_outputs(self, model: Architecture, actual: Data, expected: GraphBatch, what: str) -> None:
        torch.manual_seed(1)  # random methods draw the same numbers for both
        wanted = parts(model(expected))
        torch.manual_seed(1)
        for part, tensor in parts(model(actual)).items():
            self._assert_close(tensor, wanted[part], f"{part} outputs of {what}")

    def _assert_same_by_graph(
        self, actual: list[dict[str, Tensor]], expected: list[dict[str, Tensor]], without: str, under: str
    ) -> None:
        """Compare outputs of `by_graph`, except the part whose rows were moved."""
        for one, other in zip(expected, actual, strict=True):
            for part in one.keys() - {without}:
                self._assert_close(other[part], one[part], f"{part} outputs under {under}")

    def _compare_by_node_steps(self) -> None:
        models = [self._try_model(tiny_spec("node-classification", kind)) for kind in FEATURE_KINDS]
        models = [model for model in models if model is not None and model.node_steps()]
        if not models:
            raise SkipTest("the model has no steps from nodes to nodes")
        for model in models:
            assert model is not None
            table = encode(tiny_table(model.spec, sizes=[12]), model.required_encodings())
            edges = table.columns["edge_index"].numpy()
            order = np.argsort(edges[:, 1], kind="stable")
            ptr = np.concatenate([[0], np.cumsum(np.bincount(edges[:, 1], minlength=12))])
            by_steps = represent_nodes(
                table,
                IncomingEdges(ptr, edges[order, 0], order),
                [partial(_precomputed_step, model, step) for step in model.node_steps()],
                Path(tempfile.gettempdir()),
                _as_double,
                block=10 * model.dim,  # a few nodes and edges
            )
            self._assert_close(by_steps, model(double_batch(table)).node.detach(), "nodes by node_steps and by forward")

    def _compare_with_alone(self, model: Architecture, table: GraphTable) -> None:
        together = by_graph(model(double_batch(table)), double_batch(table))
        for graph, in_batch in enumerate(together):
            alone = double_batch(table.select(torch.tensor([graph])))
            for part, expected in by_graph(model(alone), alone)[0].items():
                self._assert_close(in_batch[part], expected, f"{part} outputs of graph {graph} alone and in a batch")
