"""Export a trained model as a program of `torch.export`, which runs in PyTorch without graphbench.

The program accepts tensors of a `GraphBatch` by name and returns predictions in the units of the benchmark. The numbers
of graphs, nodes, edges and rows of encodings are free.
"""

from __future__ import annotations

import contextlib
import io
import json
import logging
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn
from torch.export import Dim, ExportedProgram
from torch.fx.experimental import _config

from graphbench.contracts import Benchmark, BenchmarkSpec, Features, GraphBatch, GraphTable
from graphbench.contracts.encoding import encode
from graphbench.contracts.table import GRAPH, GRAPH_DENSE
from graphbench.errors import BadInput
from graphbench.training.module import BenchmarkModule
from graphbench.training.quiet import silenced
from graphbench.training.tasks.regression import Regression

log = logging.getLogger(__name__)

PROGRAM, INPUTS = "model.pt2", "inputs.json"
#: Tasks whose answers need more than the graphs.
_WITHOUT = ("ranking", "recovery")
#: Numbers of nodes of the graphs that a program is traced with, and of those it is checked with: one graph, one node,
#: equal sizes, more and larger graphs than before.
_TRACED = (3, 7, 5, 4)
_CHECKED = ((6, 2, 9, 3, 4, 12), (5,), (1,), (4, 4, 4), (1, 8))
#: Numbers of nodes of the example that comes with a program.
_EXAMPLE = (3, 4)
#: Loggers of PyTorch's compiler and of its exporter to ONNX: on failure they log whole graphs, and the error says what
#: is wrong.
LOGGERS = ("torch.fx.experimental.symbolic_shapes", "torch._export", "torch.onnx", "onnxscript", "onnx_ir")
#: Largest difference from the model itself in deviations of the targets, or between probabilities: float32 alone may
#: differ by 1.2e-4 deviations if the mean is a thousand of them.
_TOLERANCE = 2e-4


@dataclass(frozen=True)
class Fields:
    """The tensors of a batch that a program accepts.

    Args:
        axes: name -> what its rows count: graph, node, edge, pair, or the axis of an encoding; "pointer" for pointers,
            which have one row more than there are graphs.
    """

    axes: dict[str, str]

    @classmethod
    def of(cls, table: GraphTable) -> Fields:
        """Return those of batches from a table with its encodings."""
        batch = table.batch([0])
        axes = {name: column.axis for name, column in table.layout.items() if name != "y"}
        axes |= {name: "pointer" for name in map(str, batch.keys()) if name == "ptr" or name.endswith("_ptr")}
        axes |= {name: name.removesuffix("_batch") for name in map(str, batch.keys()) if name.endswith("_batch")}
        return cls(axes | {"batch": "node"})

    def values(self, batch: GraphBatch) -> dict[str, Tensor]:
        """Return their values in a batch."""
        return {name: batch[name] for name in self.axes}

    def shapes(self) -> dict[str, dict[int, Any]]:
        """Return the shapes for `torch.export`: the axis along which each input is free."""
        return {name: {1 if name == "edge_index" else 0: Dim.DYNAMIC} for name in self.axes}


class PlainTensors(nn.Module):
    """A model that accepts the tensors of a batch: `forward({"x": ..., "edge_index": ..., "batch": ..., "ptr": ...})`.

    A program must not have sizes of 0 or 1, which PyTorch treats as special cases. To avoid them for one graph, or a
    graph of one node, an empty graph joins the batch and every graph is padded with a node: neither changes an answer.
    """

    def __init__(self, module: BenchmarkModule, fields: Fields) -> None:
        super().__init__()
        self.module, self.fields = module, fields

    def forward(self, fields: dict[str, Tensor]) -> Tensor:
        """Return predictions `[num_graphs, C]` or `[num_nodes, C]`, as `graphbench predict` does."""
        batch = GraphBatch()
        for name, axis in self.fields.axes.items():
            batch[name] = _with_empty_graph(fields[name], axis)
        batch.num_nodes = fields["batch"].shape[0]
        # Pointers have one row more than there are graphs, and the empty graph is added.
        batch.num_graphs = fields["ptr"].shape[0]
        largest = batch.ptr.diff().max().item()
        # Guarantees for the tracer, which knows sizes only by name.
        torch._check(largest >= 1)
        torch._check(largest <= fields["batch"].shape[0])
        batch.max_nodes = largest + 1
        output = self.module(batch)
        batch.y = output  # tasks return targets with predictions
        predictions = self.module.task.predict(output, batch)[0]
        if self.module.spec.level != "graph":
            return predictions
        # With a mask: a slice would require several graphs.
        is_real = torch.arange(predictions.shape[0]) < fields["ptr"].shape[0] - 1
        return predictions[is_real]


