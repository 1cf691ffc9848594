"""Which room may import which. An import against the arrows fails here, with file and line."""

from __future__ import annotations

import ast
import importlib
import re
from collections import Counter
from functools import cache
from pathlib import Path

import pytest
from mirror import TESTED_BY, TESTS_OF

ROOT = Path(__file__).parents[1]
CORE = ROOT / "graphbench"
PLUGINS = sorted((ROOT / "plugins").glob("*/src/graphbench_*"))

#: Room (a folder or file of graphbench/) -> the rooms it may import. Benchmarks and models meet only through the
#: contracts, nothing imports the command line, and only it imports what is made for tests, to count GPU memory on the
#: pretended device.
ARROWS = {
    "__init__": set(),
    "__main__": {"cli"},
    "benchmarks": {"contracts", "data", "errors", "registry", "tables"},
    "callbacks": {"contracts", "data", "diagnostics", "encodings", "errors", "runs", "training"},
    "cli": {
        "__init__",
        "callbacks",
        "contracts",
        "data",
        "errors",
        "experiments",
        "inference",
        "registry",
        "report",
        "runs",
        "testing",
        "training",
    },
    "contracts": {"errors"},
    "data": {"contracts", "errors"},
    "diagnostics": {"contracts", "errors"},
    "encodings": {"contracts", "errors"},
    "errors": set(),
    "experiments": {"data", "diagnostics", "errors", "registry", "runs"},
    "inference": {"__init__", "contracts", "data", "diagnostics", "errors", "registry", "runs", "training"},
    "nn": {"contracts", "encodings", "errors"},
    "registry": {"contracts", "data", "errors"},
    "report": {"data", "diagnostics", "errors", "runs"},
    "runs": {"data", "errors", "registry"},
    "tables": {"data", "errors"},
    "testing": {"benchmarks", "contracts", "diagnostics", "errors", "nn", "registry", "training"},
    "training": {"contracts", "data", "errors", "nn", "registry", "runs"},
}

#: Modules that are only entry points.
DOORS = {"__init__", "__main__"}

#: Modules whose `__all__` is the public interface; plug-ins import nothing else of graphbench.
PUBLIC = (
    "graphbench",
    "graphbench.benchmarks",
    "graphbench.callbacks",
    "graphbench.benchmarks.electric_flow",
    "graphbench.contracts",
    "graphbench.data",
    "graphbench.diagnostics",
    "graphbench.encodings",
    "graphbench.encodings.substructures",
    "graphbench.errors",
    "graphbench.contracts.devices",
    "graphbench.contracts.kernels",
    "graphbench.benchmarks.molecules",
    "graphbench.nn",
    "graphbench.testing",
)


#: Plug-ins that share parts of their operations with the kernels of `graphbench-kernels`.
OF_KERNELS = {"graphbench_sfi_former"}


@cache  # several tests walk through all files
def imports(file: Path, package: str, types: bool = True) -> list[tuple[int, str, str | None]]:
    """Return `(line, module, name)` of every import in a file, also in functions; name is None for `import module`.

    Args:
        file: a source file.
        package: the package that contains it.
        types: whether to include imports that only type checkers run.
    """
    found: list[tuple[int, str, str | None]] = []
    nodes = list(ast.walk(ast.parse(file.read_bytes())))
    checking = [node for node in nodes if isinstance(node, ast.If) and ast.unparse(node.test) == "TYPE_CHECKING"]
    skipped = set() if types else {inner for node in checking for inner in ast.walk(node)}
    for node in nodes:
        if node in skipped:
            continue
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
    """Return the room of graphbench that an import reaches; None for imports from elsewhere."""
    top, _, inner = module.partition(".")
    if top != "graphbench":
        return None
    if inner:
        return inner.split(".")[0]
    return name if name in ARROWS else "__init__"


def core_imports(room: str) -> list[tuple[str, str]]:
    """Return `(place, imported room)` of every import of graphbench in a room, except from the room itself."""
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


def test_no_arrow_is_left_over():
    """What is no longer imported is no longer allowed."""
    unused = {room: arrows - {reached for _, reached in core_imports(room)} for room, arrows in ARROWS.items()}
    assert not {room: sorted(arrows) for room, arrows in unused.items() if arrows}
    assert ARROWS.keys() == {room_of(file) for file in CORE.rglob("*.py")}


