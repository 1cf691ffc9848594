"""What scripts import from the project exists; they run by hand, so nothing else would notice."""

from __future__ import annotations

import ast
import importlib
from importlib.util import find_spec
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
SCRIPTS = sorted(
    file
    for pattern in ("speed/*.py", "experiments/*.py", "release/*.py", "plugins/*/experiments/*.py")
    for file in ROOT.glob(pattern)
)


def imported(file: Path) -> set[tuple[str, str]]:
    """Return `(module, name)` of every `from module import name` that is ours, also inside functions."""
    return {
        (node.module, alias.name)
        for node in ast.walk(ast.parse(file.read_bytes()))
        if isinstance(node, ast.ImportFrom) and node.module and node.module.partition("_")[0].startswith("graphbench")
        for alias in node.names
    }


def is_there(module: str, name: str) -> bool:
    """Return whether a module has the name, or is a package with a module of that name."""
    package = importlib.import_module(module)
    return hasattr(package, name) or (hasattr(package, "__path__") and find_spec(f"{module}.{name}") is not None)


@pytest.mark.parametrize("file", SCRIPTS, ids=lambda file: str(file.relative_to(ROOT)))
def test_what_scripts_import_is_there(file: Path) -> None:
    assert [f"{module}.{name}" for module, name in sorted(imported(file)) if not is_there(module, name)] == []