def _with_empty_graph(value: Tensor, axis: str) -> Tensor:
    if axis == "pointer":
        return torch.cat([value, value[-1:]])
    return torch.cat([value, torch.zeros_like(value[:1])]) if axis == GRAPH else value


def program_files(module: BenchmarkModule, data: Benchmark) -> dict[str, tuple[bytes, str]]:
    """Return the program and a description of its inputs, as files of an export: name -> content and description."""
    program, fields = export_program(module, data.spec)
    content = io.BytesIO()
    torch.export.save(program, content)
    description = described_inputs(module, data, fields)
    return {
        PROGRAM: (content.getvalue(), "the computation, for torch.export.load(FILE).module()"),
        INPUTS: (json.dumps(description, indent=1).encode() + b"\n", f"what {PROGRAM} takes and returns"),
    }


def described_inputs(module: BenchmarkModule, data: Benchmark, fields: Fields) -> dict[str, Any]:
    """Describe the inputs and outputs of a program as JSON values: meaning, type, shape and an example of each."""
    inputs = {name: _described(name, axis, data.spec) for name, axis in fields.axes.items()}
    batch = _table(module, data.spec, _EXAMPLE).batch(range(len(_EXAMPLE)))
    for name, value in fields.values(batch).items():
        free = 1 if name == "edge_index" else 0
        shape = ["any" if place == free else size for place, size in enumerate(value.shape)]
        shown = {"dtype": str(value.dtype).removeprefix("torch."), "shape": shape}
        inputs[name] |= shown | {"example": value.tolist()}
    names = data.class_labels() if data.spec.num_classes else data.target_labels()
    return {"inputs": inputs, "outputs": list(names), "example": answers_of(module, batch).tolist()}


@torch.no_grad()
def answers_of(module: BenchmarkModule, batch: GraphBatch) -> Tensor:
    """Return the answers of a program: predictions `[num_graphs, C]` or `[num_nodes, C]`."""
    batch.y = output = module(batch)  # tasks return targets with predictions
    return module.task.predict(output, batch)[0]


def export_program(module: BenchmarkModule, spec: BenchmarkSpec) -> tuple[ExportedProgram, Fields]:
    """Export the model as a program, and compare both on graphs of sizes other than those it was traced with.

    Args:
        module: with its trained weights; in evaluation mode from now on.
        spec: of its benchmark; example graphs are generated to match it.

    Raises:
        BadInput: PyTorch cannot trace it with free sizes, or the answers differ; names the architecture.
    """
    name = type(module.architecture).__name__
    if spec.kind in _WITHOUT:
        raise BadInput(f"{name} cannot be exported: {spec.task}, the task of {spec.name}, needs more than the graphs.")
    module.eval()
    table = _table(module, spec, _TRACED)
    fields = Fields.of(table)
    plain = PlainTensors(module, fields).eval()
    try:
        with (
            silenced(LOGGERS, logging.CRITICAL),
            contextlib.redirect_stderr(io.StringIO()),  # receives the whole graph if tracing stops
            # Otherwise a tensor with a row per graph would require several graphs; PyTorch has no public name for it.
            _config.patch(backed_size_oblivious=bool(spec.graph.dense)),  # type: ignore[attr-defined]
        ):
            example = fields.values(table.batch(range(len(table))))
            program = torch.export.export(plain, (example,), dynamic_shapes={"fields": fields.shapes()})
    except Exception as error:  # whatever tracing raises in a model's code
        raise BadInput(f"{name} cannot be exported by torch.export: {reason_of(error)}") from error
    for node in program.graph.nodes:
        node.meta.pop("stack_trace", None)  # places in the sources on this machine
    check_answers(program.module(), module, fields, "torch.export")
    return program, fields


def check_answers(
    run: Callable[[dict[str, Tensor]], Tensor], module: BenchmarkModule, fields: Fields, exporter: str
) -> None:
    """Compare what was exported, which accepts `fields` of a batch, with the model on graphs of other sizes."""
    spec, name = module.spec, type(module.architecture).__name__
    for number, sizes in enumerate((_TRACED, *_CHECKED)):
        table = _table(module, spec, sizes, seed=number + 1)
        batch = table.batch(range(len(table)))
        values, expected = fields.values(batch), answers_of(module, batch)
        with torch.no_grad():
            try:
                output = run(values)
            except Exception as error:  # from a guard of the program, or its computation
                raise BadInput(
                    f"{name} cannot be exported by {exporter}: the program fails on graphs of {list(sizes)} nodes, "
                    f"which the model accepts: {reason_of(error)}"
                ) from error
        if output.shape != expected.shape or not _are_equal(module, output, expected):
            raise BadInput(
                f"{name} cannot be exported by {exporter}: on graphs of {list(sizes)} nodes the program's answers "
                "differ from the model's."
            )


