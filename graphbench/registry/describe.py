"""Read the docstring and the options of a class from its source, without importing it.

`graphbench list` shows a summary of everything installed, and options are checked before anything heavy is imported.
Importing all classes would load torch, and one broken plug-in would break the list. So the source is only parsed: names
are followed through `from x import y` to their definition.
"""

from __future__ import annotations

import ast
import importlib.util
import re
from dataclasses import dataclass
from functools import cache
from importlib.machinery import ModuleSpec, PathFinder
from pathlib import Path

_MAX_HOPS = 16  # limit of followed re-exports, since modules may import a name from each other


@dataclass(frozen=True)
class _Source:
    """A parsed module: its package (itself if it is one), and the statement that binds each name."""

    module: str
    package: list[str]
    bindings: dict[str, ast.stmt]


def find_source(module: str) -> Path | None:
    """Find the source file of a module without running any package's code."""
    try:
        spec = _find_spec(module)
    except ValueError:  # a module without __spec__, such as __main__
        return None
    path = Path(spec.origin) if spec is not None and spec.origin else None
    return path if path is not None and path.suffix == ".py" and path.is_file() else None


def _find_spec(module: str) -> ModuleSpec | None:
    top, *inner = module.split(".")
    spec = importlib.util.find_spec(top)
    for part in inner:  # one name at a time, since a dotted name would import its parent
        if spec is None or spec.submodule_search_locations is None:
            return None
        spec = PathFinder.find_spec(part, list(spec.submodule_search_locations))
    return spec


def _bindings(statements: list[ast.stmt]) -> dict[str, ast.stmt]:
    """Return name -> the last statement that binds it, at module level or under `if TYPE_CHECKING:`."""
    bindings: dict[str, ast.stmt] = {}
    for statement in statements:
        match statement:
            case ast.If(test=ast.Name(id="TYPE_CHECKING"), body=body):
                bindings.update(_bindings(body))
            case ast.ImportFrom(names=names):
                bindings.update({alias.asname or alias.name: statement for alias in names})
            case ast.ClassDef(name=name) | ast.FunctionDef(name=name) | ast.AnnAssign(target=ast.Name(id=name)):
                bindings[name] = statement
            case ast.Assign(targets=targets):
                bindings.update({target.id: statement for target in targets if isinstance(target, ast.Name)})
    return bindings


@cache
def _parse(module: str) -> _Source | None:
    path = find_source(module)
    if path is None:
        return None
    stub = path.with_suffix(".pyi")  # lists the names that a package loads on first use
    try:
        bindings = _bindings(ast.parse(stub.read_bytes()).body) if stub.is_file() else {}
        bindings |= _bindings(ast.parse(path.read_bytes()).body)  # the module's definitions override those of its stub
    except (SyntaxError, ValueError, OSError):  # loading the class reports the reason; a list continues
        return None
    parts = module.split(".")
    return _Source(module, parts if path.name == "__init__.py" else parts[:-1], bindings)


def _followed(target: str) -> tuple[str, str, _Source | None, ast.stmt | None]:
    """Follow `"package.module:Class"` through re-exports; return module and name at the end, source and binding."""
    module, _, name = target.partition(":")
    for _ in range(_MAX_HOPS):
        source = _parse(module)
        statement = source.bindings.get(name) if source is not None else None
        if source is None or not isinstance(statement, ast.ImportFrom):
            break
        name = next(alias.name for alias in statement.names if name == (alias.asname or alias.name))
        level = statement.level
        # One dot is the package itself, each further dot a parent.
        parents = source.package[: len(source.package) - level + 1] if level else []
        module = ".".join([*parents, *([statement.module] if statement.module else [])])
    return module, name, source, statement


def _find_class(target: str) -> tuple[_Source, ast.ClassDef] | None:
    """Return the module and statement that define the class `"package.module:Class"`, through re-exports."""
    _, _, source, statement = _followed(target)
    return (source, statement) if source is not None and isinstance(statement, ast.ClassDef) else None