def test_arrows_are_those_of_the_text():
    """Compare with the table of ARCHITECTURE.md, which leaves out the two doors."""
    text = (ROOT / "ARCHITECTURE.md").read_text(encoding="utf-8").partition("## Rooms")[2].partition("\nA family in")[0]
    rows = re.findall(r"^\| `(\w+)(?:/|\.py)` \| .* \| ([^|]+) \|$", text, re.MULTILINE)
    told = {room: set(re.findall(r"`(\w+)`", imported)) for room, imported in rows}
    assert told == {room: arrows - DOORS for room, arrows in ARROWS.items() if room not in DOORS}


def test_arrows_have_no_cycle():
    """`build` reaches the registry lazily, and nothing leads back from there."""
    open_rooms = {room: set(arrows) - {"__init__"} for room, arrows in ARROWS.items()}
    while leaves := {room for room, arrows in open_rooms.items() if not arrows}:
        open_rooms = {room: arrows - leaves for room, arrows in open_rooms.items() if room not in leaves}
    assert not open_rooms


def circles(reached: dict[str, set[str]]) -> set[frozenset[str]]:
    """Return the strongly connected components of more than one file, each the files that reach one another."""
    for middle in reached:  # Warshall: paths through one more file each time
        for start in reached:
            if middle in reached[start]:
                reached[start] |= reached[middle]
    return {
        frozenset(other for other in reached[start] if start in reached[other])
        for start in reached
        if start in reached[start]
    }


def test_no_files_import_each_other():
    """Imports inside functions count; those for type checkers do not, since they never run."""
    found: set[frozenset[str]] = set()
    for root in (CORE, *PLUGINS):
        modules = {".".join(file.relative_to(root.parent).with_suffix("").parts): file for file in root.rglob("*.py")}
        modules = {name.removesuffix(".__init__"): file for name, file in modules.items()}
        reached = {
            name: {
                inner if (inner := f"{module}.{part}") in modules else module
                for _, module, part in imports(file, package_of(file, root), types=False)
            }
            & modules.keys()
            for name, file in modules.items()
        }
        found |= circles(reached)
    assert not found


def test_circles_are_found():
    assert circles({"a": {"b"}, "b": {"c"}, "c": {"b"}, "d": {"d", "a"}}) == {frozenset("bc"), frozenset("d")}


def test_what_commands_share_imports_no_command():
    against = [
        f"{file.relative_to(ROOT)}:{line}"
        for file in (CORE / "cli").glob("*.py")
        for line, module, name in imports(file, package_of(file, CORE))
        if f"{module}.{name}".startswith("graphbench.cli.commands")
    ]
    assert not against


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
            if plugin.name == "graphbench_kernels" and top in OF_KERNELS:
                continue
            if top.startswith("graphbench_") and top != plugin.name:
                against.append(f"{place} imports another plug-in, {module}")
            elif top == "graphbench" and not is_public(module, name):
                against.append(f"{place} imports {module}{f'.{name}' if name else ''}, which is not public")
    assert not against, "\n".join(against)


def is_public(module: str, name: str | None) -> bool:
    if name is None or module not in PUBLIC:
        return False
    exported = getattr(importlib.import_module(module), "__all__", ())  # without it nothing of a module is public
    return name in exported or f"{module}.{name}" in PUBLIC


def mirrored() -> dict[str, tuple[str, ...]]:
    """Return source file -> its own test files, if they exist: of its name, or of the folder that contains it."""
    trees = [(CORE, ROOT / "tests"), *((plugin, plugin.parents[1] / "tests") for plugin in PLUGINS)]
    found = {}
    for source, tests in trees:
        for file in sorted(source.rglob("*.py")):
            folder = tests / file.parent.relative_to(source)
            own = [] if file.stem.startswith("__") else [folder / f"test_{file.stem.lstrip('_')}.py"]
            if folder != tests:
                own += [folder / f"test_{folder.name}.py", folder.parent / f"test_{folder.name}.py"]
            found[str(file.relative_to(ROOT))] = tuple(str(path.relative_to(ROOT)) for path in own)
    return found


