"""What scripts import of the project is there: scripts run by hand, and would say so only then."""

from __future__ import annotations

import ast
import importlib
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
SCRIPTS = sorted(
    file
    for pattern in ("speed/*.py", "experiments/*.py", "release/*.py", "plugins/*/experiments/*.py")
    for file in ROOT.glob(pattern)
)


def imported(file: Path) -> set[tuple[str, str]]:
    """`(module, name)` of every `from module import name` that is ours, inside functions too."""
    return {
        (node.module, alias.name)
        for node in ast.walk(ast.parse(file.read_bytes()))
        if isinstance(node, ast.ImportFrom) and node.module and node.module.partition("_")[0].startswith("graphbench")
        for alias in node.names
    }


@pytest.mark.parametrize("file", SCRIPTS, ids=lambda file: str(file.relative_to(ROOT)))
def test_what_scripts_import_is_there(file: Path) -> None:
    for module, name in imported(file):
        found = importlib.import_module(module)
        if not hasattr(found, name):
            importlib.import_module(f"{module}.{name}")  # a module of a package, or an error that names it
