"""A module and its data in one call, for Python and notebooks."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

from graphbench import registry
from graphbench.contracts import Architecture, Benchmark, BenchmarkSpec
from graphbench.errors import BadInput
from graphbench.training.module import BenchmarkModule


def build(
    architecture: str | Callable[[BenchmarkSpec], Architecture], benchmark: str | Benchmark, **options: Any
) -> tuple[BenchmarkModule, Benchmark]:
    """Make a module and its data in Python, without the command line.

    Args:
        architecture: registered name, or a callable `spec -> Architecture`.
        benchmark: registered name, or a benchmark object.
        **options: of `BenchmarkModule`; `model_options` and `data_options` are mappings for the two constructors.

    Returns:
        `(module, data)`; the data know which encodings the model needs.

    Raises:
        UnknownName: no such architecture or benchmark.
        BadInput: there is neither a benchmark nor the name of one.
    """
    model_options, data_options = options.pop("model_options", {}), options.pop("data_options", {})
    data = registry.load("benchmarks", benchmark)(**data_options) if isinstance(benchmark, str) else benchmark
    if not isinstance(data, Benchmark):
        raise BadInput(
            f"build takes a benchmark or its name, but got {type(data).__name__}; graphs of your own are "
            "graphbench.benchmarks.Graphs(graphs)."
        )
    if isinstance(architecture, str):
        cls: Callable[..., Architecture] = registry.load("architectures", architecture)
        make: Callable[[BenchmarkSpec], Architecture] = partial(cls, **model_options)
    else:
        make = architecture
    module = BenchmarkModule(data.spec, make, **options)
    data.require(module.required_encodings())
    return module, data
