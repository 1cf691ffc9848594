"""Build a module and its data in one call, for Python and notebooks."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

from torch import nn

from graphbench import registry
from graphbench.contracts import Architecture, Benchmark, BenchmarkSpec
from graphbench.errors import BadInput
from graphbench.training.arguments import check_options
from graphbench.training.module import BenchmarkModule


def build(
    architecture: str | Callable[[BenchmarkSpec], Architecture], benchmark: str | Benchmark, **options: Any
) -> tuple[BenchmarkModule, Benchmark]:
    """Build a module and its data in Python, without the command line.

    Args:
        architecture: registered name, or its class, or a callable `spec -> Architecture`.
        benchmark: registered name, or a benchmark object.
        **options: options of `BenchmarkModule`; `model_options` and `data_options` are mappings for the constructors.

    Returns:
        `(module, data)`; the data know which encodings the model needs.

    Raises:
        UnknownName: no such architecture or benchmark, or an option that it does not accept.
        BadInput: an argument or an option has the wrong type; the message names it.
    """
    model_options, data_options = options.pop("model_options", {}), options.pop("data_options", {})
    data = _data(benchmark, data_options)
    make = _architecture(architecture, model_options)
    check_options("build", BenchmarkModule, options)
    module = BenchmarkModule(data.spec, make, **options)
    data.require(module.required_encodings())
    return module, data


def _data(benchmark: object, options: object) -> Benchmark:
    """Return the benchmark; create it if its name was given."""
    if isinstance(benchmark, str):
        cls = registry.load("benchmarks", benchmark)
        check_options("data_options", cls, options)
        return cls(**options)  # type: ignore[arg-type]
    if isinstance(benchmark, type):
        raise BadInput(f"benchmark must be a benchmark or its name, but got the class {benchmark.__name__}: call it.")
    if not isinstance(benchmark, Benchmark):
        raise BadInput(
            f"benchmark must be a benchmark or its name, but got {type(benchmark).__name__}; graphs of your own are "
            "graphbench.benchmarks.Graphs(graphs)."
        )
    if options:
        raise BadInput(f"data_options need the name of a benchmark; {type(benchmark).__name__} is an object already.")
    return benchmark


def _architecture(architecture: object, options: object) -> Callable[[BenchmarkSpec], Architecture]:
    """Return a function that builds the architecture from the specification."""
    cls = registry.load("architectures", architecture) if isinstance(architecture, str) else architecture
    if isinstance(cls, type):
        check_options("model_options", cls, options)
        return partial(cls, **options)  # type: ignore[arg-type]
    if not callable(cls) or isinstance(cls, nn.Module):
        raise BadInput(
            "architecture must be a registered name, or a class or function that builds one from a specification, but "
            f"got {type(cls).__name__}."
        )
    if options:
        raise BadInput("model_options need the name of an architecture or its class, not a function.")
    return cls