def _are_equal(module: BenchmarkModule, output: Tensor, expected: Tensor) -> bool:
    """Compare answers; those of a regression in its scaled units, since targets may be tiny or far from 0."""
    task = module.task
    if isinstance(task, Regression):
        output, expected = ((task.transform(answers) - task.offset) / task.scale for answers in (output, expected))
    return bool(((output - expected).abs() <= _TOLERANCE * max(1.0, float(expected.abs().max()))).all())


def reason_of(error: BaseException) -> str:
    """Return the first line of PyTorch's error that gives its reason."""
    lines = [line.strip(" -") for line in str(error).splitlines() if line.strip()]
    return f"{type(error).__name__}: {' '.join(lines[:2])[:400]}"


# -- graphs to trace with --------------------------------------------------------------------------------------------


def _table(module: BenchmarkModule, spec: BenchmarkSpec, sizes: Sequence[int], seed: int = 0) -> GraphTable:
    """Return random connected graphs with the features of a specification and the encodings of a model."""
    generator = torch.Generator().manual_seed(seed)
    graphs = [_graph(spec, size, generator) for size in sizes]
    return encode(GraphTable.from_graphs(graphs), module.required_encodings())


def _graph(spec: BenchmarkSpec, num_nodes: int, generator: torch.Generator) -> dict[str, Any]:
    """Create a path with a few more edges; both directions of an edge have the same features."""
    more = torch.rand(num_nodes, num_nodes, generator=generator) < 1 / max(num_nodes, 1)
    ends = torch.triu(more, diagonal=2).nonzero().t()
    path = torch.arange(num_nodes - 1)
    half = torch.cat([torch.stack([path, path + 1]), ends], 1)
    graph: dict[str, Any] = {"num_nodes": num_nodes, "edge_index": torch.cat([half, half.flip(0)], 1)}
    graph |= _features(spec.node, num_nodes, ("x", "x_dense"), generator)
    once = _features(spec.edge, half.shape[1], ("edge_attr", "edge_dense"), generator)
    graph |= {name: torch.cat([value, value]) for name, value in once.items()}
    if spec.graph.dense:
        graph[GRAPH_DENSE] = torch.randn(1, spec.graph.dense, generator=generator)
    if spec.coordinates:
        graph["pos"] = torch.randn(num_nodes, spec.coordinates, generator=generator)
    return graph


def _features(features: Features, rows: int, names: tuple[str, str], generator: torch.Generator) -> dict[str, Tensor]:
    fields: dict[str, Tensor] = {}
    if features.vocabularies:
        columns = [torch.randint(size, (rows,), generator=generator) for size in features.vocabularies]
        fields[names[0]] = torch.stack(columns, 1)
    if features.dense:
        fields[names[1]] = torch.randn(rows, features.dense, generator=generator)
    return fields


# -- what the inputs are ---------------------------------------------------------------------------------------------

_WORDS = {
    "edge_index": "source and target node of each directed edge, nodes numbered through all graphs",
    "batch": "graph of each node, ascending",
    "ptr": "first node of each graph, and the number of all nodes",
    "x": "categorical features of each node",
    "x_dense": "real features of each node",
    "edge_attr": "categorical features of each edge",
    "edge_dense": "real features of each edge",
    "pos": "coordinates of each node",
    GRAPH_DENSE: "numbers of each graph, not scaled",
}


def _described(name: str, axis: str, spec: BenchmarkSpec) -> dict[str, Any]:
    words = _WORDS.get(name, f"pointers of {name.removesuffix('_ptr')}" if axis == "pointer" else f"a row per {axis}")
    features: Mapping[str, Features] = {"x": spec.node, "edge_attr": spec.edge}
    description: dict[str, Any] = {"what": words}
    if name == GRAPH_DENSE:
        description["names"] = list(spec.graph.names)
    if name in features:
        description["values"] = [f"0 .. {size - 1}" for size in features[name].vocabularies]
        description["names"] = list(features[name].names[: len(features[name].vocabularies)])
    return description
