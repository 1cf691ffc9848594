"""`import graphbench` gives every public name, and costs nothing until one is used."""

from __future__ import annotations

import ast
import importlib
import importlib.metadata
import subprocess
import sys
from pathlib import Path

import pytest

import graphbench

LAZY_ROOMS = ("graphbench", "graphbench.contracts", "graphbench.nn", "graphbench.testing")


def exported(module):
    return [(module, name) for name in importlib.import_module(module).__all__]


@pytest.mark.parametrize(("module", "name"), [pair for module in LAZY_ROOMS for pair in exported(module)])
def test_public_name_can_be_imported(module, name):
    assert getattr(importlib.import_module(module), name) is not None


@pytest.mark.parametrize("module", LAZY_ROOMS)
def test_type_checkers_see_the_same_names(module):
    """The `TYPE_CHECKING` block re-exports exactly `__all__`, as `X as X`."""
    tree = ast.parse(Path(importlib.import_module(module).__file__).read_bytes())
    blocks = [
        node
        for node in tree.body
        if isinstance(node, ast.If) and isinstance(node.test, ast.Name) and node.test.id == "TYPE_CHECKING"
    ]
    aliases = [alias for node in blocks[0].body if isinstance(node, ast.ImportFrom) for alias in node.names]
    assert all(alias.asname == alias.name for alias in aliases)
    assert sorted(alias.name for alias in aliases) == sorted(importlib.import_module(module).__all__)


def test_version_is_that_of_the_distribution():
    assert graphbench.__version__ == importlib.metadata.version("graphbench-lightning")


def test_rooms_are_attributes():
    assert graphbench.registry is importlib.import_module("graphbench.registry")
    assert {"registry", "Architecture", "__version__"} <= set(dir(graphbench))


def test_unknown_attribute_is_an_attribute_error():
    with pytest.raises(AttributeError, match="has no attribute 'Architekture'"):
        graphbench.Architekture  # noqa: B018


def test_importing_graphbench_imports_no_torch():
    code = "import sys, graphbench, graphbench.registry, graphbench.cli; print('torch' in sys.modules)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "False"