def test_tests_mirror_the_sources():
    tests = {str(path.relative_to(ROOT)) for path in ROOT.glob("tests/**/test_*.py")}
    tests |= {str(path.relative_to(ROOT)) for path in ROOT.glob("plugins/*/tests/**/test_*.py")}
    own = mirrored()
    untested = {source for source, named in own.items() if not source.endswith("__.py") and not tests & set(named)}
    assert untested - TESTED_BY.keys() == set(), "write a test file of that name, or a line in tests/helpers/mirror.py"
    assert TESTED_BY.keys() - untested == set(), "these have a test of their own, or are gone: remove their lines"
    assert {test for test, _ in TESTED_BY.values()} - tests == set(), "no such test file"
    without_source = tests - {test for named in own.values() for test in named}
    assert without_source - TESTS_OF.keys() == set(), "no source file has that name: say in TESTS_OF what is tested"
    assert TESTS_OF.keys() - without_source == set(), "these mirror a source file, or are gone: remove their lines"


def names_of(file: Path) -> set[str]:
    """Return the classes that a file defines and the names that it imports."""
    nodes = list(ast.walk(ast.parse(file.read_bytes())))
    defined = {node.name for node in nodes if isinstance(node, ast.ClassDef)}
    return defined | {alias.name for node in nodes if isinstance(node, ast.ImportFrom) for alias in node.names}


def files_to_add(name: str, source: Path, tests: Path, project: Path) -> int:
    """Count the files that such a class adds or changes: where it is defined, listed, registered and tested."""
    files = {file for pattern in ("*.py", "*.pyi") for file in source.rglob(pattern) if name in names_of(file)}
    registered = re.search(rf"^{name} = ", project.read_text(encoding="utf-8"), re.MULTILINE) is not None
    defining = next(file.stem for file in files if file.suffix == ".py" and not file.stem.startswith("__"))
    return len(files) + registered + len(list(tests.rglob(f"test_{defining}.py")))


def between_families() -> int:
    """Count the import statements by which one benchmark family imports another."""
    benchmarks = CORE / "benchmarks"
    families = {file.parent.name for file in benchmarks.glob("*/__init__.py")}
    found = set()
    for family in families:
        for file in (benchmarks / family).rglob("*.py"):
            for line, module, _ in imports(file, package_of(file, CORE)):
                parts = [*module.split("."), "", ""][:3]
                if parts[:2] == ["graphbench", "benchmarks"] and parts[2] in families - {family}:
                    found.add((file, line))
    return len(found)


def numbers_now() -> dict[str, int]:
    """Return today's values for the section "In numbers" of ARCHITECTURE.md, by the first words of the row."""
    rooms = {room_of(file) for file in CORE.rglob("*.py")} - DOORS
    modules = Counter(file.parent for file in CORE.rglob("*.py") if not file.stem.startswith("__"))
    plugin = ROOT / "plugins" / "baselines"
    return {
        "rooms": len(rooms),
        "arrows": len(
            {(room, reached) for room in rooms for _, reached in core_imports(room)}
            - {(room, door) for room in rooms for door in DOORS}
        ),
        "imports between families": between_families(),
        "modules in the fullest folder": max(modules.values()),
        "files for a benchmark": files_to_add("CSL", CORE, ROOT / "tests" / "benchmarks", ROOT / "pyproject.toml"),
        "files for an encoding": files_to_add(
            "EffectiveResistance", CORE, ROOT / "tests" / "encodings", ROOT / "pyproject.toml"
        ),
        "files for a model": files_to_add("GT", plugin / "src", plugin / "tests", plugin / "pyproject.toml"),
    }


def test_architecture_in_numbers():
    """The text is up to date; a number that changes is changed there on purpose."""
    text = (ROOT / "ARCHITECTURE.md").read_text(encoding="utf-8").partition("## In numbers")[2].partition("\n## ")[0]
    told = {
        cells[0]: int(cells[2])
        for cells in re.findall(r"^\| ([a-z ]+)(?:,[^|]*)? \| (\d+) \| (\d+) \|", text, re.MULTILINE)
    }
    assert told == numbers_now()