def absence_of(target: str) -> str:
    """Say which part of `"package.module:Class"` does not exist; "" if the source does not show that.

    Examples:
        >>> absence_of("graphbench.contracts.spec:Features"), absence_of("graphbench.contracts.spec:Nothing")
        ('', 'graphbench.contracts.spec has no Nothing')
    """
    module, name, source, statement = _followed(target)
    if source is None:
        try:
            return "" if _find_spec(module) else f"there is no module {module}"
        except ValueError:
            return ""
    path, name = find_source(module), name.partition(".")[0]
    if statement is not None or path is None:
        return ""
    # A name may be bound in ways that are not parsed: under `try`, by `*`, or on access.
    may_bind = re.compile(rf"\b{re.escape(name)}\b|import \*|__getattr__|globals\(|vars\(|setattr\(")
    return "" if may_bind.search(path.read_text(encoding="utf-8", errors="replace")) else f"{module} has no {name}"


@cache
def summary_of(target: str) -> str:
    """Return the first line of the docstring of the class `"package.module:Class"`; "" without a readable one.

    Examples:
        >>> summary_of("graphbench.contracts.spec:Features")
        'Features of every node (or every edge).'
    """
    definition = _find_class(target)
    docstring = ast.get_docstring(definition[1]) if definition is not None else None
    return (docstring or "").partition("\n")[0].strip()


@cache
def options_of(target: str) -> dict[str, str] | None:
    """Return the options of the constructor of `"package.module:Class"`: name -> its docstring, or "".

    Options of the base are included if the constructor accepts `**options`, except those that it passes to the base
    itself. None if the source does not show all options.

    Examples:
        >>> list(options_of("graphbench.training.optim:Schedule"))[:3]
        ['name', 'interval', 'warmup']
        >>> options_of("graphbench.training.optim:nothing") is None
        True
    """
    definition = _find_class(target)
    if definition is None:
        return None
    source, statement = definition
    texts = _arguments_section(ast.get_docstring(statement) or "")
    constructor, fixed = _bindings(statement.body).get("__init__"), set[str]()
    if isinstance(constructor, ast.FunctionDef):
        fixed = _given_to_base(constructor)
        parameters = constructor.args
        names = [one.arg for one in (*parameters.posonlyargs, *parameters.args, *parameters.kwonlyargs)][1:]
        complete = parameters.kwarg is None
    elif any(_is_dataclass(decorator) for decorator in statement.decorator_list):
        fields = (field.target for field in statement.body if isinstance(field, ast.AnnAssign))
        names, complete = [field.id for field in fields if isinstance(field, ast.Name)], not statement.bases
    else:
        names, complete = list[str](), False
    options = {name: texts.get(name, "") for name in names}
    if complete:
        return options
    base = statement.bases[0] if statement.bases else None
    inherited = options_of(f"{source.module}:{base.id}") if isinstance(base, ast.Name) else None
    if inherited is None:
        return None
    return options | {name: text for name, text in inherited.items() if name not in options.keys() | fixed}


def _given_to_base(constructor: ast.FunctionDef) -> set[str]:
    """Return the names that a constructor passes to `super().__init__`, which its caller cannot also pass.

    A value taken from `**options`, such as `options.pop("batch_size", 8)`, is the caller's.
    """
    options = constructor.args.kwarg.arg if constructor.args.kwarg else ""
    return {
        keyword.arg
        for node in ast.walk(constructor)
        if isinstance(node, ast.Call) and ast.unparse(node.func) == "super().__init__"
        for keyword in node.keywords
        if keyword.arg is not None
        and not any(isinstance(part, ast.Name) and part.id == options for part in ast.walk(keyword.value))
    }


def _is_dataclass(decorator: ast.expr) -> bool:
    function = decorator.func if isinstance(decorator, ast.Call) else decorator
    return isinstance(function, ast.Name) and function.id == "dataclass"


def _arguments_section(docstring: str) -> dict[str, str]:
    """Return the entries under `Args:`, each as one line."""
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
    """Clear the caches, so that changed files are read again."""
    summary_of.cache_clear()
    options_of.cache_clear()
    _parse.cache_clear()
