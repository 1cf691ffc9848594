"""`import graphbench` gives every public name, and costs nothing until one is used."""

from __future__ import annotations

import importlib
import importlib.metadata
import subprocess
import sys

import pytest

import graphbench

LAZY_ROOMS = ("graphbench", "graphbench.contracts", "graphbench.data", "graphbench.nn", "graphbench.testing")


def exported(module):
    return [(module, name) for name in importlib.import_module(module).__all__]


@pytest.mark.parametrize(("module", "name"), [pair for module in LAZY_ROOMS for pair in exported(module)])
def test_public_name_can_be_imported(module, name):
    assert getattr(importlib.import_module(module), name) is not None


def test_version_is_that_of_the_distribution():
    assert graphbench.__version__ == importlib.metadata.version("graphbench-lightning")


def test_rooms_are_attributes():
    assert graphbench.registry is importlib.import_module("graphbench.registry")
    assert {"registry", "Architecture", "__version__"} <= set(dir(graphbench))


def test_unknown_attribute_is_an_attribute_error():
    with pytest.raises(AttributeError, match="No graphbench attribute Architekture"):
        graphbench.Architekture  # noqa: B018


def test_importing_graphbench_imports_no_torch():
    code = "import sys, graphbench, graphbench.registry, graphbench.cli; print('torch' in sys.modules)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "False"
