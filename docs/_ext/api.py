"""The API reference, written when the site is built: one page for each public module, read from its `__all__`.

A name that several modules export is described on the page of the innermost one; the others link to it.
"""

from __future__ import annotations

import inspect
import re
from collections.abc import Iterable, Iterator
from functools import cache
from importlib import import_module
from importlib.metadata import entry_points
from pathlib import Path
from pkgutil import walk_packages
from types import ModuleType
from typing import Any, get_origin

from graphbench import registry

#: Test of an object, and the autodoc directive that documents objects that pass it; the first match counts.
DIRECTIVES = (
    (lambda thing: inspect.isclass(thing) and issubclass(thing, BaseException), "autoexception"),
    (lambda thing: inspect.isclass(thing) and get_origin(thing) is None, "autoclass"),
    (inspect.isroutine, "autofunction"),
    (lambda thing: True, "autodata"),
)


def packages() -> list[str]:
    """Return graphbench, then every package that registers something, including kernels."""
    targets = [record.target for group in registry.GROUPS for record in registry.records(group).values()]
    targets += [entry.value for entry in entry_points(group="graphbench.kernels")]
    return ["graphbench", *sorted({target.partition(":")[0].partition(".")[0] for target in targets} - {"graphbench"})]


def names(module: ModuleType) -> list[str]:
    """Return `__all__`; for a module without one, the public names that it or a module within it defines."""
    listed = getattr(module, "__all__", None)
    if listed is None:
        inside = module.__name__ + "."
        listed = [
            name for name, thing in vars(module).items()
            if not name.startswith("_") and f"{getattr(thing, '__module__', None)}.".startswith(inside)
        ]  # fmt: skip
    return sorted(listed)


def modules(package: str) -> Iterator[ModuleType]:
    """Yield the package, its subpackages with names in `__all__`, and the modules that these list."""
    top = import_module(package)
    inner = (import_module(entry.name) for entry in walk_packages(top.__path__, package + ".") if entry.ispkg)
    found = [top, *(module for module in inner if getattr(module, "__all__", ()))]
    listed = [getattr(module, name) for module in found for name in names(module)]
    yield from {module.__name__: module for module in [*found, *filter(inspect.ismodule, listed)]}.values()


def homes(pages: dict[str, ModuleType]) -> dict[tuple[str, int], str]:
    """Map (name, identity) of every exported object to the innermost module that exports it."""
    found: dict[tuple[str, int], str] = {}
    for module in sorted(pages, key=lambda name: name.count(".")):
        found |= {(name, id(getattr(pages[module], name))): module for name in names(pages[module])}
    return found


def summary(thing: object) -> str:
    """Return the first line of a docstring; nothing for values, whose docstrings are those of their types."""
    documented = inspect.isclass(thing) or inspect.isroutine(thing) or inspect.ismodule(thing)
    return escaped((inspect.getdoc(thing) or "").partition("\n")[0]) if documented else ""


def escaped(line: str) -> str:
    """Escape stars and bars of formulas, which would be markup in reStructuredText; skip code and bullets."""
    words = re.split(r"(^\s*\* |``.*?``|`[^`]*`)", line)
    return "".join(word if number % 2 else re.sub(r"([*|])", r"\\\1", word) for number, word in enumerate(words))


def readable(lines: list[str]) -> list[str]:
    """Convert this project's docstrings to reStructuredText: indented code and tables become literal blocks."""
    found: list[str] = []
    code = example = rows = False
    above = 0
    for line in lines:
        indent = len(line) - len(line.lstrip())
        if not line.strip():
            example = rows = False
            found.append(line)
            continue
        row = line.count("|") > 2 and line.strip().startswith("|") and line.strip().endswith("|")
        begins_code = indent >= 4 and above == 0 and bool(found) and not found[-1].strip()
        if (begins_code and not code) or (row and not rows):
            found += [" " * (0 if begins_code else indent) + "::", ""]
        code, rows = begins_code or (code and indent > 0), row
        example = example or line.strip().startswith(">>>")
        found.append(line if code or example else f"    {line}" if row else escaped(line))
        above = indent
    return found


def rewrite(app: Any, what: str, name: str, thing: object, options: Any, lines: list[str]) -> None:
    """Apply `readable` to a docstring before napoleon reads it, and remove one that a value has from its type."""
    inherited = (thing.__doc__ or "").strip().partition("\n")[0]
    if what == "data" and lines and lines[0].strip() == inherited:
        lines.clear()
    lines[:] = readable(lines)


def page(module: ModuleType, pages: dict[str, ModuleType], home: dict[tuple[str, int], str]) -> str:
    """Return reStructuredText: the module's docstring, a line for each name, then the objects documented here."""
    title = module.__name__
    lines, entries = [title, "=" * len(title), "", f".. automodule:: {title}", ""], []
    for name in names(module):
        thing = getattr(module, name)
        if inspect.ismodule(thing):
            lines.append(f"* :py:mod:`{name} <{thing.__name__}>`: {summary(thing)}")
            continue
        where = home[name, id(thing)]
        lines.append(f"* :py:obj:`{name} <{where}.{name}>`: {summary(thing)}".rstrip(": "))
        if where == title:
            directive = next(directive for fits, directive in DIRECTIVES if fits(thing))
            options = {"autoclass": ["   :members:", "   :show-inheritance:"]}.get(directive, [])
            entries += ["", f".. {directive}:: {title}.{name}", *options]
    return "\n".join([*lines, "", *entries, ""])


#: A zero-width space, at which a browser may break a line.
BREAK = "\u200b"


def contents(pages: Iterable[str]) -> str:
    """Return reStructuredText of a page that lists the others; their names may break after a dot."""
    title = "Public names, by module"
    entries = [f"   {name.replace('.', '.' + BREAK)} <{name}>" for name in sorted(pages)]
    return "\n".join([title, "=" * len(title), "", ".. toctree::", "   :maxdepth: 1", "", *entries, ""])


@cache
def described() -> tuple[dict[str, ModuleType], dict[tuple[str, int], str]]:
    """Return all public modules by name, and `homes` of them."""
    pages = {module.__name__: module for package in packages() for module in modules(package)}
    return pages, homes(pages)


def write(app: Any) -> None:
    """Write the pages beside the sources, except unchanged ones, and remove those of modules that no longer exist."""
    folder = Path(app.srcdir) / "reference" / "api"
    folder.mkdir(parents=True, exist_ok=True)
    pages, home = described()
    texts = {folder / f"{name}.rst": page(module, pages, home) for name, module in pages.items()}
    texts[folder / "index.rst"] = contents(pages)
    for path in set(folder.glob("*.rst")) - set(texts):
        path.unlink()
    for path, text in texts.items():
        if not path.is_file() or path.read_text(encoding="utf-8") != text:
            path.write_text(text, encoding="utf-8")


def setup(app: Any) -> dict[str, Any]:
    """Set up the extension; Sphinx calls this."""
    app.connect("builder-inited", write)
    app.connect("autodoc-process-docstring", rewrite, priority=400)
    return {"version": "1", "parallel_read_safe": True, "parallel_write_safe": True}
