"""`import graphbench` provides every public name and does not import torch."""

from __future__ import annotations

import ast
import importlib
import importlib.metadata
import subprocess
import sys
from pathlib import Path

import pytest

import graphbench

FOLDER = Path(graphbench.__file__).parent
#: Module -> the stub that type checkers read for it.
STUBS = {
    ".".join((FOLDER.name, *stub.parent.relative_to(FOLDER).parts)): stub for stub in sorted(FOLDER.rglob("*.pyi"))
}


def exported(module):
    return [(module, name) for name in importlib.import_module(module).__all__]


@pytest.mark.parametrize(("module", "name"), [pair for module in STUBS for pair in exported(module)])
def test_public_name_can_be_imported(module, name):
    assert getattr(importlib.import_module(module), name) is not None


@pytest.mark.parametrize("module", STUBS)
def test_type_checkers_are_told_what_there_is(module):
    """A stub re-exports names from where they are defined, with their true types, and leaves none out."""
    room, told = importlib.import_module(module), set()
    for line in ast.parse(STUBS[module].read_text(encoding="utf-8")).body:
        assert isinstance(line, ast.ImportFrom | ast.AnnAssign), ast.unparse(line)
        if isinstance(line, ast.AnnAssign):
            assert ast.unparse(line) in ("__version__: str", "__all__: list[str]")
            continue
        source = importlib.import_module(f"{'.' * line.level}{line.module or ''}", module)
        for alias in line.names:
            assert alias.asname == alias.name
            told.add(alias.name)
            is_module = line.module is None
            defined = importlib.import_module(f".{alias.name}", module) if is_module else getattr(source, alias.name)
            assert getattr(room, alias.name) is defined
            assert alias.name in dir(room)
    assert told == set(room.__all__)


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
