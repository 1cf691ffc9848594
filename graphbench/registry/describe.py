"""Read the docstring and the options of a class from its source, without importing it.

`graphbench list` shows a summary of everything installed, and options are checked before anything heavy is imported.
Importing all of it would load torch and let one broken plug-in spoil the list. So the source is parsed, never run: a
name is followed through `from x import y` until its definition is found.
"""

from __future__ import annotations

import ast
import importlib.util
from dataclasses import dataclass
from functools import cache
from importlib.machinery import PathFinder
from pathlib import Path

_MAX_HOPS = 16  # re-exports followed before giving up: modules that import a name from each other must not loop


@dataclass(frozen=True)
class _Source:
    """A parsed module: the package it is in (its own name if it is one) and the statement that binds each name."""

    module: str
    package: list[str]
    bindings: dict[str, ast.stmt]


def find_source(module: str) -> Path | None:
    """File of a module, found without running any package's code; None when there is no such source file."""
    top, *inner = module.split(".")
    try:
        spec = importlib.util.find_spec(top)
    except ValueError:  # a module without __spec__, such as __main__
        return None
    for part in inner:  # by its last name alone: a dotted one would look for its parent among imported modules
        if spec is None or spec.submodule_search_locations is None:
            return None
        spec = PathFinder.find_spec(part, list(spec.submodule_search_locations))
    path = Path(spec.origin) if spec is not None and spec.origin else None
    return path if path is not None and path.suffix == ".py" and path.is_file() else None


def _bindings(statements: list[ast.stmt]) -> dict[str, ast.stmt]:
    """Name -> the last statement that binds it, at module level or under `if TYPE_CHECKING:`."""
    found: dict[str, ast.stmt] = {}
    for statement in statements:
        match statement:
            case ast.If(test=ast.Name(id="TYPE_CHECKING"), body=body):
                found.update(_bindings(body))
            case ast.ImportFrom(names=names):
                found.update({alias.asname or alias.name: statement for alias in names})
            case ast.ClassDef(name=name) | ast.FunctionDef(name=name) | ast.AnnAssign(target=ast.Name(id=name)):
                found[name] = statement
            case ast.Assign(targets=targets):
                found.update({target.id: statement for target in targets if isinstance(target, ast.Name)})
    return found


@cache
def _parse(module: str) -> _Source | None:
    path = find_source(module)
    if path is None:
        return None
    stub = path.with_suffix(".pyi")  # where a package lists the names that it loads on first use
    try:
        bindings = _bindings(ast.parse(stub.read_bytes()).body) if stub.is_file() else {}
        bindings |= _bindings(ast.parse(path.read_bytes()).body)
    except (SyntaxError, ValueError, OSError):  # loading the class reports the reason; the list stays readable
        return None
    parts = module.split(".")
    return _Source(module, parts if path.name == "__init__.py" else parts[:-1], bindings)


def _resolve(module: str, name: str) -> tuple[_Source, ast.stmt] | None:
    """The module and statement that define `module:name`, through re-exports."""
    for _ in range(_MAX_HOPS):
        source = _parse(module)
        statement = source.bindings.get(name) if source is not None else None
        if source is None or not isinstance(statement, ast.ImportFrom):
            return (source, statement) if source is not None and statement is not None else None
        name = next(alias.name for alias in statement.names if name == (alias.asname or alias.name))
        level = statement.level
        parents = source.package[: len(source.package) - level + 1] if level else []
        module = ".".join([*parents, *([statement.module] if statement.module else [])])
    return None


@cache
def summary_of(target: str) -> str:
    """Return the first line of a class's docstring; "" where it has none or its source cannot be read.

    Args:
        target: `"package.module:Class"`.

    Examples:
        >>> summary_of("graphbench.contracts.spec:Features")
        'Features of every node (or every edge).'
    """
    module, _, name = target.partition(":")
    found = _resolve(module, name)
    if found is None or not isinstance(found[1], ast.ClassDef):
        return ""
    return (ast.get_docstring(found[1]) or "").partition("\n")[0].strip()


@cache
def options_of(target: str) -> dict[str, str] | None:
    """What the constructor of a class takes: name -> what its docstring says of it, or "".

    Options that a constructor hands on by `**options` are those of its base.

    Args:
        target: `"package.module:Class"`.

    Returns:
        None where the source does not tell all of them.

    Examples:
        >>> list(options_of("graphbench.training.optim:Schedule"))[:3]
        ['name', 'interval', 'warmup']
        >>> options_of("graphbench.training.optim:nothing") is None
        True
    """
    module, _, name = target.partition(":")
    found = _resolve(module, name)
    if found is None or not isinstance(found[1], ast.ClassDef):
        return None
    source, statement = found[0], found[1]
    said = _arguments_section(ast.get_docstring(statement) or "")
    own = _bindings(statement.body).get("__init__")
    if isinstance(own, ast.FunctionDef):
        given = own.args
        names = [argument.arg for argument in (*given.posonlyargs, *given.args, *given.kwonlyargs)][1:]
        complete = given.kwarg is None
    elif any(_is_dataclass(decorator) for decorator in statement.decorator_list):
        fields = (field.target for field in statement.body if isinstance(field, ast.AnnAssign))
        names, complete = [field.id for field in fields if isinstance(field, ast.Name)], not statement.bases
    else:
        names, complete = list[str](), False
    options = {name: said.get(name, "") for name in names}
    if complete:
        return options
    base = statement.bases[0] if statement.bases else None
    target_of_base = _target(source, base.id) if isinstance(base, ast.Name) else None
    inherited = options_of(target_of_base) if target_of_base is not None else None
    return None if inherited is None else options | {k: v for k, v in inherited.items() if k not in options}


def _target(source: _Source, name: str) -> str | None:
    found = _resolve(source.module, name)
    if found is None or not isinstance(found[1], ast.ClassDef):
        return None
    return f"{found[0].module}:{found[1].name}"


def _is_dataclass(decorator: ast.expr) -> bool:
    named = decorator.func if isinstance(decorator, ast.Call) else decorator
    return isinstance(named, ast.Name) and named.id == "dataclass"


def _arguments_section(docstring: str) -> dict[str, str]:
    """The entries under `Args:`, each as one line."""
    texts: dict[str, str] = {}
    inside = False
    current: tuple[str, ...] = ()
    for line in docstring.splitlines():
        if line.strip() == "Args:":
            inside = True
        elif inside and line.strip() and not line.startswith("    "):
            break
        elif inside and line.strip():
            entry = line[4:]
            head, colon, text = entry.partition(": ")
            if colon and not entry.startswith(" "):
                current = tuple(part.strip() for part in head.split(","))
                texts.update(dict.fromkeys(current, text))
            else:
                texts.update({name: f"{texts[name]} {entry.strip()}" for name in current})
    return texts


def forget() -> None:
    """Drop what was read, so that changed files are read again."""
    summary_of.cache_clear()
    options_of.cache_clear()
    _parse.cache_clear()
