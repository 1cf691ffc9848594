"""Export a trained model as an ONNX file, which runs in onnxruntime without PyTorch and graphbench.

PyTorch's exporter converts the program of `torch.export` to the file, which accepts the same tensors under the same
names. Its metadata describe it and its inputs.
"""

from __future__ import annotations

import contextlib
import io
import json
import logging
import re
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

from graphbench import __version__
from graphbench.contracts import Benchmark
from graphbench.contracts.table import EDGE, GRAPH, NODE
from graphbench.errors import BadInput, MissingExtra
from graphbench.inference.exporting.program import (
    INPUTS,
    LOGGERS,
    Fields,
    check_answers,
    described_inputs,
    export_program,
    reason_of,
)
from graphbench.training.module import BenchmarkModule
from graphbench.training.quiet import silenced

FILE, OUTPUT = "model.onnx", "predictions"
#: Names of numbers of rows in the file, by axis; those of encodings are named after their axis.
_NUMBERS = {GRAPH: "graphs", NODE: "nodes", EDGE: "edges", "pointer": "graphs_and_one"}


def onnx_files(module: BenchmarkModule, data: Benchmark) -> dict[str, tuple[bytes, str]]:
    """Return the ONNX file and a description of its inputs, as files of an export: name -> content and description."""
    content, description = export_onnx(module, data)
    return {
        FILE: (content, "the computation, for onnxruntime.InferenceSession(FILE)"),
        INPUTS: (json.dumps(description, indent=1).encode() + b"\n", f"what {FILE} takes and returns"),
    }


def export_onnx(module: BenchmarkModule, data: Benchmark) -> tuple[bytes, dict[str, Any]]:
    """Export the model to an ONNX file, and compare it in onnxruntime with the model on graphs of other sizes.

    Also return a description of its inputs, see `described_inputs`. The module is in evaluation mode afterwards; its
    benchmark need not be open.

    Raises:
        BadInput: PyTorch cannot trace the model with free sizes, ONNX lacks an operation, or the file's answers differ;
            the message names the architecture.
        MissingExtra: onnx, onnxscript or onnxruntime is not installed.
    """
    for package in ("onnx", "onnxscript", "onnxruntime"):
        try:
            __import__(package)
        except ImportError as error:
            raise MissingExtra(package, "onnx", "Export to ONNX") from error
    program, fields = export_program(module, data.spec)
    try:
        # The exporter's progress output is for its developers.
        output = io.StringIO()
        with (
            silenced(LOGGERS, logging.CRITICAL),
            contextlib.redirect_stdout(output),
            contextlib.redirect_stderr(output),
        ):
            exported: Any = torch.onnx.export(
                program,
                dynamo=True,
                input_names=list(fields.axes),
                output_names=[OUTPUT],
                custom_translation_table=translations(),
                optimize=False,  # it drops sums with numbers below 1e-8; onnxruntime optimises what it loads
            )
    except Exception as error:  # whatever the exporter meets in the program
        raise BadInput(
            f"{type(module.architecture).__name__} cannot be exported to ONNX: {reason_of(error.__cause__ or error)}"
        ) from error
    _tidy(exported.model, fields, module)
    description = described_inputs(module, data, fields)
    _describe(exported.model, module, data, description)
    content: bytes = exported.model_proto.SerializeToString()
    check_answers(session(content), module, fields, "the exporter to ONNX")
    return content, description


def session(content: bytes) -> Callable[[dict[str, Tensor]], Tensor]:
    """Return a function that computes the answers of an ONNX file for a batch with onnxruntime on a CPU."""
    import onnxruntime

    options = onnxruntime.SessionOptions()
    options.log_severity_level = 4  # errors are also raised
    options.intra_op_num_threads = torch.get_num_threads()
    running = onnxruntime.InferenceSession(content, options, providers=["CPUExecutionProvider"])

    def run(fields: dict[str, Tensor]) -> Tensor:
        (output,) = running.run(None, {name: value.numpy() for name, value in fields.items()})
        return torch.from_numpy(output)

    return run


