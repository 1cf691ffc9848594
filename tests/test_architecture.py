"""Who may import whom. An import against the arrows fails here, with file and line."""

from __future__ import annotations

import ast
import importlib
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
CORE = ROOT / "graphbench"
PLUGINS = sorted((ROOT / "plugins").glob("*/src/graphbench_*"))

#: Room (a folder or file of graphbench/) -> the rooms it may import. Benchmarks and models never meet but through the
#: contracts, nothing imports the command line, and nothing imports what is made for tests.
ARROWS = {
    "__init__": {"moved"},
    "__main__": {"cli"},
    "benchmarks": {"contracts", "data", "encodings", "errors"},
    "callbacks": {
        "checkpoints", "contracts", "data", "diagnostics", "encodings", "errors", "figures", "module", "runs",
    },  # fmt: skip
    "checkpoints": {"errors", "runs"},
    "cli": {
        "__init__", "callbacks", "checkpoints", "configurations", "contracts", "errors", "expected", "module", "registry",
        "report", "runs",
    },  # fmt: skip
    "configurations": {"errors", "expected", "registry"},
    "contracts": {"errors"},
    "data": {"contracts", "errors"},
    "describe": {"contracts"},
    "diagnostics": {"contracts", "errors"},
    "encodings": {"contracts", "errors"},
    "errors": set(),
    "expected": {"contracts", "errors"},
    "figures": {"diagnostics", "errors"},
    "experiments": {"errors", "runs"},
    "moved": set(),
    "module": {"checkpoints", "contracts", "errors", "nn", "optim", "registry", "tasks"},
    "nn": {"contracts", "encodings", "errors"},
    "optim": {"contracts", "errors"},
    "registry": {"contracts", "describe", "errors"},
    "report": {"contracts", "diagnostics", "errors", "runs"},
    "runs": {"errors"},
    "tasks": {"contracts", "errors", "nn"},
    "testing": {"contracts", "diagnostics", "errors", "module", "nn", "registry", "tasks"},
}

#: Modules whose `__all__` is the public interface; plug-ins import nothing else of graphbench.
PUBLIC = (
    "graphbench",
    "graphbench.benchmarks",
    "graphbench.benchmarks.electric_flow",
    "graphbench.contracts",
    "graphbench.data",
    "graphbench.diagnostics",
    "graphbench.encodings",
    "graphbench.encodings.substructures",
    "graphbench.errors",
    "graphbench.benchmarks.molecules",
    "graphbench.nn",
    "graphbench.testing",
)


def imports(file: Path, package: str) -> list[tuple[int, str, str | None]]:
    """`(line, module, name)` of every import in a file, inside functions too; name is None for `import module`."""
    found: list[tuple[int, str, str | None]] = []
    for node in ast.walk(ast.parse(file.read_bytes())):
        if isinstance(node, ast.Import):
            found += [(node.lineno, alias.name, None) for alias in node.names]
        elif isinstance(node, ast.ImportFrom):
            parents = package.split(".")[: len(package.split(".")) - node.level + 1] if node.level else []
            module = ".".join([*parents, *([node.module] if node.module else [])])
            found += [(node.lineno, module, alias.name) for alias in node.names]
    return found


def package_of(file: Path, root: Path) -> str:
    return ".".join(file.relative_to(root.parent).parent.parts)


def room_of(file: Path) -> str:
    return Path(file.relative_to(CORE).parts[0]).stem


def imported_room(module: str, name: str | None) -> str | None:
    """Room of graphbench that an import reaches; None for imports from elsewhere."""
    top, _, inner = module.partition(".")
    if top != "graphbench":
        return None
    if inner:
        return inner.split(".")[0]
    return name if name in ARROWS else "__init__"


def core_imports(room: str) -> list[tuple[str, str]]:
    """`(place, imported room)` of every import of graphbench in a room, but of the room itself."""
    files = [file for file in sorted(CORE.rglob("*.py")) if room_of(file) == room]
    found = []
    for file in files:
        for line, module, name in imports(file, package_of(file, CORE)):
            reached = imported_room(module, name)
            if reached not in (None, room):
                found.append((f"{file.relative_to(ROOT)}:{line}", reached))
    return found


def test_every_room_has_arrows():
    rooms = {room_of(file) for file in CORE.rglob("*.py")}
    assert rooms <= ARROWS.keys(), "a new room needs a line in ARROWS"


@pytest.mark.parametrize("room", ARROWS)
def test_room_imports_along_the_arrows(room):
    against = [f"{place} imports {reached}" for place, reached in core_imports(room) if reached not in ARROWS[room]]
    assert not against, "\n".join(against)


def test_arrows_have_no_cycle():
    """`build` reaches the registry lazily, and nothing leads back from there."""
    open_rooms = {room: set(arrows) - {"__init__"} for room, arrows in ARROWS.items()}
    while leaves := {room for room, arrows in open_rooms.items() if not arrows}:
        open_rooms = {room: arrows - leaves for room, arrows in open_rooms.items() if room not in leaves}
    assert not open_rooms


def test_core_imports_no_plugin():
    against = [
        f"{file.relative_to(ROOT)}:{line} imports {module}"
        for file in sorted(CORE.rglob("*.py"))
        for line, module, _ in imports(file, package_of(file, CORE))
        if module.startswith("graphbench_")
    ]
    assert not against, "\n".join(against)


@pytest.mark.parametrize("plugin", PLUGINS, ids=lambda plugin: plugin.name)
def test_plugin_imports_public_names_only(plugin):
    against = []
    for file in sorted(plugin.rglob("*.py")):
        for line, module, name in imports(file, package_of(file, plugin)):
            place = f"{file.relative_to(ROOT)}:{line}"
            top = module.split(".")[0]
            if top.startswith("graphbench_") and top != plugin.name:
                against.append(f"{place} imports another plug-in, {module}")
            elif top == "graphbench" and not is_public(module, name):
                against.append(f"{place} imports {module}{f'.{name}' if name else ''}, which is not public")
    assert not against, "\n".join(against)


def is_public(module: str, name: str | None) -> bool:
    if name is None or module not in PUBLIC:
        return False
    exported = getattr(importlib.import_module(module), "__all__", None)
    if exported is None:  # graphbench.errors: every class is meant to be caught
        return not name.startswith("_")
    return name in exported or f"{module}.{name}" in PUBLIC
