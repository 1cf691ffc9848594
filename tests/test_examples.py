"""The examples in docstrings run and print what they show."""

from __future__ import annotations

import doctest
import importlib
import pkgutil
from importlib.util import find_spec
from typing import get_args

import pytest
import torch

#: Packages whose public classes and functions all have an example; all examples of their modules run.
COMPLETE = (
    "graphbench.contracts",
    "graphbench.data",
    "graphbench.diagnostics",
    "graphbench.encodings",
    "graphbench.nn",
    "graphbench.training.tasks",
    "graphbench_baselines",
    "graphbench_deepgraph",
    "graphbench_large_graphs",
    "graphbench_linear_transformer",
    "graphbench_point_clouds",
    "graphbench_sequences",
    "graphbench_sfi_former",
    "graphbench_sft",
)
#: Packages whose examples run, without one for every name: no public names, exceptions, base classes of tests.
PARTLY = (
    "graphbench.benchmarks",
    "graphbench.callbacks",
    "graphbench.cli",
    "graphbench.errors",
    "graphbench.experiments",
    "graphbench.inference",
    "graphbench.registry",
    "graphbench.report",
    "graphbench.runs",
    "graphbench.testing",
    "graphbench.training",
    *(["graphbench_kernels"] if find_spec("graphbench_kernels") and find_spec("numba") else []),
)


def _modules() -> list[str]:
    paths = {package: getattr(importlib.import_module(package), "__path__", ()) for package in (*COMPLETE, *PARTLY)}
    inside = (found.name for package, path in paths.items() for found in pkgutil.walk_packages(path, f"{package}."))
    return [*dict.fromkeys([*paths, *inside])]  # a nested room is listed with its parent


def _without_example(package: str) -> set[str]:
    """Return public classes and functions of a package whose docstring has no example."""
    room = importlib.import_module(package)
    named = {name: getattr(room, name) for name in room.__all__}
    described = {
        name: thing
        for name, thing in named.items()
        if not get_args(thing)  # an alias, which Python 3.10 takes for a class
        and (isinstance(thing, type) or (callable(thing) and str(getattr(thing, "__module__", "")).startswith(package)))
    }
    return {f"{package}.{name}" for name, thing in described.items() if ">>>" not in (thing.__doc__ or "")}


@pytest.mark.parametrize("name", _modules())
def test_examples_run(name: str) -> None:
    torch.manual_seed(0)
    try:
        module = importlib.import_module(name)
    except ModuleNotFoundError as error:
        if error.name != "triton":
            raise
        pytest.skip("needs triton")
    result = doctest.testmod(module)
    assert not result.failed


@pytest.mark.parametrize("package", COMPLETE)
def test_every_public_class_and_function_has_an_example(package: str) -> None:
    assert not _without_example(package)