def translations() -> dict[Any, Callable[..., Any]]:
    """Return translations of PyTorch operations that its exporter cannot translate with free sizes."""
    import onnxscript

    op: Any = onnxscript.opset18

    def repeat_interleave(repeats: Any, output_size: Any = None) -> Any:
        """Repeat the number i `repeats[i]` times, by counting the rows that end at or before each position."""
        ends = op.CumSum(repeats, op.Constant(value_int=0))
        total = op.Reshape(op.ReduceSum(repeats, keepdims=0), op.Constant(value_ints=[1]))
        places = op.Expand(op.Constant(value_int=0), op.Add(total, op.Constant(value_ints=[1])))
        ones = op.Expand(op.Constant(value_int=1), op.Shape(repeats))
        ended = op.CumSum(op.ScatterElements(places, ends, ones, reduction="add"), op.Constant(value_int=0))
        return op.Slice(ended, op.Constant(value_ints=[0]), total)

    def remainder(numbers: Any, divisor: Any) -> Any:
        """Compute Python's %; the divisor may be a free size."""
        if isinstance(divisor, (int, float)):
            divisor = op.Constant(value_float=float(divisor))
        divisor = op.CastLike(divisor, numbers)
        if numbers.dtype.is_integer():
            return op.Mod(numbers, divisor)
        return op.Sub(numbers, op.Mul(op.Floor(op.Div(numbers, divisor)), divisor))

    def sort(values: Any, stable: Any = None, dim: int = -1, descending: bool = False) -> Any:
        """Sort stably: among equal values, the earlier one comes first."""
        count = op.Gather(op.Shape(values), op.Constant(value_ints=[dim]))
        return op.TopK(values, count, axis=dim, largest=int(descending), sorted=1)

    return {
        torch.ops.aten.sort.stable: sort,
        torch.ops.aten.repeat_interleave.Tensor: repeat_interleave,
        torch.ops.aten.remainder.Scalar: remainder,
    }


def _tidy(model: Any, fields: Fields, module: BenchmarkModule) -> None:
    """Name free sizes, which PyTorch numbers, after what they count, and remove PyTorch's notes about its work."""
    names: dict[str, str] = {}
    for value in model.graph.inputs:
        axis = fields.axes[value.name]
        size = value.shape[1 if value.name == "edge_index" else 0]
        names.setdefault(str(getattr(size, "value", size)), _NUMBERS.get(axis, f"{axis}s"))
    rows = _NUMBERS[NODE if module.spec.level == "node" else GRAPH]
    (output,) = model.graph.outputs
    names.setdefault(str(getattr(output.shape[0], "value", output.shape[0])), rows)

    def rename(value: Any) -> None:
        for place, size in enumerate(() if value.shape is None else value.shape):
            if isinstance(text := getattr(size, "value", None), str):
                value.shape[place] = re.sub(r"[A-Za-z_]\w*", lambda word: names.get(word[0], word[0]), text)

    for value in model.graph.inputs:
        rename(value)
    for node in model.graph.all_nodes():
        node.metadata_props.clear()  # source locations on this machine
        for value in node.outputs:
            value.metadata_props.clear()
            rename(value)


def _describe(model: Any, module: BenchmarkModule, data: Benchmark, description: dict[str, Any]) -> None:
    """Write a description of the file and its inputs into it."""
    spec, name = data.spec, type(module.architecture).__name__
    inputs = {name: each["what"] for name, each in description["inputs"].items()}
    model.producer_name, model.producer_version = "graphbench", __version__
    model.doc_string = f"{name} on {spec.name}, for {spec.task}"
    for value in model.graph.inputs:
        value.doc_string = inputs[value.name]
    model.metadata_props.update(
        architecture=name, benchmark=spec.name, task=spec.task,
        inputs=json.dumps(inputs), outputs=json.dumps(description["outputs"]),
    )  # fmt: skip
